// ByteReader: little-endian values from a span, never past its end. Reading in order; a failed read changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace ibid {

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t at() const { return at_; }
  size_t n_left() const { return bytes_.size() - at_; }

  template <typename T>
  requires std::is_arithmetic_v<T>
  bool read(T& value) {
    if (n_left() < sizeof(T)) return false;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }
  // A view of the next n bytes.
  bool read_view(uint64_t n, std::string_view& value) {
    if (n > n_left()) return false;
    value = {reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<size_t>(n)};
    at_ += static_cast<size_t>(n);
    return true;
  }
  // A length of 64 bits, then so many bytes.
  bool read_string(std::string_view& value) {
    size_t start = at_;
    uint64_t n = 0;
    if (read(n) && read_view(n, value)) return true;
    at_ = start;
    return false;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

// a * b and a + b, false where the result does not fit.
inline bool multiply(uint64_t a, uint64_t b, uint64_t& product) { return !__builtin_mul_overflow(a, b, &product); }
inline bool add(uint64_t a, uint64_t b, uint64_t& sum) { return !__builtin_add_overflow(a, b, &sum); }

}  // namespace ibid
