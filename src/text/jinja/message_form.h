// MessageForm: the form in which a chat template reads messages. Clients send what OpenAI's API says (arguments as a
// JSON text, null contents, texts in parts), and templates read what their authors had at hand: arguments as an object,
// contents that are strings. What a template wants is found by rendering probes and looking what they print.
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

// Members that clients leave out and that a template may read without looking whether they are there.
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

// As given: as the messages have it, because the template prints both forms well, or neither.
struct MessageForm {
  enum class Arguments : uint8_t { kAsGiven, kObject, kText };
  enum class Content : uint8_t { kAsGiven, kText, kParts };
  enum class NoContent : uint8_t { kAsGiven, kEmpty, kNull };

  Arguments arguments = Arguments::kAsGiven;  // of tool calls: an object or its JSON text
  Content system = Content::kAsGiven, user = Content::kAsGiven, assistant = Content::kAsGiven, tool = Content::kAsGiven;
  // What becomes of content that is null, absent or "" beside tool calls: one thing, where the template takes one.
  NoContent null = NoContent::kAsGiven, missing = NoContent::kAsGiven, empty = NoContent::kAsGiven;
  bool developer_is_system = false;  // the template knows no role of that name
  // Which system messages the template prints: any, one right after another, one after other roles.
  bool takes_system = true, takes_second_system = true, takes_later_system = true;
  bool wants_tool_list = false;  // an empty one where there are no tools
  uint32_t filled = 0;           // bits of Member: those that are filled in where they are absent

  bool fills(Member member) const { return (filled & bit_of(member)) != 0; }
  bool operator==(const MessageForm&) const = default;
};

// Some 50 renderings of short conversations, each under a fiftieth of the usual budget, so that a load takes at most
// one rendering more. A template that exceeds it, or refuses every probe, gets its messages as given.
MessageForm probe_form(const ChatTemplate& chat);

// What may be done to a history that a template has refused as it stands. Bits, as repairs may be needed together.
enum Repair : unsigned {
  kShortIds = 1,     // ids of calls become nine letters or digits (Mistral's templates)
  kSingleCalls = 2,  // a message for each call, followed by its result (Llama's)
  kAlternate = 4,    // messages of one role in a row are joined, and an empty one stands where a turn is missing
  kBlanks = 8        // an assistant's message without a text says a blank (Ministral's)
};

// A history (dicts) in that form: what says nothing becomes one form of nothing, system messages go where the template
// takes them. What cannot be brought into the form stays as it is (arguments that are no JSON object, parts that are no
// text), and `misfit` says the first such place, where that may be why a template fails. `repairs` come back without
// those that found nothing to mend.
std::vector<jinja::Value> fit_messages(jinja::Machine& machine, const MessageForm& form, unsigned& repairs,
                                       std::vector<jinja::Value> messages, std::string& misfit);

// Tool definitions (a list) with the members filled in that the template reads. Plain ones have all of them, and
// schemas of one type each: for a template that has refused them as they stand.
jinja::Value fit_tools(const MessageForm& form, const jinja::Value& tools, bool is_plain = false);

}  // namespace ibid
