// Finds the form in which a template reads messages from what it prints of probe conversations.
#include <algorithm>
#include <initializer_list>
#include <span>

#include "text/jinja/chat_template.h"
#include "text/jinja/message_form.h"

namespace ibid {
namespace {

constexpr const char* kUser = R"({"role":"user","content":"Hi"})";
constexpr const char* kArgumentsText = R"("{\"probe_key\": \"probe_value\"}")";
constexpr const char* kArgumentsObject = R"({"probe_key": "probe_value"})";

// Parts of a tool's definition and of a call and its result, each of which a client may leave out.
struct Part {
  Member member;
  const char* text;
};
constexpr Part kPropertyParts[] = {{Member::kPropertyType, R"("type":"string")"},
                                   {Member::kPropertyDescription, R"("description":"d")"}};
constexpr Part kSchemaParts[] = {{Member::kSchemaType, R"("type":"object")"},
                                 {Member::kProperties, R"("properties":{"probe_argument":{@}})"},
                                 {Member::kRequired, R"("required":["probe_argument"])"}};
constexpr Part kFunctionParts[] = {{Member::kCount, R"("name":"probe_tool")"},
                                   {Member::kDescription, R"("description":"d")"},
                                   {Member::kParameters, R"("parameters":{@})"}};
constexpr Part kToolParts[] = {{Member::kToolType, R"("type":"function")"}, {Member::kCount, R"("function":{@})"}};
constexpr Part kCallParts[] = {{Member::kCallId, R"("id":"call12345")"},
                               {Member::kCallType, R"("type":"function")"},
                               {Member::kCount, R"("function":{"name":"probe_tool","arguments":@})"}};
constexpr Part kResultParts[] = {{Member::kCount, R"("role":"tool")"},
                                 {Member::kResultId, R"("tool_call_id":"call12345")"},
                                 {Member::kResultName, R"("name":"probe_tool")"},
                                 {Member::kCount, R"("content":@)"}};

// An object of these parts without those that are left out (bits); what is within it stands in the place of the '@'.
std::string object_of(std::span<const Part> parts, uint32_t left_out, const std::string& within) {
  std::string out = "{";
  for (const Part& part : parts) {
    if ((left_out & bit_of(part.member)) != 0) continue;
    if (out.size() > 1) out += ',';
    std::string text = part.text;
    if (const size_t at = text.find('@'); at != std::string::npos) text.replace(at, 1, within);
    out += text;
  }
  return out + '}';
}

std::string inside(const std::string& object) { return object.substr(1, object.size() - 2); }

std::string tools_without(uint32_t left_out) {
  const std::string property = inside(object_of(kPropertyParts, left_out, ""));
  const std::string schema = inside(object_of(kSchemaParts, left_out, property));
  const std::string function = inside(object_of(kFunctionParts, left_out, schema));
  return "[" + object_of(kToolParts, left_out, function) + "]";
}

bool has(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t i = text.find(what); i != std::string::npos; i = text.find(what, i + what.size())) ++n;
  return n;
}

std::string message_with(const std::string& role, const std::string& content) {
  return R"({"role":")" + role + R"(","content":)" + content + "}";
}

std::string tool_answer(const std::string& content, uint32_t left_out = 0) {
  return object_of(kResultParts, left_out, content);
}

// How well a form is printed; the better form is used, and the given one if both are equal.
enum Score { kLost, kOdd, kClean };

class Prober {
 public:
  explicit Prober(const ChatTemplate& chat) : chat_(chat) {}

  MessageForm form() {
    MessageForm form;
    probe_tool_list(form);
    probe_calls(form);
    probe_members(form);
    form.developer_is_system = !knows_developer();
    const auto alone = [](const char* role) {
      return [role](const std::string& content) { return std::vector<std::string>{message_with(role, content)}; };
    };
    form.user = content_form(alone("user"));
    form.system = content_form([](const std::string& content) {
      return std::vector<std::string>{message_with("system", content), kUser};
    });
    form.assistant = content_form([](const std::string& content) {
      return std::vector<std::string>{kUser, message_with("assistant", content), kUser};
    });
    form.tool = content_form([&](const std::string& content) {
      return std::vector<std::string>{kUser, call(content_of_call_, arguments_), tool_answer(content)};
    });
    with_tools_ = false;
    probe_systems(form);
    return is_exhausted_ ? MessageForm() : form;
  }

 private:
  std::optional<std::string> render(const std::vector<std::string>& messages) {
    std::optional<RenderedPrompt> prompt = rendered(messages);
    if (!prompt) return std::nullopt;
    return std::move(prompt->text);
  }

  std::optional<RenderedPrompt> rendered(const std::vector<std::string>& messages, uint32_t left_out = 0) {
    if (is_exhausted_) return std::nullopt;
    ChatInput input;
    input.messages = "[";
    for (const std::string& message : messages) input.messages += (input.messages.size() > 1 ? "," : "") + message;
    input.messages += "]";
    if (with_tools_) input.tools = tools_without(left_out);
    if (wants_tool_list_ && !with_tools_) input.tools = "[]";
    for (const char* name : {"functions", "datetime"}) {  // Firefunction's, which requests bring
      if (chat_.mentions(name)) input.extra.emplace_back(name, R"("")");
    }
    input.now = std::chrono::system_clock::time_point();
    RenderBudget budget;
    budget.n_steps /= 50;
    budget.memory_bytes /= 4;
    budget.output_bytes /= 4;
    Result<RenderedPrompt> prompt = chat_.render(input, budget);
    if (prompt) return *std::move(prompt);
    is_exhausted_ = prompt.error().kind == ErrorKind::kExhausted;
    return std::nullopt;
  }

  // An assistant's message; content "absent" is none at all.
  static std::string call(const std::string& content, const std::string& arguments, uint32_t left_out = 0) {
    return R"({"role":"assistant",)" + (content == "absent" ? "" : R"("content":)" + content + ",") +
           R"("tool_calls":[)" + object_of(kCallParts, left_out, arguments) + "]}";
  }

  std::optional<std::string> render_call(const std::string& content, const std::string& arguments) {
    return render({kUser, call(content, arguments), is_answered_ ? tool_answer(R"("done")") : kUser});
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

  // A template that handles both forms prints one as the other where it needs JSON; if the two differ, it treats text
  // as unreadable and reads inside an object.
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
    size_t n_nones = std::string::npos;  // as often as the template prints None for other reasons
    for (const auto* prompt : {&null, &missing, &empty}) {
      if (*prompt && arguments_score(*prompt) == best) n_nones = std::min(n_nones, count(**prompt, "None"));
    }
    const auto is_good = [&](const std::optional<std::string>& prompt) {
      return prompt && arguments_score(prompt) == best && count(*prompt, "None") == n_nones;
    };
    if (!is_good(empty) && !is_good(null)) return;
    form.null = form.missing = form.empty =
        is_good(empty) ? MessageForm::NoContent::kEmpty : MessageForm::NoContent::kNull;
  }

  // A template may read its tools before it checks whether there are any.
  void probe_tool_list(MessageForm& form) {
    if (!chat_.mentions("tools") || render({kUser})) return;
    wants_tool_list_ = true;
    form.wants_tool_list = wants_tool_list_ = render({kUser}).has_value();
  }

  // A member is filled in where a template that prints calls, results and tools well fails without it, or prints
  // nothing in its place, or loses what stands around it.
  void probe_members(MessageForm& form) {
    const auto is_as_good = [](const std::optional<RenderedPrompt>& without, const RenderedPrompt& whole,
                               std::initializer_list<const char*> words) {
      return without && without->n_undefined <= whole.n_undefined && std::ranges::all_of(words, [&](const char* word) {
               return has(without->text, word) || !has(whole.text, word);
             });
    };
    const auto history = [&](uint32_t left_out) {
      return rendered({kUser, call(content_of_call_, arguments_, left_out), tool_answer(R"("done")", left_out)});
    };
    const std::optional<RenderedPrompt> whole_history = is_answered_ ? history(0) : std::nullopt;
    if (whole_history) {
      const uint32_t name = bit_of(Member::kResultName), ids = bit_of(Member::kCallId) | bit_of(Member::kResultId);
      const auto probe = [&](uint32_t members, uint32_t also_left_out) {
        const std::optional<RenderedPrompt> without = history(members | also_left_out);
        if (!is_as_good(without, *whole_history, {"probe_key", "probe_value", "probe_tool", "done"}))
          form.filled |= members;
      };
      probe(name, 0);
      probe(bit_of(Member::kCallType), 0);
      // One history cannot show what happens to two results without ids.
      if (has(chat_.source(), "tool_call_id")) form.filled |= ids;
      const uint32_t nameless = name & ~form.filled;  // a result may be named by its id alone
      probe(bit_of(Member::kCallId), nameless);
      probe(bit_of(Member::kResultId), nameless);
      probe(ids, nameless);
    }
    if (!chat_.mentions("tools")) return;
    with_tools_ = true;
    if (const std::optional<RenderedPrompt> whole = rendered({kUser})) {
      for (const Member member :
           {Member::kToolType, Member::kDescription, Member::kParameters, Member::kSchemaType, Member::kProperties,
            Member::kRequired, Member::kPropertyType, Member::kPropertyDescription}) {
        const bool is_schema = member == Member::kParameters || member == Member::kProperties;
        const std::initializer_list<const char*> argument = {"probe_tool", "probe_argument"}, name = {"probe_tool"};
        if (!is_as_good(rendered({kUser}, bit_of(member)), *whole, is_schema ? name : argument))
          form.filled |= bit_of(member);
      }
    }
    with_tools_ = false;
  }

  // Which system messages are printed, all of them and in their order.
  void probe_systems(MessageForm& form) {
    const auto in_form = [](const char* role, MessageForm::Content content, const std::string& text) {
      const bool in_parts = content == MessageForm::Content::kParts;
      return message_with(role, in_parts ? R"([{"type":"text","text":)" + text + "}]" : text);
    };
    const std::string one = in_form("system", form.system, R"("probe_one")");
    const std::string two = in_form("system", form.system, R"("probe_two")");
    const std::string user = in_form("user", form.user, R"("Hi")");
    const std::string answer = in_form("assistant", form.assistant, R"("Yes")");
    const auto prints = [&](const std::vector<std::string>& messages) {
      const std::optional<std::string> prompt = render(messages);
      if (!prompt) return false;
      size_t from = 0;
      for (const std::string& message : messages) {
        const char* word = message == one ? "probe_one" : message == two ? "probe_two" : nullptr;
        if (word == nullptr) continue;
        from = prompt->find(word, from);
        if (from == std::string::npos) return false;
      }
      return true;
    };
    if (!render({user})) return;  // it takes nothing of ours
    form.takes_system = prints({one, user});
    form.takes_second_system = form.takes_system && prints({one, two, user});
    form.takes_later_system = form.takes_system && prints({one, user, answer, two, user}) &&
                              prints({user, answer, two, user}) && prints({user, two});
    if (!form.takes_system || !chat_.mentions("tools")) return;
    with_tools_ = true;
    if (prints({one, user})) {
      form.takes_second_system = form.takes_second_system && prints({one, two, user});
      form.takes_later_system = form.takes_later_system && prints({one, user, answer, two, user});
    }
    with_tools_ = false;
  }

  // A template that has the role prints it unlike an invented role. It may write either in capitals.
  bool knows_developer() {
    std::optional<std::string> known = render({message_with("developer", R"("probe_text")"), kUser});
    if (!known || !has(*known, "probe_text")) return false;
    std::optional<std::string> unknown = render({message_with("quaestor", R"("probe_text")"), kUser});
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
  bool with_tools_ = false, wants_tool_list_ = false, is_answered_ = true, is_exhausted_ = false;
  std::string content_of_call_ = R"("")", arguments_ = kArgumentsText;
};

}  // namespace

MessageForm probe_form(const ChatTemplate& chat) { return Prober(chat).form(); }

}  // namespace ibid
