// Requests that have little in common: endpoint, prompt, every kind of sampling, choices, log-probabilities, stops.
#pragma once

#include <string>
#include <vector>

#include "base/json_writer.h"
#include "bench/load/load_client.h"
#include "bench/load/prompts.h"

namespace ibid::load {

inline std::vector<std::string> prompts_of(size_t n, int n_words, uint64_t seed) {
  return make_prompts({.n_words = n_words, .seed = seed}, n).value();
}

// As JSON members; each exercises another part of the sampler or of the answer.
inline constexpr const char* kVariations[] = {
    R"("temperature":0)",
    R"("temperature":0.7,"top_p":0.9)",
    R"("temperature":1.3,"min_p":0.05)",
    R"("temperature":0.8,"top_k":40,"logprobs":true,"top_logprobs":5)",
    R"("temperature":0.6,"frequency_penalty":0.7,"presence_penalty":0.4)",
    R"("temperature":0.9,"repetition_penalty":1.3,"n":2)",
    R"("temperature":0,"logprobs":true,"top_logprobs":2,"processed_logprobs":true,"logit_bias":{"28":-5,"30":2})",
    R"("temperature":1,"stop":["."," the","\n\n"])",
    R"("temperature":0.7,"stop":[" and"],"include_stop_str_in_output":true,"logprobs":true)",
    R"("temperature":1.1,"typical_p":0.8,"min_tokens":5)",
    R"("temperature":1,"n":3,"logprobs":true,"top_logprobs":1)",
    R"("temperature":0.8,"top_p":0.95,"ignore_eos":true)",
};

// /v1/completions names its log-probabilities otherwise.
inline std::string for_completions(std::string members) {
  for (const char* count : {"5", "2", "1"}) {
    const std::string chat = std::string(R"("logprobs":true,"top_logprobs":)") + count;
    if (const size_t at = members.find(chat); at != std::string::npos)
      members.replace(at, chat.size(), std::string(R"("logprobs":)") + count);
  }
  if (const size_t at = members.find(R"("logprobs":true)"); at != std::string::npos)
    members.replace(at, 15, R"("logprobs":0)");
  return members;
}

// `salt` chooses whose cached prefixes they may use; the answers do not depend on it.
inline std::vector<LoadRequest> varied_requests(size_t n, const std::string& salt) {
  const std::vector<std::string> prompts = *make_prompts({.n_words = 25, .n_shared_words = 8, .seed = 7}, n);
  std::vector<LoadRequest> out;
  for (size_t i = 0; i < n; ++i) {
    const bool chat = i % 3 != 0;
    std::string body;
    JsonWriter json(body);
    json.begin_object();
    if (chat) {
      json.key("messages").begin_array().begin_object().field("role", "user").field("content", prompts[i]);
      json.end_object().end_array();
    } else {
      json.field("prompt", prompts[i]);
    }
    json.field("seed", static_cast<int64_t>(1000 + i)).field("max_tokens", static_cast<int64_t>(6 + i % 13));
    json.key("stream").boolean(true).key("stream_options").raw(R"({"include_usage":true})");
    json.key("return_token_ids").boolean(true).field("cache_salt", salt);
    json.end_object();
    const std::string variation = kVariations[i % std::size(kVariations)];
    body.insert(body.size() - 1, "," + (chat ? variation : for_completions(variation)));
    out.push_back({chat ? "/v1/chat/completions" : "/v1/completions", std::move(body)});
  }
  return out;
}

}  // namespace ibid::load
