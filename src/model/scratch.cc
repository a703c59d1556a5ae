#include "model/scratch.h"

#include <algorithm>
#include <string>

namespace ibid {
namespace {

constexpr size_t kAlignment = 64;

int64_t qkv_len(const LayerConfig& layer) { return layer.q_len() + layer.k_len() + layer.v_len(); }

// The same rows, of `columns` each and one after the other, where the memory is for the widest.
void reshape(TensorView& view, int64_t columns) {
  if (view.rank == 2) view = TensorView(view.data, DType::kF32, {view.dim[0], columns});
}

}  // namespace

namespace {

void lay_out_experts(ScratchLayout& layout, const ModelConfig& c, int64_t T, ExpertScratch& out) {
  if (c.first_with_experts() == nullptr) return;
  const int64_t k = c.most(&LayerConfig::n_experts_used), E = c.most(&LayerConfig::n_experts);
  out.logits = layout.take(T, E);
  for (TensorView* of : {&out.expert, &out.weight, &out.row}) *of = layout.take(T, k);
  out.token = layout.take(T * k, 1);
  out.first_row = layout.take(E + 1, 1);
  out.gate_up = layout.take(T * k, (c.ffn_has_gate() ? 2 : 1) * c.most(&LayerConfig::expert_len));
  out.down = layout.take(T * k, c.expert_width());
  if (c.expert_latent_len > 0) {
    out.latent_in = layout.take(T, c.expert_latent_len);
    out.latent_out = layout.take(T, c.expert_latent_len);
  }
  out.shared_gate = layout.take(T, 1);
  out.sum = layout.take(T, c.width);
}

void lay_out_recurrent(ScratchLayout& layout, const ModelConfig& c, int64_t T, RecurrentScratch& out) {
  if (c.first_recurrent() == nullptr) return;
  int64_t z = 0, heads = 0, beside = 0;
  for (const LayerConfig& layer : c.layers) {
    if (layer.mixer != Mixer::kState) beside = std::max(beside, layer.recurrent_len());
    z = std::max(z, layer.delta.v_len());
    heads = std::max(heads, layer.delta.n_value_heads);
  }
  const int64_t in = c.most(&LayerConfig::recurrent_in_len);
  out.in = layout.take(T, in);
  if (beside > 0) out.out = layout.take(T, beside);
  if (heads == 0) return;
  out.z = layout.take(T, z);
  out.a = layout.take(T, heads);
  out.b = layout.take(T, heads);
  out.grouped = layout.take(T, in + z);
}

void lay_out_latent(ScratchLayout& layout, const ModelConfig& c, int64_t T, LatentScratch& out) {
  if (c.first_with(Mixer::kLatent) == nullptr) return;
  out.q_a = layout.take(T, c.q_rank);
  out.q = layout.take(T, c.most(&LayerConfig::latent_q_len));
  out.out = layout.take(T, c.most([](const LayerConfig& l) { return l.n_heads * l.out_len; }));
}

}  // namespace

TensorView ScratchLayout::take(int64_t rows, int64_t columns) {
  TensorView view(start_ + at_, DType::kF32, {rows, columns});
  at_ += (static_cast<size_t>(rows * columns) * sizeof(float) + kAlignment - 1) / kAlignment * kAlignment;
  return view;
}

size_t scratch_bytes(const std::function<void(ScratchLayout&)>& place) {
  ScratchLayout count(reinterpret_cast<std::byte*>(kAlignment));  // an address that is never read
  place(count);
  return count.bytes();
}

Result<Buffer> allocate_scratch(const DeviceMemory& memory, const std::function<void(ScratchLayout&)>& place,
                                std::string_view what) {
  ASSIGN_OR_RETURN(Buffer out, Buffer::allocate(memory, scratch_bytes(place), what));
  ScratchLayout layout(out.data());
  place(layout);
  return out;
}

void Scratch::lay_out(ScratchLayout& layout, const ModelConfig& c, int64_t T, int64_t R) {
  x = layout.take(T, c.width);
  h = layout.take(T, c.width);
  if (c.fused_qkv) {
    qkv = layout.take(T, c.most(qkv_len));
  } else {
    q = layout.take(T, c.most(&LayerConfig::q_len));
    k = layout.take(T, c.most(&LayerConfig::k_len));
    v = layout.take(T, c.most(&LayerConfig::v_len));
  }
  if (c.attention_gate) {
    q_gate = layout.take(T, 2 * c.most(&LayerConfig::q_len));
  }
  if (c.attention_gate || c.attention_gate_apart) head_gate = layout.take(T, c.most(&LayerConfig::q_len));
  attention = layout.take(T, c.most(&LayerConfig::mixed_len));
  out = layout.take(T, c.width);
  const int64_t ffn_len = c.most(&LayerConfig::ffn_len);
  if (c.fused_gate_up) {
    gate_up = layout.take(T, 2 * ffn_len);
  } else {
    if (!c.is_encoder() && (c.ffn_has_gate() || c.shape == Shape::kGpt)) gate = layout.take(T, ffn_len);
    up = layout.take(T, ffn_len);
  }
  x_rows = layout.take(R, c.width);
  attention_rows = layout.take(R, c.most(&LayerConfig::mixed_len));
  lay_out_recurrent(layout, c, T, recurrent);
  lay_out_experts(layout, c, T, experts);
  if (c.layer_embedding_len > 0) {
    layer_embedding.all = layout.take(T, c.layer_embeddings_len);
    layer_embedding.rows = layout.take(T, c.layer_embeddings_len);
    layer_embedding.gate = layout.take(T, c.layer_embedding_len);
    layer_embedding.wanted = layout.take(R, c.layer_embedding_len);
  }
  lay_out_latent(layout, c, T, latent);
  cos_sin.clear();
  for (const RopeConfig& rope : c.ropes) cos_sin.push_back(layout.take(T, 2 * rope.n_pairs));
}

Result<Scratch> Scratch::allocate(const ModelConfig& config, int64_t step_tokens, int64_t max_rows,
                                  const DeviceMemory& memory) {
  Scratch s;
  const auto place_all = [&](ScratchLayout& layout) { s.lay_out(layout, config, step_tokens, max_rows); };
  ASSIGN_OR_RETURN(
      s.memory,
      allocate_scratch(memory, place_all, "the intermediates of a step of " + std::to_string(step_tokens) + " tokens"));
  return s;
}

void Scratch::cut_to(const Scratch& whole, int64_t n_tokens, int64_t n_rows) {
  for (TensorView Scratch::*member :
       {&Scratch::x, &Scratch::h, &Scratch::q, &Scratch::k, &Scratch::v, &Scratch::qkv, &Scratch::q_gate,
        &Scratch::head_gate, &Scratch::attention, &Scratch::out, &Scratch::gate, &Scratch::up, &Scratch::gate_up}) {
    this->*member = whole.*member;
    if ((whole.*member).rank == 2) this->*member = (whole.*member).first_rows(n_tokens);
  }
  recurrent = whole.recurrent;
  experts = whole.experts;
  layer_embedding = whole.layer_embedding;
  latent = whole.latent;
  x_rows = whole.x_rows.first_rows(n_rows);
  attention_rows = whole.attention_rows.first_rows(n_rows);
  cos_sin.resize(whole.cos_sin.size());  // allocates in the first step only: load reserves by a first cut
  for (size_t i = 0; i < cos_sin.size(); ++i) cos_sin[i] = whole.cos_sin[i].first_rows(n_tokens);
}

void Scratch::fit(const LayerConfig& layer) {
  if (qkv.rank == 2) {
    reshape(qkv, qkv_len(layer));
    q = qkv.columns(0, layer.q_len());
    k = qkv.columns(layer.q_len(), layer.k_len());
    v = qkv.columns(layer.q_len() + layer.k_len(), layer.v_len());
  } else {
    reshape(q, layer.q_len());
    reshape(k, layer.k_len());
    reshape(v, layer.v_len());
  }
  reshape(q_gate, 2 * layer.q_len());
  reshape(head_gate, layer.q_len());
  reshape(attention, layer.mixed_len());
  reshape(attention_rows, layer.mixed_len());
  if (gate_up.rank == 2) {
    reshape(gate_up, 2 * layer.ffn_len);
    gate = gate_up.columns(0, layer.ffn_len);
    up = gate_up.columns(layer.ffn_len, layer.ffn_len);
  } else {
    reshape(gate, layer.ffn_len);
    reshape(up, layer.ffn_len);
  }
}

void Scratch::go_on_with_rows(int64_t n_rows) {
  x = x_rows;
  attention = attention_rows;
  for (TensorView Scratch::*member : {&Scratch::h, &Scratch::out, &Scratch::gate, &Scratch::up, &Scratch::gate_up}) {
    if ((this->*member).rank == 2) this->*member = (this->*member).first_rows(n_rows);
  }
}

}  // namespace ibid
