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
// line, whole code points beyond ASCII (white space apart, which patterns tell from the rest), parts of such.
using ByteGroups = uint64_t;
inline constexpr ByteGroups kLowerGroups = 3;
inline constexpr uint32_t kNonAsciiGroup = 41, kPartGroup = 42, kFarSpaceGroup = 43;
uint32_t group_of_ascii(uint8_t byte);
// White space and ends of lines of ECMA-262 beyond ASCII.
bool is_far_space(uint32_t code_point);
ByteGroups groups_of(std::string_view bytes);

struct ByteTrie {
  struct Entry {
    std::string_view text;
    int32_t token = 0;
    uint16_t length = 0;  // whatever the owner counts
  };
  // Node 0 is the root. Its own entries are [first, first + n_own). Entries with one text that are too many for one
  // node go on in a sibling of the same byte.
  struct Node {
    uint32_t child = 0, first = 0;
    uint16_t n_children = 0;
    uint8_t byte = 0, n_own = 0;
  };
  struct Below {  // of the entries below a node
    ByteGroups groups = 0;
    uint32_t end = 0;
  };
  std::vector<Node> nodes;
  std::vector<Below> below;       // per node
  std::vector<int32_t> tokens;    // per entry
  std::vector<uint16_t> lengths;  // per entry

  std::array<uint16_t, 256> roots;  // which child of the root a byte leads to, the last of several; kNoRoot
  static constexpr uint16_t kNoRoot = 0xFFFF;

  // No text is empty. In any order; equal texts by length, then by token. `is_whole`: all texts are whole code points;
  // else bytes beyond ASCII count as parts of such.
  void build(std::vector<Entry> entries, bool is_whole);

 private:
  bool ends_far_space(size_t node, std::span<const uint32_t> parents) const;
};

}  // namespace ibid::grammar
