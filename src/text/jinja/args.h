// Binding a call's arguments to the parameters of a builtin, as Python does.
#pragma once

#include <initializer_list>

#include "text/jinja/machine.h"
#include "text/jinja/unicode.h"

namespace ibid::jinja {

class Params {
 public:
  // Fails the machine where an argument is unknown, given twice or too many, or one of the first n_required is absent.
  Params(Machine& m, Args& args, const char* callee, std::initializer_list<const char*> names, size_t n_required = 0)
      : machine_(m) {
    if (args.positional.size() > names.size()) {
      m.fail(std::string(callee) + " takes at most " + std::to_string(names.size()) + " arguments.");
      return;
    }
    size_t i = 0;
    for (; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
    for (const auto& [name, value] : args.named) {
      size_t k = 0;
      for (const char* known : names) {
        if (name.str() == known) break;
        ++k;
      }
      if (k == names.size() || values_[k] != nullptr) {
        m.fail(std::string(callee) +
               (k == names.size() ? " takes no argument named '" : " is given twice the argument '") +
               shown(name.str()) + "'.");
        return;
      }
      values_[k] = &value;
    }
    for (size_t k = 0; k < n_required; ++k) {
      if (values_[k] == nullptr) {
        m.fail(std::string(callee) + " needs the argument '" + *(names.begin() + k) + "'.");
        return;
      }
    }
  }
  explicit operator bool() const { return !machine_.failed(); }
  bool has(size_t i) const { return values_[i] != nullptr; }
  const Value& operator[](size_t i) const { return *values_[i]; }

  bool flag(size_t i, bool otherwise) const { return has(i) ? truth(*values_[i]) : otherwise; }
  int64_t integer(size_t i, int64_t otherwise) const {
    if (!has(i)) return otherwise;
    if (values_[i]->is_integral()) return values_[i]->as_int();
    if (values_[i]->is_undefined()) {
      machine_.undefined_used(*values_[i]);
    } else {
      machine_.fail(std::string("an integer is needed where '") + type_name(*values_[i]) + "' is given.");
    }
    return otherwise;
  }
  // A count of characters, at most 2^40.
  int64_t width(size_t i, int64_t otherwise) const {
    return std::clamp<int64_t>(integer(i, otherwise), -(int64_t{1} << 40), int64_t{1} << 40);
  }
  // The text of a string argument; fails for other types.
  const Text& text(size_t i) const {
    static const Text kEmpty;
    if (values_[i]->is_string()) return values_[i]->text();
    machine_.fail(std::string("a string is needed where '") + type_name(*values_[i]) + "' is given.");
    return kEmpty;
  }

 private:
  Machine& machine_;
  const Value* values_[8] = {};
};

}  // namespace ibid::jinja
