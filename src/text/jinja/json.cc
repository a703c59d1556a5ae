#include "text/jinja/json.h"

#include <algorithm>
#include <cctype>

#include "base/json_events.h"
#include "text/jinja/filters.h"

namespace ibid::jinja {
namespace {

bool is_word(std::string_view s) {
  return !s.empty() && s.size() <= 64 &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '-'; });
}

// Builds values as the parser reads; integers beyond 64 bits keep their digits. If the machine fails meanwhile, the
// rest of the text is still read.
class Builder final : public JsonEvents {
 public:
  Builder(JsonMarks marks, Machine* machine) : marks_(marks), machine_(machine) {}
  Value take() { return std::move(root_); }

  bool begin_object() override { return open(Kind::kDict, new DictObject); }
  bool begin_array() override { return open(Kind::kList, new ListObject); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string text) override {
    keys_.back() = std::move(text);
    return true;
  }
  bool string(std::string text) override {
    const bool role = marks_ == JsonMarks::kMessages && open_.size() == 2 && keys_.back() == "role" && is_word(text);
    return put(string_value(std::move(text), !role));
  }
  bool integer(int64_t value) override { return put(Value::integer(value)); }
  bool number(std::string text) override {
    if (text.find_first_of(".eE") == std::string::npos) return big(std::move(text));
    double value = 0;
    to_double(text, value);  // infinity beyond the range, as in Python
    return put(Value::real(value));
  }
  bool boolean(bool value) override { return put(Value::boolean(value)); }
  bool null() override { return put(Value::none()); }

 private:
  bool big(std::string digits) {
    auto object = std::make_unique<StringObject>();
    object->text = Text(std::move(digits));
    if (machine_ == nullptr) return put(Value::object(Kind::kBigInt, object.release()));
    size_t n_bytes = object->text.size();
    return put(machine_->adopt(Kind::kBigInt, std::move(object), n_bytes));
  }
  Value string_value(std::string s, bool mark) {
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
    // The items of open containers are not charged yet.
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
      open_.back().as<DictObject>()->set(string_value(keys_.back(), true), std::move(v));
    }
    return true;
  }

  JsonMarks marks_;
  Machine* machine_;
  size_t n_pending_ = 0;  // values in open containers
  Value root_;
  std::vector<Value> open_;
  std::vector<std::string> keys_;  // of each open object
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
  Builder builder(marks, machine);
  if (const std::optional<JsonFault> fault = ibid::read_json(text, 100, builder)) {
    return invalid("The " + std::string(what.substr(0, 60)) + " are no JSON that can be read: " + fault->message +
                       " at byte " + std::to_string(fault->at) + ".",
                   std::string(what));
  }
  return builder.take();
}

}  // namespace ibid::jinja
