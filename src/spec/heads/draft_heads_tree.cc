// The tree that a file of draft heads names.
#include <charconv>

#include "base/quoted.h"
#include "spec/drafts.h"
#include "spec/heads/draft_heads.h"

namespace ibid {
namespace {

constexpr size_t kMostPlaces = 1024;

Result<std::vector<int64_t>> ranks_of(std::string_view text) {
  std::vector<int64_t> out;
  const char *at = text.data(), *end = text.data() + text.size();
  while (true) {
    const auto [next, error] = std::from_chars(at, end, out.emplace_back());
    if (error != std::errc() || (next != end && *next != ',')) break;
    if (next == end) return out;
    at = next + 1;
  }
  return invalid(in_quotes(text) + " is no place of a tree; expected ranks like 0,1", "choices");
}

// A list of lists, stored element by element in a folder's metadata.
Result<std::vector<std::vector<int64_t>>> ways_of_folder(const ModelFile& file, const std::string& key) {
  std::vector<std::vector<int64_t>> ways;
  while (ways.size() < kMostPlaces && file.has_meta(key + "." + std::to_string(ways.size()))) {
    ASSIGN_OR_RETURN(ways.emplace_back(), file.meta_ints(key + "." + std::to_string(ways.size())));
  }
  return ways;
}

Result<std::vector<std::vector<int64_t>>> ways_of_gguf(const ModelFile& file, const std::string& key) {
  std::vector<std::vector<int64_t>> ways;
  if (!file.has_meta(key)) return ways;
  ASSIGN_OR_RETURN(const std::vector<std::string> all, file.meta_strings(key));
  for (const std::string& way : all) {
    if (ways.size() == kMostPlaces) break;
    ASSIGN_OR_RETURN(ways.emplace_back(), ranks_of(way));
  }
  return ways;
}

}  // namespace

Result<std::vector<DraftPlace>> DraftHeads::read_tree(const ModelFile& file) {
  for (const std::string kind : {"medusa", "hydra"}) {
    ASSIGN_OR_RETURN(std::vector<std::vector<int64_t>> ways, ways_of_folder(file, kind + "_choices"));
    if (ways.empty()) {
      ASSIGN_OR_RETURN(ways, ways_of_gguf(file, kind + ".choices"));
    }
    if (ways.empty()) continue;
    auto tree = named_tree(ways, kMaxDrafts);
    if (!tree) return Error{tree.error().kind, file.path() + ": " + tree.error().message, kind + "_choices"};
    if (tree->size() > kMaxDrafts) tree->resize(kMaxDrafts);  // the maximum of a step
    return tree;
  }
  return std::vector<DraftPlace>();
}

}  // namespace ibid
