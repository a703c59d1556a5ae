// Calls that are objects: {"name": N, "arguments": {...}}, in any order, with other members among them. Every member of
// such an object comes out as name, id or arguments, or as text.
#include <algorithm>
#include <utility>

#include "base/json.h"
#include "text/output/answer_parser.h"
#include "text/output/markers.h"

namespace ibid {
namespace {

constexpr size_t kMaxObject = 64 << 10;     // of a call's object without its arguments
constexpr size_t kMaxArguments = 16 << 20;  // of arguments that have to wait

bool is_arguments_key(std::string_view key, const ToolFormat& tools) {
  return key == tools.arguments_key || key == "arguments" || key == "parameters";
}
bool is_id_key(std::string_view key) { return key == "id" || key == "tool_call_id" || key == "call_id"; }

}  // namespace

bool AnswerParser::step_objects(Parts& parts) {
  const size_t n = markers::n_blank(buffer_);
  if (n == buffer_.size()) return false;
  const char c = buffer_[n];
  if (c == '{') {
    for (std::string* text : {&object_, &held_arguments_, &member_, &name_, &id_, &strange_}) text->clear();
    is_sending_ = has_arguments_ = has_strange_object_ = false;
    reader_ = ArgumentReader();
    return go_on(n, State::kObject);
  }
  if (c == '[' && !is_array_) return is_array_ = true, go_on(n + 1, State::kObjects);
  if ((c == ',' || c == ';') && has_called_) return go_on(n + 1, State::kObjects);
  if (c == ']' && has_called_) return is_array_ = false, go_on(n + 1, State::kBetween);
  return has_called_ ? is_array_ = false, go_on(0, State::kBetween) : fail(parts);
}

bool AnswerParser::step_object(Parts& parts) {
  for (size_t i = 0; i < buffer_.size(); ++i) {
    const char c = buffer_[i];
    const bool is_colon = reader_.depth() == 1 && reader_.expects_colon() && c == ':';
    std::string json;
    const ArgumentReader::Verdict verdict = reader_.feed(c, json);
    if (verdict == ArgumentReader::Verdict::kBad) {
      drop(i);
      if (is_in_call_) return break_call(parts), true;
      if (!is_sending_) return fail(parts);
      flush_strange(parts);  // after whole arguments: a bracket was left out
      return state_ = State::kBetween, true;
    }
    if (is_in_call_) {
      add_arguments(json, parts);
      if (reader_.depth() > 1) continue;
      end_call(parts);
      object_.clear();
      member_.clear();
      key_begin_ = 0;
      continue;
    }
    if (!is_sending_) raw_ += c;
    const bool is_done = verdict == ArgumentReader::Verdict::kDone;
    const bool is_end = is_done || (reader_.depth() == 1 && reader_.expects_key());
    if (is_end && !member_.empty() && !json.empty()) {
      object_ += json.substr(0, json.size() - 1);
      json.erase(0, json.size() - 1);
      if (!end_member()) return drop(i + 1), fail(parts);
      member_.clear();
    }
    object_ += json;
    if (is_end || object_ == "{") key_begin_ = object_.size();
    if (is_colon) {
      const std::string spelled = object_.substr(key_begin_, object_.size() - 1 - key_begin_);
      const Result<Json> key = parse_json(spelled);
      member_ = key && key->string() != nullptr ? *key->string() : "";
      value_begin_ = object_.size();
      if (tools_.is_name_key) {
        if (!read_name(spelled)) return drop(i + 1), fail(parts);
        member_ = tools_.arguments_key;
        is_sending_ = has_arguments_ = false;
      } else if (member_.empty()) {
        member_ = " ";
      }
    }
    const bool begins_arguments =
        reader_.depth() == 2 && json == "{" && object_.size() == value_begin_ + 1 && is_arguments_key(member_, tools_);
    const bool may_send = !name_.empty() && !has_strange_object_ && (!tools_.has_ids_after || !id_.empty());
    if (begins_arguments && may_send && !is_sending_ && !has_arguments_) {
      flush_strange(parts);
      begin_call(parts);
      is_sending_ = has_arguments_ = true;
      add_arguments("{", parts);
      continue;
    }
    if (object_.size() > (is_arguments_key(member_, tools_) ? kMaxArguments : kMaxObject)) {
      drop(i + 1);
      if (!is_sending_) return fail(parts);
      return flush_strange(parts), state_ = State::kText, true;
    }
    if (!is_done) continue;
    drop(i + 1);
    return end_object(parts);
  }
  drop(buffer_.size());
  return false;
}

bool AnswerParser::end_object(Parts& parts) {
  if (!is_sending_) {
    // Without arguments of a known name it is a call without arguments, if no other member could be them.
    const bool is_call = !name_.empty() && !has_strange_object_ && (has_arguments_ || strange_.empty());
    if (!is_call) return fail(parts);
    const std::string strange = std::exchange(strange_, {});
    begin_call(parts);
    add_arguments(held_arguments_.empty() ? "{}" : held_arguments_, parts);
    end_call(parts);
    strange_ = strange;
  }
  flush_strange(parts);
  raw_.clear();
  state_ = is_array_ ? State::kObjects : State::kBetween;
  return true;
}

// False where the object cannot be a call.
bool AnswerParser::end_member() {
  const std::string value = object_.substr(value_begin_);
  const bool is_name = member_ == tools_.name_key || member_ == "name";
  if (!is_sending_) {
    if (is_name && name_.empty()) return read_name(value);
    if (is_arguments_key(member_, tools_) && !has_arguments_) {
      if (hold_arguments(value)) return has_arguments_ = true;
      if (member_ == tools_.arguments_key) return false;
    }
    if (member_ == "function" && value.starts_with('{') && name_.empty() && !has_arguments_ && read_nested(value))
      return true;
    if (is_id_key(member_) && id_.empty()) {
      const Result<Json> id = parse_json(value);
      if (id && id->string() != nullptr && id->string()->size() <= kMaxName) return id_ = *id->string(), true;
      if (id && id->integer() != nullptr) return id_ = value, true;
    }
  }
  if (member_ == "type" && value == "\"function\"") return true;
  if (!strange_.empty()) strange_ += ',';
  strange_ += object_.substr(key_begin_);
  has_strange_object_ = has_strange_object_ || value.starts_with('{');
  return true;
}

bool AnswerParser::read_name(std::string_view json) {
  const Result<Json> name = parse_json(json);
  if (!name || name->string() == nullptr || name->string()->empty() || name->string()->size() > kMaxName) return false;
  name_ = *name->string();
  return std::ranges::all_of(name_, is_of_name) && (is_declared(name_) || !tools_.is_bare);
}

// An object, or the text of one; or a value that stands for no arguments.
bool AnswerParser::hold_arguments(std::string_view json) {
  held_arguments_.clear();
  if (json == "null" || json == "\"\"" || json == "[]") return true;
  held_arguments_ = json;
  if (!json.starts_with('"')) return json.starts_with('{');
  const Result<Json> text = parse_json(json);
  held_arguments_ = text && text->string() != nullptr ? *text->string() : "";
  const Result<Json> object = parse_json(held_arguments_, "the arguments", {.last_key_counts = true});
  return object && object->object() != nullptr;
}

// {"type": "function", "function": {"name": N, "arguments": {...}}}, as an API has it.
bool AnswerParser::read_nested(std::string_view json) {
  const Result<Json> function = parse_json(json);
  if (!function || function->object() == nullptr || function->object()->size() > 2) return false;
  std::string name, arguments;
  for (const auto& [key, value] : *function->object()) {
    std::string& to = key == "name" ? name : arguments;
    if (key != "name" && !is_arguments_key(key, tools_)) return false;
    to = value.text();
  }
  if (name.empty() || !read_name(name)) return name_.clear(), false;
  if (arguments.empty()) arguments = "null";
  return has_arguments_ = hold_arguments(arguments);
}

}  // namespace ibid
