// Histories as clients send them, over templates of many shapes: equivalent histories give one prompt, and what a
// template refuses in one form it takes in another. Where IBID_DATA names a folder, its
// templates/ are tried too.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <sstream>

#include "base/json.h"
#include "base/utf8.h"
#include "outside_data.h"
#include "source_paths.h"
#include "text/jinja/chat_template.h"

namespace ibid {
namespace {

using Templates = std::vector<std::pair<std::string, std::string>>;

// What published templates refuse, drop or read without looking, one thing or two each.
const Templates kShapes = {
    {"no system, turns alternate",
     "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
     "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
     "{{ raise_exception('Conversation roles must alternate') }}{% endif %}"
     "<{{ m.role }}>{{ m.content | trim }}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"},
    {"ids of nine letters, turns alternate without calls, one system",
     "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set rest = messages[1:] %}"
     "{% else %}{% set rest = messages %}{% endif %}{% set ns = namespace(i=0) %}"
     "{% for m in rest %}{% if not (m.role == 'tool' or m.tool_calls is defined) %}"
     "{% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
     "{% set ns.i = ns.i + 1 %}{% endif %}{% endfor %}[S]{{ s }}"
     "{% for m in rest %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]"
     "{% elif m.tool_calls is defined and m.tool_calls is not none %}{{ m.content }}"
     "{% for t in m.tool_calls %}{% if t.id is not defined or t.id|length != 9 %}{{ raise_exception('ids') }}{% endif "
     "%}"
     "[CALL]{{ t.function.name }}{{ t.function.arguments|tojson }}{{ t.id }}{% endfor %}</s>"
     "{% elif m.role == 'assistant' %}{% if m.content == '' %}{{ raise_exception('says nothing') }}{% endif %}"
     "{{ m.content + '</s>' }}"
     "{% elif m.role == 'tool' %}{% if m.tool_call_id is not defined or m.tool_call_id|length != 9 %}"
     "{{ raise_exception('ids') }}{% endif %}[RESULT]{{ m.content }}{{ m.tool_call_id }}"
     "{% else %}{{ raise_exception('role') }}{% endif %}{% endfor %}"},
    {"system first or not at all",
     "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
     "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
     "<|im_start|>{{ m.role }}\n{{ m.content }}{% for t in m.tool_calls or [] %}"
     "<tool_call>{{ t.function.name }}{% for k, v in t.function.arguments|items %}<{{ k }}>{{ v }}{% endfor %}"
     "</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif "
     "%}"},
    {"one call a message, nobody's system but the first",
     "{% if tools %}{% for t in tools %}{{ t|tojson }}{% endfor %}{% endif %}"
     "{% for m in messages %}{% if m.role == 'system' %}{% if loop.first %}<s>{{ m.content }}{% endif %}"
     "{% elif 'tool_calls' in m %}{% if m.tool_calls|length != 1 %}{{ raise_exception('single tool-calls') }}{% endif "
     "%}"
     "<call>{{ m.tool_calls[0].function.name }}{{ m.tool_calls[0].function.arguments }}"
     "{% else %}<{{ m.role }}>{{ m.content }}{% endif %}<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% "
     "endif %}"},
    {"reads everything without looking",
     "{% for t in tools %}{{ t.type ~ t['function']['name'] + ': ' + t.function.description }}"
     "{% for k, p in t.function.parameters.properties.items() %}{{ k + p.type + p['description'] }}"
     "{{ '!' if k in t.function.parameters.required }}{% endfor %}{{ t.function.parameters.type + ';' }}{% endfor %}"
     "{% for m in messages %}{{ '<' + m.role + '>' }}{% if m.tool_calls %}{% for t in m.tool_calls %}"
     "{% if t.type == 'function' %}{{ t.id + t.function.name + t.function.arguments|tojson }}"
     "{% else %}{{ raise_exception('type') }}{% endif %}{% endfor %}"
     "{% elif m.role == 'tool' %}{{ m.name + m.tool_call_id + m.content }}{% else %}{{ m.content }}{% endif %}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"},
    {"prints each result once, by its id",
     "{% set ns = namespace(seen=[]) %}{% for m in messages %}{% if m.role == 'tool' %}"
     "{% if m.tool_call_id not in ns.seen %}{% set ns.seen = ns.seen + [m.tool_call_id] %}[{{ m.content }}]{% endif %}"
     "{% else %}<{{ m.role }}>{{ m.content }}{% for t in m.tool_calls or [] %}<call>{{ t.function.name }}"
     "{{ t.function.arguments|tojson }}{% endfor %}{% endif %}{% endfor %}"},
    {"prints what is not there",
     "{% for m in messages %}{% if m.role == 'system' %}{% set s = m.content %}{% endif %}{% endfor %}"
     "{% for m in messages %}{% if m.role == 'tool' %}<result {{ m.name }} {{ m.tool_call_id }}>{{ m.content }}"
     "{% elif m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% for t in m.tool_calls or [] %}"
     "<call {{ t.id }}>{{ t.function.name }}({{ t.function.arguments|tojson }}){% endfor %}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<assistant>{% endif %}"},
    {"reasons",
     "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% set r = '' %}"
     "{% set c = m.content %}{% if m.reasoning_content is string %}{% set r = m.reasoning_content %}"
     "{% elif '</think>' in c %}{% set r = c.split('</think>')[0].split('<think>')[-1] %}"
     "{% set c = c.split('</think>')[-1] %}{% endif %}<think>\n{{ r.strip('\\n') }}\n</think>\n\n{{ c.lstrip('\\n') }}"
     "{% else %}{{ m.content }}{% endif %}<|im_end|>\n{% endfor %}"
     "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"},
};

Templates all_templates() {
  Templates all = kShapes;
  all.emplace_back("ChatML", std::string(ChatTemplate::kDefaultSource));
  std::ifstream families(source_dir() + "/tests/conformance/template_family_goldens.jsonl");
  for (std::string line; std::getline(families, line);) {
    const boost::json::value row = boost::json::parse(line);
    if (const auto* source = row.as_object().if_contains("template"))
      all.emplace_back(row.at("family").as_string().c_str(), source->as_string().c_str());
  }
  if (const std::filesystem::path folder = outside_data("templates"); !folder.empty()) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      std::ifstream file(entry.path());
      std::stringstream text;
      text << file.rdbuf();
      all.emplace_back(entry.path().filename(), text.str());
    }
  }
  return all;
}

const char* const kTools =
    R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":)"
    R"({"a":{"type":"string","description":"e"}},"required":["a"]}}}])";

struct Got {
  bool is_good = false;
  std::string text;
};

Got render(const ChatTemplate& chat, const std::string& messages, const std::string& tools = "", bool goes_on = false) {
  ChatInput input;
  input.messages = messages;
  input.tools = tools;
  input.continues_final = goes_on;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = std::chrono::system_clock::time_point();
  Result<RenderedPrompt> prompt = chat.render(input);
  return prompt ? Got{true, prompt->text} : Got{false, prompt.error().message};
}

ChatTemplate made(const std::string& source) {
  Result<ChatTemplate> chat = ChatTemplate::for_model(source);
  EXPECT_TRUE(chat.ok()) << (chat ? "" : chat.error().message);
  return *std::move(chat);
}

std::string json_of(const std::string& text) { return Json(text).text(); }
std::string said(const std::string& role, const std::string& content, const std::string& more = "") {
  return R"({"role":")" + role + "\"" + (content.empty() ? "" : ",\"content\":" + content) + more + "}";
}
std::string call_of(const std::string& arguments, const std::string& id = R"("id":"call12345",)",
                    const std::string& name = "f", const std::string& type = R"("type":"function",)") {
  return "{" + id + type + R"("function":{"name":")" + name + "\"" +
         (arguments.empty() ? "" : ",\"arguments\":" + arguments) + "}}";
}
std::string calls(const std::string& list) { return ",\"tool_calls\":[" + list + "]"; }
std::string result(const std::string& content = "\"res\"", const std::string& id = R"(,"tool_call_id":"call12345")") {
  return said("tool", content, id);
}
std::string history(const std::vector<std::string>& messages) {
  std::string out = "[";
  for (const std::string& message : messages) out += (out.size() > 1 ? "," : "") + message;
  return out + "]";
}

const std::string kUser = said("user", "\"Hi\""), kYes = said("assistant", "\"Yes\"");
const std::string kCall = calls(call_of(R"("{\"a\": 1}")"));

// The first form of each is that of OpenAI's clients; the others are equivalent.
struct Forms {
  const char* name;
  std::vector<std::string> histories;
};

std::vector<Forms> forms_of_nothing() {
  const std::vector<std::string> absent_or_nothing = {"", "null", "\"\"", "[]", "{}"};
  std::vector<Forms> all;
  for (const char* content : {"\"\"", "\"Said\""}) {
    Forms forms{"arguments", {}};
    for (const char* arguments : {R"("{}")", "", "\"\"", "null", "{}", "[]", "\"[]\"", "\" \""})
      forms.histories.push_back(
          history({kUser, said("assistant", content, calls(call_of(arguments))), result(), kYes}));
    all.push_back(forms);
  }
  const auto contents = [](const char* name, auto around) {
    Forms forms{name, {}};
    for (const char* content : {"\"\"", "null", "", "[]", R"([{"type":"text","text":""}])"})
      forms.histories.push_back(around(content));
    return forms;
  };
  all.push_back(contents("content beside calls", [](const std::string& content) {
    return history({kUser, said("assistant", content, kCall), result(), kYes});
  }));
  all.push_back(contents("content of a result", [](const std::string& content) {
    return history({kUser, said("assistant", "\"\"", kCall), result(content), kYes});
  }));
  all.push_back(contents("content of an answer", [](const std::string& content) {
    return history({kUser, said("assistant", content), kUser});
  }));
  all.push_back(contents("content of a user", [](const std::string& content) {
    return history({said("user", content), kYes, kUser});
  }));
  for (const char* member : {"tool_calls", "name", "reasoning_content", "reasoning", "thinking"}) {
    Forms forms{member, {}};
    for (const std::string& value : absent_or_nothing) {
      const std::string more = value.empty() ? "" : std::string(",\"") + member + "\":" + value;
      forms.histories.push_back(history({kUser, said("assistant", "\"Yes\"", more), kUser}));
    }
    all.push_back(forms);
  }
  Forms ids{"tool_call_id", {}}, call_ids{"id", {}};
  for (const std::string& value : absent_or_nothing) {
    const std::string id = value.empty() ? "" : ",\"tool_call_id\":" + value;
    const std::string call_id = value.empty() ? "" : "\"id\":" + value + ",";
    ids.histories.push_back(history({kUser, said("assistant", "\"\"", kCall), result("\"res\"", id), kYes}));
    const std::string call = calls(call_of(R"("{\"a\": 1}")", call_id));
    call_ids.histories.push_back(history({kUser, said("assistant", "\"\"", call), result(), kYes}));
  }
  all.push_back(ids);
  all.push_back(call_ids);
  return all;
}

TEST(TemplateHistories, FormsOfNothingGiveOnePrompt) {
  size_t n_prompts = 0;
  for (const auto& [name, source] : all_templates()) {
    const ChatTemplate chat = made(source);
    for (const Forms& forms : forms_of_nothing()) {
      for (const char* tools : {"", kTools}) {
        const Got first = render(chat, forms.histories[0], tools);
        for (const std::string& other : forms.histories) {
          const Got got = render(chat, other, tools);
          ASSERT_EQ(got.is_good, first.is_good) << name << ", " << forms.name << ": " << other << "\n" << got.text;
          if (first.is_good) {
            ASSERT_EQ(got.text, first.text) << name << ", " << forms.name << ": " << other;
          }
          n_prompts += first.is_good;
        }
      }
    }
  }
  EXPECT_GT(n_prompts, 3000u);
}

// A random history, and the contents that it has, by role. Canonical: one system message at the
// beginning, turns alternate, a call a message, ids of nine letters, names of a few.
struct Drawn {
  std::vector<std::string> messages;
  std::vector<std::string> contents;
};

class Drawer {
 public:
  Drawer(uint32_t seed, bool is_canonical, bool has_calls)
      : random_(seed), is_canonical_(is_canonical), has_calls_(has_calls) {}

  Drawn draw() {
    Drawn drawn;
    const auto say = [&](const std::string& role) {
      drawn.contents.push_back("w" + std::to_string(drawn.contents.size()) + "w");
      return said(role, json_of(drawn.contents.back()));
    };
    const auto maybe_system = [&] {
      if (!is_canonical_ && chance(4)) drawn.messages.push_back(say(chance(2) ? "system" : "developer"));
    };
    if (chance(2)) drawn.messages.push_back(say("system"));
    maybe_system();
    if (!is_canonical_ && chance(6)) drawn.messages.push_back(say("assistant"));
    for (size_t turn = 0, n = 1 + random_() % 3; turn < n; ++turn) {
      do drawn.messages.push_back(say("user"));
      while (!is_canonical_ && chance(4));
      maybe_system();
      const bool is_called = has_calls_ && chance(2);
      if (is_called) call(drawn, say);
      maybe_system();
      if (turn + 1 == n || (!is_canonical_ && is_called && chance(3))) continue;
      do drawn.messages.push_back(say("assistant"));
      while (!is_canonical_ && chance(6));
    }
    return drawn;
  }

 private:
  bool chance(uint32_t n) { return random_() % n == 0; }

  template <typename Say>
  void call(Drawn& drawn, const Say& say) {
    const size_t n = is_canonical_ ? 1 : 1 + random_() % 2;
    std::string list;
    std::vector<std::string> results;
    for (size_t i = 0; i < n; ++i) {
      const std::string id = "call" + std::to_string(10000 + n_calls_++);
      const std::string foreign = chance(2) ? id : "toolu_01-" + id;
      const std::string given = is_canonical_ ? id : foreign;
      const bool has_id = is_canonical_ || !chance(4);
      const std::string name = is_canonical_ || chance(2) ? "f" : std::string(128, 'n');
      const std::string type = is_canonical_ || chance(2) ? R"("type":"function",)" : "";
      list += (list.empty() ? "" : ",") + call_of(chance(2) ? R"("{\"a\": \"b\"}")" : R"("{}")",
                                                  has_id ? "\"id\":\"" + given + "\"," : "", name, type);
      const std::string text = say("tool");
      results.push_back(has_id ? text.substr(0, text.size() - 1) + ",\"tool_call_id\":\"" + given + "\"}" : text);
    }
    drawn.messages.push_back(said("assistant", is_canonical_ || chance(2) ? "\"\"" : "null", calls(list)));
    for (std::string& text : results) drawn.messages.push_back(std::move(text));
  }

  std::mt19937 random_;
  bool is_canonical_, has_calls_;
  size_t n_calls_ = 0;
};

bool has_all(const std::string& text, const std::vector<std::string>& words) {
  return std::ranges::all_of(words, [&](const std::string& word) { return text.find(word) != std::string::npos; });
}

TEST(TemplateHistories, HistoryAcceptedInOneFormIsAcceptedInAll) {
  size_t n_taken = 0;
  for (const auto& [name, source] : all_templates()) {
    const ChatTemplate chat = made(source);
    for (const bool has_calls : {false, true}) {
      // Whether the template accepts such histories, and prints all their contents.
      bool takes = true, prints = true;
      for (uint32_t seed = 0; seed < 24 && takes; ++seed) {
        const Drawn drawn = Drawer(seed, true, has_calls).draw();
        const Got got = render(chat, history(drawn.messages), has_calls ? kTools : "");
        takes = got.is_good;
        prints = prints && takes && has_all(got.text, drawn.contents);
      }
      for (uint32_t seed = 100; seed < 160 && takes; ++seed) {
        const Drawn drawn = Drawer(seed, false, has_calls).draw();
        const Got got = render(chat, history(drawn.messages), has_calls ? kTools : "");
        ASSERT_TRUE(got.is_good) << name << ": " << history(drawn.messages) << "\n" << got.text;
        if (prints) {
          ASSERT_TRUE(has_all(got.text, drawn.contents)) << name << ": " << history(drawn.messages) << "\n" << got.text;
        }
        ++n_taken;
      }
    }
  }
  EXPECT_GT(n_taken, 2000u);
}

TEST(TemplateHistories, ToolsMayLackWhatIsOptional) {
  const auto tool = [](const std::string& members) {
    return R"([{"type":"function","function":{"name":"ff")" + (members.empty() ? "" : "," + members) + "}}]";
  };
  const auto properties = [&](const std::string& list) {
    return tool(R"("description":"d","parameters":{"type":"object","properties":)" + list + "}");
  };
  const std::vector<std::string> tools = {
      tool(""),
      tool(R"("description":"d")"),
      tool(R"("description":null,"parameters":null,"strict":null)"),
      tool(R"("description":"d","parameters":{})"),
      tool(R"("description":"d","parameters":{"type":"object"})"),
      tool(R"("parameters":{"properties":{"a":{"type":"string"}}})"),
      R"([{"function":{"name":"ff"}}])",
      properties(R"({"a":{},"b":true})"),
      properties(R"({"a":{"anyOf":[{"type":"string"},{"type":"null"}]},"b":{"$ref":"#/x"},"c":{"enum":["x",null]}})"),
      properties(R"({"a":{"type":["string","null"],"description":null},"b":{"type":"null"},"c":{"type":null}})"),
      properties(
          R"({"a":{"type":"object","properties":{"b":{}}},"c":{"type":"array","items":{}},"d":{"type":"array"}})"),
      properties(R"({"a":{"type":"string","enum":["x"],"default":null},"b":{"const":3}})")};
  for (const auto& [name, source] : all_templates()) {
    const ChatTemplate chat = made(source);
    const Got whole = render(chat, history({kUser}), kTools);
    if (!whole.is_good) continue;  // it refuses tools of any form
    for (const std::string& list : tools) {
      const Got got = render(chat, history({kUser}), list);
      ASSERT_TRUE(got.is_good) << name << ": " << list << "\n" << got.text;
    }
  }
}

// A template's own words, and parts of them.
std::set<std::string> pieces_of(const std::string& source) {
  std::set<std::string> pieces = {"<", "|", "i", "end", "_", "Hello", "a b", "x\n\ny"};
  for (const char quote : {'\'', '"'}) {
    for (size_t begin = source.find(quote); begin != std::string::npos;) {
      const size_t end = source.find(quote, begin + 1);
      if (end == std::string::npos) break;
      std::string word = source.substr(begin + 1, end - begin - 1);
      for (size_t at = 0; (at = word.find("\\n", at)) != std::string::npos; ++at) word.replace(at, 2, "\n");
      if (word.size() < 60) {
        for (size_t n = 1; n <= std::min<size_t>(word.size(), 8); ++n)
          pieces.insert(word.substr(0, n)), pieces.insert(word.substr(word.size() - n));
        pieces.insert(word);
      }
      begin = source.find(quote, end + 1);
    }
  }
  return pieces;
}

std::string trimmed(const std::string& s) {
  const size_t begin = s.find_first_not_of(" \t\r\n"), end = s.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : s.substr(begin, end + 1 - begin);
}

bool is_blank_start(const std::string& s) { return s.empty() || trimmed(s).front() != s.front(); }

TEST(TemplateHistories, AnswerGoesOnWhereTheMessageEndsWhateverItsText) {
  size_t n_tried = 0;
  for (const auto& [name, source] : all_templates()) {
    const ChatTemplate chat = made(source);
    const std::string user = said("user", "\"Quux\"");
    const Got plain = render(chat, history({user, said("assistant", "\"zqzq\"")}), "", true);
    if (!plain.is_good) continue;
    ASSERT_TRUE(plain.text.ends_with("zqzq")) << name << ": " << plain.text;
    const std::string before = plain.text.substr(0, plain.text.size() - 4);
    for (const std::string& piece : pieces_of(source)) {
      if (trimmed(piece).empty() || !utf8::is_valid(piece)) continue;
      const Got got = render(chat, history({user, said("assistant", json_of(piece))}), "", true);
      const std::string kept = piece.substr(0, piece.find_last_not_of(" \t\r\n") + 1);
      const bool is_right = got.text == before + trimmed(piece) || (is_blank_start(piece) && got.text == before + kept);
      ASSERT_TRUE(got.is_good && is_right)
          << name << ": " << json_of(piece) << " gives " << got.text << "\nbehind " << before;
      ++n_tried;
    }
    // An empty assistant message is the same as none: the prompt asks for an answer.
    for (const char* nothing : {"\"\"", "null", "\" \\n\""})
      EXPECT_EQ(render(chat, history({user, said("assistant", nothing)}), "", true).text,
                render(chat, history({user})).text);
  }
  EXPECT_GT(n_tried, 2000u);
}

const std::string& shape(const std::string& name) {
  for (const auto& [known, source] : kShapes)
    if (known == name) return source;
  ADD_FAILURE() << name;
  return kShapes[0].second;
}

TEST(TemplateHistories, AReasoningGoesOnToo) {
  const ChatTemplate chat = made(shape("reasons"));
  const auto end_of = [&](const std::string& last) {
    const std::string text = render(chat, history({kUser, last}), "", true).text;
    return text.substr(text.find("assistant\n") + 10);
  };
  EXPECT_EQ(end_of(said("assistant", "\"\"", R"(,"reasoning_content":"Let me")")), "<think>\nLet me");
  EXPECT_EQ(end_of(said("assistant", "null", R"(,"reasoning":"</think>")")), "<think>\n</think>");
  EXPECT_EQ(end_of(said("assistant", "\"So\"", R"(,"reasoning_content":"I see")")), "<think>\nI see\n</think>\n\nSo");
  EXPECT_EQ(end_of(said("assistant", R"("<think>\nI see\n</think>\n\nSo")")), "<think>\nI see\n</think>\n\nSo");
  EXPECT_EQ(end_of(said("assistant", "\"</think>\"")), "<think>\n\n</think>\n\n</think>");
  // With a template without reasoning, the model starts its answer.
  const ChatTemplate other = made(shape("system first or not at all"));
  const std::string last = said("assistant", "\"\"", R"(,"reasoning_content":"Let me")");
  EXPECT_EQ(render(other, history({kUser, last}), "", true).text, render(other, history({kUser})).text);
}

TEST(TemplateHistories, SystemMessagesStandWhereTheTemplateTakesThem) {
  const std::string s1 = said("system", "\"S1\""), s2 = said("developer", "\"S2\"");
  const std::string later = history({s1, kUser, kYes, s2, kUser}), second = history({s1, s2, kUser});
  const auto text = [](const std::string& name, const std::string& messages) {
    return render(made(shape(name)), messages).text;
  };
  EXPECT_EQ(text("no system, turns alternate", later),
            "<user>S1\n\nS2\n\nHi<end><assistant>Yes<end><user>Hi<end><assistant>");
  EXPECT_EQ(text("no system, turns alternate", second), "<user>S1\n\nS2\n\nHi<end><assistant>");
  EXPECT_EQ(text("one call a message, nobody's system but the first", later),
            "<s>S1\n\nS2<end><user>Hi<end><assistant>Yes<end><user>Hi<end><assistant>");
  EXPECT_EQ(text("system first or not at all", history({kUser, kYes, s2, kUser})),
            "<|im_start|>system\nS2<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  // A template that takes them anywhere gets them there.
  const ChatTemplate chatml = made(std::string(ChatTemplate::kDefaultSource));
  EXPECT_EQ(render(chatml, later).text,
            "<|im_start|>system\nS1<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
            "<|im_start|>system\nS2<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(TemplateHistories, ForeignIdsBecomeShortOnesWhereTheyMustBe) {
  const std::string source = shape("ids of nine letters, turns alternate without calls, one system");
  const ChatTemplate chat = made(source);
  const auto prompt = [&](const std::string& id) {
    return render(chat, history({kUser, said("assistant", "\"\"", calls(call_of("\"{}\"", "\"id\":" + id + ","))),
                                 result("\"res\"", ",\"tool_call_id\":" + id)}))
        .text;
  };
  const std::string text = prompt("\"toolu_0123456789\"");
  const size_t at = text.find("[CALL]f{}");
  ASSERT_NE(at, std::string::npos) << text;
  const std::string id = text.substr(at + 9, 9);
  EXPECT_EQ(text, "[S][INST]Hi[/INST][CALL]f{}" + id + "</s>[RESULT]res" + id);
  EXPECT_EQ(prompt("\"toolu_0123456789\""), text) << "the same id, the same bytes";
  EXPECT_NE(prompt("\"toolu_0123456780\""), text);
  EXPECT_NE(prompt("\"call12345\"").find("call12345"), std::string::npos) << "an id that is taken stays";
  EXPECT_NE(prompt("17").find("[CALL]"), std::string::npos) << "a number is an id";
}

}  // namespace
}  // namespace ibid
