// Tool definitions with the members that a template reads without checking for them.
#include "text/jinja/message_parts.h"

namespace ibid {

using jinja::DictObject;
using jinja::Kind;
using jinja::ListObject;
using jinja::Value;

namespace {

Value empty_dict() { return Value::object(Kind::kDict, new DictObject); }

// What a schema without a type allows, in one word.
std::string_view type_of(const Value& schema) {
  for (const char* name : {"anyOf", "oneOf"}) {
    const Value* choices = member(schema, name);
    if (choices == nullptr || !choices->is(Kind::kList)) continue;
    for (const Value& choice : choices->items()) {
      const Value* type = member(choice, "type");
      if (type != nullptr && type->is_string() && type->str() != "null") return type->str();
    }
  }
  const Value* values = member(schema, "enum");
  if (values != nullptr && values->is(Kind::kList) && !values->items().empty() && values->items()[0].is_string())
    return "string";
  if (member(schema, "properties") != nullptr) return "object";
  return member(schema, "items") != nullptr ? "array" : "string";
}

class Filler {
 public:
  Filler(const MessageForm& form, bool is_plain) : form_(form), is_plain_(is_plain) {}

  Value tool(const Value& given) const {
    if (!given.is(Kind::kDict)) return given;
    Value tool = without_nulls(given);
    if (fills(Member::kToolType)) fill(tool, "type", Value::string("function"));
    const Value* named = member(tool, "function");
    if (named == nullptr || !named->is(Kind::kDict)) return tool;
    Value function = without_nulls(*named);
    if (fills(Member::kDescription)) fill(function, "description", Value::string(""));
    if (fills(Member::kParameters)) fill(function, "parameters", empty_dict());
    const Value* parameters = member(function, "parameters");
    if (parameters != nullptr && parameters->is(Kind::kDict))
      function = with(function, "parameters", object_schema(is_plain_ ? without_nulls(*parameters) : *parameters));
    return with(tool, "function", std::move(function));
  }

 private:
  static void fill(Value& dict, std::string_view name, Value value) {
    const Value* given = member(dict, name);
    if (given == nullptr || given->is_none()) dict = with(dict, name, std::move(value));
  }

  static Value without_nulls(const Value& dict) {
    auto* out = new DictObject;
    for (const auto& [name, value] : dict.as<DictObject>()->entries)
      if (!value.is_none()) out->set(name, value);
    return Value::object(Kind::kDict, out);
  }

  // The schema of the arguments, or of an object within them.
  Value object_schema(Value schema) const {
    if (fills(Member::kSchemaType)) fill(schema, "type", Value::string("object"));
    if (fills(Member::kProperties)) fill(schema, "properties", empty_dict());
    if (fills(Member::kRequired)) fill(schema, "required", Value::object(Kind::kList, new ListObject));
    return with_properties(std::move(schema));
  }

  Value with_properties(Value schema) const {
    const Value* properties = member(schema, "properties");
    if (properties == nullptr || !properties->is(Kind::kDict)) return schema;
    auto* out = new DictObject;
    Value filled = Value::object(Kind::kDict, out);
    for (const auto& [name, property] : properties->as<DictObject>()->entries) out->set(name, schema_of(property));
    return with(schema, "properties", std::move(filled));
  }

  // The schema of one argument. JSON is at most 100 levels deep, and so is this.
  Value schema_of(const Value& given) const {
    const bool is_read = fills(Member::kPropertyType) || fills(Member::kPropertyDescription);
    Value schema = is_read && given.is(Kind::kBool) ? empty_dict() : given;
    if (!schema.is(Kind::kDict)) return schema;
    if (is_plain_) schema = plain(schema);
    if (fills(Member::kPropertyType)) fill(schema, "type", Value::string(type_of(schema)));
    if (fills(Member::kPropertyDescription)) fill(schema, "description", Value::string(""));
    const Value* items = member(schema, "items");
    if (items != nullptr && items->is(Kind::kDict)) schema = with(schema, "items", schema_of(*items));
    return with_properties(std::move(schema));
  }

  // One type, the first of several that is not null, and no members that are null. An object without a schema of
  // additionalProperties gets one of strings, because some templates read such a type as a map.
  static Value plain(const Value& given) {
    Value schema = without_nulls(given);
    const Value* type = member(schema, "type");
    if (type != nullptr) {
      std::string_view first = type->is_string() && type->str() != "null" ? type->str() : "";
      for (const Value& name : type->is(Kind::kList) ? type->items() : std::vector<Value>())
        if (first.empty() && name.is_string() && name.str() != "null") first = name.str();
      schema = with(schema, "type", Value::string(first.empty() ? "string" : first));
      type = member(schema, "type");
    }
    const bool is_object = type != nullptr && type->is_string() && type->str() == "object";
    const Value* values = member(schema, "additionalProperties");
    if (is_object && (values == nullptr || values->is(Kind::kBool)))
      schema = with(schema, "additionalProperties", with(empty_dict(), "type", Value::string("string")));
    return schema;
  }

  bool fills(Member member) const { return is_plain_ || form_.fills(member); }

  const MessageForm& form_;
  bool is_plain_;
};

}  // namespace

Value fit_tools(const MessageForm& form, const Value& tools, bool is_plain) {
  if (tools.is_none() && form.wants_tool_list) return Value::object(Kind::kList, new ListObject);
  if (!tools.is(Kind::kList)) return tools;
  auto* out = new ListObject;
  Value fitted = Value::object(Kind::kList, out);
  const Filler filler(form, is_plain);
  for (const Value& tool : tools.items()) {
    out->items.push_back(filler.tool(tool));
    jinja::weigh(*out, out->items.back());
  }
  return fitted;
}

}  // namespace ibid
