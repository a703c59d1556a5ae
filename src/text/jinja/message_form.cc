#include "text/jinja/message_form.h"

#include "text/jinja/json.h"
#include "text/jinja/machine.h"

namespace ibid {
namespace {

using jinja::DictObject;
using jinja::Kind;
using jinja::ListObject;
using jinja::Text;
using jinja::Value;

// The dict with another value for the key, which keeps its place.
Value with(const Value& dict, std::string_view key, Value value) {
  auto* out = new DictObject;
  for (const auto& [name, old] : dict.as<DictObject>()->entries) out->set(name, old);
  out->set(Value::string(key), std::move(value));
  return Value::object(Kind::kDict, out);
}

const Value* member(const Value& dict, std::string_view key) {
  return dict.is(Kind::kDict) ? dict.as<DictObject>()->find(key) : nullptr;
}

bool is_blank(std::string_view s) { return s.find_first_not_of(" \t\r\n") == std::string_view::npos; }

Value fit_arguments(jinja::Machine& machine, MessageForm::Arguments form, const Value& arguments,
                    const std::string& where, std::string& misfit) {
  if (form == MessageForm::Arguments::kText && arguments.is(Kind::kDict)) {
    Text text;
    jinja::append_json(machine, arguments, {}, text);
    return machine.string(std::move(text));
  }
  if (form != MessageForm::Arguments::kObject || !arguments.is_string()) return arguments;
  if (!machine.spend(arguments.str().size() / 16)) return arguments;
  // What a string holds no limit of the request's own JSON has seen, so the machine counts it.
  Result<Value> object =
      jinja::read_json(is_blank(arguments.str()) ? "{}" : arguments.str(), where, jinja::JsonMarks::kAll, &machine);
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
    const Value* arguments = member(function != nullptr ? *function : call, "arguments");
    if (arguments != nullptr && machine.spend()) {
      const std::string field = place + (function != nullptr ? ".function" : "") + ".arguments";
      Value fit = fit_arguments(machine, form, *arguments, field, misfit);
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

// Beside tool calls: null, absent and "" are three ways to say that there is no content.
Value fit_no_content(const MessageForm& form, const Value& message) {
  const Value* content = member(message, "content");
  if (content != nullptr && !content->is_none() && !(content->is_string() && content->str().empty())) return message;
  const MessageForm::NoContent want = content == nullptr ? form.missing : content->is_none() ? form.null : form.empty;
  if (want == MessageForm::NoContent::kAsGiven) return message;
  return with(message, "content", want == MessageForm::NoContent::kNull ? Value::none() : Value::string(""));
}

}  // namespace

Value fit_message(jinja::Machine& machine, const MessageForm& form, const Value& message, size_t index,
                  std::string& misfit) {
  if (form == MessageForm()) return message;
  Value fitted = message;
  const Value* role = member(message, "role");
  const std::string said = role != nullptr && role->is_string() ? std::string(role->str()) : "";
  if (form.developer_is_system && said == "developer") fitted = with(fitted, "role", Value::string("system"));
  const Value* calls = member(fitted, "tool_calls");
  if (calls != nullptr && calls->is(Kind::kList) && !calls->items().empty()) {
    const std::string where = "messages[" + std::to_string(index) + "].tool_calls";
    if (form.arguments != MessageForm::Arguments::kAsGiven)
      fitted = with(fitted, "tool_calls", fit_calls(machine, form.arguments, *calls, where, misfit));
    fitted = fit_no_content(form, fitted);
  }
  const Value* content = member(fitted, "content");
  return content != nullptr ? fit_content(content_form(form, said), fitted, *content) : fitted;
}

}  // namespace ibid
