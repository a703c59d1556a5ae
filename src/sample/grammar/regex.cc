#include "sample/grammar/regex.h"

#include <algorithm>
#include <array>
#include <mutex>

#include "sample/grammar/text_reader.h"
#include "text/tokenizer/unicode.h"

namespace ibid::grammar {
namespace {

struct Node {
  enum Kind : uint8_t { kEmpty, kSet, kSequence, kChoice, kRepeat, kBegin, kEnd } kind = kEmpty;
  uint32_t set = 0, min = 0, max = 0;
  std::vector<uint32_t> parts = {};
};

CodeSet digits() { return {{'0', '9'}}; }
CodeSet words() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
// WhiteSpace and LineTerminator of ECMA-262, sections 12.2 and 12.3.
CodeSet spaces() {
  return {{9, 13},          {0x20, 0x20},     {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

constexpr std::array<const char*, 30> kCategoryNames = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl",
                                                        "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc",
                                                        "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn", "Cs"};
struct LongName {
  std::string_view name, code;
};
constexpr LongName kLongNames[] = {{"Letter", "L"},
                                   {"Uppercase_Letter", "Lu"},
                                   {"Lowercase_Letter", "Ll"},
                                   {"Mark", "M"},
                                   {"Number", "N"},
                                   {"Decimal_Number", "Nd"},
                                   {"digit", "Nd"},
                                   {"Punctuation", "P"},
                                   {"punct", "P"},
                                   {"Symbol", "S"},
                                   {"Separator", "Z"},
                                   {"Space_Separator", "Zs"},
                                   {"Other", "C"},
                                   {"Control", "Cc"},
                                   {"cntrl", "Cc"},
                                   {"Alphabetic", "L"},
                                   {"Math_Symbol", "Sm"},
                                   {"Currency_Symbol", "Sc"}};

// All categories at once, the first time that somebody asks.
const std::array<CodeSet, 30>& categories() {
  static const std::array<CodeSet, 30> sets = [] {
    std::array<CodeSet, 30> made;
    uint32_t begin = 0;
    for (uint32_t c = 1; c <= kMaxCodePoint + 1; ++c) {
      if (c <= kMaxCodePoint && unicode::category(c) == unicode::category(begin)) continue;
      made[unicode::category(begin)].add(begin, c - 1);
      begin = c;
    }
    for (CodeSet& set : made) static_cast<void>(set.ranges());  // the normal form, before others read it
    return made;
  }();
  return sets;
}

class RegexReader {
 public:
  RegexReader(std::string_view text, Fuel& fuel) : in_(text), fuel_(fuel), held_(fuel), sets_(fuel) {}

  Result<uint32_t> run() {
    if (in_.rest().size() > kMaxText) return invalid("The expression is longer than a mebibyte.");
    ASSIGN_OR_RETURN(const uint32_t root, read_choice(0));
    if (!in_.at_end()) return in_.error("A closing bracket has no opening one");
    return root;
  }
  const std::vector<Node>& nodes() const { return nodes_; }
  const CodeSets& sets() const { return sets_; }
  const std::vector<uint32_t>& excluded() const { return excluded_; }
  const std::vector<uint32_t>& groups() const { return groups_; }  // that capture, as they open
  uint32_t sequence(std::vector<uint32_t> parts) { return add({Node::kSequence, 0, 0, 0, std::move(parts)}); }

 private:
  uint32_t add(Node node) {
    fuel_.burn(48 + 2 * static_cast<int64_t>(node.parts.size()));
    const bool has_room = make_room(nodes_, 1, held_) && held_.add(block(node.parts.capacity() * sizeof(uint32_t)));
    if (!has_room && !nodes_.empty()) return 0;
    nodes_.push_back(std::move(node));
    return static_cast<uint32_t>(nodes_.size() - 1);
  }
  uint32_t add_set(CodeSet set) {
    fuel_.burn(static_cast<int64_t>(set.ranges().size()));
    return add({Node::kSet, sets_.add(std::move(set))});
  }

  Result<uint32_t> read_choice(int depth) {
    if (depth > kMaxNesting) return in_.error("The groups are nested too deeply");
    std::vector<uint32_t> parts;
    do {
      ASSIGN_OR_RETURN(const uint32_t part, read_sequence(depth));
      parts.push_back(part);
    } while (in_.take("|"));
    return parts.size() == 1 ? parts[0] : add({Node::kChoice, 0, 0, 0, std::move(parts)});
  }

  Result<uint32_t> read_sequence(int depth) {
    std::vector<uint32_t> parts;
    while (!in_.at_end() && in_.peek() != '|' && in_.peek() != ')') {
      if (fuel_.is_empty()) return out_of_fuel();
      uint32_t part = 0;
      bool repeats = true;
      if (in_.take("^")) {
        part = add({Node::kBegin});
        repeats = false;
      } else if (in_.take("$")) {
        part = add({Node::kEnd});
        repeats = false;
      } else if (in_.take("(")) {
        bool is_assertion = false;
        ASSIGN_OR_RETURN(part, read_group(depth, parts, is_assertion));
        repeats = !is_assertion;
      } else if (in_.take("[")) {
        ASSIGN_OR_RETURN(CodeSet set, read_class());
        part = add_set(std::move(set));
      } else if (in_.take(".")) {
        part = add_set(CodeSet{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}.complement());
      } else if (in_.take("\\")) {
        ASSIGN_OR_RETURN(CodeSet set, read_escape(false));
        part = add_set(std::move(set));
      } else if (in_.peek() == '*' || in_.peek() == '+' || in_.peek() == '?') {
        return in_.error("There is nothing to repeat");
      } else {
        uint32_t c = 0;
        if (!in_.code_point(c)) return in_.error("The expression is no UTF-8");
        part = add_set(CodeSet{{c, c}});
      }
      ASSIGN_OR_RETURN(part, read_repeat(part, repeats));
      parts.push_back(part);
    }
    return parts.size() == 1 ? parts[0] : add({Node::kSequence, 0, 0, 0, std::move(parts)});
  }

  // Behind "(".
  Result<uint32_t> read_group(int depth, const std::vector<uint32_t>& before, bool& is_assertion) {
    bool is_excluded = false, captures = true;
    if (in_.take("?")) {
      captures = false;
      if (in_.take(":")) {
      } else if (in_.peek() == '!') {
        // A text that begins so is none: a complement, where all else of the expression stands behind it.
        const bool leads = depth == 0 && excluded_.empty() && nodes_.size() == before.size() &&
                           (before.empty() || (before.size() == 1 && nodes_[before[0]].kind == Node::kBegin));
        if (!leads) return in_.error("Look-ahead is served only at an expression's begin");
        in_.skip(1);
        is_excluded = is_assertion = true;
      } else if (in_.peek() == '=' || in_.starts_with("<=") || in_.starts_with("<!")) {
        return in_.error("Look-around is not served");
      } else if (in_.take("<") || in_.take("P<")) {
        while (TextReader::is_name(in_.peek()) || in_.peek() == '$') in_.skip(1);
        if (!in_.take(">")) return in_.error("A group's name is not closed");
        captures = true;
      } else {
        return in_.error("Such a group is not served");
      }
    }
    const size_t place = groups_.size();
    if (captures) groups_.push_back(0);
    ASSIGN_OR_RETURN(const uint32_t inner, read_choice(depth + 1));
    if (!in_.take(")")) return in_.error("A closing bracket is missing");
    if (captures) groups_[place] = inner;
    if (!is_excluded) return inner;
    if (in_.rest().find('|') != std::string_view::npos && in_.peek() != '\0' && has_top_choice())
      return in_.error("Look-ahead before a choice is not served");
    excluded_.push_back(inner);
    return add({Node::kEmpty});
  }

  bool has_top_choice() const {
    int depth = 0;
    bool in_class = false;
    const std::string_view rest = in_.rest();
    for (size_t i = 0; i < rest.size(); ++i) {
      const char c = rest[i];
      if (c == '\\')
        ++i;
      else if (in_class)
        in_class = c != ']';
      else if (c == '[')
        in_class = true;
      else if (c == '(')
        ++depth;
      else if (c == ')')
        --depth;
      else if (c == '|' && depth == 0)
        return true;
    }
    return false;
  }

  Result<uint32_t> read_repeat(uint32_t part, bool may_repeat) {
    uint32_t min = 0, max = kUnbounded;
    const size_t begin = in_.position();
    if (in_.take("*")) {
    } else if (in_.take("+")) {
      min = 1;
    } else if (in_.take("?")) {
      max = 1;
    } else if (in_.take("{")) {
      const bool has_min = in_.number(min);
      max = min;
      if (has_min && in_.take(",")) {
        max = kUnbounded;
        if (in_.peek() != '}' && !in_.number(max)) max = kUnbounded - 1;
      }
      if (!has_min || !in_.take("}")) {  // an ordinary brace
        in_.go_to(begin);
        return part;
      }
      if (min > kMaxRepeat || (max != kUnbounded && max > kMaxRepeat)) return in_.error("So many repeats are too many");
      if (max < min) return in_.error("The repeats are fewer at most than at least");
    } else {
      return part;
    }
    if (!may_repeat) return in_.error("There is nothing to repeat");
    in_.take("?");  // lazy: the same texts
    if (in_.peek() == '*' || in_.peek() == '+' || in_.peek() == '?') return in_.error("There is nothing to repeat");
    return add({Node::kRepeat, 0, min, max, {part}});
  }

  // Behind "[".
  Result<CodeSet> read_class() {
    const bool is_negated = in_.take("^");
    CodeSet set;
    for (size_t n = 0; !in_.take("]");) {
      if (in_.at_end()) return in_.error("A class is not closed");
      ASSIGN_OR_RETURN(const CodeSet lo, read_class_atom());
      n += lo.ranges().size();
      if (n > kMaxClass) return in_.error("The class is too long");
      const bool is_range = in_.peek() == '-' && in_.peek(1) != ']' && in_.peek(1) != '\0';
      auto single = [](const CodeSet& s) { return s.ranges().size() == 1 && s.ranges()[0].lo == s.ranges()[0].hi; };
      if (!is_range || !single(lo)) {
        set.add(lo);
        continue;
      }
      in_.skip(1);
      ASSIGN_OR_RETURN(const CodeSet hi, read_class_atom());
      if (!single(hi)) {
        set.add(lo), set.add(hi), set.add('-', '-');
        continue;
      }
      if (hi.ranges()[0].lo < lo.ranges()[0].lo) return in_.error("The range of a class is empty");
      set.add(lo.ranges()[0].lo, hi.ranges()[0].lo);
      if (!fuel_.burn(8)) return out_of_fuel();
    }
    return is_negated ? set.complement() : set;
  }

  Result<CodeSet> read_class_atom() {
    if (in_.take("\\")) return read_escape(true);
    uint32_t c = 0;
    if (in_.at_end() || !in_.code_point(c)) return in_.error("A class is not closed, or no UTF-8");
    return CodeSet{{c, c}};
  }

  // Behind a backslash.
  Result<CodeSet> read_escape(bool in_class) {
    if (in_.at_end()) return in_.error("A backslash ends the expression");
    uint32_t c = 0;
    if (!in_.code_point(c)) return in_.error("The expression is no UTF-8");
    auto one = [](uint32_t code_point) { return CodeSet{{code_point, code_point}}; };
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().complement();
      case 'w':
        return words();
      case 'W':
        return words().complement();
      case 's':
        return spaces();
      case 'S':
        return spaces().complement();
      case 't':
        return one(9);
      case 'n':
        return one(10);
      case 'v':
        return one(11);
      case 'f':
        return one(12);
      case 'r':
        return one(13);
      case '0':
        if (in_.peek() >= '0' && in_.peek() <= '9') return in_.error("Octal escapes are not served");
        return one(0);
      case 'c': {
        const char letter = in_.peek();
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z')))
          return in_.error("\\c wants a letter");
        in_.skip(1);
        return one(static_cast<uint32_t>(letter) & 31);
      }
      case 'x':
        if (!in_.hex(2, c)) return in_.error("\\x wants two hexadecimal digits");
        return one(c);
      case 'u':
        return read_code_point();
      case 'p':
      case 'P': {
        ASSIGN_OR_RETURN(const CodeSet set, read_property());
        return c == 'P' ? set.complement() : set;
      }
      case 'b':
        if (in_class) return one(8);
        return in_.error("\\b is not served");
      default:
        break;
    }
    if (c >= '1' && c <= '9') return in_.error("Back-references are not served");
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return in_.error("There is no such escape");
    return one(c);
  }

  Result<CodeSet> read_code_point() {
    uint32_t c = 0;
    if (in_.take("{")) {
      int n = 0;
      for (uint32_t digit = 0; n < 7 && in_.hex(1, digit); ++n) c = c << 4 | digit;
      if (n == 0 || n == 7 || c > kMaxCodePoint || !in_.take("}")) return in_.error("This is no code point");
    } else if (!in_.hex(4, c)) {
      return in_.error("\\u wants four hexadecimal digits");
    }
    uint32_t low = 0;
    const size_t behind = in_.position();
    if (c >= 0xD800 && c < 0xDC00 && in_.take("\\u")) {
      if (in_.hex(4, low) && low >= 0xDC00 && low < 0xE000) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      } else {
        in_.go_to(behind);
      }
    }
    return CodeSet{{c, c}};  // a half of a pair alone is in no text
  }

  Result<CodeSet> read_property() {
    std::string_view name;
    size_t begin = in_.position();
    if (in_.take("{")) {
      begin = in_.position();
      while (!in_.at_end() && in_.peek() != '}') in_.skip(1);
      name = in_.from(begin);
      if (!in_.take("}")) return in_.error("A property's name is not closed");
    } else {
      in_.skip(1);
      name = in_.from(begin);
    }
    for (std::string_view prefix : {"gc=", "General_Category="})
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    if (name == "Any") return CodeSet::all();
    if (name == "ASCII") return CodeSet{{0, 0x7F}};
    for (const LongName& known : kLongNames)
      if (known.name == name) name = known.code;
    CodeSet set;
    bool is_known = false;
    for (size_t i = 0; i < kCategoryNames.size() && !name.empty() && name.size() <= 2; ++i) {
      if (!std::string_view(kCategoryNames[i]).starts_with(name)) continue;
      is_known = true;
      set.add(categories()[i]);
    }
    if (!is_known) return in_.error("The property " + in_quotes(name) + " is not served");
    fuel_.burn(static_cast<int64_t>(set.ranges().size()));
    return set;
  }

  TextReader in_;
  Fuel& fuel_;
  Held held_;
  std::vector<Node> nodes_;
  CodeSets sets_;
  std::vector<uint32_t> excluded_, groups_;
};

class RegexNfa {
 public:
  RegexNfa(const RegexReader& regex, Fuel& fuel) : regex_(regex), fuel_(fuel), nfa_(fuel, regex.sets()) {}

  Result<CodeDfa> run(uint32_t root, bool open_begin, bool open_end) {
    if (fuel_.is_empty()) return out_of_fuel();
    const uint32_t begin = nfa_.add_state(), end = nfa_.add_state();
    nfa_.accept = nfa_.add_state();
    nfa_.add(0, begin);
    nfa_.add(end, nfa_.accept);
    if (open_begin) {
      const uint32_t loop = nfa_.add_state();
      nfa_.add(0, loop, CodeSet::all());
      nfa_.add(loop, loop, CodeSet::all());
      nfa_.add(loop, begin);
    }
    if (open_end) nfa_.add(nfa_.accept, nfa_.accept, CodeSet::all());
    build(root, begin, end);
    if (fuel_.is_empty()) return out_of_fuel();
    return CodeDfa::make(nfa_, fuel_);
  }

 private:
  void build(uint32_t id, uint32_t from, uint32_t to) {
    const Node& node = regex_.nodes()[id];
    if (!fuel_.burn(6)) return;
    switch (node.kind) {
      case Node::kEmpty:
        return nfa_.add(from, to);
      case Node::kSet:
        return nfa_.add_set(from, to, node.set);
      case Node::kBegin:
        return nfa_.add(from, to, CodeNfa::kBegin);
      case Node::kEnd:
        return nfa_.add(from, to, CodeNfa::kEnd);
      case Node::kChoice:
        for (uint32_t part : node.parts) build(part, from, to);
        return;
      case Node::kSequence:
        for (uint32_t part : node.parts) {
          const uint32_t next = nfa_.add_state();
          build(part, from, next);
          from = next;
        }
        return nfa_.add(from, to);
      case Node::kRepeat:
        break;
    }
    for (uint32_t i = 0; i < node.min && !fuel_.is_empty(); ++i) {
      const uint32_t next = nfa_.add_state();
      build(node.parts[0], from, next);
      from = next;
    }
    if (node.max == kUnbounded) {
      const uint32_t loop = nfa_.add_state(), back = nfa_.add_state();
      nfa_.add(from, loop);
      build(node.parts[0], loop, back);
      nfa_.add(back, loop);
      return nfa_.add(loop, to);
    }
    for (uint32_t i = node.min; i < node.max && !fuel_.is_empty(); ++i) {
      nfa_.add(from, to);
      const uint32_t next = nfa_.add_state();
      build(node.parts[0], from, next);
      from = next;
    }
    nfa_.add(from, to);
  }

  const RegexReader& regex_;
  Fuel& fuel_;
  CodeNfa nfa_;
};

// The ways through a pattern, each cut where its first group begins.
class PatternCuts {
 public:
  static constexpr size_t kMaxWays = 64;
  struct Way {
    std::vector<uint32_t> before, from;
    Held held = {};
  };

  PatternCuts(RegexReader& regex, Fuel& fuel) : regex_(regex), fuel_(fuel) {
    const size_t n = regex.nodes().size();
    is_group_.resize(n), opens_.resize(n), is_nullable_.resize(n);
    for (const uint32_t group : regex.groups()) is_group_[group] = true;
    for (size_t i = 0; i < n; ++i) {  // parts come before what they are parts of
      const Node& node = regex.nodes()[i];
      const auto nullable = [&](uint32_t part) -> bool { return is_nullable_[part]; };
      is_nullable_[i] = node.kind == Node::kChoice ? std::ranges::any_of(node.parts, nullable)
                        : node.kind == Node::kRepeat
                            ? node.min == 0 || is_nullable_[node.parts[0]]
                            : node.kind != Node::kSet && std::ranges::all_of(node.parts, nullable);
      const auto opens = [&](uint32_t part) -> bool { return opens_[part]; };
      opens_[i] = is_group_[i] || node.kind == Node::kBegin || node.kind == Node::kEnd ||
                  std::ranges::any_of(node.parts, opens);
    }
  }

  Result<std::vector<Way>> run(uint32_t root) {
    TRY(go({}, {root}));
    return std::move(ways_);
  }

 private:
  static Error no_such(const char* what) { return unsupported(std::string("A pattern ") + what + " is not served."); }

  // `ahead`: the last comes next.
  Status go(std::vector<uint32_t> passed, std::vector<uint32_t> ahead) {
    Held held(fuel_);  // by these two and what they become
    const size_t n = passed.size() + ahead.size();
    if (!fuel_.burn(static_cast<int64_t>(n) / 16 + 1) || !held.add(4 * block(n * sizeof(uint32_t))))
      return out_of_fuel();
    while (!ahead.empty()) {
      const uint32_t id = ahead.back();
      const Node& node = regex_.nodes()[id];
      if (is_group_[id]) {
        if (is_nullable_[id]) return no_such("whose first group may be empty");
        return cut(std::move(passed), std::move(ahead));
      }
      ahead.pop_back();
      if (!opens_[id] || node.kind == Node::kBegin || node.kind == Node::kEnd) {
        passed.push_back(id);
      } else if (node.kind == Node::kSequence) {
        ahead.insert(ahead.end(), node.parts.rbegin(), node.parts.rend());
      } else if (node.kind == Node::kRepeat && node.max > 1) {
        return no_such("with a group or an anchor that repeats");
      } else {  // a choice, or what may be missing
        if (node.kind == Node::kRepeat && node.min == 0) TRY(go(passed, ahead));
        for (const uint32_t part : node.parts) {
          std::vector<uint32_t> next = ahead;
          next.push_back(part);
          TRY(go(passed, std::move(next)));
        }
        return {};
      }
    }
    // Without a group all is announced, but what stands for the text's begin.
    const auto is_begin = [&](uint32_t id) { return regex_.nodes()[id].kind == Node::kBegin; };
    const auto first = std::find_if_not(passed.begin(), passed.end(), is_begin);
    std::vector<uint32_t> all(first, passed.end());
    passed.erase(first, passed.end());
    std::reverse(all.begin(), all.end());
    return cut(std::move(passed), std::move(all));
  }

  Status cut(std::vector<uint32_t> before, std::vector<uint32_t> ahead) {
    Way way{std::move(before), {ahead.rbegin(), ahead.rend()}, Held(fuel_)};
    if (!way.held.add(2 * block((way.before.size() + way.from.size()) * sizeof(uint32_t)))) return out_of_fuel();
    while (!way.from.empty() && regex_.nodes()[way.from.back()].kind == Node::kEnd) way.from.pop_back();
    if (ways_.size() == kMaxWays) return no_such("of so many ways");
    const auto has = [&](const std::vector<uint32_t>& ids, Node::Kind kind) {
      std::vector<uint32_t> all = ids;
      for (size_t i = 0; i < all.size(); ++i) {
        const Node& node = regex_.nodes()[all[i]];
        if (node.kind == kind) return true;
        if (opens_[all[i]]) all.insert(all.end(), node.parts.begin(), node.parts.end());
      }
      return false;
    };
    if (has(way.before, Node::kEnd) || has(way.from, Node::kEnd) || has(way.from, Node::kBegin))
      return no_such("with ^ or $ within it");
    ways_.push_back(std::move(way));
    return {};
  }

  RegexReader& regex_;
  Fuel& fuel_;
  std::vector<bool> is_group_, opens_, is_nullable_;
  std::vector<Way> ways_;
};

// As an expression of a grammar: no anchors but at the ends.
Result<ExprId> expression_of(const RegexReader& regex, uint32_t id, Grammar& g, bool first, bool last) {
  const Node& node = regex.nodes()[id];
  if (g.fuel().is_empty()) return out_of_fuel();
  switch (node.kind) {
    case Node::kEmpty:
      return g.empty();
    case Node::kSet:
      return g.code_points(regex.sets()[node.set]);
    case Node::kBegin:
      if (!first) return invalid("^ within the expression is not served here.");
      return g.empty();
    case Node::kEnd:
      if (!last) return invalid("$ within the expression is not served here.");
      return g.empty();
    case Node::kRepeat: {
      const bool once = node.max <= 1;
      ASSIGN_OR_RETURN(const ExprId part, expression_of(regex, node.parts[0], g, first && once, last && once));
      return g.repeat(part, node.min, node.max);
    }
    case Node::kSequence:
    case Node::kChoice:
      break;
  }
  const bool is_choice = node.kind == Node::kChoice;
  std::vector<ExprId> parts;
  for (size_t i = 0; i < node.parts.size(); ++i) {
    ASSIGN_OR_RETURN(const ExprId part, expression_of(regex, node.parts[i], g, first && (is_choice || i == 0),
                                                      last && (is_choice || i + 1 == node.parts.size())));
    parts.push_back(part);
  }
  return is_choice ? g.choice(std::move(parts)) : g.sequence(std::move(parts));
}

}  // namespace

Result<CodeDfa> read_regex(std::string_view text, RegexUse use, Fuel& fuel) {
  RegexReader regex(text, fuel);
  ASSIGN_OR_RETURN(const uint32_t root, regex.run());
  if (fuel.is_empty()) return out_of_fuel();
  const bool is_search = use == RegexUse::kSearch;
  ASSIGN_OR_RETURN(CodeDfa found, RegexNfa(regex, fuel).run(root, is_search && regex.excluded().empty(), is_search));
  if (regex.excluded().empty()) return found;
  // The look-ahead and all behind it stand at the text's begin, or the expression would be found anywhere.
  if (is_search && text.substr(0, 1) != "^") return invalid("Look-ahead without ^ before it is not served.");
  ASSIGN_OR_RETURN(const CodeDfa none, RegexNfa(regex, fuel).run(regex.excluded()[0], false, true));
  return CodeDfa::combine(found, none, CodeDfa::How::kFirstOnly, fuel);
}

Result<std::vector<Announcement>> read_announcements(std::string_view text, RegexUse use, Fuel& fuel) {
  RegexReader regex(text, fuel);
  ASSIGN_OR_RETURN(const uint32_t root, regex.run());
  if (fuel.is_empty()) return out_of_fuel();
  if (!regex.excluded().empty()) return unsupported("Look-ahead is not served here.");
  ASSIGN_OR_RETURN(std::vector<PatternCuts::Way> ways, PatternCuts(regex, fuel).run(root));
  const bool is_search = use == RegexUse::kSearch;
  std::vector<Announcement> out;
  for (PatternCuts::Way& way : ways) {
    const uint32_t before = regex.sequence(way.before), from = regex.sequence(std::move(way.from));
    way.before.push_back(from);
    const uint32_t whole = regex.sequence(std::move(way.before));
    ASSIGN_OR_RETURN(CodeDfa found, RegexNfa(regex, fuel).run(whole, is_search, true));
    ASSIGN_OR_RETURN(CodeDfa first, RegexNfa(regex, fuel).run(before, is_search, false));
    ASSIGN_OR_RETURN(CodeDfa then, RegexNfa(regex, fuel).run(from, false, false));
    if (found.accepts(uint32_t{0})) return invalid("The pattern is in every text.");
    out.push_back({std::move(found), std::move(first), std::move(then)});
  }
  return out;
}

Result<ExprId> regex_expression(std::string_view text, Grammar& grammar) {
  RegexReader regex(text, grammar.fuel());
  ASSIGN_OR_RETURN(const uint32_t root, regex.run());
  if (regex.excluded().empty()) {
    Result<ExprId> plain = expression_of(regex, root, grammar, true, true);
    if (plain || grammar.fuel().is_empty()) return plain;
  }
  ASSIGN_OR_RETURN(const CodeDfa dfa, read_regex(text, RegexUse::kWhole, grammar.fuel()));
  return dfa.spell(grammar, CodeDfa::Spelling::kPlain);
}

Status read_regex(std::string_view text, Grammar& grammar) {
  ASSIGN_OR_RETURN(const ExprId body, regex_expression(text, grammar));
  grammar.set_root(grammar.rule("regex", body));
  return grammar.fuel().is_empty() ? Status(out_of_fuel()) : Status();
}

}  // namespace ibid::grammar
