#include "sample/grammar/lazy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "sample/grammar/announcements.h"
#include "sample/grammar/beginning.h"
#include "sample/grammar/free_text.h"

namespace ibid::grammar {
namespace {

// As an expression.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("^$\\.*+?()[]{}|/").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

// Free text up to patterns, over code points. Whatever has been found, texts without it are what their complement
// reads: it has no way on where a trigger ends.
class PatternWait {
 public:
  explicit PatternWait(Grammar& g) : g_(g), fuel_(g.fuel()) {}

  Status run(const std::vector<Trigger>& triggers, std::vector<ExprId>& choices, ExprId& free) {
    std::vector<Announcement> all;
    for (const Trigger& trigger : triggers) {
      if (trigger.token >= 0) continue;
      const bool is_text = trigger.kind == Trigger::Kind::kText;
      const RegexUse use = trigger.kind == Trigger::Kind::kWhole ? RegexUse::kWhole : RegexUse::kSearch;
      ASSIGN_OR_RETURN(std::vector<Announcement> ways,
                       read_announcements(is_text ? escaped(trigger.text) : trigger.text, use, fuel_));
      for (Announcement& way : ways) all.push_back(std::move(way));
    }
    ASSIGN_OR_RETURN(CodeDfa found, all[0].found.copy(fuel_));
    for (size_t i = 1; i < all.size(); ++i) {
      ASSIGN_OR_RETURN(found, CodeDfa::combine(found, all[i].found, CodeDfa::How::kEither, fuel_));
    }
    ASSIGN_OR_RETURN(none_, found.complement(fuel_));
    free = none_.spell(g_, CodeDfa::Spelling::kPlain);
    choices.push_back(free);
    for (const Announcement& way : all) choices.push_back(texts_of(way));
    return fuel_.is_empty() ? Status(out_of_fuel()) : Status();
  }

 private:
  // States of two automata at once, as states of a graph.
  struct Pairs {
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> ids;
    std::vector<std::pair<std::pair<uint32_t, uint32_t>, uint32_t>> queue;
    uint32_t id_of(uint32_t a, uint32_t b, CodeGraph& graph) {
      const auto [known, is_new] = ids.try_emplace({a, b}, 0);
      if (is_new) {
        known->second = graph.add_state();
        queue.push_back({{a, b}, known->second});
      }
      return known->second;
    }
  };

  ExprId texts_of(const Announcement& way) {
    // Before: nothing found so far, and all of what may stand there.
    CodeGraph before(0, fuel_);
    Pairs free;
    free.id_of(0, 0, before);
    for (size_t i = 0; i < free.queue.size() && fuel_.burn(24); ++i) {
      const auto [at, from] = free.queue[i];
      CodeDfa::each_piece(none_.edges(at.first), way.before.edges(at.second),
                          [&](uint32_t lo, uint32_t hi, uint32_t none, uint32_t then) {
                            if (none == CodeDfa::kGone || then == CodeDfa::kGone || !fuel_.burn(12)) return;
                            before.add_code_points(from, lo, hi, free.id_of(none, then, before));
                          });
    }
    // From there on: what is announced, up to where it is found.
    CodeGraph from(0, fuel_);
    Pairs announced;
    const uint32_t end = from.add_state();
    std::map<uint32_t, uint32_t> begins;  // by what has been read before
    for (const auto& [at, state] : free.queue)
      if (way.before.accepts(at.second)) begins.try_emplace(at.first, announced.id_of(at.first, 0, from));
    for (size_t i = 0; i < announced.queue.size() && fuel_.burn(24); ++i) {
      const auto [at, here] = announced.queue[i];
      CodeDfa::each_piece(none_.edges(at.first), way.from.edges(at.second),
                          [&](uint32_t lo, uint32_t hi, uint32_t none, uint32_t then) {
                            if (then == CodeDfa::kGone || !fuel_.burn(12)) return;
                            if (none != CodeDfa::kGone) {
                              from.add_code_points(here, lo, hi, announced.id_of(none, then, from));
                            } else if (way.from.accepts(then)) {
                              from.add_code_points(here, lo, hi, end);
                            }
                          });
    }
    Lead lead;
    lead.end = end;
    lead.places.resize(from.graph().n_states);
    for (const GraphEdge& e : from.graph().edges) lead.places[e.from].push_back({e.to, e.lo, e.hi});
    std::vector<uint32_t> places;
    for (const auto& [none, place] : begins) places.push_back(place);
    const std::vector<ExprId> texts = beginning_with(lead, places, LeadIs::kKept, g_);
    std::map<uint32_t, ExprId> text_at;
    for (size_t i = 0; i < places.size(); ++i) text_at[places[i]] = texts[i];
    const uint32_t done = before.add_state();
    before.graph().accepting = {done};
    for (const auto& [at, state] : free.queue)
      if (way.before.accepts(at.second))
        before.graph().edges.push_back({state, done, 0, 0, text_at.at(begins.at(at.first))});
    return g_.graph(std::move(before.graph()));
  }

  Grammar& g_;
  Fuel& fuel_;
  CodeDfa none_;
};

// The same of words alone, which need not be UTF-8.
void wait_for_words(const std::vector<Trigger>& triggers, Grammar& grammar, std::vector<ExprId>& choices,
                    ExprId& free) {
  FreeText text{.stops_after_first = true};
  FreeText before;  // a token
  for (const Trigger& trigger : triggers) {
    if (trigger.token >= 0) continue;
    text.words.push_back({trigger.text, following(trigger.text, grammar)});
    before.excluded.push_back(trigger.text);
  }
  choices.push_back(free_text(text, grammar));
  if (text.words.size() < triggers.size()) free = free_text(before, grammar);
}

}  // namespace

ExprId following(std::string_view text, Grammar& grammar) {
  Lead lead;
  lead.end = static_cast<uint32_t>(text.size());
  lead.places.resize(text.size() + 1);
  for (uint32_t i = 0; i < lead.end; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    lead.places[i].push_back({i + 1, byte, byte});
  }
  constexpr uint32_t kBegin = 0;
  return beginning_with(lead, {&kBegin, 1}, LeadIs::kLeftOut, grammar)[0];
}

Status wait_for(const std::vector<Trigger>& triggers, Grammar& grammar) {
  TRY(grammar.check_depth());
  std::vector<ExprId> choices;
  ExprId free = kNoExpr;  // without a trigger
  const auto is_pattern = [](const Trigger& t) { return t.token < 0 && t.kind != Trigger::Kind::kText; };
  if (std::ranges::any_of(triggers, is_pattern)) {
    TRY(PatternWait(grammar).run(triggers, choices, free));
  } else {
    wait_for_words(triggers, grammar, choices, free);
  }
  for (const Trigger& trigger : triggers) {
    if (trigger.token < 0) continue;
    choices.push_back(
        grammar.sequence({free, grammar.tokens({{trigger.token, trigger.token}}), following(trigger.text, grammar)}));
  }
  grammar.set_root(grammar.rule("lazy", grammar.choice(std::move(choices))));
  return {};
}

}  // namespace ibid::grammar
