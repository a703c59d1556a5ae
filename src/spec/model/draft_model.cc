#include "spec/model/draft_model.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "spec/sequence_places.h"

namespace ibid {
namespace {

constexpr int32_t kNearly =
    16;  // missing tokens up to this number are computed with the next draft, whatever they cost
constexpr double kPiecePart = 0.25;  // share of a step's time for pieces of sequences that lag further
constexpr int32_t kAnswerLen = 256;  // expected remaining tokens of an answer, unless its limit is lower
constexpr int32_t kNoEnd = std::numeric_limits<int32_t>::max();

}  // namespace

int32_t DraftModel::longest_read(const DraftModelOptions& options, int32_t context_len) {
  if (options.n_window == 0) return context_len;
  return static_cast<int32_t>(
      std::min<int64_t>(context_len, options.n_sink + int64_t{2} * options.n_window + kMaxDrafts));
}

Status DraftModel::check(const DraftModelOptions& options, int32_t context_len) {
  if (options.n_window == 0 || longest_read(options, kNoEnd) <= context_len) return {};
  return invalid("A window of " + std::to_string(options.n_sink) + " and up to twice " +
                     std::to_string(options.n_window) + " tokens with " + std::to_string(kMaxDrafts) +
                     " drafts after them is more than the draft model's context of " + std::to_string(context_len) +
                     ".",
                 "spec");
}

Result<std::unique_ptr<DraftModel>> DraftModel::create(std::unique_ptr<ForwardPass> model, Stream& stream,
                                                       const DraftModelOptions& options, const Clock& clock) {
  const ModelFacts& facts = model->facts();
  if (facts.state_bytes > 0) {
    return unsupported(
        "A draft model with recurrent layers goes on only where its state was kept, and drafts fall back "
        "to any token; expected a model without them.",
        "spec");
  }
  const int64_t block_bytes = KvStore::block_bytes(facts, options.kv_dtype, options.block_len);
  const int64_t n_blocks = options.kv_bytes / block_bytes;
  if (n_blocks < 1 || n_blocks > std::numeric_limits<int32_t>::max() / options.block_len) {
    return invalid("The draft model's keys and values in " + std::to_string(options.kv_bytes) +
                       " bytes are no whole block or too many.",
                   "spec");
  }
  TRY(check(options, facts.context_len));
  ASSIGN_OR_RETURN(std::unique_ptr<Worker> worker, Worker::create(std::move(model), stream,
                                                                  {.kv_dtype = options.kv_dtype,
                                                                   .block_len = options.block_len,
                                                                   .n_blocks = static_cast<int32_t>(n_blocks),
                                                                   .step_tokens = options.step_tokens,
                                                                   .max_rows = options.max_sequences}));
  return std::unique_ptr<DraftModel>(new DraftModel(std::move(worker), options, clock, static_cast<int32_t>(n_blocks)));
}

DraftModel::DraftModel(std::unique_ptr<Worker> worker, const DraftModelOptions& options, const Clock& clock,
                       int32_t n_blocks)
    : worker_(std::move(worker)),
      options_(options),
      clock_(clock),
      cache_({.n_blocks = n_blocks, .block_len = options.block_len, .prefix_cache = options.prefix_cache}),
      seqs_(static_cast<size_t>(options.max_sequences)),
      drafting_({.vocab_size = options.vocab_size,
                 .context_len = options.n_window > 0 ? kNoEnd : worker_->facts().context_len,
                 .end_of_generation = options.end_of_generation,
                 .always = options.always}),
      arrays_(options.block_len, {.n_tokens = static_cast<size_t>(options.step_tokens),
                                  .n_sequences = seqs_.size(),
                                  .n_rows = seqs_.size(),
                                  .n_blocks = seqs_.size() * static_cast<size_t>(cache_.n_blocks_for(longest_read(
                                                                 options, worker_->facts().context_len)))}) {
  lanes_.reserve(seqs_.size());
}

DraftModel::~DraftModel() = default;

void DraftModel::begin_step(const StepPrices& prices) {
  drafting_.begin_step(prices);
  reads_pieces_ = false;
}

void DraftModel::propose(const ProposalInput& input, Drafts& drafts) {
  const Proposal one{input, &drafts};
  propose_all({&one, 1});
}

void DraftModel::propose_all(std::span<const Proposal> proposals) {
  drafting_.propose_all(
      proposals, lanes_, [&] { list_lanes(proposals); },
      [&](int32_t i) {
        if (i == 0) share_first_pass();
        return pass();
      },
      [&] { drop_all(); });
}

// ---- sequences ------------------------------------------------------------------------------------------------------

// Returns null if all entries are taken.
DraftModel::Seq* DraftModel::seq_of(const ProposalInput& input) {
  Seq* unused = place_of(seqs_, input.sequence);
  if (unused == nullptr || unused->sequence == input.sequence) return unused;
  std::string salt = input.scope.empty() ? std::to_string(input.sequence) : std::string(input.scope);
  unused->scope = cache_.tree().hold({.salt = std::move(salt)});
  drafting_.begin_sequence(*unused, input);
  cut(*unused);
  // The last token is always computed: its row is needed.
  const auto n_known = unused->n_left_out > 0 ? static_cast<size_t>(options_.n_sink) : unused->tokens.size() - 1;
  unused->n_computed = cache_.match(unused->scope, std::span(unused->tokens).first(n_known), unused->blocks, copies_);
  unused->n_published = unused->n_computed / options_.block_len;
  unused->written.assign(unused->tokens.begin(), unused->tokens.begin() + unused->n_computed);
  return unused;
}

void DraftModel::drop(Seq& seq) {
  cache_.release(seq.blocks);
  if (seq.scope != ScopeId::kNone) cache_.tree().let_go(std::exchange(seq.scope, ScopeId::kNone));
  seq.tokens.clear(), seq.sureness.clear(), seq.written.clear();
  seq.sequence = -1;
  seq.sequence_len = seq.n_left_out = seq.n_computed = seq.n_published = 0;
}

void DraftModel::drop_all() {
  worker_->wait(worker_->launch({.copies = copies_}));
  cache_.transferred(copies_);
  copies_.clear();
  for (Seq& seq : seqs_) drop(seq);
}

void DraftModel::forget(int64_t sequence) {
  for (Seq& seq : seqs_) {
    if (seq.sequence == sequence) drop(seq);
  }
}

// Updates the sequence; keys and values stay as far as the drafts agree with it.
void DraftModel::follow(Seq& seq, const ProposalInput& input) {
  const auto n = static_cast<int32_t>(input.prompt.size() + input.answer.size());
  const int32_t n_agreed = drafting_.follow(seq, input);
  const int32_t n_kept = std::min(n_agreed, n - 1);
  seq.n_computed = std::min(seq.n_computed, n_kept - seq.n_left_out);
  cache_.truncate(seq.blocks, seq.n_computed);
  if (seq.n_left_out == 0)
    seq.n_published = cache_.publish(seq.scope, seq.tokens, seq.n_computed, seq.n_published, seq.blocks);
  cut(seq);
}

// When the window holds twice n_window tokens, it restarts: the keys after the sink then have other positions.
void DraftModel::cut(Seq& seq) {
  const bool is_full = seq.sequence_len - seq.n_left_out > int64_t{options_.n_sink} + 2 * int64_t{options_.n_window};
  if (options_.n_window == 0 || !is_full) return;
  seq.n_left_out = seq.sequence_len - options_.n_sink - options_.n_window;
  seq.n_computed = std::min(seq.n_computed, options_.n_sink);
  cache_.truncate(seq.blocks, seq.n_computed);
}

// Checks: the tokens are the target's sequence at the last update, followed by drafts; all keys belong to these tokens.
void DraftModel::self_check(const HeldSequence& held) const {
  const Seq* seq = held_place(seqs_, held.sequence);
  if (seq == nullptr) return;
  const auto sequence_len = static_cast<size_t>(seq->sequence_len);
  CHECK(sequence_len <= held.tokens.size() &&
            std::equal(held.tokens.begin(), held.tokens.begin() + seq->sequence_len, seq->tokens.begin()),
        "a draft model holds another sequence than the target");
  CHECK(seq->n_computed + seq->n_left_out <= static_cast<int32_t>(seq->tokens.size()),
        "a draft model has keys of a token that is not in its sequence");
  CHECK(seq->n_computed <= static_cast<int32_t>(seq->written.size()), "a draft model counts keys that it has not");
  for (int32_t i = 0; i < seq->n_computed; ++i) {
    CHECK(seq->written[static_cast<size_t>(i)] == token_at(*seq, i), "a draft model has keys of another token");
  }
  CHECK(seq->n_left_out > 0 || seq->n_published <= std::min(seq->n_computed, seq->sequence_len) / options_.block_len,
        "a draft model has published a block with a draft");
  CHECK(static_cast<int32_t>(seq->blocks.size()) == cache_.n_blocks_for(seq->n_computed),
        "a draft model keeps blocks without keys");
}

// ---- drafting ------------------------------------------------------------------------------------------------------

void DraftModel::list_lanes(std::span<const Proposal> proposals) {
  lanes_.clear();
  for (const Proposal& p : proposals) {
    const auto n = static_cast<int32_t>(p.input.prompt.size() + p.input.answer.size());
    if (p.input.sampler == nullptr || (options_.n_window == 0 && n > worker_->facts().context_len)) continue;
    Seq* seq = seq_of(p.input);
    if (seq == nullptr) continue;
    follow(*seq, p.input);
    if (!drafting_.may_draft(*seq, p)) continue;
    const Lane lane{.seq = seq, .proposal = &p, .is_pinned = drafting_.is_pinned(p.input)};
    if (is_worth_reading(lane)) lanes_.push_back(lane);
  }
}

// Whether reading the missing tokens of a sequence pays off within the expected rest of its answer.
bool DraftModel::is_worth_reading(const Lane& lane) const {
  const int32_t n = n_missing(seq_of(lane));
  if (lane.is_pinned || n <= kNearly || !drafting_.is_priced()) return true;
  const StepPrices& prices = drafting_.prices();
  const PassCost& cost = drafting_.cost();
  DraftChoice choice(prices.n_decodes, prices.step);
  const double rate = lane.seq->confidence.of_next(), more = cost.seconds(1) + prices.row;
  double likely = rate;
  for (int32_t i = 0; i < lane.proposal->input.max_drafts && choice.raises(likely, more); ++i, likely *= rate)
    choice.take(likely, more);
  const double n_more = choice.n_tokens() - prices.n_decodes;
  const double saved = prices.step * choice.n_tokens() / prices.n_decodes - choice.seconds();
  double n_left = std::min(lane.proposal->input.n_left, kAnswerLen);
  if (options_.n_window > 0)
    n_left = std::min(n_left, static_cast<double>(options_.n_window));  // then the window restarts
  const double to_read = cost.seconds(n) - cost.seconds(0);
  return to_read <= saved * n_left / (1 + n_more);
}

// Sets the tokens that each lane computes with its first draft; lanes that lag further share the remaining time in
// pieces.
void DraftModel::share_first_pass() {
  int32_t n = 0, most = options_.step_tokens;
  const auto give = [&](Lane& lane, int32_t n_most) {
    lane.n_tokens = std::max(0, std::min(n_missing(seq_of(lane)), n_most - n));
    n += lane.n_tokens;
  };
  const auto is_near = [](const Lane& lane) { return n_missing(seq_of(lane)) <= kNearly; };
  for (Lane& lane : lanes_) {
    if (is_near(lane)) give(lane, most);
  }
  const StepPrices& prices = drafting_.prices();
  const double seconds = std::min(kPiecePart * prices.step, prices.limit - prices.step - drafting_.spent());
  const double n_within = drafting_.is_priced() ? std::min(1e6, drafting_.cost().tokens_within(seconds)) : 0;
  most = std::min(most, n + std::max(kNearly, static_cast<int32_t>(n_within)));
  reads_pieces_ = !std::ranges::all_of(lanes_, is_near);
  for (Lane& lane : lanes_) {
    if (!is_near(lane)) give(lane, lane.is_pinned ? options_.step_tokens : most);
  }
}

// ---- passes --------------------------------------------------------------------------------------------------------

// Measured in advance: the first pass pages memory in, and a cost learned from that would prevent all further passes.
void DraftModel::measure() {
  const int32_t most = std::min({kNearly, options_.step_tokens, worker_->facts().context_len});
  for (int32_t i = -2; i < 4; ++i) {
    const int32_t n = i % 2 == 0 ? 1 : most;
    Seq seq;
    seq.tokens.assign(static_cast<size_t>(n), TokenId{0});
    lanes_.assign(1, {.seq = &seq, .n_tokens = n});
    const double begin = clock_.now();
    if (reserve() > 0) compute();
    if (i >= 0) drafting_.passed(n, clock_.now() - begin);
    lanes_.clear();
    cache_.release(seq.blocks);
  }
}

// Reserves blocks for the lanes' tokens; drops lanes without blocks. Returns the number of remaining tokens.
int32_t DraftModel::reserve() {
  int32_t n_tokens = 0;
  std::erase_if(lanes_, [&](Lane& lane) {
    Seq& seq = seq_of(lane);
    const bool has_blocks =
        lane.n_tokens > 0 && cache_.reserve(seq.blocks, seq.n_computed, seq.n_computed + lane.n_tokens, copies_);
    if (has_blocks) n_tokens += lane.n_tokens;
    return !has_blocks;
  });
  return n_tokens;
}

// Computes the lanes' tokens; returns their rows of logits, valid until the next pass.
std::span<const float> DraftModel::compute() {
  build();
  const ForwardBatch batch = arrays_.batch();
  const std::span<const float> logits = worker_->wait(worker_->launch({.copies = copies_, .batch = &batch})).logits;
  cache_.transferred(copies_);
  copies_.clear();
  for (Lane& lane : lanes_) seq_of(lane).n_computed += lane.n_tokens;
  return logits;
}

// Computes the lanes' tokens and samples for lanes that are complete. Returns false if no lane got blocks.
bool DraftModel::pass() {
  const int32_t n_tokens = reserve();
  if (n_tokens == 0) return false;
  const double begin = clock_.now();
  const std::span<const float> logits = compute();
  drafting_.draw(lanes_, logits, static_cast<size_t>(worker_->facts().vocab_size), worker_->stream().host());
  drafting_.passed(n_tokens, clock_.now() - begin);
  n_computed_tokens_ += n_tokens;
  ++n_passes_;
  return true;
}

void DraftModel::build() {
  arrays_.clear();
  for (Lane& lane : lanes_) {
    Seq& seq = seq_of(lane);
    const int32_t end = seq.n_computed + lane.n_tokens;
    seq.written.resize(static_cast<size_t>(end));
    for (int32_t i = seq.n_computed; i < end; ++i) {
      const TokenId token = token_at(seq, i);
      arrays_.add(token, i, slot_in(seq.blocks, options_.block_len, i));
      seq.written[static_cast<size_t>(i)] = token;
    }
    const bool is_wanted = end + seq.n_left_out >= static_cast<int32_t>(seq.tokens.size());
    lane.row = is_wanted ? arrays_.want_last() : -1;
    arrays_.add_blocks(std::span(seq.blocks).first(static_cast<size_t>(cache_.n_blocks_for(end))));
    arrays_.end_sequence();
  }
}

}  // namespace ibid
