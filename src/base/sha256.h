// SHA-256 (FIPS 180-4), through OpenSSL: of a whole or of bytes as they come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace ibid {

using Sha256Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void add(const void* data, size_t n_bytes);
  // The digest of all that was added, or its 64 lower-case hexadecimal digits. Either ends the object's use.
  Sha256Digest digest();
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest sha256(std::string_view bytes);
// Of these parts, one after another. Allocates nothing.
Sha256Digest sha256(std::initializer_list<std::span<const std::byte>> parts);
std::string sha256_hex(std::string_view bytes);

}  // namespace ibid
