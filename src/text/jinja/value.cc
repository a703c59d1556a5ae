#include "text/jinja/value.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <random>

#include "text/jinja/unicode.h"

namespace ibid::jinja {

Text Text::marked(std::string bytes) {
  Text text(std::move(bytes));
  text.mark_all();
  return text;
}

void Text::append(const Text& other, size_t begin, size_t end) {
  size_t offset = bytes.size();
  bytes.append(other.bytes, begin, end - begin);
  auto it = std::partition_point(other.marks.begin(), other.marks.end(),
                                 [&](const TextRange& mark) { return mark.end <= begin; });
  for (; it != other.marks.end() && it->begin < end; ++it) {
    mark(offset + std::max(it->begin, begin) - begin, offset + std::min(it->end, end) - begin);
  }
}

void Text::append(std::string_view piece, bool marked) {
  bytes += piece;
  if (marked) mark(bytes.size() - piece.size(), bytes.size());
}

Text Text::slice(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

void Text::mark(size_t begin, size_t end) {
  if (begin >= end) return;
  if (!marks.empty() && marks.back().end >= begin) {
    marks.back().end = std::max(marks.back().end, end);
  } else {
    marks.push_back({begin, end});
  }
}

void Text::mark_all() {
  marks.clear();
  mark(0, bytes.size());
}

bool Text::is_marked(size_t byte) const {
  auto it = std::partition_point(marks.begin(), marks.end(), [&](const TextRange& m) { return m.end <= byte; });
  return it != marks.end() && it->begin <= byte;
}

Value Value::string(Text text, bool markup) {
  auto* object = new StringObject;
  object->n_chars = static_cast<int64_t>(utf8::count(text.bytes));
  object->weight = 1 + text.size() / 64;
  object->text = std::move(text);
  object->markup = markup;
  return Value::object(Kind::kString, object);
}

const Text& Value::text() const { return as<StringObject>()->text; }
bool Value::is_markup() const { return is_string() && as<StringObject>()->markup; }
const std::vector<Value>& Value::items() const { return as<ListObject>()->items; }

namespace {

constexpr size_t kIndexFrom = 8;

// Clients choose the keys of dicts: with a hash that they can compute, all keys could collide in one bucket. Nothing
// that a template can see depends on the secret.
size_t hash_bytes(const void* bytes, size_t n) {
  static const auto kSecret = [] {
    std::array<unsigned char, 192> secret;
    std::random_device device;
    for (unsigned char& byte : secret) byte = static_cast<unsigned char>(device());
    return secret;
  }();
  return XXH3_64bits_withSecret(bytes, n, kSecret.data(), kSecret.size());
}

size_t hash_number(double d) {
  if (std::isnan(d)) return 4;
  if (d == 0) d = 0;  // not minus zero
  return hash_bytes(&d, sizeof d);
}

// As items of containers and as keys, NaNs are equal; in Python only those that are one object are. Otherwise a dict
// could not find its own key.
bool same(const Value& a, const Value& b) {
  if (a.is(Kind::kFloat) && b.is(Kind::kFloat) && std::isnan(a.as_double())) return std::isnan(b.as_double());
  return equal(a, b);
}

}  // namespace

const Value* DictObject::find(const Value& key) const {
  if (entries.size() <= kIndexFrom) {
    for (const auto& [k, v] : entries) {
      if (same(k, key)) return &v;
    }
    return nullptr;
  }
  auto [first, last] = index.equal_range(hash(key));
  for (; first != last; ++first) {
    if (same(entries[first->second].first, key)) return &entries[first->second].second;
  }
  return nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  if (entries.size() <= kIndexFrom) {
    for (const auto& [k, v] : entries) {
      if (k.is_string() && k.str() == key) return &v;
    }
    return nullptr;
  }
  auto [first, last] = index.equal_range(hash_bytes(key.data(), key.size()));
  for (; first != last; ++first) {
    const auto& [k, v] = entries[first->second];
    if (k.is_string() && k.str() == key) return &v;
  }
  return nullptr;
}

void DictObject::set(Value key, Value value) {
  weigh(*this, key);
  weigh(*this, value);
  if (const Value* old = find(key)) {
    const_cast<Value&>(*old) = std::move(value);
    return;
  }
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() == kIndexFrom + 1) {
    for (size_t i = 0; i < entries.size(); ++i) index.emplace(hash(entries[i].first), static_cast<uint32_t>(i));
  } else if (entries.size() > kIndexFrom) {
    index.emplace(hash(entries.back().first), static_cast<uint32_t>(entries.size() - 1));
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    return a.as_double() == b.as_double();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
    case Kind::kBigInt:
      return a.str() == b.str();
    case Kind::kList:
    case Kind::kTuple: {
      const auto& x = a.items();
      const auto& y = b.items();
      return a.object() == b.object() || std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
    }
    case Kind::kDict: {
      const auto* x = a.as<DictObject>();
      const auto* y = b.as<DictObject>();
      if (x == y) return true;
      if (x->entries.size() != y->entries.size()) return false;
      return std::all_of(x->entries.begin(), x->entries.end(), [&](const auto& entry) {
        const Value* other = y->find(entry.first);
        return other != nullptr && same(entry.second, *other);
      });
    }
    case Kind::kRange: {
      const auto* x = a.as<RangeObject>();
      const auto* y = b.as<RangeObject>();
      return x->size == y->size && (x->size == 0 || (x->start == y->start && (x->size == 1 || x->step == y->step)));
    }
    default:
      return a.object() == b.object();
  }
}

size_t hash(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 1;
    case Kind::kNone:
      return 2;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      return hash_number(v.as_double());
    case Kind::kBigInt:
    case Kind::kString:
      return hash_bytes(v.str().data(), v.str().size());
    case Kind::kTuple: {
      size_t h = 3;
      for (const Value& item : v.items()) h = h * 1000003 + hash(item);
      return h;
    }
    case Kind::kRange: {
      const auto* r = v.as<RangeObject>();
      const int64_t parts[] = {r->size, r->size > 0 ? r->start : 0, r->size > 1 ? r->step : 0};
      return hash_bytes(parts, sizeof parts);
    }
    default:
      return std::hash<const void*>()(v.object());
  }
}

bool is_hashable(const Value& v) {
  if (v.is(Kind::kTuple)) return v.object()->hashable;
  return !v.is(Kind::kList) && !v.is(Kind::kDict);
}

bool truth(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return v.as_int() != 0;
    case Kind::kFloat:
      return v.as_double() != 0;
    default:
      return length(v) != 0;
  }
}

uint32_t depth_of(const Value& v) { return v.object() != nullptr ? v.object()->depth : 0; }
uint64_t weight_of(const Value& v) { return v.object() != nullptr ? v.object()->weight : 1; }

void weigh(Object& container, const Value& item) {
  container.depth = std::max(container.depth, depth_of(item) + 1);
  container.hashable = container.hashable && is_hashable(item);
  container.weight = std::min<uint64_t>(container.weight + weight_of(item), uint64_t{1} << 40);
}

int64_t length(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return v.as<StringObject>()->n_chars;
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(v.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(v.as<DictObject>()->entries.size());
    case Kind::kDictView:
      return length(v.as<DictViewObject>()->dict);
    case Kind::kRange:
      return v.as<RangeObject>()->size;
    default:
      return -1;
  }
}

const char* type_name(const Value& v) {
  switch (v.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return v.is_markup() ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kIterator:
      return v.as<IteratorObject>()->type;
    case Kind::kDictView: {
      auto what = v.as<DictViewObject>()->what;
      return what == DictViewObject::kKeys     ? "dict_keys"
             : what == DictViewObject::kValues ? "dict_values"
                                               : "dict_items";
    }
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kMethod:
      return "builtin_function_or_method";
    case Kind::kFunction:
      return "function";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kCycler:
      return "Cycler";
    case Kind::kJoiner:
      return "Joiner";
  }
  return "object";
}

}  // namespace ibid::jinja
