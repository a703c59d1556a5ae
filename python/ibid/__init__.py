"""ibid: an inference engine for large language models. The same request gives the same bytes, whatever else runs.

    from ibid import LLM, SamplingParams
    with LLM("default") as llm:
        for output in llm.generate(["Once upon a time"], SamplingParams(temperature=0, max_tokens=32)):
            print(output.outputs[0].text)

`LLM` is for many prompts at once, `AsyncLLM` for streams, `ibid.llama_cpp.Llama` for programs of llama-cpp-python, and
`Engine` has every API of `ibid serve` as objects.
"""

from __future__ import annotations

from ._requests import Tokenizer
from .async_llm import AsyncLLM
from .engine import Engine, Request, __version__
from .errors import (BusyError, ClosedError, ForkedError, IbidError, InvalidError, NoMemoryError, NotFoundError, UnavailableError,
                     UnsupportedError)
from .llm import LLM
from .outputs import (CompletionOutput, EmbeddingOutput, EmbeddingRequestOutput, Logprob, RequestOutput, ScoringOutput,
                      ScoringRequestOutput)
from .params import GuidedDecodingParams, LoRARequest, SamplingParams, StructuredOutputsParams

__all__ = ["AsyncLLM", "BusyError", "ClosedError", "CompletionOutput", "EmbeddingOutput", "EmbeddingRequestOutput", "Engine",
           "ForkedError", "GuidedDecodingParams", "IbidError", "InvalidError", "LLM", "LoRARequest", "Logprob", "NoMemoryError",
           "NotFoundError",
           "Request", "RequestOutput", "SamplingParams", "ScoringOutput", "ScoringRequestOutput", "StructuredOutputsParams",
           "Tokenizer", "UnavailableError", "UnsupportedError", "__version__"]
