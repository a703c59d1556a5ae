"""What requests keep that a schema cannot say, for schemathesis in the run in which all valid requests must be served."""
import os

import schemathesis

# Two names of one field must agree.
SECOND_NAMES = ("max_completion_tokens", "n_predict", "repeat_penalty", "n_probs", "n_cmpl", "thinking_budget", "reasoning_budget_tokens")
GRAMMARS = ("json_schema", "grammar", "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "regex", "ebnf")
# Fields of searches, and of grammars that wait for a trigger, ask for each other.
SEARCHES = ("num_beams", "use_beam_search", "length_penalty", "early_stopping", "num_beam_groups", "diversity_penalty",
            "penalty_alpha", "best_of", "grammar_lazy", "grammar_triggers")
TOKENIZE = ("content", "prompt", "messages", "add_special", "add_special_tokens", "parse_special", "with_pieces",
            "add_generation_prompt")


def with_text(prompt):
    """A prompt has tokens."""
    if not prompt:
        return "x"
    if not isinstance(prompt, list):
        return prompt
    return prompt[:50] if isinstance(prompt[0], (int, float)) else [with_text(item) for item in prompt[:3]]


def one_grammar(body):
    """At most one field constrains the answer, and its language is beyond a schema."""
    for name in GRAMMARS:
        body.pop(name, None)
    asked = body.pop("response_format", None)
    # With biases and bans, what the grammar leaves might be nothing.
    if isinstance(asked, dict) and not any(body.get(name) for name in ("logit_bias", "bad_words", "allowed_token_ids")):
        body["response_format"] = {"type": "text" if asked.get("type") == "text" else "json_object"}


def agree(body):
    for name in SECOND_NAMES + SEARCHES:
        body.pop(name, None)
    body["model"] = None
    body["max_tokens"] = 1 + (body.get("max_tokens") or 0) % 8
    body["min_tokens"] = min(body.get("min_tokens") or 0, body["max_tokens"])
    body["n"] = 1 + (body.get("n") or 0) % 3
    body["truncate_prompt_tokens"] = body.get("truncate_prompt_tokens") or -1
    body["stream"] = len(str(body)) % 2 == 0  # rarely drawn
    if not body["stream"]:
        body.pop("stream_options", None)
    if body.get("tool_choice") not in ("auto", "none"):  # it names a tool, or wants one to choose from
        body.pop("tool_choice", None)
    body.pop("resume", None)  # its ids are of the answer that the rest of the body gives
    if body.get("continue_final_message"):
        body.pop("add_generation_prompt", None)
        last = (body.get("messages") or [{}])[-1]
        if not isinstance(last, dict) or last.get("role") != "assistant" or last.get("tool_calls"):
            body.pop("continue_final_message")
    if body.get("top_logprobs"):
        body["logprobs"] = True
    if not body.get("logprobs"):
        body.pop("logprob_token_ids", None)
    if body.get("logit_bias") or body.get("bad_words"):
        body.pop("allowed_token_ids", None)  # something must be left to draw from
    one_grammar(body)
    body.pop("suffix", None)  # the tiny model has no tokens for filling in
    if body.get("kv_eviction"):  # a budget has room for the window and the sinks
        body["kv_eviction"] = {"method": body["kv_eviction"]["method"], "keep": 1024}
    if "prompt_logprobs" in body or body.get("echo"):  # they read the whole prompt
        body.pop("kv_eviction", None)
    if "prompt" in body:
        body["prompt"] = with_text(body["prompt"])


if os.environ.get("IBID_ALL_SERVED"):
    @schemathesis.hook
    def map_body(context, body):
        path = context.operation.path
        if isinstance(body, dict) and (path.startswith("/v1/") or path == "/apply-template"):
            agree(body)
        if isinstance(body, dict) and path == "/tokenize":  # beside messages, a name that was drawn may be one of chat's fields
            body = {name: body[name] for name in TOKENIZE if name in body}
        return body
