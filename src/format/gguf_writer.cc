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
constexpr uint32_t kUint16 = 2, kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9, kUint64 = 10,
                   kInt64 = 11, kFloat64 = 12;

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
  const auto [known, is_new] = key_at_.emplace(key, metadata_.size());
  if (is_new) {
    metadata_.emplace_back(std::move(key), std::move(value));
  } else {
    metadata_[known->second].second = std::move(value);
  }
}

void GgufWriter::add(Entry entry) {
  CHECK(!entry.dims.empty() && entry.dims.size() <= TensorView::kMaxRank && ggml_type(entry.dtype) >= 0);
  int64_t n_bytes = row_bytes(entry.dtype, entry.dims.back());
  for (size_t i = 0; i + 1 < entry.dims.size(); ++i) n_bytes *= entry.dims[i];
  entry.n_bytes = static_cast<size_t>(n_bytes);
  CHECK(entry.fill || entry.n_bytes == entry.data.size(), "a tensor's data has the size of its shape");
  CHECK(tensor_names_.insert(entry.name).second, "a tensor's name is unique");
  tensors_.push_back(std::move(entry));
}

void GgufWriter::add_tensor(std::string name, DType dtype, std::span<const int64_t> dims,
                            std::span<const std::byte> data) {
  add({std::move(name), dtype, {dims.begin(), dims.end()}, data, 0, {}});
}

void GgufWriter::add_tensor(std::string name, DType dtype, std::span<const int64_t> dims, Fill fill) {
  add({std::move(name), dtype, {dims.begin(), dims.end()}, {}, 0, std::move(fill)});
}

void GgufWriter::add_tensor(std::string name, const TensorView& view) {
  CHECK(view.is_contiguous());
  add_tensor(std::move(name), view.dtype, std::span<const int64_t>(view.dim.data(), static_cast<size_t>(view.rank)),
             {view.data, static_cast<size_t>(view.n_rows() * view.row_stride_bytes)});
}

std::string GgufWriter::header(std::span<const Entry> entries, size_t i, size_t n) const {
  const size_t n_keys = (i == 0 ? metadata_.size() : 0) + (n > 1 ? 3 : 0);
  std::string out = "GGUF";
  put<uint32_t>(out, 3);
  put<uint64_t>(out, entries.size());
  put<uint64_t>(out, n_keys);
  if (i == 0) {
    for (const auto& [key, value] : metadata_) {
      put_string(out, key);
      std::visit([&](const auto& v) { put_value(out, v); }, value);
    }
  }
  if (n > 1) {  // of the types that llama.cpp expects
    const auto put_key = [&out](const char* key, uint32_t type) {
      put_string(out, key);
      put(out, type);
    };
    put_key("split.no", kUint16);
    put(out, static_cast<uint16_t>(i));
    put_key("split.count", kUint16);
    put(out, static_cast<uint16_t>(n));
    put_key("split.tensors.count", kInt32);
    put(out, static_cast<int32_t>(tensors_.size()));
  }
  uint64_t offset = 0;
  for (const Entry& entry : entries) {
    put_string(out, entry.name);
    put<uint32_t>(out, static_cast<uint32_t>(entry.dims.size()));
    for (size_t d = entry.dims.size(); d-- > 0;) put<uint64_t>(out, static_cast<uint64_t>(entry.dims[d]));
    put<uint32_t>(out, static_cast<uint32_t>(ggml_type(entry.dtype)));
    put(out, offset);
    offset += entry.n_bytes + padding(entry.n_bytes);
  }
  out.append(padding(out.size()), '\0');
  return out;
}

std::string GgufWriter::bytes() const {
  std::string out = header(tensors_, 0, 1);
  for (const Entry& entry : tensors_) {
    out.append(reinterpret_cast<const char*>(entry.data.data()), entry.data.size());
    out.append(padding(entry.data.size()), '\0');
  }
  return out;
}

Status GgufWriter::write_file(const std::string& partial, const std::string& path, std::span<const Entry> entries,
                              size_t i, size_t n) const {
  auto failed = [&] { return unavailable("cannot write " + path + ": " + std::strerror(errno), path); };
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(partial.c_str(), "wb"), &std::fclose);
  if (!file) return failed();
  size_t n_put = 0;  // of a tensor
  const Put put = [&](std::span<const std::byte> bytes) -> Status {
    if (!bytes.empty() && std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) return failed();
    n_put += bytes.size();
    return {};
  };
  const std::byte zeros[kAlignment] = {};
  const std::string head = header(entries, i, n);
  TRY(put(std::as_bytes(std::span(head))));
  for (const Entry& entry : entries) {
    n_put = 0;
    TRY(entry.fill ? entry.fill(put) : put(entry.data));
    CHECK(n_put == entry.n_bytes, "a tensor's bytes are all given");
    TRY(put({zeros, padding(entry.n_bytes)}));
  }
  if (std::fclose(file.release()) != 0) return failed();
  return {};
}

Status GgufWriter::write(const std::string& path) const {
  const std::string partial = path + ".partial";
  if (const Status written = write_file(partial, path, tensors_, 0, 1); !written.ok()) {
    std::remove(partial.c_str());
    return written;
  }
  if (std::rename(partial.c_str(), path.c_str()) == 0) return {};
  Error error = unavailable("cannot write " + path + ": " + std::strerror(errno), path);
  std::remove(partial.c_str());
  return error;
}

std::string GgufWriter::shard_path(const std::string& prefix, size_t i, size_t n) {
  char end[32];
  std::snprintf(end, sizeof end, "-%05zu-of-%05zu.gguf", i + 1, n);
  return prefix + end;
}

std::vector<size_t> GgufWriter::shards_of(uint64_t max_bytes) const {
  std::vector<size_t> first = {0};
  uint64_t bytes = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (i > first.back() && bytes + tensors_[i].n_bytes > max_bytes) {
      first.push_back(i);
      bytes = 0;
    }
    bytes += tensors_[i].n_bytes;
  }
  return first;
}

Status GgufWriter::write_shards(const std::string& prefix, std::span<const size_t> first) const {
  const size_t n = first.size();
  CHECK(n > 0 && first[0] == 0, "the first shard begins with the first tensor");
  if (n > 65535)
    return invalid("more than 65,535 files would be written; a larger --split-max-size makes fewer", prefix);
  const std::span<const Entry> all = tensors_;
  const auto partial = [&](size_t i) { return shard_path(prefix, i, n) + ".partial"; };
  const auto remove_all = [&] {
    for (size_t i = 0; i < n; ++i) std::remove(partial(i).c_str());
  };
  for (size_t i = 0; i < n; ++i) {
    const size_t end = i + 1 < n ? first[i + 1] : all.size();
    const Status written =
        write_file(partial(i), shard_path(prefix, i, n), all.subspan(first[i], end - first[i]), i, n);
    if (written.ok()) continue;
    remove_all();
    return written;
  }
  for (size_t i = 0; i < n; ++i) {
    const std::string path = shard_path(prefix, i, n);
    if (std::rename(partial(i).c_str(), path.c_str()) == 0) continue;
    Error error = unavailable("cannot write " + path + ": " + std::strerror(errno), path);
    remove_all();
    return error;
  }
  return {};
}

}  // namespace ibid
