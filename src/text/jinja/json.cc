#include "text/jinja/json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cctype>
#include <cstdlib>

#include "text/jinja/filters.h"

namespace ibid::jinja {
namespace {

namespace json = boost::json;

bool is_word(std::string_view s) {
  return !s.empty() && s.size() <= 64 &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
}

// Builds values as the parser reads; integers beyond 64 bits keep their digits. A machine that fails meanwhile gets the
// rest of the text read for nothing.
class Builder {
 public:
  static constexpr std::size_t max_object_size = -1;
  static constexpr std::size_t max_array_size = -1;
  static constexpr std::size_t max_key_size = -1;
  static constexpr std::size_t max_string_size = -1;

  Builder(JsonMarks marks, Machine* machine) : marks_(marks), machine_(machine) {}
  Value take() { return std::move(root_); }

  bool on_document_begin(json::error_code&) { return true; }
  bool on_document_end(json::error_code&) { return true; }
  bool on_object_begin(json::error_code&) { return open(Kind::kDict, new DictObject); }
  bool on_array_begin(json::error_code&) { return open(Kind::kList, new ListObject); }
  bool on_object_end(std::size_t, json::error_code&) { return close(); }
  bool on_array_end(std::size_t, json::error_code&) { return close(); }
  bool on_key_part(json::string_view s, std::size_t, json::error_code&) { return part(s); }
  bool on_key(json::string_view s, std::size_t, json::error_code&) {
    part(s);
    keys_.back() = std::move(text_);
    text_.clear();
    return true;
  }
  bool on_string_part(json::string_view s, std::size_t, json::error_code&) { return part(s); }
  bool on_string(json::string_view s, std::size_t, json::error_code&) {
    part(s);
    bool role = marks_ == JsonMarks::kMessages && open_.size() == 2 && keys_.back() == "role" && is_word(text_);
    Value value = string(std::move(text_), !role);
    text_.clear();
    return put(std::move(value));
  }
  bool on_number_part(json::string_view s, json::error_code&) { return part(s); }
  bool on_int64(int64_t i, json::string_view, json::error_code&) { return number(Value::integer(i)); }
  bool on_uint64(uint64_t, json::string_view s, json::error_code&) {
    part(s);
    return big();
  }
  bool on_double(double, json::string_view s, json::error_code&) {
    part(s);
    bool integer = text_.find_first_of(".eE") == std::string::npos;
    if (integer) return big();
    return number(Value::real(std::strtod(text_.c_str(), nullptr)));  // the parser's own value may be off by one bit
  }
  bool on_bool(bool b, json::error_code&) { return put(Value::boolean(b)); }
  bool on_null(json::error_code&) { return put(Value::none()); }
  bool on_comment_part(json::string_view, json::error_code&) { return true; }
  bool on_comment(json::string_view, json::error_code&) { return true; }

 private:
  bool part(json::string_view s) {
    text_.append(s.data(), s.size());
    return true;
  }
  bool number(Value v) {
    text_.clear();
    return put(std::move(v));
  }
  bool big() {
    auto object = std::make_unique<StringObject>();
    object->text = Text(std::move(text_));
    text_.clear();
    if (machine_ == nullptr) return put(Value::object(Kind::kBigInt, object.release()));
    size_t n_bytes = object->text.size();
    return put(machine_->adopt(Kind::kBigInt, std::move(object), n_bytes));
  }
  Value string(std::string s, bool mark) {
    Text text = mark && marks_ != JsonMarks::kNone ? Text::marked(std::move(s)) : Text(std::move(s));
    return machine_ != nullptr ? machine_->string(std::move(text)) : Value::string(std::move(text));
  }
  bool open(Kind kind, Object* object) {
    object->depth = 1;
    open_.push_back(Value::object(kind, object));
    keys_.emplace_back();
    return true;
  }
  bool close() {
    Value done = std::move(open_.back());
    open_.pop_back();
    keys_.pop_back();
    if (machine_ != nullptr) {
      machine_->charge_container(done);
      n_pending_ -= static_cast<size_t>(length(done));
    }
    return put(std::move(done));
  }
  bool put(Value v) {
    // What containers hold that are still open is charged nowhere yet.
    if (machine_ != nullptr) {
      if (!machine_->spend() || ((n_pending_ & 255) == 0 && !machine_->room(n_pending_ * 100))) return true;
      ++n_pending_;
    }
    if (open_.empty()) {
      root_ = std::move(v);
    } else if (open_.back().is(Kind::kList)) {
      auto* list = open_.back().as<ListObject>();
      weigh(*list, v);
      list->items.push_back(std::move(v));
    } else {
      open_.back().as<DictObject>()->set(string(keys_.back(), true), std::move(v));
    }
    return true;
  }

  JsonMarks marks_;
  Machine* machine_;
  size_t n_pending_ = 0;  // values in open containers
  Value root_;
  std::vector<Value> open_;
  std::vector<std::string> keys_;  // of each open object
  std::string text_;
};

// json.loads, under the name that templates give it.
Value from_json(Machine& m, const Value& subject, Args& args) {
  if (!Params(m, args, "from_json", {})) return {};
  if (subject.is_undefined()) return m.undefined_used(subject);
  if (!subject.is_string()) return m.fail(std::string("from_json needs a string, not '") + type_name(subject) + "'.");
  if (!m.room(subject.text().size()) || !m.spend(subject.text().size() / 16)) return {};
  // A text that is a user's in any part may carry it into any string.
  JsonMarks marks = subject.text().has_marks() ? JsonMarks::kAll : JsonMarks::kNone;
  Result<Value> value = read_json(subject.str(), "texts given to from_json", marks, &m);
  if (!value) return m.fail(value.error().message);
  return m.failed() ? Value() : *std::move(value);
}

}  // namespace

const FilterEntry kJsonFilters[] = {{"from_json", from_json}, {"", nullptr}};

Result<Value> read_json(std::string_view text, std::string_view what, JsonMarks marks, Machine* machine) {
  json::parse_options options;
  options.max_depth = 100;
  json::basic_parser<Builder> parser(options, marks, machine);
  json::error_code error;
  size_t n = parser.write_some(false, text.data(), text.size(), error);
  if (!error && n < text.size()) error = json::make_error_code(json::error::extra_data);
  if (error) {
    return invalid("The " + std::string(what.substr(0, 60)) + " are no JSON that can be read: " + error.message() +
                       " at byte " + std::to_string(n) + ".",
                   std::string(what));
  }
  return parser.handler().take();
}

}  // namespace ibid::jinja
