#include "model/model.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/log.h"
#include "format/model_digest.h"
#include "kernels/ops.h"
#include "model/arch/architecture.h"
#include "model/bert.h"
#include "model/eviction.h"
#include "model/gemma.h"
#include "model/gemma4.h"
#include "model/gpt.h"
#include "model/llama.h"
#include "model/parallel.h"
#include "model/post_norm.h"
#include "model/weights.h"

namespace ibid {
namespace {

Status resolve(ModelOptions& options, const ModelConfig& config) {
  if (options.context_len == 0) options.context_len = config.trained_context_len;
  if (options.context_len < 1 || options.context_len > config.trained_context_len) {
    return invalid("a context of " + std::to_string(options.context_len) +
                       " tokens was asked for; this model was made for 1 to " +
                       std::to_string(config.trained_context_len),
                   "ctx");
  }
  CHECK(options.step_tokens >= 1 && options.max_rows >= 1 && options.max_sequences >= 1);
  return {};
}

// Layers `kept` of a model, ascending. One that reads another's keys and values is not kept without that one.
Result<ModelConfig> config_of(const ModelConfig& whole, std::span<const int32_t> kept) {
  ModelConfig config = whole;
  config.n_layers = std::ssize(kept);
  config.layers.clear();
  for (const int32_t l : kept) {
    LayerConfig& layer = config.layers.emplace_back(whole.layers[static_cast<size_t>(l)]);
    if (layer.kv_owner == kOwnCache) continue;
    const auto owner = std::ranges::find(kept, layer.kv_owner);
    if (owner == kept.end()) {
      return invalid("layer " + std::to_string(l) + " reads the keys and values of layer " +
                         std::to_string(layer.kv_owner) + ", which cannot be left out without it",
                     "layers");
    }
    layer.kv_owner = static_cast<int32_t>(owner - kept.begin());
  }
  return config;
}

// The largest product's and the largest mixer's needs, for the largest step.
size_t workspace_bytes(const Stream& s, const ModelConfig& c, const ModelOptions& o) {
  size_t bytes = ops::linear_workspace_bytes(std::max(o.step_tokens, o.max_rows), c.width);
  if (c.layer_embedding_len > 0)
    bytes = std::max(bytes, ops::linear_workspace_bytes(o.step_tokens, c.layer_embedding_len));
  for (const LayerConfig& layer : c.layers) {
    if (layer.is_recurrent())
      bytes = std::max(bytes, ops::conv_workspace_bytes(s, layer.conv_len, layer.conv_channels));
    if (layer.recurrence == Recurrence::kDeltaNet)
      bytes = std::max(bytes, ops::delta_net_workspace_bytes(s, layer.delta));
    if (layer.recurrence == Recurrence::kMamba2) bytes = std::max(bytes, ops::ssm_scan_workspace_bytes(s, layer.ssm));
    if (layer.mixer == Mixer::kAttention || layer.mixer == Mixer::kLatent) {
      bytes = std::max(bytes, ops::paged_attention_workspace_bytes(o.step_tokens, static_cast<int32_t>(layer.n_heads),
                                                                   static_cast<int32_t>(layer.value_len),
                                                                   static_cast<int32_t>(o.context_len)));
    }
    if (layer.mixer == Mixer::kAttention && what_forbids_eviction(c) == nullptr) {
      bytes = std::max(bytes, ops::keep_rows_workspace_bytes(s, static_cast<int32_t>(layer.n_heads / layer.n_kv_heads),
                                                             static_cast<int32_t>(layer.key_len),
                                                             static_cast<int32_t>(o.context_len)));
    }
    const bool is_latent = layer.mixer == Mixer::kLatent;
    if (is_latent) {
      bytes = std::max(bytes, ops::linear_heads_workspace_bytes(o.step_tokens, layer.n_heads,
                                                                std::max(layer.plain_len, layer.value_len)));
    }
    for (const int64_t n_inputs : {is_latent ? layer.n_heads * layer.out_len : layer.mixed_len(), layer.recurrent_len(),
                                   layer.ffn_len, c.q_rank, c.expert_latent_len})
      bytes = std::max(bytes, ops::linear_workspace_bytes(o.step_tokens, n_inputs));
    if (layer.n_experts == 0) continue;
    const int64_t n_rows = o.step_tokens * layer.n_experts_used;
    for (const int64_t n_inputs : {c.expert_width(), layer.expert_len})
      bytes = std::max(bytes, ops::linear_experts_workspace_bytes(n_rows, n_inputs));
  }
  return bytes;
}

}  // namespace

Model::Model(Parts parts)
    : file_(std::move(parts.file)),
      config_(std::move(parts.config)),
      options_(parts.options),
      state_layout_(ibid::state_layout(config_)),
      scratch_(std::move(parts.scratch)),
      every_token_(static_cast<size_t>(options_.step_tokens)) {
  std::iota(every_token_.begin(), every_token_.end(), 0);
  step_.cut_to(scratch_, 1, 1);
  for (const RopeConfig& rope : config_.ropes) rope_tables_.push_back(make_rope_table(rope, options_.context_len));
  memory_.scratch_bytes = static_cast<int64_t>(scratch_.memory.bytes());
}

void Model::forward(Stream& s, const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits,
                    const HiddenStates& hidden, const StateSlots& states, const TensorView& inputs) {
  CHECK(!options_.sized_only, "a model without weights");
  CHECK(b.n_tokens >= 1 && b.n_tokens <= options_.step_tokens, "a step with more tokens than the model was loaded for");
  CHECK(b.n_rows >= 0 && b.n_rows <= options_.max_rows, "a step with more rows than the model was loaded for");
  CHECK(b.n_sequences >= 1 && b.n_sequences <= options_.max_sequences);
  const int64_t n_caches = config_.is_encoder() ? 0 : config_.n_layers;
  CHECK(static_cast<int64_t>(kv.size()) == n_caches, "one PagedKv a layer");
  for (int32_t i = 0; i < b.n_tokens; ++i) {
    CHECK(raw(b.tokens[i]) >= 0 && raw(b.tokens[i]) < config_.vocab_size, "a token outside the vocabulary");
    CHECK(b.positions[i] >= 0 && b.positions[i] < options_.context_len, "a position outside the context");
  }
  for (int layer = 0; layer < static_cast<int>(n_caches); ++layer) {
    const KvGeometry g = kv_geometry(layer);
    const PagedKv& part = kv[static_cast<size_t>(layer)];
    CHECK(part.kind == g.kind && part.n_kv_heads == g.n_kv_heads && part.key_len == g.key_len &&
              part.value_len == g.value_len,
          "KV of another geometry");
  }
  check_states(b, states);
  CHECK(b.adapters == nullptr || adapters_ != nullptr, "adapters of a model that was loaded without room for them");
  CHECK(hidden.layers.size() == hidden.out.size(), "one output for each layer whose hidden states are wanted");
  for (size_t i = 0; i < hidden.layers.size(); ++i) {
    CHECK(hidden.layers[i] >= (i == 0 ? 0 : hidden.layers[i - 1]) && hidden.layers[i] <= config_.n_layers,
          "layers of hidden states ascend, each from 0 to L");
    Dim T{b.n_tokens}, C{config_.width};
    expect(hidden.out[i], {&T, &C});
  }
  CHECK((inputs.rank != 0) == reads_inputs_, "inputs of a caller's for a layer that reads such, and no other model");
  step_.cut_to(scratch_, b.n_tokens, b.n_rows);
  Pass pass{.s = s,
            .config = config_,
            .batch = b,
            .kv = kv,
            .states = states,
            .state_layout = state_layout_,
            .ropes = rope_tables_,
            .hidden = hidden,
            .logits = logits,
            .inputs = inputs,
            .tap = tap_,
            .t = step_,
            .rows = {&b, std::span(every_token_).first(static_cast<size_t>(b.n_tokens)),
                     b.adapters != nullptr ? adapters_.get() : nullptr}};
  run(pass);
}

void Model::check_states(const ForwardBatch& b, const StateSlots& states) const {
  CHECK(states.slot_bytes == state_layout_.slot_bytes(), "recurrent states of another layout");
  if (states.slot_bytes == 0) return;
  CHECK(b.state_in != nullptr && b.state_out != nullptr, "a batch that names no recurrent states");
  const auto is_slot = [&states](int32_t slot) { return slot >= -1 && slot < states.n_slots; };
  CHECK(std::all_of(b.state_in, b.state_in + b.n_sequences, is_slot) &&
            std::all_of(b.state_out, b.state_out + b.n_tokens, is_slot),
        "a recurrent state outside its memory");
}

Status Model::make_adapter_table(Stream& s) {
  const int32_t n_slots = options_.max_adapters;
  if (n_slots == 0) return {};
  if (config_.is_encoder()) return unsupported("adapters of " + config_.architecture + ", an encoder", "lora-modules");
  const LayerConfig* experts = config_.first_with_experts();
  const int64_t n_used = experts != nullptr ? config_.most(&LayerConfig::n_experts_used) : 0;
  const AdapterTable::Sizes sizes = AdapterTable::sizes_of(*seats_, n_slots, options_.max_adapter_rank,
                                                           options_.step_tokens, options_.max_rows, n_used);
  ASSIGN_OR_RETURN(adapters_, AdapterTable::create(s.memory(), sizes));
  memory_.adapter_bytes = adapters_->scratch_bytes();
  return s.reserve_workspace(AdapterTable::workspace_bytes(sizes, *seats_));
}

std::unique_ptr<Model> Model::part(Parts, std::span<const int32_t>) const { return nullptr; }

std::vector<KvGeometry> Model::kv_geometries() const {
  std::vector<KvGeometry> out;
  if (config_.is_encoder()) return out;
  for (int layer = 0; layer < static_cast<int>(config_.n_layers); ++layer) out.push_back(kv_geometry(layer));
  return out;
}

std::string Model::rope_signature() const {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  auto put = [&out](uint64_t bits) {
    for (int shift = 60; shift >= 0; shift -= 4) out += kHex[(bits >> shift) & 15];
  };
  for (const RopeTable& table : rope_tables_) {
    out += table.interleaved ? 'i' : 'h';
    put(std::bit_cast<uint32_t>(table.magnitude));
    for (double f : table.frequency) put(std::bit_cast<uint64_t>(f));
  }
  return out;
}

namespace {

// So that the process has all of it from now on. Pages are brought by all threads, as most of it is the system clearing
// them, and then written, which costs little where they are and brings them where the system does not.
void take(const Buffer& buffer, Stream& s) {
  constexpr size_t kPart = size_t{512} << 10;
  if (s.device() == Device::kCpu) {
    s.team().parallel_for(static_cast<int64_t>((buffer.bytes() + kPart - 1) / kPart), [&](int64_t i, int) {
      const size_t begin = static_cast<size_t>(i) * kPart;
      buffer.bring(begin, std::min(kPart, buffer.bytes() - begin));
    });
  }
  buffer.take();
}

// Null: there is none that can be used.
std::shared_ptr<const PackedFile> packed_file_of(const ModelOptions& options, const ModelDigest& model, Stream& s) {
  Result<PackedFile> packed = PackedFile::open(options.keep_packed_in, model, s);
  if (packed.ok()) return std::make_shared<const PackedFile>(std::move(packed).value());
  if (packed.error().kind != ErrorKind::kNotFound) log_warn(packed.error().message + " They are made again.");
  return nullptr;
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(std::shared_ptr<const ModelFile> file, const ModelOptions& options, Stream& s,
                                          const std::function<void(double)>& progress) {
  ASSIGN_OR_RETURN(ModelConfig config, read_config(*file));
  return load_model(std::move(file), std::move(config), options, s, progress);
}

Result<std::unique_ptr<Model>> load_model(std::shared_ptr<const ModelFile> file, ModelConfig config,
                                          const ModelOptions& options, Stream& s,
                                          const std::function<void(double)>& progress) {
  TRY(validate(config));
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(*file));
  ModelOptions resolved = options;
  if (options.n_layers > 0) config.n_layers = std::min(config.n_layers, options.n_layers);
  config.layers.resize(static_cast<size_t>(config.n_layers));
  TRY(resolve(resolved, config));
  // A model that is loaded in part would keep a part; one that was put together in memory has no digest.
  const bool keeps = !options.keep_packed_in.empty() && !options.sized_only && options.n_layers == 0 &&
                     !file->files().empty() && s.device() == Device::kCpu;
  const ModelDigest digest = keeps ? model_digest(*file, options.keep_packed_in) : ModelDigest{};
  std::shared_ptr<const PackedFile> packed = keeps ? packed_file_of(options, digest, s) : nullptr;
  const bool writes = keeps && packed == nullptr;
  const auto loaded = [&](double share) {
    if (progress) progress(writes ? share / 2 : share);
  };
  WeightLoader loader(*file, *architecture, config, s, loaded, resolved.sized_only, packed.get());
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::allocate(config, resolved.step_tokens, resolved.max_rows, s.memory()));
  if (!resolved.sized_only) take(scratch.memory, s);
  Model::Parts parts{file, config, resolved, std::move(scratch)};
  struct Loader {
    Shape shape;
    Result<std::unique_ptr<Model>> (*load)(Model::Parts parts, WeightLoader& loader);
  };
  static constexpr Loader kLoaders[] = {
      {Shape::kLlama, LlamaModel::load},       {Shape::kGemma, GemmaModel::load},
      {Shape::kGemma4, Gemma4Model::load},     {Shape::kPostNorm, PostNormModel::load},
      {Shape::kParallel, ParallelModel::load}, {Shape::kGpt, GptModel::load},
      {Shape::kBert, BertModel::load}};
  const auto* of_shape = std::ranges::find(kLoaders, config.shape, &Loader::shape);
  CHECK(of_shape != std::end(kLoaders), "each shape has a row");
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model, of_shape->load(std::move(parts), loader));
  if (options.n_layers == 0) TRY(loader.expect_all_read());
  model->copies_ = std::make_shared<const std::vector<std::unique_ptr<float[]>>>(loader.take_copies());
  model->packed_ = packed;
  if (keeps && loader.n_packed_again() > 0) {
    const Status kept = loader.prepared().write(options.keep_packed_in, digest, s, [&](double share) {
      if (progress && writes) progress(0.5 + share / 2);
    });
    if (!kept.ok()) log_warn(kept.error().message);
  }
  model->seats_ = std::make_shared<const std::vector<AdapterSeat>>(loader.take_seats());
  TRY(model->make_adapter_table(s));
  if (!resolved.sized_only) file->forget_all();  // what a pass reads where it lies is touched again, and little else
  TRY(s.reserve_workspace(workspace_bytes(s, config, resolved)));
  model->memory_.mapped_bytes = loader.mapped_bytes();
  model->memory_.repacked_bytes = loader.repacked_bytes();
  model->memory_.workspace_bytes = static_cast<int64_t>(s.workspace_bytes());
  if (progress) progress(1.0);
  return model;
}

Result<std::unique_ptr<Model>> model_without(const Model& whole, std::span<const int32_t> skipped,
                                             const ModelOptions& options, Stream& s) {
  const int64_t L = whole.config().n_layers;
  std::vector<int32_t> kept;
  for (int32_t l = 0; l < L && std::ranges::is_sorted(skipped); ++l) {
    if (!std::ranges::binary_search(skipped, l)) kept.push_back(l);
  }
  if (kept.empty() || std::ssize(kept) + std::ssize(skipped) != L) {
    return invalid("the model has layers 0 to " + std::to_string(L - 1) +
                       "; some of them, each once, could be left out, but not all",
                   "layers");
  }
  ASSIGN_OR_RETURN(const ModelConfig config, config_of(whole.config(), kept));
  ModelOptions resolved = options;
  resolved.n_layers = 0;
  resolved.max_adapters = 0;
  resolved.sized_only = whole.options().sized_only;
  resolved.keep_packed_in.clear();
  TRY(resolve(resolved, config));
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::allocate(config, resolved.step_tokens, resolved.max_rows, s.memory()));
  if (!resolved.sized_only) take(scratch.memory, s);
  std::unique_ptr<Model> model = whole.part({whole.file_, config, resolved, std::move(scratch)}, kept);
  if (model == nullptr)
    return unsupported(config.architecture + " models cannot be run without some of their layers", "layers");
  model->copies_ = whole.copies_;
  model->packed_ = whole.packed_;
  model->seats_ = whole.seats_;
  TRY(s.reserve_workspace(workspace_bytes(s, config, resolved)));
  model->memory_.workspace_bytes = static_cast<int64_t>(s.workspace_bytes());
  return model;
}

Result<std::unique_ptr<Model>> load_layer(std::shared_ptr<const ModelFile> file, ModelConfig config,
                                          const VocabularyWeights& ends, const ModelOptions& options, Stream& s) {
  TRY(validate(config));
  if (config.shape != Shape::kLlama || config.n_layers != 1)
    return unsupported("a layer of " + config.architecture + " alone; ibid runs those of llama's shape so", "layers");
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(*file));
  ModelOptions resolved = options;
  resolved.n_layers = 0;
  resolved.max_adapters = 0;
  resolved.keep_packed_in.clear();
  TRY(resolve(resolved, config));
  WeightLoader loader(*file, *architecture, config, s, {}, resolved.sized_only);
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::allocate(config, resolved.step_tokens, resolved.max_rows, s.memory()));
  if (!resolved.sized_only) take(scratch.memory, s);
  ASSIGN_OR_RETURN(std::unique_ptr<Model> model,
                   LlamaModel::load_layer({file, config, resolved, std::move(scratch)}, loader, ends));
  TRY(loader.expect_all_read());
  model->copies_ = std::make_shared<const std::vector<std::unique_ptr<float[]>>>(loader.take_copies());
  model->reads_inputs_ = true;
  TRY(s.reserve_workspace(workspace_bytes(s, config, resolved)));
  model->memory_.mapped_bytes = loader.mapped_bytes();
  model->memory_.repacked_bytes = loader.repacked_bytes();
  model->memory_.workspace_bytes = static_cast<int64_t>(s.workspace_bytes());
  return model;
}

}  // namespace ibid
