#include "server/fields/dialect_table.h"
#include "server/fields/body_parts.h"

#include <algorithm>
#include <map>

namespace ibid {
namespace dialect_names {  // whose short names are of no other file

using enum Dialect;
using enum DialectPart;
using enum Treatment;

// clang-format off: one row a name
constexpr DialectRow kDialectRows[] = {
    // Anthropic's Messages.
    {kMessages, kField, "model", kUsed, "`model`"},
    {kMessages, kField, "messages", kUsed, "`messages`; `system` may stand anywhere among the roles"},
    {kMessages, kField, "system", kUsed, "the first message"},
    {kMessages, kField, "max_tokens", kUsed, "`max_tokens`"},
    {kMessages, kField, "stop_sequences", kUsed, "`stop`"},
    {kMessages, kField, "temperature", kUsed, "`temperature`"},
    {kMessages, kField, "top_p", kUsed, "`top_p`"},
    {kMessages, kField, "top_k", kUsed, "`top_k`"},
    {kMessages, kField, "stream", kUsed, "`stream`"},
    {kMessages, kField, "tools", kUsed, "`tools`"},
    {kMessages, kField, "tool_choice", kUsed, "`tool_choice`, `parallel_tool_calls`"},
    {kMessages, kField, "thinking", kUsed, "a switch of the template, `thinking_token_budget`"},
    {kMessages, kField, "output_config", kUsed, "`effort` as `reasoning_effort`, `format` as `response_format`"},
    {kMessages, kField, "output_format", kUsed, "`response_format`"},
    {kMessages, kField, "seed", kUsed, "`seed`"},
    {kMessages, kField, "cache_salt", kUsed, "`cache_salt`"},
    {kMessages, kField, "resume", kUsed, "`resume`"},
    {kMessages, kField, "resumable", kUsed, "`resumable`"},
    {kMessages, kField, "metadata", kIgnored, "the API key identifies the user"},
    {kMessages, kField, "service_tier", kIgnored, "there is one"},
    {kMessages, kField, "speed", kIgnored, "there is one"},
    {kMessages, kField, "inference_geo", kIgnored, "there is one place"},
    {kMessages, kField, "cache_control", kIgnored, "the prefix cache finds a prompt by its tokens"},
    {kMessages, kField, "context_management", kIgnored,
     "nothing is cleared from a conversation here; a prompt that is too long is an error"},
    {kMessages, kField, "diagnostics", kIgnored, "it asks for no other answer"},
    {kMessages, kField, "anthropic_version", kIgnored, "of the API, as other hosts of it have it in the body"},
    {kMessages, kField, "anthropic_beta", kIgnored, "beta headers, as other hosts of it have them in the body"},
    {kMessages, kField, "betas", kIgnored, "beta headers, as its client libraries spell them"},
    {kMessages, kField, "mcp_servers", kRefused, "the server calls no tools; the client may", "[[]]"},
    {kMessages, kField, "container", kRefused, "no code runs here"},
    {kMessages, kTool, "custom", kUsed, "a function; a declaration without a type is one too"},
    {kMessages, kTool, "web_search_*", kIgnored, "the server reaches no other"},
    {kMessages, kTool, "web_fetch_*", kIgnored, "the server reaches no other"},
    {kMessages, kTool, "code_execution_*", kIgnored, "no code runs here"},
    {kMessages, kTool, "tool_search_tool_*", kIgnored, "all tools of the request are shown to the model"},
    {kMessages, kTool, "mcp_toolset", kIgnored, "the server calls no tools"},
    {kMessages, kTool, "advisor_*", kIgnored, "there is no second model to ask"},
    {kMessages, kTool, "bash_*", kIgnored,
     "its schema is known to models that were trained with it; declare a function"},
    {kMessages, kTool, "text_editor_*", kIgnored,
     "its schema is known to models that were trained with it; declare a function"},
    {kMessages, kTool, "memory_*", kIgnored,
     "its schema is known to models that were trained with it; declare a function"},
    {kMessages, kTool, "computer_*", kIgnored, "the model reads no images"},
    {kMessages, kItem, "text", kUsed, "text"},
    {kMessages, kItem, "tool_use", kUsed, "a call"},
    {kMessages, kItem, "tool_result", kUsed, "a call's result"},
    {kMessages, kItem, "thinking", kUsed, "reasoning"},
    {kMessages, kItem, "tool_reference", kUsed, "in a result: the tool's name; a deferred tool is shown from then on"},
    {kMessages, kItem, "tool_addition", kUsed, "in a system message: the tool is shown"},
    {kMessages, kItem, "tool_removal", kUsed, "in a system message: the tool is not shown"},
    {kMessages, kItem, "search_result", kUsed, "its title, source and texts"},
    {kMessages, kItem, "redacted_thinking", kIgnored, "only the server that wrote it can read it"},
    {kMessages, kItem, "server_tool_use", kIgnored, "a hosted tool's call, of an answer by another server"},
    {kMessages, kItem, "web_search_tool_result", kIgnored, "a hosted tool's result"},
    {kMessages, kItem, "web_fetch_tool_result", kIgnored, "a hosted tool's result"},
    {kMessages, kItem, "code_execution_tool_result", kIgnored, "a hosted tool's result"},
    {kMessages, kItem, "bash_code_execution_tool_result", kIgnored, "a hosted tool's result"},
    {kMessages, kItem, "text_editor_code_execution_tool_result", kIgnored, "a hosted tool's result"},
    {kMessages, kItem, "tool_search_tool_result", kIgnored, "a hosted tool's result"},
    {kMessages, kItem, "mcp_tool_use", kIgnored, "a hosted tool's call"},
    {kMessages, kItem, "mcp_tool_result", kIgnored, "a hosted tool's result"},
    {kMessages, kItem, "mcp_tool_listing", kIgnored, "a hosted tool's list"},
    {kMessages, kItem, "fallback", kIgnored, "there is one model"},
    {kMessages, kItem, "image", kUsed,
     "a picture of a model with a vision tower; in a tool's result a text states that one was left out"},
    {kMessages, kItem, "document", kRefused,
     "the model reads texts alone; in a tool's result a text states that one was left out"},
    {kMessages, kItem, "container_upload", kRefused, "no code runs here"},
    {kMessages, kItem, "compaction", kRefused, "only the server that wrote it can read it"},
    {kMessages, kHeader, "anthropic-version", kIgnored, "one version is spoken"},
    {kMessages, kHeader, "anthropic-beta: claude-code-*", kIgnored, "it names the client"},
    {kMessages, kHeader, "anthropic-beta: oauth-*", kIgnored, "a key is a key"},
    {kMessages, kHeader, "anthropic-beta: interleaved-thinking-*", kIgnored, "the chat template decides"},
    {kMessages, kHeader, "anthropic-beta: fine-grained-tool-streaming-*", kIgnored, "arguments are always streamed"},
    {kMessages, kHeader, "anthropic-beta: context-1m-*", kIgnored, "the context is the server's"},
    {kMessages, kHeader, "anthropic-beta: context-management-*", kIgnored, "see `context_management`"},
    {kMessages, kHeader, "anthropic-beta: compact-*", kIgnored, "see `context_management`"},
    {kMessages, kHeader, "anthropic-beta: prompt-caching-*", kIgnored, "the prefix cache finds a prompt by its tokens"},
    {kMessages, kHeader, "anthropic-beta: extended-cache-ttl-*", kIgnored,
     "the prefix cache finds a prompt by its tokens"},
    {kMessages, kHeader, "anthropic-beta: token-efficient-tools-*", kIgnored, "the chat template decides"},
    {kMessages, kHeader, "anthropic-beta: output-128k-*", kIgnored, "the context is the bound"},
    {kMessages, kHeader, "anthropic-beta: structured-outputs-*", kIgnored, "`output_config.format` needs none"},
    {kMessages, kHeader, "anthropic-beta: effort-*", kIgnored, "`output_config.effort` needs none"},
    {kMessages, kHeader, "anthropic-beta: token-counting-*", kIgnored, "the route needs none"},
    {kMessages, kHeader, "anthropic-beta: mid-conversation-*", kIgnored,
     "system messages and changes of tools need none"},
    {kMessages, kHeader, "anthropic-beta: thinking-token-count-*", kIgnored, "`usage.output_tokens` counts all"},
    {kMessages, kHeader, "anthropic-beta: per-turn-control-*", kIgnored, "`output_config.effort` is of the request"},
    {kMessages, kHeader, "anthropic-beta: inline-tools-*", kIgnored, "see the kinds of tools"},
    {kMessages, kHeader, "anthropic-beta: advanced-tool-use-*", kIgnored, "see the kinds of tools"},
    {kMessages, kHeader, "anthropic-beta: tool-search-*", kIgnored, "see the kinds of tools"},
    {kMessages, kHeader, "anthropic-beta: computer-use-*", kIgnored, "see the kinds of tools"},
    {kMessages, kHeader, "anthropic-beta: code-execution-*", kIgnored, "see the kinds of tools"},
    {kMessages, kHeader, "anthropic-beta: web-fetch-*", kIgnored, "see the kinds of tools"},
    {kMessages, kHeader, "anthropic-beta: mcp-client-*", kIgnored, "see `mcp_servers`"},
    {kMessages, kHeader, "anthropic-beta: files-api-*", kIgnored, "see `document`"},
    {kMessages, kHeader, "anthropic-beta: skills-*", kIgnored, "see `container`"},

    // OpenAI's Responses.
    {kResponses, kField, "model", kUsed, "`model`"},
    {kResponses, kField, "input", kUsed, "`messages`"},
    {kResponses, kField, "instructions", kUsed, "the first message; not carried over"},
    {kResponses, kField, "previous_response_id", kUsed, "the messages before"},
    {kResponses, kField, "max_output_tokens", kUsed, "`max_tokens`"},
    {kResponses, kField, "temperature", kUsed, "`temperature`"},
    {kResponses, kField, "top_p", kUsed, "`top_p`"},
    {kResponses, kField, "presence_penalty", kUsed, "`presence_penalty`"},
    {kResponses, kField, "frequency_penalty", kUsed, "`frequency_penalty`"},
    {kResponses, kField, "stream", kUsed, "`stream`"},
    {kResponses, kField, "tools", kUsed, "`tools`"},
    {kResponses, kField, "tool_choice", kUsed, "`tool_choice`"},
    {kResponses, kField, "parallel_tool_calls", kUsed, "`parallel_tool_calls`"},
    {kResponses, kField, "text", kUsed, "`format` as `response_format`; `verbosity` is ignored"},
    {kResponses, kField, "reasoning", kUsed, "`effort` as `reasoning_effort`; no summaries are made"},
    {kResponses, kField, "top_logprobs", kUsed, "`top_logprobs`"},
    {kResponses, kField, "include", kUsed,
     "`message.output_text.logprobs`; `reasoning.encrypted_content` is ignored, others are refused"},
    {kResponses, kField, "metadata", kUsed, "repeated"},
    {kResponses, kField, "store", kUsed, "whether the response is kept"},
    {kResponses, kField, "seed", kUsed, "`seed`"},
    {kResponses, kField, "cache_salt", kUsed, "`cache_salt`"},
    {kResponses, kField, "resume", kUsed, "`resume`"},
    {kResponses, kField, "resumable", kUsed, "`resumable`"},
    {kResponses, kField, "return_progress", kUsed, "`return_progress`"},
    {kResponses, kField, "timings_per_token", kUsed, "`timings_per_token`"},
    {kResponses, kField, "background", kRefused, "an answer ends with its connection", "[false]"},
    {kResponses, kField, "conversation", kRefused, "give input, with previous_response_id"},
    {kResponses, kField, "prompt", kRefused, "give input and instructions"},
    {kResponses, kField, "truncation", kRefused, "nothing is cut off in silence", "[\"disabled\"]"},
    {kResponses, kField, "context_management", kIgnored,
     "nothing is compacted here; a prompt that is too long is an error"},
    {kResponses, kField, "max_tool_calls", kIgnored, "of hosted tools, of which there are none"},
    {kResponses, kField, "user", kIgnored, "the API key identifies the user"},
    {kResponses, kField, "safety_identifier", kIgnored, "the API key identifies the user"},
    {kResponses, kField, "client_metadata", kIgnored, "nothing of it is kept"},
    {kResponses, kField, "prompt_cache_key", kIgnored, "the prefix cache finds a prompt by its tokens"},
    {kResponses, kField, "prompt_cache_retention", kIgnored, "a cached block stays until its room is needed"},
    {kResponses, kField, "prompt_cache_options", kIgnored, "the prefix cache finds a prompt by its tokens"},
    {kResponses, kField, "service_tier", kIgnored, "there is one"},
    {kResponses, kField, "stream_options", kIgnored, "events are not padded"},
    {kResponses, kField, "moderation", kIgnored, "nothing is moderated"},
    {kResponses, kTool, "function", kUsed, "a function"},
    {kResponses, kTool, "custom", kUsed,
     "a function of one text, `input`; its grammar is shown to the model and not enforced"},
    {kResponses, kTool, "namespace", kUsed, "its tools, as `NAMESPACE.NAME`"},
    {kResponses, kTool, "web_search*", kIgnored, "the server reaches no other"},
    {kResponses, kTool, "file_search", kIgnored, "no files are searched here"},
    {kResponses, kTool, "code_interpreter", kIgnored, "no code runs here"},
    {kResponses, kTool, "image_generation", kIgnored, "the model makes no images"},
    {kResponses, kTool, "computer*", kIgnored, "the model reads no images"},
    {kResponses, kTool, "mcp", kIgnored, "the server calls no tools; the client may"},
    {kResponses, kTool, "tool_search", kIgnored, "all tools of the request are shown to the model"},
    {kResponses, kTool, "local_shell", kIgnored,
     "its schema is known to models that were trained with it; declare a function"},
    {kResponses, kTool, "shell", kIgnored,
     "its schema is known to models that were trained with it; declare a function"},
    {kResponses, kTool, "apply_patch", kIgnored,
     "its schema is known to models that were trained with it; declare a function"},
    {kResponses, kItem, "message", kUsed, "a message; an item without a type is one too"},
    {kResponses, kItem, "function_call", kUsed, "a call"},
    {kResponses, kItem, "function_call_output", kUsed, "a call's result"},
    {kResponses, kItem, "custom_tool_call", kUsed, "a call"},
    {kResponses, kItem, "custom_tool_call_output", kUsed, "a call's result"},
    {kResponses, kItem, "local_shell_call", kUsed, "a call of `local_shell`"},
    {kResponses, kItem, "local_shell_call_output", kUsed, "a call's result"},
    {kResponses, kItem, "reasoning", kUsed, "reasoning, where it has a text"},
    {kResponses, kItem, "input_text", kUsed, "text"},
    {kResponses, kItem, "output_text", kUsed, "text"},
    {kResponses, kItem, "text", kUsed, "text"},
    {kResponses, kItem, "refusal", kUsed, "text"},
    {kResponses, kItem, "reasoning_text", kUsed, "text"},
    {kResponses, kItem, "summary_text", kUsed, "text"},
    {kResponses, kItem, "web_search_call", kIgnored, "a hosted tool's call, of an answer by another server"},
    {kResponses, kItem, "file_search_call", kIgnored, "a hosted tool's call"},
    {kResponses, kItem, "code_interpreter_call", kIgnored, "a hosted tool's call"},
    {kResponses, kItem, "image_generation_call", kIgnored, "a hosted tool's call"},
    {kResponses, kItem, "tool_search_call", kIgnored, "a hosted tool's call"},
    {kResponses, kItem, "tool_search_output", kIgnored, "a hosted tool's result"},
    {kResponses, kItem, "mcp_*", kIgnored, "a hosted tool's list, call or approval"},
    {kResponses, kItem, "input_image", kUsed,
     "a picture of a model with a vision tower; in a tool's result a text states that one was left out"},
    {kResponses, kItem, "input_file", kRefused,
     "the model reads texts alone; in a tool's result a text states that one was left out"},
    {kResponses, kItem, "input_audio", kRefused, "the model reads texts alone"},
    {kResponses, kItem, "computer_call*", kRefused, "the model reads no images"},
    {kResponses, kItem, "item_reference", kRefused, "send the item itself, or previous_response_id"},
    {kResponses, kItem, "compaction", kRefused, "only the server that wrote it can read it"},

    // Chats.
    {kChat, kTool, "function", kUsed, "a function"},
    {kChat, kTool, "custom", kIgnored, "served in Responses"},
    {kChat, kTool, "web_search*", kIgnored, "the server reaches no other"},
    {kChat, kTool, "mcp", kIgnored, "the server calls no tools; the client may"},

    // Ollama.
    {kOllama, kField, "model", kUsed, "`model`, without `:latest`"},
    {kOllama, kField, "messages", kUsed, "`messages`"},
    {kOllama, kField, "prompt", kUsed, "a user's message; with `raw` or `suffix` the text itself"},
    {kOllama, kField, "system", kUsed, "the first message"},
    {kOllama, kField, "suffix", kUsed, "`suffix`"},
    {kOllama, kField, "raw", kUsed, "whether `prompt` is the text itself"},
    {kOllama, kField, "stream", kUsed, "`stream`; true by default"},
    {kOllama, kField, "format", kUsed, "`response_format`"},
    {kOllama, kField, "tools", kUsed, "`tools`"},
    {kOllama, kField, "think", kUsed, "a switch of the template, or `reasoning_effort`"},
    {kOllama, kField, "options", kUsed, "sampling, `num_predict`, `num_ctx`"},
    {kOllama, kField, "resume", kUsed, "`resume`"},
    {kOllama, kField, "resumable", kUsed, "`resumable`"},
    {kOllama, kField, "keep_alive", kUsed, "0 unloads one of several models"},
    {kOllama, kField, "truncate", kIgnored, "a prompt that is too long is an error"},
    {kOllama, kField, "shift", kIgnored, "a context that is full ends the answer"},
    {kOllama, kField, "top_logprobs", kIgnored, "it belongs to `logprobs`"},
    {kOllama, kField, "_debug_render_only", kIgnored, "/apply-template returns the prompt"},
    {kOllama, kField, "images", kUsed, "the prompt's pictures in base64, of a model with a vision tower"},
    {kOllama, kField, "template", kRefused, "the model's own is used", "[\"\"]"},
    {kOllama, kField, "context", kRefused, "send the conversation; the prefix cache finds it", "[[]]"},
    {kOllama, kField, "logprobs", kRefused, "use /v1/chat/completions", "[false]"},
};
// clang-format on

const char* name_of(Dialect dialect) {
  switch (dialect) {
    case kChat:
      return "chats";
    case kMessages:
      return "Messages";
    case kResponses:
      return "Responses";
    case kOllama:
      return "Ollama";
    case kLlama:
      return "llama.cpp";
  }
  return "";
}

const char* name_of(DialectPart part) {
  switch (part) {
    case kField:
      return "field";
    case kTool:
      return "`type` of a tool";
    case kItem:
      return "item or block";
    case kHeader:
      return "header";
  }
  return "";
}

const char* name_of(Treatment treatment) {
  return treatment == kUsed ? "used" : treatment == kIgnored ? "ignored" : "refused";
}

bool asks_for_nothing(const DialectRow& row, const Json& value) {
  const Result<Json> allowed = parse_json(row.allowed);
  CHECK(allowed.ok() && allowed->array() != nullptr, row.name);
  return std::ranges::any_of(*allowed->array(), [&](const Json& item) { return item.text() == value.text(); });
}

}  // namespace dialect_names

std::span<const DialectRow> dialect_rows() { return dialect_names::kDialectRows; }

Treatment treatment_of(Dialect dialect, DialectPart part, std::string_view name) {
  using namespace dialect_names;
  const DialectRow* best = nullptr;
  size_t best_len = 0;
  for (const DialectRow& row : kDialectRows) {
    if (row.dialect != dialect || row.part != part) continue;
    std::string_view own = row.name;
    if (own == name) return row.treatment;
    if (!own.ends_with('*')) continue;
    own.remove_suffix(1);
    if (name.starts_with(own) && own.size() > best_len) best = &row, best_len = own.size();
  }
  if (best != nullptr) return best->treatment;
  return part == kItem ? kRefused : kIgnored;
}

Status check_fields(Dialect dialect, const Json& body) {
  using namespace dialect_names;
  for (const DialectRow& row : kDialectRows) {
    if (row.dialect != dialect || row.part != kField || row.treatment != kRefused) continue;
    const Json* value = given(body, row.name);
    if (value == nullptr || asks_for_nothing(row, *value)) continue;
    return unsupported(std::string(row.name) + " is not served here: " + row.why + ".", row.name);
  }
  return {};
}

Status check_left_out(std::span<const LeftOutTool> left_out, bool has_others, std::string_view choice) {
  for (const LeftOutTool& tool : left_out) {
    if (!has_others || (!choice.empty() && tool.name == choice)) return unserved_type(tool.type, tool.where);
  }
  return {};
}

// Names of one kind that are treated alike, for the same reason, share a line.
std::string dialects_markdown() {
  using namespace dialect_names;
  std::string out = "| API | what | name | | how, or why not |\n|---|---|---|---|---|\n";
  for (size_t i = 0; i < std::size(kDialectRows); ++i) {
    const DialectRow& row = kDialectRows[i];
    const auto is_alike = [&](const DialectRow& other) {
      return other.dialect == row.dialect && other.part == row.part && other.treatment == row.treatment &&
             std::string_view(other.why) == row.why;
    };
    if (std::any_of(kDialectRows, kDialectRows + i, is_alike)) continue;
    out += std::string("| ") + name_of(row.dialect) + " | " + name_of(row.part) + " | ";
    bool is_first = true;
    for (const DialectRow& other : kDialectRows) {
      if (!is_alike(other)) continue;
      out += (is_first ? "`" : ", `") + std::string(other.name) + "`";
      is_first = false;
      if (std::string_view(other.allowed) != "[]") {
        std::string_view allowed = other.allowed;
        out += " (but " + std::string(allowed.substr(1, allowed.size() - 2)) + ")";
      }
    }
    out += std::string(" | ") + name_of(row.treatment) + " | " + row.why + " |\n";
  }
  return out;
}

}  // namespace ibid
