"""Answers that grow, for programs on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any

from ._requests import Messages, Prompt, Tokenizer, chat_body, choice_output, completion_body, engine_options, prompt_text
from .engine import Engine, OnPart, checked_event
from .errors import IbidError
from .outputs import CompletionOutput, RequestOutput
from .params import SamplingParams
from .processors import Processor, one_of


class AsyncLLM:
    """A model whose answers are streams. Arguments and errors are those of `LLM`; loading blocks.

    Any number of streams run at once, from any event loops. Leaving a stream early, or cancelling the task that reads it,
    cancels the request.
    """

    def __init__(self, model: str = "default", **options: Any) -> None:
        self.engine = Engine(**engine_options(model, options))
        self._tokenizer = Tokenizer(self.engine)

    def close(self) -> None:
        """Ends all streams with `ClosedError` and frees the model."""
        self.engine.close()

    shutdown = close

    def __enter__(self) -> AsyncLLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get_tokenizer(self) -> Tokenizer:
        return self._tokenizer

    def generate(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> AsyncIterator[RequestOutput]:
        """Continues a text. Yields what there is of all answers so far, again and again; the last has `finished`."""
        return self._stream("/v1/completions", completion_body(prompt, sampling_params), prompt_text(prompt),
                            sampling_params)

    def chat(self, messages: Messages, sampling_params: SamplingParams | None = None, *,
             tools: Sequence[Mapping[str, Any]] | None = None, **more: Any) -> AsyncIterator[RequestOutput]:
        """Answers a conversation, as `generate`. Of calls of tools see `events`."""
        return self._stream("/v1/chat/completions", chat_body(messages, sampling_params, {**more, "tools": tools}), None, sampling_params)

    async def events(self, path: str, body: Mapping[str, Any], processor: Processor | None = None) -> AsyncGenerator[Any, None]:
        """The events of any route's stream as objects, as the server would send them.

        Raises:
            IbidError: the request is refused, or fails on its way.
        """
        async with contextlib.aclosing(self._parts(path, {**body, "stream": True}, processor)) as parts:
            async for part in parts:
                yield checked_event(part)

    async def call(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """The whole answer of a route, as the bytes that the server would send."""
        async with contextlib.aclosing(self._parts(path, body, None)) as parts:
            return b"".join([part async for part in parts])

    async def _parts(self, path: str, body: Mapping[str, Any] | None, processor: Processor | None) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        parts: asyncio.Queue[tuple[bytes | None, IbidError | None]] = asyncio.Queue()
        request = self.engine.submit(path, body, _posts_to(loop, parts), processor)
        try:
            while True:
                part, error = await parts.get()
                if error is not None:
                    raise error
                if part is None:
                    return
                yield part
        finally:
            request.cancel()
            request.free()

    async def _stream(self, path: str, body: Mapping[str, Any], prompt: str | None,
                      params: SamplingParams | None) -> AsyncIterator[RequestOutput]:
        output = RequestOutput("", prompt, [], [CompletionOutput(i, "", []) for i in range(int(body.get("n", 1)))], finished=False)
        async with contextlib.aclosing(self.events(path, body, one_of(params.logits_processors) if params else None)) as events:
            async for event in events:
                output.request_id, output.seed = event["id"], int(event.get("seed", 0))
                for choice in event["choices"]:
                    ids = choice.get("prompt_token_ids") or event.get("prompt_token_ids")
                    if ids:
                        output.prompt_token_ids = list(ids)
                    _add(output.outputs[choice["index"]], choice_output(choice, self._tokenizer.piece))
                output.finished = all(one.finish_reason is not None for one in output.outputs)
                yield copy.deepcopy(output)


def _posts_to(loop: asyncio.AbstractEventLoop, parts: asyncio.Queue[tuple[bytes | None, IbidError | None]]) -> OnPart:
    def on_part(part: bytes | None, error: IbidError | None) -> None:
        try:
            loop.call_soon_threadsafe(parts.put_nowait, (part, error))
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    return on_part


def _add(whole: CompletionOutput, piece: CompletionOutput) -> None:
    whole.text += piece.text
    whole.token_ids += piece.token_ids
    whole.finish_reason = piece.finish_reason or whole.finish_reason
    whole.stop_reason = piece.stop_reason if piece.stop_reason is not None else whole.stop_reason
    if piece.logprobs is not None:
        whole.logprobs = (whole.logprobs or []) + piece.logprobs
        whole.cumulative_logprob = (whole.cumulative_logprob or 0.0) + (piece.cumulative_logprob or 0.0)
