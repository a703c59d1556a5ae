// OwnAnswers: stores a tenant's own answers, to draft for its next requests: a bounded store per scope
// (ProposalInput::scope), which look-ups of other scopes never read.
//
// A store consists of a few segments, each a suffix automaton of concatenated answers, each preceded by the last tokens
// of its prompt, so that a repeated question finds its answer from the first token on. When a tenant has the maximum
// number of segments, its oldest one is dropped; when none is left over all tenants, the oldest one of the least
// recently used tenant. Other tenants' activity can therefore shrink a tenant's store, as it does with cached prefixes;
// the contents of other tenants' answers change nothing.
//
// One thread, the engine's. Answers are indexed in begin_step(), at most kReadEachStep tokens per step: about 0.2 us
// each. A look-up costs as much for each token by which a sequence has grown and each segment, of which there are at
// most kMaxOfTenant.
#pragma once

#include <array>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spec/experimental/text_store.h"
#include "spec/lookup/suffix_automaton.h"

namespace ibid {

class OwnAnswers {
 public:
  static constexpr int64_t kLeastBytes = 2 << 20;
  static constexpr int32_t kMaxOfTenant = 8;     // segments
  static constexpr int32_t kLeastSegments = 16;  // over all tenants: no tenant has more than half
  static constexpr int32_t kReadEachStep = 256;  // tokens
  static constexpr int32_t kOfPrompt = 16;       // last tokens of a prompt, stored before its answer
  static constexpr int32_t kMaxMatch = TextStore::kMaxMatch;

  // `bytes` bounds the memory of all tenants together; at least kLeastBytes. Memory is allocated on demand.
  explicit OwnAnswers(int64_t bytes);

  // Adds an answer for its scope, to be indexed in later steps; of one that is longer than a segment, the first part.
  // The answer is dropped if more tokens wait to be indexed than a segment holds.
  void add(std::string_view scope, std::span<const TokenId> prompt, std::span<const TokenId> answer);
  void begin_step();

  // A sequence's position in each segment of its tenant. If a segment has grown since, or the sequence has grown by
  // more than kMaxMatch tokens, matching restarts with the last kMaxMatch tokens.
  struct Reader {
    struct Place {
      int32_t segment = -1;
      uint64_t generation = 0;
      size_t n_there = 0;  // tokens of the segment at the last look-up
      int64_t n_read = 0;  // tokens of the sequence matched so far
      SuffixAutomaton::Cursor cursor;
    };
    std::array<Place, kMaxOfTenant> places;
  };
  // Returns in `out` the tokens that followed the sequence's longest suffix found in its tenant's answers, at most
  // max_tokens, up to that answer's end; for equally long matches, the newest one. `end`: the sequence's last tokens,
  // kMaxMatch or all of them; sequence_len: its number of tokens.
  void draft(std::string_view scope, std::span<const TokenId> end, int64_t sequence_len, int32_t max_tokens,
             Reader& reader, StoreDraft& out);

  int64_t bytes() const;  // maximum memory
  int64_t held_bytes() const;
  int32_t n_segments_of(std::string_view scope) const;  // for tests
  int32_t segment_tokens() const { return segment_tokens_; }

 private:
  struct Segment {
    std::unique_ptr<SuffixAutomaton> automaton;
    uint64_t generation = 0;  // counts reuses of the segment
  };
  struct Tenant {
    boost::container::static_vector<int32_t, kMaxOfTenant> segments;  // oldest first; at least one
    uint64_t last_use = 0;
  };
  using Tenants = std::unordered_map<std::string, Tenant>;
  struct Waiting {
    std::string scope;
    std::vector<TokenId> tokens;
    size_t n_read = 0;
    int32_t segment = -1;  // the segment that it is added to
    uint64_t generation = 0;
  };
  bool read(Waiting& waiting, int32_t& n_readable);
  int32_t segment_for(const std::string& scope, size_t n_tokens);
  void free_one(const std::string& scope);
  void drop_oldest(Tenants::iterator tenant);

  int32_t segment_tokens_ = 0;
  size_t max_segments_ = 0;
  std::vector<Segment> segments_;
  std::vector<int32_t> unused_;  // indices of empty segments; capacity for all
  Tenants tenants_;
  std::deque<Waiting> waiting_;
  size_t n_waiting_ = 0;  // tokens
  uint64_t use_ = 0;
};

}  // namespace ibid
