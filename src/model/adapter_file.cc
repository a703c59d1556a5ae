#include "model/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/quoted.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/arch/architecture.h"
#include "model/gguf_form.h"
#include "model/weights.h"
#include "tensor/dequantise.h"
#include "text/tokenizer/pattern.h"

namespace ibid {
namespace {

constexpr JsonLimits kConfigLimits = {.max_bytes = 4 << 20, .max_depth = 16, .max_values = 50'000};

// What a file has of one product, as it has it: of one expert, or of all.
struct Found {
  std::string in_file;  // what the file calls it, for sentences
  int64_t expert = -1;
  const TensorInfo* a = nullptr;
  const TensorInfo* b = nullptr;
};

std::string shape_of(const TensorView& view) {
  std::string out = "[";
  for (int i = 0; i < view.rank; ++i) out += (i > 0 ? ", " : "") + std::to_string(view.dim[static_cast<size_t>(i)]);
  return out + "]";
}

// Where the text model's modules begin, however the wrappers around it are called.
std::string_view without_wrappers(std::string_view module) {
  constexpr std::string_view kWrappers[] = {"base_model.model.", "language_model.", "model.",
                                            "transformer.",      "backbone.",       "bert."};
  for (bool again = true; std::exchange(again, false);) {
    for (const std::string_view wrapper : kWrappers) {
      if (!module.starts_with(wrapper)) continue;
      module.remove_prefix(wrapper.size());
      again = true;
    }
  }
  return module;
}

// "layers.3.mlp.experts.7.up_proj" is "layers.{}.mlp.experts.{}.up_proj" with 3 and 7.
bool fits(std::string_view pattern, std::string_view module, int64_t (&numbers)[2]) {
  int n = 0;
  while (true) {
    const size_t hole = pattern.find("{}");
    if (hole == std::string_view::npos || n == 2) return pattern == module;
    if (pattern.substr(0, hole) != module.substr(0, std::min(hole, module.size()))) return false;
    pattern.remove_prefix(hole + 2);
    module.remove_prefix(hole);
    size_t n_digits = 0;
    int64_t value = 0;
    while (n_digits < module.size() && n_digits < 6 && module[n_digits] >= '0' && module[n_digits] <= '9')
      value = 10 * value + (module[n_digits++] - '0');
    if (n_digits == 0 || (n_digits > 1 && module[0] == '0')) return false;
    module.remove_prefix(n_digits);
    numbers[n++] = value;
  }
}

class Reader {
 public:
  Reader(std::string path, const ModelFile& base, const Model& model)
      : path_(std::move(path)), base_(base), config_(model.config()), seats_(model.adapter_seats()) {
    for (size_t i = 0; i < seats_.size(); ++i) by_name_.emplace(seats_[i].name, static_cast<int32_t>(i));
  }

  Result<std::vector<Adapter::Pair>> of_folder();
  Result<std::vector<Adapter::Pair>> of_gguf();

 private:
  using ByName = std::multimap<std::string, int32_t, std::less<>>;

  Error refused(std::string_view name, const std::string& why) const {
    return unsupported(path_ + ": " + in_quotes(name) + " " + why, std::string(name));
  }
  Error not_there(std::string_view name) const {
    return refused(name, "changes something that is no product of this " + config_.architecture +
                             " model, or none that an adapter may change; leaving it out would change the answers");
  }
  Status read_config(const Json& config);
  using Patterns = std::vector<std::pair<Pattern, double>>;  // peft's: of modules whose ends match
  Status read_patterns(const Json& config, std::string_view name, Patterns& out) const;
  static double by_pattern(const Patterns& patterns, std::string_view module, double otherwise);
  // s of a folder's module whose matrices have this rank.
  Result<double> factor_of(std::string_view module, int64_t rank) const;
  // The names of seats for what a folder calls `module`, and which expert of theirs.
  Status add_module(std::string_view module, const TensorInfo& info, bool is_b);
  Result<std::string> canonical_of(std::string_view module, int64_t& expert) const;
  Status add(const std::string& name, int64_t expert, const TensorInfo& info, bool is_b);
  Status make_pair(const std::string& name, std::vector<Found>& found, bool is_gguf);
  struct Read {
    int64_t rank = 0;
    std::vector<float> a, b;
    double factor = 1;
  };
  // Of a folder's product, checked against its sizes.
  Result<Read> read_pair(const Found& found, int64_t n_inputs, int64_t n_outputs) const;
  Status make_halves(const AdapterSeat& up, const Found& found);
  Status make_stacked(const std::string& module, const Found& found);
  // Of a tensor that is q, k, v and z of each key head together, where the model has q, k, v and z apart.
  Status make_qkvz(int64_t layer, const Found& found);
  const AdapterSeat* seat_of(std::string_view pattern, int64_t layer, int32_t& seat) const;
  void add_pair(int32_t seat, int64_t rank, const std::vector<float>& a, const std::vector<float>& b, double factor);
  Result<std::vector<Adapter::Pair>> make(bool is_gguf);

  std::string path_;
  const ModelFile& base_;
  const ModelConfig& config_;
  std::span<const AdapterSeat> seats_;
  ByName by_name_;  // several seats are parts of one tensor
  std::map<std::string, std::vector<Found>, std::less<>> found_;
  std::map<std::string, Found, std::less<>> stacked_;  // of all experts, by what a folder calls them
  std::map<int64_t, Found> qkvz_;                      // by layer
  std::vector<Adapter::Pair> pairs_;

  double alpha_ = 0, user_rank_ = 0;
  bool by_root_ = false;
  Patterns alphas_, ranks_;
};

Result<std::vector<float>> floats_of(const TensorInfo& info, const std::string& path) {
  if (info.view.dtype != DType::kF32 && info.view.dtype != DType::kF16 && info.view.dtype != DType::kBF16) {
    return unsupported(path + ": " + in_quotes(info.name) + " is of type " + std::string(traits(info.view.dtype).name) +
                           "; an adapter's matrices are F32, F16 or BF16",
                       info.name);
  }
  std::vector<float> out(static_cast<size_t>(info.view.n_elements()));
  dequantise(info.view, out.data());
  return out;
}

Status Reader::read_config(const Json& config) {
  const auto truth = [&](std::string_view key) {
    const Json* value = config.find(key);
    return value != nullptr && value->boolean() != nullptr && *value->boolean();
  };
  const auto is_there = [&](std::string_view key) {
    const Json* value = config.find(key);
    if (value == nullptr || value->is_null()) return false;
    if (value->array() != nullptr) return !value->array()->empty();
    return value->object() == nullptr || !value->object()->empty();
  };
  const Json* type = config.find("peft_type");
  if (type == nullptr || type->string() == nullptr || *type->string() != "LORA")
    return refused("peft_type", "is not LORA; ibid runs adapters of low rank alone");
  for (const std::string_view key : {"use_dora", "lora_bias", "use_qalora", "use_bdlora"}) {
    if (truth(key)) return refused(key, "is true, which ibid does not run");
  }
  for (const std::string_view key : {"modules_to_save", "trainable_token_indices", "layer_replication",
                                     "alora_invocation_tokens", "megatron_config", "arrow_config"}) {
    if (is_there(key)) return refused(key, "is set, which ibid does not run");
  }
  const Json* bias = config.find("bias");
  if (bias != nullptr && bias->string() != nullptr && *bias->string() != "none")
    return refused("bias", "is " + in_quotes(*bias->string()) + ": ibid does not run biases of adapters");
  const auto positive = [&](std::string_view key, double& out) -> Status {
    const Json* value = config.find(key);
    if (value == nullptr || !value->is_number() || !std::isfinite(value->number()) || value->number() <= 0)
      return invalid(path_ + ": " + in_quotes(key) + " of adapter_config.json is no number above 0", std::string(key));
    out = value->number();
    return {};
  };
  TRY(positive("lora_alpha", alpha_));
  TRY(positive("r", user_rank_));
  by_root_ = truth("use_rslora");
  TRY(read_patterns(config, "alpha_pattern", alphas_));
  return read_patterns(config, "rank_pattern", ranks_);
}

Status Reader::read_patterns(const Json& config, std::string_view name, Patterns& out) const {
  const Json* all = config.find(name);
  if (all == nullptr || all->object() == nullptr) return {};
  for (const auto& [key, value] : *all->object()) {
    if (!value.is_number() || !std::isfinite(value.number()))
      return invalid(path_ + ": " + std::string(name) + " of " + in_quotes(key) + " is no number", std::string(name));
    ASSIGN_OR_RETURN(Pattern pattern, Pattern::compile("^(.*\\.)?(" + key + ")$"));
    out.emplace_back(std::move(pattern), value.number());
  }
  return {};
}

double Reader::by_pattern(const Patterns& patterns, std::string_view module, double otherwise) {
  for (const auto& [pattern, value] : patterns) {
    Pattern::Budget budget = Pattern::Budget::of_text(module.size());
    Pattern::Found found;
    if (pattern.find(module, false, 0, budget, found)) return value;
  }
  return otherwise;
}

Result<double> Reader::factor_of(std::string_view module, int64_t rank) const {
  if (module.starts_with("base_model.model.")) module.remove_prefix(17);
  const double own_rank = by_pattern(ranks_, module, user_rank_);
  if (own_rank != static_cast<double>(rank))
    return refused(module, "has a rank of " + std::to_string(rank) + ", and adapter_config.json states another");
  const double alpha = by_pattern(alphas_, module, alpha_);
  return by_root_ ? alpha / std::sqrt(own_rank) : alpha / own_rank;
}

Result<std::string> Reader::canonical_of(std::string_view module, int64_t& expert) const {
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(base_));
  const std::string_view rest = without_wrappers(module);
  for (const WeightName& row : architecture->names) {
    std::string_view folder = row.folder;
    if (folder.ends_with(".weight")) folder.remove_suffix(7);
    std::string_view canonical = row.canonical;
    if (!canonical.ends_with(".weight")) continue;
    canonical.remove_suffix(7);
    int64_t numbers[2] = {0, -1};
    if (!fits(folder, rest, numbers)) continue;
    std::string name = layer_name(canonical, numbers[0]);
    if (by_name_.find(name) == by_name_.end()) continue;
    expert = numbers[1];
    return name;
  }
  return not_there(module);
}

Status Reader::add(const std::string& name, int64_t expert, const TensorInfo& info, bool is_b) {
  std::vector<Found>& of = found_[name];
  auto it = std::ranges::find(of, expert, &Found::expert);
  if (it == of.end()) it = of.insert(of.end(), Found{.in_file = info.name, .expert = expert});
  const TensorInfo*& to = is_b ? it->b : it->a;
  if (to != nullptr) return refused(info.name, "comes twice, under names of one product");
  to = &info;
  return {};
}

const AdapterSeat* Reader::seat_of(std::string_view pattern, int64_t layer, int32_t& seat) const {
  const auto found = by_name_.find(layer_name(pattern, layer));
  if (found == by_name_.end()) return nullptr;
  seat = found->second;
  return &seats_[static_cast<size_t>(seat)];
}

void Reader::add_pair(int32_t seat, int64_t rank, const std::vector<float>& a, const std::vector<float>& b,
                      double factor) {
  pairs_.push_back({.seat = seat, .rank = rank, .a = a, .b = b, .factor = factor});
}

// peft's of experts in one tensor [E, N, K]: A is [E r, K], B [N, r E] with the experts innermost. Which of the two
// tensors it is of shows in the shapes alone: 2 F = C and C = F cannot both be.
Status Reader::make_stacked(const std::string& module, const Found& found) {
  if (found.a == nullptr || found.b == nullptr) return refused(found.in_file, "has no second matrix beside it");
  std::string_view rest = without_wrappers(module);
  if (rest.ends_with(".base_layer")) rest.remove_suffix(11);
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(base_));
  int64_t numbers[2] = {-1, -1};
  const std::string probe = std::string(rest) + ".down_proj";
  const bool is_known = std::ranges::any_of(architecture->names, [&](const WeightName& row) {
    return row.canonical == "blk.{}.ffn_down_exps.weight" && fits(row.folder, probe, numbers);
  });
  int32_t at_down = -1, at_both = -1, at_gate = -1, at_up = -1;
  const AdapterSeat* down = is_known ? seat_of("blk.{}.ffn_down_exps", numbers[0], at_down) : nullptr;
  if (down == nullptr) return not_there(found.in_file);
  const AdapterSeat* both = seat_of("blk.{}.ffn_gate_up_exps", numbers[0], at_both);
  const AdapterSeat* gate = seat_of("blk.{}.ffn_gate_exps", numbers[0], at_gate);
  static_cast<void>(seat_of("blk.{}.ffn_up_exps", numbers[0], at_up));
  const TensorView &a = found.a->view, &b = found.b->view;
  const int64_t E = down->n_experts, C = down->n_outputs, F = down->n_inputs;
  const bool is_pair = a.rank == 2 && b.rank == 2 && a.dim[0] == b.dim[1] && a.dim[0] % E == 0;
  const bool is_down = is_pair && a.dim[1] == F && b.dim[0] == C;
  const bool is_both = is_pair && a.dim[1] == C && b.dim[0] == 2 * F && (both != nullptr || gate != nullptr);
  if (!is_down && !is_both)
    return refused(found.in_file, "has the shapes " + shape_of(a) + " and " + shape_of(b) + ", which are of neither " +
                                      "product of " + std::to_string(E) + " experts");
  const int64_t r = a.dim[0] / E, N = b.dim[0];
  if (r < 1 || r > kMaxAdapterRank) return refused(found.in_file, "has a rank of " + std::to_string(r));
  ASSIGN_OR_RETURN(const std::vector<float> of_a, floats_of(*found.a, path_));
  ASSIGN_OR_RETURN(const std::vector<float> of_b, floats_of(*found.b, path_));
  const auto rows = [&](int64_t from, int64_t n) {
    std::vector<float> out;
    for (int64_t e = 0; e < E; ++e) {
      for (int64_t row = from; row < from + n; ++row) {
        for (int64_t i = 0; i < r; ++i) out.push_back(of_b[static_cast<size_t>((row * r + i) * E + e)]);
      }
    }
    return out;
  };
  ASSIGN_OR_RETURN(const double factor, factor_of(std::string(rest) + (is_down ? ".down_proj" : ".gate_up_proj"), r));
  if (is_down || both != nullptr) {
    add_pair(is_down ? at_down : at_both, r, of_a, rows(0, N), factor);
  } else {
    add_pair(at_gate, r, of_a, rows(0, F), factor);
    add_pair(at_up, r, of_a, rows(F, F), factor);
  }
  return {};
}

Result<Reader::Read> Reader::read_pair(const Found& found, int64_t n_inputs, int64_t n_outputs) const {
  if (found.a == nullptr || found.b == nullptr) return refused(found.in_file, "has no second matrix beside it");
  const TensorView &a = found.a->view, &b = found.b->view;
  if (a.rank != 2 || b.rank != 2 || a.dim[1] != n_inputs || b.dim[0] != n_outputs || a.dim[0] != b.dim[1] ||
      a.dim[0] > kMaxAdapterRank)
    return refused(found.in_file, "has the shapes " + shape_of(a) + " and " + shape_of(b));
  Read out = {.rank = a.dim[0]};
  ASSIGN_OR_RETURN(out.a, floats_of(*found.a, path_));
  ASSIGN_OR_RETURN(out.b, floats_of(*found.b, path_));
  ASSIGN_OR_RETURN(out.factor, factor_of(found.in_file.substr(0, found.in_file.find(".lora_")), out.rank));
  return out;
}

Status Reader::make_halves(const AdapterSeat& up, const Found& found) {
  int32_t at_gate = -1, at_up = -1;
  const bool is_shared = up.pattern.find("_shexp") != std::string::npos;
  const AdapterSeat* gate = seat_of(is_shared ? "blk.{}.ffn_gate_shexp" : "blk.{}.ffn_gate", up.layer, at_gate);
  static_cast<void>(seat_of(up.pattern.substr(0, up.pattern.rfind('.')), up.layer, at_up));
  const bool has_gate = gate != nullptr && gate->n_outputs == up.n_outputs;
  if (!has_gate && found.a != nullptr)
    return refused(found.in_file, "has the shapes " + shape_of(found.a->view) + " and " + shape_of(found.b->view));
  ASSIGN_OR_RETURN(const Read pair, read_pair(found, up.n_inputs, 2 * up.n_outputs));
  const auto half = pair.b.begin() + std::ssize(pair.b) / 2;
  add_pair(at_gate, pair.rank, pair.a, {pair.b.begin(), half}, pair.factor);
  add_pair(at_up, pair.rank, pair.a, {half, pair.b.end()}, pair.factor);
  return {};
}

Status Reader::make_qkvz(int64_t layer, const Found& found) {
  int32_t at_qkv = -1, at_z = -1;
  const AdapterSeat* qkv = seat_of("blk.{}.attn_qkv", layer, at_qkv);
  const AdapterSeat* z = seat_of("blk.{}.attn_gate", layer, at_z);
  if (qkv == nullptr || z == nullptr) return not_there(found.in_file);
  ASSIGN_OR_RETURN(const Read pair, read_pair(found, qkv->n_inputs, qkv->n_outputs + z->n_outputs));
  const DeltaHeads& heads = config_.layers[static_cast<size_t>(layer)].delta;
  add_pair(at_qkv, pair.rank, pair.a, part_of_qkvz(heads, pair.b, pair.rank, false), pair.factor);
  add_pair(at_z, pair.rank, pair.a, part_of_qkvz(heads, pair.b, pair.rank, true), pair.factor);
  return {};
}

Status Reader::make_pair(const std::string& name, std::vector<Found>& found, bool is_gguf) {
  const auto [first, last] = by_name_.equal_range(name);
  CHECK(first != last);
  const AdapterSeat& seat = seats_[static_cast<size_t>(first->second)];
  // A folder's gate and up in one, of a GGUF that has them apart.
  const bool is_up = seat.pattern == "blk.{}.ffn_up.weight" || seat.pattern == "blk.{}.ffn_up_shexp.weight";
  if (is_up && !is_gguf && found.size() == 1 && found[0].b != nullptr && found[0].b->view.dim[0] == 2 * seat.n_outputs)
    return make_halves(seat, found[0]);
  const int64_t K = seat.n_inputs, N = seat.n_rows > 0 ? seat.n_rows : seat.n_outputs, E = seat.n_experts;
  for (const Found& f : found) {
    if (f.a == nullptr || f.b == nullptr) return refused(f.in_file, "has no second matrix beside it");
    if (f.expert >= E && f.expert >= 0) return not_there(f.in_file);
  }
  const bool is_whole = E > 0 && found.size() == 1 && found.front().expert < 0;
  if (E > 0 && !is_whole && std::ranges::any_of(found, [](const Found& f) { return f.expert < 0; }))
    return refused(found.front().in_file, "is of all experts, beside some of single ones");
  int64_t rank = 0;
  for (const Found& f : found) {
    const TensorView &a = f.a->view, &b = f.b->view;
    const int of_experts = is_whole ? 1 : 0;
    const bool fits = a.rank == 2 + of_experts && b.rank == 2 + of_experts;
    const size_t at = static_cast<size_t>(of_experts);
    if (!fits || (is_whole && (a.dim[0] != E || b.dim[0] != E)) || a.dim[at + 1] != K || b.dim[at] != N ||
        a.dim[at] != b.dim[at + 1]) {
      return refused(f.in_file, "has the shapes " + shape_of(a) + " and " + shape_of(b) + "; of a product of " +
                                    std::to_string(K) + " inputs and " + std::to_string(N) + " outputs they are [r, " +
                                    std::to_string(K) + "] and [" + std::to_string(N) + ", r]");
    }
    rank = std::max(rank, a.dim[at]);
  }
  if (rank > kMaxAdapterRank)
    return refused(found.front().in_file,
                   "has a rank of " + std::to_string(rank) + "; ibid takes up to " + std::to_string(kMaxAdapterRank));
  // Of experts all pairs get one rank: what is left of A and B is 0.
  const int64_t n = std::max<int64_t>(1, E);
  std::vector<float> a(static_cast<size_t>(n * rank * K)), b(static_cast<size_t>(n * N * rank));
  std::optional<double> factor;
  for (const Found& f : found) {
    ASSIGN_OR_RETURN(std::vector<float> of_a, floats_of(*f.a, path_));
    ASSIGN_OR_RETURN(std::vector<float> of_b, floats_of(*f.b, path_));
    const int64_t r = f.a->view.dim[static_cast<size_t>(f.a->view.rank) - 2];
    const std::string_view in_file = f.in_file;
    double s = 1;
    if (is_gguf) {
      s = alpha_ == 0 ? 1 : alpha_ / static_cast<double>(r);
    } else {
      ASSIGN_OR_RETURN(s, factor_of(in_file.substr(0, in_file.find(".lora_")), r));
    }
    if (factor && *factor != s) return refused(f.in_file, "has another factor than the same product of other experts");
    factor = s;
    if (!is_gguf && base_.container() == Container::kGguf)
      TRY(lora_in_gguf_order(config_, seat.pattern, seat.layer, K, N, r, of_a, of_b));
    const int64_t e = std::max<int64_t>(0, f.expert);
    if (is_whole) {
      a = std::move(of_a), b = std::move(of_b);
      continue;
    }
    std::ranges::copy(of_a, a.begin() + e * rank * K);
    for (int64_t row = 0; row < N; ++row) std::copy_n(of_b.begin() + row * r, r, b.begin() + (e * N + row) * rank);
  }
  if (seat.by_head && !is_gguf) {
    const int64_t H = config_.layers[static_cast<size_t>(seat.layer)].n_heads, D = N / 3 / H;
    const std::vector<float> was = b;
    for (int64_t row = 0; row < N; ++row) {
      const int64_t to = (row / D % 3 * H + row / D / 3) * D + row % D;
      std::copy_n(was.begin() + row * rank, rank, b.begin() + to * rank);
    }
  }
  for (auto it = first; it != last; ++it) {
    const AdapterSeat& of = seats_[static_cast<size_t>(it->second)];
    Adapter::Pair& pair = pairs_.emplace_back();
    pair.seat = it->second;
    pair.rank = rank;
    pair.a = a;
    const auto from = b.begin() + of.first_row * rank;
    pair.b = of.n_rows > 0 ? std::vector<float>(from, from + of.n_outputs * rank) : b;
    pair.factor = *factor;
  }
  return {};
}

Result<std::vector<Adapter::Pair>> Reader::make(bool is_gguf) {
  if (found_.empty() && stacked_.empty() && qkvz_.empty())
    return invalid(path_ + " has no matrices of low rank", path_);
  for (auto& [name, found] : found_) TRY(make_pair(name, found, is_gguf));
  for (const auto& [module, found] : stacked_) TRY(make_stacked(module, found));
  for (const auto& [layer, found] : qkvz_) TRY(make_qkvz(layer, found));
  std::vector<int32_t> seats;
  for (const Adapter::Pair& pair : pairs_) seats.push_back(pair.seat);
  std::ranges::sort(seats);
  if (const auto twice = std::ranges::adjacent_find(seats); twice != seats.end())
    return refused(seats_[static_cast<size_t>(*twice)].name, "gets matrices twice, under several names");
  return std::move(pairs_);
}

Status Reader::add_module(std::string_view module, const TensorInfo& info, bool is_b) {
  const auto put = [&](Found& found) -> Status {
    if (found.in_file.empty()) found.in_file = info.name;
    const TensorInfo*& to = is_b ? found.b : found.a;
    if (to != nullptr) return refused(info.name, "comes twice, under names of one product");
    to = &info;
    return {};
  };
  if (module.ends_with(".experts") || module.ends_with(".experts.base_layer"))
    return put(stacked_[std::string(module)]);
  int64_t numbers[2] = {-1, -1};
  if (base_.container() == Container::kGguf &&
      fits("layers.{}.linear_attn.in_proj_qkvz", without_wrappers(module), numbers) && numbers[0] < config_.n_layers)
    return put(qkvz_[numbers[0]]);
  int64_t expert = -1;
  ASSIGN_OR_RETURN(const std::string name, canonical_of(module, expert));
  return add(name, expert, info, is_b);
}

Result<std::vector<Adapter::Pair>> Reader::of_folder() {
  ASSIGN_OR_RETURN(const MappedFile config, MappedFile::open(path_ + "/adapter_config.json"));
  ASSIGN_OR_RETURN(const Json json, parse_json(config.text(), config.path(), kConfigLimits));
  if (json.object() == nullptr) return invalid(config.path() + " is no object", config.path());
  TRY(read_config(json));
  const std::string weights = path_ + "/adapter_model.safetensors";
  std::error_code ignored;
  if (!std::filesystem::exists(weights, ignored) && std::filesystem::exists(path_ + "/adapter_model.bin", ignored)) {
    return unsupported(path_ + " has its matrices in adapter_model.bin, and reading that runs code of the file; " +
                           "save it as adapter_model.safetensors",
                       path_);
  }
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::open(weights));
  std::vector<TensorInfo> tensors;
  std::vector<std::unique_ptr<std::byte[]>> copies;
  TRY(read_safetensors(file, tensors, copies));
  for (const TensorInfo& info : tensors) {
    std::string_view name = info.name;
    bool is_b = false, is_pair = false;
    for (const auto& [end, b] : {std::pair<std::string_view, bool>{".lora_A.weight", false},
                                 {".lora_B.weight", true},
                                 {".lora_A.default.weight", false},
                                 {".lora_B.default.weight", true}}) {
      if (!name.ends_with(end)) continue;
      name.remove_suffix(end.size());
      is_b = b;
      is_pair = true;
    }
    if (!is_pair) return refused(name, "is no matrix of low rank (.lora_A.weight, .lora_B.weight) of a product");
    TRY(add_module(name, info, is_b));
  }
  return make(false);
}

Result<std::vector<Adapter::Pair>> Reader::of_gguf() {
  if (base_.container() != Container::kGguf)
    return unsupported(path_ +
                           " is an adapter in GGUF, and the model is a folder, whose rows may lie in another "
                           "order; use the adapter's folder",
                       path_);
  ASSIGN_OR_RETURN(const ModelFile file, open_gguf(path_));
  ASSIGN_OR_RETURN(const std::string type, file.meta_string("general.type", ""));
  ASSIGN_OR_RETURN(const std::string kind, file.meta_string("adapter.type", ""));
  if (type != "adapter" || kind != "lora")
    return invalid(
        path_ + " is no adapter of low rank: general.type is " + in_quotes(type) + ", adapter.type " + in_quotes(kind),
        path_);
  ASSIGN_OR_RETURN(const std::string of, file.meta_string("general.architecture", ""));
  ASSIGN_OR_RETURN(const std::string own, base_.meta_string("general.architecture", ""));
  if (of != own)
    return invalid(path_ + " is an adapter of " + in_quotes(of) + "; the model is of " + in_quotes(own), path_);
  if (file.has_meta("adapter.alora.invocation_tokens"))
    return refused("adapter.alora.invocation_tokens", "is set, which ibid does not run");
  ASSIGN_OR_RETURN(alpha_, file.meta_float("adapter.lora.alpha"));
  if (!std::isfinite(alpha_)) return invalid(path_ + ": adapter.lora.alpha is not finite", "adapter.lora.alpha");
  for (const TensorInfo& info : file.tensors()) {
    std::string_view name = info.name;
    const bool is_a = name.ends_with(".weight.lora_a"), is_b = name.ends_with(".weight.lora_b");
    if (!is_a && !is_b) return refused(name, "is no matrix of low rank (.weight.lora_a, .weight.lora_b) of a product");
    name.remove_suffix(14);
    if (by_name_.find(name) == by_name_.end()) return not_there(info.name);
    TRY(add(std::string(name), -1, info, is_b));
  }
  return make(true);
}

}  // namespace

Result<std::vector<Adapter::Pair>> read_adapter_pairs(const std::string& path, const ModelFile& base,
                                                      const Model& model) {
  Reader reader(path, base, model);
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? reader.of_folder() : reader.of_gguf();
}

Result<std::shared_ptr<const Adapter>> read_adapter(const std::string& path, const ModelFile& base, const Model& model,
                                                    Stream& s) {
  ASSIGN_OR_RETURN(std::vector<Adapter::Pair> pairs, read_adapter_pairs(path, base, model));
  return Adapter::make(s, model.adapter_seats(), std::move(pairs), path);
}

}  // namespace ibid
