#include "server/request/build_requests.h"

#include <algorithm>

#include "server/request/build_grammar.h"
#include "server/request/picture_reader.h"
#include "server/request/tool_grammar.h"
#include "server/request/tools.h"
#include "spec/lookup/lookup_proposer.h"
#include "text/output/answer_stops.h"
#include "text/output/breaker_set.h"
#include "text/output/detokenizer.h"
#include "text/output/markers.h"
#include "text/output/stop_matcher.h"

namespace ibid {
namespace {

constexpr size_t kMaxPrediction = LookupProposer::kReadEachStep;  // tokens; more are not looked at

std::vector<TokenId> encode_plain(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, {}, ids);
  return ids;
}

// The server owns the tokenizer for as long as it runs; some who read it only want to share it.
std::shared_ptr<const Tokenizer> shared(const Tokenizer& tokenizer) { return {std::shared_ptr<void>(), &tokenizer}; }

Status check_id(TokenId id, const Tokenizer& tokenizer, const std::string& where) {
  if (raw(id) >= 0 && raw(id) < tokenizer.vocab_size()) return {};
  return invalid(where + " has the token id " + std::to_string(raw(id)) + ", which is out of vocabulary (" +
                     std::to_string(tokenizer.vocab_size()) + " tokens); the model's ids go from 0 to " +
                     std::to_string(tokenizer.vocab_size() - 1) + ".",
                 where);
}

Result<SamplingParams> build_sampling(const ApiRequest& api, const Tokenizer& tokenizer) {
  SamplingParams sampling = api.sampling;
  for (const auto& [id, bias] : sampling.logit_bias) TRY(check_id(id, tokenizer, "logit_bias"));
  for (const TokenId id : sampling.banned) TRY(check_id(id, tokenizer, "logit_bias"));
  for (const TokenId id : sampling.logprob_tokens) TRY(check_id(id, tokenizer, "logprob_token_ids"));
  for (const TokenId id : sampling.allowed) TRY(check_id(id, tokenizer, "allowed_token_ids"));
  for (const TextBias& item : api.text_bias) {
    // Each of the text's tokens once, also where the text has it twice.
    std::vector<TokenId> ids = encode_plain(tokenizer, item.text);
    std::ranges::sort(ids);
    const auto repeated = std::ranges::unique(ids);
    ids.erase(repeated.begin(), repeated.end());
    for (const TokenId id : ids) {
      item.ban ? sampling.banned.push_back(id) : static_cast<void>(sampling.logit_bias.emplace_back(id, item.bias));
    }
  }
  for (const std::string& word : api.bad_words) {
    for (const std::string& form : {word, " " + word}) {
      std::vector<TokenId> ids = encode_plain(tokenizer, form);
      if (!ids.empty()) sampling.banned_sequences.push_back(std::move(ids));
    }
  }
  if (sampling.dry_multiplier > 0 && !api.dry_breakers.empty()) {
    Result<std::shared_ptr<const BreakerSet>> breakers = BreakerSet::compile(api.dry_breakers, shared(tokenizer));
    if (!breakers) return invalid(breakers.error().message, "dry_sequence_breakers");
    sampling.dry_breakers = *std::move(breakers);
  }
  return sampling;
}

// Keeps the last tokens, or the first, as many as the request asks for. True where something was dropped. Of
// `around`, which the tokenizer put before and after the text ([CLS] and [SEP], or a BOS), all stays.
bool truncate(const ApiRequest& api, int32_t context, std::span<const TokenId> around, std::vector<TokenId>& ids) {
  if (api.truncate_prompt == 0) return false;
  const int32_t room = context - (api.max_tokens < 0 ? 1 : std::min(api.max_tokens, context - 1));
  const auto keep = static_cast<size_t>(api.truncate_prompt > 0 ? api.truncate_prompt : room);
  if (ids.size() <= keep) return false;
  if (keep <= around.size()) around = {};
  const std::span<const TokenId> all = ids;
  size_t n_before = around.size();
  while (n_before > 0 && !std::ranges::equal(all.first(n_before), around.first(n_before))) --n_before;
  const size_t n_dropped = ids.size() - keep, n_after = around.size() - n_before;
  const auto from = ids.begin() + static_cast<std::ptrdiff_t>(api.keeps_first ? keep - n_after : n_before);
  ids.erase(from, from + static_cast<std::ptrdiff_t>(n_dropped));
  return true;
}

bool knows_calls(const ChatTemplate& chat) {
  return chat.source().find("tool_calls") != std::string::npos || chat.mentions("tools");
}

bool has_calls(const Json& messages) {
  return std::ranges::any_of(*messages.array(), [](const Json& message) {
    const Json* calls = message.find("tool_calls");
    const bool has_any = calls != nullptr && calls->array() != nullptr && !calls->array()->empty();
    return has_any || *message.find("role")->string() == "tool";
  });
}

}  // namespace

Result<RenderedPrompt> render_chat(const ChatTemplate& chat, const Tokenizer& tokenizer, const ChatPrompt& asked) {
  ChatInput input;
  name_tokens(tokenizer, input);
  const bool has_tools = asked.tools.array() != nullptr;
  const bool is_generic = has_tools ? !chat.shows_tools() : !knows_calls(chat) && has_calls(asked.messages);
  input.messages = is_generic ? with_generic_tools(asked.messages, asked.tools).text() : asked.messages.text();
  if (has_tools && !is_generic) input.tools = asked.tools.text();
  input.add_generation_prompt = asked.add_generation_prompt;
  input.continues_final = asked.continues_final;
  if (const Json::Object* members = asked.template_kwargs.object()) {
    for (const Json::Member& member : *members) input.extra.emplace_back(member.first, member.second.text());
  }
  if (chat.wants_functions() && asked.template_kwargs.find("functions") == nullptr)
    input.extra.emplace_back("functions", Json(functions_as_text(asked.tools)).text());
  return chat.render(input);
}

std::vector<TokenId> encode_chat(const RenderedPrompt& prompt, const Tokenizer& tokenizer, AddSpecial add_special) {
  const bool add_all = add_special == AddSpecial::kAll;
  std::vector<TokenId> ids;
  tokenizer.encode(prompt.text, {.add_special = add_all, .parse_special = true, .plain_ranges = prompt.plain_ranges},
                   ids);
  // ChatML in the place of a template writes none, and some templates leave it to the tokenizer.
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const bool wants_bos = vocabulary.add_bos && vocabulary.bos != TokenId::kNone;
  if (add_special == AddSpecial::kMissingBos && wants_bos && (ids.empty() || ids.front() != vocabulary.bos))
    ids.insert(ids.begin(), vocabulary.bos);
  return ids;
}

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool special) {
  Detokenizer detokenizer(shared(tokenizer), {.show_special = special});
  std::string text;
  detokenizer.push(ids, text);
  detokenizer.finish(text);
  return text;
}

Result<Request> build_common(const ApiRequest& api, const Tokenizer& tokenizer) {
  Request common;
  ASSIGN_OR_RETURN(common.sampling, build_sampling(api, tokenizer));
  for (const TokenId id : api.stop_ids) TRY(check_id(id, tokenizer, "stop_token_ids"));
  if (!api.stop.empty() || !api.stop_ids.empty()) {
    Result<std::shared_ptr<const StopSet>> stops = StopSet::compile(api.stop, api.stop_ids, api.include_stop);
    if (!stops) return invalid(stops.error().message, "stop");
    common.stops = *std::move(stops);
  }
  common.n = std::max(api.n, api.best_of);
  common.search = api.search;
  common.max_tokens = api.max_tokens;
  common.show_special = !api.skip_special_tokens;
  common.prompt_logprobs = api.prompt_logprobs;
  common.priority = api.priority;
  common.kv_eviction = api.kv_eviction.value_or(KvEviction());
  common.reports_progress = api.return_progress && api.stream;
  common.speculation.max_drafts = api.max_drafts;
  common.speculation.verifier = api.verifier;
  common.speculation.free_alone = api.drafts_are_free;
  if (pins_drafts(api.verifier) && api.trace) {
    return unsupported(
        "A trace is enough to make each draw again, by the seed alone; what this verifier draws depends on the drafts "
        "too. "
        "Leave trace or speculation.verifier out.",
        "speculation.verifier");
  }
  if (!api.prediction.empty() && api.max_drafts != 0) {
    common.speculation.prediction = encode_plain(tokenizer, api.prediction);
    if (common.speculation.prediction.size() > kMaxPrediction) common.speculation.prediction.resize(kMaxPrediction);
  }
  common.ttft_target = static_cast<float>(api.ttft_slo_ms) / 1000;
  common.tpot_target = static_cast<float>(api.tpot_slo_ms) / 1000;
  return common;
}

namespace {

// Whether the prompt leaves the model in its reasoning: the template has written the marker that opens it, or the
// client has, in an answer of the assistant's that goes on. What users spell opens nothing, so it cannot put off a
// grammar.
bool opens_reasoning(const RenderedPrompt& prompt, const std::string& marker, bool goes_on) {
  std::string_view text = prompt.text;
  while (!text.empty() && markers::is_blank(text.back())) text.remove_suffix(1);
  if (marker.empty() || !text.ends_with(marker)) return false;
  return goes_on || std::ranges::none_of(prompt.plain_ranges, [&](const TextRange& spelled) {
           return spelled.begin < text.size() && spelled.end > text.size() - marker.size();
         });
}

// How an answer after this prompt opens and ends its reasoning; nothing where its model has none.
std::optional<ReasoningMarkers> reasoning_markers(const AnswerFormat& format, bool is_open) {
  const bool has_channels = format.tools.kind == ToolFormat::Kind::kChannels;
  if (has_channels)
    return ReasoningMarkers{.begin = "<|channel|>analysis<|message|>", .ends = {"<|end|>"}, .is_open = is_open};
  if (format.reasoning.is_none()) return std::nullopt;
  ReasoningMarkers markers{.begin = format.reasoning.begin, .ends = {format.reasoning.end}, .is_open = is_open};
  if (format.reasoning.is_ended_by_call)
    markers.ends.insert(markers.ends.end(), format.tools.begins.begin(), format.tools.begins.end());
  return markers;
}

// Of a template that does not know the word, by LiteLLM's numbers.
int32_t budget_of_effort(std::string_view effort) {
  return effort == "minimal" ? 128 : effort == "low" ? 1024 : effort == "medium" ? 2048 : -1;
}

std::optional<AnswerParser::Options> parser_options(const ApiRequest& api,
                                                    const std::shared_ptr<const AnswerFormat>& format, bool is_open) {
  const bool must_call = api.chat.tools.array() != nullptr && api.tool_choice == ToolChoice::kRequired;
  AnswerParser::Options options{.format = must_call ? required_format(format) : format,
                                .tools = declared_tools(api),
                                .finds_reasoning = api.finds_reasoning};
  const bool may_reason = api.finds_reasoning && !format->reasoning.is_none();
  const bool has_channels = format->tools.kind == ToolFormat::Kind::kChannels;
  if (!options.tools && !may_reason && !has_channels) return std::nullopt;
  options.is_reasoning = is_open;
  return options;
}

// Markers that are control tokens are in the text only where it shows them all.
bool shows_markers(const AnswerParser::Options& options, const Tokenizer& tokenizer) {
  const AnswerFormat& format = *options.format;
  std::vector<std::string> marks = {format.reasoning.begin, format.reasoning.end};
  for (const auto* list : {&format.tools.begins, &format.tools.around, &format.tools.ends, &format.hidden})
    marks.insert(marks.end(), list->begin(), list->end());
  if (format.tools.kind == ToolFormat::Kind::kChannels) marks.emplace_back("<|channel|>");
  return std::ranges::any_of(marks, [&](const std::string& mark) {
    std::vector<TokenId> ids;
    tokenizer.encode(mark, {.parse_special = true}, ids);
    return std::ranges::any_of(
        ids, [&](TokenId id) { return tokenizer.token_bytes(id).empty() && !tokenizer.token_bytes(id, true).empty(); });
  });
}

}  // namespace

namespace {

// The assistant's last message, if that is what the answer stands after.
std::string last_words(const ChatPrompt& chat) {
  const Json& last = chat.messages.array()->back();
  const std::string* role = last.find("role")->string();
  const Json* content = last.find("content");
  const bool is_given = role != nullptr && *role == "assistant" && content != nullptr && content->string() != nullptr;
  return is_given ? *content->string() : std::string();
}

// The pictures of a conversation.
Result<std::vector<PictureToEncode>> read_pictures(const ApiRequest& api, const Backend& backend) {
  std::vector<PictureToEncode> out;
  for (const PictureUrl& picture : api.pictures) {
    if (backend.pictures() == nullptr)
      return unsupported(picture.where + ": the model that is served reads no pictures.", picture.where);
    const PictureReader& reader = *backend.pictures();
    if (picture.fetched != nullptr && !*picture.fetched) {
      const Error& error = picture.fetched->error();
      return Error{error.kind, picture.where + ": the picture was not fetched: " + error.message + ".", picture.where};
    }
    ASSIGN_OR_RETURN(PictureToEncode read,
                     picture.fetched != nullptr
                         ? reader.read_bytes(std::as_bytes(std::span(**picture.fetched)), picture.where)
                         : reader.read(picture.url, picture.where));
    out.push_back(std::move(read));
  }
  return out;
}

// A request for each conversation. What they have in common of the model's reasoning goes into `common`.
Status add_chats(const ApiRequest& api, const Backend& backend, Request& common, BuiltRequests& built) {
  const Tokenizer& tokenizer = backend.tokenizer();
  const size_t n_chats = 1 + api.more_chats.size();
  ASSIGN_OR_RETURN(std::vector<PictureToEncode> pictures, read_pictures(api, backend));
  ChatPrompt next;  // each of the further ones, one after the other
  if (n_chats > 1) next = api.chat;
  for (size_t i = 0; i < n_chats; ++i) {
    if (i > 0)
      next.messages = api.more_chats[i - 1].messages, next.continues_final = api.more_chats[i - 1].continues_final;
    const ChatPrompt* chat = i == 0 ? &api.chat : &next;
    ASSIGN_OR_RETURN(RenderedPrompt prompt, backend.render_chat(*chat));
    if (backend.pictures() != nullptr) prompt = backend.pictures()->show(std::move(prompt));
    if (api.verbose && built.requests.empty()) built.rendered = prompt.text;
    const bool opens = prompt.ends_in_reasoning ||
                       opens_reasoning(prompt, backend.answer_format()->reasoning.begin, !last_words(*chat).empty());
    std::optional<AnswerParser::Options> parser = parser_options(api, backend.answer_format(), opens);
    if (parser) {
      const bool has_channels = parser->format->tools.kind == ToolFormat::Kind::kChannels;
      parser->is_in_message = has_channels && prompt.ends_in_message;
    }
    std::optional<ReasoningMarkers> reasoning = reasoning_markers(*backend.answer_format(), opens);
    const bool is_first = built.requests.empty();
    const bool was_open = built.reasoning && built.reasoning->is_open, is_open = reasoning && reasoning->is_open;
    const bool was_reasoning = built.parser && built.parser->is_reasoning;
    const bool was_in_message = built.parser && built.parser->is_in_message;
    if (!is_first && (was_open != is_open || was_reasoning != (parser && parser->is_reasoning) ||
                      was_in_message != (parser && parser->is_in_message))) {
      return unsupported(
          "Of these conversations some leave the model in the midst of its reasoning or answer and others do not; "
          "send them apart.",
          "messages");
    }
    built.parser = std::move(parser);
    built.reasoning = std::move(reasoning);
    int32_t budget = api.reasoning_budget;
    if (budget < 0 && backend.chat_template().find("reasoning_effort") == std::string_view::npos)
      budget = budget_of_effort(api.reasoning_effort);
    if (built.reasoning && budget >= 0)
      common.reasoning = std::make_shared<const ReasoningBudget>(shared(tokenizer), budget, *built.reasoning);
    if (built.parser && shows_markers(*built.parser, tokenizer)) common.show_special = true;
    if (built.parser && !api.stop.empty()) common.markup = std::make_shared<const AnswerMarkup>(*built.parser);
    built.requests.push_back(common);
    Request& request = built.requests.back();
    request.prompt = encode_chat(prompt, tokenizer, api.add_special);
    if (i == 0 && backend.pictures() != nullptr) TRY(backend.pictures()->place(std::move(pictures), request));
    if (request.pictures != nullptr && api.truncate_prompt != 0)
      return unsupported("A prompt with pictures is not cut; leave out the field that asks for it.", "messages");
    truncate(api, backend.model().context_len, {}, request.prompt);
    if (api.echo) built.prompt_texts.push_back(last_words(*chat));
  }
  return {};
}

// A request for each prompt.
Status add_prompts(const ApiRequest& api, const Backend& backend, const Request& common, BuiltRequests& built) {
  const Tokenizer& tokenizer = backend.tokenizer();
  if (api.verbose && !api.prompts.empty()) {
    const std::string* text = std::get_if<std::string>(&api.prompts.front());
    if (text != nullptr) built.rendered = *text;
  }
  std::vector<TokenId> around;
  if (api.truncate_prompt != 0 && api.add_special == AddSpecial::kAll)
    tokenizer.encode("", {.add_special = true}, around);
  for (size_t i = 0; i < api.prompts.size(); ++i) {
    const std::string where =
        api.prompts.size() == 1 ? api.prompt_name : api.prompt_name + "[" + std::to_string(i) + "]";
    built.requests.push_back(common);
    std::vector<TokenId>& ids = built.requests.back().prompt;
    if (const std::string* text = std::get_if<std::string>(&api.prompts[i])) {
      tokenizer.encode(*text, {.add_special = api.add_special == AddSpecial::kAll}, ids);
      const bool is_cut = truncate(api, backend.model().context_len, around, ids);
      if (api.echo || api.keeps_prompt) built.prompt_texts.push_back(is_cut ? decode(tokenizer, ids, true) : *text);
    } else {
      ids = std::get<std::vector<TokenId>>(api.prompts[i]);
      for (const TokenId id : ids) TRY(check_id(id, tokenizer, where));
      truncate(api, backend.model().context_len, {}, ids);
      if (api.echo || api.keeps_prompt) built.prompt_texts.push_back(decode(tokenizer, ids, true));
    }
    if (ids.empty()) return invalid(where + " has no tokens; it must have at least one.", where);
  }
  return {};
}

}  // namespace

Result<BuiltRequests> build_requests(const ApiRequest& api, const Backend& backend, const std::string& tenant) {
  ASSIGN_OR_RETURN(Request common, build_common(api, backend.tokenizer()));
  common.tenant = tenant;
  common.cache_salt = api.cache_salt;
  BuiltRequests built;
  if (api.endpoint == Endpoint::kChat) TRY(add_chats(api, backend, common, built));
  TRY(add_prompts(api, backend, common, built));
  ASSIGN_OR_RETURN(const std::shared_ptr<grammar::Compiled> grammar,
                   build_grammar(api, backend, tenant, built.parser ? &*built.parser : nullptr));
  for (Request& request : built.requests) request.grammar = make_matcher(grammar, api, backend);
  return built;
}

}  // namespace ibid
