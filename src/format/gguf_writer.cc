#include "format/gguf_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>

#include "base/check.h"
#include "format/gguf.h"

namespace ibid {
namespace {

constexpr size_t kAlignment = 32;
// Numbers of the value types that are written.
constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9, kUint64 = 10, kInt64 = 11,
                   kFloat64 = 12;

template <typename T>
void put(std::string& out, T value) {
  static_assert(std::is_arithmetic_v<T>);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void put_string(std::string& out, const std::string& text) {
  put<uint64_t>(out, text.size());
  out += text;
}

bool is_single(double value) { return value != value || static_cast<double>(static_cast<float>(value)) == value; }

void put_value(std::string& out, bool value) {
  put(out, kBool);
  put<uint8_t>(out, value ? 1 : 0);
}
void put_value(std::string& out, int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<uint32_t>::max()) {
    put(out, kUint32);
    put(out, static_cast<uint32_t>(value));
  } else {
    put(out, kInt64);
    put(out, value);
  }
}
void put_value(std::string& out, uint64_t value) {
  put(out, kUint64);
  put(out, value);
}
void put_value(std::string& out, double value) {
  if (is_single(value)) {
    put(out, kFloat32);
    put(out, static_cast<float>(value));
  } else {
    put(out, kFloat64);
    put(out, value);
  }
}
void put_value(std::string& out, const std::string& value) {
  put(out, kString);
  put_string(out, value);
}
void put_value(std::string& out, const std::vector<int64_t>& values) {
  bool narrow = std::all_of(values.begin(), values.end(), [](int64_t v) { return v == static_cast<int32_t>(v); });
  put(out, kArray);
  put(out, narrow ? kInt32 : kInt64);
  put<uint64_t>(out, values.size());
  for (int64_t value : values) narrow ? put(out, static_cast<int32_t>(value)) : put(out, value);
}
void put_value(std::string& out, const std::vector<double>& values) {
  bool narrow = std::all_of(values.begin(), values.end(), is_single);
  put(out, kArray);
  put(out, narrow ? kFloat32 : kFloat64);
  put<uint64_t>(out, values.size());
  for (double value : values) narrow ? put(out, static_cast<float>(value)) : put(out, value);
}
void put_value(std::string& out, const std::vector<std::string>& values) {
  put(out, kArray);
  put(out, kString);
  put<uint64_t>(out, values.size());
  for (const std::string& value : values) put_string(out, value);
}

size_t padding(size_t n) { return (kAlignment - n % kAlignment) % kAlignment; }

}  // namespace

void GgufWriter::set(std::string key, MetaValue value) {
  for (auto& [known, old] : metadata_) {
    if (known != key) continue;
    old = std::move(value);
    return;
  }
  metadata_.emplace_back(std::move(key), std::move(value));
}

void GgufWriter::add_tensor(std::string name, DType dtype, std::span<const int64_t> dims,
                            std::span<const std::byte> data) {
  CHECK(!dims.empty() && dims.size() <= TensorView::kMaxRank && ggml_type(dtype) >= 0);
  int64_t n_bytes = row_bytes(dtype, dims.back());
  for (int64_t dim : dims.first(dims.size() - 1)) n_bytes *= dim;
  CHECK(static_cast<size_t>(n_bytes) == data.size(), "a tensor's data has the size of its shape");
  for (const Entry& entry : tensors_) CHECK(entry.name != name, "a tensor's name is unique");
  tensors_.push_back({std::move(name), dtype, {dims.begin(), dims.end()}, data});
}

void GgufWriter::add_tensor(std::string name, const TensorView& view) {
  CHECK(view.is_contiguous());
  add_tensor(std::move(name), view.dtype, std::span<const int64_t>(view.dim.data(), static_cast<size_t>(view.rank)),
             {view.data, static_cast<size_t>(view.n_rows() * view.row_stride_bytes)});
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, tensors_.size());
  put<uint64_t>(out, metadata_.size());
  for (const auto& [key, value] : metadata_) {
    put_string(out, key);
    std::visit([&](const auto& v) { put_value(out, v); }, value);
  }
  uint64_t offset = 0;
  for (const Entry& entry : tensors_) {
    put_string(out, entry.name);
    put<uint32_t>(out, static_cast<uint32_t>(entry.dims.size()));
    for (size_t i = entry.dims.size(); i-- > 0;) put<uint64_t>(out, static_cast<uint64_t>(entry.dims[i]));
    put<uint32_t>(out, static_cast<uint32_t>(ggml_type(entry.dtype)));
    put(out, offset);
    offset += entry.data.size() + padding(entry.data.size());
  }
  out.append(padding(out.size()), '\0');
  return out;
}

std::string GgufWriter::bytes() const {
  std::string out = header();
  for (const Entry& entry : tensors_) {
    out.append(reinterpret_cast<const char*>(entry.data.data()), entry.data.size());
    out.append(padding(entry.data.size()), '\0');
  }
  return out;
}

Status GgufWriter::write(const std::string& path) const {
  std::string partial = path + ".partial";
  auto failed = [&] {
    Error error = unavailable("cannot write " + path + ": " + std::strerror(errno), path);
    std::remove(partial.c_str());
    return error;
  };
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(partial.c_str(), "wb"), &std::fclose);
  if (!file) return failed();
  auto put_bytes = [&](const void* data, size_t n) { return n == 0 || std::fwrite(data, 1, n, file.get()) == n; };
  const char zeros[kAlignment] = {};
  std::string head = header();
  if (!put_bytes(head.data(), head.size())) return failed();
  for (const Entry& entry : tensors_) {
    if (!put_bytes(entry.data.data(), entry.data.size())) return failed();
    if (!put_bytes(zeros, padding(entry.data.size()))) return failed();
  }
  if (std::fclose(file.release()) != 0) return failed();
  if (std::rename(partial.c_str(), path.c_str()) != 0) return failed();
  return {};
}

}  // namespace ibid
