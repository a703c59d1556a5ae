#include "server/fields/openapi_schemas.h"

namespace ibid {

// clang-format off
const std::string_view kFixedSchemas = R"(
"Error":{"type":"object","required":["error"],"properties":{"error":{"type":"object","required":["message","type","param","code"],
  "properties":{"message":{"type":"string","minLength":1},"type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":["string","null"]},
  "n_prompt_tokens":{"type":"integer","description":"Of a prompt that is too long."},"n_ctx":{"type":"integer","description":"What fits."}}}}},

"TextPart":{"type":"object","required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}},
"Tool":{"type":"object","required":["type","function"],"properties":{"type":{"const":"function"},"function":{"type":"object","required":["name"],
  "properties":{"name":{"type":"string","pattern":"^[A-Za-z0-9_.-]{1,128}$"},"description":{"type":["string","null"]},"parameters":{"type":["object","null"]},
    "strict":{"type":["boolean","null"]}}}}},
"ToolChoice":{"oneOf":[{"enum":["none","auto","required"]},
  {"type":"object","required":["type","function"],"properties":{"type":{"const":"function"},"function":{"$ref":"#/components/schemas/FunctionName"}}},
  {"type":"object","required":["type","allowed_tools"],"properties":{"type":{"const":"allowed_tools"},"allowed_tools":{"type":"object","required":["mode","tools"],
    "properties":{"mode":{"enum":["none","auto","required"]},"tools":{"type":"array","minItems":1,"items":{"type":"object","required":["function"],
      "properties":{"function":{"$ref":"#/components/schemas/FunctionName"}}}}}}}}]},
"FunctionName":{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}},
"ToolCall":{"type":"object","required":["id","type","function"],"properties":{"id":{"type":"string"},"type":{"const":"function"},
  "function":{"type":"object","required":["name","arguments"],"properties":{"name":{"type":"string"},"arguments":{"type":"string"}}}}},
"ToolCallPiece":{"type":"object","required":["index","function"],"properties":{"index":{"type":"integer","minimum":0},"id":{"type":"string"},"type":{"const":"function"},
  "function":{"type":"object","required":["arguments"],"properties":{"name":{"type":"string"},"arguments":{"type":"string"}}}}},
"Content":{"oneOf":[{"type":"string"},{"type":"array","items":{"oneOf":[{"type":"string"},{"$ref":"#/components/schemas/TextPart"}]}}]},
"Message":{"type":"object","required":["role"],"properties":{"role":{"enum":["system","developer","user","assistant","tool"]},
  "content":{"oneOf":[{"$ref":"#/components/schemas/Content"},{"type":"null"}]},"name":{"anyOf":[{"type":["string","null"]},{"enum":[[],{}]}]},
  "tool_calls":{"anyOf":[{"type":["array","null"]},{"enum":["",{}]}]}},
  "anyOf":[{"required":["content"]},{"properties":{"role":{"enum":["assistant","tool"]}}}]},
"TokenIds":{"type":"array","items":{"type":"integer","minimum":0,"maximum":@max_token}},
"Bias":{"oneOf":[{"type":"number","minimum":-100,"maximum":100},{"const":false}]},
"PromptRow":{"description":"Ids, in which texts may stand.","type":"array","items":{"oneOf":[{"type":"string"},{"type":"integer","minimum":0,"maximum":@max_token}]}},
"Prompt":{"anyOf":[{"type":"string"},{"allOf":[{"$ref":"#/components/schemas/PromptRow"},{"minItems":1}]},
  {"type":"array","minItems":1,"items":{"oneOf":[{"type":"string"},{"$ref":"#/components/schemas/TokenIds"}]}}]},
"TokenizeRequest":{"type":"object","description":"A text; or messages, with any other field of ChatRequest, which is then read as there.",
  "properties":{"content":{"type":["string","null"]},"prompt":{"type":["string","null"]},
  "messages":{"oneOf":[{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/Message"}},{"type":"null"}]},
  "add_special":{"type":["boolean","null"]},"add_special_tokens":{"type":["boolean","null"]},"parse_special":{"type":["boolean","null"]},
  "with_pieces":{"type":["boolean","null"]},"return_token_strs":{"type":["boolean","null"]},"add_generation_prompt":{"type":["boolean","null"]}},
  "anyOf":[{"required":["content"],"properties":{"content":{"type":"string"}}},{"required":["prompt"],"properties":{"prompt":{"type":"string"}}},
    {"required":["messages"],"properties":{"messages":{"type":"array"}}}]},
"DetokenizeRequest":{"type":"object","required":["tokens"],"properties":{"tokens":{"$ref":"#/components/schemas/TokenIds"}}},
"TemplateRequest":{"$ref":"#/components/schemas/ChatRequest"},

"Usage":{"type":"object","required":["prompt_tokens","completion_tokens","total_tokens","prompt_tokens_details"],"properties":{
  "prompt_tokens":{"type":"integer","minimum":0},"completion_tokens":{"type":"integer","minimum":0},"total_tokens":{"type":"integer","minimum":0},
  "prompt_tokens_details":{"type":"object","required":["cached_tokens"],"properties":{"cached_tokens":{"type":"integer","minimum":0}}},
  "completion_tokens_details":{"type":"object","description":"Tokens of reasoning, markers included, where the model reasons; of requests with prediction or speculation, verified draft tokens.","properties":{
    "reasoning_tokens":{"type":"integer","minimum":0},
    "accepted_prediction_tokens":{"type":"integer","minimum":0},"rejected_prediction_tokens":{"type":"integer","minimum":0}}}}},
"Ledger":{"type":"object","additionalProperties":false,"description":"Where the time of an answer went, in milliseconds; the phases add up to the total.",
  "required":["queue_ms","prefill_ms","decode_ms","sampling_ms","others_ms","preempted_ms","swapped_ms","network_ms","total_ms"],"properties":{
  "queue_ms":{"type":"number"},"prefill_ms":{"type":"number"},"decode_ms":{"type":"number"},"sampling_ms":{"type":"number"},"others_ms":{"type":"number"},
  "preempted_ms":{"type":"number"},"swapped_ms":{"type":"number"},"network_ms":{"type":"number"},"total_ms":{"type":"number"}}},
"Digest":{"type":"string","pattern":"^[0-9a-f]+$"},
"TraceHeader":{"type":"object","additionalProperties":false,"description":"What all draws of an answer have in common.",
  "required":["engine","version","arithmetic","arithmetic_version","model","model_digest","adapter","generator","stages","order_digest","parameters","sources","sampling_digest"],
  "properties":{"engine":{"const":"ibid"},"version":{"type":"string"},"arithmetic":{"type":"string"},"arithmetic_version":{"type":"integer","minimum":1},"model":{"type":"string"},"model_digest":{"$ref":"#/components/schemas/Digest"},
  "adapter":{"type":["string","null"]},"generator":{"const":"philox4x32-10"},"stages":{"type":"array","items":{"type":"string"},"uniqueItems":true},
  "order_digest":{"$ref":"#/components/schemas/Digest"},"parameters":{"type":"object","required":["temperature","top_k","top_p"]},
  "sources":{"type":"object","required":["temperature","top_k","top_p"],"additionalProperties":{"enum":["request","flag","model","default"]}},
  "sampling_digest":{"$ref":"#/components/schemas/Digest"},"grammar_digest":{"$ref":"#/components/schemas/Digest"}}},
"TraceRecord":{"type":"object","additionalProperties":false,
  "description":"One draw: a function of the processed distribution, the seed and the counter (position, purpose).",
  "required":["token","logprob","processed_logprob","support","seed","position","purpose","parameters","model_digest","sampling_digest"],
  "properties":{"token":{"type":"integer","minimum":0},"logprob":{"type":"number","maximum":0},"processed_logprob":{"type":"number","maximum":0},
  "support":{"type":"integer","minimum":1},"seed":{"type":"integer","minimum":0},"position":{"type":"integer","minimum":1},"purpose":{"const":"draw"},
  "parameters":{"type":"object","required":["temperature","top_k","top_p"],"additionalProperties":{"type":["number","boolean"]}},
  "model_digest":{"$ref":"#/components/schemas/Digest"},"sampling_digest":{"$ref":"#/components/schemas/Digest"}}},
"PromptLogprobs":{"type":"array","items":{"type":["object","null"],"propertyNames":{"pattern":"^[0-9]+$"},"additionalProperties":{
  "type":"object","required":["logprob","decoded_token"],"properties":{"logprob":{"type":"number","maximum":0},"decoded_token":{"type":"string"}}}}},
"TokenLogprob":{"type":"object","required":["token","logprob","bytes"],"properties":{"id":{"type":"integer","minimum":0},"token":{"type":"string"},
  "logprob":{"type":"number","maximum":0},"processed_logprob":{"type":"number","maximum":0},"bytes":{"type":"array","items":{"type":"integer","minimum":0,"maximum":255}}}},
"ChatLogprobs":{"type":"object","required":["content","refusal"],"properties":{"refusal":{"type":"null"},"content":{"type":"array","items":{
  "allOf":[{"$ref":"#/components/schemas/TokenLogprob"},{"type":"object","required":["top_logprobs"],"properties":{
    "top_logprobs":{"type":"array","items":{"$ref":"#/components/schemas/TokenLogprob"}}}}]}}}},
"CompletionLogprobs":{"type":"object","required":["tokens","token_logprobs","top_logprobs","text_offset"],"properties":{
  "tokens":{"type":"array","items":{"type":"string"}},"token_logprobs":{"type":"array","items":{"type":["number","null"],"maximum":0}},
  "processed_logprobs":{"type":"array","items":{"type":["number","null"],"maximum":0}},
  "top_logprobs":{"type":"array","items":{"type":["object","null"],"additionalProperties":{"type":"number","maximum":0}}},
  "processed_top_logprobs":{"type":"array","items":{"type":["object","null"],"additionalProperties":{"type":"number","maximum":0}}},
  "text_offset":{"type":"array","items":{"type":"integer","minimum":0}}}},
"Head":{"type":"object","required":["id","created","model","system_fingerprint","seed","choices"],"properties":{"id":{"type":"string"},
  "created":{"type":"integer"},"model":{"type":"string"},"system_fingerprint":{"type":"string"},"seed":{"type":"integer","minimum":0},
  "exact":{"enum":["distribution",false],"description":"Of requests with speculation.verifier rejection: the law of the answer is the model's, its bytes depend on the drafts; of typical: neither is exact."},"trace_header":{"$ref":"#/components/schemas/TraceHeader"},
  "ledger":{"$ref":"#/components/schemas/Ledger"}}},
"Choice":{"type":"object","required":["index","logprobs","finish_reason"],"properties":{"index":{"type":"integer","minimum":0},
  "stop_reason":{"description":"The text or the token id that ended it.","type":["string","integer","null"]},
  "not_held":{"description":"What a schema asks that the answer was not held to, and where.","type":"array","items":{"type":"string"}},
  "score":{"description":"Of a search: what its texts are ranked by.","type":"number"},
  "token_ids":{"$ref":"#/components/schemas/TokenIds"},"trace":{"type":"array","items":{"$ref":"#/components/schemas/TraceRecord"}}}},
"Ended":{"required":["stop_reason"],"properties":{"finish_reason":{"enum":["stop","length","tool_calls","cancelled"]}}},
"ChatChoice":{"allOf":[{"$ref":"#/components/schemas/Choice"},{"properties":{
  "logprobs":{"oneOf":[{"$ref":"#/components/schemas/ChatLogprobs"},{"type":"null"}]}}}]},
"CompletionChoice":{"allOf":[{"$ref":"#/components/schemas/Choice"},{"required":["text"],"properties":{"text":{"type":"string"},
  "prompt_logprobs":{"oneOf":[{"$ref":"#/components/schemas/PromptLogprobs"},{"type":"null"}]},"logprobs":{"oneOf":[{"$ref":"#/components/schemas/CompletionLogprobs"},{"type":"null"}]}}}]},
"ChatCompletion":{"allOf":[{"$ref":"#/components/schemas/Head"},{"required":["object","usage"],"properties":{
  "object":{"const":"chat.completion"},"usage":{"$ref":"#/components/schemas/Usage"},"prompt_logprobs":{"oneOf":[{"$ref":"#/components/schemas/PromptLogprobs"},{"type":"null"}]},
  "choices":{"type":"array","minItems":1,"items":{"allOf":[{"$ref":"#/components/schemas/ChatChoice"},{"$ref":"#/components/schemas/Ended"},
    {"required":["message"],"properties":{"message":{"type":"object","required":["role","content","refusal"],"properties":{
      "role":{"const":"assistant"},"content":{"type":["string","null"]},"refusal":{"type":"null"},"reasoning":{"type":"string"},"reasoning_content":{"type":"string"},
      "tool_calls":{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/ToolCall"}}}}}}]}}}}]},
"Completion":{"allOf":[{"$ref":"#/components/schemas/Head"},{"required":["object","usage"],"properties":{
  "object":{"const":"text_completion"},"usage":{"$ref":"#/components/schemas/Usage"},
  "choices":{"type":"array","minItems":1,"items":{"allOf":[{"$ref":"#/components/schemas/CompletionChoice"},{"$ref":"#/components/schemas/Ended"}]}}}}]},

"ChatCompletionChunk":{"allOf":[{"$ref":"#/components/schemas/Head"},{"required":["object"],"properties":{
  "object":{"const":"chat.completion.chunk"},"prompt_progress":{"$ref":"#/components/schemas/PromptProgress"},"prompt_logprobs":{"$ref":"#/components/schemas/PromptLogprobs"},"usage":{"oneOf":[{"$ref":"#/components/schemas/Usage"},{"type":"null"}]},
  "choices":{"type":"array","maxItems":1,"items":{"allOf":[{"$ref":"#/components/schemas/ChatChoice"},{"$ref":"#/components/schemas/Piece"},
    {"required":["delta"],"properties":{"delta":{"type":"object","properties":{"role":{"const":"assistant"},"content":{"type":["string","null"]},"reasoning":{"type":"string"},
      "reasoning_content":{"type":"string"},"tool_calls":{"type":"array","minItems":1,"items":{"$ref":"#/components/schemas/ToolCallPiece"}}}}}}]}}}}]},
"CompletionChunk":{"allOf":[{"$ref":"#/components/schemas/Head"},{"required":["object"],"properties":{
  "object":{"const":"text_completion"},"prompt_progress":{"$ref":"#/components/schemas/PromptProgress"},"usage":{"oneOf":[{"$ref":"#/components/schemas/Usage"},{"type":"null"}]},
  "choices":{"type":"array","maxItems":1,"items":{"allOf":[{"$ref":"#/components/schemas/CompletionChoice"},{"$ref":"#/components/schemas/Piece"}]}}}}]},
"PromptProgress":{"type":"object","required":["total","cache","processed","time_ms"],"properties":{"total":{"type":"integer"},"cache":{"type":"integer"},"processed":{"type":"integer"},"time_ms":{"type":"integer"}}},
"Piece":{"oneOf":[{"properties":{"finish_reason":{"type":"null"}}},{"$ref":"#/components/schemas/Ended"}]},
"ChatCompletionEvent":{"type":"object","required":["data"],"properties":{"data":{"oneOf":[{"const":"[DONE]"},{"type":"string",
  "contentMediaType":"application/json","contentSchema":{"oneOf":[{"$ref":"#/components/schemas/ChatCompletionChunk"},{"$ref":"#/components/schemas/Error"}]}}]}}},
"CompletionEvent":{"type":"object","required":["data"],"properties":{"data":{"oneOf":[{"const":"[DONE]"},{"type":"string",
  "contentMediaType":"application/json","contentSchema":{"oneOf":[{"$ref":"#/components/schemas/CompletionChunk"},{"$ref":"#/components/schemas/Error"}]}}]}}},

"Model":{"type":"object","required":["id","object","created","owned_by","root","arithmetic","loaded"],"properties":{"id":{"type":"string"},
  "arithmetic":{"description":"Name and number of the laws that sums follow: engines with the same one compute the same bits.","type":"string"},
  "object":{"const":"model"},"created":{"type":"integer"},"owned_by":{"type":"string"},"root":{"type":"string"},"loaded":{"type":"boolean"},"status":{"type":"object"},"aliases":{"type":"array","items":{"type":"string"}},"tags":{"type":"array","items":{"type":"string"}},"max_model_len":{"type":"integer","minimum":1},"capabilities":{"type":"array","items":{"type":"string"}},
  "meta":{"type":"object","required":["architecture","digest"],"properties":{"architecture":{"type":"string"},"digest":{"type":"string"},"n_ctx":{"type":"integer","minimum":1}}}}},
"ModelList":{"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},
  "data":{"type":"array","items":{"$ref":"#/components/schemas/Model"}}}},
"Tokens":{"type":"object","required":["tokens","count","max_model_len"],"properties":{"count":{"type":"integer","minimum":0},"max_model_len":{"type":"integer"},
  "token_strs":{"description":"The vocabulary's spellings, with return_token_strs.","type":["array","null"],"items":{"type":"string"}},
  "tokens":{"type":"array","items":{"oneOf":[{"type":"integer","minimum":0},{"type":"object","required":["id","piece"],"properties":{
    "id":{"type":"integer","minimum":0},"piece":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"integer","minimum":0,"maximum":255}}]}}}]}}}},
"Text":{"type":"object","required":["content","prompt"],"properties":{"content":{"type":"string"},"prompt":{"type":"string"}}},
"TemplateText":{"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}},
"Health":{"type":"object","required":["status"],"properties":{"status":{"enum":["ready","loading","draining","stalled"]},
  "running":{"type":"integer","minimum":0},"waiting":{"type":"integer","minimum":0},"heartbeat_age":{"type":"number","minimum":0}}},
"Version":{"type":"object","required":["version"],"properties":{"version":{"type":"string"}}},
"Engine":{"type":"object","required":["steps_total","running","waiting","blocks","tokens","steps","tenants","requests"],"properties":{
  "steps_total":{"type":"integer"},"running":{"type":"integer"},"waiting":{"type":"integer"},
  "blocks":{"type":"object","required":["total","free","cached","in_use","shared"],"additionalProperties":{"type":"integer","minimum":0}},
  "tokens":{"type":"object","required":["prompt","cached","generated"],"additionalProperties":{"type":"integer","minimum":0}},
  "steps":{"type":"array","items":{"type":"object","required":["n","age","prefill","decode"],"additionalProperties":{"type":"number"}}},
  "tenants":{"type":"array","maxItems":33,"items":{"type":"object","required":["tenant","sequences","tokens","refused"]}},
  "requests":{"type":"array","items":{"type":"object","required":["route","age","prompt_tokens","generated","choices","stream"]}}}},
"Description":{"type":"object","required":["openapi","info","paths"]})";
// clang-format on

}  // namespace ibid
