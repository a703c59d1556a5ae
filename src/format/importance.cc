#include "format/importance.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/quoted.h"
#include "format/gguf_writer.h"
#include "format/model_file.h"

namespace ibid {
namespace {

constexpr std::string_view kSquares = ".in_sum2", kCounts = ".counts";

// F32 numbers of a tensor, not negative and finite.
Result<std::vector<float>> numbers_of(const ModelFile& file, const TensorInfo& t) {
  if (t.view.dtype != DType::kF32 || t.view.rank > 2) {
    return invalid(file.path() + ": tensor " + in_quotes(t.name) + " is no F32 matrix, as an imatrix has",
                   std::string(t.name));
  }
  const auto* begin = reinterpret_cast<const float*>(t.view.data);
  std::vector<float> out(begin, begin + t.view.n_elements());
  if (std::ranges::all_of(out, [](float x) { return std::isfinite(x) && x >= 0; })) return out;
  return invalid(file.path() + ": tensor " + in_quotes(t.name) + " has a sum of squares that is negative or not finite",
                 std::string(t.name));
}

}  // namespace

Result<Importance> Importance::open(const std::string& path) {
  ASSIGN_OR_RETURN(const ModelFile file, ModelFile::open(path));
  ASSIGN_OR_RETURN(const std::string type, file.meta_string("general.type", ""));
  if (file.container() != Container::kGguf || type != "imatrix") {
    return invalid(path + " is no importance matrix; expected a GGUF file of `ibid imatrix` or of llama-imatrix", path);
  }
  Importance out;
  if (file.has_meta("imatrix.datasets")) {
    ASSIGN_OR_RETURN(out.datasets, file.meta_strings("imatrix.datasets"));
  }
  ASSIGN_OR_RETURN(out.n_chunks, file.meta_int("imatrix.chunk_count", 0));
  ASSIGN_OR_RETURN(out.chunk_len, file.meta_int("imatrix.chunk_size", 0));
  for (const TensorInfo& t : file.tensors()) {
    if (!t.name.ends_with(kSquares)) continue;
    const std::string name = t.name.substr(0, t.name.size() - kSquares.size());
    const TensorInfo* counts = file.find(name + std::string(kCounts));
    if (counts == nullptr) {
      return invalid(path + " has no tensor " + in_quotes(name + std::string(kCounts)) + " for its sums", path);
    }
    Sums& sums = out.of[name];
    sums.n_inputs = t.view.row_len();
    ASSIGN_OR_RETURN(sums.squares, numbers_of(file, t));
    ASSIGN_OR_RETURN(sums.counts, numbers_of(file, *counts));
    if (sums.counts.size() * static_cast<size_t>(sums.n_inputs) == sums.squares.size()) continue;
    return invalid(path + ": " + in_quotes(name) + " has " + std::to_string(sums.counts.size()) + " counts for " +
                       std::to_string(sums.squares.size()) + " sums of " + std::to_string(sums.n_inputs) + " inputs",
                   path);
  }
  if (out.of.empty()) return invalid(path + " has no sums", path);
  return out;
}

Status Importance::write(const std::string& path) const {
  GgufWriter writer;
  writer.set("general.type", "imatrix");
  writer.set("imatrix.datasets", MetaValue(datasets));
  writer.set("imatrix.chunk_count", MetaValue(n_chunks));
  writer.set("imatrix.chunk_size", MetaValue(chunk_len));
  for (const auto& [name, sums] : of) {
    const std::span squares(sums.squares), counts(sums.counts);
    const auto n = static_cast<int64_t>(counts.size());
    writer.add_tensor(name + std::string(kSquares), DType::kF32, {n, sums.n_inputs}, std::as_bytes(squares));
    writer.add_tensor(name + std::string(kCounts), DType::kF32, {n, 1}, std::as_bytes(counts));
  }
  return writer.write(path);
}

Status Importance::add(const Importance& other) {
  for (const auto& [name, sums] : other.of) {
    const auto [own, is_new] = of.emplace(name, sums);
    if (is_new) continue;
    Sums& to = own->second;
    if (to.n_inputs != sums.n_inputs || to.counts.size() != sums.counts.size()) {
      return invalid("the sums of " + in_quotes(name) + " are of matrices of other shapes, and are not added");
    }
    for (size_t i = 0; i < to.squares.size(); ++i) to.squares[i] += sums.squares[i];
    for (size_t i = 0; i < to.counts.size(); ++i) to.counts[i] += sums.counts[i];
  }
  for (const std::string& dataset : other.datasets) {
    if (std::ranges::find(datasets, dataset) == datasets.end()) datasets.push_back(dataset);
  }
  n_chunks += other.n_chunks;
  chunk_len = std::max(chunk_len, other.chunk_len);
  return {};
}

Result<std::vector<float>> Importance::weights(std::string_view name, int64_t n_matrices, int64_t n_inputs) const {
  const auto found = of.find(name);
  if (found == of.end()) return std::vector<float>();
  const Sums& sums = found->second;
  if (sums.n_inputs != n_inputs || std::ssize(sums.counts) != n_matrices) {
    return invalid("the importance matrix has " + std::to_string(sums.counts.size()) + " x " +
                   std::to_string(sums.n_inputs) + " inputs of " + in_quotes(name) + ", and the model has " +
                   std::to_string(n_matrices) + " x " + std::to_string(n_inputs) + "; it is of another model");
  }
  std::vector<float> out(sums.squares.size(), 1.0f);
  for (size_t i = 0; i < out.size(); ++i) {
    const float n = sums.counts[i / static_cast<size_t>(n_inputs)];
    if (n > 0) out[i] = sums.squares[i] / n;
  }
  return out;
}

}  // namespace ibid
