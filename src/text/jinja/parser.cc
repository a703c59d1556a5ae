#include "text/jinja/parser.h"

#include <algorithm>
#include <unordered_set>

#include "base/utf8.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {

Result<std::unique_ptr<const Program>> parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return invalid("The chat template has " + std::to_string(source.size()) + " bytes; at most " +
                       std::to_string(kMaxSourceBytes) + " are read.",
                   "chat_template");
  }
  if (!utf8::is_valid(source)) return invalid("The chat template is not valid UTF-8.", "chat_template");
  auto program = std::make_unique<Program>();
  program->source = normalize_source(source);
  ASSIGN_OR_RETURN(std::vector<Token> tokens, tokenize(program->source));
  TRY(Parser(*program, std::move(tokens)).run());
  return std::unique_ptr<const Program>(std::move(program));
}

Status Parser::run() {
  program_.loop_name = intern("loop");
  program_.caller_name = intern("caller");
  program_.kwargs_name = intern("kwargs");
  program_.varargs_name = intern("varargs");
  program_.body = parse_body({}, "");
  if (!ok()) return *std::move(error_);
  return {};
}

uint32_t Parser::intern(std::string_view name) {
  auto [it, fresh] = ids_.try_emplace(std::string(name), static_cast<uint32_t>(program_.names.size()));
  if (fresh) program_.names.emplace_back(name);
  return it->second;
}

void Parser::fail(std::string message, uint32_t at) {
  if (!ok()) return;
  error_ = invalid("The chat template is wrong at " + place_in(program_.source, at) + ": " + std::move(message),
                   "chat_template");
  at_ = tokens_.size() - 1;  // nothing more is read
}

std::string Parser::describe(const Token& token) {
  switch (token.type) {
    case Tok::kEof:
      return "the end of the template";
    case Tok::kBlockEnd:
      return "the end of the tag";
    case Tok::kVariableEnd:
      return "the end of the expression";
    case Tok::kData:
      return "text";
    case Tok::kString:
      return "a string";
    case Tok::kBlockBegin:
    case Tok::kVariableBegin:
      return "a new tag";
    default:
      return "'" + token.text.substr(0, 60) + "'";
  }
}

bool Parser::skip_name(std::string_view name) {
  if (!now().is_name(name)) return false;
  next();
  return true;
}

bool Parser::skip_op(std::string_view op) {
  if (!now().is_op(op)) return false;
  next();
  return true;
}

bool Parser::expect_op(std::string_view op) {
  if (skip_op(op)) return true;
  fail("'" + std::string(op) + "' expected, " + describe(now()) + " found.", now().at);
  return false;
}

bool Parser::expect(Tok type, const char* what) {
  if (now().type != type) {
    fail(std::string(what) + " expected, " + describe(now()) + " found.", now().at);
    return false;
  }
  next();
  return true;
}

std::string Parser::expect_name() {
  std::string name = now().text;
  if (!expect(Tok::kName, "a name")) return {};
  return name;
}

bool Parser::at_any_name(Names names) const {
  return now().type == Tok::kName && std::find(names.begin(), names.end(), now().text) != names.end();
}

Body Parser::parse_body(Names ends, const char* tag) {
  Body body;
  Nesting nesting(*this);
  uint32_t start = now().at;
  auto output = [&]() -> Stmt& {
    if (body.empty() || body.back()->kind != StmtKind::kOutput) {
      body.push_back(std::make_unique<Stmt>());
      body.back()->at = now().at;
    }
    return *body.back();
  };
  while (ok() && now().type != Tok::kEof) {
    if (now().type == Tok::kData) {
      ExprPtr text = make(ExprKind::kConst, now().at);
      text->value = Value::string(now().text);
      output().exprs.push_back(std::move(text));
      next();
    } else if (now().type == Tok::kVariableBegin) {
      next();
      ExprPtr value = parse_tuple(true);
      expect(Tok::kVariableEnd, "'}}'");
      if (ok()) output().exprs.push_back(std::move(value));
    } else {
      if (!expect(Tok::kBlockBegin, "a tag")) break;
      if (at_any_name(ends)) return body;
      auto statement = parse_statement();
      expect(Tok::kBlockEnd, "'%}'");
      if (statement != nullptr) body.push_back(std::move(statement));
    }
  }
  if (ok() && ends.size() != 0) {
    fail("'" + std::string(tag) + "' is not closed; '{% " + std::string(*(ends.end() - 1)) + " %}' is missing.", start);
  }
  return body;
}

Body Parser::parse_block(Names ends, const char* tag) {
  skip_op(":");
  if (!expect(Tok::kBlockEnd, "'%}'")) return {};
  return parse_body(ends, tag);
}

std::unique_ptr<Stmt> Parser::parse_statement() {
  Token tag = now();
  if (tag.type != Tok::kName) {
    fail("the name of a tag expected, " + describe(tag) + " found.", tag.at);
    return nullptr;
  }
  next();
  if (tag.text == "if") return parse_if(tag.at);
  if (tag.text == "for") return parse_for(tag.at);
  if (tag.text == "set") return parse_set(tag.at);
  if (tag.text == "macro") return parse_macro(tag.at);
  if (tag.text == "call") return parse_call_block(tag.at);
  if (tag.text == "with") return parse_with(tag.at);
  auto stmt = std::make_unique<Stmt>();
  stmt->at = tag.at;
  if (tag.text == "print") {
    while (ok() && now().type != Tok::kBlockEnd) {
      if (!stmt->exprs.empty()) expect_op(",");
      stmt->exprs.push_back(parse_expression());
    }
  } else if (tag.text == "break" || tag.text == "continue") {
    stmt->kind = tag.text == "break" ? StmtKind::kBreak : StmtKind::kContinue;
    if (loop_depth_ == 0) fail("'" + tag.text + "' stands outside of a loop.", tag.at);
  } else if (tag.text == "filter") {
    stmt->kind = StmtKind::kFilterBlock;
    stmt->expr = parse_filters(nullptr, true);
    stmt->bodies.push_back(parse_block({"endfilter"}, "filter"));
    next();
  } else if (tag.text == "generation") {  // marks the assistant's text; it renders as its body, in its own scope
    stmt->kind = StmtKind::kScope;
    int loops = std::exchange(loop_depth_, 0);
    stmt->bodies.push_back(parse_block({"endgeneration"}, "generation"));
    loop_depth_ = loops;
    next();
  } else {
    fail("the tag '" + tag.text.substr(0, 60) + "' is unknown or out of place.", tag.at);
    return nullptr;
  }
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_set(uint32_t at) {
  auto stmt = std::make_unique<Stmt>();
  stmt->at = at;
  stmt->target = parse_target(true);
  if (skip_op("=")) {
    stmt->kind = StmtKind::kSet;
    stmt->expr = parse_tuple(true);
    return stmt;
  }
  stmt->kind = StmtKind::kSetBlock;
  stmt->expr = parse_filters(nullptr);
  stmt->bodies.push_back(parse_block({"endset"}, "set"));
  next();
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_for(uint32_t at) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kFor;
  stmt->at = at;
  stmt->target = parse_target(false, "in");
  if (!skip_name("in")) fail("'in' expected, " + describe(now()) + " found.", now().at);
  stmt->expr = parse_tuple(false, "recursive");
  if (skip_name("if")) stmt->test = parse_expression();
  stmt->recursive = skip_name("recursive");
  ++loop_depth_;
  stmt->bodies.push_back(parse_block({"else", "endfor"}, "for"));
  --loop_depth_;
  bool has_else = now().is_name("else");
  next();
  if (has_else) {
    stmt->bodies.push_back(parse_block({"endfor"}, "for"));
    next();
  }
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_if(uint32_t at) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kIf;
  stmt->at = at;
  while (ok()) {
    stmt->exprs.push_back(parse_tuple(false));
    stmt->bodies.push_back(parse_block({"elif", "else", "endif"}, "if"));
    Token end = now();
    next();
    if (end.is_name("elif")) continue;
    if (end.is_name("else")) {
      stmt->bodies.push_back(parse_block({"endif"}, "if"));
      next();
    }
    break;
  }
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_with(uint32_t at) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kWith;
  stmt->at = at;
  while (ok() && now().type != Tok::kBlockEnd) {
    if (!stmt->exprs.empty()) expect_op(",");
    stmt->exprs.push_back(parse_target(false));
    expect_op("=");
    stmt->exprs.push_back(parse_expression());
  }
  stmt->bodies.push_back(parse_block({"endwith"}, "with"));
  next();
  return stmt;
}

void Parser::parse_signature(MacroDef& macro) {
  std::unordered_set<std::string> names;
  expect_op("(");
  while (ok() && !now().is_op(")")) {
    if (!macro.params.empty()) expect_op(",");
    uint32_t at = now().at;
    std::string name = expect_name();
    if (!names.insert(name).second) fail("the parameter '" + shown(name) + "' appears twice.", at);
    bool has_default = skip_op("=");
    if (has_default) {
      macro.defaults.push_back(parse_expression());
    } else if (!macro.defaults.empty()) {
      fail("the parameter '" + shown(name) + "' without a default follows one with a default.", at);
    }
    if (name == "caller") {
      macro.caller_is_param = true;
      if (!has_default) fail("the special parameter 'caller' must have a default, or be left out.", at);
    }
    macro.params.emplace_back(intern(name), name);
  }
  expect_op(")");
}

Body Parser::parse_macro_body(MacroDef& macro, Names ends, const char* tag) {
  macros_.push_back(&macro);
  int loops = std::exchange(loop_depth_, 0);
  Body body = parse_block(ends, tag);
  loop_depth_ = loops;
  macros_.pop_back();
  for (const auto& [id, name] : macro.params) {
    if (name == "caller") macro.uses_caller = false;
    if (name == "kwargs") macro.uses_kwargs = false;
    if (name == "varargs") macro.uses_varargs = false;
  }
  next();
  return body;
}

std::unique_ptr<Stmt> Parser::parse_macro(uint32_t at) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kMacro;
  stmt->at = at;
  stmt->macro = std::make_unique<MacroDef>();
  stmt->macro->name = expect_name();
  stmt->name = intern(stmt->macro->name);
  parse_signature(*stmt->macro);
  stmt->macro->body = parse_macro_body(*stmt->macro, {"endmacro"}, "macro");
  return stmt;
}

std::unique_ptr<Stmt> Parser::parse_call_block(uint32_t at) {
  auto stmt = std::make_unique<Stmt>();
  stmt->kind = StmtKind::kCallBlock;
  stmt->at = at;
  stmt->macro = std::make_unique<MacroDef>();
  if (now().is_op("(")) parse_signature(*stmt->macro);
  stmt->expr = parse_expression();
  if (ok() && stmt->expr->kind != ExprKind::kCall) fail("a call expected after 'call'.", at);
  stmt->macro->body = parse_macro_body(*stmt->macro, {"endcall"}, "call");
  return stmt;
}

ExprPtr Parser::parse_target(bool with_namespace, std::string_view end_name) {
  uint32_t at = now().at;
  ExprPtr target = parse_tuple(true, end_name, false, true, with_namespace);
  if (ok() && !check_target(*target)) fail("this cannot be assigned to.", at);
  return target;
}

bool Parser::check_target(const Expr& target) {
  if (target.kind == ExprKind::kTuple) {
    return std::all_of(target.kids.begin(), target.kids.end(), [&](const ExprPtr& kid) { return check_target(*kid); });
  }
  return target.kind == ExprKind::kName || target.kind == ExprKind::kNamespaceRef;
}

}  // namespace ibid::jinja
