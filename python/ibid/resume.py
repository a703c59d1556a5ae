"""Streamed answers of `ibid serve` that outlive their server.

    from ibid.resume import stream
    for event in stream(["http://one:8080", "http://two:8080"], {"messages": [...], "temperature": 0.9, "max_tokens": 400}):
        print(event["choices"][0]["delta"].get("content") or "", end="")

An answer of ibid is a function of its request, so a request that carries the tokens of its answer so far (`resume`) gets the
rest of it from any replica, with the bytes that would have followed. `stream` keeps these tokens, and where a connection
breaks off it asks the next address; the caller sees one stream. It needs no router that can do so, and works through one
too: give its address alone. It needs the standard library only.
"""

from __future__ import annotations

import http.client
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from .errors import BY_STATUS, IbidError, UnavailableError, UnsupportedError

Event = dict[str, Any]

# Statuses of a replica or a router that another try may not have.
_PASSING = {408, 429, 500, 502, 503, 504}
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0  # seconds between tries that bring nothing


class _Cut(Exception):
    """The connection ended before its answer, or there was none."""


def stream(urls: Sequence[str], body: Mapping[str, Any], path: str = "/v1/chat/completions", *,
           headers: Mapping[str, str] | None = None, timeout: float = 120, tries: int = 12) -> Iterator[Event]:
    """The events of one streamed answer, from as many servers as it takes.

    Args:
        urls: servers, or one router, as "http://replica-1:8080"; asked in turn, the first one first.
        body: a request of `path`, which is /v1/chat/completions or /v1/completions, for one choice. `stream` and
            `return_token_ids` are set; where there is no `seed`, one is chosen.
        headers: sent with each request, as {"Authorization": "Bearer ..."}.
        timeout: seconds without a byte after which a server counts as gone.
        tries: so many in a row that bring no token end the stream.

    Yields:
        Each event as the server sent it, parsed; all have the id and the time of the first. `token_ids` of a choice are its new
        tokens. What a resumed stream repeats, the role, is left out.

    Raises:
        IbidError: of the class of the status, where a server refuses the request (InvalidError of a wrong field).
        UnavailableError: after `tries`.
        UnsupportedError: events have no token ids, as a router dropped what it does not know of the request.
    """
    if not urls:
        raise ValueError("urls is empty")
    answer = _Answer(body)
    n_failed = 0
    for attempt in range(10**9):
        n_before = len(answer.ids)
        try:
            for event in _events(urls[attempt % len(urls)], path, answer.request(), dict(headers or {}), timeout):
                answer.hear(event)
                if not answer.is_repeated(event):
                    yield event
            return
        except _Cut as cut:
            n_failed = 0 if len(answer.ids) > n_before else n_failed + 1
            if n_failed >= tries:
                raise UnavailableError(f"No server goes on with the answer after {len(answer.ids)} tokens and {n_failed} tries; "
                                       f"the last one: {cut}") from cut
        if n_failed > 0:
            time.sleep(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(n_failed, 10)))


class _Answer:
    """What is known of an answer: its request and its tokens so far."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.body = {**body, "stream": True, "return_token_ids": True}
        if self.body.get("seed") is None:
            self.body["seed"] = secrets.randbelow(2**31)
        given = self.body.pop("resume", None) or {}
        self.ids: list[int] = list(given.get("token_ids", []))
        self.about: dict[str, Any] = {key: value for key, value in given.items() if key != "token_ids"}
        self.first: Event | None = None
        self.is_resumed = False

    def request(self) -> dict[str, Any]:
        self.is_resumed = bool(self.ids)
        if not self.ids:
            return self.body
        return {**self.body, "resume": {**self.about, "token_ids": self.ids}}

    def hear(self, event: Event) -> None:
        if self.first is None:
            self.first = event
        for key in ("id", "created"):
            if key in self.first:
                event[key] = self.first[key]
        # Another version or arithmetic would go on with other bytes: it refuses by this.
        if event.get("system_fingerprint"):
            self.about["system_fingerprint"] = event["system_fingerprint"]
        for choice in event.get("choices", []):
            if not self.ids and "token_ids" not in choice and (choice.get("text") or (choice.get("delta") or {}).get("content")):
                raise UnsupportedError("The events have no token_ids: a router between does not pass return_token_ids on. Give the "
                                       "servers' own addresses.", "return_token_ids")
            self.ids += choice.get("token_ids") or []
            if choice.get("mirostat_mu") is not None:
                self.about["mirostat_mu"] = choice["mirostat_mu"]

    def is_repeated(self, event: Event) -> bool:
        """The event with which each stream of a chat begins, in a stream that goes on with an answer."""
        if not self.is_resumed or event is self.first or not event.get("choices"):
            return False
        choice = event["choices"][0]
        delta = choice.get("delta")
        return (delta is not None and "role" in delta and not any(value for key, value in delta.items() if key != "role")
                and not choice.get("token_ids") and choice.get("finish_reason") is None)


def _events(url: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str], timeout: float) -> Iterator[Event]:
    """Whole events until the stream's end; _Cut where it breaks off or another server should be asked."""
    parts = urlsplit(url if "://" in url else "http://" + url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.netloc, timeout=timeout)
    try:
        connection.request("POST", parts.path.rstrip("/") + path, json.dumps(body), {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        if response.status in _PASSING:
            raise _Cut(f"{url} answered {response.status}")
        if response.status != 200:
            raise _refusal(response.status, response.read().decode(errors="replace"))
        event = b""
        for line in response:
            if line.strip():
                event += line
                continue
            data, event = event.strip().removeprefix(b"data:").strip(), b""  # one that is cut counts for nothing
            if data == b"[DONE]":
                return
            if not data.startswith(b"{"):
                continue
            parsed = json.loads(data)
            if parsed.get("error"):
                _raise_within(url, parsed["error"])
            yield parsed
        raise _Cut(f"{url} broke off")
    except (OSError, http.client.HTTPException) as error:
        raise _Cut(f"{url}: {error or type(error).__name__}") from error
    finally:
        connection.close()


def _raise_within(url: str, error: Any) -> None:
    """For an error in the place of an event: the request's own ends the answer, the server's or a router's moves it."""
    told = error if isinstance(error, dict) else {"message": str(error)}
    if told.get("type") == "invalid_request_error":
        raise _refusal(400, json.dumps({"error": told}))
    raise _Cut(f"{url} broke off: {told.get('message')}")


def _refusal(status: int, text: str) -> IbidError:
    try:
        told = json.loads(text)["error"]
        message, field = str(told["message"]), str(told.get("param") or "")
    except (ValueError, KeyError, TypeError):
        message, field = f"The server answered {status}.", ""
    return BY_STATUS.get(status, IbidError)(message, field, text)
