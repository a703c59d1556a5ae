#include "sample/grammar/schema_shape.h"

#include <algorithm>
#include <span>

namespace ibid::grammar {

Conjunction one(const Value& schema, bool is_negated) { return {{&schema, is_negated}}; }

Conjunction both(const Conjunction& a, const Conjunction& b) {
  Conjunction made;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(made));
  return made;
}

void Shape::require(const std::string& name) {
  if (std::find(required.begin(), required.end(), name) == required.end()) required.push_back(name);
}

void Shape::meet(const Shape& other) {
  auto append = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  types &= other.types;
  numbers.is_integer |= other.numbers.is_integer;
  numbers.is_fraction |= other.numbers.is_fraction;
  if (other.numbers.low) numbers.at_least(*other.numbers.low);
  if (other.numbers.high) numbers.at_most(*other.numbers.high);
  append(numbers.multiples, other.numbers.multiples);
  append(numbers.no_multiples, other.numbers.no_multiples);
  append(numbers.excluded, other.numbers.excluded);
  min_length = std::max(min_length, other.min_length);
  max_length = std::min(max_length, other.max_length);
  append(patterns, other.patterns);
  append(excluded_strings, other.excluded_strings);
  append(arrays, other.arrays);
  min_items = std::max(min_items, other.min_items);
  max_items = std::min(max_items, other.max_items);
  append(contains, other.contains);
  if (unique == nullptr) unique = other.unique;
  append(objects, other.objects);
  const size_t n_required = required.size();  // those of the other are all different
  for (const std::string& name : other.required) {
    const auto own = std::span(required).first(n_required);
    if (std::ranges::find(own, name) == own.end()) required.push_back(name);
  }
  min_members = std::max(min_members, other.min_members);
  max_members = std::min(max_members, other.max_members);
  append(names, other.names);
  append(some, other.some);
  if (other.values) {
    if (values) {
      std::erase_if(*values, [&](const Value* v) {
        return std::none_of(other.values->begin(), other.values->end(), [&](const Value* o) { return *v == *o; });
      });
    } else {
      values = other.values;
    }
  }
}

// Alternatives that negations leave are most often such: one has a member that the other must not have.
bool Shape::must_have_what_it_may_not() const {
  return std::ranges::any_of(objects, [&](const ObjectKeywords& keywords) {
    if (keywords.properties.size() != 1) return false;
    const auto& [name, value] = keywords.properties[0];
    return value.size() == 1 && value[0].schema->is(value[0].is_negated ? Value::Kind::kTrue : Value::Kind::kFalse) &&
           std::ranges::find(required, name) != required.end();
  });
}

bool Shape::settle() {
  if (values && values->empty()) types = 0;
  if (numbers.is_empty()) types &= static_cast<uint8_t>(~kNumberBit);
  if (min_length > max_length) types &= static_cast<uint8_t>(~kStringBit);
  if (min_items > max_items) types &= static_cast<uint8_t>(~kArrayBit);
  if (min_members > max_members || required.size() > max_members || must_have_what_it_may_not())
    types &= static_cast<uint8_t>(~kObjectBit);
  return types != 0;
}

uint8_t bit_of(const Value& value) {
  static constexpr uint8_t kBits[] = {kNullBit, kFalseBit, kTrueBit, kNumberBit, kStringBit, kArrayBit, kObjectBit};
  return kBits[static_cast<size_t>(value.kind)];
}

Shapes alone(Shape shape) {
  Shapes made;
  made.push_back(std::move(shape));
  return made;
}

int64_t Shape::bytes() const {
  const auto size = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  const auto texts = [](const std::vector<std::string>& list) {
    int64_t bytes = 0;
    for (const std::string& text : list) bytes += static_cast<int64_t>(sizeof text) + block_of(text);
    return bytes;
  };
  constexpr int64_t kNumber = 48 + 32, kShared = 16;
  int64_t bytes = 2 * static_cast<int64_t>(sizeof *this) + texts(excluded_strings) + texts(required);
  bytes += kNumber * (size(numbers.multiples) + size(numbers.no_multiples) + size(numbers.excluded));
  bytes += kShared * (size(patterns) + size(arrays) + size(objects) + size(names)) + 96 * (size(contains) + size(some));
  return bytes + (values ? 8 * size(*values) : 0);
}

Shape forbidden_member(const std::string& name) {
  static const Value never{Value::Kind::kFalse};
  return member_is(name, one(never));
}

Shape member_is(const std::string& name, Conjunction value) {
  Shape shape = Shape::only(kObjectBit);
  ObjectKeywords keywords;
  keywords.properties.push_back({name, std::move(value)});
  keywords.evaluates = false;
  shape.objects.push_back(std::move(keywords));
  return shape;
}

}  // namespace ibid::grammar
