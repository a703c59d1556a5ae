// The bytes of a record: whole numbers as LEB128 (signed ones zigzag), floats as their bits, texts and lists after
// their length. One function names the fields of a struct for both directions, so that what is written is what is read.
// Reading takes bytes from anywhere: past the end, out of range or too long, all that follows is zero and ok() is
// false.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace ibid::record {

class Writer {
 public:
  static constexpr bool kReads = false;
  explicit Writer(std::string& out) : out_(out) {}
  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (one(fields), ...);
  }

 private:
  void number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  template <typename T>
  void one(const T& value) {
    if constexpr (std::is_enum_v<T>) {
      one(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::is_same_v<T, float>) {
      bits(std::bit_cast<uint32_t>(value), 4);
    } else if constexpr (std::is_same_v<T, double>) {
      bits(std::bit_cast<uint64_t>(value), 8);
    } else if constexpr (std::is_unsigned_v<T>) {
      number(value);
    } else {
      const auto wide = static_cast<int64_t>(value);
      number((static_cast<uint64_t>(wide) << 1) ^ static_cast<uint64_t>(wide >> 63));
    }
  }
  void one(const std::string& text) {
    number(text.size());
    out_ += text;
  }
  template <typename A, typename B>
  void one(const std::pair<A, B>& pair) {
    one(pair.first), one(pair.second);
  }
  template <typename T>
  void one(const std::vector<T>& list) {
    number(list.size());
    for (const T& item : list) one(item);
  }
  void bits(uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; ++i) out_ += static_cast<char>(value >> (8 * i));
  }
  std::string& out_;
};

class Reader {
 public:
  static constexpr bool kReads = true;
  explicit Reader(std::string_view bytes) : bytes_(bytes), room_(8 * bytes.size() + (size_t{1} << 20)) {}
  template <typename... Fields>
  void operator()(Fields&... fields) {
    (one(fields), ...);
  }
  bool ok() const { return ok_; }
  bool at_end() const { return bytes_.empty(); }
  void fail() { ok_ = false, bytes_ = {}; }
  // Whether an item of a list may be kept: one of a byte or two in the file takes a hundred in memory.
  bool may_grow(size_t n_bytes) {
    if (n_bytes > room_) fail();
    if (ok_) room_ -= n_bytes;
    return ok_;
  }

 private:
  uint64_t number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (bytes_.empty()) break;
      const auto byte = static_cast<unsigned char>(bytes_.front());
      bytes_.remove_prefix(1);
      if (shift == 63 && byte > 1) break;
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail();
    return 0;
  }
  template <typename T>
  void one(T& value) {
    if constexpr (std::is_enum_v<T>) {
      std::underlying_type_t<T> under{};
      one(under);
      value = static_cast<T>(under);
    } else if constexpr (std::is_same_v<T, float>) {
      value = std::bit_cast<float>(static_cast<uint32_t>(bits(4)));
      if (std::isnan(value)) fail(), value = 0;
    } else if constexpr (std::is_same_v<T, double>) {
      value = std::bit_cast<double>(bits(8));
      if (std::isnan(value)) fail(), value = 0;
    } else if constexpr (std::is_unsigned_v<T>) {
      const uint64_t wide = number();
      value = static_cast<T>(wide);
      if (static_cast<uint64_t>(value) != wide) fail(), value = 0;
    } else {
      const uint64_t folded = number();
      const auto wide = static_cast<int64_t>((folded >> 1) ^ (~(folded & 1) + 1));
      value = static_cast<T>(wide);
      if (static_cast<int64_t>(value) != wide) fail(), value = 0;
    }
  }
  void one(std::string& text) {
    const uint64_t n = number();
    if (n > bytes_.size()) return fail();
    text.assign(bytes_.substr(0, n));
    bytes_.remove_prefix(n);
  }
  template <typename A, typename B>
  void one(std::pair<A, B>& pair) {
    one(pair.first), one(pair.second);
  }
  // Grows as the items come: a length that lies costs no memory.
  template <typename T>
  void one(std::vector<T>& list) {
    list.clear();
    for (uint64_t n = number(); n > 0 && ok_ && may_grow(sizeof(T)); --n) one(list.emplace_back());
  }
  uint64_t bits(size_t n_bytes) {
    if (bytes_.size() < n_bytes) {
      fail();
      return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n_bytes; ++i) value |= uint64_t{static_cast<unsigned char>(bytes_[i])} << (8 * i);
    bytes_.remove_prefix(n_bytes);
    return value;
  }
  std::string_view bytes_;
  size_t room_;  // bytes that lists may still take
  bool ok_ = true;
};

}  // namespace ibid::record
