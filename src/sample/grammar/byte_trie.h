// ByteTrie: texts by their prefixes, laid out for walks that refuse most bytes: the children of a node lie side by
// side, and so do the entries of a subtree. Immutable once built.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ibid::grammar {

// Sets of bytes, as bits: a-f, g-z, A-F, G-Z, digits, each other ASCII character, other controls than the end of a
// line, whole code points beyond ASCII (except white space, which patterns distinguish), parts of such.
using ByteGroups = uint64_t;
inline constexpr ByteGroups kLowerGroups = 3;
inline constexpr uint32_t kNonAsciiGroup = 41, kPartGroup = 42, kFarSpaceGroup = 43, kByteGroups = 44;
uint32_t group_of_ascii(uint8_t byte);
// The groups whose bytes JSON's strings hold unescaped; and how many bytes of such whole code points a text begins
// with.
inline bool is_plain(uint8_t byte) { return byte >= 0x20 && byte != '"' && byte != '\\'; }
size_t plain_prefix(std::string_view bytes);
// White space and ends of lines of ECMA-262 beyond ASCII.
bool is_far_space(uint32_t code_point);
ByteGroups groups_of(std::string_view bytes);

struct ByteTrie {
  struct Entry {
    std::string_view text;
    int32_t token = 0;
    uint16_t length = 0;  // in the owner's unit
  };
  // Node 0 is the root. The entries of a node and of all below it are [first, end), its own the first of them. Small,
  // because walks of patterns read most of them, and with all fields of a short walk, which finds them in no cache.
  //
  // Most entries that begin with a quote continue with code points that stay inside the string. A node after a quote
  // with many entries has a twin, for states that such code points do not leave: another node with the same entries,
  // below which lies what they have after those code points.
  struct Node {
    uint32_t child = 0, first = 0, end = 0;
    uint16_t n_children = 0;
    uint8_t byte = 0, twin = 0;  // 1 + the place in `twins`; 0: none
  };
  std::vector<Node> nodes;
  uint32_t own_end(const Node& node) const { return node.n_children == 0 ? node.end : nodes[node.child].first; }
  std::vector<uint32_t> twins;
  std::vector<ByteGroups> groups;  // per node, of the bytes below it
  std::vector<int32_t> tokens;     // per entry; those of twins come again
  std::vector<uint16_t> lengths;   // per entry

  std::array<uint16_t, 256> roots;  // the root's child for each byte, or kNoRoot
  static constexpr uint16_t kNoRoot = 0xFFFF;

  // No text is empty. In any order; equal texts by length, then by token. `is_whole`: all texts are whole code points;
  // else bytes beyond ASCII count as parts of such.
  void build(std::vector<Entry> entries, bool is_whole);

 private:
  // `entries` ascending, without the first `depth` bytes of their texts, below a node that stands after these.
  struct Place {
    uint32_t node = 0, depth = 0;
  };
  std::vector<Place> lay_out(uint32_t top, std::span<const Entry> entries, bool is_whole);
  bool ends_far_space(size_t node, uint32_t top, std::span<const uint32_t> parents) const;
};

}  // namespace ibid::grammar
