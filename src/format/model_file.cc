#include "format/model_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <utility>

#include "format/gguf.h"
#include "format/safetensors.h"

namespace ibid {

std::string_view meta_kind(const MetaValue& value) {
  constexpr std::string_view kNames[] = {
      "a boolean", "an integer",           "an integer",          "a number",
      "a string",  "an array of integers", "an array of numbers", "an array of strings"};
  return kNames[value.index()];
}

// The map is built from parts_, whose strings stay where they are when the vector itself is moved.
ModelFile::ModelFile(Parts parts) : parts_(std::move(parts)) {
  by_name_.reserve(parts_.tensors.size());
  for (size_t i = 0; i < parts_.tensors.size(); ++i) by_name_.emplace(parts_.tensors[i].name, i);
}

const TensorInfo* ModelFile::find(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &parts_.tensors[it->second];
}

Result<TensorView> ModelFile::tensor(std::string_view name) const {
  if (const TensorInfo* info = find(name)) return info->view;
  return invalid(path() + " has no tensor " + in_quotes(name) + "; the file is incomplete or of another architecture",
                 std::string(name));
}

size_t ModelFile::file_bytes() const {
  size_t n = 0;
  for (const MappedFile& file : parts_.files) n += file.bytes().size();
  return n;
}

void ModelFile::forget(const TensorView& tensor) const {
  const std::span<const std::byte> bytes(tensor.data, static_cast<size_t>(tensor.n_rows() * tensor.row_stride_bytes));
  const std::less_equal<const std::byte*> before;
  for (const MappedFile& file : parts_.files) {
    const std::span<const std::byte> all = file.bytes();
    if (before(all.data(), bytes.data()) && before(bytes.data() + bytes.size(), all.data() + all.size()))
      file.forget(bytes);
  }
}

void ModelFile::forget_all() const {
  for (const MappedFile& file : parts_.files) file.forget(file.bytes());
}

size_t ModelFile::tensor_bytes() const {
  size_t n = 0;
  for (const TensorInfo& info : parts_.tensors) n += info.bytes();
  return n;
}

const MetaValue* ModelFile::meta(std::string_view key) const {
  auto it = parts_.metadata.find(key);
  return it == parts_.metadata.end() ? nullptr : &it->second;
}

Error ModelFile::no_such_key(std::string_view key) const {
  return invalid(path() + " has no key " + in_quotes(key) + "; the file is incomplete or of another architecture",
                 std::string(key));
}

Error ModelFile::wrong_type(std::string_view key, std::string_view wanted, const MetaValue& found) const {
  return invalid(path() + ": key " + in_quotes(key) + " is " + std::string(meta_kind(found)) + " where " +
                     std::string(wanted) + " was expected",
                 std::string(key));
}

Result<bool> ModelFile::meta_bool(std::string_view key) const {
  const MetaValue* value = meta(key);
  if (value == nullptr) return no_such_key(key);
  if (const bool* b = std::get_if<bool>(value)) return *b;
  return wrong_type(key, "a boolean", *value);
}

Result<int64_t> ModelFile::meta_int(std::string_view key) const {
  const MetaValue* value = meta(key);
  if (value == nullptr) return no_such_key(key);
  if (const int64_t* i = std::get_if<int64_t>(value)) return *i;
  if (const uint64_t* u = std::get_if<uint64_t>(value)) {
    return invalid(path() + ": key " + in_quotes(key) + " is " + std::to_string(*u) + ", which is beyond 2^63",
                   std::string(key));
  }
  return wrong_type(key, "an integer", *value);
}

Result<double> ModelFile::meta_float(std::string_view key) const {
  const MetaValue* value = meta(key);
  if (value == nullptr) return no_such_key(key);
  if (const double* d = std::get_if<double>(value)) return *d;
  if (const int64_t* i = std::get_if<int64_t>(value)) return static_cast<double>(*i);
  if (const uint64_t* u = std::get_if<uint64_t>(value)) return static_cast<double>(*u);
  return wrong_type(key, "a number", *value);
}

Result<std::string> ModelFile::meta_string(std::string_view key) const {
  const MetaValue* value = meta(key);
  if (value == nullptr) return no_such_key(key);
  if (const std::string* s = std::get_if<std::string>(value)) return *s;
  return wrong_type(key, "a string", *value);
}

Result<std::vector<int64_t>> ModelFile::meta_ints(std::string_view key) const {
  const MetaValue* value = meta(key);
  if (value == nullptr) return no_such_key(key);
  if (const auto* many = std::get_if<std::vector<int64_t>>(value)) return *many;
  if (const int64_t* one = std::get_if<int64_t>(value)) return std::vector<int64_t>{*one};
  if (const bool* one = std::get_if<bool>(value)) return std::vector<int64_t>{*one ? 1 : 0};
  return wrong_type(key, "an array of integers", *value);
}

Result<std::vector<double>> ModelFile::meta_floats(std::string_view key) const {
  const MetaValue* value = meta(key);
  if (value == nullptr) return no_such_key(key);
  if (const auto* many = std::get_if<std::vector<double>>(value)) return *many;
  if (const auto* ints = std::get_if<std::vector<int64_t>>(value))
    return std::vector<double>(ints->begin(), ints->end());
  if (Result<double> one = meta_float(key)) return std::vector<double>{*one};
  return wrong_type(key, "an array of numbers", *value);
}

Result<std::vector<std::string>> ModelFile::meta_strings(std::string_view key) const {
  const MetaValue* value = meta(key);
  if (value == nullptr) return no_such_key(key);
  if (const auto* many = std::get_if<std::vector<std::string>>(value)) return *many;
  if (const std::string* one = std::get_if<std::string>(value)) return std::vector<std::string>{*one};
  // In JSON an empty array has no element that shows its type.
  if (const auto* ints = std::get_if<std::vector<int64_t>>(value); ints != nullptr && ints->empty()) {
    return std::vector<std::string>{};
  }
  return wrong_type(key, "an array of strings", *value);
}

Result<bool> ModelFile::meta_bool(std::string_view key, bool missing) const {
  return has_meta(key) ? meta_bool(key) : missing;
}
Result<int64_t> ModelFile::meta_int(std::string_view key, int64_t missing) const {
  return has_meta(key) ? meta_int(key) : missing;
}
Result<double> ModelFile::meta_float(std::string_view key, double missing) const {
  return has_meta(key) ? meta_float(key) : missing;
}
Result<std::string> ModelFile::meta_string(std::string_view key, std::string missing) const {
  return has_meta(key) ? meta_string(key) : Result<std::string>(std::move(missing));
}

Result<ModelFile> ModelFile::open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return open_safetensors_folder(path);
  return open_gguf(path);
}

}  // namespace ibid
