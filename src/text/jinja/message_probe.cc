// What a template prints of probe conversations tells in which form it wants its messages.
#include <algorithm>

#include "text/jinja/chat_template.h"
#include "text/jinja/message_form.h"

namespace ibid {
namespace {

constexpr const char* kUser = R"({"role":"user","content":"Hi"})";
constexpr const char* kArgumentsText = R"("{\"probe_key\": \"probe_value\"}")";
constexpr const char* kArgumentsObject = R"({"probe_key": "probe_value"})";
constexpr const char* kTools =
    R"([{"type":"function","function":{"name":"probe_tool","description":"d","parameters":{"type":"object",)"
    R"("properties":{"probe_argument":{"type":"string","description":"d"}},"required":["probe_argument"]}}}])";

bool has(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t i = text.find(what); i != std::string::npos; i = text.find(what, i + what.size())) ++n;
  return n;
}

std::string says(const std::string& role, const std::string& content) {
  return R"({"role":")" + role + R"(","content":)" + content + "}";
}

std::string tool_says(const std::string& content) {
  return R"({"role":"tool","tool_call_id":"call12345","name":"probe_tool","content":)" + content + "}";
}

// How well a thing is printed; the better form is taken, and between equals the one that was given.
enum Score { kLost, kOdd, kClean };

class Prober {
 public:
  explicit Prober(const ChatTemplate& chat) : chat_(chat) {}

  MessageForm form() {
    MessageForm form;
    probe_calls(form);
    form.developer_is_system = !knows_developer();
    const auto alone = [](const char* role) {
      return [role](const std::string& content) { return std::vector<std::string>{says(role, content)}; };
    };
    form.user = content_form(alone("user"));
    form.system = content_form([](const std::string& content) {
      return std::vector<std::string>{says("system", content), kUser};
    });
    form.assistant = content_form([](const std::string& content) {
      return std::vector<std::string>{kUser, says("assistant", content), kUser};
    });
    form.tool = content_form([&](const std::string& content) {
      return std::vector<std::string>{kUser, call(content_of_call_, arguments_), tool_says(content)};
    });
    return is_exhausted_ ? MessageForm() : form;
  }

 private:
  std::optional<std::string> render(const std::vector<std::string>& messages) {
    if (is_exhausted_) return std::nullopt;
    ChatInput input;
    input.messages = "[";
    for (const std::string& message : messages) input.messages += (input.messages.size() > 1 ? "," : "") + message;
    input.messages += "]";
    if (with_tools_) input.tools = kTools;
    input.now = std::chrono::system_clock::time_point();
    RenderBudget budget;
    budget.n_steps /= 20;
    budget.memory_bytes /= 4;
    budget.output_bytes /= 4;
    Result<RenderedPrompt> prompt = chat_.render(input, budget);
    if (prompt) return std::move(prompt->text);
    is_exhausted_ = prompt.error().kind == ErrorKind::kExhausted;
    return std::nullopt;
  }

  // An assistant's message; content "absent" is none at all.
  static std::string call(const std::string& content, const std::string& arguments) {
    return R"({"role":"assistant",)" + (content == "absent" ? "" : R"("content":)" + content + ",") +
           R"("tool_calls":[{"id":"call12345","type":"function","function":{"name":"probe_tool","arguments":)" +
           arguments + "}}]}";
  }

  std::optional<std::string> render_call(const std::string& content, const std::string& arguments) {
    return render({kUser, call(content, arguments), is_answered_ ? tool_says(R"("done")") : kUser});
  }

  static Score arguments_score(const std::optional<std::string>& prompt) {
    if (!prompt || !has(*prompt, "probe_key") || !has(*prompt, "probe_value")) return kLost;
    const bool is_odd =
        has(*prompt, R"(\"probe_key)") || has(*prompt, "'probe_key'");  // encoded twice, or a Python dict
    return is_odd ? kOdd : kClean;
  }

  // Some templates print calls only where the content is null, or where there are tools.
  void probe_calls(MessageForm& form) {
    for (const bool with_tools : {false, true}) {
      for (const char* content : {R"("")", "null"}) {
        with_tools_ = with_tools;
        content_of_call_ = content;
        const std::optional<std::string> text = render_call(content, kArgumentsText);
        const std::optional<std::string> object = render_call(content, kArgumentsObject);
        const Score best = std::max(arguments_score(text), arguments_score(object));
        if (best == kLost) continue;
        form.arguments = arguments_form(text, object);
        if (form.arguments == MessageForm::Arguments::kObject) arguments_ = kArgumentsObject;
        return probe_no_content(form, best);
      }
    }
    // It prints no calls; it may still print the content beside them, and refuse a tool's answer.
    with_tools_ = false;
    is_answered_ = false;
    content_of_call_ = R"("")";
    probe_no_content(form, kLost);
  }

  // A template that looks for both forms prints one as the other where it wants JSON; where the two differ it takes a
  // text for what it could not read, and reads inside an object.
  static MessageForm::Arguments arguments_form(const std::optional<std::string>& text,
                                               const std::optional<std::string>& object) {
    const Score text_score = arguments_score(text), object_score = arguments_score(object);
    if (text_score > object_score) return MessageForm::Arguments::kText;
    const bool reads_inside = object_score == kClean && *text != *object;
    return object_score > text_score || reads_inside ? MessageForm::Arguments::kObject
                                                     : MessageForm::Arguments::kAsGiven;
  }

  void probe_no_content(MessageForm& form, Score best) {
    const std::optional<std::string> null = render_call("null", arguments_);
    const std::optional<std::string> missing = render_call("absent", arguments_);
    const std::optional<std::string> empty = render_call(R"("")", arguments_);
    size_t n_nones = std::string::npos;  // as often as the template says None for other reasons
    for (const auto* prompt : {&null, &missing, &empty}) {
      if (*prompt && arguments_score(*prompt) == best) n_nones = std::min(n_nones, count(**prompt, "None"));
    }
    const auto is_good = [&](const std::optional<std::string>& prompt) {
      return prompt && arguments_score(prompt) == best && count(*prompt, "None") == n_nones;
    };
    MessageForm::NoContent otherwise = MessageForm::NoContent::kAsGiven;
    if (is_good(null)) otherwise = MessageForm::NoContent::kNull;
    if (is_good(empty)) otherwise = MessageForm::NoContent::kEmpty;
    if (!is_good(null)) form.null = otherwise;
    if (!is_good(missing)) form.missing = otherwise;
    if (!is_good(empty)) form.empty = otherwise;
  }

  // A template that knows the role does something else with it than with a name that nobody has heard of. It may write
  // either in capitals.
  bool knows_developer() {
    std::optional<std::string> known = render({says("developer", R"("probe_text")"), kUser});
    if (!known || !has(*known, "probe_text")) return false;
    std::optional<std::string> unknown = render({says("quaestor", R"("probe_text")"), kUser});
    if (!unknown) return true;
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    for (std::string* prompt : {&*known, &*unknown}) std::ranges::transform(*prompt, prompt->begin(), lower);
    std::string renamed;
    size_t from = 0;
    for (size_t i; (i = unknown->find("quaestor", from)) != std::string::npos; from = i + 8)
      renamed.append(*unknown, from, i - from).append("developer");
    return *known != renamed.append(*unknown, from);
  }

  template <typename Conversation>
  MessageForm::Content content_form(const Conversation& conversation) {
    const std::optional<std::string> text = render(conversation(R"("probe_text")"));
    const std::optional<std::string> parts = render(conversation(R"([{"type":"text","text":"probe_text"}])"));
    const Score text_score = text && has(*text, "probe_text") ? kClean : kLost;
    Score parts_score = parts && has(*parts, "probe_text") ? kClean : kLost;
    if (parts_score == kClean && (has(*parts, "'probe_text'") || has(*parts, "\"probe_text\""))) parts_score = kOdd;
    if (text_score == parts_score) return MessageForm::Content::kAsGiven;
    return text_score > parts_score ? MessageForm::Content::kText : MessageForm::Content::kParts;
  }

  const ChatTemplate& chat_;
  bool with_tools_ = false, is_answered_ = true, is_exhausted_ = false;
  std::string content_of_call_ = R"("")", arguments_ = kArgumentsText;
};

}  // namespace

MessageForm probe_form(const ChatTemplate& chat) { return Prober(chat).form(); }

}  // namespace ibid
