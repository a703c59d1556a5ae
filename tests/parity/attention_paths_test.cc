// Tokens with paths: a tree of drafts has, row by row, the bits of each of its paths computed as a plain sequence.
#include "kernels/reference/reference.h"
#include "parity/paged.h"

namespace ibid::parity {
namespace {

constexpr int32_t kRoom = 96;  // positions after the sequence, where drafts may lie

// A random tree of drafts after a sequence of n_text tokens. Node i is at position n_text + depth[i].
struct Tree {
  int32_t n_text;
  std::vector<int32_t> parent, depth;  // parent -1: the sequence

  Tree(int32_t text_len, int32_t n_nodes, std::mt19937_64& random) : n_text(text_len) {
    for (int32_t i = 0; i < n_nodes; ++i) {
      // Chains that grow long beside branches at any depth: mostly the last node is the parent.
      const bool branch = i == 0 || random() % 4 == 0;
      parent.push_back(branch ? static_cast<int32_t>(random() % static_cast<uint64_t>(i + 1)) - 1 : i - 1);
      depth.push_back(parent.back() < 0 ? 0 : depth[static_cast<size_t>(parent.back())] + 1);
    }
  }
  int32_t n_nodes() const { return static_cast<int32_t>(parent.size()); }
  static uint64_t content(int32_t node) { return (uint64_t{77} << 40) + static_cast<uint64_t>(node); }
  // Its nodes in order of depth, itself last.
  std::vector<int32_t> way_to(int32_t node) const {
    std::vector<int32_t> way;
    for (; node >= 0; node = parent[static_cast<size_t>(node)]) way.insert(way.begin(), node);
    return way;
  }
};

// Rows of all nodes, computed in one step beside another sequence's decode. Drafts lie in any order in slots after the
// sequence, never all at their positions' places; some paths begin within the sequence.
Paged::Rows rows_of_tree(const Shape& shape, const Tree& tree, Stream& s, uint64_t seed) {
  std::mt19937_64 random(seed);
  Paged paged(shape, 2, tree.n_text + kRoom, seed);
  paged.step(s, {{0, 0, tree.n_text}, {1, 0, 20}}, false);
  std::vector<int32_t> places(kRoom);
  for (int32_t i = 0; i < kRoom; ++i) places[static_cast<size_t>(i)] = tree.n_text + i;
  std::shuffle(places.begin(), places.end(), random);
  const auto slot_of_node = [&](int32_t node) { return paged.slot(0, places[static_cast<size_t>(node)]); };
  TokensOf drafts = {0, {}};
  for (int32_t node = 0; node < tree.n_nodes(); ++node) {
    std::vector<int32_t> path;
    const auto from_text = static_cast<int32_t>(random() % static_cast<uint64_t>(std::min(tree.n_text, 80) + 1));
    for (int32_t p = tree.n_text - (node % 2 == 0 ? 0 : from_text); p < tree.n_text; ++p)
      path.push_back(paged.slot(0, p));
    for (const int32_t on_way : tree.way_to(node)) path.push_back(slot_of_node(on_way));
    const int32_t position = tree.n_text + tree.depth[static_cast<size_t>(node)];
    drafts.tokens.push_back({position, Tree::content(node), slot_of_node(node), path, node});
  }
  paged.step(s, {drafts, {1, {{20, Paged::content(1, 20), paged.slot(1, 20), {}, 20}}}});
  return paged.rows();
}

// The same rows, each path for itself as a plain sequence.
Paged::Rows rows_of_paths(const Shape& shape, const Tree& tree, Stream& s) {
  Paged::Rows rows;
  std::vector<bool> is_parent(tree.parent.size());
  for (const int32_t parent : tree.parent) {
    if (parent >= 0) is_parent[static_cast<size_t>(parent)] = true;
  }
  for (int32_t leaf = 0; leaf < tree.n_nodes(); ++leaf) {
    if (is_parent[static_cast<size_t>(leaf)]) continue;
    Paged paged(shape, 1, tree.n_text + kRoom, 5);
    paged.step(s, {{0, 0, tree.n_text}}, false);
    TokensOf plain = {0, {}};
    for (const int32_t node : tree.way_to(leaf)) {
      const int32_t position = tree.n_text + tree.depth[static_cast<size_t>(node)];
      plain.tokens.push_back({position, Tree::content(node), paged.slot(0, position), {}, node});
    }
    paged.step(s, std::vector<TokensOf>{plain});
    rows.insert(paged.rows().begin(), paged.rows().end());
  }
  Paged other(shape, 2, 32);
  other.step(s, {{1, 0, 20}}, false);
  other.step(s, {{1, 20, 21}});
  rows.insert(other.rows().begin(), other.rows().end());
  return rows;
}

const Shape kShapes[] = {
    {.heads = 9, .kv_heads = 3, .head_len = 64, .dtype = DType::kF16},
    {.heads = 3, .kv_heads = 1, .head_len = 40, .dtype = DType::kF32, .block_len = 8},
    {.heads = 2, .kv_heads = 2, .head_len = 80, .dtype = DType::kBF16, .block_len = 32},
    {.heads = 4, .kv_heads = 2, .head_len = 32, .dtype = DType::kBF16, .block_len = 8, .window = 21},
    {.heads = 7, .kv_heads = 1, .head_len = 16, .dtype = DType::kF16, .block_len = 32, .soft_cap = 5.0f, .window = 70},
    {.heads = 110, .kv_heads = 1, .head_len = 16, .dtype = DType::kF32, .soft_cap = 3.0f},
};
std::string name(const Shape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " + std::to_string(s.head_len) + ", " +
         s.dtype.name() + ", blocks of " + std::to_string(s.block_len);
}
// Drafts that cross the end of a 16-lane vector, of a tile and of a piece, or begin there.
constexpr int32_t kTextLens[] = {1, 12, 63, 64, 250, 255};

TEST(AttentionPaths, ATreesRowsAreThoseOfItsPathsOnEveryInstructionSet) {
  ThreadTeam team(2);
  Stream s(team);
  std::mt19937_64 random(11);
  size_t turn = 0;
  for (Shape shape : kShapes) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (const int32_t block_len : {8, 16, 32}) {
        shape.dtype = dtype;
        shape.block_len = block_len;
        const int32_t n_text = kTextLens[turn++ % std::size(kTextLens)];
        const Tree tree(n_text, 13, random);
        SCOPED_TRACE(name(shape) + ", text of " + std::to_string(n_text));
        const Paged::Rows paths = rows_of_paths(shape, tree, s);
        uint64_t seed = random();  // once: the next trees must not depend on the number of instruction sets
        for_each_isa([&](Isa) { ASSERT_EQ(difference(paths, rows_of_tree(shape, tree, s, seed++)), ""); });
      }
    }
  }
}

// Trees of two to four nodes after a long sequence are split over pieces, large ones over tasks.
TEST(AttentionPaths, ThreadsAndTheSizeOfTheTreeDoNotShow) {
  std::mt19937_64 random(12);
  const Shape shape = {.heads = 9, .kv_heads = 3, .head_len = 64, .dtype = DType::kF16};
  for (const int32_t n_text : {253, 767}) {
    for (const int32_t n_nodes : {1, 2, 4, 70}) {
      const Tree tree(n_text, n_nodes, random);
      SCOPED_TRACE(std::to_string(n_nodes) + " nodes, text of " + std::to_string(n_text));
      ThreadTeam one(1);
      Stream alone(one);
      const Paged::Rows paths = rows_of_paths(shape, tree, alone);
      for (int n_threads = 1; n_threads <= 4; ++n_threads) {
        ThreadTeam team(n_threads);
        Stream s(team);
        ASSERT_EQ(difference(paths, rows_of_tree(shape, tree, s, random())), "") << n_threads << " threads";
      }
    }
  }
}

// Plain tokens of a sequence beside drafts of the same: the sequence's last tokens are computed with them.
TEST(AttentionPaths, PlainTokensMayStandBesideDrafts) {
  ThreadTeam team(1);
  Stream s(team);
  const Shape shape = {.heads = 3, .kv_heads = 1, .head_len = 64, .dtype = DType::kF16};
  Paged together(shape, 1, 160), plain(shape, 1, 160, 3);
  together.step(s, {{0, 0, 120}}, false);
  plain.step(s, {{0, 0, 120}}, false);
  TokensOf tokens = {0, {}};
  for (int32_t p = 120; p < 126; ++p) tokens.tokens.push_back({p, Paged::content(0, p), together.slot(0, p), {}, p});
  const int32_t far = together.slot(0, 140), near = together.slot(0, 131);
  tokens.tokens.push_back({126, Paged::content(0, 126), far, {together.slot(0, 125), far}, 126});
  tokens.tokens.push_back({126, Paged::content(9, 126), near, {near}, 1126});  // a sibling on no other token's path
  const int32_t last = together.slot(0, 128);
  tokens.tokens.push_back({127, Paged::content(0, 127), last, {far, last}, 127});
  together.step(s, std::vector<TokensOf>{tokens});
  plain.step(s, {{0, 120, 128}});
  Paged::Rows rows = together.rows();
  rows.erase({0, 1126});
  EXPECT_EQ(difference(plain.rows(), rows), "");
}

TEST(AttentionPaths, TheReferenceFollowsPathsToo) {
  ThreadTeam team(1);
  Stream s(team);
  std::mt19937_64 random(13);
  for (const Shape& shape : kShapes) {
    const Tree tree(58, 11, random);
    SCOPED_TRACE(name(shape));
    reference::select(true);
    const Paged::Rows paths = rows_of_paths(shape, tree, s), want = rows_of_tree(shape, tree, s, 2);
    reference::select(false);
    ASSERT_EQ(difference(paths, want), "");
    for (const auto& [key, row] : rows_of_tree(shape, tree, s, 3)) {
      for (size_t i = 0; i < row.size(); ++i) {
        const double b = want.at(key)[i];
        ASSERT_LE(std::fabs(row[i] - b), kAttention.absolute + kAttention.relative * std::fabs(b))
            << "node " << key.second << ", column " << i;
      }
    }
  }
}

// Every slot of a cache, all heads, as bytes.
std::vector<std::byte> bytes_of(const PagedKv& kv) {
  return {kv.blocks, kv.blocks + static_cast<size_t>(kv.n_blocks * kv.block_bytes)};
}

TEST(CopySlots, MovesOneAfterAnotherAndTouchesNothingElse) {
  ThreadTeam team(3);
  Stream s(team);
  std::mt19937_64 random(14);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(name(shape));
    Paged paged(shape, 1, 96), other(shape, 1, 96);
    paged.step(s, {{0, 0, 90}}, false);
    other.step(s, {{0, 0, 90}}, false);
    std::vector<int32_t> from(200), to(200);  // over and over each other
    for (size_t i = 0; i < from.size(); ++i) {
      from[i] = paged.slot(0, static_cast<int32_t>(random() % 90));
      to[i] = paged.slot(0, static_cast<int32_t>(random() % 90));
    }
    ops::copy_slots(s, paged.kv(), from, to);
    reference::copy_slots(other.kv(), from, to);
    ASSERT_TRUE(bytes_of(paged.kv()) == bytes_of(other.kv()));
    note_bits({reinterpret_cast<const char*>(paged.kv().blocks),
               static_cast<size_t>(paged.kv().n_blocks * paged.kv().block_bytes)});
  }
}

// What settling does with an accepted path: its nodes move to their positions' slots, over each other and over refused
// ones; then the sequence goes on as if it had never been a draft.
TEST(CopySlots, AnAcceptedPathBecomesText) {
  ThreadTeam team(2);
  Stream s(team);
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(name(shape));
    Paged paged(shape, 1, 128), plain(shape, 1, 128, 9);
    paged.step(s, {{0, 0, 60}}, false);
    TokensOf drafts = {0, {}};
    std::vector<int32_t> from, to;
    for (int32_t i = 0; i < 20; ++i) {  // every second slot is a sibling's
      const int32_t p = 60 + i, slot = paged.slot(0, 60 + 2 * i + 1), sibling = paged.slot(0, 60 + 2 * i);
      std::vector<int32_t> path = from;
      path.push_back(slot);
      drafts.tokens.push_back({p, Paged::content(0, p), slot, path, p});
      path.back() = sibling;
      drafts.tokens.push_back({p, Paged::content(7, p), sibling, path, 1000 + p});
      from.push_back(slot);
      to.push_back(paged.slot(0, p));
    }
    paged.step(s, std::vector<TokensOf>{drafts});
    ops::copy_slots(s, paged.kv(), from, to);
    paged.step(s, {{0, 80, 82}});
    plain.step(s, {{0, 0, 60}}, false);
    plain.step(s, {{0, 60, 82}});
    Paged::Rows rows = paged.rows();
    std::erase_if(rows, [](const auto& row) { return row.first.second >= 1000; });
    ASSERT_EQ(difference(plain.rows(), rows), "");
  }
}

}  // namespace
}  // namespace ibid::parity
