"""Prompts to bodies and answers to outputs; shared by LLM and AsyncLLM."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Union

from .engine import Engine
from .outputs import CompletionOutput, Logprob, RequestOutput
from .params import LoRARequest, SamplingParams


class TextPrompt(TypedDict):
    prompt: str


class TokensPrompt(TypedDict):
    prompt_token_ids: Sequence[int]


Prompt = Union[str, Sequence[int], TextPrompt, TokensPrompt]
Messages = Sequence[Mapping[str, Any]]

# vLLM's arguments of LLM that ibid has under another name.
_RENAMED = {"max_model_len": "ctx", "max_num_seqs": "max_sequences", "max_num_batched_tokens": "max_tokens_per_step",
            "kv_cache_memory_bytes": "kv_memory", "served_model_name": "alias", "kv_cache_dtype": "kv_dtype"}
# And those that say what is always so here: the values that ask for it.
_ALWAYS: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_size": (1,), "pipeline_parallel_size": (1,), "dtype": ("auto",), "trust_remote_code": (False,),
    "enforce_eager": (True, False), "enable_prefix_caching": (True,), "enable_chunked_prefill": (True,),
    "disable_log_stats": (True, False), "tokenizer_mode": ("auto",), "runner": ("auto",), "task": ("auto", "generate", "embed", "score")}


def engine_options(model: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's and ibid's arguments as flags of `ibid serve`."""
    out: dict[str, Any] = {"model": model}
    for name, value in given.items():
        name = _RENAMED.get(name, name)
        if value is None or value in _ALWAYS.get(name, ()):
            continue
        if name in _ALWAYS:
            raise ValueError(f"{name} must be {' or '.join(repr(v) for v in _ALWAYS[name])}: ibid has nothing else.")
        if name == "gpu_memory_utilization":
            raise ValueError("gpu_memory_utilization is a share; ibid takes memory=\"4G\", of the whole process.")
        out[name] = value
    if out.get("enable_lora"):
        out.setdefault("lora_updates", True)  # an adapter is loaded when a request first names it
    return out


def with_adapter(engine: Engine, loaded: set[str], body: dict[str, Any], lora: LoRARequest | None) -> dict[str, Any]:
    """The body of a request to an adapter, loaded now unless its name is among `loaded`."""
    if lora is None:
        return body
    if lora.lora_path and lora.lora_name not in loaded:
        engine.call("/v1/load_lora_adapter", {"lora_name": lora.lora_name, "lora_path": str(lora.lora_path)})
    loaded.add(lora.lora_name)
    return {**body, "model": lora.lora_name}


def completion_body(prompt: Prompt, params: SamplingParams | None) -> dict[str, Any]:
    given: Any = prompt
    if isinstance(prompt, Mapping):
        unknown = set(prompt) - {"prompt", "prompt_token_ids"}
        if unknown or len(prompt) != 1:
            raise ValueError("A prompt is a text, token ids, {\"prompt\": text} or {\"prompt_token_ids\": ids}.")
        given = next(iter(prompt.values()))
    if not isinstance(given, str):
        given = [int(token) for token in given]
    body = {"max_tokens": SamplingParams.max_tokens} if params is None else params.body(chat=False)
    if "logprobs" in body:
        body["return_tokens_as_token_ids"] = True
    return {**body, "prompt": given, "return_token_ids": True}


def chat_body(messages: Messages, params: SamplingParams | None, more: Mapping[str, Any]) -> dict[str, Any]:
    body = {"max_tokens": SamplingParams.max_tokens} if params is None else params.body(chat=True)
    return {**body, **{name: value for name, value in more.items() if value is not None}, "messages": list(messages),
            "return_token_ids": True}


class Tokenizer:
    """The model's own: texts to ids and back."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pieces: dict[int, str] = {}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text; with those that the model puts around one, as BOS."""
        tokens: list[int] = self._engine.ask("/tokenize", {"content": text, "add_special": add_special_tokens})["tokens"]
        return tokens

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, with control tokens as they are spelled."""
        return str(self._engine.ask("/detokenize", {"tokens": [int(token) for token in token_ids]})["content"])

    def apply_chat_template(self, messages: Messages, **more: Any) -> str:
        """The prompt that the model's chat template makes of messages; `more` as in /apply-template."""
        return str(self._engine.ask("/apply-template", {"messages": list(messages), **more})["prompt"])

    def piece(self, token: int) -> str:
        if token not in self._pieces:
            self._pieces[token] = self.decode([token])
        return self._pieces[token]


Piece = Callable[[int], str]


def _completion_logprobs(told: Mapping[str, Any], piece: Piece) -> list[dict[int, Logprob]]:
    """The answer's columns: per token those that were asked for."""
    out = []
    for row in told["top_logprobs"]:
        of = {int(key.removeprefix("token_id:")): value for key, value in row.items()}
        out.append({token: Logprob(value, decoded_token=piece(token)) for token, value in of.items()})
    return out


def _chat_logprobs(told: Mapping[str, Any]) -> list[dict[int, Logprob]]:
    out = []
    for entry in told["content"]:
        entries = [entry, *entry["top_logprobs"]]
        out.append({int(e["id"]): Logprob(e["logprob"], decoded_token=e["token"]) for e in entries})
    return out


def _prompt_logprobs(told: Sequence[Mapping[str, Any] | None]) -> list[dict[int, Logprob] | None]:
    return [None if row is None else {int(token): Logprob(of["logprob"], decoded_token=of["decoded_token"])
                                      for token, of in row.items()} for row in told]


def choice_output(choice: Mapping[str, Any], piece: Piece) -> CompletionOutput:
    """A choice of an answer, or of an event of a stream."""
    message = choice.get("message", choice.get("delta"))
    text = choice.get("text") if message is None else message.get("content")
    out = CompletionOutput(index=choice["index"], text=text or "", token_ids=list(choice.get("token_ids") or ()),
                           finish_reason=choice.get("finish_reason"), stop_reason=choice.get("stop_reason"), message=message)
    told = choice.get("logprobs")
    if told:
        out.logprobs = _chat_logprobs(told) if message is not None else _completion_logprobs(told, piece)
        out.cumulative_logprob = sum(of[token].logprob for of, token in zip(out.logprobs, out.token_ids))
    return out


def request_output(answer: Mapping[str, Any], prompt: str | None, piece: Piece) -> RequestOutput:
    """The answer to one prompt or conversation."""
    choices = answer["choices"]
    first = choices[0] if choices and "prompt_token_ids" in choices[0] else answer
    told = first.get("prompt_logprobs")
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    return RequestOutput(request_id=answer["id"], prompt=prompt, prompt_token_ids=list(first.get("prompt_token_ids") or ()),
                         outputs=[choice_output(choice, piece) for choice in choices],
                         prompt_logprobs=None if told is None else _prompt_logprobs(told),
                         num_cached_tokens=int(details.get("cached_tokens", 0)), seed=int(answer.get("seed", 0)))


def prompt_text(prompt: Prompt) -> str | None:
    if isinstance(prompt, str):
        return prompt
    text = prompt.get("prompt") if isinstance(prompt, Mapping) else None
    return text if isinstance(text, str) else None


def encoded(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()
