#include "format/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/json.h"
#include "format/byte_reader.h"

namespace ibid {
namespace {

// The reference implementation allows 100,000,000; the largest models' headers have a tenth of ours.
constexpr uint64_t kMaxHeaderBytes = 16 << 20;

Error bad(const MappedFile& file, std::string what) {
  return invalid(file.path() + ": " + std::move(what), file.path());
}

// Where a tensor's data lies, counted from the first byte after the header.
struct Place {
  uint64_t begin = 0;
  uint64_t end = 0;
  size_t tensor = 0;
};

bool non_negative(const Json& value, uint64_t& out) {
  const int64_t* i = value.integer();
  if (i == nullptr || *i < 0) return false;
  out = static_cast<uint64_t>(*i);
  return true;
}

Status read_entry(const MappedFile& file, const std::string& name, const Json& entry, TensorInfo& info, Place& place) {
  std::string tensor = "tensor " + in_quotes(name);
  if (entry.object() == nullptr) return bad(file, tensor + " is " + std::string(entry.kind()) + ", not an object");
  const Json* dtype = entry.find("dtype");
  const Json* shape = entry.find("shape");
  const Json* offsets = entry.find("data_offsets");
  if (dtype == nullptr || dtype->string() == nullptr) return bad(file, tensor + " has no dtype");
  if (shape == nullptr || shape->array() == nullptr) return bad(file, tensor + " has no shape");
  if (offsets == nullptr || offsets->array() == nullptr || offsets->array()->size() != 2 ||
      !non_negative((*offsets->array())[0], place.begin) || !non_negative((*offsets->array())[1], place.end) ||
      place.begin > place.end) {
    return bad(file, tensor + " has no valid data_offsets (two integers, ascending)");
  }
  // Names as the field writes them; the quantised formats of GGUF do not exist here.
  // Unsigned integers and floats of eight bits are read as signed integers of as many bits.
  std::string type = *dtype->string();
  for (const auto& [eight, called] : {std::pair(EightBits::kE4M3, "F8_E4M3"), std::pair(EightBits::kE5M2, "F8_E5M2"),
                                      std::pair(EightBits::kE8M0, "F8_E8M0")}) {
    if (type == called) info.eight_bits = eight;
  }
  if (type == "BOOL" || info.eight_bits != EightBits::kInteger) type = "I8";
  if (type == "U8" || type == "U16" || type == "U32" || type == "U64") type[0] = 'I';
  std::optional<DType> known = dtype_from_name(type);
  if (!known || is_quantised(*known)) {
    return unsupported(file.path() + ": " + tensor + " has the dtype " + in_quotes(*dtype->string()) +
                           "; F32, F16, BF16, F64, F8_E4M3, F8_E5M2, F8_E8M0, integers and BOOL are read",
                       name);
  }
  const Json::Array& dims = *shape->array();
  constexpr size_t kMaxDims = 8;
  if (dims.size() > kMaxDims) {
    return unsupported(
        file.path() + ": " + tensor + " has " + std::to_string(dims.size()) + " dimensions; 8 are the most", name);
  }
  // Of a tensor of more (a vision tower's) the first ones are read as one.
  const size_t n_folded = dims.size() - std::min<size_t>(dims.size(), TensorView::kMaxRank);
  info.name = name;
  info.view.dtype = *known;
  info.view.rank = std::max(1, static_cast<int>(dims.size() - n_folded));  // a single number is read as [1]
  uint64_t n_bytes = static_cast<uint64_t>(traits(*known).block_bytes);
  for (size_t i = 0; i < dims.size(); ++i) {
    uint64_t dim = 0;
    if (!non_negative(dims[i], dim)) return bad(file, tensor + " has a dimension that is no integer from 0 on");
    if (dim == 0) return bad(file, tensor + " has a dimension of zero");
    if (!multiply(n_bytes, dim, n_bytes) || n_bytes > std::numeric_limits<int64_t>::max()) {
      return bad(file, tensor + " has more than 2^63 bytes");
    }
    info.view.dim[i < n_folded ? 0 : i - n_folded] *= static_cast<int64_t>(dim);
  }
  if (n_bytes != place.end - place.begin) {
    return bad(file, tensor + " has " + std::to_string(place.end - place.begin) +
                         " bytes of data where its shape needs " + std::to_string(n_bytes));
  }
  info.view.row_stride_bytes = row_bytes(*known, info.view.row_len());
  return {};
}

}  // namespace

Status read_safetensors(const MappedFile& file, std::vector<TensorInfo>& tensors,
                        std::vector<std::unique_ptr<std::byte[]>>& copies) {
  ByteReader in(file.bytes());
  uint64_t header_bytes = 0;
  std::string_view header;
  if (!in.read(header_bytes)) return bad(file, "the file is too short to be a safetensors file");
  if (header_bytes > kMaxHeaderBytes) {
    return bad(file, "its header announces " + std::to_string(header_bytes) +
                         " bytes; 16,777,216 are the most, so this is no safetensors file");
  }
  if (!in.read_view(header_bytes, header)) {
    return bad(file, "the file ends inside its header; it is cut off or damaged, fetch it again");
  }
  ASSIGN_OR_RETURN(Json json, parse_json(header, file.path() + " (header)"));
  if (json.object() == nullptr) return bad(file, "its header is " + std::string(json.kind()) + ", not an object");

  size_t first = tensors.size();
  std::vector<Place> places;
  for (const Json::Member& member : *json.object()) {
    if (member.first == "__metadata__") {
      if (member.second.object() == nullptr) return bad(file, "__metadata__ is no object");
      continue;
    }
    if (member.first.empty()) return bad(file, "a tensor has an empty name");
    TensorInfo info;
    Place place;
    TRY(read_entry(file, member.first, member.second, info, place));
    place.tensor = tensors.size();
    tensors.push_back(std::move(info));
    places.push_back(place);
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  uint64_t expected = 0;
  for (const Place& place : places) {
    if (place.begin != expected) {
      return bad(file, "tensor " + in_quotes(tensors[place.tensor].name) + " begins at byte " +
                           std::to_string(place.begin) + " of the data where " + std::to_string(expected) +
                           " was expected (a hole or an overlap)");
    }
    expected = place.end;
  }
  if (expected != in.n_left()) {
    return bad(file, "the tensors have " + std::to_string(expected) + " bytes of data, the file has " +
                         std::to_string(in.n_left()) + "; it is cut off or damaged, fetch it again");
  }

  const std::byte* data = file.bytes().data() + in.at();
  std::vector<TensorInfo> sorted;
  sorted.reserve(places.size());
  for (const Place& place : places) {
    TensorInfo& info = tensors[place.tensor];
    info.view.data = const_cast<std::byte*>(data) + place.begin;
    auto element_bytes = static_cast<uintptr_t>(traits(info.view.dtype).block_bytes);
    if (reinterpret_cast<uintptr_t>(info.view.data) % element_bytes != 0) {
      copies.push_back(std::make_unique<std::byte[]>(info.bytes()));
      std::memcpy(copies.back().get(), info.view.data, info.bytes());
      info.view.data = copies.back().get();
    }
    sorted.push_back(std::move(info));
  }
  std::move(sorted.begin(), sorted.end(), tensors.begin() + static_cast<ptrdiff_t>(first));
  return {};
}

std::string safetensors_bytes(std::span<const TensorInfo> tensors) {
  std::string header = "{";
  size_t at = 0;
  for (const TensorInfo& info : tensors) {
    if (header.size() > 1) header += ',';
    header += "\"" + info.name + "\":{\"dtype\":\"" + std::string(traits(info.view.dtype).name) + "\",\"shape\":[";
    for (int i = 0; i < info.view.rank; ++i) {
      if (i > 0) header += ',';
      header += std::to_string(info.view.dim[static_cast<size_t>(i)]);
    }
    header += "],\"data_offsets\":[" + std::to_string(at) + "," + std::to_string(at + info.bytes()) + "]}";
    at += info.bytes();
  }
  header += '}';
  header.append((8 - header.size() % 8) % 8, ' ');
  uint64_t n = header.size();
  std::string out(reinterpret_cast<const char*>(&n), sizeof n);
  out += header;
  for (const TensorInfo& info : tensors) out.append(reinterpret_cast<const char*>(info.view.data), info.bytes());
  return out;
}

}  // namespace ibid
