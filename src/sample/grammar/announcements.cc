#include "sample/grammar/announcements.h"

#include <algorithm>

#include "sample/grammar/regex_reader.h"

namespace ibid::grammar {
namespace {

using Node = Regex::Node;

// The ways through a pattern, each cut where its first group begins.
class PatternCuts {
 public:
  static constexpr size_t kMaxWays = 64;
  struct Way {
    std::vector<uint32_t> before, from;
    Held held = {};
  };

  PatternCuts(const Regex& regex, Fuel& fuel) : regex_(regex), fuel_(fuel) {
    const size_t n = regex.nodes.size();
    is_group_.resize(n), opens_.resize(n), is_nullable_.resize(n);
    for (const uint32_t group : regex.groups) is_group_[group] = true;
    for (size_t i = 0; i < n; ++i) {  // parts come before what they are parts of
      const Node& node = regex.nodes[i];
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
      const Node& node = regex_.nodes[id];
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
    // Without a group all is announced, but what stands for the text's start.
    const auto is_begin = [&](uint32_t id) { return regex_.nodes[id].kind == Node::kBegin; };
    const auto first = std::find_if_not(passed.begin(), passed.end(), is_begin);
    std::vector<uint32_t> all(first, passed.end());
    passed.erase(first, passed.end());
    std::reverse(all.begin(), all.end());
    return cut(std::move(passed), std::move(all));
  }

  Status cut(std::vector<uint32_t> before, std::vector<uint32_t> ahead) {
    Way way{std::move(before), {ahead.rbegin(), ahead.rend()}, Held(fuel_)};
    if (!way.held.add(2 * block((way.before.size() + way.from.size()) * sizeof(uint32_t)))) return out_of_fuel();
    while (!way.from.empty() && regex_.nodes[way.from.back()].kind == Node::kEnd) way.from.pop_back();
    if (ways_.size() == kMaxWays) return no_such("of so many ways");
    const auto has = [&](const std::vector<uint32_t>& ids, Node::Kind kind) {
      std::vector<uint32_t> all = ids;
      for (size_t i = 0; i < all.size(); ++i) {
        const Node& node = regex_.nodes[all[i]];
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

  const Regex& regex_;
  Fuel& fuel_;
  std::vector<bool> is_group_, opens_, is_nullable_;
  std::vector<Way> ways_;
};

}  // namespace

Result<std::vector<Announcement>> read_announcements(std::string_view text, RegexUse use, Fuel& fuel) {
  ASSIGN_OR_RETURN(Regex regex, parse_regex(text, fuel));
  if (!regex.excluded.empty()) return unsupported("Look-ahead is not served here.");
  ASSIGN_OR_RETURN(std::vector<PatternCuts::Way> ways, PatternCuts(regex, fuel).run(regex.root));
  const bool is_search = use == RegexUse::kSearch;
  std::vector<Announcement> out;
  for (PatternCuts::Way& way : ways) {
    const uint32_t before = regex.sequence(way.before), from = regex.sequence(std::move(way.from));
    way.before.push_back(from);
    const uint32_t whole = regex.sequence(std::move(way.before));
    ASSIGN_OR_RETURN(CodeDfa found, regex_dfa(regex, whole, is_search, true, fuel));
    ASSIGN_OR_RETURN(CodeDfa first, regex_dfa(regex, before, is_search, false, fuel));
    ASSIGN_OR_RETURN(CodeDfa then, regex_dfa(regex, from, false, false, fuel));
    if (found.accepts(uint32_t{0})) return invalid("The pattern is in every text.");
    out.push_back({std::move(found), std::move(first), std::move(then)});
  }
  return out;
}

}  // namespace ibid::grammar
