// CallGrammar: expressions of a grammar for one call of a tool, in a model's format, so that whatever they allow the
// parser of answers reads as a call whose arguments are of the tool's schema.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "sample/grammar/grammar.h"
#include "text/output/answer_format.h"
#include "text/tokenizer/tokenizer.h"

namespace ibid {

class CallGrammar {
 public:
  // `is_free`: the model begins calls by itself, and spaces them as it likes; what a tool that is not strict takes is
  // any object.
  CallGrammar(const Tokenizer& tokenizer, bool is_free, grammar::Grammar& out)
      : tokenizer_(tokenizer), is_free_(is_free), out_(out) {}

  bool has_control(std::string_view text) const;
  // A text of which control tokens are themselves, and not what they spell.
  grammar::ExprId marked(std::string_view text);
  // Any text up to the first time that it has the marker, with it.
  grammar::ExprId until(std::string_view marker);
  grammar::ExprId blanks();
  Result<grammar::ExprId> call_of(const ToolFormat& format, const Json& tool);

 private:
  // The arguments that one reading of a schema with alternatives gives.
  struct Arguments {
    std::vector<std::pair<std::string, Json>> properties;
    std::vector<std::string> required;
    void add(const std::string& name, const Json& schema);
    bool needs(const std::string& name) const;
  };

  bool is_control(TokenId id) const;
  Result<grammar::ExprId> schema(const std::string& text);
  Result<grammar::ExprId> with_arguments(const ToolFormat& format, const std::string& name, const Json& root);
  Result<grammar::ExprId> argument_of(const ToolFormat& format, const std::string& key, const Json& property,
                                      const Json& root, bool is_first);
  Result<grammar::ExprId> tagged_value(const ToolFormat& format, const Json& property, const Json& root, int depth);
  Result<grammar::ExprId> string_value(const ToolFormat& format, const Json& property, const Json& root);
  grammar::ExprId key(const ToolFormat& format, const std::string& key, bool is_text);
  std::vector<Arguments> readings(const Json& schema, const Json& root, int depth) const;

  const Tokenizer& tokenizer_;
  bool is_free_, is_strict_ = false;
  std::string key_;  // of the argument that is being written
  grammar::Grammar& out_;
};

}  // namespace ibid
