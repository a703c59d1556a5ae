#include "format/quant_mix.h"

#include <charconv>

namespace ibid {
namespace {

struct Row {
  std::string_view name;
  QuantMix mix;
  DType base;
  int file_type;
};
constexpr Row kRows[] = {
    {"f32", QuantMix::kF32, DType::kF32, 0},
    {"f16", QuantMix::kF16, DType::kF16, 1},
    {"bf16", QuantMix::kBF16, DType::kBF16, 32},
    {"q4_0", QuantMix::kQ4_0, DType::kQ4_0, 2},
    {"q4_1", QuantMix::kQ4_1, DType::kQ4_1, 3},
    {"q5_0", QuantMix::kQ5_0, DType::kQ5_0, 8},
    {"q5_1", QuantMix::kQ5_1, DType::kQ5_1, 9},
    {"q8_0", QuantMix::kQ8_0, DType::kQ8_0, 7},
    {"q2_k", QuantMix::kQ2_K, DType::kQ2_K, 10},
    {"q3_k_s", QuantMix::kQ3_K_S, DType::kQ3_K, 11},
    {"q3_k_m", QuantMix::kQ3_K_M, DType::kQ3_K, 12},
    {"q3_k_l", QuantMix::kQ3_K_L, DType::kQ3_K, 13},
    {"q4_k_s", QuantMix::kQ4_K_S, DType::kQ4_K, 14},
    {"q4_k_m", QuantMix::kQ4_K_M, DType::kQ4_K, 15},
    {"q5_k_s", QuantMix::kQ5_K_S, DType::kQ5_K, 16},
    {"q5_k_m", QuantMix::kQ5_K_M, DType::kQ5_K, 17},
    {"q6_k", QuantMix::kQ6_K, DType::kQ6_K, 18},
    {"iq4_nl", QuantMix::kIQ4_NL, DType::kIQ4_NL, 25},
    {"iq4_xs", QuantMix::kIQ4_XS, DType::kIQ4_XS, 30},
    {"mxfp4", QuantMix::kMXFP4, DType::kMXFP4, 38},
    {"iq2_xxs", QuantMix::kIQ2_XXS, DType::kIQ2_XXS, 19},
    {"iq2_xs", QuantMix::kIQ2_XS, DType::kIQ2_XS, 20},
    {"iq2_s", QuantMix::kIQ2_S, DType::kIQ2_XS, 28},
    {"iq2_m", QuantMix::kIQ2_M, DType::kIQ2_S, 29},
    {"iq3_xxs", QuantMix::kIQ3_XXS, DType::kIQ3_XXS, 23},
    {"iq3_xs", QuantMix::kIQ3_XS, DType::kIQ3_S, 22},
    {"iq3_s", QuantMix::kIQ3_S, DType::kIQ3_S, 26},
    {"iq3_m", QuantMix::kIQ3_M, DType::kIQ3_S, 27},
    {"tq1_0", QuantMix::kTQ1_0, DType::kTQ1_0, 36},
    {"tq2_0", QuantMix::kTQ2_0, DType::kTQ2_0, 37},
    {"nvfp4", QuantMix::kNVFP4, DType::kNVFP4, 39},
    {"q1_0", QuantMix::kQ1_0, DType::kQ1_0, 40},
    {"q2_0", QuantMix::kQ2_0, DType::kQ2_0, 41},
};
const Row& row_of(QuantMix mix) { return kRows[static_cast<size_t>(mix)]; }

bool ends_with_part(std::string_view name, std::string_view part) {
  return name.starts_with("blk.") && name.ends_with(part);
}

// "blk.12.": 12; 0 outside of layers.
int64_t layer_of(std::string_view name) {
  int64_t layer = 0;
  if (name.starts_with("blk.")) std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

// The first eighth, the last, and every third between them.
bool is_felt(int64_t layer, int64_t n_layers) {
  return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

bool is_iq2(QuantMix mix) { return mix >= QuantMix::kIQ2_XXS && mix <= QuantMix::kIQ2_M; }
// What mixtures of two bits give to what is felt most.
DType above_iq2(QuantMix mix) {
  return mix == QuantMix::kIQ2_S || mix == QuantMix::kIQ2_M ? DType::kIQ3_S : DType::kQ2_K;
}

DType of_output(QuantMix mix) {
  const DType base = row_of(mix).base;
  if (is_iq2(mix) || mix == QuantMix::kIQ3_XXS) return DType::kQ5_K;
  return !is_quantised(base) || base == DType::kQ8_0 ? base : DType::kQ6_K;
}
DType of_embedding(QuantMix mix) {
  switch (mix) {
    case QuantMix::kIQ2_XXS:
    case QuantMix::kIQ2_XS:
      return DType::kQ2_K;
    case QuantMix::kIQ2_S:
    case QuantMix::kIQ2_M:
    case QuantMix::kIQ3_XXS:
      return DType::kIQ3_S;
    case QuantMix::kTQ1_0:
    case QuantMix::kTQ2_0:
    case QuantMix::kQ2_0:
      return DType::kQ4_K;
    default:
      return row_of(mix).base;
  }
}
DType of_values(QuantMix mix, const MixedMatrix& m) {
  const int64_t layer = layer_of(m.name);
  const DType base = row_of(mix).base;
  if (is_iq2(mix)) return m.heads_per_kv >= 4 ? DType::kQ4_K : above_iq2(mix);
  switch (mix) {
    case QuantMix::kIQ3_XXS:
    case QuantMix::kIQ3_XS:
    case QuantMix::kIQ3_S:
      return m.heads_per_kv >= 4 ? DType::kQ4_K : base;
    case QuantMix::kIQ3_M:
      return DType::kQ4_K;
    case QuantMix::kQ2_K:
      return m.heads_per_kv >= 4 ? DType::kQ4_K : DType::kQ3_K;
    case QuantMix::kQ3_K_M:
      return layer < 2 ? DType::kQ5_K : DType::kQ4_K;
    case QuantMix::kQ3_K_L:
      return DType::kQ5_K;
    case QuantMix::kQ4_K_S:
      return layer < 4 ? DType::kQ5_K : base;
    case QuantMix::kQ4_K_M:
    case QuantMix::kQ5_K_M:
      return is_felt(layer, m.n_layers) ? DType::kQ6_K : base;
    case QuantMix::kIQ4_NL:
    case QuantMix::kIQ4_XS:
      return m.heads_per_kv >= 4 ? DType::kQ5_K : base;
    default:
      return base;
  }
}
DType of_down(QuantMix mix, const MixedMatrix& m) {
  const int64_t layer = layer_of(m.name);
  const DType base = row_of(mix).base;
  if (is_iq2(mix)) return layer < m.n_layers / 8 ? above_iq2(mix) : base;
  switch (mix) {
    case QuantMix::kIQ3_M:
      return layer < m.n_layers / 8 ? DType::kQ4_K : base;
    case QuantMix::kQ2_K:
      return DType::kQ3_K;
    case QuantMix::kQ3_K_M:
      return layer < m.n_layers / 16 ? DType::kQ5_K : is_felt(layer, m.n_layers) ? DType::kQ4_K : base;
    case QuantMix::kQ3_K_L:
      return DType::kQ5_K;
    case QuantMix::kQ4_K_S:
    case QuantMix::kIQ4_NL:
    case QuantMix::kIQ4_XS:
      return layer < m.n_layers / 8 ? DType::kQ5_K : base;
    case QuantMix::kQ4_K_M:
    case QuantMix::kQ5_K_M:
      return is_felt(layer, m.n_layers) ? DType::kQ6_K : base;
    default:
      return base;
  }
}
DType of_attention_output(QuantMix mix) {
  switch (mix) {
    case QuantMix::kIQ2_S:
    case QuantMix::kIQ2_M:
    case QuantMix::kIQ3_XXS:
      return DType::kIQ3_S;
    case QuantMix::kIQ3_M:
      return DType::kQ4_K;
    case QuantMix::kQ2_K:
      return DType::kQ3_K;
    case QuantMix::kQ3_K_M:
      return DType::kQ4_K;
    case QuantMix::kQ3_K_L:
      return DType::kQ5_K;
    default:
      return row_of(mix).base;
  }
}
DType of_fused(QuantMix mix) {  // queries, keys and values in one
  switch (mix) {
    case QuantMix::kQ3_K_M:
    case QuantMix::kQ3_K_L:
    case QuantMix::kIQ3_M:
      return DType::kQ4_K;
    case QuantMix::kQ4_K_M:
      return DType::kQ5_K;
    case QuantMix::kQ5_K_M:
      return DType::kQ6_K;
    default:
      return row_of(mix).base;
  }
}

DType of_queries_and_keys(QuantMix mix) {
  if (mix == QuantMix::kIQ3_XXS) return DType::kIQ2_S;
  return mix == QuantMix::kIQ3_XS ? DType::kIQ3_XXS : row_of(mix).base;
}
DType of_gate_and_up(QuantMix mix, const MixedMatrix& m) {
  const int64_t layer = layer_of(m.name);
  const bool is_inner = layer >= m.n_layers / 8 && layer < 7 * m.n_layers / 8;
  return mix == QuantMix::kIQ3_XS && is_inner ? DType::kIQ3_XXS : row_of(mix).base;
}

DType wished(QuantMix mix, const MixedMatrix& m) {
  const DType base = row_of(mix).base;
  const bool is_output = m.name == "output.weight" || (m.tied_embedding && m.name == "token_embd.weight");
  if (is_output) return of_output(mix);
  if (m.name == "token_embd.weight") return of_embedding(mix);
  if (ends_with_part(m.name, ".attn_v.weight")) return of_values(mix, m);
  for (const char* down : {".ffn_down.weight", ".ffn_down_exps.weight", ".ffn_down_shexp.weight"}) {
    if (ends_with_part(m.name, down)) return of_down(mix, m);
  }
  if (ends_with_part(m.name, ".attn_output.weight")) return of_attention_output(mix);
  if (ends_with_part(m.name, ".attn_qkv.weight")) return of_fused(mix);
  if (ends_with_part(m.name, ".attn_q.weight") || ends_with_part(m.name, ".attn_k.weight"))
    return of_queries_and_keys(mix);
  for (const char* half : {".ffn_gate", ".ffn_up"}) {
    for (const char* kind : {".weight", "_exps.weight", "_shexp.weight"}) {
      if (ends_with_part(m.name, std::string(half) + kind)) return of_gate_and_up(mix, m);
    }
  }
  return base;
}

}  // namespace

std::optional<QuantMix> quant_mix_from_name(std::string_view name) {
  std::string lower(name);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (lower == "q3_k" || lower == "q4_k" || lower == "q5_k") lower += "_m";
  for (const Row& row : kRows) {
    if (row.name == lower) return row.mix;
  }
  return std::nullopt;
}

std::string quant_mix_names() {
  std::string out;
  for (const Row& row : kRows) out += (out.empty() ? "" : ", ") + std::string(row.name);
  return out;
}

int64_t quant_mix_file_type(QuantMix mix) { return row_of(mix).file_type; }

DType wished_dtype(QuantMix mix, const MixedMatrix& matrix) { return wished(mix, matrix); }

DType fitting_dtype(DType dtype, int64_t row_len) {
  if (row_len % traits(dtype).block_len == 0) return dtype;
  if (row_len % 32 != 0) return DType::kF16;
  switch (dtype) {
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    default:
      return DType::kIQ4_NL;
  }
}

DType mixed_dtype(QuantMix mix, const MixedMatrix& matrix) {
  return fitting_dtype(wished(mix, matrix), matrix.row_len);
}

DType quant_mix_base(QuantMix mix) { return row_of(mix).base; }

}  // namespace ibid
