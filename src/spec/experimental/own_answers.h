// OwnAnswers: what a tenant's own requests were answered, for drafts about its next ones: a bounded store for each
// scope (ProposalInput::scope), which no other scope's look-up ever enters.
//
// A store is a few segments, each a suffix automaton of answers one after another with the last tokens of their prompts
// before them, so that a question that is asked again finds what it was answered from the first token on. When a tenant
// has as many segments as one may have its oldest goes; when there are no more for anybody, the oldest of the tenant
// whose store was not asked for the longest time. Others' activity can thereby make a tenant's store smaller, as it
// does to its cached prefixes; what others wrote changes nothing.
//
// One thread, the engine's. Answers are read in begin_step(), at most kReadEachStep tokens of them: some 0.2 us each. A
// look-up costs as much for each token that a text has grown by and each segment, of which there are kMaxOfTenant.
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
#include "spec/suffix_automaton.h"

namespace ibid {

class OwnAnswers {
 public:
  static constexpr int64_t kLeastBytes = 2 << 20;
  static constexpr int32_t kMaxOfTenant = 8;     // segments
  static constexpr int32_t kLeastSegments = 16;  // of all: no tenant has more than half
  static constexpr int32_t kReadEachStep = 256;  // tokens
  static constexpr int32_t kOfPrompt = 16;       // tokens of a prompt's end that stand before its answer
  static constexpr int32_t kMaxMatch = TextStore::kMaxMatch;

  // `bytes` bound all that is held, of all tenants together; at least kLeastBytes. Nothing is held before it is needed.
  explicit OwnAnswers(int64_t bytes);

  // Takes an answer for its scope, to be read in steps to come; of one that is longer than a segment the first part.
  // Where more waits to be read than a segment holds it is not taken.
  void add(std::string_view scope, std::span<const TokenId> prompt, std::span<const TokenId> answer);
  void begin_step();

  // Where a text stands in each segment of its tenant. Where one has grown since, or the text by more than kMaxMatch,
  // it begins again with those.
  struct Reader {
    struct Place {
      int32_t segment = -1;
      uint64_t generation = 0;
      size_t n_there = 0;  // tokens of the segment when it was read
      int64_t n_read = 0;  // of the text's tokens
      SuffixAutomaton::Cursor cursor;
    };
    std::array<Place, kMaxOfTenant> places;
  };
  // What followed the longest end of the text in its tenant's answers, at most max_tokens, until that answer's end; of
  // equally long ones, in the newest. `end`: its last tokens, kMaxMatch of them or all; n_text: how many it has.
  void draft(std::string_view scope, std::span<const TokenId> end, int64_t n_text, int32_t max_tokens, Reader& reader,
             StoreDraft& out);

  int64_t bytes() const;  // what it holds at most
  int64_t held_bytes() const;
  int32_t n_segments_of(std::string_view scope) const;  // for tests
  int32_t segment_tokens() const { return segment_tokens_; }

 private:
  struct Segment {
    std::unique_ptr<SuffixAutomaton> automaton;
    uint64_t generation = 0;  // of its content
  };
  struct Tenant {
    boost::container::static_vector<int32_t, kMaxOfTenant> segments;  // the oldest first; at least one
    uint64_t last_use = 0;
  };
  using Tenants = std::unordered_map<std::string, Tenant>;
  struct Waiting {
    std::string scope;
    std::vector<TokenId> tokens;
    size_t n_read = 0;
    int32_t segment = -1;  // that it is read into
    uint64_t generation = 0;
  };
  bool read(Waiting& waiting, int32_t& n_readable);
  int32_t segment_for(const std::string& scope, size_t n_tokens);
  void free_one(const std::string& scope);
  void drop_oldest(Tenants::iterator tenant);

  int32_t segment_tokens_ = 0;
  size_t max_segments_ = 0;
  std::vector<Segment> segments_;
  std::vector<int32_t> unused_;  // empty ones, with room for all
  Tenants tenants_;
  std::deque<Waiting> waiting_;
  size_t n_waiting_ = 0;  // tokens
  uint64_t use_ = 0;
};

}  // namespace ibid
