#include "sample/grammar/schema_twins.h"

#include <algorithm>
#include <functional>
#include <string_view>

namespace ibid::grammar {
namespace {

bool is_nothing(std::string_view key) {
  return key == "title" || key == "description" || key == "default" || key == "examples" || key == "$comment";
}

uint64_t mixed(uint64_t h, uint64_t with) {
  h = (h ^ with) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 29;
}

// As they are spelled, members in their order.
bool are_alike(const Value& a, const Value& b) {
  return a.kind == b.kind && a.text == b.text && std::ranges::equal(a.items, b.items, are_alike) &&
         std::ranges::equal(a.members, b.members, [](const auto& x, const auto& y) {
           return x.first == y.first && are_alike(x.second, y.second);
         });
}

bool say_the_same(const Value& a, const Value& b) {
  if (a.kind != b.kind || a.text != b.text || a.items.size() != b.items.size()) return false;
  if (!std::ranges::equal(a.items, b.items, are_alike)) return false;
  auto x = a.members.begin(), y = b.members.begin();
  for (;; ++x, ++y) {
    while (x != a.members.end() && is_nothing(x->first)) ++x;
    while (y != b.members.end() && is_nothing(y->first)) ++y;
    if (x == a.members.end() || y == b.members.end()) return x == a.members.end() && y == b.members.end();
    if (x->first != y->first || !are_alike(x->second, y->second)) return false;
  }
}

}  // namespace

uint64_t SchemaTwins::hash_of(const Value& value) {
  const auto known = hashes_.find(&value);
  if (known != hashes_.end()) return known->second;
  fuel_.burn(8 + static_cast<int64_t>(value.text.size()) / 16);
  held_.add(48);
  const std::hash<std::string_view> text_hash;
  uint64_t h = mixed(static_cast<uint64_t>(value.kind), text_hash(value.text));
  for (const Value& item : value.items) h = mixed(h, hash_of(item));
  for (const auto& [key, member] : value.members) h = mixed(mixed(h, text_hash(key)), hash_of(member));
  return hashes_[&value] = h;
}

const Value* SchemaTwins::first_of(const Value* schema) {
  const auto [known, is_new] = firsts_.try_emplace(schema, schema);
  if (!is_new) return known->second;
  held_.add(48 + 64);
  if (!schema->is_object()) return known->second;
  uint64_t h = 0;
  for (const auto& [key, member] : schema->members)
    if (!is_nothing(key)) h = mixed(mixed(h, std::hash<std::string_view>()(key)), hash_of(member));
  const auto [begin, end] = by_hash_.equal_range(h);
  for (auto at = begin; at != end && fuel_.burn(16); ++at)
    if (say_the_same(*at->second, *schema)) return known->second = at->second;
  by_hash_.emplace(h, schema);
  return schema;
}

Conjunction SchemaTwins::first_of(const Conjunction& conjunction) {
  Conjunction out;
  for (const Literal literal : conjunction) out.push_back({first_of(literal.schema), literal.is_negated});
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace ibid::grammar
