// What a model file holds, for people.
#include <fmt/format.h>

#include <cstdio>
#include <map>

#include "cli/options/options.h"
#include "cli/terminal/exit_code.h"
#include "cli/terminal/progress.h"
#include "host/loading.h"
#include "model/config.h"
#include "model/kv_arithmetic.h"
#include "model/tokenizer_of_model.h"
#include "sample/stage_order.h"

namespace ibid::cli {
namespace {

template <typename... Args>
void line(const char* name, fmt::format_string<Args...> form, Args&&... args) {
  std::printf("%-14s %s\n", name, fmt::format(form, std::forward<Args>(args)...).c_str());
}

std::string shape_text(const TensorView& v) {
  std::string s;
  for (int i = 0; i < v.rank; ++i) s += fmt::format("{}{}", i ? " x " : "", v.dim[static_cast<size_t>(i)]);
  return s;
}

void print_tensors_by_type(const ModelFile& file) {
  std::map<std::string_view, std::pair<int, uint64_t>> by_type;
  for (const TensorInfo& t : file.tensors()) {
    auto& [n, bytes] = by_type[traits(t.view.dtype).name];
    ++n;
    bytes += t.bytes();
  }
  for (const auto& [name, counted] : by_type) {
    line("", "{:>5} {:<7} {:>10}", counted.first, name, bytes_text(counted.second));
  }
}

// A size of the layers that have it: "64", or "64 to 512" where they differ.
std::string of_layers(const ModelConfig& c, int64_t LayerConfig::*size) {
  int64_t a = c.most(size);
  const int64_t b = a;
  for (const LayerConfig& l : c.layers) a = l.*size > 0 ? std::min(a, l.*size) : a;
  return a == b ? fmt::format("{}", a) : fmt::format("{} to {}", a, b);
}

std::string router_text(const Router& r) {
  std::string out = r.score == RouterScore::kSigmoid         ? "sigmoid"
                    : r.score == RouterScore::kChosenSoftmax ? "softmax of the chosen"
                                                             : "softmax";
  if (r.n_groups > 1) out += fmt::format(", {} of {} groups", r.groups_used, r.n_groups);
  if (r.normalises) out += ", normalised";
  if (r.scale != 1) out += fmt::format(", times {}", r.scale);
  return out;
}

void print_recurrent(const ModelConfig& c) {
  const LayerConfig* of = c.first_recurrent();
  if (of == nullptr) return;
  const auto n = std::ranges::count_if(c.layers, &LayerConfig::is_recurrent);
  if (of->recurrence == Recurrence::kDeltaNet) {
    const DeltaHeads& heads = of->delta;
    line("recurrent", "{} layers, gated delta nets of {} key heads of {} and {} value heads of {}", n,
         heads.n_key_heads, heads.key_len, heads.n_value_heads, heads.value_len);
  } else if (of->recurrence == Recurrence::kMamba2) {
    line("recurrent", "{} layers, state spaces of {} heads of {} by {}, in {} groups{}", n, of->ssm.n_heads,
         of->ssm.head_len, of->ssm.state_len, of->ssm.n_groups,
         of->mixer == Mixer::kAttention ? ", beside attention" : "");
  } else {
    line("recurrent", "{} layers, short convolutions of {} taps", n, of->conv_len);
  }
  line("", "{} of state a sequence", bytes_text(static_cast<uint64_t>(state_layout(c).slot_bytes())));
}

void print_experts(const ModelConfig& c) {
  const LayerConfig* of = c.first_with_experts();
  if (of == nullptr) return;
  const auto n = std::ranges::count_if(c.layers, [](const LayerConfig& l) { return l.n_experts > 0; });
  line("experts", "{} of {} wide, {} for each token, in {} layers{}", of->n_experts, of->expert_len, of->n_experts_used,
       n,
       of->ffn_len == 0            ? ""
       : c.shape == Shape::kGemma4 ? ", beside the feed-forward"
                                   : fmt::format("; shared ones, {} wide", of->ffn_len));
  line("router", "{}{}", router_text(c.router), c.router_bias ? ", chosen with a bias" : "");
}

void print_config(const ModelConfig& c) {
  line("architecture", "{}", c.architecture);
  line("layers", "{}, {} wide, feed-forward {}", c.n_layers, c.width, of_layers(c, &LayerConfig::ffn_len));
  line("attention", "{} query and {} key/value heads of {}", of_layers(c, &LayerConfig::n_heads),
       of_layers(c, &LayerConfig::n_kv_heads), of_layers(c, &LayerConfig::key_len));
  if (std::ranges::any_of(c.layers, [](const LayerConfig& l) { return l.key_len != l.value_len; }))
    line("", "values of {}", of_layers(c, &LayerConfig::value_len));
  if (const LayerConfig& l = c.layers.front(); l.mixer == Mixer::kLatent)
    line("", "latent: queries of {} and {} that turn, outputs of {}", l.plain_len, l.key_len - l.value_len, l.out_len);
  if (c.sinks) line("", "a sink for each head");
  if (c.alibi_bias_max != 0) line("", "a slope for each head (ALiBi), from 2^-{}", c.alibi_bias_max);
  const auto attends = [](const LayerConfig& l) { return l.mixer == Mixer::kAttention; };
  int windows = 0, nope = 0;
  for (const LayerConfig& l : c.layers) windows += l.window > 0, nope += attends(l) && l.rope == kNoRope;
  if (windows > 0) line("", "{} layers see a sliding window", windows);
  const auto n_readers = std::ranges::count_if(c.layers, [](const LayerConfig& l) { return l.kv_owner != kOwnCache; });
  if (n_readers > 0) line("", "{} layers read another's keys and values", n_readers);
  if (nope > 0 && !c.is_encoder()) line("", "{} layers without positions", nope);
  for (const RopeConfig& r : c.ropes) {
    line("rope", "base {}, {} pairs, {}{}{}", r.base, r.n_pairs, r.interleaved ? "interleaved" : "halves",
         r.n_turning == 0 ? "" : fmt::format(", of which {} turn", r.n_turning),
         r.scaling == RopeScaling::kNone ? "" : fmt::format(", {} scaling", rope_scaling_name(r.scaling)));
  }
  print_recurrent(c);
  print_experts(c);
  if (c.layer_embedding_len > 0) line("", "an embedding of {} for each layer", c.layer_embedding_len);
  line("context", "{} tokens", c.trained_context_len);
  const std::string used =
      c.first_with_experts() == nullptr
          ? ""
          : fmt::format(", {:.1f} used by a token", static_cast<double>(c.n_parameters_used()) / 1e6);
  line("parameters", "{:.1f} million{}", static_cast<double>(c.n_parameters()) / 1e6, used);
  if (c.n_labels > 0) line("head", "scores {} labels", c.n_labels);
  if (c.is_encoder()) return line("cache", "none: an encoder");
  std::vector<KvGeometry> layers;
  for (int l = 0; l < c.n_layers; ++l) layers.push_back(kv_geometry(c, l));
  line("cache", "{} a token in F16",
       bytes_text(static_cast<uint64_t>(kv_block_bytes(kv_layouts(layers, DType::kF16, 1)))));
}

}  // namespace

int inspect(const InspectOptions& options) {
  if (options.samplers) {
    for (const StageId id : stage_order()) fmt::print("{}\n", stage_name(id));
    return kOk;
  }
  auto path = host::resolve(options.model, false, terminal_progress());
  if (!path) return fail(path.error());
  auto file = ModelFile::open(*path);
  if (!file) return fail(file.error());
  line("file", "{}", *path);
  line("container", "{}, {}", file->container() == Container::kGguf ? "GGUF" : "safetensors",
       bytes_text(file->file_bytes()));
  auto config = read_config(*file);
  if (config)
    print_config(*config);
  else
    line("not served", "{}", config.error().message);
  line("tensors", "{}, {}", file->tensors().size(), bytes_text(file->tensor_bytes()));
  print_tensors_by_type(*file);
  auto tokenizer = load_tokenizer(*file);
  if (!tokenizer) {
    line("not served", "{}", tokenizer.error().message);
  } else {
    const Vocabulary& v = (*tokenizer)->vocabulary();
    line("vocabulary", "{} tokens, {}", v.tokens.size(),
         v.pre_tokenizer.empty() ? "no named pre-tokenizer" : v.pre_tokenizer);
    std::string ends;
    for (TokenId t : end_of_generation_of(*file, **tokenizer))
      ends += fmt::format("{}{} {}", ends.empty() ? "" : ", ", raw(t), v.tokens[static_cast<size_t>(raw(t))]);
    line("answers end", "{}", ends.empty() ? "at no token of their own" : ends);
    auto chat = host::load_template(*file, **tokenizer);
    line("template", "{}", chat ? "chat template compiles" : chat.error().message);
  }
  if (options.tensors) {
    std::printf("\n");
    for (const TensorInfo& t : file->tensors()) {
      std::printf("%-48s %-7s %20s %10s\n", t.name.c_str(), std::string(traits(t.view.dtype).name).c_str(),
                  shape_text(t.view).c_str(), bytes_text(t.bytes()).c_str());
    }
  }
  return kOk;
}

}  // namespace ibid::cli
