#include "format/safetensors_writer.h"

#include <sys/types.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/json_writer.h"

namespace ibid {

void SafetensorsWriter::add(std::string name, DType dtype, std::vector<int64_t> dims) {
  CHECK(files_.empty(), "tensors are added before the files are opened");
  Entry entry = {.name = std::move(name), .dtype = dtype, .dims = std::move(dims)};
  int64_t n = 1;
  for (const int64_t dim : entry.dims) n *= dim;
  entry.n_bytes = static_cast<uint64_t>(row_bytes(dtype, n));
  entries_.push_back(std::move(entry));
}

uint64_t SafetensorsWriter::tensor_bytes() const {
  uint64_t n = 0;
  for (const Entry& e : entries_) n += e.n_bytes;
  return n;
}

Status SafetensorsWriter::failed(const std::string& path) const {
  return unavailable("cannot write " + path + ": " + std::strerror(errno), path);
}

Status SafetensorsWriter::open(const std::string& folder, uint64_t max_bytes) {
  folder_ = folder;
  size_t n_files = 1;
  uint64_t in_file = 0;
  for (Entry& e : entries_) {
    if (max_bytes > 0 && in_file > 0 && in_file + e.n_bytes > max_bytes) {
      ++n_files;
      in_file = 0;
    }
    e.file = n_files - 1;
    in_file += e.n_bytes;
  }
  if (n_files > 65535)
    return invalid("more than 65,535 files would be written; a larger --split-max-size makes fewer", folder);
  for (size_t f = 0; f < n_files; ++f) {
    char name[64] = "model.safetensors";
    if (n_files > 1) std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", f + 1, n_files);
    files_.push_back({.name = name, .path = folder + "/" + name});
    std::vector<Entry*> own;
    for (Entry& e : entries_) {
      if (e.file == f) own.push_back(&e);
    }
    std::ranges::stable_sort(own, [](const Entry* a, const Entry* b) {
      return traits(a->dtype).block_bytes > traits(b->dtype).block_bytes;
    });
    std::string header;
    JsonWriter json(header);
    json.begin_object();
    uint64_t at = 0;
    for (Entry* e : own) {
      e->offset = at;
      json.key(e->name).begin_object().field("dtype", traits(e->dtype).name);
      json.key("shape").begin_array();
      for (const int64_t dim : e->dims) json.integer(dim);
      json.end_array().key("data_offsets").begin_array();
      json.integer(static_cast<int64_t>(at)).integer(static_cast<int64_t>(at + e->n_bytes)).end_array().end_object();
      at += e->n_bytes;
    }
    json.end_object();
    header.append((8 - header.size() % 8) % 8, ' ');
    const uint64_t n = header.size();
    for (Entry* e : own) e->offset += sizeof n + n;
    File& to = files_.back();
    to.file.reset(std::fopen(to.path.c_str(), "wb"));
    if (!to.file || std::fwrite(&n, sizeof n, 1, to.file.get()) != 1 ||
        std::fwrite(header.data(), 1, n, to.file.get()) != n) {
      return failed(to.path);
    }
  }
  return {};
}

Status SafetensorsWriter::put(const std::string& name, std::span<const std::byte> bytes) {
  const auto e = std::ranges::find(entries_, name, &Entry::name);
  CHECK(e != entries_.end() && !e->has_come && e->n_bytes == bytes.size(), "a tensor that was added, whole and once");
  const File& to = files_[e->file];
  if (fseeko(to.file.get(), static_cast<off_t>(e->offset), SEEK_SET) != 0 ||
      std::fwrite(bytes.data(), 1, bytes.size(), to.file.get()) != bytes.size()) {
    return failed(to.path);
  }
  e->has_come = true;
  return {};
}

Status SafetensorsWriter::finish() {
  for (const Entry& e : entries_) CHECK(e.has_come, "every tensor has come");
  for (File& f : files_) {
    if (std::fclose(f.file.release()) != 0) return failed(f.path);
  }
  if (files_.size() < 2) return {};
  std::string index;
  JsonWriter json(index);
  json.begin_object().key("metadata").begin_object();
  json.field("total_size", static_cast<int64_t>(tensor_bytes())).end_object().key("weight_map").begin_object();
  for (const Entry& e : entries_) json.field(e.name, files_[e.file].name);
  json.end_object().end_object();
  const std::string path = folder_ + "/model.safetensors.index.json";
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "wb"));
  if (!file || std::fwrite(index.data(), 1, index.size(), file.get()) != index.size() || std::fflush(file.get()) != 0)
    return failed(path);
  return {};
}

}  // namespace ibid
