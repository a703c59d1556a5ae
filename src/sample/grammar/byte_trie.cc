#include "sample/grammar/byte_trie.h"

#include <algorithm>
#include <tuple>

#include "base/utf8.h"

namespace ibid::grammar {

uint32_t group_of_ascii(uint8_t b) {
  if (b >= 'a' && b <= 'z') return b <= 'f' ? 0 : 1;
  if (b >= 'A' && b <= 'Z') return b <= 'F' ? 2 : 3;
  if (b >= '0' && b <= '9') return 4;
  if (b < 0x20) return b == '\n' ? 39 : 40;
  // 20..2F, 3A..40, 5B..60, 7B..7F
  return 5 + (b < '0' ? b - 0x20u : b < 'A' ? b - 0x3Au + 16 : b < 'a' ? b - 0x5Bu + 23 : b - 0x7Bu + 29);
}

bool is_far_space(uint32_t c) {
  return c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000 || c == 0xFEFF;
}

ByteGroups groups_of(std::string_view bytes) {
  ByteGroups groups = 0;
  for (size_t i = 0; i < bytes.size();) {
    const utf8::CodePoint c = utf8::decode(bytes.data() + i, bytes.data() + bytes.size());
    const auto b = static_cast<uint8_t>(bytes[i]);
    groups |= ByteGroups{1} << (b < 0x80                ? group_of_ascii(b)
                                : !c.valid              ? kPartGroup
                                : is_far_space(c.value) ? kFarSpaceGroup
                                                        : kNonAsciiGroup);
    i += c.len;
  }
  return groups;
}

// The last bytes on the way to a node are such a code point.
bool ByteTrie::ends_far_space(size_t node, std::span<const uint32_t> parents) const {
  char bytes[3];
  for (int n = 3; n > 0 && node != 0; --n, node = parents[node]) {
    bytes[n - 1] = static_cast<char>(nodes[node].byte);
    if (nodes[node].byte < 0xC0) continue;
    const utf8::CodePoint c = utf8::decode(bytes + n - 1, bytes + 3);
    return c.valid && static_cast<int>(c.len) == 4 - n && is_far_space(c.value);
  }
  return false;
}

void ByteTrie::build(std::vector<Entry> entries, bool is_whole) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    const int order = a.text.compare(b.text);
    return order != 0 ? order < 0 : std::tie(a.length, a.token) < std::tie(b.length, b.token);
  });
  // Subtrees yet to be laid out, the next one last; one without a node ends that of `node`.
  struct Task {
    uint32_t node, begin, end;
    uint16_t depth;
    bool is_end;
  };
  nodes.assign(1, {});
  below.assign(1, {});
  std::vector<Task> ahead = {{0, 0, static_cast<uint32_t>(entries.size()), 0, false}};
  std::vector<uint32_t> parents = {0};
  while (!ahead.empty()) {
    const Task task = ahead.back();
    ahead.pop_back();
    const auto n_laid = static_cast<uint32_t>(tokens.size());
    if (task.is_end) {
      below[task.node].end = n_laid;
      continue;
    }
    nodes[task.node].first = n_laid;
    uint32_t at = task.begin;
    for (; at < task.end && entries[at].text.size() == task.depth; ++at) {
      tokens.push_back(entries[at].token);
      lengths.push_back(entries[at].length);
      ++nodes[task.node].n_own;
    }
    ahead.push_back({task.node, 0, 0, 0, true});
    const size_t n_before = ahead.size();
    nodes[task.node].child = static_cast<uint32_t>(nodes.size());
    for (uint32_t end = at; at < task.end; at = end) {
      const char byte = entries[at].text[task.depth];
      uint32_t n_same = 0;  // that end here
      for (end = at; end < task.end && entries[end].text[task.depth] == byte; ++end) {
        if (entries[end].text.size() == task.depth + 1u && ++n_same > 255) break;
      }
      ahead.push_back({static_cast<uint32_t>(nodes.size()), at, end, static_cast<uint16_t>(task.depth + 1), false});
      nodes.push_back({0, 0, 0, static_cast<uint8_t>(byte), 0});
      below.push_back({});
      parents.push_back(task.node);
      ++nodes[task.node].n_children;
    }
    std::reverse(ahead.begin() + static_cast<ptrdiff_t>(n_before), ahead.end());
  }
  roots.fill(kNoRoot);
  for (uint16_t i = 0; i < nodes[0].n_children; ++i) roots[nodes[nodes[0].child + i].byte] = i;
  for (size_t i = nodes.size(); --i > 0;) {
    const uint8_t byte = nodes[i].byte;
    const uint32_t group = byte < 0x80 ? group_of_ascii(byte) : is_whole ? kNonAsciiGroup : kPartGroup;
    below[parents[i]].groups |= below[i].groups | ByteGroups{1} << group;
    if (is_whole && ends_far_space(i, parents)) below[parents[i]].groups |= ByteGroups{1} << kFarSpaceGroup;
  }
}

}  // namespace ibid::grammar
