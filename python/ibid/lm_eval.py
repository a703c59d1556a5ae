"""ibid as a model of EleutherAI's lm-evaluation-harness.

    python -m ibid.lm_eval --model ibid --model_args model=default,ctx=4096 --tasks hellaswag

takes all arguments of `lm_eval`; `--model_args` are those of `ibid.LLM`. Needs the package `lm_eval` (0.4.3 or newer); PyTorch
is not used. The same task gives the same numbers on every run and machine, in any order and at any number at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.model import TemplateLM  # type: ignore[import-not-found,import-untyped,unused-ignore]
from lm_eval.api.registry import register_model  # type: ignore[import-not-found,import-untyped,unused-ignore]

from .llm import LLM
from .params import SamplingParams

_SCORE = SamplingParams(temperature=0, max_tokens=0, prompt_logprobs=1, extra={"echo": True})


@register_model("ibid")  # type: ignore[misc,unused-ignore]
class IbidLM(TemplateLM):  # type: ignore[misc,unused-ignore]
    """Log-likelihoods and continuations by `ibid.LLM`.

    Args:
        model: as of `ibid.LLM`.
        max_gen_toks: tokens of a continuation whose task states none.
        batch_size, max_batch_size, device: taken from the command line, without effect.
        options: further ones of `ibid.LLM`.
    """

    def __init__(self, model: str = "default", max_gen_toks: int = 256, batch_size: Any = None, max_batch_size: Any = None,
                 device: Any = None, **options: Any) -> None:
        super().__init__()
        self._llm = LLM(str(model), **options)
        self._tokenizer = self._llm.get_tokenizer()
        props = self._llm.engine.ask("/props")
        self._max_length = int(props["default_generation_settings"]["n_ctx"])
        self._max_gen_toks = int(max_gen_toks)
        self._bos: list[int] = self._tokenizer.encode("")

    @property
    def eot_token_id(self) -> int:
        """The token before a text without a context: BOS where the model has one, else the first of its vocabulary."""
        return self._bos[0] if self._bos else 0

    @property
    def max_length(self) -> int:
        return self._max_length

    @property
    def tokenizer_name(self) -> str:
        return str(self._llm.engine.ask("/v1/models")["data"][0]["id"])

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        return self._tokenizer.encode(string, add_special_tokens=True if add_special_tokens is None else add_special_tokens)

    def apply_chat_template(self, chat_history: Sequence[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self._tokenizer.apply_chat_template(chat_history, add_generation_prompt=add_generation_prompt)

    def _loglikelihood_tokens(self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any) -> list[tuple[float, bool]]:
        """The sum of the log-probabilities of each continuation, and whether greedy decoding gives it. A context that is too
        long loses its beginning."""
        prompts, lens = [], []
        for _name, context, continuation in requests:
            continuation = continuation[-(self._max_length - 1):]
            room = self._max_length - len(continuation)
            prompts.append([*(context or [self.eot_token_id])[-room:], *continuation])
            lens.append(len(continuation))
        out = []
        for prompt, n, output in zip(prompts, lens, self._llm.generate_iter(prompts, _SCORE)):
            rows = (output.prompt_logprobs or [])[-n:]
            total, is_greedy = 0.0, True
            for token, row in zip(prompt[-n:], rows, strict=True):
                assert row is not None
                total += row[token].logprob
                is_greedy = is_greedy and row[token].logprob >= max(of.logprob for of in row.values())
            out.append((total, is_greedy))
        return out

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Of whole texts, in windows of the context that do not overlap."""
        windows, owners = [], []
        for i, request in enumerate(requests):
            ids = self._tokenizer.encode(request.args[0], add_special_tokens=False)
            step = self._max_length - 1
            for begin in range(0, len(ids), step):
                before = ids[begin - 1] if begin else self.eot_token_id
                windows.append((None, [before], ids[begin:begin + step]))
                owners.append(i)
        totals = [0.0] * len(requests)
        for owner, (logprob, _greedy) in zip(owners, self._loglikelihood_tokens(windows)):
            totals[owner] += logprob
        return totals

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Continuations up to a task's stop texts."""
        prompts, params = [], []
        for request in requests:
            context, given = request.args[0], dict(request.args[1])
            until = given.pop("until", None) or []
            n = int(given.pop("max_gen_toks", given.pop("max_tokens", self._max_gen_toks)))
            n = min(n, self._max_length - 1)
            sampling = given if given.pop("do_sample", False) else {"temperature": 0.0}
            known: dict[str, Any] = {key: sampling[key] for key in ("temperature", "top_p", "top_k", "min_p", "seed") if key in sampling}
            params.append(SamplingParams(max_tokens=n, stop=[until] if isinstance(until, str) else list(until), **known))
            prompts.append(self._tokenizer.encode(context)[-(self._max_length - n):])
        return [output.outputs[0].text for output in self._llm.generate_iter(prompts, params)]


def main() -> None:
    from lm_eval.__main__ import cli_evaluate  # type: ignore[import-not-found,import-untyped,unused-ignore]

    cli_evaluate()


if __name__ == "__main__":
    # The class above is of __main__; the harness finds models by their registered names.
    main()
