// Macros and calls.
#include <algorithm>

#include "text/jinja/machine.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {

Value Machine::make_macro(const MacroDef& def) {
  auto object = std::make_unique<MacroObject>();
  object->def = &def;
  object->scope = scope_;
  for (Scope* s = scope_; s != nullptr && !s->captured; s = s->parent) s->captured = true;
  return adopt(Kind::kMacro, std::move(object));
}

Value Machine::call_macro(const MacroObject& macro, Args& args) {
  Deeper deeper(*this);
  if (failed()) return {};
  const MacroDef& def = *macro.def;
  std::string callee = def.name.empty() ? "caller" : shown(def.name);
  Scope* outer = enter(macro.scope);
  uint32_t at = at_;
  size_t n_params = def.params.size();
  auto take_named = [&](std::string_view name, Value& value) {
    spend(args.named.size() / 16);
    auto it =
        std::find_if(args.named.begin(), args.named.end(), [&](const auto& arg) { return arg.first.str() == name; });
    if (it == args.named.end()) return false;
    value = std::move(it->second);
    args.named.erase(it);
    return true;
  };
  bool caller_done = def.caller_is_param && args.positional.size() >= n_params;
  for (size_t i = 0; i < n_params && !failed(); ++i) {
    const auto& [id, name] = def.params[i];
    Value value;
    size_t first_default = n_params - def.defaults.size();
    if (i < args.positional.size()) {
      value = args.positional[i];
    } else {
      if (name == "caller") caller_done = true;
      if (!take_named(name, value)) {
        if (i >= first_default) {
          value = eval(*def.defaults[i - first_default]);
        } else {
          value = undefined("parameter '" + shown(name) + "' was not provided");
        }
      }
    }
    spend();
    set_variable(id, std::move(value));
  }
  at_ = at;
  if (def.uses_caller && !caller_done) {
    Value caller;
    if (!take_named("caller", caller)) caller = undefined("No caller defined");
    set_variable(program_.caller_name, std::move(caller));
  }
  if (def.uses_kwargs) {
    auto dict_object = std::make_unique<DictObject>();
    for (auto& [name, value] : args.named) {
      if (spend(weight_of(name))) dict_object->set(name, std::move(value));
    }
    set_variable(program_.kwargs_name, dict(std::move(dict_object)));
  } else if (!args.named.empty()) {
    fail("the macro '" + callee + "' takes no argument named '" + shown(args.named[0].first.str()) + "'.");
  }
  size_t n_extra = args.positional.size() - std::min(args.positional.size(), n_params);
  if (def.uses_varargs) {
    std::vector<Value> extra(args.positional.end() - static_cast<ptrdiff_t>(n_extra), args.positional.end());
    set_variable(program_.varargs_name, tuple(std::move(extra)));
  } else if (n_extra > 0) {
    fail("the macro '" + callee + "' takes at most " + std::to_string(n_params) + " arguments.");
  }
  Value text = failed() ? Value() : capture(def.body);
  leave(outer);
  return text;
}

Value Machine::call(const Value& callee, Args& args) {
  if (!spend()) return {};
  switch (callee.kind()) {
    case Kind::kMacro:
      return call_macro(*callee.as<MacroObject>(), args);
    case Kind::kFunction:
      return callee.as<FunctionObject>()->fn(*this, args);
    case Kind::kMethod:
      return callee.as<MethodObject>()->fn(*this, callee.as<MethodObject>()->self, args);
    case Kind::kUndefined:
      return undefined_used(callee);
    case Kind::kJoiner: {
      auto* joiner = callee.as<JoinerObject>();
      return std::exchange(joiner->used, true) ? joiner->separator : string("");
    }
    case Kind::kLoop: {
      auto* loop = callee.as<LoopObject>();
      if (!loop->stmt->recursive) return fail("the loop must be marked 'recursive' to be called.");
      if (args.positional.size() != 1) return fail("a recursive loop takes one argument.");
      Deeper deeper(*this);
      Text text;
      Text* outer_out = std::exchange(out_, &text);
      Scope* outer = std::exchange(scope_, loop->scope);
      exec_for(*loop->stmt, args.positional[0], loop->depth0 + 1);
      scope_ = outer;
      out_ = outer_out;
      meter_.used -= text.size() + text.marks.size() * sizeof(TextRange);
      return failed() ? Value() : string(std::move(text));
    }
    default:
      return fail(std::string("a value of type '") + type_name(callee) + "' cannot be called.");
  }
}

}  // namespace ibid::jinja
