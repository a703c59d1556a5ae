#include "format/gguf.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <limits>
#include <unordered_set>
#include <utility>

#include "format/byte_reader.h"

namespace ibid {
namespace {

// Value types of metadata, as the specification numbers them.
enum : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
  kValueTypes
};
constexpr std::array<uint8_t, kValueTypes> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};  // at least

// Far beyond real models, and low enough that no file makes reading it take memory or time: a sparse file of terabytes
// has room for any count.
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 17;
constexpr size_t kMaxMetadataBytes = 56 << 20;  // of memory, for all values together
constexpr size_t kMaxKeyBytes = 65535;          // the specification's limit
constexpr size_t kMaxTensorNameBytes = 512;     // the specification allows 64; some writers exceed it

// Reads one file. Members hold the place of reading and what was gathered so far.
class Reader {
 public:
  explicit Reader(MappedFile file) : file_(std::move(file)), in_(file_.bytes()) {}

  Result<ModelFile::Parts> read() {
    TRY(read_header());
    for (uint64_t i = 0; i < n_keys_; ++i) TRY(read_key(i));
    TRY(check_keys());
    tensors_.reserve(n_tensors_);
    for (uint64_t i = 0; i < n_tensors_; ++i) TRY(read_tensor(i));
    TRY(place_tensors());
    ModelFile::Parts parts;
    parts.container = Container::kGguf;
    parts.path = file_.path();
    parts.files.push_back(std::move(file_));
    parts.tensors = std::move(tensors_);
    parts.metadata = std::move(metadata_);
    return parts;
  }

 private:
  Error bad(std::string what) const { return invalid(file_.path() + ": " + std::move(what), file_.path()); }
  Error cut_off(const std::string& inside) const {
    return bad("the file ends inside " + inside + " (it has " + std::to_string(file_.bytes().size()) +
               " bytes); it is cut off or damaged, fetch it again");
  }

  Status read_header() {
    std::string_view magic;
    if (!in_.read_view(4, magic)) return cut_off("the first four bytes");
    if (magic != "GGUF")
      return bad("this is no GGUF file: it begins with " + in_quotes(magic) +
                 ", not with \"GGUF\" (a safetensors model is opened by its folder)");
    uint32_t version = 0;
    if (!in_.read(version)) return cut_off("the header");
    if ((version & 0xffff) == 0 && version != 0) {
      return unsupported(file_.path() + ": a big-endian GGUF file; convert it to little-endian", file_.path());
    }
    if (version != 2 && version != 3) {
      return unsupported(file_.path() + ": GGUF version " + std::to_string(version) +
                             "; versions 2 and 3 are read, convert the model again",
                         file_.path());
    }
    if (!in_.read(n_tensors_) || !in_.read(n_keys_)) return cut_off("the header");
    // The smallest key is 13 bytes long, the smallest tensor entry 33: larger counts cannot be true, and believing
    // them would reserve memory for them.
    if (n_keys_ > in_.n_left() / 13 || n_keys_ > kMaxKeys) {
      return bad("the header announces " + std::to_string(n_keys_) +
                 " keys, more than the file has room for or than 65,536");
    }
    if (n_tensors_ > in_.n_left() / 33 || n_tensors_ > kMaxTensors) {
      return bad("the header announces " + std::to_string(n_tensors_) +
                 " tensors, more than the file has room for or than 131,072");
    }
    return {};
  }

  Status read_key(uint64_t index) {
    std::string_view key;
    if (!in_.read_string(key)) return cut_off("the name of key " + std::to_string(index));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return bad("the name of key " + std::to_string(index) + " has " + std::to_string(key.size()) +
                 " bytes; 1 to 65535 are allowed");
    }
    TRY(spend(key, key.size(), 1));
    uint32_t type = 0;
    if (!in_.read(type)) return cut_off("key " + in_quotes(key));
    ASSIGN_OR_RETURN(MetaValue value, read_value(key, type));
    if (!metadata_.emplace(std::string(key), std::move(value)).second)
      return bad("key " + in_quotes(key) + " occurs twice");
    return {};
  }

  Result<MetaValue> read_value(std::string_view key, uint32_t type) {
    switch (type) {
      case kUint8:
      case kInt8:
      case kUint16:
      case kInt16:
      case kUint32:
      case kInt32:
      case kUint64:
      case kInt64: {
        int64_t value = 0;
        bool beyond = false;
        if (!read_int(type, value, beyond)) return cut_off("key " + in_quotes(key));
        if (beyond) return MetaValue(static_cast<uint64_t>(value));
        return MetaValue(value);
      }
      case kFloat32:
      case kFloat64: {
        double value = 0;
        if (!read_float(type, value)) return cut_off("key " + in_quotes(key));
        return MetaValue(value);
      }
      case kBool: {
        uint8_t value = 0;
        if (!in_.read(value)) return cut_off("key " + in_quotes(key));
        if (value > 1) return bad_bool(key, value);
        return MetaValue(value == 1);
      }
      case kString: {
        std::string_view value;
        if (!in_.read_string(value)) return cut_off("the string of key " + in_quotes(key));
        TRY(spend(key, value.size(), 1));
        return MetaValue(std::string(value));
      }
      case kArray:
        return read_array(key);
      default:
        return bad("key " + in_quotes(key) + " has the value type " + std::to_string(type) + "; 0 to 12 exist");
    }
  }

  // Accounts for memory that values take; an error where it is too much.
  Status spend(std::string_view key, uint64_t n, size_t each_bytes) {
    uint64_t n_bytes = 0;
    if (!multiply(n, each_bytes, n_bytes) || n_bytes > kMaxMetadataBytes - spent_bytes_) {
      return bad("with key " + in_quotes(key) + " the metadata would take more than 56 MiB, which no known model does");
    }
    spent_bytes_ += static_cast<size_t>(n_bytes);
    return {};
  }

  Error bad_bool(std::string_view key, uint8_t value) const {
    return bad("key " + in_quotes(key) + " holds the byte " + std::to_string(value) +
               " where a boolean (0 or 1) belongs");
  }

  template <typename T>
  bool read_as(int64_t& value, bool& beyond) {
    T raw = 0;
    if (!in_.read(raw)) return false;
    value = static_cast<int64_t>(raw);
    beyond = std::is_unsigned_v<T> && sizeof(T) == 8 && value < 0;
    return true;
  }
  bool read_int(uint32_t type, int64_t& value, bool& beyond) {
    switch (type) {
      case kUint8:
        return read_as<uint8_t>(value, beyond);
      case kInt8:
        return read_as<int8_t>(value, beyond);
      case kUint16:
        return read_as<uint16_t>(value, beyond);
      case kInt16:
        return read_as<int16_t>(value, beyond);
      case kUint32:
        return read_as<uint32_t>(value, beyond);
      case kInt32:
        return read_as<int32_t>(value, beyond);
      case kUint64:
        return read_as<uint64_t>(value, beyond);
      default:
        return read_as<int64_t>(value, beyond);
    }
  }
  bool read_float(uint32_t type, double& value) {
    if (type == kFloat64) return in_.read(value);
    float single = 0;
    if (!in_.read(single)) return false;
    value = single;
    return true;
  }

  Result<MetaValue> read_array(std::string_view key) {
    uint32_t type = 0;
    uint64_t n = 0;
    if (!in_.read(type) || !in_.read(n)) return cut_off("the array of key " + in_quotes(key));
    if (type == kArray) {
      return unsupported(file_.path() + ": key " + in_quotes(key) + " is an array of arrays, which no known model uses",
                         std::string(key));
    }
    if (type >= kValueTypes) {
      return bad("the array of key " + in_quotes(key) + " has the element type " + std::to_string(type) +
                 "; 0 to 12 exist");
    }
    if (n > in_.n_left() / kValueBytes[type]) {
      return bad("the array of key " + in_quotes(key) + " announces " + std::to_string(n) +
                 " elements, more than the file has room for");
    }
    TRY(spend(key, n, type == kString ? sizeof(std::string) : sizeof(int64_t)));
    if (type == kString) {
      std::vector<std::string> values;
      values.reserve(n);
      for (uint64_t i = 0; i < n; ++i) {
        std::string_view value;
        if (!in_.read_string(value)) return cut_off("element " + std::to_string(i) + " of key " + in_quotes(key));
        TRY(spend(key, value.size(), 1));
        values.emplace_back(value);
      }
      return MetaValue(std::move(values));
    }
    if (type == kFloat32 || type == kFloat64) {
      std::vector<double> values(n);
      for (double& value : values) {
        if (!read_float(type, value)) return cut_off("the array of key " + in_quotes(key));
      }
      return MetaValue(std::move(values));
    }
    std::vector<int64_t> values(n);
    for (int64_t& value : values) {
      bool beyond = false;
      if (!read_int(type == kBool ? uint32_t{kUint8} : type, value, beyond)) {
        return cut_off("the array of key " + in_quotes(key));
      }
      if (beyond) return bad("the array of key " + in_quotes(key) + " holds an integer beyond 2^63");
      if (type == kBool && value > 1) return bad_bool(key, static_cast<uint8_t>(value));
    }
    return MetaValue(std::move(values));
  }

  Status check_keys() {
    if (auto it = metadata_.find("general.alignment"); it != metadata_.end()) {
      const int64_t* value = std::get_if<int64_t>(&it->second);
      if (value == nullptr) return bad("key \"general.alignment\" is no integer, or beyond 2^63");
      if (*value < 8 || (*value & (*value - 1)) != 0 || *value > (int64_t{1} << 30)) {
        return bad("key \"general.alignment\" is " + std::to_string(*value) +
                   "; it must be a power of two and a multiple of 8");
      }
      alignment_ = static_cast<uint64_t>(*value);
    }
    return {};
  }

  Status read_tensor(uint64_t index) {
    std::string_view name;
    if (!in_.read_string(name)) return cut_off("the name of tensor " + std::to_string(index));
    if (name.empty() || name.size() > kMaxTensorNameBytes) {
      return bad("the name of tensor " + std::to_string(index) + " has " + std::to_string(name.size()) +
                 " bytes; 1 to " + std::to_string(kMaxTensorNameBytes) + " are allowed");
    }
    uint32_t rank = 0;
    if (!in_.read(rank)) return cut_off("the entry of tensor " + in_quotes(name));
    if (rank < 1 || rank > TensorView::kMaxRank) {
      return bad("tensor " + in_quotes(name) + " has " + std::to_string(rank) + " dimensions; 1 to 4 are allowed");
    }
    TensorInfo info;
    info.name = name;
    info.view.rank = static_cast<int>(rank);
    uint64_t n_elements = 1;
    for (uint32_t i = 0; i < rank; ++i) {
      uint64_t dim = 0;
      if (!in_.read(dim)) return cut_off("the entry of tensor " + in_quotes(name));
      if (dim == 0) return bad("tensor " + in_quotes(name) + " has a dimension of zero");
      if (!multiply(n_elements, dim, n_elements) || n_elements > std::numeric_limits<int64_t>::max()) {
        return bad("tensor " + in_quotes(name) + " has more than 2^63 elements");
      }
      info.view.dim[rank - 1 - i] = static_cast<int64_t>(dim);  // the file counts from the innermost one
    }
    uint32_t type = 0;
    uint64_t offset = 0;
    if (!in_.read(type) || !in_.read(offset)) return cut_off("the entry of tensor " + in_quotes(name));
    Result<DType> dtype = dtype_from_ggml_type(type);
    if (!dtype) {
      Error error = std::move(dtype).error();
      error.message = file_.path() + ": tensor " + in_quotes(name) + ": " + error.message;
      error.where = name;
      return error;
    }
    info.view.dtype = *dtype;
    const DTypeTraits& t = traits(*dtype);
    if (info.view.row_len() % t.block_len != 0) {
      return bad("tensor " + in_quotes(name) + " has rows of " + std::to_string(info.view.row_len()) +
                 " elements, which are no whole blocks of " + std::string(t.name) + " (" + std::to_string(t.block_len) +
                 " elements)");
    }
    uint64_t n_bytes = 0;
    if (!multiply(n_elements / static_cast<uint64_t>(t.block_len), static_cast<uint64_t>(t.block_bytes), n_bytes) ||
        n_bytes > file_.bytes().size()) {
      return bad("tensor " + in_quotes(name) + " is larger than the file, which is cut off or damaged");
    }
    info.view.row_stride_bytes = row_bytes(*dtype, info.view.row_len());
    if (!names_.insert(std::string(name)).second) return bad("tensor " + in_quotes(name) + " occurs twice");
    tensors_.push_back(std::move(info));
    offsets_.push_back(offset);
    return {};
  }

  // Sets the data pointers; data begins at the first aligned place after the header.
  Status place_tensors() {
    std::span<const std::byte> bytes = file_.bytes();
    if (tensors_.empty()) return {};
    uint64_t data_start = (in_.at() + alignment_ - 1) / alignment_ * alignment_;
    struct Extent {
      uint64_t begin, end;
      size_t tensor;
    };
    std::vector<Extent> extents;
    extents.reserve(tensors_.size());
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (offsets_[i] % alignment_ != 0) {
        return bad("tensor " + in_quotes(tensors_[i].name) + " begins at offset " + std::to_string(offsets_[i]) +
                   ", which is not aligned to " + std::to_string(alignment_) + " bytes");
      }
      uint64_t begin = 0;
      uint64_t end = 0;
      if (!add(data_start, offsets_[i], begin) || !add(begin, tensors_[i].bytes(), end) || end > bytes.size()) {
        return bad("tensor " + in_quotes(tensors_[i].name) + " (offset " + std::to_string(offsets_[i]) + ", " +
                   std::to_string(tensors_[i].bytes()) + " bytes) reaches past the end of the file, which has " +
                   std::to_string(bytes.size()) + " bytes; it is cut off or damaged, fetch it again");
      }
      extents.push_back({begin, end, i});
      tensors_[i].view.data = const_cast<std::byte*>(bytes.data()) + begin;
    }
    std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < extents.size(); ++i) {
      if (extents[i].begin < extents[i - 1].end) {
        return bad("tensors " + in_quotes(tensors_[extents[i - 1].tensor].name) + " and " +
                   in_quotes(tensors_[extents[i].tensor].name) + " overlap");
      }
    }
    return {};
  }

  MappedFile file_;
  ByteReader in_;
  uint64_t n_tensors_ = 0;
  uint64_t n_keys_ = 0;
  uint64_t alignment_ = 32;
  size_t spent_bytes_ = 0;
  std::map<std::string, MetaValue, std::less<>> metadata_;
  std::vector<TensorInfo> tensors_;
  std::vector<uint64_t> offsets_;
  std::unordered_set<std::string> names_;
};

}  // namespace

namespace {

constexpr size_t kMostSplits = 4096;

// "-00001-of-00003.gguf"; the place of the digits of both.
constexpr std::string_view kSplitForm = "-#####-of-#####.gguf";
bool is_split_name(std::string_view name) {
  if (name.size() <= kSplitForm.size()) return false;
  name.remove_prefix(name.size() - kSplitForm.size());
  for (size_t i = 0; i < kSplitForm.size(); ++i) {
    if (kSplitForm[i] == '#' ? name[i] < '0' || name[i] > '9' : name[i] != kSplitForm[i]) return false;
  }
  return true;
}

Result<int64_t> split_number(const ModelFile::Parts& parts, std::string_view key, int64_t missing) {
  const auto it = parts.metadata.find(key);
  if (it == parts.metadata.end()) return missing;
  if (const int64_t* value = std::get_if<int64_t>(&it->second); value != nullptr && *value >= 0) return *value;
  return invalid(parts.path + ": key " + in_quotes(key) + " is no count", std::string(key));
}

// Takes the tensors of file `i` of `n`.
Status join(ModelFile::Parts& all, ModelFile::Parts part, size_t i, size_t n) {
  ASSIGN_OR_RETURN(const int64_t no, split_number(part, "split.no", 0));
  ASSIGN_OR_RETURN(const int64_t count, split_number(part, "split.count", 1));
  if (no != static_cast<int64_t>(i) || count != static_cast<int64_t>(n)) {
    return invalid(part.path + " is file " + std::to_string(no + 1) + " of " + std::to_string(count) +
                       " of a split model, and its name has " + std::to_string(i + 1) + " of " + std::to_string(n),
                   part.path);
  }
  std::move(part.tensors.begin(), part.tensors.end(), std::back_inserter(all.tensors));
  std::move(part.files.begin(), part.files.end(), std::back_inserter(all.files));
  return {};
}

Result<ModelFile> open_split(const std::vector<std::string>& paths) {
  ModelFile::Parts all;
  for (size_t i = 0; i < paths.size(); ++i) {
    Result<MappedFile> file = MappedFile::open(paths[i]);
    if (!file) {
      return not_found(paths[i] + " cannot be opened, one of the " + std::to_string(paths.size()) +
                           " files of a split model: " + file.error().message,
                       paths[i]);
    }
    ASSIGN_OR_RETURN(ModelFile::Parts part, Reader(std::move(file).value()).read());
    if (i == 0) {
      all.container = part.container;
      all.path = part.path;
      all.metadata = part.metadata;
    }
    TRY(join(all, std::move(part), i, paths.size()));
  }
  std::unordered_set<std::string_view> names;
  for (const TensorInfo& info : all.tensors) {
    if (names.insert(info.name).second) continue;
    return invalid(all.path + ": tensor " + in_quotes(info.name) + " occurs in two files", all.path);
  }
  const auto n_tensors = static_cast<int64_t>(all.tensors.size());
  ASSIGN_OR_RETURN(const int64_t announced, split_number(all, "split.tensors.count", n_tensors));
  if (announced != n_tensors) {
    return invalid(all.path + " announces " + std::to_string(announced) +
                       " tensors in all files (split.tensors.count), " + "which have " + std::to_string(n_tensors),
                   "split.tensors.count");
  }
  return ModelFile(std::move(all));
}

}  // namespace

std::vector<std::string> split_files(const std::string& name) {
  if (!is_split_name(name)) return {name};
  const std::string stem = name.substr(0, name.size() - kSplitForm.size());
  const std::string count = name.substr(name.size() - 10, 5);
  const size_t n = std::stoul(count);
  if (n < 2 || n > kMostSplits) return {name};
  std::vector<std::string> out;
  for (size_t i = 1; i <= n; ++i) {
    const std::string no = std::to_string(i);
    out.push_back(stem + "-" + std::string(5 - no.size(), '0') + no + "-of-" + count + ".gguf");
  }
  return out;
}

Result<ModelFile> read_gguf(MappedFile file) {
  ASSIGN_OR_RETURN(ModelFile::Parts parts, Reader(std::move(file)).read());
  ASSIGN_OR_RETURN(const int64_t count, split_number(parts, "split.count", 1));
  if (count <= 1) return ModelFile(std::move(parts));
  return unsupported(parts.path + ": one of the " + std::to_string(count) +
                         " files of a split model (split.count), whose names end in -00001-of-0000N.gguf; name it so, "
                         "beside the others",
                     "split.count");
}

Result<ModelFile> open_gguf(const std::string& path) {
  const std::vector<std::string> files = split_files(path);
  if (files.size() > 1) return open_split(files);
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  return read_gguf(std::move(file));
}

}  // namespace ibid
