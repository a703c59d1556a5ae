// The numbers that the field's texts state, checked on this machine with tiny random models: [a] to [f] and the eleven
// points of an engine's checklist.
#include <fmt/format.h>

#include <cstdio>
#include <cstring>
#include <functional>

#include "cli/options/options.h"
#include "cli/selftest_engine.h"
#include "cli/selftest_speculation.h"
#include "kernels/isa.h"
#include "model/kv_arithmetic.h"
#include "model/one_sequence.h"
#include "sample/sampler.h"
#include "text/output/stop_matcher.h"

namespace ibid::cli {
namespace {

enum class Verdict { kPass, kFail };

struct Point {
  const char* name;
  const char* what;
  std::function<Verdict()> check;
};

Verdict verdict(bool ok) { return ok ? Verdict::kPass : Verdict::kFail; }

std::vector<float> logits_of(TinyEngine& tiny, std::span<const TokenId> tokens, int64_t first, int64_t max_step) {
  OneSequence sequence(*tiny.model, *tiny.stream, {.kv_dtype = DType::kF16});
  std::vector<float> out;
  auto keep = [&out](int64_t, const TensorView& rows) {
    const float* begin = rows.row_as<const float>(0);
    out.insert(out.end(), begin, begin + rows.n_elements());
  };
  sequence.append(tokens.first(static_cast<size_t>(first)), keep);
  if (static_cast<size_t>(first) < tokens.size())
    sequence.append(tokens.subspan(static_cast<size_t>(first)), keep, max_step);
  return out;
}

// Prefill of 16 tokens and 8 decodes give the bits of one pass over all 24.
Verdict cached_decode_equals_recompute() {
  TinyEngine tiny("llama");
  std::vector<TokenId> tokens = tiny.tokens(24);
  return verdict(logits_of(tiny, tokens, 24, 24) == logits_of(tiny, tokens, 16, 1));
}

Verdict head_sharing_shrinks_the_cache() {
  KvShape mha{.n_layers = 80, .n_kv_heads = 64, .head_len = 128}, gqa = mha, mqa = mha;
  gqa.n_kv_heads = 8;
  mqa.n_kv_heads = 1;
  return verdict(mha.bytes(4096) == 10'737'418'240 && gqa.bytes(4096) == 1'342'177'280 &&
                 mqa.bytes(4096) == 167'772'160);
}

Verdict latent_cache_is_one_vector_a_token() {
  KvShape mla{.n_layers = 60, .latent_len = 512 + 64};
  return verdict(mla.elements_per_token_layer() == 576 && mla.bytes(4096) == 283'115'520);
}

// Two choices share the prompt's blocks, then write their own; each equals the request run alone with its seed.
Verdict forks_share_and_part() {
  TinyEngine tiny("llama");
  std::vector<TokenId> prompt = tiny.tokens(40);
  Request both = tiny.request(prompt, 12, 5);
  both.n = 2;
  auto together = tiny.run({both});
  bool shared = tiny.most_shared_blocks > 0;
  auto first = tiny.run({tiny.request(prompt, 12, 5)}), second = tiny.run({tiny.request(prompt, 12, 6)});
  return verdict(shared && together.size() == 2 && together[0].tokens == first[0].tokens &&
                 together[1].tokens == second[0].tokens && tiny.blocks_leaked() == 0);
}

Verdict company_changes_nothing() {
  TinyEngine tiny("llama");
  std::vector<Request> many;
  for (int i = 0; i < 6; ++i)
    many.push_back(tiny.request(tiny.tokens(10 + 7 * i, static_cast<uint32_t>(i)), 16, 100 + static_cast<uint64_t>(i)));
  auto together = tiny.run(many);
  for (size_t i = 0; i < many.size(); ++i) {
    TinyEngine alone("llama");
    if (alone.run({many[i]})[0].tokens != together[i].tokens) return Verdict::kFail;
  }
  return Verdict::kPass;
}

Verdict positions_do_not_depend_on_where_blocks_lie() {
  TinyEngine tiny("llama");
  std::vector<TokenId> tokens = tiny.tokens(50);
  std::vector<float> rows[2];
  for (int backwards = 0; backwards < 2; ++backwards) {
    OneSequence sequence(*tiny.model, *tiny.stream, {.kv_dtype = DType::kF16, .backwards = backwards == 1});
    sequence.append(
        tokens,
        [&](int64_t, const TensorView& r) {
          rows[backwards].insert(rows[backwards].end(), r.row_as<const float>(0),
                                 r.row_as<const float>(0) + r.n_elements());
        },
        7);
  }
  return verdict(rows[0] == rows[1]);
}

Verdict cache_shape_follows_attention() {
  for (std::string_view name : testing::tiny_architectures()) {
    TinyEngine tiny(name);
    const ModelConfig& c = tiny.model->config();
    for (int l = 0; l < c.n_layers; ++l) {
      const LayerConfig& layer = c.layers[static_cast<size_t>(l)];
      KvGeometry g = tiny.model->kv_geometry(l);
      if (g.n_kv_heads != layer.n_kv_heads || g.key_len != layer.key_len || g.value_len != layer.value_len)
        return Verdict::kFail;
    }
  }
  return Verdict::kPass;
}

Verdict tables_agree_for_every_head_layout() {
  for (std::string_view name : testing::tiny_architectures()) {
    TinyEngine tiny(name);
    std::vector<TokenId> tokens = tiny.tokens(40);
    std::vector<float> expected = logits_of(tiny, tokens, 40, 40);
    if (expected != logits_of(tiny, tokens, 1, 1)) return Verdict::kFail;
  }
  return Verdict::kPass;
}

Verdict stops_cross_token_boundaries() {
  auto set = StopSet::compile({"\n\nUser:"});
  if (!set) return Verdict::kFail;
  std::string whole = "Fine.\n\nUser: more";
  for (size_t cut = 1; cut + 1 < whole.size(); ++cut) {
    StopMatcher matcher(*set);
    std::string out;
    auto hit = matcher.push(std::string_view(whole).substr(0, cut), out);
    if (!hit) hit = matcher.push(std::string_view(whole).substr(cut), out);
    if (!hit || out != "Fine.") return Verdict::kFail;
  }
  return Verdict::kPass;
}

Verdict stage_order_is_stated() {
  return verdict(is_stage_order(stage_order()) && stage_name(stage_order().front()) == "repetition_penalty");
}

Verdict finished_requests_release_blocks() {
  TinyEngine tiny("llama");
  for (int round = 0; round < 3; ++round)
    tiny.run({tiny.request(tiny.tokens(60, static_cast<uint32_t>(round)), 20, 1)});
  return verdict(tiny.blocks_leaked() == 0);
}

Verdict prefixes_are_shared_only_within_a_tenant() {
  TinyEngine tiny("llama");
  std::vector<TokenId> prompt = tiny.tokens(64);
  Request r = tiny.request(prompt, 4, 1), other = r;
  other.tenant = "another";
  int32_t cold = tiny.run({r})[0].usage.cached_tokens, warm = tiny.run({r})[0].usage.cached_tokens;
  return verdict(cold == 0 && warm > 0 && tiny.run({other})[0].usage.cached_tokens == 0);
}

// A pool too small for all: a request is preempted and computed again, and no answer changes.
Verdict preemption_keeps_the_draws() {
  TinyEngine tiny("llama", 14);
  std::vector<Request> many;
  for (int i = 0; i < 4; ++i)
    many.push_back(tiny.request(tiny.tokens(40, static_cast<uint32_t>(i)), 60, 7 + static_cast<uint64_t>(i)));
  auto together = tiny.run(many);
  if (tiny.engine->stats().n_preemptions == 0) return Verdict::kFail;
  for (size_t i = 0; i < many.size(); ++i) {
    TinyEngine alone("llama");
    if (alone.run({many[i]})[0].tokens != together[i].tokens) return Verdict::kFail;
  }
  return Verdict::kPass;
}

Verdict first_token_and_rest_are_timed_apart() {
  TinyEngine tiny("llama");
  Timing t = tiny.run({tiny.request(tiny.tokens(30), 10, 1)})[0].timing;
  return verdict(t.arrived <= t.admitted && t.admitted <= t.first_token && t.first_token < t.last_token);
}

const std::vector<Point>& points() {
  static const std::vector<Point> all = {
      {"[a]", "cache append: 16 tokens of prefill and 8 decodes equal one pass, bit for bit",
       cached_decode_equals_recompute},
      {"[b]", "MHA, GQA and MQA cache sizes (10, 1.25 and 0.16 GiB for the 70B shape at 4K)",
       head_sharing_shrinks_the_cache},
      {"[c]", "latent attention caches d_c + d_r elements a token and layer", latent_cache_is_one_vector_a_token},
      {"[d]", "rejection accepts as many of 100,000 drafts as the laws overlap, within 1 %",
       [] { return verdict(accepts_as_often_as_laws_overlap()); }},
      {"[e]", "what rejection draws has the target's law: total variation below 0.01",
       [] { return verdict(draws_the_targets_law()); }},
      {"[f]", "forks share blocks and copy them on write", forks_share_and_part},
      {" 1.", "prefill and decode are the same arithmetic over the same tokens", tables_agree_for_every_head_layout},
      {" 2.", "positions do not depend on where blocks lie or how a prompt is cut",
       positions_do_not_depend_on_where_blocks_lie},
      {" 3.", "the cache's shape follows the model's attention", cache_shape_follows_attention},
      {" 4.", "grouped heads: one pass and token by token agree for every architecture",
       tables_agree_for_every_head_layout},
      {" 5.", "stop strings are found across token boundaries", stops_cross_token_boundaries},
      {" 6.", "the order of the sampling stages is stated", stage_order_is_stated},
      {" 7.", "a request's answer does not depend on its company", company_changes_nothing},
      {" 8.", "finished requests release their blocks", finished_requests_release_blocks},
      {" 9.", "prefixes are shared only within the same state and tenant", prefixes_are_shared_only_within_a_tenant},
      {"10.", "noise belongs to the request: preemption changes no draw", preemption_keeps_the_draws},
      {"11.", "time to first token and time per token are measured apart", first_token_and_rest_are_timed_apart},
  };
  return all;
}

}  // namespace

int selftest() {
  int n_failed = 0;
  for (const Point& p : points()) {
    Verdict v = p.check();
    n_failed += v == Verdict::kFail;
    std::printf("%-4s %s: %s\n", p.name, p.what, v == Verdict::kPass ? "pass" : "FAIL");
    std::fflush(stdout);
  }
  std::printf("%s\n", n_failed == 0 ? "nothing failed" : fmt::format("{} failed", n_failed).c_str());
  return n_failed == 0 ? kOk : kTestFailed;
}

}  // namespace ibid::cli
