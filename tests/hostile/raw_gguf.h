// RawGguf: GGUF bytes written field by field, right or wrong. A fresh one is a valid file of one key and one tensor;
// setting a member and calling bytes() makes the bad one.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ibid {

// Little-endian fields one after the other.
struct RawBytes {
  std::string text;
  template <typename T>
  RawBytes& put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    text.append(raw, sizeof(T));
    return *this;
  }
  RawBytes& u8(uint8_t v) { return put(v); }
  RawBytes& u32(uint32_t v) { return put(v); }
  RawBytes& u64(uint64_t v) { return put(v); }
  RawBytes& f32(float v) { return put(v); }
  RawBytes& string(std::string_view s) {
    u64(s.size());
    text += s;
    return *this;
  }
  RawBytes& raw(std::string_view s) {
    text += s;
    return *this;
  }
};

enum RawType : uint32_t {
  kRawU8,
  kRawI8,
  kRawU16,
  kRawI16,
  kRawU32,
  kRawI32,
  kRawF32,
  kRawBool,
  kRawString,
  kRawArray,
  kRawU64,
  kRawI64,
  kRawF64
};

struct RawTensor {
  std::string name = "t";
  std::vector<uint64_t> dims = {8};  // innermost first, as in the file
  uint32_t type = 0;                 // F32
  uint64_t offset = 0;
  std::optional<uint64_t> name_length = std::nullopt;
  std::optional<uint32_t> rank = std::nullopt;
  std::string bytes() const {
    RawBytes out;
    out.u64(name_length.value_or(name.size())).raw(name).u32(rank.value_or(static_cast<uint32_t>(dims.size())));
    for (uint64_t dim : dims) out.u64(dim);
    return out.u32(type).u64(offset).text;
  }
};

// One key: name, type and the bytes of the value.
inline std::string raw_key(std::string_view name, uint32_t type, std::string_view value) {
  return RawBytes().string(name).u32(type).raw(value).text;
}
inline std::string raw_u32_key(std::string_view name, uint32_t value) {
  return raw_key(name, kRawU32, RawBytes().u32(value).text);
}
inline std::string raw_string_key(std::string_view name, std::string_view value) {
  return raw_key(name, kRawString, RawBytes().string(value).text);
}
inline std::string raw_array_key(std::string_view name, uint32_t type, uint64_t n, std::string_view elements) {
  return raw_key(name, kRawArray, RawBytes().u32(type).u64(n).raw(elements).text);
}

struct RawGguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> n_tensors = std::nullopt;
  std::optional<uint64_t> n_keys = std::nullopt;
  std::vector<std::string> keys = {raw_string_key("general.architecture", "llama")};
  std::vector<std::string> tensors = {RawTensor{}.bytes()};
  size_t data_bytes = 32;

  std::string header() const {
    RawBytes out;
    out.raw(magic).u32(version).u64(n_tensors.value_or(tensors.size())).u64(n_keys.value_or(keys.size()));
    for (const std::string& key : keys) out.raw(key);
    for (const std::string& tensor : tensors) out.raw(tensor);
    return out.text;
  }
  std::string bytes() const {
    std::string out = header();
    out.append((32 - out.size() % 32) % 32, '\0');
    out.append(data_bytes, '\x11');
    return out;
  }
};

}  // namespace ibid
