#include "text/jinja/message_form.h"

#include "text/jinja/json.h"
#include "text/jinja/machine.h"
#include "text/jinja/message_parts.h"

namespace ibid {
namespace {

using jinja::DictObject;
using jinja::Kind;
using jinja::ListObject;
using jinja::Text;
using jinja::Value;

bool is_blank(std::string_view s) { return s.find_first_not_of(" \t\r\n") == std::string_view::npos; }

// Clients and models write these for tools without parameters. PHP's empty arrays are lists.
bool is_nothing(const Value& arguments) {
  if (arguments.is_none()) return true;
  if (!arguments.is_string()) return jinja::length(arguments) == 0;
  std::string_view text = arguments.str();
  if (text.size() > 64) return is_blank(text);
  while (!text.empty() && is_blank(text.substr(0, 1))) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.substr(text.size() - 1))) text.remove_suffix(1);
  return text.empty() || text == "{}" || text == "[]";
}

Value fit_arguments(jinja::Machine& machine, MessageForm::Arguments form, const Value& arguments,
                    const std::string& where, std::string& misfit) {
  if (is_nothing(arguments)) {
    if (form == MessageForm::Arguments::kObject) return Value::object(Kind::kDict, new DictObject);
    return Value::string("{}");
  }
  if (form == MessageForm::Arguments::kText && arguments.is(Kind::kDict)) {
    Text text;
    jinja::append_json(machine, arguments, {}, text);
    return machine.string(std::move(text));
  }
  if (form != MessageForm::Arguments::kObject || !arguments.is_string()) return arguments;
  if (!machine.spend(arguments.str().size() / 16)) return arguments;
  // The limits of the request's own JSON have not seen the contents of a string, so the machine counts them.
  Result<Value> object = jinja::read_json(arguments.str(), where, jinja::JsonMarks::kAll, &machine);
  if (machine.failed()) return arguments;
  if (object && object->is(Kind::kDict)) return *std::move(object);
  if (misfit.empty()) misfit = where + " is no JSON object, which this template reads";
  return arguments;
}

Value fit_calls(jinja::Machine& machine, MessageForm::Arguments form, const Value& calls, const std::string& where,
                std::string& misfit) {
  auto* out = new ListObject;
  Value fitted = Value::object(Kind::kList, out);
  for (size_t i = 0; i < calls.items().size(); ++i) {
    Value call = calls.items()[i];
    const std::string place = where + "[" + std::to_string(i) + "]";
    const Value* function = member(call, "function");
    const Value& named = function != nullptr ? *function : call;
    const Value* arguments = member(named, "arguments");
    if (named.is(Kind::kDict) && machine.spend()) {
      const std::string field = place + (function != nullptr ? ".function" : "") + ".arguments";
      Value fit = fit_arguments(machine, form, arguments != nullptr ? *arguments : Value::none(), field, misfit);
      call = function != nullptr ? with(call, "function", with(*function, "arguments", std::move(fit)))
                                 : with(call, "arguments", std::move(fit));
    }
    jinja::weigh(*out, call);
    out->items.push_back(std::move(call));
  }
  return fitted;
}

// The text of a list of text parts, one a line; false where a part is something else.
bool join_parts(const Value& parts, Text& text) {
  for (size_t i = 0; i < parts.items().size(); ++i) {
    const Value& part = parts.items()[i];
    const Value* type = member(part, "type");
    const Value* piece = part.is_string() ? &part : member(part, "text");
    const bool is_text = part.is_string() || (type != nullptr && type->is_string() && type->str() == "text");
    if (!is_text || piece == nullptr || !piece->is_string()) return false;
    if (i > 0) text.append("\n");
    text.append(piece->text());
  }
  return true;
}

Value as_parts(const Value& text) {
  auto* part = new DictObject;
  Value part_value = Value::object(Kind::kDict, part);
  part->set(Value::string("type"), Value::string("text"));
  part->set(Value::string("text"), text);
  auto* list = new ListObject;
  jinja::weigh(*list, part_value);
  list->items.push_back(std::move(part_value));
  return Value::object(Kind::kList, list);
}

MessageForm::Content content_form(const MessageForm& form, std::string_view role) {
  if (role == "system" || role == "developer") return form.system;
  if (role == "user") return form.user;
  if (role == "assistant") return form.assistant;
  return role == "tool" ? form.tool : MessageForm::Content::kAsGiven;
}

Value fit_content(MessageForm::Content form, const Value& message, const Value& content) {
  if (form == MessageForm::Content::kParts && content.is_string()) return with(message, "content", as_parts(content));
  Text text;
  if (form != MessageForm::Content::kText || !content.is(Kind::kList) || !join_parts(content, text)) return message;
  return with(message, "content", Value::string(std::move(text)));
}

// Beside tool calls null, absent and "" all mean that there is no content.
Value fit_no_content(const MessageForm& form, const Value& message) {
  const Value* content = member(message, "content");
  if (content != nullptr && !content->is_none() && !(content->is_string() && content->str().empty())) return message;
  const MessageForm::NoContent want = content == nullptr ? form.missing : content->is_none() ? form.null : form.empty;
  if (want == MessageForm::NoContent::kAsGiven) return message;
  return with(message, "content", want == MessageForm::NoContent::kNull ? Value::none() : Value::string(""));
}

bool is_empty(const Value& v) {
  if (v.is_string()) return v.str().empty();
  return v.is_none() || ((v.is(Kind::kList) || v.is(Kind::kDict)) && jinja::length(v) == 0);
}

// Parts that are all empty texts.
bool holds_nothing(const Value& content) {
  Text text;
  return content.is(Kind::kList) && content.items().size() < 8 && join_parts(content, text) && text.size() == 0;
}

// An id that is a number, as its digits.
Value as_id(const Value& id) {
  if (id.is_integral() && !id.is(Kind::kBool)) return Value::string(jinja::Text::marked(std::to_string(id.as_int())));
  return id;
}

Value calls_with_ids(const Value& calls) {
  auto* out = new ListObject;
  Value cleared = Value::object(Kind::kList, out);
  for (const Value& given : calls.items()) {
    Value call = given;
    const Value* id = member(call, "id");
    if (id != nullptr) call = is_empty(*id) ? without(call, "id") : with(call, "id", as_id(*id));
    if (const Value* type = member(call, "type"); type != nullptr && is_empty(*type)) call = without(call, "type");
    jinja::weigh(*out, call);
    out->items.push_back(std::move(call));
  }
  return cleared;
}

// Empty members are left out, and empty content is "", except the content beside calls.
Value cleared(const Value& message) {
  auto* out = new DictObject;
  Value made = Value::object(Kind::kDict, out);
  bool has_calls = false, has_content = false;
  for (const auto& [key, value] : message.as<DictObject>()->entries) {
    const std::string_view name = key.is_string() ? key.str() : std::string_view();
    if (name == "content") {
      out->set(key, is_empty(value) || holds_nothing(value) ? (value.is_none() ? value : Value::string("")) : value);
      has_content = true;
      continue;
    }
    const bool may_be_empty = name != "tool_calls" && name != "name" && name != "tool_call_id" &&
                              name != "reasoning_content" && name != "reasoning" && name != "thinking";
    if (value.is_none() || (!may_be_empty && is_empty(value))) continue;
    const bool is_calls = name == "tool_calls" && value.is(Kind::kList);
    has_calls = has_calls || is_calls;
    out->set(key, is_calls ? calls_with_ids(value) : name == "tool_call_id" ? as_id(value) : value);
  }
  const Value* content = out->find("content");
  if (!has_calls && (!has_content || content->is_none())) out->set(Value::string("content"), Value::string(""));
  return made;
}

}  // namespace

std::vector<Value> fit_messages(jinja::Machine& machine, const MessageForm& form, unsigned& repairs,
                                std::vector<Value> messages, std::string& misfit) {
  for (Value& message : messages) {
    if (!machine.spend(static_cast<uint64_t>(jinja::length(message)))) return messages;
    message = cleared(message);
    if (form.developer_is_system && role_of(message) == "developer")
      message = with(message, "role", Value::string("system"));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const Value* calls = member(messages[i], "tool_calls");
    if (calls == nullptr || !calls->is(Kind::kList)) continue;
    const std::string where = "messages[" + std::to_string(i) + "].tool_calls";
    messages[i] = with(messages[i], "tool_calls", fit_calls(machine, form.arguments, *calls, where, misfit));
  }
  fill_calls(form, messages);
  place_systems(form, messages);
  if ((repairs & kShortIds) != 0 && !shorten_ids(messages)) repairs &= ~kShortIds;
  if ((repairs & kSingleCalls) != 0 && !split_calls(messages)) repairs &= ~kSingleCalls;
  if ((repairs & kAlternate) != 0 && !alternate(messages)) repairs &= ~kAlternate;
  if ((repairs & kBlanks) != 0 && !say_blanks(messages)) repairs &= ~kBlanks;
  for (Value& message : messages) {
    if (member(message, "tool_calls") != nullptr) message = fit_no_content(form, message);
    const Value* content = member(message, "content");
    if (content != nullptr) message = fit_content(content_form(form, role_of(message)), message, *content);
  }
  return messages;
}

}  // namespace ibid
