#include "spec/drawn/draft_tree.h"

#include <map>
#include <string>

#include "spec/drawn/rejection.h"

namespace ibid {

Result<std::vector<DraftPlace>> named_tree(const std::vector<std::vector<int64_t>>& ways, int32_t depth) {
  std::map<std::vector<int64_t>, int32_t> index;  // -2: left out
  std::vector<DraftPlace> out;
  for (const std::vector<int64_t>& way : ways) {
    const auto bad = [&](const std::string& what) {
      std::string ranks;
      for (const int64_t rank : way) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      return invalid("the tree's place [" + ranks + "] " + what, "medusa_choices");
    };
    if (way.empty() || way.back() < 0) return bad("is none");
    std::vector<int64_t> other = way;
    other.pop_back();
    const auto parent = index.find(other);
    if (!other.empty() && parent == index.end()) return bad("comes before the one it is behind");
    other.push_back(way.back() - 1);
    if (way.back() > 0 && !index.contains(other)) return bad("comes before one of less rank beside it");
    if (index.contains(way)) return bad("is there twice");
    const int32_t following = way.size() == 1 ? -1 : parent->second;
    const bool is_left_out =
        following == -2 || static_cast<int64_t>(way.size()) > depth || way.back() >= ProposeRule::kMost;
    index[way] = is_left_out ? -2 : static_cast<int32_t>(out.size());
    if (is_left_out) continue;
    out.push_back({following, static_cast<int32_t>(way.back()), static_cast<int32_t>(way.size())});
  }
  return out.empty() ? invalid("the tree has no place", "medusa_choices") : Result(std::move(out));
}

int32_t widest(const std::vector<DraftPlace>& places) {
  std::vector<bool> has_others(places.size());
  for (const DraftPlace& place : places) {
    if (place.parent >= 0) has_others[static_cast<size_t>(place.parent)] = true;
  }
  std::map<int32_t, int32_t> n;
  int32_t most = 1;
  for (size_t i = 0; i < places.size(); ++i) {
    if (has_others[i]) most = std::max(most, ++n[places[i].depth]);
  }
  return most;
}

}  // namespace ibid
