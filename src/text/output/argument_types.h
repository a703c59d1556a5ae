// ArgumentTypes: the types of one tool's arguments, by the JSON Schema of its parameters, and how text between tags is
// read as one of them. Text that is JSON may also be a string, and the schema decides: JSON if that is valid and the
// string is not, else the string; if both are valid, only `null` is null. For text that is neither, the kinds that the
// schema allows decide.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ibid {

// What the markup states about a value beside its text.
enum class ValueHint : uint8_t { kNone, kText, kJson };

class ArgumentType {
 public:
  ArgumentType() = default;  // an unknown type
  ArgumentType(std::shared_ptr<const Json> root, Json schema);

  // The JSON of a complete value.
  std::string read(std::string_view text, ValueHint hint) const;
  // Whether a text with this beginning is a string, whatever follows.
  bool is_string_already(std::string_view begin, ValueHint hint) const;

 private:
  std::shared_ptr<const Json> root_;  // null: nothing is known
  Json schema_;
  bool takes_any_string_ = true;  // every string is valid
  bool takes_strings_alone_ = false;
  bool takes_null_ = true, takes_strings_ = true;  // by their kind
};

class ArgumentTypes {
 public:
  // `parameters`: the schema of the object of all arguments; null where a tool has none.
  explicit ArgumentTypes(std::shared_ptr<const Json> parameters);

  const ArgumentType& of(const std::string& name) const;
  // Whether the schema names the argument; true for every name if the schema has no names.
  bool may_have(const std::string& name) const { return types_.empty() || types_.contains(name); }
  const std::vector<std::string>& required() const { return required_; }

 private:
  struct Found {
    std::vector<const Json*> all, any;
  };
  void add(const Json& schema, bool is_one_of_several, int depth);

  std::shared_ptr<const Json> root_;
  std::map<std::string, Found> found_;  // while the schema is read
  int n_read_ = 0;                      // parts of it
  std::map<std::string, ArgumentType> types_;
  std::vector<std::pair<std::string, ArgumentType>> patterns_;
  ArgumentType other_;
  std::vector<std::string> required_;
};

// The JSON of a Python literal, as templates print values other than strings; empty if it is not one.
std::string json_of_python(std::string_view text);

}  // namespace ibid
