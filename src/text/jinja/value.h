// Values of a chat template, with Python's semantics: immutable (transformers' sandbox refuses what would change a list
// or dict), except namespaces and iterators. Strings record which of their bytes users wrote.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer/tokenizer.h"  // TextRange

namespace ibid::jinja {

// Text with marks: `marks` are the bytes that come from users, ascending, disjoint, not touching.
struct Text {
  std::string bytes;
  std::vector<TextRange> marks;

  Text() = default;
  Text(std::string_view plain) : bytes(plain) {}          // NOLINT: implicit on purpose
  Text(const std::string& plain) : bytes(plain) {}        // NOLINT
  Text(std::string&& plain) : bytes(std::move(plain)) {}  // NOLINT
  Text(const char* plain) : bytes(plain) {}               // NOLINT
  static Text marked(std::string bytes);

  size_t size() const { return bytes.size(); }
  bool has_marks() const { return !marks.empty(); }
  void append(std::string_view plain) { bytes += plain; }
  void append(const std::string& plain) { bytes += plain; }
  void append(const char* plain) { bytes += plain; }
  void append(const Text& other) { append(other, 0, other.size()); }
  void append(const Text& other, size_t begin, size_t end);
  void append(std::string_view piece, bool mark);
  Text slice(size_t begin, size_t end) const;
  void mark(size_t begin, size_t end);  // begin is not before the last mark's start
  void mark_all();
  bool is_marked(size_t byte) const;
};

// Bytes that the objects of one rendering hold.
struct Meter {
  size_t used = 0;
  size_t limit = 0;
};

class Value;

struct Object {
  std::atomic<uint32_t> n_refs{1};
  uint32_t depth = 0;    // containers: 1 + that of the deepest item
  bool hashable = true;  // tuples: whether all items are
  uint64_t weight = 1;   // leaves, counted as often as they are reached: what comparing or printing costs
  Meter* meter = nullptr;
  size_t charged = 0;
  virtual ~Object() {
    if (meter != nullptr) meter->used -= charged;
  }
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kBigInt,  // an integer beyond 64 bits, as its decimal digits: can be passed on and printed
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kIterator,  // Python's generators and iterators: gives each item once
  kDictView,  // keys(), values(), items()
  kNamespace,
  kMacro,
  kMethod,
  kFunction,
  kLoop,
  kCycler,
  kJoiner
};

class Value {
 public:
  Value() : kind_(Kind::kUndefined), int_(0) {}
  Value(const Value& other) : kind_(other.kind_), int_(other.int_) { retain(); }
  Value(Value&& other) noexcept : kind_(other.kind_), int_(other.int_) { other.kind_ = Kind::kNone; }
  Value& operator=(const Value& other) {
    Value copy(other);
    return *this = std::move(copy);
  }
  Value& operator=(Value&& other) noexcept {
    std::swap(kind_, other.kind_);
    std::swap(int_, other.int_);
    return *this;
  }
  ~Value() { release(); }

  static Value none() { return Value(Kind::kNone, 0); }
  static Value boolean(bool b) { return Value(Kind::kBool, b); }
  static Value integer(int64_t i) { return Value(Kind::kInt, i); }
  static Value real(double d) {
    Value v(Kind::kFloat, 0);
    v.real_ = d;
    return v;
  }
  // Takes over the object's first reference.
  static Value object(Kind kind, Object* object) {
    Value v(kind, 0);
    v.object_ = object;
    return v;
  }
  static Value string(Text text, bool markup = false);  // not metered

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }
  double as_double() const { return kind_ == Kind::kFloat ? real_ : static_cast<double>(int_); }
  const Text& text() const;
  std::string_view str() const { return text().bytes; }
  bool is_markup() const;
  const std::vector<Value>& items() const;  // list, tuple
  Object* object() const { return has_object() ? object_ : nullptr; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(object_);
  }

 private:
  Value(Kind kind, int64_t i) : kind_(kind), int_(i) {}
  bool has_object() const { return kind_ >= Kind::kBigInt || (kind_ == Kind::kUndefined && object_ != nullptr); }
  void retain() const {
    if (has_object()) object_->n_refs.fetch_add(1, std::memory_order_relaxed);
  }
  void release() {
    if (has_object() && object_->n_refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete object_;
  }

  Kind kind_;
  union {
    int64_t int_;
    double real_;
    Object* object_;
  };
};

struct UndefinedObject : Object {
  std::string message;  // the error of an operation on it
};

struct StringObject : Object {
  Text text;
  bool markup = false;  // Python's Markup: `+` escapes what it is joined with
  int64_t n_chars = 0;
};

struct ListObject : Object {
  std::vector<Value> items;
  bool is_group = false;  // a pair of groupby: .grouper and .list
};

// In order of insertion; keys are hashable. The index is built when there are more than a few.
struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_multimap<size_t, uint32_t> index;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(Value key, Value value);  // replaces the value of an equal key
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1, size = 0;
  // What stands at place i; in 64 bits for 0 <= i < size, and beyond them maybe for the places around.
  __int128 at(int64_t i) const { return start + static_cast<__int128>(i) * step; }
};

struct IteratorObject : Object {
  std::vector<Value> items;
  size_t next = 0;
  const char* type = "generator";
};

struct DictViewObject : Object {
  Value dict;
  enum { kKeys, kValues, kItems } what = kKeys;
};

struct NamespaceObject : Object {
  std::vector<std::pair<Value, Value>> attributes;  // by strings
};

// Python's rules where they need no budget. Nesting is bounded where containers are made (kMaxDepth), so these may
// recurse; they cost the (smaller) weight, which callers charge before.
inline constexpr uint32_t kMaxDepth = 200;
bool equal(const Value& a, const Value& b);
size_t hash(const Value& v);  // of a hashable value; equal values have equal hashes
bool is_hashable(const Value& v);
bool truth(const Value& v);
uint32_t depth_of(const Value& v);
uint64_t weight_of(const Value& v);
void weigh(Object& container, const Value& item);  // adds an item to a container's depth and weight
const char* type_name(const Value& v);             // as Python names the type
// The elements of a list, dict, view, range ...; -1 if the type has no len().
int64_t length(const Value& v);

}  // namespace ibid::jinja
