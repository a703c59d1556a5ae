#include "sample/grammar/states.h"

#include <algorithm>
#include <bit>
#include <tuple>

#include "base/check.h"

namespace ibid::grammar {
namespace {

uint64_t hash_of(std::span<const Item> items) {
  uint64_t h = items.size();
  for (const Item& i : items) {
    h = (h ^ (static_cast<uint64_t>(i.node) << 32 | i.origin)) * 0x9E3779B97F4A7C15u;
    h = (h ^ (h >> 29) ^ i.as) * 0xD6E8FEB86659FD93u;
    h ^= h >> 32;
  }
  return h;
}

}  // namespace

bool ItemList::add(const Item& item) {
  if (items_.size() < kFew) {
    if (std::find(items_.begin(), items_.end(), item) != items_.end()) return false;
    items_.push_back(item);
    return true;
  }
  if (n_hashed_ == 0 || 2 * items_.size() >= slots_.size()) {
    const size_t room = std::max<size_t>(4 * kFew, std::bit_ceil(4 * items_.size()));
    slots_.assign(std::max(room, slots_.size()), 0);
    n_hashed_ = 0;
  }
  auto place = [&](const Item& i) {
    size_t at = hash_of({&i, 1}) & (slots_.size() - 1);
    while (slots_[at] != 0 && items_[slots_[at] - 1] != i) at = (at + 1) & (slots_.size() - 1);
    return at;
  };
  for (; n_hashed_ < items_.size(); ++n_hashed_)
    slots_[place(items_[n_hashed_])] = static_cast<uint32_t>(n_hashed_ + 1);
  const size_t at = place(item);
  if (slots_[at] != 0) return false;
  items_.push_back(item);
  slots_[at] = static_cast<uint32_t>(++n_hashed_);
  return true;
}

States::States(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {
  infos_.resize(1);
  rows_.assign(1, nullptr);
  table_.assign(256, kDead);
  kernel_.add({automaton_->start(automaton_->root()), automaton_->root(), kInitial});
  const StateId made = intern();
  begins_ = made == kInitial;
  if (!begins_) return;
  infos_[kInitial].accepts |= automaton_->root_is_nullable();
  if (infos_[kInitial].accepts) infos_[kInitial].shortest = 0;
  infos_[kInitial].is_closed = false;
}

// Where no item has an edge there is nothing to find out.
const uint32_t* States::make_row(StateId state) {
  const uint32_t n = automaton_->n_classes();
  if (n_rows_ == kRowsAtOnce * row_memory_.size()) {
    row_memory_.push_back(std::make_unique_for_overwrite<uint32_t[]>(kRowsAtOnce * n));
    bytes_ += kRowsAtOnce * n * sizeof(uint32_t);
  }
  uint32_t* row = row_memory_.back().get() + n_rows_++ % kRowsAtOnce * n;
  std::fill_n(row, n, kDead);
  for (const Item& item : items(state)) {
    if (automaton_->is_counter(item.node)) continue;
    for (const SymbolEdge& e : automaton_->edges(item.node)) {
      const uint32_t first = automaton_->class_of(e.lo);
      std::fill_n(row + first, automaton_->class_of(e.hi) - first + 1, kUnknown);
    }
  }
  return rows_[state] = row;
}

StateId States::make_next(StateId state, uint32_t a_class) {
  const uint32_t symbol = automaton_->symbol_of(a_class);
  kernel_.clear();
  const Info& info = infos_[state];
  for (uint32_t i = 0; i < info.n_items; ++i) {
    const Item& item = info.items[i];
    if (automaton_->is_counter(item.node)) continue;
    for (const SymbolEdge& e : automaton_->edges(item.node)) {
      if (symbol < e.lo) break;  // ascending
      if (symbol <= e.hi) kernel_.add({e.to, item.as, item.origin});
    }
  }
  StateId to = kDead;
  if (!kernel_.items().empty()) {
    complete();
    if (!kernel_.items().empty() && kernel_.items().size() <= kMaxItems) to = intern();
  }
  rows_[state][a_class] = to;
  return to;
}

// What is through with its rule goes on behind the calls of that rule. An item that can do nothing else is dropped.
void States::complete() {
  std::vector<Item>& kernel = kernel_.items();
  for (size_t i = 0; i < kernel.size() && kernel.size() <= 2 * kMaxItems; ++i) {
    const Item done = kernel[i];
    if (!automaton_->accepts(done.node)) continue;
    const Info& origin = infos_[done.origin];
    const Waiting* end = origin.waiting + origin.n_waiting;
    const Waiting* at = std::lower_bound(static_cast<const Waiting*>(origin.waiting), end, done.as,
                                         [](const Waiting& w, uint32_t rule) { return w.rule < rule; });
    for (; at != end && at->rule == done.as; ++at) kernel_.add(at->item);
  }
  std::erase_if(kernel, [&](const Item& item) {
    return automaton_->only_accepts(item.node) && !(item.as == automaton_->root() && item.origin == kInitial);
  });
  std::sort(kernel.begin(), kernel.end());
}

void States::predict(StateId id) {
  items_.clear();
  for (const Item& item : kernel_.items()) items_.add(item);
  std::vector<Item>& items = items_.items();
  waiting_.clear();
  auto call = [&](const Item& from, uint32_t rule, uint32_t to) {
    Item callee{automaton_->start(rule), rule, id};
    if (automaton_->only_accepts(to)) {
      callee.as = from.as;
      callee.origin = from.origin;
    } else {
      waiting_.push_back({rule, kNever, {to, from.as, from.origin}});
    }
    items_.add(callee);
  };
  for (size_t i = 0; i < items.size() && items.size() <= kMaxItems; ++i) {
    const Item item = items[i];
    if (automaton_->is_counter(item.node)) {
      const Counter& c = automaton_->counter(item.node);
      const uint32_t done = item.node - c.base;
      if (done < c.last) {
        call(item, c.body, item.node + 1);
      } else if (c.is_unbounded) {
        call(item, c.body, item.node);
      }
    } else {
      for (const CallEdge& e : automaton_->calls(item.node)) call(item, e.rule, e.to);
    }
  }
  std::sort(waiting_.begin(), waiting_.end(),
            [](const Waiting& a, const Waiting& b) { return std::tie(a.rule, a.item) < std::tie(b.rule, b.item); });
  waiting_.erase(std::unique(waiting_.begin(), waiting_.end(),
                             [](const Waiting& a, const Waiting& b) { return a.rule == b.rule && a.item == b.item; }),
                 waiting_.end());
}

StateId States::intern() {
  const std::vector<Item>&kernel = kernel_.items(), &items = items_.items();
  const uint64_t hash = hash_of(kernel);
  for (size_t i = hash & (table_.size() - 1); table_[i] != kDead; i = (i + 1) & (table_.size() - 1)) {
    const Info& known = infos_[table_[i]];
    if (known.hash == hash && known.n_kernel == kernel.size() && std::equal(kernel.begin(), kernel.end(), known.items))
      return table_[i];
  }
  if (free_.empty()) {
    if (infos_.size() == infos_.capacity()) {
      const size_t room = 2 * infos_.size() + 64;
      infos_.reserve(room), rows_.reserve(room), free_.reserve(room);
    }
    infos_.emplace_back();
    rows_.push_back(nullptr);
    free_.push_back(static_cast<StateId>(infos_.size() - 1));
  }
  const StateId id = free_.back();
  predict(id);
  if (items.size() > kMaxItems) return kDead;
  const StateId first = first_with_waiting(id);
  if (first != id) {
    for (size_t i = kernel.size(); i < items.size(); ++i)
      if (items_.items()[i].origin == id) items_.items()[i].origin = first;
    waiting_.clear();
  }
  Info info;
  info.hash = hash;
  info.n_kernel = static_cast<uint32_t>(kernel.size());
  info.n_items = static_cast<uint32_t>(items.size());
  info.n_waiting = static_cast<uint32_t>(waiting_.size());
  static_assert(sizeof(Item) == 12 && sizeof(Waiting) == 20 && std::is_trivially_copyable_v<Waiting>);
  info.memory = std::make_unique_for_overwrite<uint32_t[]>(3 * items.size() + 5 * waiting_.size());
  info.items = reinterpret_cast<Item*>(info.memory.get());
  info.waiting = reinterpret_cast<Waiting*>(info.memory.get() + 3 * items.size());
  std::copy(items.begin(), items.end(), info.items);
  bool goes_on = false;
  for (const Item& item : items) {
    if (item.origin != id) info.depth = std::max(info.depth, infos_[item.origin].waiting_depth + 1);
    const bool is_end = automaton_->accepts(item.node);
    info.accepts |= is_end && item.as == automaton_->root() && item.origin == kInitial;
    goes_on |= !automaton_->only_accepts(item.node);
  }
  info.is_closed = info.accepts && !goes_on;
  if (info.depth > kMaxDepth) return kDead;
  for (const Waiting& w : waiting_)
    if (w.item.origin != id) info.waiting_depth = std::max(info.waiting_depth, infos_[w.item.origin].waiting_depth + 1);
  measure(id, info);
  std::copy(waiting_.begin(), waiting_.end(), info.waiting);
  if (2 * (n_alive_ + 1) > table_.size()) grow_table();
  free_.pop_back();
  bytes_ += items.size() * sizeof(Item) + waiting_.size() * sizeof(Waiting) + sizeof(Info) + 24;
  infos_[id] = std::move(info);
  put_in_table(id);
  ++n_alive_;
  ++n_made_;
  put_waiting_in_table(id);
  return id;
}

namespace {

template <typename Waits>
uint64_t hash_of_waiting(const Waits& waiting) {
  uint64_t h = 0;
  for (const auto& w : waiting) h = (h ^ w.rule) * 0x9E3779B97F4A7C15u ^ hash_of({&w.item, 1});
  return h;
}

}  // namespace

// What is called in a state hangs on what waits for it there alone: so a state in which the same waits as in an earlier
// one calls in that one's name, and texts that differ in blanks before a value are at one again within it. Not where
// what waits was called here itself, nor in the initial state, which says that a text is complete.
StateId States::first_with_waiting(StateId id) {
  if (waiting_.empty()) return id;
  for (const Waiting& w : waiting_)
    if (w.item.origin == id) return id;
  const auto [begin, end] = by_waiting_.equal_range(hash_of_waiting(waiting_));
  for (auto at = begin; at != end; ++at) {
    const Info& known = infos_[at->second];
    const bool is_same =
        known.n_waiting == waiting_.size() &&
        std::equal(waiting_.begin(), waiting_.end(), known.waiting,
                   [](const Waiting& a, const Waiting& b) { return a.rule == b.rule && a.item == b.item; });
    if (is_same) return at->second;
  }
  return id;
}

void States::put_waiting_in_table(StateId id) {
  const Info& info = infos_[id];
  const std::span<const Waiting> waiting(info.waiting, info.n_waiting);
  if (id == kInitial || waiting.empty()) return;
  for (const Waiting& w : waiting)
    if (w.item.origin == id) return;
  by_waiting_.emplace(hash_of_waiting(waiting), id);
  bytes_ += 40;
}

// The fewest symbols behind the end of item's rule, where its origin waits in `waiting`.
uint32_t States::rest_behind(std::span<const Waiting> waiting, const Item& item) const {
  if (item.as == automaton_->root() && item.origin == kInitial) return 0;
  uint32_t best = kNever;
  auto at = std::lower_bound(waiting.begin(), waiting.end(), item.as,
                             [](const Waiting& w, uint32_t rule) { return w.rule < rule; });
  for (; at != waiting.end() && at->rule == item.as; ++at) best = std::min(best, at->rest);
  return best;
}

uint32_t States::rest_behind(const Item& item) const {
  const Info& origin = infos_[item.origin];
  return rest_behind(std::span<const Waiting>(origin.waiting, origin.n_waiting), item);
}

// What waits in this very state may wait for one another (left recursion): lengths fall until they hold.
void States::measure(StateId id, Info& info) {
  auto rest = [&](const Item& item) {
    const uint32_t behind =
        item.origin == id
            ? rest_behind(waiting_, item)
            : rest_behind(std::span<const Waiting>(infos_[item.origin].waiting, infos_[item.origin].n_waiting), item);
    return std::min(kNever, automaton_->shortest(item.node) + behind);
  };
  for (Waiting& w : waiting_) w.rest = kNever;
  for (bool changed = true; changed;) {
    changed = false;
    for (Waiting& w : waiting_) {
      const uint32_t found = rest(w.item);
      if (found < w.rest) w.rest = found, changed = true;
    }
  }
  info.shortest = kNever;
  for (const Item& item : items_.items()) info.shortest = std::min(info.shortest, rest(item));
}

void States::forget_others(std::span<const StateId> live) {
  std::vector<StateId> ahead(live.begin(), live.end());
  ahead.push_back(kInitial);
  for (Info& info : infos_) info.is_marked = false;
  while (!ahead.empty()) {
    const StateId id = ahead.back();
    ahead.pop_back();
    if (id == kDead || infos_[id].is_marked) continue;
    infos_[id].is_marked = true;
    for (uint32_t i = 0; i < infos_[id].n_items; ++i)
      if (!infos_[infos_[id].items[i].origin].is_marked) ahead.push_back(infos_[id].items[i].origin);
  }
  // Transitions are learned anew: which of them lead to what stays is not worth the search.
  bytes_ = 0;
  row_memory_.clear();
  n_rows_ = 0;
  for (StateId id = 1; id < infos_.size(); ++id) {
    Info& info = infos_[id];
    rows_[id] = nullptr;
    if (info.items == nullptr) continue;  // free before
    if (info.is_marked) {
      bytes_ += info.n_items * sizeof(Item) + info.n_waiting * sizeof(Waiting) + sizeof(Info) + 24;
      continue;
    }
    info = {};
    free_.push_back(id);
    --n_alive_;
  }
  std::fill(table_.begin(), table_.end(), kDead);
  by_waiting_.clear();
  for (StateId id = 1; id < infos_.size(); ++id)
    if (infos_[id].is_marked) put_in_table(id), put_waiting_in_table(id);
}

void States::put_in_table(StateId id) {
  size_t i = infos_[id].hash & (table_.size() - 1);
  while (table_[i] != kDead) i = (i + 1) & (table_.size() - 1);
  table_[i] = id;
}

void States::grow_table() {
  std::vector<StateId> old(table_.size() * 2, kDead);
  old.swap(table_);
  for (StateId id : old)
    if (id != kDead) put_in_table(id);
}

}  // namespace ibid::grammar
