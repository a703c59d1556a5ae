// A compiled chat template: the syntax tree that Machine walks. Immutable after parse().
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/jinja/value.h"

namespace ibid::jinja {

class Machine;

// Arguments of one call, evaluated. Names are strings; those from behind '**' may be users' and keep their marks.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<Value, Value>> named;
  size_t size() const { return positional.size() + named.size(); }
};

using FilterFn = Value (*)(Machine&, const Value& subject, Args&);

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kNamespaceRef,
  kTuple,
  kList,
  kDict,
  kAttribute,
  kItem,
  kSlice,
  kCall,
  kFilter,
  kTest,
  kNot,
  kNegate,
  kPlus,
  kAnd,
  kOr,
  kBinary,
  kConcat,
  kCompare,
  kIf
};

enum class Op : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<Value, ExprPtr>> named;
  ExprPtr star, star_star;
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  Op op = Op::kAdd;
  uint16_t height = 1;    // of the tree below, bounded
  uint32_t at = 0;        // byte of the source
  uint32_t name = 0;      // kName, kNamespaceRef: index into Program::names
  FilterFn fn = nullptr;  // kFilter, kTest; null where there is none of that name, an error when it is reached
  Value value;            // kConst; kAttribute, kNamespaceRef: the attribute, as a string; an unknown filter's name
  // kAttribute, kItem, kCall, kFilter, kTest: kids[0] is the subject. kFilter's is null inside filter blocks.
  // kDict: key, value, key, ... kSlice: three, any may be null. kIf: condition, then, else (may be null).
  std::vector<ExprPtr> kids;
  std::vector<Op> ops;             // kCompare: kids[i] ops[i] kids[i + 1]
  std::unique_ptr<CallArgs> args;  // kCall, kFilter, kTest
};

enum class StmtKind : uint8_t {
  kOutput,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,
  kScope,
  kBreak,
  kContinue
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct MacroDef {
  std::string name;  // empty for a call block's caller
  std::vector<std::pair<uint32_t, std::string>> params;
  std::vector<ExprPtr> defaults;  // of the last params
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false, caller_is_param = false;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::kOutput;
  bool recursive = false;  // kFor
  uint32_t at = 0;
  uint32_t name = 0;           // kMacro: the name it is bound to
  ExprPtr target;              // kFor, kSet, kSetBlock: names, namespace attributes, tuples of them
  ExprPtr expr;                // kFor: iterable; kSet: value; kSetBlock, kFilterBlock: filters; kCallBlock: the call
  ExprPtr test;                // kFor: its `if`
  std::vector<ExprPtr> exprs;  // kOutput: pieces; kIf: conditions; kWith: target, value, target, ...
  std::vector<Body> bodies;    // kIf: one per condition and the else; kFor: body and else; others: [0]
  std::unique_ptr<MacroDef> macro;  // kMacro, kCallBlock
};

struct Program {
  std::string source;  // normalised
  std::vector<std::string> names;
  Body body;
  // The names that rendering itself sets or looks up.
  uint32_t loop_name = 0, caller_name = 0, kwargs_name = 0, varargs_name = 0;
};

inline constexpr size_t kMaxSourceBytes = 256 << 10;
inline constexpr int kMaxHeight = 200;  // of expressions and of nested blocks (Python's own limit is 200)

// Checks, lexes and parses. Errors name line and column.
Result<std::unique_ptr<const Program>> parse(std::string_view source);

// Null where there is none of that name.
FilterFn find_filter(std::string_view name);
FilterFn find_test(std::string_view name);

}  // namespace ibid::jinja
