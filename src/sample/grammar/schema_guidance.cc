#include "sample/grammar/schema_guidance.h"

#include <algorithm>
#include <set>

#include "sample/grammar/regex.h"

namespace ibid::grammar {
namespace {

// As many characters as JsonSpace::kFlexible has at most; around a separator twice.
constexpr uint32_t kMostBlanks = 22, kMostSeparator = 2 * kMostBlanks + 1;
constexpr int64_t kMostSteps = kCompileSteps / 8;  // for one expression

const Value* member_of_guidance(const Value& root, std::string_view name) {
  const Value* guidance = root.find("x-guidance");
  const Value* value = guidance == nullptr ? nullptr : guidance->find(name);
  return value == nullptr || value->is(Value::Kind::kNull) ? nullptr : value;
}

bool is_true(const Value& root, std::string_view name) {
  const Value* value = member_of_guidance(root, name);
  return value != nullptr && value->is(Value::Kind::kTrue);
}

class GuidanceReader {
 public:
  GuidanceReader(SchemaLogic& logic, Grammar& grammar) : logic_(logic), g_(grammar), root_(logic.document().root()) {}

  Result<JsonSpelling> run() {
    const Value* all = root_.find("x-guidance");
    if (all == nullptr || all->is(Value::Kind::kNull)) return JsonSpelling();
    if (!all->is_object()) return invalid("\"x-guidance\" at # must be an object.", "#");
    for (const auto& [name, value] : all->members) TRY(check(name, value));
    JsonSpelling made;
    ASSIGN_OR_RETURN(const ExprId pattern, texts("whitespace_pattern", "", "[ \\t\\n\\r]*", kMostBlanks));
    const Value* flexible = member_of_guidance(root_, "whitespace_flexible");
    const ExprId blanks = pattern == kNoExpr ? kNoExpr : g_.optional(g_.call(g_.rule("blanks", pattern)));
    made.space = blanks == kNoExpr && flexible != nullptr && flexible->is(Value::Kind::kFalse) ? g_.empty() : blanks;
    ASSIGN_OR_RETURN(made.comma, separator("item_separator", ",", blanks));
    ASSIGN_OR_RETURN(made.colon, separator("key_separator", ":", blanks));
    made.escapes_what_it_must = !is_true(root_, "json_allow_general_unicode_escapes");
    return made;
  }

 private:
  Status cannot(const std::string& name, std::string_view why) {
    return logic_.cannot(&root_, "x-guidance/" + name, why);
  }

  Status check(const std::string& name, const Value& value) {
    static const std::set<std::string, std::less<>> texts = {"item_separator", "key_separator", "whitespace_pattern",
                                                             "json_allowed_escapes"};
    static const std::set<std::string, std::less<>> flags = {"whitespace_flexible", "coerce_one_of", "lenient",
                                                             "json_allow_general_unicode_escapes"};
    const bool is_flag = flags.contains(name);
    if (!is_flag && !texts.contains(name)) return cannot(name, "it is not known here");
    const bool is_right =
        value.is(Value::Kind::kNull) ||
        (is_flag ? value.is(Value::Kind::kTrue) || value.is(Value::Kind::kFalse) : value.is(Value::Kind::kString));
    if (!is_right)
      return invalid("\"x-guidance/" + name + "\" at # must be " + (is_flag ? "true or false." : "a text."), "#");
    if (name != "json_allowed_escapes" || value.is(Value::Kind::kNull)) return {};
    for (const char escape : std::string_view("nrbtf\\\"u"))
      if (value.text.find(escape) == std::string::npos)
        return cannot(name, "strings under a pattern have escapes of their own");
    return {};
  }

  // What two expressions both have.
  static Result<CodeDfa> valid_texts(std::string_view expression, std::string_view json, Fuel& fuel) {
    ASSIGN_OR_RETURN(const CodeDfa own, read_regex(expression, RegexUse::kWhole, fuel));
    ASSIGN_OR_RETURN(const CodeDfa valid, read_regex(json, RegexUse::kWhole, fuel));
    return CodeDfa::combine(own, valid, CodeDfa::How::kBoth, fuel);
  }

  // The member's texts that are valid JSON at that place. kNoExpr: as if there were no such member.
  Result<ExprId> texts(const std::string& name, std::string_view otherwise, std::string_view json, uint32_t most) {
    const Value* value = member_of_guidance(root_, name);
    const ExprId without = otherwise.empty() ? kNoExpr : g_.text(otherwise);
    if (value == nullptr || value->text == otherwise) return without;
    // Within a part of all steps: the rest of these expressions is small.
    const int64_t n_steps = std::min(kMostSteps, g_.fuel().left());
    Fuel part(n_steps, g_.fuel().bytes_left());
    const Result<CodeDfa> both = valid_texts(value->text, json, part);
    g_.fuel().burn(part.is_empty() && n_steps < kMostSteps ? n_steps + 1 : n_steps - part.left());
    Held held(g_.fuel());
    held.add(std::min(part.most_held(), g_.fuel().bytes_left()));
    if (g_.fuel().is_empty()) return out_of_fuel();
    if (!both) {
      TRY(cannot(name, "the expression is not served (" + both.error().message + ")"));
      return without;
    }
    ExprId made = kNoExpr;
    if (!both->is_empty()) {
      ASSIGN_OR_RETURN(made, both->spell_bounded(g_, CodeDfa::Spelling::kPlain, 0, most));
    }
    if (made == kNoExpr) {
      TRY(cannot(name, "JSON has no such text of at most " + std::to_string(most) + " characters there"));
      return without;
    }
    return made;
  }

  // With the blanks before it; kNoExpr: the mark alone.
  Result<ExprId> separator(const std::string& name, const std::string& mark, ExprId blanks) {
    ASSIGN_OR_RETURN(const ExprId own, texts(name, mark, "[ \\t\\n\\r]*" + mark + "[ \\t\\n\\r]*", kMostSeparator));
    return blanks == kNoExpr ? own : g_.sequence({blanks, own});
  }

  SchemaLogic& logic_;
  Grammar& g_;
  const Value& root_;
};

}  // namespace

SchemaOptions guided(const SchemaOptions& options, const Value& root) {
  SchemaOptions made = options;
  const bool is_lenient = is_true(root, "lenient");
  made.is_strict &= !is_lenient;
  made.coerces_one_of |= is_lenient || is_true(root, "coerce_one_of");
  return made;
}

Result<JsonSpelling> guided_spelling(SchemaLogic& logic, Grammar& grammar) {
  return GuidanceReader(logic, grammar).run();
}

}  // namespace ibid::grammar
