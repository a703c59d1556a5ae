// SHA-256 (FIPS 180-4), through OpenSSL: of a whole or of bytes as they come.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace ibid {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void add(const void* data, size_t n_bytes);
  // The digest of all that was added, as 64 lower-case hexadecimal digits. Ends the object's use.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace ibid
