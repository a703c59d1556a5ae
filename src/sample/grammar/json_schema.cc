#include "sample/grammar/json_schema.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "sample/grammar/json_parts.h"
#include "sample/grammar/schema_guidance.h"
#include "sample/grammar/schema_names.h"
#include "sample/grammar/schema_twins.h"

namespace ibid::grammar {
namespace {

// From shapes to rules. Each conjunction of schemas becomes one rule, so what refers to itself becomes recursion.
class SchemaWriter {
 public:
  SchemaWriter(SchemaLogic& logic, const JsonSpelling& spelling, Grammar& grammar)
      : logic_(logic),
        g_(grammar),
        parts_(grammar, logic.options().space, spelling),
        other_names_(grammar),
        held_(grammar.fuel()),
        twins_(grammar.fuel()) {}

  Result<RuleId> run() {
    const RuleId root = rule_of({{&logic_.document().root(), false}});
    for (size_t i = 0; i < queue_.size(); ++i) {  // which grows
      const auto [conjunction, rule] = queue_[i];
      ASSIGN_OR_RETURN(const Shapes shapes, logic_.shapes(conjunction));
      std::vector<ExprId> choices;
      for (const Shape& shape : shapes) TRY(write(conjunction, shape, choices));
      g_.define(rule, g_.choice(std::move(choices)));
      if (g_.fuel().is_empty()) return out_of_fuel();
    }
    return root;
  }

 private:
  RuleId rule_of(const Conjunction& as_it_stands) {
    if (as_it_stands.empty()) return parts_.value();
    const Conjunction conjunction = logic_.document().is_one_resource() ? twins_.first_of(as_it_stands) : as_it_stands;
    auto [at, is_new] = rules_.try_emplace(conjunction, 0);
    if (is_new) {
      g_.fuel().burn(20);
      const int64_t a_conjunction = block(conjunction.size() * sizeof(Literal));
      held_.add(96 + 2 * a_conjunction);
      at->second = g_.add_rule("schema");
      if (make_room(queue_, 1, held_)) queue_.push_back({conjunction, at->second});
    }
    return at->second;
  }
  ExprId value_of(const Conjunction& conjunction) { return g_.call(rule_of(conjunction)); }

  // A keyword of the shape that no grammar here can enforce: if not strict, it is reported and left out.
  Status cannot(const Conjunction& conjunction, std::string_view keyword, std::string_view why) {
    return logic_.cannot(conjunction.empty() ? nullptr : conjunction[0].schema, keyword, why);
  }

  Status write(const Conjunction& conjunction, const Shape& shape, std::vector<ExprId>& choices) {
    if (shape.values) {
      for (const Value* value : *shape.values) {
        ASSIGN_OR_RETURN(const bool is_held, logic_.fits(shape, *value));
        if (is_held) choices.push_back(parts_.text_of(*value));
      }
      return {};
    }
    if (shape.types & kNullBit) choices.push_back(g_.text("null"));
    if (shape.types & kFalseBit) choices.push_back(g_.text("false"));
    if (shape.types & kTrueBit) choices.push_back(g_.text("true"));
    if (shape.types & kNumberBit) {
      NumberRules plain = shape.numbers;
      plain.is_integer = false;
      if (plain.is_free()) {
        choices.push_back(parts_.number(shape.numbers.is_integer));
      } else {
        Result<CodeDfa> texts = number_texts(shape.numbers, g_.fuel());
        if (!texts && texts.error().kind == ErrorKind::kUnsupported) {
          TRY(cannot(conjunction, "multipleOf", texts.error().message));
          choices.push_back(parts_.number(shape.numbers.is_integer));
        } else if (!texts) {
          return std::move(texts).error();
        } else {
          choices.push_back(texts->spell(g_, CodeDfa::Spelling::kPlain));
        }
      }
    }
    if (shape.types & kStringBit) TRY(write_string(shape, choices));
    if (shape.types & kArrayBit) TRY(write_array(conjunction, shape, choices));
    if (shape.types & kObjectBit) TRY(write_object(conjunction, shape, choices));
    return {};
  }

  Status write_string(const Shape& shape, std::vector<ExprId>& choices) {
    const ExprId quote = g_.text("\"");
    if (shape.patterns.empty() && shape.excluded_strings.empty()) {
      const bool is_free = shape.min_length == 0 && shape.max_length == kUnbounded;
      choices.push_back(
          is_free ? parts_.string()
                  : g_.sequence({quote, g_.repeat(parts_.character(), shape.min_length, shape.max_length), quote}));
      return {};
    }
    std::vector<const CodeDfa*> patterns;
    for (const Pattern& p : shape.patterns) patterns.push_back(p.get());
    auto [known, is_new] = strings_.try_emplace(
        {std::move(patterns), shape.min_length, shape.max_length, shape.excluded_strings}, kNoExpr);
    if (!is_new) {
      if (known->second != kNoExpr) choices.push_back(known->second);
      return {};
    }
    if (!held_.add(160 + shape.bytes())) return out_of_fuel();
    CodeDfa texts = CodeDfa::all();
    for (const Pattern& p : shape.patterns) {
      ASSIGN_OR_RETURN(texts, CodeDfa::combine(texts, *p, CodeDfa::How::kBoth, g_.fuel()));
    }
    const std::vector<std::string_view> out(shape.excluded_strings.begin(), shape.excluded_strings.end());
    if (!out.empty()) {
      ASSIGN_OR_RETURN(const CodeDfa excluded, CodeDfa::one_of(out, g_.fuel()));
      ASSIGN_OR_RETURN(texts, CodeDfa::combine(texts, excluded, CodeDfa::How::kFirstOnly, g_.fuel()));
    }
    if (texts.is_empty()) return {};
    ExprId inside = kNoExpr;
    if (shape.min_length == 0 && shape.max_length == kUnbounded) {
      inside = texts.spell(g_, CodeDfa::Spelling::kJson);
    } else {
      ASSIGN_OR_RETURN(inside, texts.spell_bounded(g_, CodeDfa::Spelling::kJson, shape.min_length, shape.max_length));
      if (inside == kNoExpr) return {};
    }
    known->second = g_.call(g_.rule("text", g_.sequence({quote, inside, quote})));
    choices.push_back(known->second);
    return {};
  }

  ExprId after_comma(ExprId part) { return parts_.after_comma(part); }
  ExprId first(ExprId part) { return g_.sequence({parts_.space(), part}); }

  Status write_array(const Conjunction& conjunction, const Shape& shape, std::vector<ExprId>& choices) {
    size_t n_prefix = 0;
    for (const ArrayKeywords& keywords : shape.arrays) n_prefix = std::max(n_prefix, keywords.prefix.size());
    if (shape.unique != nullptr && shape.max_items > 1) {
      // Impossible items limit the list to the items before them.
      const bool ends_early = n_prefix <= 1 && logic_.is_false(SchemaLogic::item(shape, n_prefix));
      if (!ends_early) TRY(logic_.cannot(shape.unique, "uniqueItems", "items cannot be compared with all before them"));
    }
    std::vector<ContainsKeyword> contains = shape.contains;
    std::erase_if(contains, [](const ContainsKeyword& c) { return c.min == 0 && c.max == kUnbounded; });
    constexpr uint32_t kMaxCounts = 200;
    auto is_large = [&](uint32_t n) { return n != kUnbounded && n > kMaxCounts; };
    if (contains.size() > 1 || (contains.size() == 1 && (contains[0].min > kMaxCounts || is_large(contains[0].max) ||
                                                         is_large(shape.min_items) || is_large(shape.max_items)))) {
      TRY(cannot(conjunction, "contains", "it counts too much at once"));
      contains.clear();
    }
    Graph graph;
    if (contains.empty()) {
      // State i: i items; the last one is after all that have no place of their own.
      const uint32_t n = static_cast<uint32_t>(std::min<size_t>(n_prefix, shape.max_items));
      graph.n_states = n + 2;
      for (uint32_t i = 0; i < n; ++i) {
        const Conjunction item = SchemaLogic::item(shape, i);
        if (logic_.is_false(item)) break;
        graph.edges.push_back({i, i + 1, 0, 0, i == 0 ? first(value_of(item)) : after_comma(value_of(item))});
      }
      for (uint32_t i = 0; i <= n; ++i)
        if (i >= shape.min_items) graph.accepting.push_back(i);
      const Conjunction item = SchemaLogic::item(shape, n_prefix);
      if (shape.max_items > n && !logic_.is_false(item)) {
        const uint32_t min = shape.min_items > n ? shape.min_items - n : 1;
        const uint32_t max = shape.max_items == kUnbounded ? kUnbounded : shape.max_items - n;
        const ExprId next = after_comma(value_of(item));
        const ExprId rest =
            n > 0 ? g_.repeat(next, min, max)
                  : g_.sequence({first(value_of(item)), g_.repeat(next, min - 1, max == kUnbounded ? max : max - 1)});
        graph.edges.push_back({n, n + 1, 0, 0, rest});
        graph.accepting.push_back(n + 1);
      }
    } else {
      const ContainsKeyword& c = contains[0];
      uint32_t n_places = std::max({static_cast<uint32_t>(n_prefix), shape.min_items, c.from});
      if (shape.max_items != kUnbounded) n_places = std::max(n_places, shape.max_items);
      n_places = std::max(n_places, 1u);
      const uint32_t most = c.max == kUnbounded ? c.min : c.max;
      auto state = [&](uint32_t i, uint32_t found) { return i * (most + 1) + found; };
      graph.n_states = (n_places + 1) * (most + 1);
      // For each state up to two edges, and whether it accepts.
      const int64_t bytes = int64_t{graph.n_states} * (3 * sizeof(GraphEdge) + 2 * sizeof(uint32_t));
      if (!g_.fuel().burn(int64_t{graph.n_states} * 20) || !g_.fuel().has_room(bytes)) return out_of_fuel();
      graph.edges.reserve(2 * graph.n_states);
      for (uint32_t i = 0; i <= n_places; ++i) {
        for (uint32_t found = 0; found <= most; ++found) {
          if (i >= shape.min_items && found >= c.min) graph.accepting.push_back(state(i, found));
          if (i == n_places && shape.max_items != kUnbounded) continue;
          const uint32_t to = std::min(i + 1, n_places);
          const Conjunction item = SchemaLogic::item(shape, i);
          auto edge = [&](const Conjunction& what, uint32_t to_found) {
            if (logic_.is_false(what)) return;
            graph.edges.push_back({state(i, found), state(to, to_found), 0, 0,
                                   i == 0 ? first(value_of(what)) : after_comma(value_of(what))});
          };
          Conjunction other = item;
          if (c.max != kUnbounded && i >= c.from)
            other =
                both(other, {{c.what[0].schema, !c.what[0].is_negated}});  // which is one: `contains` has one schema
          edge(other, found);
          if (i < c.from) continue;
          if (found < most) {
            edge(both(item, c.what), found + 1);
          } else if (c.max == kUnbounded) {
            edge(both(item, c.what), found);
          }
        }
      }
    }
    choices.push_back(g_.sequence({g_.text("["), g_.graph(std::move(graph)), parts_.space(), g_.text("]")}));
    return {};
  }

  // What a list of members takes of a heap besides their names, for each of them, about.
  static constexpr int64_t kMemberBytes = 320;
  struct Member {
    std::string name;
    Conjunction value;
    bool is_required = false;
    bool may_be_some = false;  // its name is among those of the shape's SomeMember
  };

  // Members that the schema names, in its order: what each must be.
  Result<bool> list_members(const Shape& shape, std::vector<Member>& members, std::vector<std::string_view>& names,
                            Held& held) {
    std::map<std::string_view, bool> seen;
    auto add = [&](const std::string& name) -> Result<bool> {
      if (!seen.try_emplace(name, true).second) return true;
      if (!held.add(kMemberBytes + block_of(name))) return out_of_fuel();
      names.push_back(name);
      const size_t at = static_cast<size_t>(std::ranges::find(shape.required, name) - shape.required.begin());
      const bool is_required = at < shape.required.size();
      ASSIGN_OR_RETURN(const std::optional<Conjunction> value, logic_.member(shape, name));
      if (!value) return !is_required;
      const bool may_be_some = !shape.some.empty() && shape.some[0].names->accepts(name);
      members.push_back({name, *value, is_required, may_be_some});
      return true;
    };
    for (const ObjectKeywords& keywords : shape.objects)
      for (const auto& [name, schemas] : keywords.properties) {
        ASSIGN_OR_RETURN(const bool is_possible, add(name));
        if (!is_possible) return false;
      }
    for (const std::string& name : shape.required) {
      ASSIGN_OR_RETURN(const bool is_possible, add(name));
      if (!is_possible) return false;
    }
    return true;
  }

  struct Names {
    CodeDfa texts;
    Conjunction value;
    bool is_rest = false;  // all that are not listed, rather than `texts`
  };

  // Names that the schema does not list, parted by which patterns they are of.
  Status list_others(const Shape& shape, const std::vector<std::string_view>& known, std::vector<Names>& others) {
    Fuel& fuel = g_.fuel();
    const bool has_patterns =
        std::ranges::any_of(shape.objects, [](const ObjectKeywords& o) { return !o.patterns.empty(); });
    if (!known.empty() && !has_patterns && shape.names.empty() && shape.some.empty()) {
      Conjunction value;
      for (const ObjectKeywords& keywords : shape.objects) value = both(value, keywords.additional);
      if (!logic_.is_false(value)) others.push_back({{}, std::move(value), true});
      return {};
    }
    CodeDfa rest = CodeDfa::all();
    if (!known.empty()) {
      ASSIGN_OR_RETURN(const CodeDfa listed, CodeDfa::one_of(known, fuel));
      ASSIGN_OR_RETURN(rest, listed.complement(fuel));
    }
    for (const Pattern& names : shape.names) {
      ASSIGN_OR_RETURN(rest, CodeDfa::combine(rest, *names, CodeDfa::How::kBoth, fuel));
    }
    struct Part {
      CodeDfa texts;
      Conjunction value;
      bool is_of_group = false;
    };
    std::vector<Part> parts;
    parts.push_back({std::move(rest), {}});
    for (const ObjectKeywords& keywords : shape.objects) {
      for (Part& part : parts) part.is_of_group = false;
      for (const auto& [names, schemas] : keywords.patterns) {
        std::vector<Part> next;
        for (Part& part : parts) {
          ASSIGN_OR_RETURN(CodeDfa in, CodeDfa::combine(part.texts, *names, CodeDfa::How::kBoth, fuel));
          ASSIGN_OR_RETURN(CodeDfa out, CodeDfa::combine(part.texts, *names, CodeDfa::How::kFirstOnly, fuel));
          if (!in.is_empty()) next.push_back({std::move(in), both(part.value, schemas), true});
          if (!out.is_empty()) next.push_back({std::move(out), part.value, part.is_of_group});
        }
        parts = std::move(next);
      }
      for (Part& part : parts)
        if (!part.is_of_group) part.value = both(part.value, keywords.additional);
    }
    for (Part& part : parts)
      if (!part.texts.is_empty() && !logic_.is_false(part.value))
        others.push_back({std::move(part.texts), std::move(part.value), false});
    return {};
  }

  ExprId name_of(const CodeDfa& texts) {
    return texts.is_all() ? parts_.string() : quoted(texts.spell(g_, CodeDfa::Spelling::kJson));
  }
  ExprId quoted(ExprId inside) {
    const ExprId quote = g_.text("\"");
    return g_.sequence({quote, inside, quote});
  }

  Status write_object(const Conjunction& conjunction, const Shape& shape, std::vector<ExprId>& choices) {
    if (shape.some.size() > 1) TRY(cannot(conjunction, "not", "it requires several members of unknown names"));
    std::vector<Member> members;
    std::vector<std::string_view> known;
    Held held(g_.fuel());
    ASSIGN_OR_RETURN(const bool is_possible, list_members(shape, members, known, held));
    if (!is_possible) return {};
    std::vector<Names> others;
    TRY(list_others(shape, known, others));
    const bool has_some = shape.some.size() == 1;
    uint32_t n_required = 0;
    for (const Member& m : members) n_required += m.is_required;
    // Members of unlisted names may turn out to be one and the same: as a minimum they count once.
    uint32_t min = shape.min_members;
    if (min <= n_required || (min == 1 && has_some)) min = 0;
    if (min > 1 && !others.empty()) {
      TRY(cannot(conjunction, "minProperties", "members of any names cannot be distinguished"));
      min = 1;
    }
    const uint32_t max = shape.max_members;
    constexpr uint32_t kMaxCounts = 300;
    uint32_t counts = std::max(min, 1u);  // states of the count: 0..counts, the last one is "so many or more"
    if (max != kUnbounded && (max < members.size() || !others.empty())) counts = std::max(min, max + 1);
    if (counts > kMaxCounts && max != kUnbounded && counts == max + 1) {
      TRY(cannot(conjunction, "maxProperties", "so many are not counted"));
      counts = std::max(min, 1u);
    }
    if (counts > kMaxCounts) {
      TRY(cannot(conjunction, "minProperties", "so many are not counted"));
      min = 0, counts = 1;
    }
    const bool has_most = counts == max + 1 && max != kUnbounded;
    // States: (place among the members, count, whether some member was as the shape requires), and one after the end.
    const auto n = static_cast<uint32_t>(members.size());
    const uint32_t n_some = has_some ? 2 : 1;
    auto state = [&](uint32_t i, uint32_t count, uint32_t some) { return (i * (counts + 1) + count) * n_some + some; };
    Graph graph;
    graph.n_states = (n + 1) * (counts + 1) * n_some + 1;
    const uint32_t end = graph.n_states - 1;
    if (!g_.fuel().burn(graph.n_states * 4)) return out_of_fuel();
    std::vector<ExprId> bodies(n), some_bodies(n, kNoExpr);
    for (uint32_t i = 0; i < n; ++i) {
      const ExprId name = g_.text("\"" + json_spelling(members[i].name) + "\"");
      bodies[i] = parts_.member(name, value_of(members[i].value));
      const Conjunction wanted = has_some ? both(members[i].value, shape.some[0].value) : Conjunction();
      if (members[i].may_be_some && !logic_.is_false(wanted)) some_bodies[i] = parts_.member(name, value_of(wanted));
    }
    std::vector<ExprId> more, some_more;
    for (const Names& names : others) {
      const ExprId name = names.is_rest ? quoted(other_names_.none_of(known)) : name_of(names.texts);
      more.push_back(parts_.member(name, value_of(names.value)));
      if (!has_some) continue;
      ASSIGN_OR_RETURN(const CodeDfa wanted,
                       CodeDfa::combine(names.texts, *shape.some[0].names, CodeDfa::How::kBoth, g_.fuel()));
      const Conjunction value = both(names.value, shape.some[0].value);
      if (!wanted.is_empty() && !logic_.is_false(value))
        some_more.push_back(parts_.member(name_of(wanted), value_of(value)));
    }
    const ExprId any_more = g_.choice(more), any_some_more = g_.choice(some_more);
    const ExprId nothing = g_.empty();
    const auto add_edge = [&](uint32_t from, uint32_t to, ExprId expr) {
      if (make_room(graph.edges, 1, held)) graph.edges.push_back({from, to, 0, 0, expr});
    };
    auto edge = [&](uint32_t from, uint32_t to, uint32_t count, ExprId body) {
      add_edge(from, to, count == 0 ? first(body) : after_comma(body));
    };
    for (uint32_t some = 0; some < n_some; ++some) {
      for (uint32_t count = 0; count <= counts; ++count) {
        const uint32_t next = std::min(count + 1, counts);
        const bool is_full = has_most && count >= max;
        for (uint32_t i = 0; i < n; ++i) {
          if (!members[i].is_required) add_edge(state(i, count, some), state(i + 1, count, some), nothing);
          if (is_full) continue;
          edge(state(i, count, some), state(i + 1, next, some), count, bodies[i]);
          if (has_some && some == 0 && some_bodies[i] != kNoExpr)
            edge(state(i, count, 0), state(i + 1, next, 1), count, some_bodies[i]);
        }
        if (!is_full && !more.empty()) {
          // As a minimum they count once: from the second on the count stays, unless there is a most to keep.
          edge(state(n, count, some), state(n, next, some), count, any_more);
          // The required one comes last, so that no later member of its name replaces it.
          if (has_some && some == 0 && !some_more.empty() && next >= min)
            edge(state(n, count, 0), end, count, any_some_more);
        }
        if (count >= min && !(has_most && count > max) && (!has_some || some == 1))
          graph.accepting.push_back(state(n, count, some));
      }
    }
    graph.accepting.push_back(end);
    if (g_.fuel().is_empty()) return out_of_fuel();
    held = Held();  // the grammar has it
    choices.push_back(g_.sequence({g_.text("{"), g_.graph(std::move(graph)), parts_.space(), g_.text("}")}));
    return {};
  }

  SchemaLogic& logic_;
  Grammar& g_;
  JsonParts parts_;
  OtherNames other_names_;
  Held held_;  // by what follows
  SchemaTwins twins_;
  std::map<Conjunction, RuleId> rules_;
  // Strings of patterns (which SchemaLogic keeps), of lengths, and without some.
  std::map<std::tuple<std::vector<const CodeDfa*>, uint32_t, uint32_t, std::vector<std::string>>, ExprId> strings_;
  std::vector<std::pair<Conjunction, RuleId>> queue_;
};

}  // namespace

Result<RuleId> read_json_schema(std::string_view schema, const SchemaOptions& options, Grammar& grammar,
                                SchemaReport* report) {
  ASSIGN_OR_RETURN(const SchemaDocument document, SchemaDocument::read(schema, grammar.fuel()));
  SchemaReport own;
  const SchemaOptions as_guided = guided(options, document.root());
  SchemaLogic logic(document, as_guided, grammar.fuel(), report != nullptr ? report : &own);
  ASSIGN_OR_RETURN(const JsonSpelling spelling, guided_spelling(logic, grammar));
  ASSIGN_OR_RETURN(const RuleId root, SchemaWriter(logic, spelling, grammar).run());
  for (std::string& sentence : own.ignored) grammar.add_note(std::move(sentence));
  grammar.set_root(root);
  return root;
}

RuleId any_json(Grammar& grammar, JsonSpace space) { return JsonParts(grammar, space).value(); }
RuleId any_json_object(Grammar& grammar, JsonSpace space) { return JsonParts(grammar, space).object(); }

}  // namespace ibid::grammar
