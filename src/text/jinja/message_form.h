// MessageForm: the form in which a chat template reads messages. Clients send messages as OpenAI's API defines them
// (arguments as JSON text, null contents, texts in parts), and templates expect other forms: arguments as an object,
// contents that are strings. The form that a template reads is found by rendering probes and comparing what they print.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ibid {

class ChatTemplate;

namespace jinja {
class Machine;
class Value;
}  // namespace jinja

// Members that clients leave out and that a template may read without checking for them.
enum class Member : uint8_t {
  kCallId,
  kCallType,
  kResultId,
  kResultName,
  kToolType,
  kDescription,
  kParameters,
  kSchemaType,
  kProperties,
  kRequired,
  kPropertyType,
  kPropertyDescription,
  kCount
};
constexpr uint32_t bit_of(Member member) { return member == Member::kCount ? 0 : 1u << static_cast<unsigned>(member); }

// As given: unchanged, because the template prints both forms well, or neither.
struct MessageForm {
  enum class Arguments : uint8_t { kAsGiven, kObject, kText };
  enum class Content : uint8_t { kAsGiven, kText, kParts };
  enum class NoContent : uint8_t { kAsGiven, kEmpty, kNull };

  Arguments arguments = Arguments::kAsGiven;  // of tool calls: an object or its JSON text
  Content system = Content::kAsGiven, user = Content::kAsGiven, assistant = Content::kAsGiven, tool = Content::kAsGiven;
  // The form of content that is null, absent or "" beside tool calls: always the same one, if the template accepts one.
  NoContent null = NoContent::kAsGiven, missing = NoContent::kAsGiven, empty = NoContent::kAsGiven;
  bool developer_is_system = false;  // the template has no role of that name
  // Which system messages the template prints: any, one right after another, one after other roles.
  bool takes_system = true, takes_second_system = true, takes_later_system = true;
  bool wants_tool_list = false;  // an empty one where there are no tools
  uint32_t filled = 0;           // bits of Member: those that are filled in where they are absent

  bool fills(Member member) const { return (filled & bit_of(member)) != 0; }
  bool operator==(const MessageForm&) const = default;
};

// Some 50 renderings of short conversations, each within a fiftieth of the usual budget, so that loading costs at most
// one rendering more. A template that exceeds it, or refuses every probe, gets its messages as given.
MessageForm probe_form(const ChatTemplate& chat);

// Repairs of a history that the template has refused unchanged. Bits, because several may be needed together.
enum Repair : unsigned {
  kShortIds = 1,     // ids of calls become nine letters or digits (Mistral's templates)
  kSingleCalls = 2,  // a message for each call, followed by its result (Llama's)
  kAlternate = 4,    // messages of one role in a row are joined, and an empty one stands where a turn is missing
  kBlanks = 8        // an assistant's message without text becomes a blank (Ministral's)
};

// A history (dicts) in that form: all forms of empty content become one, and system messages go where the template
// accepts them. What cannot be converted stays as it is (arguments that are not a JSON object, parts that are not
// text), and `misfit` names the first such place, if that may be why a template fails. `repairs` returns without those
// that had nothing to do.
std::vector<jinja::Value> fit_messages(jinja::Machine& machine, const MessageForm& form, unsigned& repairs,
                                       std::vector<jinja::Value> messages, std::string& misfit);

// Tool definitions (a list) with the members that the template reads filled in. Plain ones have all of them, and
// schemas of one type each: for a template that has refused them unchanged.
jinja::Value fit_tools(const MessageForm& form, const jinja::Value& tools, bool is_plain = false);

}  // namespace ibid
