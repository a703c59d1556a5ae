// From an ApiRequest to engine requests, one per prompt: chat template, tokens, stops, biases by text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/state/request.h"
#include "server/fields/api_request.h"
#include "server/request/backend.h"
#include "text/output/answer_parser.h"
#include "text/output/reasoning_budget.h"

namespace ibid {

struct BuiltRequests {
  std::vector<Request> requests;                // without ids
  std::vector<std::string> prompt_texts;        // with echo: what to put before the answer
  std::string rendered;                         // with verbose: the first prompt
  std::optional<AnswerParser::Options> parser;  // of a chat whose answers are more than text
  std::optional<ReasoningMarkers> reasoning;    // of a chat whose model reasons
};

// `tenant` and the request's cache_salt make the salt of its blocks.
Result<BuiltRequests> build_requests(const ApiRequest& api, const Backend& backend, const std::string& tenant);

// What the requests of all prompts have in common: all but the prompt and the salt of its blocks.
Result<Request> build_common(const ApiRequest& api, const Tokenizer& tokenizer);

// A conversation as the template writes it, for the tokenizer's bos and eos.
Result<RenderedPrompt> render_chat(const ChatTemplate& chat, const Tokenizer& tokenizer, const ChatPrompt& prompt);

// The tokens of a rendered conversation.
std::vector<TokenId> encode_chat(const RenderedPrompt& prompt, const Tokenizer& tokenizer,
                                 AddSpecial add_special = AddSpecial::kMissingBos);
std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool special);

}  // namespace ibid
