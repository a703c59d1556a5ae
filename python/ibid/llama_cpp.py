"""The common calls of llama_cpp.Llama: `from ibid.llama_cpp import Llama`.

Names, defaults and answers are llama-cpp-python's where they mean the same. What ibid has not is refused by a sentence, and
what does not concern it (GPU layers, mmap, the size of batches) is taken and has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union

from .engine import Engine
from .processors import LogitsProcessor, Processor, one_of

Answer = dict[str, Any]

_WITHOUT_EFFECT = frozenset({
    "n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "use_mmap", "use_mlock", "n_batch", "n_ubatch", "n_threads_batch",
    "verbose", "embedding", "logits_all", "offload_kqv", "flash_attn", "last_n_tokens_size", "chat_format", "swa_full"})
_RENAMED = {"repeat_penalty": "repetition_penalty"}


class Llama:
    """A model with llama_cpp.Llama's calls.

    Args:
        model_path: a GGUF file, or anything else that `ibid serve` takes as a model.
        n_ctx: tokens of a context; 0: the model's.
        n_threads: None: all cores.
        seed: of requests that have none; -1: another for each.
        options: flags of `ibid serve`, as `memory="4G"`.

    Raises:
        IbidError: the model cannot be loaded, or an option is wrong.

    Unlike a Llama of llama.cpp it may be called from several threads, and their requests run together.
    """

    def __init__(self, model_path: str, *, n_ctx: int = 512, n_threads: int | None = None, seed: int = 0xFFFFFFFF, **options: Any) -> None:
        for name in ("lora_path", "chat_handler", "draft_model", "tokenizer"):
            if options.pop(name, None) is not None:
                raise ValueError(f"{name} is not supported.")
        flags = {name: value for name, value in options.items() if name not in _WITHOUT_EFFECT}
        if seed not in (-1, 0xFFFFFFFF):
            flags["seed"] = seed
        self.model_path = model_path
        self.engine = Engine(model=model_path, ctx=n_ctx or None, threads=n_threads, **flags)
        self._props: Answer | None = None

    @classmethod
    def from_pretrained(cls, repo_id: str, filename: str | None = None, **more: Any) -> Llama:
        """A model of Hugging Face: fetched once."""
        return cls(f"hf:{repo_id}" + (f":{filename}" if filename else ""), **more)

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- text ------------------------------------------------------------------------------------------------------

    def create_completion(self, prompt: str | Sequence[int], suffix: str | None = None, max_tokens: int | None = 16,
                          temperature: float = 0.8, top_p: float = 0.95, min_p: float = 0.05, typical_p: float = 1.0,
                          logprobs: int | None = None, echo: bool = False, stop: str | Sequence[str] | None = None,
                          frequency_penalty: float = 0.0, presence_penalty: float = 0.0, repeat_penalty: float = 1.0,
                          top_k: int = 40, stream: bool = False, seed: int | None = None,
                          **more: Any) -> Union[Answer, Iterator[Answer]]:
        """Continues a text or token ids: OpenAI's JSON as an object, or with `stream` its events. `more` are further fields
        of /v1/completions, as `grammar`, `logit_bias`, `mirostat` or `json_schema`; `logits_processor` is a list of functions
        of the ids so far and the logits."""
        if max_tokens is not None and max_tokens <= 0:
            max_tokens = None
        body = _fields(locals())
        body["prompt"] = prompt if isinstance(prompt, str) else [int(token) for token in prompt]
        return self._answer("/v1/completions", body)

    def __call__(self, prompt: str | Sequence[int], *arguments: Any, **more: Any) -> Union[Answer, Iterator[Answer]]:
        """`create_completion`."""
        return self.create_completion(prompt, *arguments, **more)

    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None,
                               tool_choice: Any = None, temperature: float = 0.2, top_p: float = 0.95, top_k: int = 40,
                               min_p: float = 0.05, typical_p: float = 1.0, stream: bool = False,
                               stop: str | Sequence[str] | None = None, seed: int | None = None,
                               response_format: Mapping[str, Any] | None = None, max_tokens: int | None = None,
                               presence_penalty: float = 0.0, frequency_penalty: float = 0.0, repeat_penalty: float = 1.0,
                               logprobs: bool | None = None, top_logprobs: int | None = None,
                               **more: Any) -> Union[Answer, Iterator[Answer]]:
        """Answers a conversation: OpenAI's JSON as an object, or with `stream` its events. {"type": "json_object", "schema":
        ...} as `response_format` holds the answer to the schema."""
        if response_format is not None and response_format.get("type") == "json_object" and "schema" in response_format:
            response_format = {"type": "json_schema", "json_schema": {"name": "answer", "schema": response_format["schema"]}}
        body = _fields(locals())
        body["messages"] = list(messages)
        return self._answer("/v1/chat/completions", body)

    def _answer(self, path: str, body: Answer) -> Union[Answer, Iterator[Answer]]:
        processor = _processor(body.pop("logits_processor", None))
        if body.get("stream"):
            return self.engine.stream(path, body, processor)
        answer: Answer = self.engine.ask(path, body, processor)
        return answer

    # ---- vectors ---------------------------------------------------------------------------------------------------

    def create_embedding(self, input: str | Sequence[str], model: str | None = None) -> Answer:
        """OpenAI's JSON of the vectors of one text or several."""
        answer: Answer = self.engine.ask("/v1/embeddings", {"input": input if isinstance(input, str) else list(input)})
        return answer

    def embed(self, input: str | Sequence[str], normalize: bool = False, truncate: bool = True) -> Any:
        """The vector of a text as a list of floats, or a list of those of several texts. With `truncate` a text beyond the
        context loses its end."""
        more: Answer = {"truncate_prompt_tokens": -1} if truncate else {}
        out = []
        for text in [input] if isinstance(input, str) else input:
            told = self.engine.ask("/embedding", {"content": text, "embd_normalize": 2 if normalize else -1, **more})
            vector: list[Any] = told[0]["embedding"]
            out.append(vector[0] if isinstance(vector[0], list) else vector)
        return out[0] if isinstance(input, str) else out

    # ---- tokens ----------------------------------------------------------------------------------------------------

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """The ids of a text in UTF-8; with `special`, control tokens in it are read as such."""
        body = {"content": text.decode("utf-8", "replace"), "add_special": add_bos, "parse_special": special}
        tokens: list[int] = self.engine.ask("/tokenize", body)["tokens"]
        return tokens

    def detokenize(self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False) -> bytes:
        """The text of ids, in UTF-8."""
        return str(self.engine.ask("/detokenize", {"tokens": [int(token) for token in tokens]})["content"]).encode()

    def n_ctx(self) -> int:
        """Tokens of a context."""
        if self._props is None:
            self._props = self.engine.ask("/props")
        return int(self._props["default_generation_settings"]["n_ctx"])

    def reset(self) -> None:
        """Nothing: requests have no state in common, and the cache of prefixes changes no answer."""


def _fields(given: Mapping[str, Any]) -> Answer:
    """A call's arguments as fields of a request."""
    out = {_RENAMED.get(name, name): value for name, value in given.items()
           if name not in ("self", "more", "prompt", "messages") and value is not None}
    for name, value in given["more"].items():
        if name in ("stopping_criteria", "grammar") and value is not None and not isinstance(value, str):
            raise ValueError("grammar must be a text." if name == "grammar" else f"{name} is not supported; stop is.")
        if value is not None and name != "model":
            out[_RENAMED.get(name, name)] = value
    return out


def _processor(given: Any) -> Processor | None:
    """llama_cpp's functions of the ids so far and the logits."""
    functions = given if isinstance(given, (list, tuple)) or given is None else [given]
    return one_of([_of_all_ids(function) for function in functions or ()])


def _of_all_ids(function: LogitsProcessor) -> LogitsProcessor:
    return lambda prompt, answer, logits: function([*prompt, *answer], logits)
