#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json_events.h"
#include "base/json_writer.h"
#include "base/quoted.h"

namespace ibid {
namespace {

class TreeBuilder final : public JsonEvents {
 public:
  explicit TreeBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool begin_object() override { return open(Json(Json::Object())); }
  bool begin_array() override { return open(Json(Json::Array())); }
  bool end_object() override {
    Json::Object& members = *open_.back().object();
    std::vector<std::pair<std::string_view, size_t>> sorted;
    sorted.reserve(members.size());
    for (size_t i = 0; i < members.size(); ++i) sorted.emplace_back(members[i].first, i);
    std::sort(sorted.begin(), sorted.end());
    const auto same_key = [](const auto& a, const auto& b) { return a.first == b.first; };
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end(), same_key);
    if (twice == sorted.end()) return close();
    if (!limits_.last_key_counts) {
      error_.key = in_quotes(twice->first);
      return fail(JsonError::Kind::kTwice, "the key " + error_.key + " occurs twice");
    }
    std::vector<bool> counts(members.size(), true);
    for (size_t i = 1; i < sorted.size(); ++i) counts[sorted[i - 1].second] = !same_key(sorted[i - 1], sorted[i]);
    Json::Object last;
    for (size_t i = 0; i < members.size(); ++i) {
      if (counts[i]) last.push_back(std::move(members[i]));
    }
    members = std::move(last);
    return close();
  }
  bool end_array() override { return close(); }
  bool key(std::string text) override {
    if (open_.back().object()->size() >= limits_.max_keys) {
      return fail(JsonError::Kind::kLimit, "an object has more than " + std::to_string(limits_.max_keys) + " keys");
    }
    keys_.back() = std::move(text);
    return true;
  }
  bool string(std::string text) override { return add(Json(std::move(text))); }
  bool integer(int64_t value) override { return add(Json(value)); }
  bool number(std::string text) override {
    uint64_t large = 0;
    const char* end = text.data() + text.size();
    if (const auto [stop, status] = std::from_chars(text.data(), end, large); status == std::errc() && stop == end) {
      return add(Json(large));
    }
    double value = 0;
    if (to_double(text, value)) return add(Json(value));
    return fail(JsonError::Kind::kLimit, "the number " + text.substr(0, 40) + " is beyond the range of a double");
  }
  bool boolean(bool value) override { return add(Json(value)); }
  bool null() override { return add(Json()); }

  Json take() { return std::move(root_); }
  JsonError& error() { return error_; }

  std::string path() const {
    std::string path;
    for (size_t i = 0; i < open_.size(); ++i) {
      if (const Json::Array* array = open_[i].array()) {
        path += "[" + std::to_string(array->size()) + "]";
      } else if (!keys_[i].empty()) {
        if (!path.empty()) path += ".";
        path += shown(keys_[i], kMaxShownKey);
      }
      if (path.size() > 200) break;
    }
    return path;
  }

 private:
  static constexpr size_t kMaxShownKey = 64;

  bool fail(JsonError::Kind kind, std::string what) {
    error_.kind = kind;
    error_.what = std::move(what);
    return false;
  }
  bool count() {
    if (++n_values_ <= limits_.max_values) return true;
    return fail(JsonError::Kind::kLimit, "there are more than " + std::to_string(limits_.max_values) + " values");
  }
  bool open(Json container) {
    if (!count()) return false;
    open_.push_back(std::move(container));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Json value = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    place(std::move(value));
    return true;
  }
  bool add(Json value) {
    if (!count()) return false;
    place(std::move(value));
    return true;
  }
  void place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (Json::Array* array = open_.back().array()) {
      array->push_back(std::move(value));
    } else {
      open_.back().object()->emplace_back(std::move(keys_.back()), std::move(value));
      keys_.back().clear();
    }
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Json> open_;         // containers not yet closed
  std::vector<std::string> keys_;  // one for each of them; used where it is an object
  size_t n_values_ = 0;
  JsonError error_;
};

std::string place_of(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  const size_t start = before.rfind('\n');
  return "line " + std::to_string(1 + std::count(before.begin(), before.end(), '\n')) + ", column " +
         std::to_string(start == std::string_view::npos ? before.size() + 1 : before.size() - start);
}

}  // namespace

double Json::number() const {
  if (const int64_t* i = integer()) return static_cast<double>(*i);
  if (const uint64_t* u = large_integer()) return static_cast<double>(*u);
  const double* d = real();
  return d != nullptr ? *d : 0;
}

const Json* Json::find(std::string_view key) const {
  if (const Object* members = object()) {
    for (const Member& member : *members) {
      if (member.first == key) return &member.second;
    }
  }
  return nullptr;
}

const char* Json::kind() const {
  static constexpr const char* kNames[] = {"null",     "a boolean", "an integer", "an integer",
                                           "a number", "a string",  "an array",   "an object"};
  return kNames[value_.index()];
}

std::string Json::text() const {
  std::string out;
  JsonWriter(out).value(*this);
  return out;
}

std::variant<Json, JsonError> read_tree(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return JsonError{.kind = JsonError::Kind::kTooLong,
                     .what = "has " + std::to_string(text.size()) + " bytes of JSON; " +
                             std::to_string(limits.max_bytes) + " are the most"};
  }
  TreeBuilder builder(limits);
  const std::optional<JsonFault> fault = read_json(text, limits.max_depth, builder);
  if (!fault) return builder.take();
  JsonError& error = builder.error();
  error.at = fault->at;
  error.path = builder.path();
  if (fault->kind == JsonFault::Kind::kTooDeep) {
    error.kind = JsonError::Kind::kLimit;
    error.what = "values are nested deeper than " + std::to_string(limits.max_depth);
  } else if (fault->kind != JsonFault::Kind::kStopped) {
    error.kind = fault->kind == JsonFault::Kind::kGoesOn ? JsonError::Kind::kGoesOn : JsonError::Kind::kSyntax;
    error.what = fault->message;
  }
  return std::move(error);
}

Result<Json> parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  std::variant<Json, JsonError> read = read_tree(text, limits);
  if (auto* tree = std::get_if<Json>(&read)) return std::move(*tree);
  const JsonError& error = std::get<JsonError>(read);
  if (error.kind == JsonError::Kind::kTooLong)
    return invalid(std::string(where) + " " + error.what, std::string(where));
  return invalid(std::string(where) + ": no valid JSON at " + place_of(text, error.at) + ": " + error.what,
                 std::string(where));
}

}  // namespace ibid
