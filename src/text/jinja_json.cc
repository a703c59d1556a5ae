#include "text/jinja_json.h"

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <cctype>
#include <cstdlib>

#include "text/jinja_unicode.h"

namespace ibid::jinja {
namespace {

namespace json = boost::json;

bool is_word(std::string_view s) {
  return !s.empty() && s.size() <= 64 &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
}

// Builds values as the parser reads; integers beyond 64 bits keep their digits.
class Builder {
 public:
  static constexpr std::size_t max_object_size = -1;
  static constexpr std::size_t max_array_size = -1;
  static constexpr std::size_t max_key_size = -1;
  static constexpr std::size_t max_string_size = -1;

  explicit Builder(JsonMarks marks) : marks_(marks) {}
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
    Text text = role ? Text(std::move(text_)) : Text::marked(std::move(text_));
    text_.clear();
    return put(Value::string(std::move(text)));
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
    auto* object = new StringObject;
    object->text = Text(std::move(text_));
    text_.clear();
    return put(Value::object(Kind::kBigInt, object));
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
    return put(std::move(done));
  }
  bool put(Value v) {
    if (open_.empty()) {
      root_ = std::move(v);
    } else if (open_.back().is(Kind::kList)) {
      auto* list = open_.back().as<ListObject>();
      weigh(*list, v);
      list->items.push_back(std::move(v));
    } else {
      open_.back().as<DictObject>()->set(Value::string(Text::marked(keys_.back())), std::move(v));
    }
    return true;
  }

  JsonMarks marks_;
  Value root_;
  std::vector<Value> open_;
  std::vector<std::string> keys_;  // of each open object
  std::string text_;
};

}  // namespace

Result<Value> read_json(std::string_view text, std::string_view what, JsonMarks marks) {
  json::parse_options options;
  options.max_depth = 100;
  json::basic_parser<Builder> parser(options, marks);
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
