// MessageForm: the form in which a chat template reads messages. Clients send what OpenAI's API says (arguments as a
// JSON text, null contents, texts in parts), and templates read what their authors had at hand: arguments as an object,
// contents that are strings. What a template wants is found by rendering probes and looking what they print.
#pragma once

#include <cstdint>
#include <string>

namespace ibid {

class ChatTemplate;

namespace jinja {
class Machine;
class Value;
}  // namespace jinja

// As given: as the messages have it, because the template prints both forms well, or neither.
struct MessageForm {
  enum class Arguments : uint8_t { kAsGiven, kObject, kText };
  enum class Content : uint8_t { kAsGiven, kText, kParts };
  enum class NoContent : uint8_t { kAsGiven, kEmpty, kNull };

  Arguments arguments = Arguments::kAsGiven;  // of tool calls: an object or its JSON text
  Content system = Content::kAsGiven, user = Content::kAsGiven, assistant = Content::kAsGiven, tool = Content::kAsGiven;
  // What becomes of content that is null, absent or "" beside tool calls.
  NoContent null = NoContent::kAsGiven, missing = NoContent::kAsGiven, empty = NoContent::kAsGiven;
  bool developer_is_system = false;  // the template knows no role of that name

  bool operator==(const MessageForm&) const = default;
};

// Some 20 renderings of short conversations, each under a twentieth of the usual budget, so that a load takes at most
// one rendering more. A template that exceeds it, or refuses every probe, gets its messages as given.
MessageForm probe_form(const ChatTemplate& chat);

// A message (a dict) in that form. What cannot be brought into it stays as it is (arguments that are no JSON object,
// parts that are no text), and `misfit` says the first such place, where that may be why a template fails.
jinja::Value fit_message(jinja::Machine& machine, const MessageForm& form, const jinja::Value& message, size_t index,
                         std::string& misfit);

}  // namespace ibid
