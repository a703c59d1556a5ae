// Budgets, scopes and statements.
#include "text/jinja/machine.h"

#include <algorithm>

#include "text/jinja/lexer.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {

Machine::Machine(const Program& program, const Limits& limits)
    : program_(program),
      limits_(limits),
      meter_{0, limits.memory_bytes},
      steps_left_(limits.n_steps),
      scope_(&context_) {
  define_globals(*this);
}

Machine::~Machine() {
  // Namespaces and scopes may hold one another: empty all before any is destroyed.
  for (Value& ns : namespaces_) {
    auto attributes = std::move(ns.as<NamespaceObject>()->attributes);
    ns.as<NamespaceObject>()->attributes.clear();
  }
  for (auto& scope : scopes_) scope->variables.clear();
  context_.variables.clear();
}

void Machine::define(std::string_view name, Value value) {
  auto it = std::find(program_.names.begin(), program_.names.end(), name);
  if (it == program_.names.end()) return;  // the template never reads it
  auto id = static_cast<uint32_t>(it - program_.names.begin());
  for (auto& [other, old] : context_.variables) {
    if (other == id) {
      old = std::move(value);
      return;
    }
  }
  context_.variables.emplace_back(id, std::move(value));
}

Result<Text> Machine::run() {
  Text out;
  out_ = &out;
  Scope* outer = enter(&context_);
  exec(program_.body);
  leave(outer);
  out_ = nullptr;
  if (failed()) return *std::move(error_);
  return out;
}

Value Machine::fail(std::string message) {
  if (failed()) return {};
  error_ = invalid("The chat template failed at " + place_in(program_.source, at_) + ": " + std::move(message),
                   "chat_template");
  return {};
}

Value Machine::refuse(std::string message) {
  if (failed()) return {};
  error_ = invalid(
      "The chat template refuses these messages (" + place_in(program_.source, at_) + "): " + std::move(message),
      "messages");
  return {};
}

Value Machine::undefined_used(const Value& undefined) {
  auto* object = static_cast<UndefinedObject*>(undefined.object());
  return fail(object != nullptr ? object->message : "an undefined value is used.");
}

Value Machine::unknown(const Expr& expr) {
  if (failed()) return {};
  error_ = invalid("The chat template is wrong at " + place_in(program_.source, expr.at) + ": the " +
                       (expr.kind == ExprKind::kFilter ? "filter '" : "test '") + std::string(expr.value.str()) +
                       "' is unknown.",
                   "chat_template");
  return {};
}

bool Machine::out_of_steps() {
  if (!failed()) {
    fail("it takes more than " + std::to_string(limits_.n_steps) + " steps; a loop may be too long.");
    error_->kind = ErrorKind::kExhausted;
  }
  return false;
}

bool Machine::room(uint64_t n_bytes) {
  if (failed()) return false;
  if (n_bytes <= meter_.limit && meter_.used <= meter_.limit - n_bytes) return true;
  fail("it needs more than " + std::to_string(meter_.limit) + " bytes of memory.");
  error_->kind = ErrorKind::kExhausted;
  return false;
}

bool Machine::keep(size_t n_bytes) {
  meter_.used += n_bytes;
  return room(0);
}

void Machine::charge(Object& object, size_t n_bytes) {
  object.meter = &meter_;
  object.charged = n_bytes;
  meter_.used += n_bytes;
  if (meter_.used > meter_.limit) room(0);
}

// --- Scopes ---

Scope* Machine::enter(Scope* parent) {
  Scope* previous = scope_;
  if (free_scopes_.empty()) {
    scopes_.push_back(std::make_unique<Scope>());
    free_scopes_.push_back(scopes_.back().get());
    keep(sizeof(Scope) + 64);
  }
  scope_ = free_scopes_.back();
  free_scopes_.pop_back();
  scope_->parent = parent;
  return previous;
}

void Machine::leave(Scope* previous) {
  if (!scope_->captured) {
    scope_->variables.clear();
    free_scopes_.push_back(scope_);
  } else {
    keep(scope_->variables.capacity() * sizeof(scope_->variables[0]));
  }
  scope_ = previous;
}

void Machine::set_variable(uint32_t name, Value value) {
  spend(scope_->variables.size() / 16);
  for (auto& [id, old] : scope_->variables) {
    if (id == name) {
      old = std::move(value);
      return;
    }
  }
  scope_->variables.emplace_back(name, std::move(value));
}

const Value* Machine::lookup(uint32_t name) {
  size_t n_seen = 0;
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    spend((n_seen += 1 + scope->variables.size()) / 16);
    n_seen %= 16;
    for (const auto& [id, value] : scope->variables) {
      if (id == name) return &value;
    }
  }
  return nullptr;
}

void Machine::assign(const Expr& target, Value value) {
  if (failed() || !spend()) return;
  at_ = target.at;
  if (target.kind == ExprKind::kName) return set_variable(target.name, std::move(value));
  if (target.kind == ExprKind::kNamespaceRef) {
    const Value* found = lookup(target.name);
    if (found == nullptr || !found->is(Kind::kNamespace)) {
      fail("an attribute can be set on a namespace only.");
      return;
    }
    std::string_view name = target.value.str();
    if (name.starts_with('_')) {
      fail("a namespace stores no attribute that begins with an underscore.");
      return;
    }
    auto& attributes = found->as<NamespaceObject>()->attributes;
    spend(attributes.size() / 8);
    for (auto& [other, old] : attributes) {
      if (other.str() == name) {
        old = std::move(value);
        return;
      }
    }
    if (keep(2 * sizeof(Value))) attributes.emplace_back(target.value, std::move(value));
    return;
  }
  std::vector<Value> items;
  if (!collect(value, items)) return;
  if (items.size() != target.kids.size()) {
    at_ = target.at;
    fail(std::to_string(target.kids.size()) + " values expected to unpack, " + std::to_string(items.size()) +
         " found.");
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) assign(*target.kids[i], std::move(items[i]));
}

// --- Statements ---

void Machine::write(const Value& v) {
  if (failed()) return;
  size_t before = out_->size();
  size_t marks_before = out_->marks.size();
  if (v.is_string()) {
    if (!room(v.text().size())) return;
    spend(v.text().size() / 64);
    out_->append(v.text());
  } else {
    append_str(v, *out_);
  }
  if (out_->size() > limits_.output_bytes) {
    fail("the prompt grows beyond " + std::to_string(limits_.output_bytes) + " bytes.");
    error_->kind = ErrorKind::kExhausted;
  }
  meter_.used += out_->size() - before + (out_->marks.size() - marks_before) * sizeof(TextRange);
  room(0);
}

Value Machine::capture(const Body& body, Flow* flow) {
  Text text;
  Text* outer = std::exchange(out_, &text);
  const Flow left = exec(body);
  if (flow != nullptr) *flow = left;
  out_ = outer;
  meter_.used -= text.size() + text.marks.size() * sizeof(TextRange);
  if (failed()) return {};
  return string(std::move(text));
}

Machine::Flow Machine::exec(const Body& body) {
  Deeper deeper(*this);
  for (const auto& stmt : body) {
    if (failed()) return Flow::kBreak;
    if (Flow flow = exec(*stmt); flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Machine::Flow Machine::exec(const Stmt& stmt) {
  if (!spend()) return Flow::kBreak;
  at_ = stmt.at;
  switch (stmt.kind) {
    case StmtKind::kOutput:
      for (const ExprPtr& expr : stmt.exprs) {
        if (expr->kind == ExprKind::kConst) {
          write(expr->value);
        } else {
          write(eval(*expr));
        }
        if (failed()) return Flow::kBreak;
      }
      return Flow::kNext;
    case StmtKind::kIf:
      for (size_t i = 0; i < stmt.exprs.size(); ++i) {
        bool yes = truth(eval(*stmt.exprs[i]));
        if (failed()) return Flow::kBreak;
        if (yes) return exec(stmt.bodies[i]);
      }
      if (stmt.bodies.size() > stmt.exprs.size()) return exec(stmt.bodies.back());
      return Flow::kNext;
    case StmtKind::kFor: {
      Value iterable = eval(*stmt.expr);
      if (!failed()) exec_for(stmt, iterable, 0);
      return Flow::kNext;
    }
    case StmtKind::kSet:
      assign(*stmt.target, eval(*stmt.expr));
      return Flow::kNext;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock: {
      Scope* outer = enter(scope_);
      Flow flow = Flow::kNext;  // a loop that is left from within drops the text
      Value text = capture(stmt.bodies[0], &flow);
      if (flow == Flow::kNext && stmt.expr != nullptr && !failed()) text = apply_filters(*stmt.expr, std::move(text));
      leave(outer);
      if (failed()) return Flow::kBreak;
      if (flow != Flow::kNext) return flow;
      if (stmt.kind == StmtKind::kFilterBlock) {
        write(text);
      } else {
        assign(*stmt.target, std::move(text));
      }
      return Flow::kNext;
    }
    case StmtKind::kMacro:
      set_variable(stmt.name, make_macro(*stmt.macro));
      return Flow::kNext;
    case StmtKind::kCallBlock: {
      Value callee = eval(*stmt.expr->kids[0]);
      Args args;
      if (failed() || !eval_args(stmt.expr->args.get(), args)) return Flow::kBreak;
      args.named.emplace_back(Value::string("caller"), make_macro(*stmt.macro));
      at_ = stmt.at;
      write(call(callee, args));
      return Flow::kNext;
    }
    case StmtKind::kWith:
      return exec_with(stmt);
    case StmtKind::kScope: {
      Scope* outer = enter(scope_);
      Flow flow = exec(stmt.bodies[0]);
      leave(outer);
      return flow;
    }
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Machine::Flow Machine::exec_with(const Stmt& stmt) {
  std::vector<Value> values;  // all are evaluated outside
  for (size_t i = 1; i < stmt.exprs.size(); i += 2) values.push_back(eval(*stmt.exprs[i]));
  Scope* outer = enter(scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(*stmt.exprs[2 * i], std::move(values[i]));
  Flow flow = exec(stmt.bodies[0]);
  leave(outer);
  return flow;
}

void Machine::exec_for(const Stmt& stmt, const Value& iterable, int64_t depth0) {
  Deeper deeper(*this);
  at_ = stmt.at;
  if (!is_iterable(iterable)) {
    fail(std::string("a value of type '") + type_name(iterable) + "' cannot be looped over.");
    return;
  }
  auto object = std::make_unique<LoopObject>();
  object->iter = Iter(iterable);
  object->stmt = &stmt;
  object->scope = scope_;
  object->depth0 = depth0;
  if (stmt.test == nullptr) object->known_length = length(iterable);
  Value loop = adopt(Kind::kLoop, std::move(object));
  auto& state = *loop.as<LoopObject>();
  if (stmt.recursive) {
    for (Scope* s = scope_; s != nullptr; s = s->parent) s->captured = true;
  }
  Value item;
  while (!failed() && fetch(state, item)) {
    ++state.index0;
    state.before = std::move(state.current);
    state.current = item;
    Scope* outer = enter(scope_);
    set_variable(program_.loop_name, loop);
    assign(*stmt.target, std::move(item));
    Flow flow = failed() ? Flow::kBreak : exec(stmt.bodies[0]);
    leave(outer);
    if (flow == Flow::kBreak) break;
  }
  state.finish();
  if (state.index0 < 0 && stmt.bodies.size() > 1 && !failed()) {
    Scope* outer = enter(scope_);
    exec(stmt.bodies[1]);
    leave(outer);
  }
}

// The next item that passes the loop's `if`; false at the end.
bool Machine::fetch(LoopObject& loop, Value& item) {
  if (loop.has_after) {
    loop.has_after = false;
    item = std::move(loop.after);
    return true;
  }
  if (loop.has_rest) {
    if (loop.rest_at == loop.rest.size()) return false;
    item = loop.rest[loop.rest_at++];
    return true;
  }
  while (!loop.over && spend() && loop.iter.next(*this, item)) {
    if (loop.stmt->test == nullptr) return true;
    Scope* previous = enter(loop.scope);
    assign(*loop.stmt->target, item);
    bool yes = !failed() && truth(eval(*loop.stmt->test));
    leave(previous);
    if (failed()) return false;
    if (yes) return true;
  }
  return false;
}

bool Machine::peek(LoopObject& loop) {
  if (loop.has_after) return true;
  Value item;
  if (!fetch(loop, item)) return false;
  loop.after = std::move(item);
  return loop.has_after = true;
}

}  // namespace ibid::jinja
