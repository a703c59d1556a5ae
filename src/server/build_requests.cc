#include "server/build_requests.h"

#include <algorithm>

#include "text/detokenizer.h"
#include "text/stop_matcher.h"

namespace ibid {
namespace {

std::vector<TokenId> encode_plain(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, {}, ids);
  return ids;
}

Status check_id(TokenId id, const Tokenizer& tokenizer, const std::string& where) {
  if (raw(id) >= 0 && raw(id) < tokenizer.vocab_size()) return {};
  return invalid(where + " has the token id " + std::to_string(raw(id)) + "; the model's ids go from 0 to " +
                     std::to_string(tokenizer.vocab_size() - 1) + ".",
                 where);
}

Result<SamplingParams> build_sampling(const ApiRequest& api, const Tokenizer& tokenizer) {
  SamplingParams sampling = api.sampling;
  for (const auto& [id, bias] : sampling.logit_bias) TRY(check_id(id, tokenizer, "logit_bias"));
  for (const TokenId id : sampling.banned) TRY(check_id(id, tokenizer, "logit_bias"));
  for (const TokenId id : sampling.allowed) TRY(check_id(id, tokenizer, "allowed_token_ids"));
  for (const TextBias& item : api.text_bias) {
    for (const TokenId id : encode_plain(tokenizer, item.text)) {
      item.ban ? sampling.banned.push_back(id) : static_cast<void>(sampling.logit_bias.emplace_back(id, item.bias));
    }
  }
  for (const std::string& word : api.bad_words) {
    for (const std::string& form : {word, " " + word}) {
      std::vector<TokenId> ids = encode_plain(tokenizer, form);
      if (!ids.empty()) sampling.banned_sequences.push_back(std::move(ids));
    }
  }
  if (sampling.dry_multiplier > 0) {
    for (const std::string& text : api.dry_breakers) sampling.dry_breakers.push_back(encode_plain(tokenizer, text));
  }
  return sampling;
}

}  // namespace

std::vector<TokenId> encode_chat(const ChatPrompt& prompt, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  tokenizer.encode(prompt.text, {.parse_special = true, .plain_ranges = prompt.plain_ranges}, ids);
  return ids;
}

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool special) {
  // The server owns the tokenizer for as long as it runs; the detokenizer only wants to share it.
  Detokenizer detokenizer(std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), &tokenizer),
                          {.show_special = special});
  std::string text;
  detokenizer.push(ids, text);
  detokenizer.finish(text);
  return text;
}

Result<BuiltRequests> build_requests(const ApiRequest& api, const Backend& backend, const std::string& tenant) {
  const Tokenizer& tokenizer = backend.tokenizer();
  Request common;
  ASSIGN_OR_RETURN(common.sampling, build_sampling(api, tokenizer));
  for (const TokenId id : api.stop_ids) TRY(check_id(id, tokenizer, "stop_token_ids"));
  if (!api.stop.empty() || !api.stop_ids.empty()) {
    Result<std::shared_ptr<const StopSet>> stops = StopSet::compile(api.stop, api.stop_ids, api.include_stop);
    if (!stops) return invalid(stops.error().message, "stop");
    common.stops = *std::move(stops);
  }
  common.n = api.n;
  common.max_tokens = api.max_tokens;
  common.show_special = !api.skip_special_tokens;
  common.prompt_logprobs = api.prompt_logprobs;
  common.priority = api.priority;
  common.tenant_salt = api.cache_salt.empty() ? tenant : tenant + '\n' + api.cache_salt;

  BuiltRequests built;
  if (api.endpoint == Endpoint::kChat) {
    ASSIGN_OR_RETURN(const ChatPrompt prompt,
                     backend.render_chat(api.messages, api.add_generation_prompt, api.template_kwargs));
    built.requests.push_back(common);
    built.requests.back().prompt = encode_chat(prompt, tokenizer);
  }
  for (size_t i = 0; i < api.prompts.size(); ++i) {
    const std::string where = api.prompts.size() == 1 ? "prompt" : "prompt[" + std::to_string(i) + "]";
    built.requests.push_back(common);
    std::vector<TokenId>& ids = built.requests.back().prompt;
    if (const std::string* text = std::get_if<std::string>(&api.prompts[i])) {
      tokenizer.encode(*text, {.add_special = api.add_special_tokens}, ids);
      if (api.echo) built.prompt_texts.push_back(*text);
    } else {
      ids = std::get<std::vector<TokenId>>(api.prompts[i]);
      for (const TokenId id : ids) TRY(check_id(id, tokenizer, where));
      if (api.echo) built.prompt_texts.push_back(decode(tokenizer, ids, true));
    }
    if (ids.empty()) return invalid(where + " has no tokens; it must have at least one.", where);
  }
  return built;
}

}  // namespace ibid
