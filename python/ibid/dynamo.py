"""`ibid serve` as a worker of NVIDIA Dynamo (tried with ai-dynamo 1.6.1).

    python -m ibid.dynamo MODEL --discovery-backend file -- --ctx 8192 --threads 4

A worker owns a server: Dynamo's frontend sends it tokens and gets tokens back. What follows `--` are flags of `ibid serve`. Where
a worker or its server ends, a frontend with `--migration-limit` sends the request with the tokens so far to another worker, which
resumes the answer: the bytes are those that would have followed.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import signal
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NoReturn

import aiohttp
from dynamo.common.backend.engine import EngineConfig, LLMEngine, LlmRegistration
from dynamo.common.backend.publisher import ZmqSource
from dynamo.common.backend.run import run
from dynamo.common.backend.worker import WorkerConfig
from dynamo.common.configuration.groups.runtime_args import DynamoRuntimeArgGroup, DynamoRuntimeConfig
from dynamo.common.utils.runtime import parse_endpoint
from dynamo.common.utils.token_ids import normalize_request_token_ids
from dynamo.llm.exceptions import EngineShutdown, HttpError, InvalidArgument, Unknown

from ._child import Child

# Options of Dynamo by their names in /v1/completions; None: the frontend sees to it.
_NAMES = {**{name: name for name in ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
                                     "repetition_penalty", "max_tokens", "min_tokens", "stop", "ignore_eos", "logprobs",
                                     "prompt_logprobs", "include_stop_str_in_output", "cache_salt")},
          "guided_decoding": "structured_outputs", "max_thinking_tokens": "thinking_token_budget",
          "stop_token_ids": "stop_token_ids", "stop_token_ids_hidden": "stop_token_ids", "stop_token_ids_visible": "stop_token_ids",
          "skip_special_tokens": None, "formatted_prompt": None, "return_tokens_as_token_ids": None}
_ASKS_NOTHING = {"n": 1, "best_of": 1, "use_beam_search": False, "length_penalty": 1}


def body_of(request: Mapping[str, Any], request_id: str) -> dict[str, Any]:
    """A request of Dynamo as one of /v1/completions. InvalidArgument: an option that is not served, by its name.

    A migrated request has the tokens so far at the end of its prompt, and in `migration_link` what chunk_of() wrote."""
    ids, routing, extra = request["token_ids"], request.get("routing") or {}, request.get("extra_args") or {}
    parts = [request.get("sampling_options"), request.get("stop_conditions"), request.get("output_options"), extra.get("sampling_options"),
             {name: routing.get(name) for name in ("lora_name", "cache_salt")}, {"multi_modal_data": request.get("multi_modal_data")}]
    body: dict[str, Any] = {"prompt": ids, "stream": True, "stream_options": {"include_usage": True}, "return_token_ids": True,
                            "return_tokens_as_token_ids": True}
    for name, value in ((name, value) for part in parts for name, value in (part or {}).items() if value is not None):
        if name not in _NAMES and value != _ASKS_NOTHING.get(name):
            raise InvalidArgument(f"{name} is not served through Dynamo; leave it out.")
        if to := _NAMES.get(name):
            body[to] = body.get(to, []) + value if to == "stop_token_ids" else value
    if "structured_outputs" in body:
        body["structured_outputs"] = {key: value for key, value in body["structured_outputs"].items() if value is not None}
    if body.get("seed", -1) == -1:  # of the id, which a migrated request keeps
        body["seed"] = int.from_bytes(hashlib.sha256(request_id.encode()).digest()[:6], "big")
    link = request.get("migration_link") or {}
    if str(link.get("trace_id")).startswith("ibid-"):
        n_prompt = int(link["span_id"])
        body |= {"prompt": ids[:n_prompt], "resume": {"token_ids": ids[n_prompt:], "system_fingerprint": link["trace_id"]}}
        body |= {name: body[name] + len(ids) - n_prompt for name in ("max_tokens", "min_tokens") if name in body}
    return body


def chunk_of(event: Mapping[str, Any], n_prompt: int) -> dict[str, Any]:
    """An event of /v1/completions as a chunk of Dynamo. A migrated request does not say where its prompt ends, so that is written
    into the link of traces, of which the frontend sends the last one to the next worker."""
    choice = event["choices"][0]
    chunk = {"token_ids": choice.get("token_ids") or [], "index": 0,
             "worker_trace_link": {"trace_id": event["system_fingerprint"], "span_id": str(n_prompt)}}
    chunk |= {name: choice[name] for name in ("finish_reason", "stop_reason") if choice.get(name) is not None}
    if choice.get("logprobs"):
        tops = [sorted((-value, int(name.split(":")[1])) for name, value in top.items()) for top in choice["logprobs"]["top_logprobs"]]
        chunk |= {"log_probs": choice["logprobs"]["token_logprobs"], "top_logprobs": [
            [{"rank": i, "token_id": token, "token": None, "logprob": -value} for i, (value, token) in enumerate(top, 1)] for top in tops]}
    if choice.get("prompt_logprobs"):
        chunk["engine_data"] = {"prompt_logprobs": choice["prompt_logprobs"]}
    return chunk


def raise_of(status: int, error: Mapping[str, Any]) -> NoReturn:
    """Raises an error of the server as one of Dynamo's: the server ends and another worker goes on, a full queue, a refusal, a fault."""
    message = str(error.get("message"))
    if status == 503 or error.get("code") == "shutting_down":
        raise EngineShutdown(message)
    if status == 429:
        raise HttpError(429, message)
    raise InvalidArgument(message) if error.get("type") == "invalid_request_error" else Unknown(message)


class Worker(LLMEngine):  # type: ignore[misc,unused-ignore]
    """A server, as Dynamo calls it."""

    ended = ""  # the last line of a server that ended by itself

    def __init__(self, child: Child, tokenizer: str) -> None:
        self.child, self.tokenizer, self.url = child, tokenizer, f"http://127.0.0.1:{child.port}"
        self.info, self.props = (json.load(urllib.request.urlopen(self.url + path)) for path in ("/server_info", "/props"))
        self.tasks: dict[str, asyncio.Task[None]] = {}

    @classmethod
    async def from_args(cls, argv: Sequence[str] | None = None) -> tuple[Worker, WorkerConfig]:
        parser = argparse.ArgumentParser(prog="python -m ibid.dynamo", usage="%(prog)s [MODEL] [options] [-- flags of ibid serve]",
                                         description="A worker of NVIDIA Dynamo that owns an ibid serve.")
        parser.add_argument("model", nargs="?", default="default", help="as of ibid serve (default: its default model)")
        parser.add_argument("--tokenizer", help="folder whose tokenizer and template the frontend takes (default: MODEL)")
        DynamoRuntimeArgGroup().add_arguments(parser)
        words = list(sys.argv[1:] if argv is None else argv)
        own, flags = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
        args = parser.parse_args(own)
        tokenizer = args.tokenizer or args.model
        if not os.path.exists(os.path.join(tokenizer, "tokenizer.json")):
            parser.error(f"{tokenizer} has no tokenizer.json, which Dynamo's frontend needs; --tokenizer names a folder that has.")
        config = DynamoRuntimeConfig.from_cli_args(args)
        config.validate()
        endpoint = config.endpoint or f"dyn://{config.namespace}.ibid.generate"
        config.namespace, config.component, config.endpoint = parse_endpoint(endpoint)
        worker = cls(Child(args.model, flags), tokenizer)
        return worker, WorkerConfig.from_runtime_config(config, tokenizer, worker.info["served_model_name"])

    async def start(self, worker_id: int) -> EngineConfig:
        self.watched = os.pidfd_open(self.child.pid)
        asyncio.get_running_loop().add_reader(self.watched, self.end)
        block, n_tokens = self.info["page_size"], self.info["max_total_num_tokens"]
        return EngineConfig(model=self.tokenizer, served_model_name=self.info["served_model_name"], llm=LlmRegistration(
            context_length=self.info["context_length"], kv_cache_block_size=block, total_kv_blocks=n_tokens // block,
            max_num_seqs=self.props["total_slots"]))

    def end(self) -> None:
        """Of a server that ended: Dynamo takes the worker out of discovery and ends it too."""
        asyncio.get_running_loop().remove_reader(self.watched)
        Worker.ended = self.child.last_line()
        os.kill(os.getpid(), signal.SIGTERM)

    async def kv_event_sources(self) -> list[ZmqSource]:
        events = self.info["kv_events_config"]
        return [ZmqSource(events["endpoint"].replace("*", "127.0.0.1"), events["topic"])] if events else []

    async def generate(self, request: dict[str, Any], context: Any) -> AsyncIterator[dict[str, Any]]:
        chunks: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        body = body_of(normalize_request_token_ids(request), context.id())
        task = self.tasks[context.id()] = asyncio.create_task(self.ask(body, chunks.put_nowait))
        task.add_done_callback(lambda _: self.tasks.pop(context.id(), None))
        task.add_done_callback(lambda _: chunks.put_nowait(None))
        begun = False
        while (chunk := await chunks.get()) is not None:
            yield chunk
            if not begun and chunk["token_ids"] and "finish_reason" not in chunk:  # Dynamo's tracing overwrites its link
                begun = True
                yield {"token_ids": [], "index": 0, "worker_trace_link": chunk["worker_trace_link"]}
        if task.cancelled():
            yield {"token_ids": [], "index": 0, "finish_reason": "cancelled"}
        else:
            task.result()

    async def abort(self, context: Any) -> None:
        if task := self.tasks.get(context.id()):  # Dynamo asks generate() for no more
            task.cancel()

    async def ask(self, body: Mapping[str, Any], put: Callable[[dict[str, Any]], None]) -> None:
        """Puts the chunks of an answer. Where it is cancelled, its connection is closed, which ends the request."""
        last, rest = {}, b""
        try:
            async with (aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session,
                        session.post(self.url + "/v1/completions", json=body) as answer):
                if answer.status != 200:
                    raise_of(answer.status, json.loads(await answer.read())["error"])
                async for part in answer.content.iter_any():
                    *lines, rest = (rest + part).split(b"\n\n")
                    for event in (json.loads(line[6:]) for line in lines if line.startswith(b"data: {")):
                        if event.get("error"):
                            raise_of(200, event["error"])
                        chunk = chunk_of(event, len(body["prompt"])) if event["choices"] else {}
                        if "finish_reason" in chunk:
                            last = chunk
                        elif chunk:
                            put(chunk)
                        elif last.get("finish_reason") != "cancelled":  # which a server says that ends; the usage is the last event
                            usage = {name: value for name, value in event["usage"].items() if name != "completion_tokens_details"}
                            return put({**last, "completion_usage": usage})
        except aiohttp.ClientError:
            pass
        raise EngineShutdown("The server ended in the midst of an answer.")

    async def cleanup(self) -> None:
        self.child.close()


if __name__ == "__main__":
    run(Worker)
    if Worker.ended:
        sys.exit(f"ibid serve ended: {Worker.ended}")
