// AnswerParser: the text of one growing answer, in the model's own markup, to parts: reasoning, text, calls of tools
// with their arguments as JSON. What may become markup is held back; the parts add up to the same for every slicing of
// the text. What looks like a call and is none stays text; a call whose arguments break off stays incomplete. Time is
// linear in the text. One per choice; not for two threads at once.
//
// A machine over bytes rather than a parser of the whole that is run again for each token (llama.cpp): it cannot take
// back what it has said, and costs the same for each byte.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/output/answer_format.h"
#include "text/output/argument_reader.h"

namespace ibid {

struct AnswerPart {
  enum class Kind : uint8_t { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  std::string text;  // of a call: JSON
  // Of a call.
  int32_t call = 0;      // its number in the answer
  bool begins = false;   // the first part of it; has name and id
  bool ends = false;     // the last: its arguments are whole
  std::string name, id;  // id: the model's own, or empty
};

// The tools that may be called.
struct DeclaredTool {
  struct Argument {
    std::string name;
    bool is_string = false;  // and nothing else
  };
  std::string name;
  std::vector<Argument> arguments;
};

class AnswerParser {
 public:
  struct Options {
    std::shared_ptr<const AnswerFormat> format;
    std::shared_ptr<const std::vector<DeclaredTool>> tools;  // null: calls are text
    bool finds_reasoning = true;
    bool is_reasoning = false;   // the prompt has opened it
    bool is_in_message = false;  // the prompt ends within what the model has said: the answer begins with no head
  };
  explicit AnswerParser(Options options);

  // Appends parts; goes on with the last of them where it can.
  void push(std::string_view text, std::vector<AnswerPart>& parts);
  void finish(std::vector<AnswerPart>& parts);
  int32_t n_calls() const { return n_calls_; }
  // Every call that has begun has ended.
  bool are_calls_whole() const { return !is_broken_ && !is_in_call_; }

 private:
  enum class State : uint8_t {
    kStart,  // before the first word: reasoning may begin
    kReasoning,
    kText,
    kBetween,  // around calls
    kName,
    kId,
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
  using Parts = std::vector<AnswerPart>;

  bool step(Parts& parts);  // false: more text is needed
  bool step_start(Parts& parts);
  bool step_reasoning(Parts& parts);
  bool step_text(Parts& parts);
  bool step_between(Parts& parts);
  bool step_name(Parts& parts);
  bool step_objects(Parts& parts);
  bool step_object(Parts& parts);
  bool end_member(std::string_view value, Parts& parts);
  bool step_arguments(Parts& parts);
  bool step_python(Parts& parts);
  bool step_tagged(Parts& parts);
  bool step_key(Parts& parts);
  bool step_value(Parts& parts);
  bool step_head(Parts& parts);
  bool step_channel(Parts& parts);

  void add(AnswerPart::Kind kind, std::string_view text, Parts& parts);
  void add_text(std::string_view text, Parts& parts);
  void begin_call(Parts& parts);
  void add_arguments(std::string_view json, Parts& parts);
  void end_call(Parts& parts);
  void enter_call(std::string marker);
  bool fail(Parts& parts);
  bool go_on(size_t n, State state);  // takes n bytes of the markup
  void end_value(std::string_view piece, bool is_whole, Parts& parts);
  std::string name_of(std::string_view spelled) const;
  bool has_tools() const { return options_.tools != nullptr && tools_.kind != ToolFormat::Kind::kNone; }

  Options options_;
  const ToolFormat& tools_;
  std::vector<std::string> text_marks_, reasoning_ends_;
  std::string buffer_;  // not yet looked at, or held back
  std::string raw_;     // the markup since a call seemed to begin: text after all, where it did not
  std::string space_;   // white space at the end of the text: nobody's, where a call follows
  State state_ = State::kStart;
  bool is_reasoning_done_ = false;
  int n_newlines_ = 0;  // that may still be dropped

  int32_t n_calls_ = 0;
  bool is_in_call_ = false, is_broken_ = false;
  bool has_called_ = false;  // since the markup began
  bool is_array_ = false;
  std::string name_, id_;
  ArgumentReader reader_;

  std::string object_;  // kObject: of a call, as far as its arguments were not told
  size_t key_begin_ = 0, value_begin_ = 0;
  std::string member_, held_arguments_;
  bool is_telling_ = false;

  std::string key_, value_;  // kTagged
  bool is_text_value_ = false, is_first_value_ = true, has_key_ = false;
  bool is_call_channel_ = false, is_reasoning_channel_ = false;
};

}  // namespace ibid
