// States: the positions of texts in a grammar, each an integer. A state is Earley's set of items (Earley 1970) of which
// each names the state in which its rule was called, so that stacks share their bottoms: a graph-structured stack whose
// nodes are interned by content. Equal sets have one id, so to fork, to roll back and to keep a state is to keep an
// integer, and the table of transitions is the automaton of the grammar with its stack, as far as it has been visited.
//
// What a state calls depends only on those of its items that call. So a state that has others too, as inside a number
// or among blanks before a value, has the calls of the state of the former, its base, and all transitions where the
// others have no edge: for texts that differ only in a count each next state costs one item, whatever may begin there.
//
// A function of (automaton, bytes) only: dropping states and making them again changes ids, never an answer. Calls
// in tail position return for their callers (Leo 1991), so that right recursion does not grow.
// Not for two threads at once. Throws only std::bad_alloc, and stays valid then.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "sample/grammar/automaton.h"

namespace ibid::grammar {

using StateId = uint32_t;
inline constexpr StateId kDead = 0;
inline constexpr StateId kInitial = 1;

// `node` of a rule that, once complete, counts as rule `as` called in state `origin`.
struct Item {
  uint32_t node = 0, as = 0, origin = 0;
  auto operator<=>(const Item&) const = default;
};

// Items in the order in which they were added, each once.
class ItemList {
 public:
  void clear() { items_.clear(), n_hashed_ = 0; }
  bool add(const Item& item);  // false where it is there already
  std::vector<Item>& items() { return items_; }
  const std::vector<Item>& items() const { return items_; }

 private:
  static constexpr size_t kFew = 16;  // are searched one by one
  std::vector<Item> items_;
  size_t n_hashed_ = 0;
  std::vector<uint32_t> slots_;  // 1 + the place of an item
};

class States {
 public:
  // A state with more items is dead (kDead): with the depth, this bounds the cost of a step.
  static constexpr size_t kMaxItems = 2000;
  static constexpr size_t kMaxWaiting = 4 * kMaxItems;
  static constexpr uint32_t kMaxDepth = 1000;

  explicit States(std::shared_ptr<const Automaton> automaton);

  // False if the initial state would have too many items: such a grammar is refused.
  bool begins() const { return begins_; }
  const Automaton& automaton() const { return *automaton_; }
  // The state after one more symbol; kDead where none is. `state` is alive.
  StateId next(StateId state, uint32_t symbol) { return next_of_class(state, automaton_->class_of(symbol)); }
  StateId next_of_class(StateId state, uint32_t a_class) { return next_in(row(state), state, a_class); }
  // The same by the state's row of the table, for loops over one state. A row stays until states are forgotten.
  const uint32_t* row(StateId state) { return rows_[state] != nullptr ? rows_[state] : make_row(state); }
  StateId next_in(const uint32_t* row, StateId state, uint32_t a_class) {
    return row[a_class] != kUnknown ? row[a_class] : make_next(state, a_class);
  }
  // Each symbol with an edge leads to a live state, none with too many items: so few items are in this state and wait
  // for what ends there. Computed once, over at most kMaxItems items.
  bool is_small(StateId state) {
    const Size known = infos_[state].size;
    return known == Size::kUnknown ? finds_small(state) : known == Size::kSmall;
  }
  // There is an edge, and the state after it does not exist yet.
  static bool has_unmade(const uint32_t* row, uint32_t a_class) { return row[a_class] == kUnknown; }
  StateId after(StateId state, std::string_view bytes) {
    for (size_t i = 0; i < bytes.size() && state != kDead; ++i) state = next(state, static_cast<uint8_t>(bytes[i]));
    return state;
  }

  bool accepts(StateId state) const { return infos_[state].accepts; }
  // The state accepts, and no symbol may follow.
  bool is_closed(StateId state) const { return infos_[state].is_closed; }
  // The fewest symbols from here to a state that accepts.
  uint32_t shortest(StateId state) const { return infos_[state].shortest; }
  // Those that were stepped to, and those of the rules that they call, whose origin is the state itself, or one in
  // which the same waits for them.
  std::span<const Item> stepped(StateId state) const { return {infos_[state].kernel, infos_[state].n_kernel}; }
  std::span<const Item> called(StateId state) const { return {infos_[state].called, infos_[state].n_called}; }
  // The fewest symbols after the end of an item's rule.
  uint32_t rest_after(const Item& item) const;
  size_t n_states() const { return n_alive_; }
  size_t bytes() const { return bytes_; }
  uint64_t n_made() const { return n_made_; }

  // Drops all states but the initial one, those of `live` and what these refer to. Their ids stay.
  void forget_others(std::span<const StateId> live);

 private:
  enum class Size : uint8_t { kUnknown, kSmall, kLarge };
  static constexpr uint32_t kUnknown = ~0u;
  static constexpr size_t kRowsAtOnce = 32;
  struct Waiting {  // an item before a call of `rule`, by what it is after the call
    uint32_t rule = 0;
    uint32_t rest = 0;  // the fewest symbols from behind a call of `rule` to a text's end: of its first item alone
    Item item;
  };
  struct Info {
    // Side by side, in item_memory_.
    Item* kernel = nullptr;        // ascending
    const Item* called = nullptr;  // those of the base
    Waiting* waiting = nullptr;    // ascending by rule
    StateId base = kDead;          // the state of those of the kernel that call; most often this one
    uint32_t n_kernel = 0, n_called = 0, n_waiting = 0;
    uint32_t shortest = 0, depth = 0;
    uint32_t waiting_depth = 0;  // of what waits
    uint64_t hash = 0;
    bool accepts = false, is_closed = false, is_marked = false;
    Size size = Size::kUnknown;
    uint32_t seen_at = 0;  // the last look for what waits that came here
  };

  static constexpr size_t kStateBytes = sizeof(Info) + 24;  // without items

  const uint32_t* make_row(StateId state);
  StateId make_next(StateId state, uint32_t a_class);
  StateId intern(std::span<const Item> kernel);                           // ascending
  void predict(StateId id, std::span<const Item> kernel);                 // fills items_ and waiting_
  StateId known_with(std::span<const Item> kernel, uint64_t hash) const;  // kDead: none
  bool calls(const Item& item) const;
  bool finds_small(StateId state);
  void complete();
  void measure(StateId id, Info& info);
  void make_room_for_one();
  StateId put(const Info& info);                        // into free_.back()
  size_t words_of(StateId id, const Info& info) const;  // its own
  uint32_t* item_room(size_t n_words);
  void place(StateId id, Info& info, uint32_t* memory) const;  // sets where its items lie
  StateId first_with_waiting(StateId id);
  void put_waiting_in_table(StateId id);
  uint32_t rest_after(std::span<const Waiting> waiting, const Item& item) const;
  void put_in_table(StateId id);
  void grow_table();

  std::shared_ptr<const Automaton> automaton_;
  bool begins_ = false;
  uint32_t n_looks_ = 0;
  std::vector<StateId> to_look_at_;
  std::vector<Info> infos_;
  std::vector<uint32_t*> rows_;                          // per state; null: not used yet
  std::vector<std::unique_ptr<uint32_t[]>> row_memory_;  // of kRowsAtOnce rows each
  size_t n_rows_ = 0;
  std::vector<std::unique_ptr<uint32_t[]>> item_memory_;
  uint32_t* item_at_ = nullptr;                            // free in the last one, up to
  size_t n_item_room_ = 0;                                 // words
  std::vector<StateId> table_;                             // open addressing over the kernels' hashes
  std::unordered_multimap<uint64_t, StateId> by_waiting_;  // the states that stand for others
  std::vector<StateId> free_;
  size_t n_alive_ = 0, bytes_ = 0;
  uint64_t n_made_ = 0;
  // Of one step:
  ItemList kernel_, items_;
  std::vector<Item> callers_;
  std::vector<Waiting> waiting_;
  struct Nearest {
    uint32_t rest = 0, first = 0;  // of the first in waiting_ before a call of one rule
  };
  struct WaitsHere {  // what waits in this state for a rule, of whose own end others in this state wait
    uint32_t as = 0, first = 0, length = 0;
  };
  std::vector<Nearest> nearest_;
  std::vector<WaitsHere> waits_here_;
};

}  // namespace ibid::grammar
