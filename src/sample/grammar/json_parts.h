// JsonParts: the expressions that grammars of JSON texts consist of.
#pragma once

#include <string_view>

#include "sample/grammar/json_schema.h"
#include "sample/grammar/schema_guidance.h"
#include "sample/grammar/schema_value.h"

namespace ibid::grammar {

// The parts that all JSON grammars share, made at the first use.
class JsonParts {
 public:
  JsonParts(Grammar& grammar, JsonSpace space, const JsonSpelling& spelling = {})
      : g_(grammar), space_(space), spelling_(spelling) {}

  ExprId space();
  // One code point of a string in any of its spellings; halves of surrogate pairs come in pairs.
  ExprId character();
  ExprId string();
  ExprId number(bool is_integer);
  // begin (one (, more)*)? end
  ExprId list(std::string_view begin, ExprId part, std::string_view end);
  ExprId after_comma(ExprId part);
  ExprId member(ExprId name, ExprId value);
  RuleId object();
  RuleId value();
  ExprId text_of(const Value& value);

 private:
  Grammar& g_;
  JsonSpace space_;
  JsonSpelling spelling_;
  RuleId space_rule_ = kNoExpr, string_rule_ = kNoExpr, integer_rule_ = kNoExpr, number_rule_ = kNoExpr,
         object_rule_ = kNoExpr, value_rule_ = kNoExpr;
  ExprId character_ = kNoExpr;
};

}  // namespace ibid::grammar
