// AnswerFormat: how a family of models writes its reasoning and its calls of tools, read off the model's own chat
// template. docs/users/tools.md has the table of families.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ibid {

struct ReasoningFormat {
  std::string begin, end;  // both empty: none
  bool is_ended_by_call = false;

  bool is_none() const { return end.empty(); }
};

struct ToolFormat {
  enum class Kind : uint8_t {
    kNone,
    kObjects,   // BEGIN {"name": N, "arguments": {...}} END, or an array of them
    kNamed,     // BEGIN N NAME_END {...} END; objects where a bracket stands in the name's place
    kTagged,    // BEGIN N NAME_END (KEY_BEGIN K KEY_END V VALUE_END)* END
    kGemma,     // BEGIN N {k:<|"|>text<|"|>,n:1} END
    kPython,    // BEGIN [N(k="v", n=1), M()] END
    kChannels,  // <|channel|>commentary to=functions.N<|message|>{...}<|call|>, and text and reasoning in the like
  };
  Kind kind = Kind::kNone;
  std::vector<std::string> begins = {}, ends = {};  // of a call
  std::vector<std::string> around = {};             // markup around calls that carries no content
  // The first of each is how the template writes it; the others are read too.
  std::vector<std::string> name_ends = {}, key_begins = {}, key_ends = {}, value_ends = {};
  std::string id_begin = {};    // in a name's end's place: the call's id comes first
  std::string name_begin = {};  // in a name's end's place: what preceded was the id, and the name follows
  std::string head_end = {};    // kTagged: the end of what follows a name's end
  std::string name_key = "name", arguments_key = "arguments";  // kObjects
  bool is_bare = false;        // kObjects: a call may be all of the answer, without a marker
  bool is_name_key = false;    // kObjects: {"N": {...}}
  bool has_ids_after = false;  // kObjects: the id comes after the arguments, which wait for it
  bool is_id_name = false;     // "functions.N:0" is the id, and N the name
  bool has_short_ids = false;  // of nine letters and digits, or the template refuses them
  bool is_inline = false;      // kTagged: arguments do not stand on lines of their own
  bool has_cdata = false;      // kTagged: a value may stand in <![CDATA[ ]]>
};

struct AnswerFormat {
  ReasoningFormat reasoning;
  ToolFormat tools;
  std::vector<std::string> hidden;  // markers around an answer's text

  // The format of a model with this chat template. If it has no tool format of its own, or does not describe the tools
  // to the model: the generic one, Hermes', in which the server then describes them.
  static AnswerFormat of_template(std::string_view source, bool shows_tools = true);
};

}  // namespace ibid
