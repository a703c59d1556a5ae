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

size_t plain_prefix(std::string_view bytes) {
  size_t n = 0;
  while (n < bytes.size() && is_plain(static_cast<uint8_t>(bytes[n]))) {
    const utf8::CodePoint c = utf8::decode(bytes.data() + n, bytes.data() + bytes.size());
    if (!c.valid) break;
    n += c.len;
  }
  return n;
}

// The last bytes on the way from `top` to a node are such a code point.
bool ByteTrie::ends_far_space(size_t node, uint32_t top, std::span<const uint32_t> parents) const {
  char bytes[3];
  for (int n = 3; n > 0 && node != top; --n, node = parents[node - top]) {
    bytes[n - 1] = static_cast<char>(nodes[node].byte);
    if (nodes[node].byte < 0xC0) continue;
    const utf8::CodePoint c = utf8::decode(bytes + n - 1, bytes + 3);
    return c.valid && static_cast<int>(c.len) == 4 - n && is_far_space(c.value);
  }
  return false;
}

void ByteTrie::build(std::vector<Entry> entries, bool is_whole) {
  const auto ascending = [](const Entry& a, const Entry& b) {
    const int order = a.text.compare(b.text);
    return order != 0 ? order < 0 : std::tie(a.length, a.token) < std::tie(b.length, b.token);
  };
  std::sort(entries.begin(), entries.end(), ascending);
  const std::vector<Place> after_quotes = lay_out(0, entries, is_whole);
  roots.fill(kNoRoot);
  for (uint16_t i = 0; i < nodes[0].n_children; ++i) roots[nodes[nodes[0].child + i].byte] = i;
  // Twins have none themselves, and all together no more entries than there are without them.
  constexpr uint32_t kMany = 16, kMaxTwins = 255;
  size_t n_left = entries.size();
  std::vector<Entry> following;
  for (const Place& place : after_quotes) {
    const uint32_t first = nodes[place.node].first, end = nodes[place.node].end;
    if (end - first < kMany || end - first > n_left || twins.size() == kMaxTwins) continue;
    n_left -= end - first;
    following.assign(entries.begin() + first, entries.begin() + end);
    for (Entry& entry : following) {
      entry.text.remove_prefix(place.depth);
      entry.text.remove_prefix(plain_prefix(entry.text));
    }
    std::sort(following.begin(), following.end(), ascending);
    const auto twin = static_cast<uint32_t>(nodes.size());
    twins.push_back(twin);
    nodes[place.node].twin = static_cast<uint8_t>(twins.size());
    lay_out(twin, following, is_whole);
  }
}

std::vector<ByteTrie::Place> ByteTrie::lay_out(uint32_t top, std::span<const Entry> entries, bool is_whole) {
  const auto base = static_cast<uint32_t>(tokens.size());
  for (const Entry& entry : entries) tokens.push_back(entry.token), lengths.push_back(entry.length);
  nodes.push_back({0, base, base + static_cast<uint32_t>(entries.size())});
  std::vector<Place> ahead = {{top, 0}}, after_quotes;  // the next one last
  std::vector<uint32_t> parents = {top};
  while (!ahead.empty()) {
    const Place place = ahead.back();
    ahead.pop_back();
    Node node = nodes[place.node];
    uint32_t at = node.first - base;
    const uint32_t last = node.end - base;
    while (at < last && entries[at].text.size() == place.depth) ++at;
    node.child = static_cast<uint32_t>(nodes.size());
    const size_t n_before = ahead.size();
    for (uint32_t end = at; at < last; at = end) {
      const char byte = entries[at].text[place.depth];
      while (end < last && entries[end].text[place.depth] == byte) ++end;
      ahead.push_back({static_cast<uint32_t>(nodes.size()), place.depth + 1});
      if (byte == '"') after_quotes.push_back(ahead.back());
      nodes.push_back({0, base + at, base + end, 0, static_cast<uint8_t>(byte)});
      parents.push_back(place.node);
      ++node.n_children;
    }
    nodes[place.node] = node;
    std::reverse(ahead.begin() + static_cast<ptrdiff_t>(n_before), ahead.end());
  }
  groups.resize(nodes.size());
  for (uint32_t i = static_cast<uint32_t>(nodes.size()); --i > top;) {
    const uint8_t byte = nodes[i].byte;
    const uint32_t group = byte < 0x80 ? group_of_ascii(byte) : is_whole ? kNonAsciiGroup : kPartGroup;
    ByteGroups& above = groups[parents[i - top]];
    above |= groups[i] | ByteGroups{1} << group;
    if (is_whole && ends_far_space(i, top, parents)) above |= ByteGroups{1} << kFarSpaceGroup;
  }
  return after_quotes;
}

}  // namespace ibid::grammar
