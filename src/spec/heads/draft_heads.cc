#include "spec/heads/draft_heads.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "base/quoted.h"
#include "kernels/ops.h"
#include "model/blocks.h"
#include "spec/heads/head_matrix.h"
#include "tensor/dequantise.h"

namespace ibid {
namespace {

constexpr int64_t kMostHeads = 16, kMostLayers = 16;

enum class Part : uint8_t { kLinear, kSkip, kOutput };
struct Place {
  int64_t head = 0, layer = 0;
  Part part = Part::kLinear;
  bool is_bias = false;
};

// Tensor names of heads, without ".weight" or ".bias"; # is a number: first the head's, then the layer's.
struct Spelling {
  std::string_view pattern;
  Part part;
};
constexpr std::array<Spelling, 9> kSpellings = {{
    {"head.#.blk.#.linear", Part::kLinear},
    {"head.#.blk.#.skip", Part::kSkip},
    {"head.#.output", Part::kOutput},
    {"hydra_mlp.#.#.linear", Part::kLinear},
    {"hydra_mlp.#.#.res_connection", Part::kSkip},
    {"hydra_lm_head.#", Part::kOutput},
    {"hydra_lm_head.#.#", Part::kOutput},  // after a dropout
    {"#.#.linear", Part::kLinear},
    {"#.#", Part::kOutput},  // Medusa's: the layer after the last
}};
constexpr std::array<std::string_view, 2> kPrefixes = {"medusa_head.", "hydra_head."};

bool cut_off(std::string_view& name, std::string_view end) {
  if (!name.ends_with(end)) return false;
  name.remove_suffix(end.size());
  return true;
}

// Whether `name` matches the pattern; returns its numbers.
bool matches(std::string_view name, std::string_view pattern, std::array<int64_t, 2>& numbers) {
  size_t n = 0, at = 0;
  for (const char c : pattern) {
    if (c != '#') {
      if (at == name.size() || name[at++] != c) return false;
      continue;
    }
    const char* begin = name.data() + at;
    const auto [end, error] = std::from_chars(begin, name.data() + name.size(), numbers[n++]);
    if (error != std::errc() || *begin == '-') return false;
    at += static_cast<size_t>(end - begin);
  }
  return at == name.size();
}

std::optional<Place> place_of(std::string_view name) {
  for (const std::string_view prefix : kPrefixes) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  const bool is_bias = cut_off(name, ".bias");
  if (!is_bias && !cut_off(name, ".weight")) return std::nullopt;
  for (const Spelling& s : kSpellings) {
    std::array<int64_t, 2> numbers = {0, 0};
    if (matches(name, s.pattern, numbers)) return Place{numbers[0], numbers[1], s.part, is_bias};
  }
  return std::nullopt;
}

}  // namespace

// ---- loading -------------------------------------------------------------------------------------------------------

class DraftHeads::Loader {
 public:
  Loader(const ModelFile& file, const Model& target, const Stream& stream)
      : file_(file), target_(target), stream_(stream) {}

  // Finds and checks all tensors; reads no matrix.
  Status find() {
    if (target_.vocabulary() == nullptr)
      return invalid("an encoder has no next token that heads could predict", "--spec");
    TRY(check_kind());
    for (const TensorInfo& t : file_.tensors()) {
      const std::optional<Place> place = place_of(t.name);
      if (!place) {
        return unsupported(
            file_.path() + " has a tensor " + in_quotes(t.name) + ", which is of no Medusa or Hydra head", t.name);
      }
      if (place->head >= kMostHeads || place->layer > kMostLayers)
        return invalid(where() + "tensor " + in_quotes(t.name) + " is of a head or layer too many", t.name);
      Found& head = heads_[place->head];
      HeadMatrix& to = place->part == Part::kOutput ? head.output : part_of(head.layers[place->layer], place->part);
      const TensorInfo*& at = place->is_bias ? to.bias : to.weight;
      if (at != nullptr) {
        return invalid(where() + "tensors " + in_quotes(at->name) + " and " + in_quotes(t.name) + " are one", t.name);
      }
      at = &t;
    }
    if (heads_.empty()) return invalid(file_.path() + " has no draft heads");
    if (heads_.rbegin()->first != static_cast<int64_t>(heads_.size()) - 1)
      return invalid(file_.path() + " has no head " + std::to_string(first_missing()));
    TRY(find_ids());
    for (auto& [i, head] : heads_) TRY(check(i, head));
    return check_layers();
  }

  int64_t width() const { return target_.config().width; }
  const Weight& target_output() const { return target_.vocabulary()->output.weight; }
  const std::vector<TokenId>& ids() const { return ids_; }
  bool needs_target() const {
    return std::ranges::any_of(heads_, [](const auto& h) { return h.second.output.weight == nullptr; });
  }
  int64_t n_outputs() const { return ids_.empty() ? target_.config().vocab_size : std::ssize(ids_); }
  int64_t n_heads() const { return std::ssize(heads_); }

  // Bytes of all prepared weights and of the target's rows.
  int64_t weight_bytes() const {
    int64_t bytes = 0;
    for (const auto& [i, head] : heads_) {
      for (const auto& [j, layer] : head.layers) bytes += bytes_of(layer.linear) + bytes_of(layer.skip);
      bytes += bytes_of(head.output);
    }
    if (!needs_target() || ids_.empty()) return bytes;
    const TensorView& all = target_output().raw;
    TensorView rows = all;
    rows.dim[0] = n_outputs();
    return bytes + n_outputs() * all.row_stride_bytes + prepared_bytes(stream_, rows);
  }

  Status load(Stream& stream, DraftHeads& out) const {
    out.width_ = static_cast<int32_t>(width());
    out.ids_ = ids_;
    for (const auto& [i, found] : heads_) {
      Head& head = out.heads_.emplace_back();
      head.n_inputs = found.n_inputs;
      for (const auto& [j, layer] : found.layers) {
        Layer& to = head.layers.emplace_back();
        TRY(load(stream, layer.linear, to.linear, to.linear_bias, out));
        if (layer.skip.weight != nullptr) TRY(load(stream, layer.skip, to.skip, to.skip_bias, out));
      }
      if (found.output.weight != nullptr) TRY(load(stream, found.output, head.output, head.output_bias, out));
    }
    return needs_target() ? load_target_rows(stream, out) : Status{};
  }

 private:
  std::string where() const { return file_.path() + ": "; }
  struct FoundLayer {
    HeadMatrix linear, skip;
  };
  struct Found {
    std::map<int64_t, FoundLayer> layers;  // in order; numbers may be missing (dropout has some)
    HeadMatrix output;
    int64_t n_inputs = 0;
  };

  static HeadMatrix& part_of(FoundLayer& layer, Part part) { return part == Part::kSkip ? layer.skip : layer.linear; }
  int64_t first_missing() const {
    int64_t i = 0;
    while (heads_.contains(i)) ++i;
    return i;
  }

  // Rejects options of Hydra's configuration that are not supported here.
  Status check_kind() const {
    ASSIGN_OR_RETURN(const std::string kind, file_.meta_string("hydra_head_arch", "mlp"));
    if (kind != "mlp") {
      return unsupported(where() + "Hydra's heads with attention before them (hydra_head_arch " + in_quotes(kind) +
                             ") are not supported; expected \"mlp\"",
                         "hydra_head_arch");
    }
    ASSIGN_OR_RETURN(const int64_t offset, file_.meta_int("hidden_state_offset", 0));
    if (offset == 0) return {};
    return unsupported(where() + "the heads read what a layer before the last one made (hidden_state_offset " +
                           std::to_string(offset) + "); expected 0",
                       "hidden_state_offset");
  }

  // Hydra's program uses one object for all later layers of a head: a file that stores each tensor once has too few of
  // them.
  Status check_layers() const {
    for (const char* key : {"hydra_num_layers", "medusa_num_layers"}) {
      ASSIGN_OR_RETURN(const int64_t n, file_.meta_int(key, 0));
      for (const auto& [i, head] : heads_) {
        if (n == 0 || std::ssize(head.layers) == n) continue;
        return invalid(where() + "head " + std::to_string(i) + " has " + std::to_string(head.layers.size()) +
                           " layers; its configuration has " + std::to_string(n),
                       key);
      }
    }
    return {};
  }

  Status find_ids() {
    ASSIGN_OR_RETURN(const std::string architecture, file_.meta_string("general.architecture", ""));
    const std::string key = architecture + ".token_ids";
    if (!file_.has_meta(key)) return {};
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, file_.meta_ints(key));
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= target_.config().vocab_size || (i > 0 && ids[i] <= ids[i - 1]))
        return invalid(where() + key + " are no ascending ids of the model's vocabulary", key);
      ids_.push_back(TokenId{static_cast<int32_t>(ids[i])});
    }
    return ids.empty() ? invalid(where() + key + " is empty", key) : Status{};
  }

  Status check(int64_t i, Found& head) const {
    if (head.layers.empty()) return invalid(where() + "head " + std::to_string(i) + " has no layer");
    int64_t n_inputs = 0;
    for (const auto& [j, layer] : head.layers) {
      const bool is_first = n_inputs == 0;
      if (layer.linear.weight == nullptr)
        return invalid(where() + "a layer of head " + std::to_string(i) + " has no linear part");
      if (is_first) n_inputs = layer.linear.weight->view.row_len();
      const int64_t wanted = is_first ? n_inputs : width();
      TRY(layer.linear.check_shape(stream_, where(), width(), wanted));
      if (layer.skip.weight != nullptr) TRY(layer.skip.check_shape(stream_, where(), width(), wanted));
      if (wanted != width() && layer.skip.weight == nullptr)
        return invalid(where() + "a layer of head " + std::to_string(i) + " changes the width and has no skip");
      TRY(layer.skip.check_bias(where()));
    }
    if (n_inputs != width() && n_inputs != (i + 2) * width()) {
      return invalid(where() + "head " + std::to_string(i) + " reads " + std::to_string(n_inputs) +
                     " values; the model's width is " + std::to_string(width()));
    }
    head.n_inputs = n_inputs;
    TRY(head.output.check_bias(where()));
    return head.output.weight != nullptr ? head.output.check_shape(stream_, where(), n_outputs(), width()) : Status{};
  }

  int64_t bytes_of(const HeadMatrix& m) const {
    return m.weight == nullptr ? 0 : std::max<int64_t>(prepared_bytes(stream_, m.weight->view), 0);
  }

  static Status load(Stream& stream, const HeadMatrix& from, Weight& to, TensorView& bias, DraftHeads& out) {
    to = prepare_weight(stream, from.weight->view);
    if (from.bias == nullptr) return {};
    const TensorView& view = from.bias->view;
    auto copy = std::make_unique<float[]>(static_cast<size_t>(view.dim[0]));
    dequantise_row(view.dtype, view.data, copy.get(), view.dim[0]);
    bias = TensorView(copy.get(), DType::kF32, {view.dim[0]});
    out.copies_.push_back(std::move(copy));
    return {};
  }

  Status load_target_rows(Stream& stream, DraftHeads& out) const {
    const TensorView& all = target_output().raw;
    if (ids_.empty()) {
      out.output_ = target_output();
      return {};
    }
    const auto row_bytes = static_cast<size_t>(row_bytes_of(all));
    out.output_rows_.resize(ids_.size() * row_bytes);
    for (size_t i = 0; i < ids_.size(); ++i)
      std::memcpy(out.output_rows_.data() + i * row_bytes, all.row(raw(ids_[i])), row_bytes);
    const TensorView rows(out.output_rows_.data(), all.dtype, {n_outputs(), width()});
    out.output_ = prepare_weight(stream, rows);
    return {};
  }
  static int64_t row_bytes_of(const TensorView& x) { return row_bytes(x.dtype, x.row_len()); }

  const ModelFile& file_;
  const Model& target_;
  const Stream& stream_;
  std::map<int64_t, Found> heads_;
  std::vector<TokenId> ids_;
};

Result<int64_t> DraftHeads::sized_bytes(const ModelFile& file, const Model& target, const Stream& stream,
                                        int32_t max_rows) {
  Loader loader(file, target, stream);
  TRY(loader.find());
  const int64_t floats = (2 * (loader.n_heads() + 1) + 3) * loader.width() + loader.n_outputs();
  return loader.weight_bytes() + max_rows * floats * int64_t{sizeof(float)};
}

Result<std::unique_ptr<DraftHeads>> DraftHeads::load(std::shared_ptr<const ModelFile> file, const Model& target,
                                                     Stream& stream, int32_t max_rows) {
  std::unique_ptr<DraftHeads> out(new DraftHeads(target, stream));
  Loader loader(*file, target, stream);
  TRY(loader.find());
  TRY(loader.load(stream, *out));
  out->file_ = std::move(file);
  const auto n_rows = static_cast<size_t>(max_rows), C = static_cast<size_t>(out->width_);
  const size_t row_len = (out->heads_.size() + 1) * C;
  out->rows_.resize(n_rows * row_len);
  out->inputs_.resize(n_rows * row_len);
  out->x_.resize(n_rows * C);
  out->y_.resize(n_rows * C);
  out->ones_.assign(n_rows * C, 1.0F);
  out->logits_.resize(n_rows * static_cast<size_t>(loader.n_outputs()));
  const size_t workspace = ops::linear_workspace_bytes(max_rows, static_cast<int64_t>(row_len));
  TRY(stream.reserve_workspace(std::max(stream.workspace_bytes(), workspace)));
  return out;
}

// ---- passes --------------------------------------------------------------------------------------------------------

TensorView DraftHeads::rows() {
  const int64_t row_len = (n_heads() + 1) * int64_t{width_};
  return {rows_.data(), DType::kF32, {std::ssize(rows_) / row_len, row_len}};
}

void DraftHeads::set_hidden(int32_t row, std::span<const float> hidden) {
  CHECK(std::ssize(hidden) == width_);
  const size_t row_len = (heads_.size() + 1) * static_cast<size_t>(width_);
  std::ranges::copy(hidden, rows_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(row) * row_len));
}

void DraftHeads::copy_hidden(int32_t from, int32_t to) {
  const TensorView hidden = rows().columns(0, width_);
  if (from != to) ops::copy_rows(stream_, hidden, {&to, 1}, hidden, {&from, 1});
}

void DraftHeads::add_token(int32_t row, int32_t place, TokenId token) {
  CHECK(place >= 0 && place < n_heads());
  const size_t C = static_cast<size_t>(width_), row_len = (heads_.size() + 1) * C;
  float* to = rows_.data() + static_cast<size_t>(row) * row_len + (static_cast<size_t>(place) + 1) * C;
  const TensorView out(to, DType::kF32, {1, width_});
  ops::embed(stream_, out, target_.vocabulary()->embedding, {&token, 1}, target_.config().embedding_scale);
}

std::span<const float> DraftHeads::run(int32_t i, std::span<const int32_t> rows) {
  const Head& head = heads_[static_cast<size_t>(i)];
  const auto n = std::ssize(rows);
  TensorView x(inputs_.data(), DType::kF32, {n, head.n_inputs});
  ops::gather_rows(stream_, x, this->rows().columns(0, head.n_inputs), rows);
  const TensorView ones(ones_.data(), DType::kF32, {n, width_});
  const TensorView y(y_.data(), DType::kF32, {n, width_});
  for (const Layer& layer : head.layers) {
    const bool has_skip = layer.skip.n_outputs > 0;
    const bool reads_inputs = x.data == reinterpret_cast<std::byte*>(inputs_.data());
    const TensorView next(reads_inputs ? x_.data() : inputs_.data(), DType::kF32, {n, width_});
    const std::array<TensorView, 2> out = {y, next};
    const std::array<const Weight*, 2> weights = {&layer.linear, &layer.skip};
    const size_t n_products = has_skip ? 2 : 1;
    ops::linear(stream_, std::span(out).first(n_products), x, std::span(weights).first(n_products));
    if (layer.linear_bias.rank != 0) ops::add_bias(stream_, y, layer.linear_bias);
    if (layer.skip_bias.rank != 0) ops::add_bias(stream_, next, layer.skip_bias);
    ops::silu_mul(stream_, y, y, ones);
    if (has_skip) {
      ops::add(stream_, next, y);
      x = next;
    } else {
      ops::add(stream_, x, y);
    }
  }
  const bool has_output = head.output.n_outputs > 0;
  const Weight& output = has_output ? head.output : output_;
  const TensorView logits(logits_.data(), DType::kF32, {n, output.n_outputs});
  const Weight* weight = &output;
  ops::linear(stream_, {&logits, 1}, x, {&weight, 1});
  if (has_output && head.output_bias.rank != 0) ops::add_bias(stream_, logits, head.output_bias);
  const float cap = target_.config().logit_soft_cap;
  if (!has_output && cap != 0) ops::soft_cap(stream_, logits, cap);
  return {logits_.data(), static_cast<size_t>(logits.n_elements())};
}

}  // namespace ibid
