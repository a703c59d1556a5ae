"""What requests return: vLLM's names, where they mean the same."""

from __future__ import annotations

import array
import base64
import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy
    import numpy.typing


@dataclasses.dataclass
class Logprob:
    """The natural logarithm of a token's probability, the model's own; `rank` 1 is the most likely, None not known."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclasses.dataclass
class CompletionOutput:
    """One answer to a prompt.

    `token_ids` are the tokens of `text`; `logprobs` has for each of them those that were asked for, by id; `finish_reason`
    is "stop", "length", "tool_calls" or "cancelled"; `stop_reason` the text or token that ended it. Of a chat, `message` is the
    whole message with `tool_calls` and `reasoning_content`.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[dict[int, Logprob]] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    message: dict[str, Any] | None = None

    def logprobs_array(self) -> numpy.typing.NDArray[numpy.float32]:
        """Log-probabilities of the chosen tokens, float32 [len(token_ids)]. Needs numpy, and `logprobs`."""
        import numpy

        if self.logprobs is None:
            raise ValueError("The request asked for no logprobs.")
        return numpy.array([of[token].logprob for of, token in zip(self.logprobs, self.token_ids)], numpy.float32)

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestOutput:
    """The answers to one prompt. `prompt` is None where ids or messages were given; `num_cached_tokens` of the prompt were
    not computed again; `seed` is that of the first answer."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    prompt_logprobs: list[dict[int, Logprob] | None] | None = None
    finished: bool = True
    num_cached_tokens: int = 0
    seed: int = 0


class EmbeddingOutput:
    """A vector, of length 1 unless the request says otherwise."""

    def __init__(self, encoded: str) -> None:
        self._values = array.array("f")
        self._values.frombytes(base64.b64decode(encoded))

    @property
    def embedding(self) -> list[float]:
        return self._values.tolist()

    @property
    def data(self) -> numpy.typing.NDArray[numpy.float32]:
        """The same as float32 [width]. Needs numpy."""
        import numpy

        return numpy.array(self._values, numpy.float32)

    def __repr__(self) -> str:
        return f"EmbeddingOutput(width={len(self._values)})"


@dataclasses.dataclass
class EmbeddingRequestOutput:
    """The vector of one text."""

    request_id: str
    outputs: EmbeddingOutput
    prompt_tokens: int = 0
    finished: bool = True


@dataclasses.dataclass
class ScoringOutput:
    """How well the second text answers the first: larger is better."""

    score: float


@dataclasses.dataclass
class ScoringRequestOutput:
    """The score of one pair."""

    request_id: str
    outputs: ScoringOutput
    prompt_tokens: int = 0
    finished: bool = True
