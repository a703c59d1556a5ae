"""Logits processors: functions of the caller that change a token's logits before it is drawn. The slow path: the engine waits
for Python at each token."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Sequence
from typing import Any

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment,unused-ignore]

# With the ids of the answer so far, or those of the prompt and of the answer, and the logits. It changes these in place, or
# returns others.
LogitsProcessor = Callable[..., Any]
# With prompt, answer and logits.
Processor = Callable[[Sequence[int], Sequence[int], Any], None]


def one_of(processors: Sequence[LogitsProcessor] | None) -> Processor | None:
    """One function that applies them in their order; None: there are none.

    Each is called with `(answer_ids, logits)` or `(prompt_ids, answer_ids, logits)`, by the number of its parameters. `logits`
    is a numpy array, float32 [vocabulary], or without numpy an array of ctypes; it is valid during the call.
    """
    if not processors:
        return None
    calls = [(function, _n_parameters(function)) for function in processors]

    def apply(prompt: Sequence[int], answer: Sequence[int], logits: Any) -> None:
        for function, n in calls:
            given = function(prompt, answer, logits) if n >= 3 else function(answer, logits)
            if given is not None and given is not logits:
                logits[:] = given

    return apply


def _n_parameters(function: LogitsProcessor) -> int:
    try:
        kinds = [p.kind for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):  # of what is not written in Python
        return 2
    return len([kind for kind in kinds if kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)])


def floats_at(address: int, n: int) -> Any:
    """`n` floats at an address, to be read and written."""
    values: Any = (ctypes.c_float * n).from_address(address)
    return values if numpy is None else numpy.frombuffer(values, dtype=numpy.float32)


def ids_at(address: int | None, n: int) -> list[int]:
    return list((ctypes.c_int32 * n).from_address(address)) if address and n else []
