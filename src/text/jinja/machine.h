// Machine: runs one rendering of a Program. Not for two threads; the Program and unmetered values may be shared.
//
// Errors are sticky: fail() keeps the first sentence, and from then on everything returns at once, so callers check
// failed() only where continuing would cost time. Everything that a template can make large is charged first: steps
// (spend) and bytes (room). A step is one syntax node or about 64 bytes or 8 items of bulk work.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "text/jinja/program.h"

namespace ibid::jinja {

struct Limits {
  int64_t n_steps = 2'000'000;
  size_t memory_bytes = 16 << 20;  // values and output that are alive at once, the input not counted
  size_t output_bytes = 8 << 20;
  int depth = 600;  // evaluations inside each other (a macro's call takes about six)
};

// The variables of one block. Those that a macro may still see live until the rendering ends.
struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<uint32_t, Value>> variables;
  bool captured = false;
};

using MethodFn = FilterFn;
using FunctionFn = Value (*)(Machine&, Args&);

struct FunctionObject : Object {
  const char* name = "";
  FunctionFn fn = nullptr;
};
struct MethodObject : Object {
  Value self;
  std::string name;
  MethodFn fn = nullptr;
};
struct MacroObject : Object {
  const MacroDef* def = nullptr;
  Scope* scope = nullptr;
};
struct CyclerObject : Object {
  std::vector<Value> items;
  size_t next = 0;
};
struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

// Iterates over every value that is iterable in Python.
class Iter {
 public:
  Iter() = default;
  explicit Iter(Value source) : source_(std::move(source)) {}
  bool next(Machine& machine, Value& item);

 private:
  Value source_;
  size_t at_ = 0;  // item, or byte of a string
};

struct LoopObject : Object {
  Iter iter;
  const Stmt* stmt = nullptr;
  Scope* scope = nullptr;  // around the loop
  bool over = false;       // left: nothing more is fetched
  int64_t index0 = -1;
  int64_t depth0 = 0;
  int64_t known_length = -1;  // of what is iterated over, where it has one
  Value before, current, after;
  bool has_after = false;
  std::vector<Value> rest;  // fetched ahead by `length`
  size_t rest_at = 0;
  bool has_rest = false;
  std::optional<Args> last_changed;

  // Releases all items. Templates may keep a loop, and loops may hold one another and themselves: only this bounds such
  // chains and frees such cycles.
  void finish() {
    over = true;
    iter = {};
    before = current = after = Value();
    has_after = false;
    rest = {};
    rest_at = 0;
    last_changed.reset();
  }
};

class Machine {
 public:
  Machine(const Program& program, const Limits& limits);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  void define(std::string_view name, Value value);  // a variable of the template's context
  void set_time(std::chrono::system_clock::time_point now) { now_ = now; }
  Result<Text> run();

  // Errors and budgets.
  bool failed() const { return error_.has_value(); }
  Value fail(std::string message);    // "line, column: message"
  Value refuse(std::string message);  // raise_exception
  Value undefined_used(const Value& undefined);
  Value unknown(const Expr& filter_or_test);
  bool spend(uint64_t n_steps = 1) {
    steps_left_ -= static_cast<int64_t>(std::min<uint64_t>(n_steps, uint64_t{1} << 40));
    if (steps_left_ >= 0) [[likely]]
      return !failed();
    return out_of_steps();
  }
  int64_t steps_left() const { return steps_left_; }
  int n_undefined() const { return n_undefined_; }  // values that were printed as nothing, being undefined
  bool room(uint64_t n_bytes);                      // may that many more bytes be held?
  bool keep(size_t n_bytes);                        // charges what scopes and namespaces hold until the rendering ends
  bool room(const Text& out, uint64_t n_bytes) {
    return room(out.size() + out.marks.size() * sizeof(TextRange) + n_bytes);
  }

  // Values.
  Value string(Text text, bool markup = false);
  Value undefined(std::string message);
  Value missing(const Value& object, const Value& name);  // no such attribute or element
  Value list(std::vector<Value> items, Kind kind = Kind::kList);
  Value tuple(std::vector<Value> items) { return list(std::move(items), Kind::kTuple); }
  Value dict(std::unique_ptr<DictObject> dict);
  Value iterator(std::vector<Value> items, const char* type = "generator");
  Value range(__int128 start, __int128 stop, __int128 step);  // step is not 0
  Value new_namespace();
  void charge_container(const Value& made);  // a list or dict that was made elsewhere
  Value method(const Value& self, std::string_view name, MethodFn fn);
  Value function(const char* name, FunctionFn fn);
  template <typename T>
  Value adopt(Kind kind, std::unique_ptr<T> object, size_t extra_bytes = 0) {
    charge(*object, sizeof(T) + extra_bytes);
    return Value::object(kind, object.release());
  }

  // Python's semantics.
  void append_str(const Value& v, Text& out);
  void append_repr(const Value& v, Text& out);
  Text str(const Value& v);
  std::string repr(const Value& v);  // for error sentences, cut short
  bool equals(const Value& a, const Value& b);
  bool less(const Value& a, const Value& b, const char* op = "<");  // fails where Python refuses
  bool at_most(const Value& a, const Value& b, const char* op = "<=");
  bool contains(const Value& container, const Value& item);
  Value add(const Value& a, const Value& b);
  Value binary(Op op, const Value& a, const Value& b);
  Value attribute(const Value& object, const Value& name);
  Value item(const Value& object, const Value& key);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  Value call(const Value& callee, Args& args);
  bool is_iterable(const Value& v) const;
  bool collect(const Value& v, std::vector<Value>& items);  // all items; fails where v is not iterable
  Value percent_format(const Value& format, const Value& args);
  Value brace_format(const Value& format, Args& args);
  Value dict_from(Args& args, std::string_view what);
  std::string format_time(const std::string& format);

 private:
  friend class Iter;
  friend struct Deeper;
  enum class Flow { kNext, kBreak, kContinue };

  // Statements (machine.cc).
  Flow exec(const Body& body);
  Flow exec(const Stmt& stmt);
  void exec_for(const Stmt& stmt, const Value& iterable, int64_t depth0);
  Flow exec_with(const Stmt& stmt);
  bool fetch(LoopObject& loop, Value& item);
  bool peek(LoopObject& loop);
  Value loop_attribute(const Value& loop, std::string_view name);
  void assign(const Expr& target, Value value);
  void set_variable(uint32_t name, Value value);
  const Value* lookup(uint32_t name);
  Value capture(const Body& body, Flow* flow = nullptr);
  Value call_macro(const MacroObject& macro, Args& args);
  Value make_macro(const MacroDef& def);
  Scope* enter(Scope* parent);
  void leave(Scope* previous);
  void write(const Value& v);

  // Expressions (eval.cc).
  Value eval(const Expr& expr);
  Value eval_node(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_filter(const Expr& expr, const Value* subject);
  Value eval_filter_subject(const Expr& expr, const Value* subject);
  Value eval_compare(const Expr& expr);
  Value apply_filters(const Expr& filters, Value subject);
  bool eval_args(const CallArgs* args, Args& out);
  bool compare(Op op, const Value& a, const Value& b);

  bool out_of_steps();
  void charge(Object& object, size_t n_bytes);

  const Program& program_;
  Limits limits_;
  Meter meter_;
  int64_t steps_left_;
  int depth_ = 0;
  int n_undefined_ = 0;
  std::optional<Error> error_;
  uint32_t at_ = 0;  // of the node that is at work, for errors
  std::optional<std::chrono::system_clock::time_point> now_;
  std::vector<std::unique_ptr<Scope>> scopes_;  // captured ones and free ones
  std::vector<Scope*> free_scopes_;
  std::vector<Value> namespaces_;  // all of them: they can form cycles, which the destructor cuts
  Scope context_;
  Scope* scope_ = nullptr;
  Text* out_ = nullptr;
};

// Counts the nesting of evaluations while it lives.
struct Deeper {
  explicit Deeper(Machine& m) : machine(m) {
    if (++machine.depth_ > machine.limits_.depth) {
      machine.fail("the template calls itself too deeply, beyond " + std::to_string(machine.limits_.depth) +
                   " levels.");
    }
  }
  ~Deeper() { --machine.depth_; }
  Machine& machine;
};

// JSON text as Python's json.dumps writes it. Fails the machine for values that JSON cannot represent.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<Text> indent;
  Text item_separator = ", ", key_separator = ": ";
  bool sort_keys = false;
};
void append_json(Machine& machine, const Value& v, const JsonStyle& style, Text& out, int level = 0);

std::string float_repr(double d);
Text html_escaped(const Text& text);

// Methods and globals; null if there is none of that name.
MethodFn find_string_method(std::string_view name);
MethodFn find_container_method(Kind kind, std::string_view name);
bool is_refused_method(Kind kind, std::string_view name);  // would change its object
void define_globals(Machine& machine);

}  // namespace ibid::jinja
