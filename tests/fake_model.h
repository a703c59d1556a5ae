// FakeModel: a model whose keys and values identify their tokens. Each slot of the cache holds a cell with its
// position, its token and a hash of the tokens before; the fake's attention checks each cell that it reads and records
// faults. Logits are a function of the tokens up to a position, so a request's expected answer is known without any
// engine: expected_answer().
//
// A fake with a state keeps besides, in the slots that batches name, the same hash as the state of a recurrent model,
// and its logits are those of the state.
//
// Where rows are evicted, those that scores would choose are chosen by a hash of their positions; later tokens of such
// a sequence read the rows that are left, and have the logits that they would have without.
//
// A step over views of sequences (kernels/forward_batch.h) marks its cells: a step that reads sequences whole must find
// none of them, whatever happened in between.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/state/request.h"
#include "sample/sampler.h"
#include "worker/forward_pass.h"

namespace ibid::testing {

inline constexpr int32_t kFakeVocabSize = 64;
inline constexpr TokenId kFakeEnd{0};  // ends an answer

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 29)) * 0x94d049bb133111ebu;
  return x ^ (x >> 32);
}

// The row of logits after a prefix with this hash. Now and then the end is likely.
inline void fake_logits(uint64_t prefix_hash, std::span<float> out) {
  for (size_t v = 0; v < out.size(); ++v) out[v] = static_cast<float>(mix(prefix_hash, v) % 4096) / 512.0f;
  out[0] = prefix_hash % 29 == 0 ? 12.0f : -4.0f;
}

class FakeModel final : public ForwardPass {
 public:
  // `width`: of its hidden states, a function of the tokens too; 0: it has none.
  explicit FakeModel(int32_t context_len, int32_t window = 0, int32_t width = 0, bool has_state = false) {
    facts_ = {.layers = {{.n_kv_heads = 1, .key_len = 8, .value_len = 8, .window = window},
                         {.n_kv_heads = 2, .key_len = 24, .value_len = 24, .window = window}},
              .state_bytes = has_state ? int64_t{sizeof(State)} : 0,
              .vocab_size = kFakeVocabSize,
              .width = width,
              .window = window,
              .no_eviction = window > 0  ? "layers with a sliding window"
                             : has_state ? "recurrent layers"
                                         : "",
              .context_len = context_len,
              .digest = "fake",
              .rope = "none",
              .end_of_generation = {kFakeEnd}};
  }
  const ModelFacts& facts() const override { return facts_; }
  void use_states(const StateSlots& slots) override { state_slots_ = slots; }
  const std::vector<std::string>& faults() const { return faults_; }
  // The positions that each token of a view read, [pass][token], in the order of its places.
  const std::vector<std::vector<std::vector<int32_t>>>& views() const { return views_; }
  // Of a model that has evicted rows: the positions that the last token of the last step read.
  const std::vector<int32_t>& rows_seen() const { return rows_seen_; }

  void run(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits,
           const HiddenStates& hidden) override {
    std::set<int32_t> written;
    evicts_ = evicts_ || b.n_kept > 0;
    if (evicts_) return run_evicting(b, kv, logits);
    if (b.places != nullptr) return run_views(b, kv, logits);
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      int32_t longest = 0, first = b.positions[b.query_start[s]];
      for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) {
        longest = std::max(longest, b.positions[i] + 1);
        expect(written.insert(b.slots[i]).second, "two tokens are written to one slot");
        expect(b.positions[i] < facts_.context_len, "a position lies after the context");
        if (!b.path(i).empty()) {
          expect(b.path(i).back() == b.slots[i], "a path does not end at its token");
          continue;
        }
        expect(b.positions[i] == first++, "positions do not follow each other");
        expect(b.slots[i] == slot_of(b, s, b.positions[i]), "a slot disagrees with the block table");
      }
      expect(b.kv_len[s] == longest, "kv_len is not the largest position and one");
    }
    // In order of the arrays, as keys and values would be stored, then read.
    for (int32_t s = 0; s < b.n_sequences; ++s) write(b, s, kv);
    for (int32_t s = 0; s < b.n_sequences; ++s) read_all(b, s, kv);
    if (facts_.state_bytes > 0) advance_states(b);
    say(b, kv, logits);
    for (const TensorView& out : hidden.out) {
      for (int32_t i = 0; i < b.n_tokens; ++i) {
        const uint64_t hash = cell(kv[0], b.slots[i]).prefix_hash;
        for (int32_t c = 0; c < facts_.width; ++c)
          out.row_as<float>(i)[c] = static_cast<float>(mix(hash, static_cast<uint64_t>(1000 + c)) % 512) / 256.0f - 1;
      }
    }
  }

 private:
  void say(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits) {
    int32_t row = 0;
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) {
        if (row == b.n_rows || b.logit_rows[row] != i) continue;
        const uint64_t hash = cell(kv[0], b.slots[i]).prefix_hash;
        fake_logits(facts_.state_bytes > 0 ? states_[static_cast<size_t>(i)].prefix_hash : hash,
                    {logits.row_as<float>(row), kFakeVocabSize});
        ++row;
      }
    }
    expect(row == b.n_rows, "rows are not ascending indices of tokens");
  }
  // Of the tokens so far.
  struct State {
    uint64_t prefix_hash;
    int32_t n_tokens;
    uint32_t magic;
  };
  static constexpr uint32_t kStateMagic = 0x57a7e57a;

  void advance_states(const ForwardBatch& b) {
    expect(b.state_in != nullptr && b.state_out != nullptr, "a batch of a model with a state names none");
    if (b.state_in == nullptr || b.state_out == nullptr) return;
    states_.assign(static_cast<size_t>(b.n_tokens), {});
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      State first = {seed_of(0), 0, kStateMagic};
      if (b.state_in[s] >= 0) std::memcpy(&first, state_slots_.slot(b.state_in[s]), sizeof first);
      expect(first.magic == kStateMagic, "a state was read that was never written or has been freed");
      expect(first.n_tokens == b.positions[b.query_start[s]], "a sequence goes on from a state of another position");
      for (int32_t t = b.query_start[s]; t < b.query_start[s + 1]; ++t) {
        const int32_t before = b.before(s, t);
        const State& from = before < 0 ? first : states_[static_cast<size_t>(before)];
        states_[static_cast<size_t>(t)] = {mix(from.prefix_hash, static_cast<uint64_t>(raw(b.tokens[t]))),
                                           from.n_tokens + 1, kStateMagic};
        expect(from.n_tokens == b.positions[t], "a token goes on from another one's state");
        if (b.path(t).size() > 1) expect(b.state_out[before] >= 0, "a draft goes on from a state that is not kept");
      }
      expect(b.state_out[b.query_start[s + 1] - 1] >= 0, "the state after a share is not kept");
    }
    std::set<int32_t> written;
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      for (int32_t t = b.query_start[s]; t < b.query_start[s + 1]; ++t) {
        const int32_t out = b.state_out[t];
        if (out < 0) continue;
        expect(out < state_slots_.n_slots && written.insert(out).second, "two states are written to one slot");
        for (int32_t other = 0; other < b.n_sequences; ++other)
          expect(other == s || b.state_in[other] != out, "a state is written over that another sequence reads");
        std::memcpy(state_slots_.slot(out), &states_[static_cast<size_t>(t)], sizeof(State));
      }
    }
  }

  // Plain tokens, each after the preceding token of its sequence.
  void run_views(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits) {
    std::set<int32_t> written;
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) {
        expect(written.insert(b.slots[i]).second, "two tokens are written to one slot");
        expect(b.slots[i] == b.slot_read(s, i, b.places[i]), "a token of a view does not see itself");
        expect(b.places[i] < b.kv_len[s], "a token of a view stands after what it reads");
      }
    }
    views_.emplace_back();
    write_all(b, kv, kViewMagic);
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) read_view(b, s, i, kv);
    }
    say(b, kv, logits);
  }
  // Each token sees itself and what is left before it, in order; then sequences keep some of that.
  void run_evicting(const ForwardBatch& b, std::span<const PagedKv> kv, const TensorView& logits) {
    std::set<int32_t> written;
    for (int32_t i = 0; i < b.n_tokens; ++i)
      expect(written.insert(b.slots[i]).second, "two tokens are written to one slot");
    write_all(b, kv, kMagic);
    for (int32_t s = 0; s < b.n_sequences; ++s) {
      for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) {
        expect(b.path(i).empty() ? b.slots[i] == b.slot_read(s, i, b.read_by()[i]) : b.path(i).back() == b.slots[i],
               "a token does not see itself");
        if (i + 1 < b.query_start[s + 1] && i > b.query_start[s]) continue;  // the first and the last see enough
        std::vector<int32_t> seen;
        read_rows(b, s, i, kv, seen);
        expect(b.places != nullptr || static_cast<int32_t>(seen.size()) == b.positions[i] + 1, "rows are missing");
        rows_seen_ = std::move(seen);
      }
    }
    say(b, kv, logits);
    for (int32_t i = 0; i < b.n_kept; ++i) {
      for (size_t layer = 0; layer < kv.size(); ++layer) keep(b, b.kept[i], kv, layer, written);
    }
  }
  void read_rows(const ForwardBatch& b, int32_t s, int32_t i, std::span<const PagedKv> kv, std::vector<int32_t>& seen) {
    for (size_t layer = 0; layer < kv.size(); ++layer) {
      seen.clear();
      for (int32_t place = 0; place <= b.read_by()[i]; ++place) {
        const Cell c = cell(kv[layer], b.slot_read(s, i, place));
        expect(c.magic == kMagic && c.layer == static_cast<int32_t>(layer), "a row was read that was never written");
        expect(seen.empty() || c.position > seen.back(), "rows do not ascend by position");
        seen.push_back(c.position);
      }
      expect(!seen.empty() && seen.back() == b.positions[i], "a token's own row is of another position");
      expect(seen.size() < 2 || seen[seen.size() - 2] + 1 == seen.back(), "the row of the token before is gone");
    }
  }
  void keep(const ForwardBatch& b, const KeptRows& rows, std::span<const PagedKv> kv, size_t layer,
            const std::set<int32_t>& written) {
    const int32_t last = b.query_start[rows.sequence + 1] - 1, n_all = b.kv_len[rows.sequence];
    expect(rows.n_queries <= last + 1 - b.query_start[rows.sequence], "what scores is not in the step");
    std::vector<std::pair<uint64_t, int32_t>> between;
    for (int32_t place = rows.n_first; place < n_all - rows.n_last; ++place) {
      const Cell c = cell(kv[layer], b.slot_read(rows.sequence, last, place));
      between.emplace_back(mix(layer, static_cast<uint64_t>(c.position)), place);
    }
    std::ranges::sort(between);
    between.resize(static_cast<size_t>(rows.n - rows.n_first - rows.n_last));
    std::set<int32_t> kept;
    for (const auto& [hash, place] : between) kept.insert(place);
    for (int32_t place = 0; place < n_all; ++place)
      if (place < rows.n_first || place >= n_all - rows.n_last) kept.insert(place);
    expect(static_cast<int32_t>(kept.size()) == rows.n, "other rows are kept than were asked for");
    int32_t to = 0;
    for (const int32_t place : kept) {
      const int32_t slot = raw(b.kept_blocks[rows.block_start + to / b.block_len]) * b.block_len + to % b.block_len;
      expect(!written.contains(slot), "a row is kept where a token of the step lies");
      set_cell(kv[layer], slot, cell(kv[layer], b.slot_read(rows.sequence, last, place)));
      ++to;
    }
  }
  void read_view(const ForwardBatch& b, int32_t s, int32_t i, std::span<const PagedKv> kv) {
    std::vector<int32_t>& seen = views_.back().emplace_back();
    for (size_t layer = 0; layer < kv.size(); ++layer) {
      seen.clear();
      for (int32_t place = 0; place <= b.places[i]; ++place) {
        const Cell c = cell(kv[layer], b.slot_read(s, i, place));
        expect(c.magic == kMagic || c.magic == kViewMagic, "a view read a slot that was never written");
        expect(c.layer == static_cast<int32_t>(layer), "a view read another layer's slot");
        expect(seen.empty() || c.position > seen.back(), "a view's positions do not ascend");
        seen.push_back(c.position);
      }
      expect(seen.back() == b.positions[i], "a token of a view has another position than in its text");
      expect(seen.size() < 2 || seen[seen.size() - 2] + 1 == seen.back(), "a view lacks the token before its last");
    }
  }
  void write_all(const ForwardBatch& b, std::span<const PagedKv> kv, uint32_t magic) {
    for (int32_t s = 0; s < b.n_sequences; ++s) write(b, s, kv, magic);
  }

  struct Cell {
    uint64_t prefix_hash;
    int32_t position;
    int32_t token;
    int32_t layer;
    uint32_t magic;
  };
  static constexpr uint32_t kMagic = 0x1b1d1b1d, kViewMagic = 0x71e37e37;
  static uint64_t seed_of(size_t layer) { return mix(77, layer); }

  static int32_t slot_of(const ForwardBatch& b, int32_t s, int32_t position) {
    return raw(b.blocks(s)[static_cast<size_t>(position / b.block_len)]) * b.block_len + position % b.block_len;
  }
  // A cell's bytes lie in its slot's elements, first the key's, then the value's, as those of a real model do.
  template <typename Visit>
  static void each_piece(const PagedKv& kv, int32_t slot, Visit visit) {
    const size_t piece = kv.dtype == DType::kF32 ? 4 : 2;
    const auto n_pieces = static_cast<int32_t>(sizeof(Cell) / piece);
    std::byte* block = kv.blocks + slot / kv.block_len * kv.block_bytes;
    int32_t done = 0;
    for (const KvPart part : {KvPart::kKey, KvPart::kValue}) {
      const int64_t first = kv_element_offset(kv, part, slot % kv.block_len, 0, 0);
      const int64_t stride = kv_element_offset(kv, part, slot % kv.block_len, 0, 1) - first;
      const int32_t len = part == KvPart::kKey ? kv.key_len : kv.value_len;
      for (int32_t d = 0; d < len && done < n_pieces; ++d, ++done)
        visit(block + first + d * stride, static_cast<size_t>(done) * piece, piece);
      if (done == n_pieces) return;
    }
  }
  static Cell cell(const PagedKv& kv, int32_t slot) {
    Cell c;
    each_piece(kv, slot, [&](const std::byte* at, size_t i, size_t n) {
      std::memcpy(reinterpret_cast<std::byte*>(&c) + i, at, n);
    });
    return c;
  }
  static void set_cell(const PagedKv& kv, int32_t slot, const Cell& c) {
    each_piece(kv, slot, [&](std::byte* at, size_t i, size_t n) {
      std::memcpy(at, reinterpret_cast<const std::byte*>(&c) + i, n);
    });
  }
  void expect(bool condition, const char* what) {
    if (!condition && faults_.size() < 20) faults_.push_back(what);
  }
  void write(const ForwardBatch& b, int32_t s, std::span<const PagedKv> kv, uint32_t magic = kMagic) {
    for (size_t layer = 0; layer < kv.size(); ++layer) {
      for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) {
        const int32_t p = b.positions[i];
        const uint64_t before =
            p == 0 ? seed_of(layer) : cell(kv[layer], b.slot_read(s, i, b.read_by()[i] - 1)).prefix_hash;
        set_cell(kv[layer], b.slots[i],
                 {mix(before, static_cast<uint64_t>(raw(b.tokens[i]))), p, raw(b.tokens[i]),
                  static_cast<int32_t>(layer), magic});
      }
    }
  }
  void read_all(const ForwardBatch& b, int32_t s, std::span<const PagedKv> kv) {
    int32_t last_plain = b.query_start[s];
    for (int32_t i = b.query_start[s]; i < b.query_start[s + 1]; ++i) {
      if (b.path(i).empty()) last_plain = i;
    }
    for (const PagedKv& layer : kv) {
      // What the last of the plain ones reads, from where the first one's window begins.
      read(b, s, last_plain, b.positions[b.query_start[s]], kv, static_cast<size_t>(&layer - kv.data()));
      for (int32_t i = last_plain + 1; i < b.query_start[s + 1]; ++i)
        read(b, s, i, b.positions[i], kv, static_cast<size_t>(&layer - kv.data()));
    }
  }
  void read(const ForwardBatch& b, int32_t s, int32_t i, int32_t first_query, std::span<const PagedKv> kv,
            size_t layer) {
    const int32_t begin = facts_.window == 0 ? 0 : std::max(0, first_query - facts_.window + 1);
    uint64_t hash = seed_of(layer);
    for (int32_t p = begin; p <= b.positions[i]; ++p) {
      const int32_t slot = b.slot_read(s, i, p);
      expect(slot >= 0, "attention wants a block that was released");
      if (slot < 0) return;
      const Cell c = cell(kv[layer], slot);
      if (p == begin && begin > 0) hash = c.prefix_hash;
      if (p > begin || begin == 0) hash = mix(hash, static_cast<uint64_t>(c.token));
      expect(c.magic != kViewMagic, "attention read what a draft over a view left");
      if (c.magic == kViewMagic) return;
      expect(c.magic == kMagic, "attention read a slot that was never written or has been freed");
      expect(c.layer == static_cast<int32_t>(layer), "attention read another layer's slot");
      expect(c.position == p, "attention read a slot of another position");
      expect(c.prefix_hash == hash, "attention read a slot of other tokens");
    }
  }

  ModelFacts facts_;
  StateSlots state_slots_;
  std::vector<State> states_;  // [T] of the last step
  bool evicts_ = false;        // rows were evicted once
  std::vector<int32_t> rows_seen_;
  std::vector<std::string> faults_;
  std::vector<std::vector<std::vector<int32_t>>> views_;
};

struct ExpectedAnswer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  FinishReason reason = FinishReason::kLength;
};

// The expected answer of a choice of a request, from the sampler and the tokens only.
inline ExpectedAnswer expected_answer(const Request& request, int32_t choice, int32_t context_len) {
  const TokenId ends[] = {kFakeEnd};
  const auto sampler =
      Sampler::compile(request.sampling, kFakeVocabSize, ends, request.sampling.seed + static_cast<uint64_t>(choice))
          .value();
  SamplerState state = sampler->initial_state();
  SamplerScratch scratch;
  ExpectedAnswer out;
  std::vector<float> logits(kFakeVocabSize);
  uint64_t hash = mix(77, 0);
  for (const TokenId t : request.prompt) hash = mix(hash, static_cast<uint64_t>(raw(t)));
  const auto total = [&] { return static_cast<int32_t>(request.prompt.size() + out.tokens.size()); };
  while (request.max_tokens < 0 || static_cast<int32_t>(out.tokens.size()) < request.max_tokens) {
    fake_logits(hash, logits);
    const TokenRecord drawn = sampler->sample(logits, {request.prompt, out.tokens}, state, scratch).value();
    out.tokens.push_back(drawn.chosen.token);
    out.logprobs.push_back(drawn.chosen.raw);
    hash = mix(hash, static_cast<uint64_t>(raw(drawn.chosen.token)));
    if (drawn.chosen.token == kFakeEnd) {
      out.reason = FinishReason::kEos;
      break;
    }
    if (total() >= context_len) break;
  }
  return out;
}

}  // namespace ibid::testing
