// llama.cpp's /completion and /infill to completions. Most of its fields have their names there too.
#include <algorithm>

#include "base/quoted.h"
#include "server/dialects/dialects.h"
#include "server/fields/body_parts.h"
#include "server/fields/read_fields.h"

namespace ibid {
namespace {

// What the printer serves, and completions do not know under these names.
constexpr const char* kOwnFields[] = {"prompt",       "return_tokens", "timings_per_token", "response_fields",
                                      "input_prefix", "input_suffix",  "input_extra",       "post_sampling_probs"};

Result<bool> read_switch(const Json& body, const char* name) {
  const Json* value = given(body, name);
  if (value == nullptr) return false;
  if (value->boolean() == nullptr) return wrong_value(name, "true or false", *value);
  return *value->boolean();
}

// A row that has ids and texts, as ids.
Json ids_of(const Json::Array& row, const Tokenizer& tokenizer, bool parse_special) {
  Json::Array ids;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i].string() == nullptr) {
      ids.push_back(row[i]);
      continue;
    }
    std::vector<TokenId> tokens;
    tokenizer.encode(*row[i].string(), {.add_special = i == 0, .parse_special = parse_special}, tokens);
    for (const TokenId id : tokens) ids.emplace_back(int64_t{raw(id)});
  }
  return Json(std::move(ids));
}

bool is_mixed(const Json& prompt) {
  const Json::Array* row = prompt.array();
  return row != nullptr && std::ranges::any_of(*row, [](const Json& item) { return item.string() != nullptr; }) &&
         std::ranges::any_of(*row, [](const Json& item) { return item.is_number(); }) &&
         std::ranges::none_of(*row,
                              [](const Json& item) { return item.array() != nullptr || item.object() != nullptr; });
}

// {"prompt_string": TEXT}, which is where llama.cpp takes pictures.
Result<Json> text_of_object(const Json& prompt) {
  const std::string* text = text_at(prompt, "prompt_string");
  if (text == nullptr) return wrong_value("prompt", "a text, token ids, or an object with prompt_string", prompt);
  if (given(prompt, "multimodal_data") != nullptr)
    return unsupported("prompt.multimodal_data is not served here.", "prompt.multimodal_data");
  return Json(*text);
}

Result<std::string> read_optional_text(const Json& body, const char* name) {
  const Json* value = given(body, name);
  if (value == nullptr) return std::string();
  if (value->string() == nullptr) return wrong_value(name, "a text", *value);
  return *value->string();
}

}  // namespace

Status mend_prompts(const Tokenizer& tokenizer, MixedPrompts kind, Json& prompt) {
  const bool is_llama = kind == MixedPrompts::kLlama;
  const auto mend = [&](Json& one) -> Status {
    if (is_mixed(one)) one = ids_of(*one.array(), tokenizer, is_llama);
    if (!is_llama || one.object() == nullptr) return {};
    ASSIGN_OR_RETURN(one, text_of_object(one));
    return {};
  };
  TRY(mend(prompt));
  if (kind == MixedPrompts::kOne || prompt.array() == nullptr) return {};
  for (Json& one : *prompt.array()) TRY(mend(one));
  return {};
}

Status mend_fields(std::initializer_list<std::string_view> names, MixedPrompts kind, const Tokenizer& tokenizer,
                   Json& body) {
  if (body.object() == nullptr) return {};
  for (auto& [name, value] : *body.object()) {
    if (std::ranges::find(names, std::string_view(name)) != names.end()) TRY(mend_prompts(tokenizer, kind, value));
  }
  return {};
}

FimTokens find_fim_tokens(const Tokenizer& tokenizer) {
  const auto find = [&](std::initializer_list<std::string_view> spellings) {
    const std::vector<std::string>& tokens = tokenizer.vocabulary().tokens;
    const auto at = std::ranges::find_if(
        tokens, [&](const std::string& token) { return std::ranges::find(spellings, token) != spellings.end(); });
    return at == tokens.end() ? TokenId::kNone : TokenId{static_cast<int32_t>(at - tokens.begin())};
  };
  return {.prefix = find({"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<｜fim▁begin｜>", "▁<PRE>", "<PRE>",
                          "<|code_prefix|>", "[PREFIX]"}),
          .suffix = find({"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<｜fim▁hole｜>", "▁<SUF>", "<SUF>",
                          "<|code_suffix|>", "[SUFFIX]"}),
          .middle = find({"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<｜fim▁end｜>", "▁<MID>", "<MID>",
                          "<|code_middle|>", "[MIDDLE]"}),
          .repository = find({"<|repo_name|>", "<repo_name>", "<reponame>"}),
          .file = find({"<|file_sep|>", "<file_sep>", "<filename>"})};
}

Result<DialectBody> body_of_completion(const Json& body, const Tokenizer& tokenizer) {
  if (body.object() == nullptr) return invalid(std::string("The body must be a JSON object, not ") + body.kind() + ".");
  DialectBody out;
  out.endpoint = Endpoint::kCompletions;
  out.body = Json(Json::Object());
  for (const auto& [name, value] : *body.object()) {
    if (std::ranges::find(kOwnFields, std::string_view(name)) == std::end(kOwnFields)) set(out.body, name, value);
  }
  if (const Json* prompt = given(body, "prompt")) {
    Json mended = *prompt;
    TRY(mend_prompts(tokenizer, MixedPrompts::kLlama, mended));
    set(out.body, "prompt", std::move(mended));
  }
  ASSIGN_OR_RETURN(out.llama.return_tokens, read_switch(body, "return_tokens"));
  ASSIGN_OR_RETURN(out.llama.timings_per_token, read_switch(body, "timings_per_token"));
  ASSIGN_OR_RETURN(out.llama.post_sampling, read_switch(body, "post_sampling_probs"));
  const Json* stream = given(body, "stream");
  const bool streams = stream != nullptr && stream->boolean() != nullptr && *stream->boolean();
  // Its events contain their tokens in any case.
  if (out.llama.return_tokens || streams) set(out.body, "return_token_ids", Json(true));
  if (out.llama.post_sampling) set(out.body, "processed_logprobs", Json(true));
  if (const Json* fields = given(body, "response_fields")) {
    if (fields->array() == nullptr || fields->array()->size() > 64)
      return wrong_value("response_fields", "an array of at most 64 names", *fields);
    for (const Json& field : *fields->array()) {
      if (field.string() == nullptr) return wrong_value("response_fields", "an array of names", *fields);
      out.llama.response_fields.push_back(*field.string());
    }
  }
  return out;
}

namespace {

Error no_fim_tokens(const char* field) {
  return unsupported("The model that is served has no tokens for filling in (prefix, suffix and middle).", field);
}

void add_fim(const Tokenizer& tokenizer, TokenId mark, std::string_view text, std::vector<TokenId>& ids) {
  if (mark != TokenId::kNone) ids.push_back(mark);
  tokenizer.encode(text, {}, ids);
}

// With `ids` before it. In the order in which models are trained: what stands before, what stands after, and then the
// middle.
std::vector<TokenId> fim_prompt(const Tokenizer& tokenizer, const FimTokens& fim, std::vector<TokenId> ids,
                                std::string_view prefix, std::string_view suffix) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (vocabulary.add_bos && vocabulary.bos != TokenId::kNone) ids.insert(ids.begin(), vocabulary.bos);
  add_fim(tokenizer, fim.prefix, prefix, ids);
  add_fim(tokenizer, fim.suffix, suffix, ids);
  add_fim(tokenizer, fim.middle, "", ids);
  return ids;
}

}  // namespace

Status fill_in(ApiRequest& api, const Tokenizer& tokenizer, const FimTokens& fim) {
  if (api.suffix.empty()) return {};
  if (!fim.is_there()) return no_fim_tokens("suffix");
  if (api.echo) return invalid("echo repeats the prompt, and with a suffix the answer stands within it.", "echo");
  for (Prompt& prompt : api.prompts) {
    const std::string* text = std::get_if<std::string>(&prompt);
    if (text == nullptr) return invalid("With a suffix, prompt must be a text or a list of texts.", api.prompt_name);
    prompt = fim_prompt(tokenizer, fim, {}, *text, api.suffix);
  }
  return {};
}

Result<DialectBody> body_of_infill(const Json& body, const Tokenizer& tokenizer, const FimTokens& fim) {
  if (!fim.is_there()) return no_fim_tokens("input_prefix");
  ASSIGN_OR_RETURN(DialectBody out, body_of_completion(body, tokenizer));
  ASSIGN_OR_RETURN(const std::string prefix, read_optional_text(body, "input_prefix"));
  ASSIGN_OR_RETURN(const std::string suffix, read_optional_text(body, "input_suffix"));
  ASSIGN_OR_RETURN(const std::string prompt, read_optional_text(body, "prompt"));
  std::vector<TokenId> before;
  const auto add = [&](TokenId mark, std::string_view text) { add_fim(tokenizer, mark, text, before); };
  if (const Json* extra = given(body, "input_extra")) {
    if (extra->array() == nullptr) return wrong_value("input_extra", "an array of {\"filename\", \"text\"}", *extra);
    if (fim.repository != TokenId::kNone && !extra->array()->empty()) add(fim.repository, "project\n");
    for (size_t i = 0; i < extra->array()->size(); ++i) {
      const Json& file = (*extra->array())[i];
      const std::string where = "input_extra[" + std::to_string(i) + "]";
      const std::string* text = text_at(file, "text");
      if (text == nullptr) return invalid(where + ".text must be a text.", where + ".text");
      const std::string* name = text_at(file, "filename");
      add(fim.file, (name != nullptr ? *name : "file") + "\n" + *text + "\n");
    }
    if (fim.file != TokenId::kNone && !extra->array()->empty()) add(fim.file, "filename\n");
  }
  Json::Array list;
  for (const TokenId id : fim_prompt(tokenizer, fim, std::move(before), prefix + prompt, suffix))
    list.emplace_back(int64_t{raw(id)});
  std::erase_if(*out.body.object(), [](const Json::Member& member) { return member.first == "prompt"; });
  set(out.body, "prompt", Json(std::move(list)));
  return out;
}

}  // namespace ibid
