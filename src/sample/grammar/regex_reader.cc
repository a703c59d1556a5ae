#include "sample/grammar/regex_reader.h"

#include <algorithm>
#include <optional>

#include "sample/grammar/grammar.h"
#include "sample/grammar/regex_sets.h"
#include "sample/grammar/text_reader.h"

namespace ibid::grammar {
namespace {

using Node = Regex::Node;

class RegexReader {
 public:
  RegexReader(std::string_view text, Fuel& fuel) : in_(text), fuel_(fuel), made_(fuel) {}

  Result<Regex> run() {
    if (in_.rest().size() > kMaxText) return invalid("The expression is longer than a mebibyte.");
    ASSIGN_OR_RETURN(made_.root, read_choice(0));
    if (!in_.at_end()) return in_.error("A closing bracket has no opening one");
    if (fuel_.is_empty()) return out_of_fuel();
    return std::move(made_);
  }

 private:
  uint32_t add(Node node) { return made_.add(std::move(node)); }
  uint32_t add_set(CodeSet set) {
    fuel_.burn(static_cast<int64_t>(set.ranges().size()));
    return add({Node::kSet, made_.sets.add(std::move(set))});
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
      } else if (at_repeat()) {
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

  // After "(".
  Result<uint32_t> read_group(int depth, const std::vector<uint32_t>& before, bool& is_assertion) {
    bool is_excluded = false, captures = true;
    if (in_.take("?")) {
      captures = false;
      if (in_.take(":")) {
      } else if (in_.peek() == '!') {
        // Texts that begin so are excluded: a complement, if the rest of the expression follows it.
        const bool leads = depth == 0 && made_.excluded.empty() && made_.nodes.size() == before.size() &&
                           (before.empty() || (before.size() == 1 && made_.nodes[before[0]].kind == Node::kBegin));
        if (!leads) return in_.error("Look-ahead is served only at an expression's start");
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
    const size_t place = made_.groups.size();
    if (captures) made_.groups.push_back(0);
    ASSIGN_OR_RETURN(const uint32_t inner, read_choice(depth + 1));
    if (!in_.take(")")) return in_.error("A closing bracket is missing");
    if (captures) made_.groups[place] = inner;
    if (!is_excluded) return inner;
    if (has_top_choice()) return in_.error("Look-ahead before a choice is not served");
    made_.excluded.push_back(inner);
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

  // Takes "{2}", "{2,}" or "{2,3}"; any other brace is an ordinary one.
  bool take_braces(uint32_t& min, uint32_t& max) {
    const size_t begin = in_.position();
    uint32_t least = 0, most = kUnbounded;
    bool is_whole = in_.take("{") && take_count(least);
    if (is_whole && in_.take(",")) {
      take_count(most);
    } else {
      most = least;
    }
    is_whole = is_whole && in_.take("}");
    if (is_whole) {
      min = least, max = most;
    } else {
      in_.go_to(begin);
    }
    return is_whole;
  }

  bool at_repeat() {
    const size_t begin = in_.position();
    uint32_t min = 0, max = 0;
    const bool is_one = in_.take("*") || in_.take("+") || in_.take("?") || take_braces(min, max);
    in_.go_to(begin);
    return is_one;
  }

  // Digits, if there are any; all counts beyond kMaxRepeat are alike.
  bool take_count(uint32_t& count) {
    if (in_.peek() < '0' || in_.peek() > '9') return false;
    for (count = 0; in_.peek() >= '0' && in_.peek() <= '9'; in_.skip(1))
      count = std::min(count * 10 + static_cast<uint32_t>(in_.peek() - '0'), kMaxRepeat + 1);
    return true;
  }

  Result<uint32_t> read_repeat(uint32_t part, bool may_repeat) {
    uint32_t min = 0, max = kUnbounded;
    if (in_.take("*")) {
    } else if (in_.take("+")) {
      min = 1;
    } else if (in_.take("?")) {
      max = 1;
    } else if (take_braces(min, max)) {
      if (min > kMaxRepeat || (max != kUnbounded && max > kMaxRepeat)) return in_.error("So many repeats are too many");
      if (max < min) return in_.error("The repeats are fewer at most than at least");
    } else {
      return part;
    }
    if (!may_repeat) return in_.error("There is nothing to repeat");
    in_.take("?");  // lazy: the same texts
    if (at_repeat()) return in_.error("There is nothing to repeat");
    return add({Node::kRepeat, 0, min, max, {part}});
  }

  // After "[".
  Result<CodeSet> read_class() {
    const bool is_negated = in_.take("^");
    CodeSet set;
    for (size_t n = 0; !in_.take("]");) {
      if (in_.at_end()) return in_.error("A class is not closed");
      ASSIGN_OR_RETURN(const ClassAtom lo, read_class_atom());
      n += std::max<size_t>(1, lo.set.ranges().size());
      std::optional<ClassAtom> hi;
      if (in_.peek() == '-' && in_.peek(1) != ']' && in_.rest().size() > 1) {
        in_.skip(1);
        ASSIGN_OR_RETURN(hi, read_class_atom());
        n += hi->set.ranges().size();
      }
      if (n > kMaxClass) return in_.error("The class is too long");
      if (!fuel_.burn(8)) return out_of_fuel();
      if (!hi) {
        set.add(lo.set);
      } else if (!lo.single || !hi->single) {  // ECMA-262, B.1.2: no range
        set.add(lo.set), set.add(hi->set), set.add('-', '-');
      } else {
        if (*hi->single < *lo.single) return in_.error("The range of a class is empty");
        set.add(*lo.single, *hi->single);
      }
    }
    return is_negated ? set.complement() : set;
  }

  // A set, or one code point, with which a range may begin or end: a half of a pair too, though no text has it.
  struct ClassAtom {
    CodeSet set;
    std::optional<uint32_t> single;
  };
  Result<ClassAtom> read_class_atom() {
    const auto one = [](uint32_t c) { return ClassAtom{CodeSet{{c, c}}, c}; };
    uint32_t c = 0;
    if (in_.take("\\u")) {
      ASSIGN_OR_RETURN(c, read_code_point());
      return one(c);
    }
    if (in_.take("\\")) {
      const bool is_set = std::string_view("dDwWsSpP").find(in_.peek()) != std::string_view::npos;
      ASSIGN_OR_RETURN(CodeSet set, read_escape(true));
      return is_set ? ClassAtom{std::move(set), {}} : one(set.ranges()[0].lo);
    }
    if (in_.at_end() || !in_.code_point(c)) return in_.error("A class is not closed, or no UTF-8");
    return one(c);
  }

  // After a backslash.
  Result<CodeSet> read_escape(bool in_class) {
    if (in_.at_end()) return in_.error("A backslash ends the expression");
    uint32_t c = 0;
    if (!in_.code_point(c)) return in_.error("The expression is no UTF-8");
    auto one = [](uint32_t code_point) { return CodeSet{{code_point, code_point}}; };
    switch (c) {
      case 'd':
        return regex_digits();
      case 'D':
        return regex_digits().complement();
      case 'w':
        return regex_words();
      case 'W':
        return regex_words().complement();
      case 's':
        return regex_spaces();
      case 'S':
        return regex_spaces().complement();
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
          return in_.error("\\c needs a letter");
        in_.skip(1);
        return one(static_cast<uint32_t>(letter) & 31);
      }
      case 'x':
        if (!in_.hex(2, c)) return in_.error("\\x needs two hexadecimal digits");
        return one(c);
      case 'u': {
        ASSIGN_OR_RETURN(c, read_code_point());
        return one(c);
      }
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

  Result<uint32_t> read_code_point() {
    uint32_t c = 0;
    if (in_.take("{")) {
      int n = 0;
      for (uint32_t digit = 0; n < 7 && in_.hex(1, digit); ++n) c = c << 4 | digit;
      if (n == 0 || n == 7 || c > kMaxCodePoint || !in_.take("}")) return in_.error("This is no code point");
    } else if (!in_.hex(4, c)) {
      return in_.error("\\u needs four hexadecimal digits");
    }
    uint32_t low = 0;
    const size_t following = in_.position();
    if (c >= 0xD800 && c < 0xDC00 && in_.take("\\u")) {
      if (in_.hex(4, low) && low >= 0xDC00 && low < 0xE000) {
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      } else {
        in_.go_to(following);
      }
    }
    return c;
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
    std::optional<CodeSet> set = regex_property(name);
    if (!set) return in_.error("The property " + in_quotes(name) + " is not served");
    fuel_.burn(static_cast<int64_t>(set->ranges().size()));
    return *std::move(set);
  }

  TextReader in_;
  Fuel& fuel_;
  Regex made_;
};

class RegexNfa {
 public:
  RegexNfa(const Regex& regex, Fuel& fuel) : regex_(regex), fuel_(fuel), nfa_(fuel, regex.sets) {}

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
    const Node& node = regex_.nodes[id];
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

  const Regex& regex_;
  Fuel& fuel_;
  CodeNfa nfa_;
};

}  // namespace

uint32_t Regex::add(Node node) {
  fuel_->burn(48 + 2 * static_cast<int64_t>(node.parts.size()));
  const bool has_room = make_room(nodes, 1, held_) && held_.add(block(node.parts.capacity() * sizeof(uint32_t)));
  if (!has_room && !nodes.empty()) return 0;
  nodes.push_back(std::move(node));
  return static_cast<uint32_t>(nodes.size() - 1);
}

Result<Regex> parse_regex(std::string_view text, Fuel& fuel) { return RegexReader(text, fuel).run(); }

Result<CodeDfa> regex_dfa(const Regex& regex, uint32_t node, bool open_begin, bool open_end, Fuel& fuel) {
  return RegexNfa(regex, fuel).run(node, open_begin, open_end);
}

}  // namespace ibid::grammar
