"""Offline inference: many prompts, answers in their order."""

from __future__ import annotations

import json
import os
import pathlib
import queue
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, Union, cast

from ._requests import (Messages, Prompt, Tokenizer, chat_body, completion_body, encoded, engine_options, prompt_text, request_output,
                        with_adapter)
from .engine import Engine, Request
from .errors import BusyError, IbidError
from .outputs import EmbeddingOutput, EmbeddingRequestOutput, RequestOutput, ScoringOutput, ScoringRequestOutput
from .params import LoRARequest, SamplingParams
from .processors import Processor, one_of

Params = Union[SamplingParams, Sequence[SamplingParams], None]
_Item = TypeVar("_Item")
_Output = TypeVar("_Output")

_DEFAULT_SEQUENCES = 64  # of `ibid serve`
_BUSY_WAIT = 0.01  # seconds, where others fill the queue and nothing of ours is under way


class LLM:
    """A model for offline inference, with vLLM's calls.

    Args:
        model: a name of `ibid models`, a GGUF file, a folder of safetensors, or hf:user/repo[:FILE].
        options: flags of `ibid serve`, as `ctx=4096`, `threads=4`, `memory="4G"`; vLLM's `max_model_len`, `max_num_seqs`,
            `max_num_batched_tokens`, `kv_cache_dtype`, `seed` and `served_model_name` are taken too.

    Raises:
        IbidError: an option is wrong, or the model cannot be loaded.

    Safe from several threads, whose prompts run together. The same prompt with the same parameters and seed gives the same
    bytes, alone or in any batch. After a `fork` the child's calls raise `ForkedError`; use "spawn".
    """

    def __init__(self, model: str = "default", **options: Any) -> None:
        self._options = engine_options(model, options)
        self.engine = Engine(**self._options)
        self._tokenizer = Tokenizer(self.engine)
        self._adapters: set[str] = set()  # that have been loaded
        self._at_once = 2 * int(self._options.get("max_sequences", self._options.get("max-sequences", _DEFAULT_SEQUENCES)))

    def close(self) -> None:
        """Frees the model. Also at the end of a `with`, and with the last reference."""
        self.engine.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_tokenizer(self) -> Tokenizer:
        return self._tokenizer

    # ---- text ------------------------------------------------------------------------------------------------------

    def generate(self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, *, use_tqdm: bool = False,
                 lora_request: LoRARequest | None = None) -> list[RequestOutput]:
        """Continues texts.

        Args:
            prompts: a text, token ids, {"prompt": text}, {"prompt_token_ids": ids}, or a list of these.
            sampling_params: of all prompts, or a list with those of each; None: the model file's, and 16 tokens.
            use_tqdm: show on standard error how many have ended.
            lora_request: the adapter of all of them.

        Returns:
            An output for each prompt, in their order.

        Raises:
            IbidError: a request is refused or failed; the others are cancelled.
        """
        many = _prompts(prompts)
        return list(self._counted(self.generate_iter(many, sampling_params, lora_request), len(many), use_tqdm))

    def generate_iter(self, prompts: Iterable[Prompt], sampling_params: Params = None,
                      lora_request: LoRARequest | None = None) -> Iterator[RequestOutput]:
        """The same from and as an iterator: of any number of prompts a few hundred are held at a time. Prompts are taken
        as they are needed, and closing the iterator cancels what runs."""
        pairs = _with_params(prompts, sampling_params)
        return self._ordered("/v1/completions", pairs, lambda pair: encoded(self._asked(completion_body(*pair), lora_request)),
                             lambda pair, answer: request_output(answer, prompt_text(pair[0]), self._tokenizer.piece), _processor)

    def chat(self, messages: Messages | Sequence[Messages], sampling_params: Params = None, *, use_tqdm: bool = False,
             lora_request: LoRARequest | None = None, tools: Sequence[Mapping[str, Any]] | None = None,
             add_generation_prompt: bool | None = None, continue_final_message: bool | None = None, chat_template_kwargs: Mapping[str, Any] | None = None,
             **more: Any) -> list[RequestOutput]:
        """Answers conversations: one, as a list of {"role", "content"}, or a list of them.

        `tools` and `chat_template_kwargs` as in /v1/chat/completions, and so `more`, as `tool_choice="required"`. An
        output's `message` has calls of tools and reasoning. Otherwise as `generate`.
        """
        many = cast("Sequence[Messages]", [messages] if messages and isinstance(messages[0], Mapping) else messages)
        fields = {**more, "tools": tools, "add_generation_prompt": add_generation_prompt,
                  "continue_final_message": continue_final_message, "chat_template_kwargs": chat_template_kwargs}
        outputs = self._ordered("/v1/chat/completions", _with_params(many, sampling_params),
                                lambda pair: encoded(self._asked(chat_body(pair[0], pair[1], fields), lora_request)),
                                lambda _, answer: request_output(answer, None, self._tokenizer.piece), _processor)
        return list(self._counted(outputs, len(many), use_tqdm))

    # ---- vectors and scores ----------------------------------------------------------------------------------------

    def embed(self, prompts: str | Sequence[int] | Sequence[str | Sequence[int]], *, use_tqdm: bool = False, **more: Any) -> list[EmbeddingRequestOutput]:
        """The vectors of texts or token ids; `more` as in /v1/embeddings, as `dimensions=128`.

        Returns:
            For each text in order an output with `outputs.embedding`, a list of `width` floats, and `outputs.data`, the same
            as a numpy array, float32 [width].
        """
        many = cast("Sequence[str | Sequence[int]]", _prompts(prompts))

        def body(prompt: str | Sequence[int]) -> bytes:
            given = prompt if isinstance(prompt, str) else [int(token) for token in prompt]
            return encoded({**more, "input": given, "encoding_format": "base64"})

        outputs = self._ordered("/v1/embeddings", many, body, lambda _, answer: EmbeddingRequestOutput(
            str(answer.get("id", "")), EmbeddingOutput(answer["data"][0]["embedding"]), int(answer["usage"]["prompt_tokens"])))
        return list(self._counted(outputs, len(many), use_tqdm))

    def score(self, text_1: str | Sequence[str], text_2: str | Sequence[str], *, use_tqdm: bool = False, **more: Any) -> list[ScoringRequestOutput]:
        """Scores pairs with a cross-encoder: one text against each of the others, or two lists pair by pair.

        Raises:
            IbidError: the model scores nothing.
            ValueError: the lists have different lengths.
        """
        first = [text_1] if isinstance(text_1, str) else list(text_1)
        second = [text_2] if isinstance(text_2, str) else list(text_2)
        if len(first) == 1:
            first = first * len(second)
        if len(first) != len(second):
            raise ValueError(f"There are {len(first)} first texts and {len(second)} second ones; pairs need as many, or one first.")
        outputs = self._ordered("/v1/score", list(zip(first, second)),
                                lambda pair: encoded({**more, "text_1": pair[0], "text_2": pair[1]}),
                                lambda _, answer: ScoringRequestOutput(str(answer.get("id", "")), ScoringOutput(answer["data"][0]["score"]),
                                                                       int(answer["usage"]["prompt_tokens"])))
        return list(self._counted(outputs, len(second), use_tqdm))

    # ---- a server --------------------------------------------------------------------------------------------------

    def serve(self, port: int = 8080, **flags: Any) -> subprocess.Popen[bytes]:
        """Starts `ibid serve` with this model and these options in a process of its own, which loads the model once more.

        Returns:
            The process; terminate() ends it when what runs has ended.

        Raises:
            FileNotFoundError: there is no `ibid` program beside this package or on the PATH.
        """
        command = [str(program()), "serve"]
        for name, value in {**self._options, "port": port, **flags}.items():
            flag = "--" + name.replace("_", "-")
            for one in value if isinstance(value, (list, tuple)) else [value]:
                if one is True:
                    command.append(flag)
                elif one is not False and one is not None:
                    command.append(f"{flag}={json.dumps(one) if isinstance(one, dict) else one}")
        return subprocess.Popen(command)

    # ---- many requests ---------------------------------------------------------------------------------------------

    def _asked(self, body: dict[str, Any], lora: LoRARequest | None) -> dict[str, Any]:
        return with_adapter(self.engine, self._adapters, body, lora)

    def _counted(self, outputs: Iterator[_Output], n: int, shown: bool) -> Iterator[_Output]:
        begin = time.monotonic()
        for i, output in enumerate(outputs, 1):
            yield output
            if shown:
                rate = i / max(time.monotonic() - begin, 1e-9)
                print(f"\r{i} of {n} prompts, {rate:.1f} a second", end="\n" if i == n else "", file=sys.stderr, flush=True)

    def _ordered(self, path: str, items: Iterable[_Item], body: Callable[[_Item], bytes], output: Callable[[_Item, Any], _Output],
                 processor: Callable[[_Item], Processor | None] = lambda _: None) -> Iterator[_Output]:
        """Asks for all items and yields their outputs in order. So many are under way that the engine has its batch, and
        twice as many are held while the first of them is awaited."""
        ended: queue.SimpleQueue[tuple[int, bytes, IbidError | None]] = queue.SimpleQueue()
        waiting: deque[_Item] = deque()  # taken, not yielded
        requests: dict[int, Request] = {}
        answers: dict[int, bytes] = {}
        source, is_over, n_begun, n_yielded = iter(items), False, 0, 0
        pending: bytes | None = None  # the next body, where the queue was full

        def gather(index: int) -> Callable[[bytes | None, IbidError | None], None]:
            parts: list[bytes] = []

            def on_part(part: bytes | None, error: IbidError | None) -> None:
                if part is not None:
                    parts.append(part)
                else:
                    ended.put((index, b"".join(parts), error))

            return on_part

        try:
            while True:
                is_full = False
                while not is_over and not is_full and len(requests) < self._at_once and len(waiting) < 2 * self._at_once:
                    if pending is None:
                        try:
                            item = next(source)
                        except StopIteration:
                            is_over = True
                            break
                        waiting.append(item)
                        pending = body(item)
                    try:
                        requests[n_begun] = self.engine.submit(path, pending, gather(n_begun), processor(waiting[-1]))
                    except BusyError:
                        is_full = True
                        if not requests:
                            time.sleep(_BUSY_WAIT)
                        continue
                    n_begun += 1
                    pending = None
                if requests:
                    index, answer, error = ended.get()
                    requests.pop(index).free()
                    if error is not None:
                        raise error
                    answers[index] = answer
                while n_yielded in answers:
                    told = json.loads(answers.pop(n_yielded))
                    n_yielded += 1
                    yield output(waiting.popleft(), told)
                if is_over and not requests and pending is None:
                    return
        finally:
            for request in requests.values():
                request.cancel()
            for request in requests.values():
                request.free()


def program() -> pathlib.Path:
    """The `ibid` program of this package, or of the PATH."""
    beside = pathlib.Path(__file__).parent / "bin" / "ibid"
    found = str(beside) if beside.exists() else os.environ.get("IBID_PROGRAM") or shutil.which("ibid")
    if found is None:
        raise FileNotFoundError("There is no ibid program beside this package or on the PATH.")
    return pathlib.Path(found)


def _prompts(prompts: Any) -> Sequence[Any]:
    """A list of prompts of what may be one."""
    if isinstance(prompts, (str, Mapping)):
        return [prompts]
    many = list(prompts)
    return [many] if many and all(isinstance(token, int) for token in many) else many


def _processor(pair: tuple[Any, SamplingParams | None]) -> Processor | None:
    return one_of(pair[1].logits_processors) if pair[1] is not None else None


def _with_params(prompts: Iterable[_Item], params: Params) -> Iterator[tuple[_Item, SamplingParams | None]]:
    if params is None or isinstance(params, SamplingParams):
        return ((prompt, params) for prompt in prompts)
    if isinstance(prompts, Sequence) and len(prompts) != len(params):
        raise ValueError(f"There are {len(prompts)} prompts and {len(params)} sampling_params; there must be as many, or one.")
    return zip(prompts, params)
