#include "engine/schedule/disk_tier.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"

namespace ibid {
namespace {

constexpr size_t kMaxFetches = 64;          // sequences that wait at once; others compute
constexpr int64_t kFar = 1'000'000'000;     // the store updates the age of a file that was this much older
constexpr double kLeastWait = 0.02;         // seconds; computing a block or two is as quick as looking away
constexpr double kEstimatePerToken = 1e-3;  // seconds, before a step was measured: a small model's
constexpr double kFirstRate = 1e9;          // bytes a second, before a read was: worth trying
constexpr double kSmoothing = 0.1;
constexpr double kForgetting = 0.05;  // a disk that was slow once is tried again some day

}  // namespace

std::string layout_of(const KvStore& kv) {
  std::string out;
  for (const KvLayout& layout : kv.layouts()) out += layout.name() + ';';
  return out;
}

DiskTier::DiskTier(BlockCache& cache, Worker& worker, const StepCost& computing, std::unique_ptr<DurableStore> store,
                   int64_t max_bytes)
    : cache_(cache),
      worker_(worker),
      computing_(computing),
      store_(std::move(store)),
      format_(store_->format()),
      index_(max_bytes),
      bytes_per_second_(kFirstRate) {
  DurableStore::Told told = store_->told().value_or(DurableStore::Told{layout_of(worker.kv()), format_.image_bytes()});
  layout_ = std::move(told.layout);
  image_bytes_ = told.image_bytes;
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

// How many of its first n_blocks are known without a gap: n_known of them, whose last has this key, and those there.
int32_t DiskTier::n_there(const Sequence& s, int32_t n_known, int32_t n_blocks, DurableKey key) const {
  for (; n_known < n_blocks; ++n_known) {
    key = durable_key_of_block(key, tokens_of(s, n_known));
    if (!index_.is_there(key)) break;
  }
  return n_known;
}

// ---- fetching ------------------------------------------------------------------------------------------------------

bool DiskTier::begin(Sequence& s, int32_t n_kept_free, std::vector<BlockCopy>& copies) {
  if (s.account.was_sought || s.place.has_blocks() || fetches_.size() == kMaxFetches) return false;
  const int32_t n_blocks = s.n_reusable() / cache_.block_len();
  path_.clear();
  cache_.tree().match(s.place.scope(), std::span(s.tokens).first(static_cast<size_t>(s.n_reusable())), 0, path_);
  const auto n_known = static_cast<int32_t>(path_.size());
  if (n_known >= n_blocks) return false;
  DurableKey key = key_of(s.place.scope());
  for (int32_t i = 0; i < n_known; ++i) key = durable_key_of_block(key, tokens_of(s, i));
  if (const Fetch* other = same_fetch(s, n_known, key)) {
    s.account.was_sought = false;  // it may need more than the other
    s.ledger().pass(now_, s.account.waits_as());
    s.state = SequenceState::kFetching;
    fetches_.push_back({&s, next_ticket_++, n_known, n_known, key, key, 0, other->until, other->ticket});
    return true;
  }
  const int32_t n_wanted = n_there(s, n_known, n_blocks, key);
  const double computing = seconds_to_compute(n_known, n_wanted);
  s.account.was_sought = n_wanted == n_known || !is_worth(n_wanted - n_known, computing);
  if (s.account.was_sought) return false;
  s.place.match(cache_, std::span(s.tokens).first(static_cast<size_t>(n_known * cache_.block_len())), copies);
  if (s.place.n_published() != n_known || !has_room(s, n_kept_free)) {
    s.place.drop(cache_);
    return false;
  }
  s.account.was_sought = true;
  s.ledger().pass(now_, s.account.waits_as());
  s.state = SequenceState::kFetching;
  fetches_.push_back(
      {&s, next_ticket_++, n_wanted, n_known, key, key, index_.next_use(), now_ + std::max(kLeastWait, computing), 0});
  ++stats_.n_fetches;
  while (ask_one(fetches_.back())) {
  }
  return true;
}

// Seconds to compute the blocks [n_known, n_blocks) of a sequence in steps of their own.
double DiskTier::seconds_to_compute(int32_t n_known, int32_t n_blocks) const {
  const int32_t n_tokens = (n_blocks - n_known) * cache_.block_len();
  if (!computing_.is_known()) return n_tokens * kEstimatePerToken;
  StepLoad load;
  load.add_prompt(n_known * cache_.block_len(), n_tokens, 0);
  return computing_.seconds(load);
}

bool DiskTier::is_worth(int32_t n_blocks, double computing) {
  if (static_cast<double>(n_blocks * image_bytes_) / bytes_per_second_ < computing) return true;
  bytes_per_second_ *= 1 + kForgetting;
  ++stats_.n_not_worth;
  return false;
}

// As for its admission: what is fetched must not be thrown away again.
bool DiskTier::has_room(const Sequence& s, int32_t n_kept_free) const {
  return cache_.n_blocks_missing(s.place.blocks(), s.n_computed(), s.n_tokens() + 1) + n_kept_free <=
         cache_.pool().n_available();
}

// Who waits for the very next block that this one lacks.
const DiskTier::Fetch* DiskTier::same_fetch(const Sequence& s, int32_t n_known, const DurableKey& key) const {
  const auto is_same = [&](const Fetch& f) {
    return f.following == 0 && f.arrived == key && n_known < f.n_wanted &&
           std::ranges::equal(tokens_of(*f.sequence, n_known), tokens_of(s, n_known));
  };
  const auto it = std::ranges::find_if(fetches_, is_same);
  return it == fetches_.end() ? nullptr : &*it;
}

bool DiskTier::ask_one(Fetch& f) {
  if (f.is_over || f.n_asked >= f.n_wanted) return false;
  const DurableKey key = durable_key_of_block(f.asked, tokens_of(*f.sequence, f.n_asked));
  const int64_t age = DurableIndex::age_of(f.use, f.n_asked);
  if (!index_.is_there(key)) {  // it had to go meanwhile
    f.n_wanted = f.n_asked;
    return false;
  }
  if (!store_->read(key, age, f.ticket)) return false;
  index_.touch(key, age, kFar);
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
  const auto i = static_cast<int32_t>(s.n_computed() / cache_.block_len());
  // The key implies this; these are the bytes about to be used. A record may contain more than was asked for.
  if (i >= f.n_asked || parent_of_image(done.image) != f.arrived ||
      !std::ranges::equal(tokens_of_image(format_, done.image), tokens_of(s, i))) {
    ++stats_.n_foreign;
    return false;
  }
  if (cache_.pool().n_available() <= n_kept_free || !import(s, payload_of(format_, done.image))) return false;
  f.arrived = done.key;
  ++stats_.n_fetched;
  return true;
}

bool DiskTier::import(Sequence& s, std::span<std::byte> payload) {
  copies_.clear();
  bool has_block = false;
  try {
    has_block = s.place.reserve(cache_, s.n_computed() + cache_.block_len(), copies_);
  } catch (const std::bad_alloc&) {
  }
  if (!copies_.empty()) {  // what had to go for it goes down a tier first
    worker_.wait(worker_.launch({.copies = copies_}));
    cache_.transferred(copies_);
  }
  if (!has_block) return false;
  worker_.import_block(s.place.blocks()[static_cast<size_t>(s.place.n_published())], payload);
  s.place.advance(cache_.block_len());
  s.place.publish(cache_, s.tokens);
  return true;
}

void DiskTier::count(const DurableStore::Done& done) {
  const auto bytes = static_cast<double>(image_bytes_);
  stats_.n_corrupt += done.outcome == BlockIo::kCorrupt;
  stats_.n_foreign += done.outcome == BlockIo::kForeign;
  stats_.n_missing += done.outcome == BlockIo::kMissing;
  if (done.outcome == BlockIo::kDone) {
    (done.is_read ? stats_.bytes_read : stats_.bytes_written) += image_bytes_;
  } else if (!done.is_read) {
    (done.outcome == BlockIo::kNoSpace ? stats_.n_no_space : stats_.n_failed_writes) += 1;
  } else if (done.outcome == BlockIo::kFailed) {
    ++stats_.n_failed_reads;
  }
  if (!done.is_read || done.seconds <= 0) return;
  bytes_per_second_ += kSmoothing * (bytes / done.seconds - bytes_per_second_);
}

bool DiskTier::is_over(const Fetch& f) const {
  if (f.following != 0) return !std::ranges::any_of(fetches_, [&](const Fetch& o) { return o.ticket == f.following; });
  return f.is_over || f.sequence->place.n_published() >= f.n_wanted || now_ >= f.until;
}

// Those after another one stand after it here too.
void DiskTier::end_fetches() {
  for (size_t i = 0; i < fetches_.size();) {
    const Fetch& f = fetches_[i];
    if (!is_over(f)) {
      ++i;
      continue;
    }
    stats_.n_abandoned += f.following == 0 && f.sequence->place.n_published() < f.n_wanted;
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

// ---- saving --------------------------------------------------------------------------------------------------------

void DiskTier::save(Sequence& s) {
  const DurableChain& chain = s.place.durable();
  while (chain.n_blocks < s.place.n_published()) {
    const int32_t i = chain.n_blocks;
    if (i == 0) s.place.begin_chain(key_of(s.place.scope()), index_.next_use());
    const DurableKey key = durable_key_of_block(chain.last, tokens_of(s, i));
    const int64_t age = DurableIndex::age_of(chain.use, i);
    if (index_.contains(key)) {
      if (index_.touch(key, age, kFar)) store_->touch(key, age);
    } else if (s.place.blocks()[static_cast<size_t>(i)] != BlockId::kNone && !write(s, i, key, chain.last)) {
      return;
    }
    s.place.extend_chain(key);
  }
}

// False: there is no room for it now.
bool DiskTier::write(const Sequence& s, int32_t i, const DurableKey& key, const DurableKey& parent) {
  bool fits = false;
  while (const std::optional<DurableKey> oldest = index_.evict_for(image_bytes_, fits)) {
    store_->remove(*oldest);
    ++stats_.n_evicted;
  }
  const int64_t age = DurableIndex::age_of(s.place.durable().use, i);
  try {
    if (fits) index_.add({key, image_bytes_, age});
  } catch (const std::bad_alloc&) {
    fits = false;
  }
  if (!fits) return false;
  const std::span<std::byte> image = store_->image_to_write();
  if (!image.empty()) {
    begin_image(format_, image, key, parent, tokens_of(s, i));
    worker_.export_block(s.place.blocks()[static_cast<size_t>(i)], payload_of(format_, image));
    if (store_->write(key, age, image)) return true;
  }
  index_.remove(key);
  return false;
}

void DiskTier::leave(const Sequence& s) {
  stats_.n_unsaved += std::max(0, s.place.n_published() - s.place.durable().n_blocks);
}

void DiskTier::tell(DiskStats& stats) const {
  stats = stats_;
  stats.n_blocks = index_.n_entries();
  stats.bytes = index_.bytes();
}

}  // namespace ibid
