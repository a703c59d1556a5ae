#include "sample/grammar/states.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace ibid::grammar {
namespace {

uint64_t hash_of(std::span<const Item> items) {
  uint64_t h = items.size();
  for (const Item& i : items) {
    const uint32_t origin = i.origin;
    h = (h ^ (static_cast<uint64_t>(i.node) << 32 | origin)) * 0x9E3779B97F4A7C15u;
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
  const StateId made = intern(kernel_.items());
  begins_ = made == kInitial;
  if (!begins_) return;
  infos_[kInitial].accepts |= automaton_->root_is_nullable();
  if (infos_[kInitial].accepts) infos_[kInitial].shortest = 0;
  infos_[kInitial].is_closed = false;
}

// If no item has an edge, there is nothing to compute.
const uint32_t* States::make_row(StateId state) {
  const uint32_t n = automaton_->n_classes();
  const StateId base = infos_[state].base;
  const uint32_t* base_row = base == state ? nullptr : row(base);
  if (n_rows_ == kRowsAtOnce * row_memory_.size()) {
    row_memory_.push_back(std::make_unique_for_overwrite<uint32_t[]>(kRowsAtOnce * n));
    bytes_ += kRowsAtOnce * n * sizeof(uint32_t);
  }
  uint32_t* made = row_memory_.back().get() + n_rows_++ % kRowsAtOnce * n;
  auto add = [&](const Item& item) {
    if (automaton_->is_counter(item.node)) return;
    for (const SymbolEdge& e : automaton_->edges(item.node)) {
      const uint32_t first = automaton_->class_of(e.lo);
      std::fill_n(made + first, automaton_->class_of(e.hi) - first + 1, kUnknown);
    }
  };
  if (base_row != nullptr) {
    std::copy_n(base_row, n, made);
    for (const Item& item : stepped(state))
      if (!calls(item)) add(item);
  } else {
    std::fill_n(made, n, kDead);
    for (const Item& item : stepped(state)) add(item);
    for (const Item& item : called(state)) add(item);
  }
  return rows_[state] = made;
}

// The same for the neighbouring classes that no edge distinguishes from it.
StateId States::make_next(StateId state, uint32_t a_class) {
  const uint32_t symbol = automaton_->symbol_of(a_class);
  uint32_t lo = 0, hi = ~0u;  // of the symbols which the same edges read
  kernel_.clear();
  auto step = [&](const Item& item) {
    if (automaton_->is_counter(item.node)) return;
    for (const SymbolEdge& e : automaton_->edges(item.node)) {
      if (symbol < e.lo) {  // ascending
        hi = std::min(hi, e.lo - 1u);
        break;
      }
      if (symbol > e.hi) {
        lo = std::max(lo, e.hi + 1u);
        continue;
      }
      lo = std::max<uint32_t>(lo, e.lo);
      hi = std::min<uint32_t>(hi, e.hi);
      kernel_.add({e.to, item.as, item.origin});
    }
  };
  const StateId base = infos_[state].base;
  if (base != state) {
    for (const Item& item : stepped(state))
      if (!calls(item)) step(item);
    if (kernel_.items().empty()) return rows_[state][a_class] = next_of_class(base, a_class);
    for (const Item& item : stepped(state))
      if (calls(item)) step(item);
  } else {
    for (const Item& item : stepped(state)) step(item);
  }
  for (const Item& item : called(state)) step(item);
  CHECK(!kernel_.items().empty());  // else there is no edge
  complete();
  StateId to = kDead;
  if (!kernel_.items().empty() && kernel_.items().size() <= kMaxItems) to = intern(kernel_.items());
  uint32_t* row = rows_[state];
  std::fill(row + automaton_->class_of(lo), row + automaton_->class_of(hi) + 1, to);
  return to;
}

// A step takes at most each item here, and each that waits in a state where a rule of these was called, or of those:
// in grammars of many readings that is many times what stands here.
bool States::finds_small(StateId state) {
  Info& info = infos_[state];
  info.size = Size::kLarge;
  size_t n = info.n_kernel + info.n_called;
  if (n > kMaxItems / 8 || info.depth >= kMaxDepth) return false;
  ++n_looks_;
  to_look_at_.clear();
  const auto look_at = [&](StateId origin) {
    if (std::exchange(infos_[origin].seen_at, n_looks_) == n_looks_) return;
    to_look_at_.push_back(origin);
    n += infos_[origin].n_waiting;
  };
  for (const Item& item : stepped(state)) look_at(item.origin);
  for (const Item& item : called(state)) look_at(item.origin);
  for (; !to_look_at_.empty() && n <= kMaxItems / 2;) {
    const Info& origin = infos_[to_look_at_.back()];
    to_look_at_.pop_back();
    for (uint32_t i = 0; i < origin.n_waiting; ++i) look_at(origin.waiting[i].item.origin);
  }
  if (n <= kMaxItems / 2) info.size = Size::kSmall;
  return info.size == Size::kSmall;
}

// What is through with its rule goes on after the calls of that rule. An item that can do nothing else is dropped.
void States::complete() {
  std::vector<Item>& kernel = kernel_.items();
  for (size_t i = 0; i < kernel.size() && kernel.size() <= 2 * kMaxItems; ++i) {
    const Item done = kernel[i];
    if (!automaton_->accepts(done.node)) continue;
    const Info& origin = infos_[done.origin];
    const Waiting* end = origin.waiting + origin.n_waiting;
    const Waiting* at = std::lower_bound(static_cast<const Waiting*>(origin.waiting), end, done.as,
                                         [](const Waiting& w, uint32_t rule) { return w.rule < rule; });
    for (; at != end && at->rule == done.as; ++at) {
      kernel_.add(at->item);
    }
  }
  std::erase_if(kernel, [&](const Item& item) {
    return automaton_->only_accepts(item.node) && !(item.as == automaton_->root() && item.origin == kInitial);
  });
  std::sort(kernel.begin(), kernel.end());
}

bool States::calls(const Item& item) const {
  return automaton_->is_counter(item.node) || !automaton_->calls(item.node).empty();
}

void States::predict(StateId id, std::span<const Item> kernel) {
  items_.clear();
  for (const Item& item : kernel) items_.add(item);
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
  for (size_t i = 0; i < items.size() && items.size() <= kMaxItems && waiting_.size() <= kMaxWaiting; ++i) {
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

StateId States::known_with(std::span<const Item> kernel, uint64_t hash) const {
  for (size_t i = hash & (table_.size() - 1); table_[i] != kDead; i = (i + 1) & (table_.size() - 1)) {
    const Info& known = infos_[table_[i]];
    if (known.hash != hash) continue;
    if (std::ranges::equal(kernel, stepped(table_[i]))) return table_[i];
  }
  return kDead;
}

void States::make_room_for_one() {
  if (free_.empty()) {
    if (infos_.size() == infos_.capacity()) {
      const size_t room = 2 * infos_.size() + 64;
      infos_.reserve(room), rows_.reserve(room), free_.reserve(room);
    }
    infos_.emplace_back();
    rows_.push_back(nullptr);
    free_.push_back(static_cast<StateId>(infos_.size() - 1));
  }
  if (2 * (n_alive_ + 1) > table_.size()) grow_table();
}

size_t States::words_of(StateId id, const Info& info) const {
  return 3 * (info.n_kernel + (info.base == id ? info.n_called : 0)) + 5 * info.n_waiting;
}

// Stays until states are forgotten, used or not.
uint32_t* States::item_room(size_t n_words) {
  if (n_words > n_item_room_) {
    constexpr size_t kFirst = 512, kMost = 8192;
    const size_t room = std::max(n_words, std::min(kFirst << std::min<size_t>(item_memory_.size(), 8), kMost));
    item_memory_.push_back(std::make_unique_for_overwrite<uint32_t[]>(room));
    item_at_ = item_memory_.back().get();
    n_item_room_ = room;
    bytes_ += room * sizeof(uint32_t);
  }
  n_item_room_ -= n_words;
  return std::exchange(item_at_, item_at_ + n_words);
}

void States::place(StateId id, Info& info, uint32_t* memory) const {
  static_assert(sizeof(Item) == 12 && sizeof(Waiting) == 20 && std::is_trivially_copyable_v<Waiting>);
  info.kernel = reinterpret_cast<Item*>(memory);
  info.called = info.base == id ? info.kernel + info.n_kernel : infos_[info.base].called;
  info.waiting = reinterpret_cast<Waiting*>(memory + words_of(id, info) - 5 * info.n_waiting);
}

StateId States::put(const Info& info) {
  const StateId id = free_.back();
  free_.pop_back();
  bytes_ += kStateBytes;
  infos_[id] = info;
  put_in_table(id);
  ++n_alive_;
  ++n_made_;
  return id;
}

StateId States::intern(std::span<const Item> kernel) {
  Info info;
  info.hash = hash_of(kernel);
  if (const StateId known = known_with(kernel, info.hash); known != kDead) return known;
  info.n_kernel = static_cast<uint32_t>(kernel.size());
  const auto n_callers = std::ranges::count_if(kernel, [&](const Item& item) { return calls(item); });
  if (n_callers > 0 && n_callers < std::ssize(kernel)) {
    callers_.clear();
    std::ranges::copy_if(kernel, std::back_inserter(callers_), [&](const Item& item) { return calls(item); });
    info.base = intern(callers_);
    if (info.base == kDead) return kDead;
  }
  make_room_for_one();
  const StateId id = free_.back();
  const bool has_base = info.base != kDead;  // never the initial state: no edge leads to where a rule starts
  bool goes_on = false;
  auto look_at = [&](const Item& item) {
    if (item.origin != id) info.depth = std::max(info.depth, infos_[item.origin].waiting_depth + 1);
    info.accepts |= automaton_->accepts(item.node) && item.as == automaton_->root() && item.origin == kInitial;
    goes_on |= !automaton_->only_accepts(item.node);
  };
  for (const Item& item : kernel) look_at(item);
  if (has_base) {
    const Info& base = infos_[info.base];
    if (kernel.size() + base.n_called > kMaxItems) return kDead;
    info.n_called = base.n_called;
    info.depth = std::max(info.depth, base.depth);
    info.accepts |= base.accepts;
    info.shortest = base.shortest;
    for (const Item& item : kernel)
      if (!calls(item))
        info.shortest = std::min({info.shortest, kNever, automaton_->shortest(item.node) + rest_after(item)});
  } else {
    info.base = id;
    predict(id, kernel);
    const std::vector<Item>& items = items_.items();
    if (items.size() > kMaxItems || waiting_.size() > kMaxWaiting) return kDead;
    const StateId first = first_with_waiting(id);
    if (first != id) {
      for (size_t i = kernel.size(); i < items.size(); ++i)
        if (items_.items()[i].origin == id) items_.items()[i].origin = first;
      waiting_.clear();
    }
    info.n_called = static_cast<uint32_t>(items.size() - kernel.size());
    info.n_waiting = static_cast<uint32_t>(waiting_.size());
    for (size_t i = kernel.size(); i < items.size(); ++i) look_at(items[i]);
    for (const Waiting& w : waiting_)
      if (w.item.origin != id)
        info.waiting_depth = std::max(info.waiting_depth, infos_[w.item.origin].waiting_depth + 1);
    measure(id, info);
  }
  info.is_closed = info.accepts && !goes_on;
  if (info.depth > kMaxDepth) return kDead;
  place(id, info, item_room(words_of(id, info)));
  std::ranges::copy(kernel, info.kernel);
  if (!has_base) {
    std::copy(items_.items().begin() + static_cast<ptrdiff_t>(kernel.size()), items_.items().end(),
              info.kernel + kernel.size());
    std::ranges::copy(waiting_, info.waiting);
  }
  put(info);
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
// one calls in that one's name, and texts that differ in blanks before a value are at one again within it. Not if what
// waits was called here itself, nor in the initial state, which marks a complete text.
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

// The fewest symbols after the end of item's rule, where its origin waits in `waiting`.
uint32_t States::rest_after(std::span<const Waiting> waiting, const Item& item) const {
  if (item.as == automaton_->root() && item.origin == kInitial) return 0;
  const auto first = std::lower_bound(waiting.begin(), waiting.end(), item.as,
                                      [](const Waiting& w, uint32_t rule) { return w.rule < rule; });
  return first != waiting.end() && first->rule == item.as ? first->rest : kNever;
}

uint32_t States::rest_after(const Item& item) const {
  const Info& origin = infos_[item.origin];
  return rest_after(std::span<const Waiting>(origin.waiting, origin.n_waiting), item);
}

// What waits in this very state may wait for one another (left recursion).
void States::measure(StateId id, Info& info) {
  auto rest = [&](const Item& item) {
    const uint32_t following =
        item.origin == id
            ? rest_after(waiting_, item)
            : rest_after(std::span<const Waiting>(infos_[item.origin].waiting, infos_[item.origin].n_waiting), item);
    return std::min(kNever, automaton_->shortest(item.node) + following);
  };
  // Dijkstra 1959 over the rules that are called here.
  waits_here_.clear(), nearest_.clear();
  const auto is_farther = [](const Nearest& a, const Nearest& b) { return a.rest > b.rest; };
  const auto offer = [&](uint32_t first, uint32_t found) {
    if (found >= waiting_[first].rest) return;
    waiting_[first].rest = found;
    nearest_.push_back({found, first});
    std::push_heap(nearest_.begin(), nearest_.end(), is_farther);
  };
  for (Waiting& w : waiting_) w.rest = kNever;
  for (uint32_t first = 0, end = 0; first < waiting_.size(); first = end) {
    uint32_t found = kNever;
    for (; end < waiting_.size() && waiting_[end].rule == waiting_[first].rule; ++end) {
      const Item& item = waiting_[end].item;
      if (item.origin == id) waits_here_.push_back({item.as, first, automaton_->shortest(item.node)});
      found = std::min(found, rest(item));  // of those here, what holds of the root
    }
    offer(first, found);
  }
  std::sort(waits_here_.begin(), waits_here_.end(), [](const WaitsHere& a, const WaitsHere& b) { return a.as < b.as; });
  while (!nearest_.empty()) {
    const auto [known, first] = nearest_.front();
    std::pop_heap(nearest_.begin(), nearest_.end(), is_farther);
    nearest_.pop_back();
    if (known > waiting_[first].rest) continue;
    const uint32_t rule = waiting_[first].rule;
    auto at = std::lower_bound(waits_here_.begin(), waits_here_.end(), rule,
                               [](const WaitsHere& w, uint32_t as) { return w.as < as; });
    for (; at != waits_here_.end() && at->as == rule; ++at) offer(at->first, std::min(kNever, at->length + known));
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
    ahead.push_back(infos_[id].base);
    for (const std::span<const Item> items : {stepped(id), called(id)})
      for (const Item& item : items)
        if (!infos_[item.origin].is_marked) ahead.push_back(item.origin);
  }
  size_t n_words = 0;
  for (StateId id = 1; id < infos_.size(); ++id)
    if (infos_[id].is_marked) n_words += words_of(id, infos_[id]);
  std::vector<std::unique_ptr<uint32_t[]>> old_memory;
  old_memory.reserve(1);
  old_memory.push_back(std::make_unique_for_overwrite<uint32_t[]>(n_words));
  old_memory.swap(item_memory_);
  n_item_room_ = 0;
  uint32_t* to = item_memory_[0].get();
  // Transitions are learned again: which of them lead to what stays is not worth the search.
  bytes_ = n_words * sizeof(uint32_t);
  row_memory_.clear();
  n_rows_ = 0;
  for (StateId id = 1; id < infos_.size(); ++id) {
    Info& info = infos_[id];
    rows_[id] = nullptr;
    if (info.kernel == nullptr) continue;  // free before
    if (info.is_marked) {
      const size_t n = words_of(id, info);
      std::copy_n(reinterpret_cast<const uint32_t*>(info.kernel), n, to);
      place(id, info, to);
      to += n;
      bytes_ += kStateBytes;
      continue;
    }
    info = {};
    free_.push_back(id);
    --n_alive_;
  }
  for (StateId id = 1; id < infos_.size(); ++id)  // those that came before their base
    if (infos_[id].is_marked) infos_[id].called = infos_[infos_[id].base].called;
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
