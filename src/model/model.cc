#include "model/model.h"

#include <algorithm>
#include <bit>
#include <new>

#include "kernels/ops.h"
#include "model/arch/architecture.h"
#include "model/gemma.h"
#include "model/llama.h"
#include "model/weights.h"

namespace ibid {
namespace {

Status resolve(ModelOptions& options, const ModelConfig& config) {
  if (options.max_context == 0) options.max_context = config.max_context;
  if (options.max_context < 1 || options.max_context > config.max_context) {
    return invalid("a context of " + std::to_string(options.max_context) +
                       " tokens was asked for; this model was made for 1 to " + std::to_string(config.max_context),
                   "ctx");
  }
  CHECK(options.max_tokens >= 1 && options.max_rows >= 1 && options.max_sequences >= 1);
  return {};
}

// The largest product's and the largest attention's needs, for the largest step.
size_t workspace_bytes(const ModelConfig& c, const ModelOptions& o) {
  size_t bytes =
      ops::paged_attention_workspace_bytes(o.max_tokens, static_cast<int32_t>(c.n_heads),
                                           static_cast<int32_t>(c.head_len), static_cast<int32_t>(o.max_context));
  for (int64_t n_inputs : {c.width, c.q_len(), c.ffn_len}) {
    bytes = std::max(bytes, ops::linear_workspace_bytes(o.max_tokens, n_inputs));
  }
  return std::max(bytes, ops::linear_workspace_bytes(o.max_rows, c.width));
}

}  // namespace

Model::Model(Parts parts)
    : file_(std::move(parts.file)),
      config_(std::move(parts.config)),
      options_(parts.options),
      scratch_(std::move(parts.scratch)) {
  for (const RopeConfig& rope : config_.ropes) rope_tables_.push_back(make_rope_table(rope, options_.max_context));
  memory_.scratch_bytes = scratch_.bytes;
}

void Model::forward(Stream& s, const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits) {
  CHECK(b.n_tokens >= 1 && b.n_tokens <= options_.max_tokens, "a step with more tokens than the model was loaded for");
  CHECK(b.n_rows >= 0 && b.n_rows <= options_.max_rows, "a step with more rows than the model was loaded for");
  CHECK(b.n_sequences >= 1 && b.n_sequences <= options_.max_sequences);
  CHECK(static_cast<int64_t>(kv.size()) == config_.n_layers, "one PagedKv a layer");
  for (int32_t i = 0; i < b.n_tokens; ++i) {
    CHECK(raw(b.tokens[i]) >= 0 && raw(b.tokens[i]) < config_.vocab_size, "a token outside the vocabulary");
    CHECK(b.positions[i] >= 0 && b.positions[i] < options_.max_context, "a position outside the context");
  }
  for (int layer = 0; layer < static_cast<int>(config_.n_layers); ++layer) {
    const KvGeometry g = kv_geometry(layer);
    const PagedKv& part = kv[static_cast<size_t>(layer)];
    CHECK(part.n_kv_heads == g.n_kv_heads && part.head_len == g.key_len, "KV of another geometry");
  }
  run(s, b, kv, logits);
}

void Model::linear(Stream& s, std::initializer_list<TensorView> out, const TensorView& x,
                   std::initializer_list<const Weight*> weights) {
  ops::linear(s, {out.begin(), out.size()}, x, {weights.begin(), weights.size()});
}

void Model::norm_heads(Stream& s, const TensorView& x, const TensorView& weight) const {
  const TensorView heads(x.data, DType::kF32, {x.n_elements() / config_.head_len, config_.head_len});
  ops::rms_norm(s, heads, heads, weight, config_.norm_eps);
}

void Model::turn(Stream& s, const ForwardBatch& b, const Scratch& step) const {
  for (size_t i = 0; i < rope_tables_.size(); ++i) {
    ops::rope_angles(s, step.cos_sin[i], rope_tables_[i].op(), {b.positions, static_cast<size_t>(b.n_tokens)});
  }
}

bool Model::keep_wanted_rows(Stream& s, const ForwardBatch& b, Scratch& step) {
  if (b.n_rows == 0) return false;
  const std::span<const int32_t> rows(b.logit_rows, static_cast<size_t>(b.n_rows));
  ops::gather_rows(s, step.x_rows, step.x, rows);
  ops::gather_rows(s, step.attention_rows, step.attention, rows);
  step.go_on_with_rows(b.n_rows);
  return true;
}

std::vector<KvGeometry> Model::kv_geometries() const {
  std::vector<KvGeometry> out;
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

Result<std::unique_ptr<Model>> load_model(std::shared_ptr<const ModelFile> file, const ModelOptions& options, Stream& s,
                                          const std::function<void(double)>& progress) {
  ASSIGN_OR_RETURN(const Architecture* architecture, find_architecture(*file));
  ASSIGN_OR_RETURN(ModelConfig config, read_config(*file));
  ModelOptions resolved = options;
  TRY(resolve(resolved, config));
  WeightLoader loader(*file, *architecture, config, s, progress);
  ASSIGN_OR_RETURN(Scratch scratch, Scratch::allocate(config, resolved.max_tokens, resolved.max_rows));
  Model::Parts parts{file, config, resolved, std::move(scratch)};
  std::unique_ptr<Model> model;
  if (config.shape == Shape::kGemma) {
    ASSIGN_OR_RETURN(model, GemmaModel::load(std::move(parts), loader));
  } else {
    ASSIGN_OR_RETURN(model, LlamaModel::load(std::move(parts), loader));
  }
  TRY(loader.expect_all_read());
  model->copies_ = loader.take_copies();
  TRY(s.reserve_workspace(workspace_bytes(config, resolved)));
  model->memory_.mapped_bytes = loader.mapped_bytes();
  model->memory_.repacked_bytes = loader.repacked_bytes();
  model->memory_.workspace_bytes = static_cast<int64_t>(s.workspace_bytes());
  if (progress) progress(1.0);
  return model;
}

}  // namespace ibid
