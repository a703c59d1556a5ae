#include "engine/schedule/disk_tier.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace ibid {
namespace {

constexpr size_t kMaxFetches = 64;          // sequences that wait at once; others compute
constexpr double kLeastWait = 0.02;         // seconds; computing a block or two is as quick as looking away
constexpr double kEstimatePerToken = 1e-3;  // seconds, before a step was measured: a small model's
constexpr double kFirstRate = 1e9;          // bytes a second, before a read was: worth trying
constexpr double kSmoothing = 0.1;
constexpr double kForgetting = 0.05;  // a disk that was slow once is tried again some day
// Where a state is sought: after each token of so many blocks before the end of what is there, and before them where
// long sequences leave one.
constexpr int32_t kBlocksSought = 64;

}  // namespace

std::string layout_of(const KvStore& kv, const ModelFacts& facts) {
  std::string out;
  for (const KvLayout& layout : kv.layouts()) out += layout.name() + ';';
  if (facts.state_bytes > 0) out += "state " + std::to_string(facts.state_bytes) + ' ' + facts.state_layout + ';';
  return out;
}

DiskTier::DiskTier(BlockCache& cache, Worker& worker, const StepCost& computing, std::unique_ptr<DurableStore> store,
                   int64_t max_bytes)
    : cache_(cache),
      worker_(worker),
      computing_(computing),
      store_(std::move(store)),
      format_(store_->format()),
      has_states_(cache.states().keeps_states()),
      index_(max_bytes),
      bytes_per_second_(kFirstRate) {
  CHECK(has_states_ == (format_.state_bytes > 0));
  DurableStore::KeyFacts facts = store_->key_facts().value_or(DurableStore::KeyFacts{
      layout_of(worker.kv(), worker.facts()), format_.image_bytes(), format_.image_bytes(ImageKind::kState)});
  layout_ = std::move(facts.layout);
  image_bytes_ = {facts.image_bytes, facts.state_image_bytes};
  fetches_.reserve(kMaxFetches);
  ended_.reserve(kMaxFetches);
  done_.reserve(DurableStore::kMaxUnderWay);
  for (const DurableEntry& entry : store_->take_found()) index_.found(entry);
  index_.set_now(store_->opened_at());
  bool fits = false;
  while (const std::optional<DurableKey> oldest = index_.evict_for(0, fits)) store_->remove(*oldest);
}

// ---- keys ----------------------------------------------------------------------------------------------------------

DurableKey DiskTier::key_of(ScopeId scope) const { return durable_key_of_scope(layout_, cache_.tree().spelled(scope)); }

std::span<const TokenId> DiskTier::tokens_of(const Sequence& s, int32_t i_block) const {
  const auto len = static_cast<size_t>(cache_.block_len());
  return std::span(s.tokens).subspan(static_cast<size_t>(i_block) * len, len);
}

// Those after its first n_blocks, up to n_tokens.
std::span<const TokenId> DiskTier::tokens_after(const Sequence& s, int32_t n_blocks, int32_t n_tokens) const {
  const auto begin = static_cast<size_t>(n_blocks * cache_.block_len());
  return std::span(s.tokens).subspan(begin, static_cast<size_t>(n_tokens) - begin);
}

// To keys_: of those of its first n_blocks that are known without a gap, n_known of them and those there.
void DiskTier::list_keys(const Sequence& s, int32_t n_known, int32_t n_blocks) {
  keys_.assign(1, key_of(s.place.scope()));
  for (int32_t i = 0; i < n_blocks; ++i) {
    const DurableKey key = durable_key_of_block(keys_.back(), tokens_of(s, i));
    if (i >= n_known && !index_.is_there(key)) break;
    keys_.push_back(key);
  }
}

// Whether the disk has its state after so many tokens, the whole blocks before being among keys_.
bool DiskTier::has_state(const Sequence& s, int32_t n_tokens) const {
  const int32_t i = (n_tokens - 1) / cache_.block_len();
  return index_.is_there(durable_key_of_state(keys_[static_cast<size_t>(i)], tokens_after(s, i, n_tokens)));
}

// The most tokens, more than n_resumable, after which the disk has its state; 0: there is none.
int32_t DiskTier::n_until_state(const Sequence& s, int32_t n_resumable) const {
  const int32_t len = cache_.block_len();
  const int32_t n_most = std::min(s.n_reusable(), static_cast<int32_t>(keys_.size()) * len);
  const int32_t n_least = std::max(n_resumable, (n_most + len - 1) / len * len - kBlocksSought * len);
  int32_t n = n_most;
  for (; n > n_least; --n) {
    if (has_state(s, n)) return n;
  }
  for (n = n / cache_.state_step() * cache_.state_step(); n > n_resumable; n -= cache_.state_step()) {
    if (has_state(s, n)) return n;
  }
  return 0;
}

// ---- fetching ------------------------------------------------------------------------------------------------------

bool DiskTier::begin(Sequence& s, int32_t n_kept_free, std::vector<BlockCopy>& copies) {
  if (s.request->pictures != nullptr) return false;  // what names its cells is of this process
  if (s.account.was_sought || s.place.has_blocks() || fetches_.size() == kMaxFetches) return false;
  const int32_t n_blocks = s.n_reusable() / cache_.block_len();
  path_.clear();
  cache_.tree().match(s.place.scope(), s.cache_tokens().first(static_cast<size_t>(s.n_reusable())), 0, path_);
  auto n_known = static_cast<int32_t>(path_.size());
  if (n_known >= n_blocks && !has_states_) return false;
  list_keys(s, n_known, n_blocks);
  const DurableKey& known = keys_[static_cast<size_t>(n_known)];
  if (const Fetch* other = same_fetch(s, n_known, known)) {
    s.account.was_sought = false;  // it may need more than the other
    wait_for(s, {.n_wanted = n_known, .asked = known, .until = other->until, .following = other->ticket});
    return true;
  }
  int32_t n_resumable = n_known * cache_.block_len(), n_state = 0;
  int32_t n_wanted = static_cast<int32_t>(keys_.size()) - 1;
  if (has_states_) {
    n_resumable = cache_.n_known(s.place.scope(), s.cache_tokens().first(static_cast<size_t>(s.n_reusable())));
    n_state = n_until_state(s, n_resumable);
    n_wanted = std::max(0, n_state - 1) / cache_.block_len();
    n_known = std::min(n_known, n_wanted);
  }
  const int32_t n_end = has_states_ ? std::max(n_state, n_resumable) : n_wanted * cache_.block_len();
  const int64_t bytes =
      (n_wanted - n_known) * bytes_of(ImageKind::kBlock) + (n_state > 0 ? bytes_of(ImageKind::kState) : 0);
  const double computing = seconds_to_compute(n_resumable, n_end);
  s.account.was_sought = n_end == n_resumable || !is_worth(bytes, computing);
  if (s.account.was_sought) return false;
  const auto known_tokens = std::span(s.tokens).first(static_cast<size_t>(n_known * cache_.block_len()));
  s.place.match_blocks(cache_, known_tokens, copies);
  if (s.place.n_published() != n_known || !has_room(s, n_kept_free)) {
    s.place.drop(cache_);
    return false;
  }
  s.account.was_sought = true;
  wait_for(s, {.n_wanted = n_wanted,
               .n_state = n_state,
               .asked = keys_[static_cast<size_t>(n_known)],
               .use = index_.next_use(),
               .until = now_ + std::max(kLeastWait, computing)});
  ++stats_.n_fetches;
  while (ask_one(fetches_.back())) {
  }
  return true;
}

// The fetch of a sequence whose whole blocks until `asked` are there.
void DiskTier::wait_for(Sequence& s, const Fetch& fetch) {
  s.ledger().pass(now_, s.account.waits_as());
  s.state = SequenceState::kFetching;
  fetches_.push_back(fetch);
  Fetch& f = fetches_.back();
  f.sequence = &s;
  f.ticket = next_ticket_++;
  f.n_asked = f.following != 0 ? f.n_wanted : s.place.n_published();
  f.arrived = f.asked;
}

// Seconds to compute the tokens [n_known, n_tokens) of a sequence in steps of their own.
double DiskTier::seconds_to_compute(int32_t n_known, int32_t n_tokens) const {
  if (!computing_.is_known()) return (n_tokens - n_known) * kEstimatePerToken;
  StepLoad load;
  load.add_prompt(n_known, n_tokens - n_known, 0);
  return computing_.seconds(load);
}

bool DiskTier::is_worth(int64_t bytes, double computing) {
  if (static_cast<double>(bytes) / bytes_per_second_ < computing) return true;
  bytes_per_second_ *= 1 + kForgetting;
  ++stats_.n_not_worth;
  return false;
}

// As for its admission: what is fetched must not be thrown away again.
bool DiskTier::has_room(const Sequence& s, int32_t n_kept_free) const {
  return (!has_states_ || cache_.states().n_available() > 0) &&
         cache_.n_blocks_missing(s.place.blocks(), s.n_computed(), s.n_tokens() + 1) + n_kept_free <=
             cache_.pool().n_available();
}

// Who waits for the very next block that this one lacks, or for the state after what both have.
const DiskTier::Fetch* DiskTier::same_fetch(const Sequence& s, int32_t n_known, const DurableKey& key) const {
  const auto is_same = [&](const Fetch& f) {
    if (f.following != 0 || f.arrived != key || n_known > f.n_wanted || (n_known == f.n_wanted && f.n_state == 0))
      return false;
    const int32_t n = n_known < f.n_wanted ? (n_known + 1) * cache_.block_len() : f.n_state;
    return n <= s.n_reusable() &&
           std::ranges::equal(tokens_after(*f.sequence, n_known, n), tokens_after(s, n_known, n));
  };
  const auto it = std::ranges::find_if(fetches_, is_same);
  return it == fetches_.end() ? nullptr : &*it;
}

bool DiskTier::ask_one(Fetch& f) {
  const bool is_state = f.n_asked == f.n_wanted && f.n_state > 0;
  if (f.is_over || (is_state ? f.has_asked_state : f.n_asked >= f.n_wanted)) return false;
  const DurableKey key = is_state ? durable_key_of_state(f.asked, tokens_after(*f.sequence, f.n_asked, f.n_state))
                                  : durable_key_of_block(f.asked, tokens_of(*f.sequence, f.n_asked));
  const int64_t age = DurableIndex::age_of(f.use, f.n_asked);
  if (!index_.is_there(key)) {  // it had to go meanwhile
    f.is_over = f.n_state > 0;  // without its state the rest is of no use
    f.n_wanted = f.n_asked;
    return false;
  }
  if (!store_->read(key, age, f.ticket, is_state ? ImageKind::kState : ImageKind::kBlock)) return false;
  index_.touch(key, age, kFar);
  if (is_state) return f.has_asked_state = true;
  f.asked = key;
  ++f.n_asked;
  return true;
}

// One in turn, so that a short prompt does not wait for all of a long one.
void DiskTier::ask() {
  for (bool was_asked = true; was_asked;) {
    was_asked = false;
    for (Fetch& f : fetches_) was_asked |= ask_one(f);
  }
}

void DiskTier::settle(double now, int32_t n_kept_free) {
  now_ = now;
  ended_.clear();
  done_.clear();
  store_->collect(done_);
  for (const DurableStore::Done& done : done_) take(done, n_kept_free);
  end_fetches();
  ask();
}

void DiskTier::take(const DurableStore::Done& done, int32_t n_kept_free) {
  count(done);
  if (!done.is_read) {
    try {
      done.outcome == BlockIo::kDone ? index_.written(done.key) : index_.remove(done.key);
    } catch (const std::bad_alloc&) {
      index_.remove(done.key);
      store_->remove(done.key);
    }
    return;
  }
  if (done.outcome != BlockIo::kDone) index_.remove(done.key);
  if (done.outcome == BlockIo::kFailed) store_->remove(done.key);  // it may be there still
  const auto fetch = std::ranges::find(fetches_, done.ticket, &Fetch::ticket);
  if (fetch != fetches_.end() && !fetch->is_over) fetch->is_over = !arrive(*fetch, done, n_kept_free);
  store_->release(done.image);
}

// False: it ends here.
bool DiskTier::arrive(Fetch& f, const DurableStore::Done& done, int32_t n_kept_free) {
  if (done.outcome != BlockIo::kDone) return false;
  Sequence& s = *f.sequence;
  const auto i = s.n_computed() / cache_.block_len();
  const bool is_state = done.kind == ImageKind::kState;
  const bool is_asked = is_state ? i == f.n_wanted && f.has_asked_state && s.n_computed() < f.n_state : i < f.n_asked;
  // The key implies this; these are the bytes about to be used. A record may contain more than was asked for.
  if (!is_asked || parent_of_image(done.image) != f.arrived ||
      !std::ranges::equal(tokens_of_image(done.image), is_state ? tokens_after(s, i, f.n_state) : tokens_of(s, i))) {
    ++stats_.n_foreign;
    return false;
  }
  const std::span<std::byte> payload = payload_of(format_, done.image);
  if (cache_.pool().n_available() <= n_kept_free) return false;
  if (!(is_state ? import_state(s, f.n_state, payload) : import(s, payload))) return false;
  if (!is_state) f.arrived = done.key;
  ++(is_state ? stats_.n_states_fetched : stats_.n_fetched);
  return true;
}

// Room for its tokens up to n_tokens, and for the state after them.
bool DiskTier::reserve(Sequence& s, int32_t n_tokens, bool has_state) {
  copies_.clear();
  bool has_room = false;
  try {
    has_room =
        s.place.reserve(cache_, n_tokens, copies_) && (!has_state || s.place.reserve_own_state(cache_, n_tokens));
  } catch (const std::bad_alloc&) {
  }
  if (!copies_.empty() || !cache_.state_copies().empty()) {  // what had to go for it goes down a tier first
    worker_.wait(worker_.launch({.copies = copies_, .state_copies = cache_.state_copies()}));
    cache_.transferred(copies_);
  }
  return has_room;
}

bool DiskTier::import_state(Sequence& s, int32_t n_tokens, std::span<std::byte> payload) {
  if (!reserve(s, n_tokens, true)) return false;
  const auto n_block = static_cast<size_t>(format_.payload_bytes);
  worker_.import_block(s.place.blocks()[static_cast<size_t>(s.place.n_published())], payload.first(n_block));
  worker_.import_state(state_after(s.place.states(), n_tokens), payload.subspan(n_block));
  s.place.advance(n_tokens - s.n_computed());
  s.place.publish(cache_, s.tokens);
  s.place.hold_state(cache_, s.tokens, n_tokens);
  return true;
}

bool DiskTier::import(Sequence& s, std::span<std::byte> payload) {
  if (!reserve(s, s.n_computed() + cache_.block_len(), false)) return false;
  worker_.import_block(s.place.blocks()[static_cast<size_t>(s.place.n_published())], payload);
  s.place.advance(cache_.block_len());
  s.place.publish(cache_, s.tokens);
  return true;
}

void DiskTier::count(const DurableStore::Done& done) {
  const int64_t bytes = bytes_of(done.kind);
  stats_.n_corrupt += done.outcome == BlockIo::kCorrupt;
  stats_.n_foreign += done.outcome == BlockIo::kForeign;
  stats_.n_missing += done.outcome == BlockIo::kMissing;
  if (done.outcome == BlockIo::kDone) {
    (done.is_read ? stats_.bytes_read : stats_.bytes_written) += bytes;
  } else if (!done.is_read) {
    (done.outcome == BlockIo::kNoSpace ? stats_.n_no_space : stats_.n_failed_writes) += 1;
  } else if (done.outcome == BlockIo::kFailed) {
    ++stats_.n_failed_reads;
  }
  if (!done.is_read || done.seconds <= 0) return;
  bytes_per_second_ += kSmoothing * (static_cast<double>(bytes) / done.seconds - bytes_per_second_);
}

bool DiskTier::is_complete(const Fetch& f) const {
  return f.n_state > 0 ? f.sequence->n_computed() == f.n_state : f.sequence->place.n_published() >= f.n_wanted;
}

bool DiskTier::is_over(const Fetch& f) const {
  if (f.following != 0) return !std::ranges::any_of(fetches_, [&](const Fetch& o) { return o.ticket == f.following; });
  return f.is_over || is_complete(f) || now_ >= f.until;
}

// Those after another one stand after it here too.
void DiskTier::end_fetches() {
  for (size_t i = 0; i < fetches_.size();) {
    const Fetch& f = fetches_[i];
    if (!is_over(f)) {
      ++i;
      continue;
    }
    if (f.following == 0 && !is_complete(f)) {
      ++stats_.n_abandoned;
      // It cannot go on after what has come, which others still find.
      if (f.n_state > 0) f.sequence->place.drop(cache_);
    }
    ended_.push_back(f.sequence);
    fetches_.erase(fetches_.begin() + static_cast<ptrdiff_t>(i));
  }
}

void DiskTier::forget(const Sequence& s) {
  std::erase_if(fetches_, [&s](const Fetch& f) { return f.sequence == &s; });
}

Sequence* DiskTier::give_way() {
  for (size_t i = fetches_.size(); i-- > 0;) {
    Sequence* s = fetches_[i].sequence;
    if (!s->place.has_blocks()) continue;
    ++stats_.n_abandoned;
    fetches_.erase(fetches_.begin() + static_cast<ptrdiff_t>(i));
    return s;
  }
  return nullptr;
}

void DiskTier::tell(DiskStats& stats) const {
  stats = stats_;
  stats.n_blocks = index_.n_entries();
  stats.bytes = index_.bytes();
}

}  // namespace ibid
