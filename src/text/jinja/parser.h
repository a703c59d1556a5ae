// Tokens to the syntax tree; internal to parser*.cc. Errors stay in `error_`, and every step returns null or an
// empty tree after one.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/jinja/lexer.h"
#include "text/jinja/program.h"

namespace ibid::jinja {

class Parser {
 public:
  Parser(Program& program, std::vector<Token> tokens) : program_(program), tokens_(std::move(tokens)) {}
  Status run();

 private:
  friend struct Nesting;
  using Names = std::initializer_list<std::string_view>;

  // Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void next() { at_ += at_ + 1 < tokens_.size(); }
  bool skip_name(std::string_view name);
  bool skip_op(std::string_view op);
  bool expect_op(std::string_view op);
  bool expect(Tok type, const char* what);
  std::string expect_name();
  bool at_any_name(Names names) const;
  static std::string describe(const Token& token);
  bool ok() const { return !error_.has_value(); }
  void fail(std::string message, uint32_t at);
  uint32_t intern(std::string_view name);

  // Statements (parser.cc).
  Body parse_body(Names ends, const char* tag);
  Body parse_block(Names ends, const char* tag);  // the rest of the tag, then the body
  std::unique_ptr<Stmt> parse_statement();
  std::unique_ptr<Stmt> parse_set(uint32_t at);
  std::unique_ptr<Stmt> parse_for(uint32_t at);
  std::unique_ptr<Stmt> parse_if(uint32_t at);
  std::unique_ptr<Stmt> parse_macro(uint32_t at);
  std::unique_ptr<Stmt> parse_call_block(uint32_t at);
  std::unique_ptr<Stmt> parse_with(uint32_t at);
  void parse_signature(MacroDef& macro);
  Body parse_macro_body(MacroDef& macro, Names ends, const char* tag);
  ExprPtr parse_target(bool with_namespace, std::string_view end_name = {});
  bool check_target(const Expr& target);

  // Expressions (parser_expression.cc), from the loosest binding to the tightest.
  ExprPtr parse_tuple(bool with_if, std::string_view end_name = {}, bool parenthesised = false, bool simple = false,
                      bool with_namespace = false);
  ExprPtr parse_expression(bool with_if = true);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary(bool with_namespace = false);
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_subscribed();
  ExprPtr parse_call(ExprPtr node);
  ExprPtr parse_filters(ExprPtr node, bool start_inline = false);
  ExprPtr parse_test(ExprPtr node);
  std::unique_ptr<CallArgs> parse_args();

  ExprPtr make(ExprKind kind, uint32_t at);
  ExprPtr make(ExprKind kind, uint32_t at, ExprPtr kid, ExprPtr kid2 = nullptr);
  ExprPtr finish(ExprPtr node);  // sets and checks the height
  ExprPtr name_node(std::string_view name, uint32_t at);

  Program& program_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loop_depth_ = 0;  // loops around this place, inside the same macro
  std::vector<MacroDef*> macros_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::optional<Error> error_;
};

// Counts the nesting of blocks and parentheses while it lives.
struct Nesting {
  explicit Nesting(Parser& parser) : parser_(parser) {
    if (++parser_.depth_ > kMaxHeight) parser_.fail("blocks or parentheses are nested too deeply.", parser_.now().at);
  }
  ~Nesting() { --parser_.depth_; }
  Parser& parser_;
};

}  // namespace ibid::jinja
