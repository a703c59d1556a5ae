#include "sample/grammar/schema_value.h"

#include <algorithm>
#include <numeric>

#include "base/json_events.h"
#include "sample/grammar/text_reader.h"

namespace ibid::grammar {

Decimal Decimal::of(std::string_view text) {
  Decimal made;
  size_t i = 0;
  if (i < text.size() && text[i] == '-') made.is_negative = true, ++i;
  bool after_point = false;
  for (; i < text.size() && text[i] != 'e' && text[i] != 'E'; ++i) {
    if (text[i] == '.') {
      after_point = true;
      continue;
    }
    made.digits += text[i];
    if (after_point) --made.exponent;
  }
  if (i < text.size()) {
    ++i;
    bool is_negative = false;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) is_negative = text[i++] == '-';
    int64_t e = 0;
    for (; i < text.size(); ++i) e = std::min<int64_t>(e * 10 + (text[i] - '0'), 1'000'000'000);
    made.exponent += is_negative ? -e : e;
  }
  const size_t last = made.digits.find_last_not_of('0');
  if (last == std::string::npos) return {};
  made.exponent += static_cast<int64_t>(made.digits.size() - 1 - last);
  made.digits.resize(last + 1);
  made.digits.erase(0, made.digits.find_first_not_of('0'));
  return made;
}

bool Decimal::is_huge() const {
  return !is_zero() && (exponent < -kMaxExponent || exponent + static_cast<int64_t>(digits.size()) > kMaxExponent);
}

std::string Decimal::whole() const {
  const int64_t n = exponent + static_cast<int64_t>(digits.size());
  if (n <= 0) return "0";
  std::string made = digits.substr(0, static_cast<size_t>(std::min<int64_t>(n, static_cast<int64_t>(digits.size()))));
  made.append(static_cast<size_t>(n) - made.size(), '0');
  return made;
}

std::string Decimal::fraction() const {
  if (exponent >= 0) return "";
  const int64_t n = exponent + static_cast<int64_t>(digits.size());
  return n >= 0 ? digits.substr(static_cast<size_t>(n)) : std::string(static_cast<size_t>(-n), '0') + digits;
}

std::string Decimal::text() const {
  std::string made = is_negative ? "-" : "";
  made += whole();
  const std::string following = fraction();
  if (!following.empty()) made += "." + following;
  return made;
}

int Decimal::compare(const Decimal& other) const {
  if (is_zero() || other.is_zero() || is_negative != other.is_negative) {
    auto sign = [](const Decimal& d) { return d.is_zero() ? 0 : d.is_negative ? -1 : 1; };
    const int difference = sign(*this) - sign(other);
    return difference < 0 ? -1 : difference > 0;
  }
  // By where the first digit stands, then by digits, of which the last is no 0: never spelled out, as 1e999999999 is
  // a number too.
  const int64_t a = exponent + static_cast<int64_t>(digits.size());
  const int64_t b = other.exponent + static_cast<int64_t>(other.digits.size());
  int order = a != b ? (a < b ? -1 : 1) : digits.compare(other.digits);
  order = order < 0 ? -1 : order > 0;
  return is_negative ? -order : order;
}

bool Decimal::is_multiple_of(const Decimal& other) const {
  if (is_zero()) return true;
  // this = a x 10^s, other = b x 10^s with integers a and b: the remainder of a by long division.
  const int64_t s = std::min(exponent, other.exponent);
  std::string a = digits + std::string(static_cast<size_t>(exponent - s), '0');
  std::string b = other.digits + std::string(static_cast<size_t>(other.exponent - s), '0');
  std::string rest;
  auto less = [](const std::string& x, const std::string& y) {
    return x.size() != y.size() ? x.size() < y.size() : x < y;
  };
  for (char digit : a) {
    rest += digit;
    rest.erase(0, std::min(rest.find_first_not_of('0'), rest.size()));
    while (!less(rest, b)) {
      std::string left(rest.size(), '0');
      int borrow = 0;
      for (size_t i = 0; i < rest.size(); ++i) {
        const char y = i < b.size() ? b[b.size() - 1 - i] : '0';
        int d = rest[rest.size() - 1 - i] - y - borrow;
        borrow = d < 0;
        left[rest.size() - 1 - i] = static_cast<char>('0' + d + 10 * borrow);
      }
      rest = left.substr(std::min(left.find_first_not_of('0'), left.size()));
    }
  }
  return rest.empty();
}

const Value* Value::find(std::string_view key) const {
  for (const auto& [name, value] : members)
    if (name == key) return &value;
  return nullptr;
}

bool Value::operator==(const Value& other) const {
  if (kind != other.kind) return false;
  switch (kind) {
    case Kind::kNumber: {
      if (text == other.text) return true;
      if (is_plain && other.is_plain) return false;
      const Decimal a = number(), b = other.number();
      return a.is_negative == b.is_negative && a.digits == b.digits && (a.is_zero() || a.exponent == b.exponent);
    }
    case Kind::kString:
      return text == other.text;
    case Kind::kArray:
      return n_values == other.n_values && items == other.items;
    case Kind::kObject:
      return n_values == other.n_values && members.size() == other.members.size() &&
             std::all_of(members.begin(), members.end(), [&](const auto& m) {
               const Value* same = other.find(m.first);
               return same != nullptr && *same == m.second;
             });
    default:
      return true;
  }
}

int64_t cost_of_comparing(const Value& a, const Value& b) {
  constexpr uint32_t kFewValues = 16;
  if (a.n_values != b.n_values || a.kind != b.kind) return 0;
  const int64_t texts = std::min(a.n_bytes, b.n_bytes) / 32;
  if (a.n_values == 1) return texts + (a.is(Value::Kind::kNumber) && !(a.is_plain && b.is_plain) ? 3 : 0);
  const auto n = static_cast<int64_t>(a.n_values), n_members = static_cast<int64_t>(a.members.size());
  return texts + (n <= kFewValues ? n : 4 * n + n_members * std::min(n, n_members) / 8);
}

namespace {

class ValueBuilder : public JsonEvents {
 public:
  ValueBuilder(Fuel& fuel, Held& held) : fuel_(fuel), held_(held) {}
  Value root;

  bool begin_object() override { return open(Value::Kind::kObject); }
  bool end_object() override { return close(); }
  bool begin_array() override { return open(Value::Kind::kArray); }
  bool end_array() override { return close(); }
  bool key(std::string name) override {
    key_ = std::move(name);
    return true;
  }
  bool string(std::string text) override { return put({Value::Kind::kString, std::move(text)}); }
  bool integer(int64_t value) override { return number(std::to_string(value)); }
  bool number(std::string text) override {
    Value value{Value::Kind::kNumber, std::move(text)};
    value.is_plain = value.text.find_first_of(".eE") == std::string::npos && value.text != "-0";
    return put(std::move(value));
  }
  bool boolean(bool value) override { return put({value ? Value::Kind::kTrue : Value::Kind::kFalse}); }
  bool null() override { return put({Value::Kind::kNull}); }

 private:
  bool put(Value value) {
    if (!fuel_.burn(24 + static_cast<int64_t>(value.text.size() + key_.size()) / 4)) return false;
    held_.add(block_of(value.text));
    Value* at = place();
    if (at != nullptr) *at = std::move(value);
    return at != nullptr;
  }
  // nullptr: there is no fuel for it.
  Value* place() {
    if (open_.empty()) return &root;
    Value& parent = *open_.back();
    if (parent.is_object()) {
      if (!make_room(parent.members, 1, held_) || !held_.add(block_of(key_))) return nullptr;
      parent.members.emplace_back(std::move(key_), Value());
      return &parent.members.back().second;
    }
    if (!make_room(parent.items, 1, held_)) return nullptr;
    parent.items.emplace_back();
    return &parent.items.back();
  }
  bool open(Value::Kind kind) {
    if (!fuel_.burn(24)) return false;
    Value* value = place();
    if (value == nullptr) return false;
    value->kind = kind;
    open_.push_back(value);  // stays: nothing is added beside an open value
    return true;
  }
  bool close() {
    Value& closed = *open_.back();
    open_.pop_back();
    return !closed.is_object() || merge_equal_keys(closed.members);
  }
  // The last of equal keys counts, in the place of the first.
  bool merge_equal_keys(std::vector<std::pair<std::string, Value>>& members) {
    const size_t n = members.size();
    if (n < 2) return true;
    if (!fuel_.burn(static_cast<int64_t>(n) * 4) || !fuel_.has_room(block(n * sizeof(size_t)))) return false;
    std::vector<size_t> by_name(n);
    std::iota(by_name.begin(), by_name.end(), size_t{0});
    std::ranges::sort(by_name, [&](size_t a, size_t b) {
      const int order = members[a].first.compare(members[b].first);
      return order != 0 ? order < 0 : a < b;
    });
    std::vector<bool> is_gone(n);
    bool has_equals = false;
    for (size_t i = 0, end = 0; i < n; i = end) {
      for (end = i + 1; end < n && members[by_name[end]].first == members[by_name[i]].first; ++end)
        is_gone[by_name[end]] = has_equals = true;
      if (end > i + 1) members[by_name[i]].second = std::move(members[by_name[end - 1]].second);
    }
    if (!has_equals) return true;
    size_t n_kept = 0;
    for (size_t i = 0; i < n; ++i)
      if (!is_gone[i] && n_kept++ != i) members[n_kept - 1] = std::move(members[i]);
    members.resize(n_kept);
    return true;
  }

  Fuel& fuel_;
  Held& held_;
  std::vector<Value*> open_;
  std::string key_;
};

}  // namespace

Result<Value> read_value(std::string_view json, Fuel& fuel, Held& held) {
  if (json.size() > kMaxText) return invalid("The schema is longer than a mebibyte.");
  ValueBuilder builder(fuel, held);
  if (const auto fault = read_json(json, 100, builder)) {
    if (fuel.is_empty()) return out_of_fuel();
    return invalid("The schema is no JSON: " +
                   (fault->kind == JsonFault::Kind::kTooDeep ? "it is nested too deeply" : fault->message) +
                   ", at byte " + std::to_string(fault->at) + ".");
  }
  return std::move(builder.root);
}

std::string json_spelling(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string made;
  for (char c : text) {
    switch (c) {
      case '"':
        made += "\\\"";
        break;
      case '\\':
        made += "\\\\";
        break;
      case '\b':
        made += "\\b";
        break;
      case '\t':
        made += "\\t";
        break;
      case '\n':
        made += "\\n";
        break;
      case '\f':
        made += "\\f";
        break;
      case '\r':
        made += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          made += "\\u00";
          made += kHex[c >> 4];
          made += kHex[c & 15];
        } else {
          made += c;
        }
    }
  }
  return made;
}

}  // namespace ibid::grammar
