// Requests as clients of other servers write them. Each field of theirs is served, known to change nothing, or refused
// by a sentence that names it; none is passed over in silence, and none is our fault.
#include "conformance/server_fixture.h"

namespace ibid {
namespace {

enum Verdict { kServed, kNoEffect, kRefused };

struct Field {
  const char* name;
  const char* value;
  Verdict verdict;
};

// What vLLM's ChatCompletionRequest and CompletionRequest have beside OpenAI's fields.
constexpr Field kVllm[] = {
    {"min_tokens", "1", kServed},
    {"stop_token_ids", "[7]", kServed},
    {"include_stop_str_in_output", "true", kServed},
    {"skip_special_tokens", "false", kServed},
    {"spaces_between_special_tokens", "true", kNoEffect},
    {"prompt_logprobs", "1", kServed},
    {"prompt_logprobs", "-1", kRefused},
    {"top_k", "-1", kServed},
    {"min_p", "0.1", kServed},
    {"repetition_penalty", "1.1", kServed},
    {"allowed_token_ids", "[97,98]", kServed},
    {"bad_words", R"(["no"])", kServed},
    {"ignore_eos", "true", kServed},
    {"truncate_prompt_tokens", "5", kServed},
    {"truncation_side", R"("left")", kServed},
    {"truncation_side", R"("right")", kServed},
    {"truncation_side", R"("middle")", kRefused},
    {"add_special_tokens", "false", kServed},
    {"return_token_ids", "true", kServed},
    {"return_tokens_as_token_ids", "true", kServed},
    {"cache_salt", R"("s")", kServed},
    {"priority", "0", kServed},
    {"priority", "5", kRefused},
    {"request_id", R"("r")", kRefused},
    {"use_beam_search", "false", kServed},
    {"use_beam_search", "true", kServed},
    {"num_beams", "4", kServed},
    {"penalty_alpha", "0.6", kRefused},
    {"length_penalty", "1.0", kServed},
    {"length_penalty", "0.5", kRefused},
    {"early_stopping", "true", kRefused},
    {"detokenize", "false", kRefused},
    {"logits_processors", R"(["x"])", kRefused},
    {"structured_outputs", R"({"regex":"a"})", kServed},
    {"guided_json", R"({"type":"object"})", kServed},
    {"guided_regex", R"("a")", kServed},
    {"guided_choice", R"(["a"])", kServed},
    {"guided_grammar", R"("root ::= x")", kRefused},
    {"kv_transfer_params", R"({"a":1})", kServed},
    {"vllm_xargs", R"({"a":1})", kRefused},
    {"repetition_detection", R"({"max_pattern_size":3})", kRefused},
};
constexpr Field kVllmChat[] = {
    {"add_generation_prompt", "false", kServed},
    {"chat_template_kwargs", R"({"enable_thinking":false})", kServed},
    {"echo", "true", kServed},
    {"continue_final_message", "true", kRefused},
    {"chat_template", R"("{{ 1 }}")", kRefused},
    {"documents", R"([{"title":"t","text":"x"}])", kRefused},
    {"include_reasoning", "false", kServed},
    {"reasoning_effort", R"("high")", kServed},
    {"reasoning_effort", R"("huge")", kRefused},
    {"reasoning_format", R"("deepseek")", kServed},
    {"reasoning_format", R"("none")", kServed},
    {"reasoning_format", R"("deepseek-legacy")", kRefused},
    {"thinking_token_budget", "5", kServed},
    {"thinking_budget", "5", kServed},
    {"reasoning_budget_tokens", "100", kServed},
    {"mm_processor_kwargs", R"({"a":1})", kRefused},
    {"media_io_kwargs", R"({"a":1})", kRefused},
};
constexpr Field kVllmCompletions[] = {
    {"reasoning_format", R"("deepseek")", kRefused},
    {"reasoning_format", R"("auto")", kServed},
    {"echo", "true", kServed},
    {"prompt_embeds", R"("AAAA")", kRefused},
    {"response_format", R"({"type":"json_object"})", kServed},
    {"response_format", R"({"type":"text"})", kServed},
    {"thinking_token_budget", "5", kRefused},
    {"reasoning_budget_tokens", "100", kRefused},
    {"suffix", R"("x")", kRefused},
    {"best_of", "3", kServed},
};
// What llama.cpp's server reads on both of these routes.
constexpr Field kLlama[] = {
    {"n_predict", "4", kServed},
    {"n_cmpl", "2", kServed},
    {"repeat_penalty", "1.1", kServed},
    {"repeat_last_n", "64", kServed},
    {"typical_p", "0.9", kServed},
    {"top_n_sigma", "2", kServed},
    {"mirostat", "2", kServed},
    {"mirostat_tau", "5", kServed},
    {"mirostat_eta", "0.1", kServed},
    {"dry_multiplier", "0.8", kServed},
    {"dry_base", "1.75", kServed},
    {"dry_allowed_length", "2", kServed},
    {"dry_penalty_last_n", "-1", kServed},
    {"dry_sequence_breakers", R"(["\n"])", kServed},
    {"xtc_probability", "0.1", kServed},
    {"xtc_threshold", "0.2", kServed},
    {"dynatemp_range", "0.5", kServed},
    {"dynatemp_exponent", "1", kServed},
    {"n_probs", "2", kServed},
    {"seed", "-1", kServed},
    {"logit_bias", "[[97,0.5],[98,false]]", kServed},
    {"cache_prompt", "true", kNoEffect},
    {"cache_prompt", "false", kNoEffect},
    {"id_slot", "0", kNoEffect},
    {"n_keep", "5", kNoEffect},
    {"n_discard", "5", kNoEffect},
    {"n_cache_reuse", "256", kNoEffect},
    {"backend_sampling", "true", kNoEffect},
    {"speculative.n_max", "8", kServed},
    {"speculative.n_min", "1", kNoEffect},
    {"speculative.p_min", "0.5", kNoEffect},
    {"verbose", "true", kServed},
    {"samplers", R"(["top_k","temperature"])", kServed},
    {"timings_per_token", "true", kServed},
    {"return_progress", "true", kServed},
    {"return_tokens", "true", kRefused},
    {"t_max_predict_ms", "100", kServed},
    {"t_max_predict_ms", "-1", kServed},
    {"post_sampling_probs", "true", kRefused},
    {"min_keep", "3", kRefused},
    {"n_indent", "2", kServed},
    {"lora", R"([{"id":0,"scale":0.5}])", kRefused},
    {"grammar", R"("root ::= x")", kRefused},
    {"grammar_lazy", "true", kServed},
    {"grammar_triggers", R"([{"type":1,"value":"x"}])", kServed},
    {"grammar_triggers", R"([{"type":2,"value":"x|y"}])", kServed},
    {"grammar_triggers", R"([{"type":4,"value":"x"}])", kRefused},
    {"preserved_tokens", R"(["x"])", kNoEffect},
    {"json_schema", R"({"type":"object"})", kServed},
    {"response_fields", R"(["content"])", kNoEffect},
    {"adaptive_target", "0.5", kRefused},
    {"adaptive_decay", "0.9", kNoEffect},
};

void check(const char* path, std::span<const Field> fields) {
  TestServer server;
  RawClient client(server.port());
  const bool is_chat = std::string_view(path).find("chat") != std::string_view::npos;
  const Result<Json> api = parse_json(client.get("/openapi.json").body);
  const Json* known =
      api->find("components")->find("schemas")->find(is_chat ? "ChatRequest" : "CompletionRequest")->find("properties");
  const std::string ask = is_chat ? R"({"messages":[{"role":"user","content":"hello"}])" : R"({"prompt":"hello")";
  for (const Field& field : fields) {
    const std::string body = ask + ",\"max_tokens\":4,\"" + field.name + "\":" + field.value + "}";
    const HttpAnswer a = client.post(path, body);
    EXPECT_EQ(a.status, field.verdict == kRefused ? 400 : 200) << body << a.body;
    const Json* told = known->find(field.name);
    if (told == nullptr) {
      ADD_FAILURE() << path << " knows no " << field.name;
      continue;
    }
    const bool no_effect = told->find("description")->string()->starts_with("Accepted, without effect");
    EXPECT_EQ(no_effect, field.verdict == kNoEffect) << field.name;
    if (field.verdict != kRefused) continue;
    EXPECT_TRUE(error_param(a).starts_with(field.name)) << a.body;
    const Result<Json> error = parse_json(a.body);
    EXPECT_NE(error->find("error")->find("message")->string()->find(field.name), std::string::npos) << a.body;
  }
}

TEST(ServerDialects, VllmsFieldsOfChat) {
  check("/v1/chat/completions", kVllm);
  check("/v1/chat/completions", kVllmChat);
}

TEST(ServerDialects, VllmsFieldsOfCompletions) {
  check("/v1/completions", kVllm);
  check("/v1/completions", kVllmCompletions);
}

TEST(ServerDialects, LlamaCppsFieldsOfBothRoutes) {
  check("/v1/chat/completions", kLlama);
  check("/v1/completions", kLlama);
}

// What OpenAI's own client may send and what has no meaning here.
TEST(ServerDialects, OpenAisFieldsWithoutEffectHere) {
  constexpr Field kFields[] = {
      {"service_tier", R"("flex")", kNoEffect},
      {"verbosity", R"("low")", kNoEffect},
      {"store", "true", kNoEffect},
      {"user", R"("me")", kNoEffect},
      {"metadata", R"({"k":"v"})", kNoEffect},
      {"safety_identifier", R"("x")", kNoEffect},
      {"prompt_cache_key", R"("x")", kNoEffect},
      {"prompt_cache_retention", R"("24h")", kNoEffect},
      {"prompt_cache_options", R"({"a":1})", kNoEffect},
      {"prediction", R"({"type":"content","content":"x"})", kServed},
      {"parallel_tool_calls", "false", kServed},
  };
  check("/v1/chat/completions", kFields);
}

// Whole requests as these servers' own clients write them, in one piece.
TEST(ServerDialects, WholeRequestsOfOtherClients) {
  TestServer server;
  RawClient client(server.port());
  const HttpAnswer vllm = client.post(
      "/v1/completions",
      R"({"model":"fake-1","prompt":["ab",[99,100]],"max_tokens":4,"n":2,"best_of":null,"stream":true,"echo":true,)"
      R"("stream_options":{"include_usage":true,"continuous_usage_stats":true},"temperature":0.0,"top_p":1.0,"top_k":-1,)"
      R"("min_p":0.0,"repetition_penalty":1.0,"length_penalty":1.0,"stop":[],"stop_token_ids":[],"ignore_eos":false,)"
      R"("min_tokens":0,"skip_special_tokens":true,"spaces_between_special_tokens":true,"truncate_prompt_tokens":null,)"
      R"("allowed_token_ids":null,"prompt_logprobs":null,"add_special_tokens":true,"seed":3,"logprobs":2})");
  EXPECT_EQ(vllm.status, 200) << vllm.body;
  EXPECT_TRUE(read_events(vllm.body).done) << vllm.body;
  EXPECT_EQ(read_events(vllm.body, 1).text, "ab" + FakeBackend::answer("ab", 4, 4));
  const HttpAnswer llama = client.post(
      "/v1/chat/completions",
      chat_body(
          "x",
          R"("n_predict":6,"temperature":0.8,"dynatemp_range":0,"dynatemp_exponent":1,"top_k":40,"top_p":0.95,)"
          R"("min_p":0.05,"xtc_probability":0,"xtc_threshold":0.1,"typical_p":1,"repeat_last_n":64,"repeat_penalty":1,)"
          R"("presence_penalty":0,"frequency_penalty":0,"dry_multiplier":0,"dry_base":1.75,"dry_allowed_length":2,)"
          R"("dry_penalty_last_n":-1,"mirostat":0,"mirostat_tau":5,"mirostat_eta":0.1,"stop":[],"n_keep":0,"n_probs":0,)"
          R"("id_slot":-1,"cache_prompt":true,"seed":4,"logit_bias":[],"min_keep":0,"timings_per_token":false,)"
          R"("post_sampling_probs":false,"return_tokens":false,"reasoning_format":"auto","lora":[],"stream":false)"));
  EXPECT_EQ(llama.status, 200) << llama.body;
  EXPECT_EQ(content_of(llama), FakeBackend::answer(FakeBackend::chat_prompt("x"), 4, 6));
}

}  // namespace
}  // namespace ibid
