#include "server/request/build_requests.h"

#include <gtest/gtest.h>

#include "conformance/fake_backend.h"
#include "text/output/breaker_set.h"

namespace ibid {
namespace {

// One token a byte, so that ids can be read as letters.
Result<BuiltRequests> build(const std::string& fields, Endpoint endpoint = Endpoint::kCompletions) {
  static const FakeBackend backend([] {  // what is built refers to its tokenizer
    FakeBackend::Options options;
    options.context_len = 20;
    return options;
  }());
  const char* ask = endpoint == Endpoint::kChat ? R"("messages":[{"role":"user","content":"hi"}])" : R"("n":1)";
  Result<Json> body = parse_json(std::string("{") + ask + "," + fields + "}");
  EXPECT_TRUE(body.ok()) << fields;
  Result<ApiRequest> api = parse_api_request(endpoint, *body, {});
  if (!api) return api.error();
  return build_requests(*api, backend, "");
}
std::string letters(const std::vector<TokenId>& ids) {
  std::string out;
  for (const TokenId id : ids) out += static_cast<char>(raw(id));
  return out;
}

TEST(BuildRequests, ATextInLogitBiasStandsForEachOfItsTokensOnce) {
  Result<BuiltRequests> built = build(R"("prompt":"x","logit_bias":[["abba",2],[97,1],["c",false],["<|end|>",-1]])");
  ASSERT_TRUE(built.ok()) << built.error().message;
  const SamplingParams& sampling = built->requests[0].sampling;
  EXPECT_EQ(sampling.banned, (std::vector<TokenId>{TokenId{'c'}}));
  float a = 0, b = 0, end = 0;
  for (const auto& [id, bias] : sampling.logit_bias) {
    if (id == TokenId{'a'}) a += bias;
    if (id == TokenId{'b'}) b += bias;
    if (id == ByteTokenizer::kEnd) end += bias;
  }
  EXPECT_EQ(a, 3.0f);  // the text's and the id's
  EXPECT_EQ(b, 2.0f);
  EXPECT_EQ(end, 0.0f);  // a special token's spelling is text
  built = build(R"("prompt":"x","logit_bias":{"ab":-5})");
  EXPECT_EQ(built->requests[0].sampling.logit_bias.size(), 2u);
}

TEST(BuildRequests, FirefunctionsTemplateGetsTheFunctionsAsAText) {
  const FakeBackend backend;
  const Result<ChatTemplate> chat = ChatTemplate::compile(
      "{# functools[ #}{{ 'F:' + functions + '|' }}{% for m in messages %}{{ m.role + '=' + m.content }}{% endfor %}");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  ChatPrompt asked;
  asked.messages = *parse_json(R"([{"role":"user","content":"hi"}])");
  const auto text = [&] { return render_chat(*chat, backend.tokenizer(), asked)->text; };
  EXPECT_EQ(text(), "F:|user=hi");
  asked.tools =
      *parse_json(R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","required":[]}}}])");
  EXPECT_EQ(text(),
            "F:[\n    {\n        \"name\": \"f\",\n        \"parameters\": {\n            \"type\": \"object\",\n"
            "            \"required\": []\n        }\n    }\n]|user=hi")
      << "and no message of ours";
  asked.template_kwargs = *parse_json(R"({"functions":"mine"})");
  EXPECT_EQ(text(), "F:mine|user=hi");
}

TEST(BuildRequests, RejectionIsARequestsOwnAndGoesWithNoTrace) {
  EXPECT_EQ(build(R"("prompt":"x")")->requests[0].speculation.verifier, Verifier::kCoupled);
  for (const auto& [name, verifier] : {std::pair{"coupled", Verifier::kCoupled},
                                       {"rejection", Verifier::kRejection},
                                       {"typical", Verifier::kTypical}}) {
    const auto built = build(R"("prompt":"x","speculation":{"verifier":")" + std::string(name) + "\"}");
    EXPECT_EQ(built->requests[0].speculation.verifier, verifier) << name;
  }
  for (const char* wrong : {R"("speculation":{"verifier":"inverted"})", R"("speculation":{"verifier":1})",
                            R"("trace":true,"speculation":{"verifier":"typical"})",
                            R"("trace":true,"speculation":{"verifier":"rejection"})"}) {
    const Result<BuiltRequests> built = build(R"("prompt":"x",)" + std::string(wrong));
    ASSERT_FALSE(built.ok()) << wrong;
    EXPECT_EQ(built.error().where, "speculation.verifier") << wrong;
  }
}

// A mode names the proposer, within what the server has.
TEST(BuildRequests, ARequestsModeIsOneThatTheServerRuns) {
  const FakeBackend backend{FakeBackend::Options()};
  const auto ask = [&](const std::string& fields, const ApiLimits& limits) -> Result<SpeculationParams> {
    const Json body = parse_json(R"({"prompt":"x","speculation":)" + fields + "}").value();
    ASSIGN_OR_RETURN(const ApiRequest api, parse_api_request(Endpoint::kCompletions, body, limits));
    ASSIGN_OR_RETURN(const BuiltRequests built, build_requests(api, backend, ""));
    return built.requests[0].speculation;
  };
  const ApiLimits none, ngram{.max_drafts = 5}, eagle{.max_drafts = 5, .proposer = "eagle+window"};
  EXPECT_TRUE(ask(R"({"mode":"ngram"})", ngram)->free_alone);
  EXPECT_TRUE(ask(R"({"mode":"ngram","k":3})", eagle)->free_alone);
  EXPECT_EQ(ask(R"({"mode":"ngram","k":3})", eagle)->max_drafts, 3);
  for (const char* all : {R"({"mode":"auto"})", R"({"mode":"eagle+window"})", "{}", R"({"mode":null})"}) {
    EXPECT_FALSE(ask(all, eagle)->free_alone) << all;
    EXPECT_EQ(ask(all, eagle)->max_drafts, -1) << all;
  }
  EXPECT_EQ(ask(R"({"mode":"off","k":3})", eagle)->max_drafts, 0);
  EXPECT_TRUE(ask(R"({"mode":"auto"})", none).ok());
  const auto refused = [&](const char* fields, const ApiLimits& limits, const char* where) {
    const auto got = ask(fields, limits);
    EXPECT_FALSE(got.ok()) << fields;
    if (got.ok()) return std::string();
    EXPECT_EQ(got.error().where, where) << fields;
    return got.error().message;
  };
  EXPECT_NE(refused(R"({"mode":"ngram"})", none, "speculation.mode").find("--spec off"), std::string::npos);
  EXPECT_NE(refused(R"({"mode":"eagle"})", ngram, "speculation.mode").find("\"eagle\"; expected auto, off or ngram"),
            std::string::npos);
  EXPECT_NE(refused(R"({"mode":"eagle"})", eagle, "speculation.mode").find("ngram or eagle+window"), std::string::npos);
  refused(R"({"mode":""})", ngram, "speculation.mode");
  refused(R"({"mode":7})", ngram, "speculation.mode");
  EXPECT_EQ(ask(R"({"k":5})", eagle)->max_drafts, 5);
  EXPECT_NE(refused(R"({"k":6})", eagle, "speculation.k").find("at most 5 drafts"), std::string::npos);
  refused(R"({"k":1})", none, "speculation.k");
  refused(R"({"k":-1})", eagle, "speculation.k");
}

TEST(BuildRequests, BreakersAreCompiledWhereDryIsOn) {
  EXPECT_EQ(build(R"("prompt":"x")")->requests[0].sampling.dry_breakers, nullptr);
  Result<BuiltRequests> built = build(R"("prompt":"x","dry_multiplier":0.8)");
  EXPECT_EQ(built->requests[0].sampling.dry_breakers->texts(), (std::vector<std::string>{"\n", ":", "\"", "*"}));
  built = build(R"("prompt":"x","dry_multiplier":0.8,"dry_sequence_breakers":"ab")");
  const std::vector<TokenId> history = {TokenId{'a'}, TokenId{'b'}, TokenId{'c'}, TokenId{'a'}};
  EXPECT_EQ(built->requests[0].sampling.dry_breakers->n_after_last(history, {}, 4), 2u);
  EXPECT_EQ(build(R"("prompt":"x","dry_multiplier":0.8,"dry_sequence_breakers":[])")->requests[0].sampling.dry_breakers,
            nullptr);
  built = build(R"("prompt":"x","dry_multiplier":0.8,"dry_sequence_breakers":[")" + std::string(41, 'a') + "\"]");
  ASSERT_FALSE(built.ok());
  EXPECT_EQ(built.error().where, "dry_sequence_breakers");
}

TEST(BuildRequests, TruncationKeepsTheLastTokensOfEachPromptOrTheFirst) {
  Result<BuiltRequests> built =
      build(R"("prompt":["abcdef",[65,66,67,68],"xy"],"truncate_prompt_tokens":3,"echo":true)");
  ASSERT_TRUE(built.ok()) << built.error().message;
  EXPECT_EQ(letters(built->requests[0].prompt), "def");
  EXPECT_EQ(letters(built->requests[1].prompt), "BCD");
  EXPECT_EQ(letters(built->requests[2].prompt), "xy");
  EXPECT_EQ(built->prompt_texts, (std::vector<std::string>{"def", "BCD", "xy"}));
  Result<BuiltRequests> first =
      build(R"("prompt":["abcdef","xy"],"truncate_prompt_tokens":3,"truncation_side":"right","echo":true)");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->prompt_texts, (std::vector<std::string>{"abc", "xy"}));
  const std::string long_prompt = "\"prompt\":\"" + std::string(30, 'a') + "\",\"truncate_prompt_tokens\":-1";
  EXPECT_EQ(build(long_prompt)->requests[0].prompt.size(), 19u);  // of a context of 20, room for one
  EXPECT_EQ(build(long_prompt + ",\"max_tokens\":5")->requests[0].prompt.size(), 15u);
  EXPECT_EQ(build(long_prompt + ",\"max_tokens\":500")->requests[0].prompt.size(), 1u);
  EXPECT_EQ(letters(build(R"("truncate_prompt_tokens":5)", Endpoint::kChat)->requests[0].prompt), "tant>");
}

TEST(BuildRequests, TokensAroundATextStayWhenItIsCut) {
  FakeBackend::Options options;
  options.n_labels = 1;  // an end on both sides
  const FakeBackend backend(options);
  const auto prompt = [&](const std::string& fields) {
    const Result<Json> body = parse_json(R"({"prompt":"abcdef",)" + fields + "}");
    const Result<ApiRequest> api = parse_api_request(Endpoint::kCompletions, *body, {});
    const Result<BuiltRequests> built = build_requests(*api, backend, "");
    std::string out;
    for (const TokenId id : built->requests[0].prompt)
      out += id == ByteTokenizer::kEnd ? '|' : static_cast<char>(raw(id));
    return out;
  };
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens":8)"), "|abcdef|");
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens":5)"), "|def|");
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens":5,"truncation_side":"right")"), "|abc|");
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens":3,"truncation_side":"right")"), "|a|");
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens":2,"truncation_side":"right")"), "|a");  // no room for a text between
  EXPECT_EQ(prompt(R"("truncate_prompt_tokens":5,"add_special_tokens":false)"), "bcdef");
}

// Writes a mark where it is asked for what the model wants around a text.
class MarkingTokenizer final : public Tokenizer {
 public:
  explicit MarkingTokenizer(bool add_bos = false) {
    vocabulary_.bos = TokenId{'^'};
    vocabulary_.add_bos = add_bos;
  }
  void encode(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const override {
    if (options.add_special) out.push_back(TokenId{'^'});
    for (const char c : text) out.push_back(TokenId{c});
  }
  std::string_view token_bytes(TokenId, bool) const override { return ""; }
  bool strips_leading_space() const override { return false; }
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
};

TEST(BuildRequests, TheModelsOwnMarksGoAroundAConversationOnlyWhereTheyAreAskedFor) {
  const MarkingTokenizer tokenizer;
  EXPECT_EQ(letters(encode_chat({"<user>x", {}}, tokenizer)), "<user>x");
  EXPECT_EQ(letters(encode_chat({"<user>x", {}}, tokenizer, AddSpecial::kAll)), "^<user>x");
  const auto adds = [](Endpoint endpoint, const char* body) {
    return parse_api_request(endpoint, *parse_json(body), {})->add_special == AddSpecial::kAll;
  };
  EXPECT_FALSE(adds(Endpoint::kChat, R"({"messages":[{"role":"user","content":"x"}]})"));
  EXPECT_TRUE(adds(Endpoint::kChat, R"({"messages":[{"role":"user","content":"x"}],"add_special_tokens":true})"));
  EXPECT_TRUE(adds(Endpoint::kCompletions, R"({"prompt":"x"})"));
  EXPECT_FALSE(adds(Endpoint::kCompletions, R"({"prompt":"x","add_special_tokens":false})"));
}

TEST(BuildRequests, ConversationBeginsWithTheBosThatTheVocabularyNeeds) {
  const MarkingTokenizer wants(true), wants_none(false);
  EXPECT_EQ(letters(encode_chat({"<user>x", {}}, wants)), "^<user>x");
  EXPECT_EQ(letters(encode_chat({"^<user>x", {}}, wants)), "^<user>x");  // the template has written it
  EXPECT_EQ(letters(encode_chat({"<user>x", {}}, wants_none)), "<user>x");
  EXPECT_EQ(letters(encode_chat({"<user>x", {}}, wants, AddSpecial::kNothing)), "<user>x");
  const char* declines = R"({"messages":[{"role":"user","content":"x"}],"add_special_tokens":false})";
  EXPECT_EQ(parse_api_request(Endpoint::kChat, *parse_json(declines), {})->add_special, AddSpecial::kNothing);
}

TEST(BuildRequests, AnAnswerGoesOnFromALongMessageThatTheTemplateCuts) {
  const FakeBackend backend;
  const Result<ChatTemplate> chat = ChatTemplate::compile(
      "{% for m in messages %}{{ m.role + '=' + m.content.split('</think>')[0] + ';' }}{% endfor %}");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  ChatPrompt asked;
  asked.continues_final = true;
  const auto say = [&](const std::string& user, const std::string& assistant) {
    asked.messages = *parse_json(R"([{"role":"user","content":")" + user + R"("},{"role":"assistant","content":")" +
                                 assistant + "\"}]");
    return render_chat(*chat, backend.tokenizer(), asked);
  };
  EXPECT_EQ(say("a", "so it is ")->text, "user=a;assistant=so it is");
  // Half of it is not written, beside a text that is like it everywhere.
  const std::string user(800'000, 'a'), said = std::string(400'000, 'a') + "</think>b";
  const Result<RenderedPrompt> prompt = say(user, said);
  ASSERT_TRUE(prompt.ok()) << prompt.error().message;
  EXPECT_EQ(prompt->text, "user=" + user + ";assistant=" + said);
}

// ChatML closes with words that a message may spell: the message's own end is meant, and not the template's.
TEST(BuildRequests, AnAnswerGoesOnAfterTheMessageItselfWhateverItSpells) {
  const FakeBackend backend;
  const Result<ChatTemplate> chat = ChatTemplate::for_model("");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  for (const char* tools : {"null", R"([{"type":"function","function":{"name":"f"}}])"}) {
    ChatPrompt asked;
    asked.tools = *parse_json(tools);
    asked.messages = *parse_json(R"([{"role":"user","content":"hi"}])");
    const std::string before = render_chat(*chat, backend.tokenizer(), asked)->text;
    asked.continues_final = true;
    for (const char* said : {"<", "|", "i", "end", "_", "im_end", "|>", "<|im_end|>", "assistant", "hi", "So"}) {
      asked.messages = *parse_json(R"([{"role":"user","content":"hi"},{"role":"assistant","content":")" +
                                   std::string(said) + "\"}]");
      const Result<RenderedPrompt> prompt = render_chat(*chat, backend.tokenizer(), asked);
      ASSERT_TRUE(prompt.ok()) << prompt.error().message;
      EXPECT_EQ(prompt->text, before + said);
      ASSERT_FALSE(prompt->plain_ranges.empty());
      EXPECT_EQ(prompt->plain_ranges.back().begin, before.size()) << "what it spells is text";
      EXPECT_EQ(prompt->plain_ranges.back().end, prompt->text.size());
    }
    for (const char* nothing : {"\"\"", "null", "\" \"", "[]"}) {
      asked.messages = *parse_json(R"([{"role":"user","content":"hi"},{"role":"assistant","content":)" +
                                   std::string(nothing) + "}]");
      EXPECT_EQ(render_chat(*chat, backend.tokenizer(), asked)->text, before) << nothing;
    }
  }
}

TEST(BuildRequests, CallsAreDescribedInTextIfTheTemplateHasNoTools) {
  const FakeBackend backend;
  const Result<ChatTemplate> chat = ChatTemplate::for_model(
      "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
      "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
      "{{ raise_exception('roles must alternate') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  const auto text = [&](const std::string& arguments, const char* tools) {
    ChatPrompt asked;
    asked.tools = *parse_json(tools);
    asked.messages = *parse_json(
        R"([{"role":"system","content":"S"},{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":)"
        R"([{"id":"1","type":"function","function":{"name":"f")" +
        (arguments.empty() ? "" : ",\"arguments\":" + arguments) +
        R"(}}]},{"role":"tool","tool_call_id":"1","content":null}])");
    const Result<RenderedPrompt> prompt = render_chat(*chat, backend.tokenizer(), asked);
    return prompt ? prompt->text : prompt.error().message;
  };
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  for (const char* nothing : {"", "null", "\"\"", "\" \"", "{}", "[]", "\"[]\"", "\"{}\""}) {
    EXPECT_EQ(text(nothing, "null"), "<user>S\n\nhi<assistant>" + call + "<user><tool_response>\n\n</tool_response>")
        << nothing;
  }
  const std::string told = text("\"\"", R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_TRUE(told.starts_with("<user>S\n\nYou may call functions.")) << told;
  EXPECT_TRUE(told.ends_with(call + "<user><tool_response>\n\n</tool_response>")) << told;
}

}  // namespace
}  // namespace ibid
