// AnswerParser: splits the text of one growing answer, in the model's own markup, into parts: reasoning, text, and tool
// calls with their arguments as JSON. What may become markup is held back; the parts add up to the same for every
// slicing of the text. What only looks like a call stays text; a call whose arguments break off stays incomplete. Time
// is linear in the text. One per choice; not for two threads at once.
//
// Models omit, repeat and misspell markers: such a marker changes at most the argument at which it stands
// (docs/users/tools.md has the rules). Unknown content inside a call's markup comes out as text; nothing is dropped.
//
// A state machine over bytes rather than a parser of the whole answer that runs again for each token (llama.cpp): it
// cannot take back what it has emitted, and costs the same for each byte.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/answer_format.h"
#include "text/output/argument_reader.h"
#include "text/output/argument_types.h"

namespace ibid {

struct AnswerPart {
  enum class Kind : uint8_t { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  std::string text;  // of a call: JSON
  // Of a call:
  int32_t call = 0;      // its number in the answer
  bool begins = false;   // the first part of it; has name and id
  bool ends = false;     // the last: its arguments are whole
  std::string name, id;  // id: the model's own, or empty
};

// A tool that may be called.
struct DeclaredTool {
  std::string name;
  std::shared_ptr<const Json> parameters;  // the schema of its arguments; null: none is known
};

// Bytes of the answer's text: where they stand in what was pushed.
struct TextSpan {
  size_t begin = 0;
  std::string text;
};

class AnswerParser {
 public:
  struct Options {
    std::shared_ptr<const AnswerFormat> format;
    std::shared_ptr<const std::vector<DeclaredTool>> tools;  // null: calls are text
    bool finds_reasoning = true;
    bool is_reasoning = false;   // the prompt has opened it
    bool is_in_message = false;  // the prompt ends within a message of the model: the answer begins without a head
  };
  explicit AnswerParser(Options options);

  // Appends parts; extends the last of them where it can.
  void push(std::string_view text, std::vector<AnswerPart>& parts);
  // `is_own_end`: the model ended its answer, not a limit. Markers missing at the end then count as omitted, not as cut
  // off.
  void finish(std::vector<AnswerPart>& parts, bool is_own_end = false);
  int32_t n_calls() const { return n_calls_; }
  // Every call that has begun has ended.
  bool are_calls_whole() const { return !is_broken_ && !is_in_call_; }

  // From now on the spans of all text are appended to `spans` too; null: no longer. Text between the arguments of a
  // call is not.
  void record_spans(std::vector<TextSpan>* spans) { spans_ = spans; }
  // Bytes from the beginning that have been classified; text among them has been emitted.
  size_t n_certain() const;

 private:
  enum class State : uint8_t {
    kStart,  // before the first word: reasoning may begin
    kReasoning,
    kText,
    kBetween,  // around calls
    kName,
    kId,
    kHeadEnd,  // after a name, up to where the arguments begin
    kArguments,
    kObjects,  // before an object, or in an array of them
    kObject,
    kPython,
    kTagged,  // between the arguments
    kKey,
    kValue,
    kHead,  // of a channel
    kChannel,
  };
  static constexpr size_t kMaxName = 128;  // bytes of a tool's, an argument's or a call's name
  static bool is_of_name(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
           c == '.' || c == ':' || c == '/';
  }
  // The result of a check at a place in a growing text.
  enum class Is : uint8_t { kNo, kOpen, kYes };
  using Parts = std::vector<AnswerPart>;

  bool step(Parts& parts);  // false: more text is needed
  bool step_start(Parts& parts);
  bool step_reasoning(Parts& parts);
  bool step_text(Parts& parts);
  bool step_between(Parts& parts);
  bool step_name(Parts& parts);
  bool step_head_end(Parts& parts);
  bool step_objects(Parts& parts);
  bool step_object(Parts& parts);
  bool end_member();
  bool end_object(Parts& parts);
  bool read_name(std::string_view json);
  bool hold_arguments(std::string_view json);
  bool read_nested(std::string_view json);
  bool step_arguments(Parts& parts);
  bool step_python(Parts& parts);
  bool step_tagged(Parts& parts);
  bool step_key(Parts& parts);
  bool step_value(Parts& parts);
  bool step_head(Parts& parts);
  bool step_channel(Parts& parts);

  void add(AnswerPart::Kind kind, std::string_view text, Parts& parts);
  void add_text(std::string_view text, size_t at, Parts& parts);
  void emit_text(std::string_view text, size_t at, Parts& parts);
  void begin_call(Parts& parts);
  void add_arguments(std::string_view json, Parts& parts);
  void end_call(Parts& parts);
  void break_call(Parts& parts);
  void flush_strange(Parts& parts);
  void enter_call(std::string marker);
  bool fail(Parts& parts);
  void drop(size_t n);                // n bytes are read
  bool go_on(size_t n, State state);  // n bytes are of the markup
  bool is_declared(std::string_view name) const;
  std::string name_of(std::string_view spelled) const;
  bool has_tools() const { return options_.tools != nullptr && tools_.kind != ToolFormat::Kind::kNone; }

  // kTagged
  struct Ending {
    Is is = Is::kNo;
    size_t begin = 0, end = 0;  // of what ends the value
    bool is_of_call = false;    // the call's end, and not the value's
  };
  const ArgumentTypes& types();
  Is is_structure(std::string_view rest, std::span<const std::string> marks) const;
  Is is_misspelled(std::string_view rest, size_t* len) const;
  Is is_next_key(std::string_view rest);
  bool is_in_cdata(size_t at) const;
  Ending ending_at(size_t at);
  Ending close_at(size_t at);
  Ending missing_close_at(size_t at);
  void add_value(std::string_view piece, bool is_whole, Parts& parts);
  void end_tagged_call(Parts& parts);
  bool have_required();

  Options options_;
  const ToolFormat& tools_;
  std::vector<std::string> text_marks_, closing_marks_, reasoning_ends_, around_marks_, tagged_marks_, call_marks_;
  std::string buffer_;   // not yet looked at, or held back
  size_t n_read_ = 0;    // bytes before it
  std::string raw_;      // the markup since a call seemed to begin; text if it did not
  std::string space_;    // white space at the end of the text: dropped if a call follows
  size_t space_at_ = 0;  // where it begins
  std::vector<TextSpan>* spans_ = nullptr;
  State state_ = State::kStart;
  bool is_reasoning_done_ = false;
  bool is_at_end_ = false, is_own_end_ = false;  // nothing follows the buffer
  int n_newlines_ = 0;                           // that may still be dropped

  int32_t n_calls_ = 0;
  bool is_in_call_ = false, is_broken_ = false;
  bool has_called_ = false;  // since the markup began
  bool awaits_end_ = false;  // a call has ended, and its end marker has not come
  bool is_array_ = false;
  std::string name_, id_;
  std::set<std::string> ids_;  // of the answer's calls: a repeated id is dropped
  ArgumentReader reader_;
  std::string strange_;  // unknown content of a call's markup: text after it

  std::string object_;  // kObject: of a call, as far as its arguments were not emitted
  size_t key_begin_ = 0, value_begin_ = 0;
  std::string member_, held_arguments_;
  bool is_sending_ = false, has_arguments_ = false, has_strange_object_ = false;

  std::string key_, key_mark_, value_;                           // kTagged
  std::set<std::string> keys_;                                   // that the call has
  std::map<std::string, std::unique_ptr<ArgumentTypes>> types_;  // by the tool's name
  ValueHint hint_ = ValueHint::kNone;
  bool is_string_value_ = false, has_value_bytes_ = false, is_cdata_ = false;
  size_t n_value_checked_ = 0;  // bytes of the buffer in which no value ends
  bool has_maybe_end_ = false;  // of the call, in the buffer; what follows decides
  size_t maybe_end_ = 0;
  bool is_call_channel_ = false, is_reasoning_channel_ = false;
};

// A text as JSON writes it between quotes.
std::string json_escaped(std::string_view text);

}  // namespace ibid
