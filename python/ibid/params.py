"""How tokens are chosen: vLLM's names, where they mean the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from .processors import LogitsProcessor


@dataclasses.dataclass
class StructuredOutputsParams:
    """What an answer must be; exactly one is set (docs/users/structured.md).

    `json` is a schema as an object or a text, or a pydantic class; `regex` an expression that the whole answer matches;
    `choice` the answers that there are; `grammar` GBNF or Lark; `json_object` any JSON object.
    """

    json: Any = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None

    def body(self) -> dict[str, Any]:
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) is not None}
        if len(given) != 1:
            raise ValueError("StructuredOutputsParams takes exactly one of json, regex, choice, grammar, json_object and structural_tag.")
        if hasattr(self.json, "model_json_schema"):
            given["json"] = self.json.model_json_schema()
        if self.choice is not None:
            given["choice"] = list(self.choice)
        return given


GuidedDecodingParams = StructuredOutputsParams


@dataclasses.dataclass(frozen=True)
class LoRARequest:
    """An adapter by its name, and the folder or GGUF file that it is loaded from the first time. The model was opened with
    `enable_lora=True`. The number is vLLM's and has no effect."""

    lora_name: str
    lora_int_id: int = 0
    lora_path: str = ""


@dataclasses.dataclass
class SamplingParams:
    """Sampling of one request; names and defaults are vLLM's. Ranges are checked by the engine (docs/users/api.md).

    `temperature=0` is greedy. With a `seed` the same prompt gives the same text, whatever runs beside it; without one each
    request draws another. `max_tokens=None` is up to the context. `logprobs=k` reports those of k tokens beside the chosen
    one. `logits_processors` are functions that change a token's logits before it is drawn (`ibid.processors.one_of`): the slow
    path. `extra` holds any further field of the request, as {"dry_multiplier": 0.8}.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    logit_bias: Mapping[int, float] | None = None
    allowed_token_ids: Sequence[int] | None = None
    truncate_prompt_tokens: int | None = None
    structured_outputs: StructuredOutputsParams | None = None
    guided_decoding: StructuredOutputsParams | None = None
    logits_processors: Sequence[LogitsProcessor] | None = None
    extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def body(self, *, chat: bool) -> dict[str, Any]:
        """The fields of a request; of a chat log-probabilities have other names."""
        out: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in ("structured_outputs", "guided_decoding", "logprobs", "logits_processors", "extra") or value is None:
                continue
            if field.name == "logit_bias":
                value = {str(token): bias for token, bias in value.items()}
            out[field.name] = value if isinstance(value, (str, dict)) or not isinstance(value, Sequence) else list(value)
        if self.logprobs is not None:
            out.update({"logprobs": True, "top_logprobs": self.logprobs} if chat else {"logprobs": self.logprobs})
        structured = self.structured_outputs or self.guided_decoding
        if structured is not None:
            out["structured_outputs"] = structured.body()
        out.update(self.extra)
        return out
