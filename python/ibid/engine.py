"""The C library (include/ibid.h) through ctypes: an engine, a path and a body in, JSON out.

`Engine` is what `LLM`, `AsyncLLM` and `Llama` are made of. It has every API of `ibid serve` (docs/users/library.md).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Optional

from .errors import BY_CODE, ClosedError, IbidError
from .processors import Processor, floats_at, ids_at

_ABI = 1
_OK, _END = 0, 10

_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t)
_Process = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t,
                            ctypes.c_void_p, ctypes.c_size_t)


def _load() -> ctypes.CDLL:
    """The library beside this file, or the system's; the variable IBID_LIBRARY names another."""
    beside = pathlib.Path(__file__).with_name("libibid.so.1")
    name = os.environ.get("IBID_LIBRARY") or (str(beside) if beside.exists() else "libibid.so.1")
    try:
        library = ctypes.CDLL(name)
    except OSError as error:
        raise ImportError(f"The library of ibid cannot be loaded: {error}.") from error
    text, handle, size = ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
    out, out_size = ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t)
    for function, result, arguments in (
        ("ibid_version", text, ()),
        ("ibid_abi_version", ctypes.c_uint32, ()),
        ("ibid_error_message", text, (handle,)),
        ("ibid_error_field", text, (handle,)),
        ("ibid_error_json", text, (handle,)),
        ("ibid_error_free", None, (handle,)),
        ("ibid_free", None, (handle,)),
        ("ibid_open", ctypes.c_int32, (text, out, out)),
        ("ibid_close", ctypes.c_int32, (handle,)),
        ("ibid_call", ctypes.c_int32, (handle, text, text, size, out, out_size, out)),
        ("ibid_submit_with", ctypes.c_int32, (handle, text, text, size, _Process, handle, _Callback, handle, out, out)),
        ("ibid_cancel", ctypes.c_int32, (handle,)),
        ("ibid_request_free", None, (handle,)),
    ):
        bound = getattr(library, function)
        bound.restype, bound.argtypes = result, arguments
    found = int(library.ibid_abi_version())
    if found != _ABI:
        raise ImportError(f"The library {name} has version {found} of the ABI; this package needs {_ABI}.")
    return library


_library = _load()

__version__: str = _library.ibid_version().decode()


def _raise(code: int, error: ctypes.c_void_p) -> None:
    """Raises what a function returned, and frees its error."""
    texts = ["", "", ""]
    if error:
        told = (_library.ibid_error_message, _library.ibid_error_field, _library.ibid_error_json)
        texts = [function(error).decode("utf-8", "replace") for function in told]
        _library.ibid_error_free(error)
    raise BY_CODE.get(code, IbidError)(texts[0] or f"The engine failed with the code {code}.", texts[1], texts[2])


# Called with each part of an answer, then once with None and the error, or None without one. On a thread of the engine's.
OnPart = Callable[[Optional[bytes], Optional[IbidError]], None]


class _Handlers:
    """What a request calls, by its number."""

    def __init__(self) -> None:
        self.on_part: dict[int, OnPart] = {}
        self.processors: dict[int, Processor] = {}
        self.raised: dict[int, BaseException] = {}  # by a processor, which ends the answer

    def forget(self, number: int) -> None:
        self.on_part.pop(number, None)
        self.processors.pop(number, None)
        self.raised.pop(number, None)


class Request:
    """A request under way; see `Engine.submit`. Freed with its last reference, cancelled where it still runs."""

    def __init__(self, engine: Engine, handle: int, number: int) -> None:
        self._engine = engine
        self._finalizer = weakref.finalize(self, _free_request, engine._handlers, handle, number, os.getpid())
        self._handle = handle

    def cancel(self) -> None:
        """Asks the engine to end it: what it has so far is its answer."""
        if self._finalizer.alive:
            _library.ibid_cancel(self._handle)

    def free(self) -> None:
        """Its callback is not called any more when this returns, unless it is what calls this."""
        self._finalizer()


def _free_request(handlers: _Handlers, handle: int, number: int, pid: int) -> None:
    if pid == os.getpid():
        _library.ibid_request_free(handle)
        handlers.forget(number)


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Before the interpreter goes: callbacks need it."""
    for engine in list(_engines):
        engine.close()


class Engine:
    """A model and its engine, in this process.

    Args:
        options: the flags of `ibid serve` by their names, with underscores or dashes, as `model="default"`, `ctx=4096`,
            `threads=4`, `memory="4G"`, `keep_packed=True`. Flags of sockets and keys are refused.

    Raises:
        IbidError: an option is wrong, the model cannot be loaded, or it does not fit.

    Safe from any thread. An engine is of one process: after `fork` its calls raise `ForkedError` in the child.
    """

    def __init__(self, **options: Any) -> None:
        self._handle: int | None = None
        self._handlers = _Handlers()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._callback = _Callback(self._make_callback(self._handlers))
        self._process = _Process(self._make_process(self._handlers))
        handle, error = ctypes.c_void_p(), ctypes.c_void_p()
        text = json.dumps({name: value for name, value in options.items() if value is not None})
        code = _library.ibid_open(text.encode(), ctypes.byref(handle), ctypes.byref(error))
        if code != _OK:
            _raise(code, error)
        self._handle = handle.value
        _engines.add(self)

    @staticmethod
    def _make_callback(handlers: _Handlers) -> Callable[[int | None, int, int | None, int], None]:
        def told(user: int | None, code: int, text: int | None, n_bytes: int) -> None:
            handler = handlers.on_part.get(user or 0)
            if handler is None:
                return
            part = ctypes.string_at(text, n_bytes) if text else b""
            if code == _OK:
                handler(part, None)
            elif code == _END:
                handler(None, None)
            else:
                error = BY_CODE.get(code, IbidError)(part.decode("utf-8", "replace"))
                error.__cause__ = handlers.raised.pop(user or 0, None)
                handler(None, error)

        return told

    @staticmethod
    def _make_process(handlers: _Handlers) -> Callable[[int | None, int | None, int, int | None, int, int, int], int]:
        def process(user: int | None, prompt: int | None, n_prompt: int, answer: int | None, n_answer: int, logits: int,
                    n_logits: int) -> int:
            try:
                handlers.processors[user or 0](ids_at(prompt, n_prompt), ids_at(answer, n_answer), floats_at(logits, n_logits))
                return 0
            except BaseException as error:  # none may pass through the engine
                handlers.raised[user or 0] = error
                return 1

        return process

    def _open_handle(self) -> int:
        if self._handle is None:
            raise ClosedError("The engine is closed.")
        return self._handle

    @property
    def is_closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Ends all requests with `ClosedError` and frees the model. Once is enough; more is nothing."""
        with self._lock:
            handle, self._handle = self._handle, None
        _engines.discard(self)
        if handle is None or self._pid != os.getpid():
            return
        if _library.ibid_close(handle) != _OK:  # on the thread of callbacks, where the collector may come
            threading.Thread(target=_library.ibid_close, args=(handle,)).start()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def __getstate__(self) -> object:
        raise TypeError("An engine cannot be pickled: open one in each process.")

    def submit(self, path: str, body: Mapping[str, Any] | str | bytes | None, on_part: OnPart,
               processor: Processor | None = None) -> Request:
        """Hands a request to the engine, and returns without waiting for its answer.

        Args:
            path: a route of the server, as "/v1/chat/completions".
            body: what is posted there, as an object or as its JSON; None is a GET.
            on_part: called on a thread of the engine's with each part of the answer: the events of a stream, else the whole
                JSON; then once with None and the error, None where there is none. It must not wait, and not raise.
            processor: called before each token is drawn (`ibid.processors.one_of`), on threads that the engine waits for. What
                it raises ends the answer with an error, whose `__cause__` it is.

        Raises:
            IbidError: the request is refused.
        """
        text = body if isinstance(body, bytes) or body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        number = next(self._numbers)
        self._handlers.on_part[number] = on_part
        if processor is not None:
            self._handlers.processors[number] = processor
        handle, error = ctypes.c_void_p(), ctypes.c_void_p()
        process = self._process if processor is not None else _Process()
        code = _library.ibid_submit_with(self._open_handle(), path.encode(), text, len(text or b""), process, number, self._callback,
                                         number, ctypes.byref(handle), ctypes.byref(error))
        if code != _OK or handle.value is None:
            self._handlers.forget(number)
            _raise(code, error)
            raise AssertionError
        return Request(self, handle.value, number)

    def call(self, path: str, body: Mapping[str, Any] | str | bytes | None = None, processor: Processor | None = None) -> bytes:
        """The whole answer of a route, as the bytes that the server would send. Ctrl-C ends the request.

        Raises:
            IbidError: the request is refused or failed.
        """
        return b"".join(self._parts(path, body, processor))

    def stream(self, path: str, body: Mapping[str, Any], processor: Processor | None = None) -> Iterator[Any]:
        """The events of a body with "stream": true, each as an object. Closing the iterator ends the request.

        Raises:
            IbidError: the request is refused, or fails on its way.
        """
        return _events(self._parts(path, body, processor))

    def _parts(self, path: str, body: Mapping[str, Any] | str | bytes | None,
               processor: Processor | None) -> Generator[bytes, None, None]:
        """Submits now; the request ends with the iterator."""
        parts: queue.SimpleQueue[tuple[bytes | None, IbidError | None]] = queue.SimpleQueue()
        return _until_end(self.submit(path, body, lambda part, error: parts.put((part, error)), processor), parts)

    def ask(self, path: str, body: Mapping[str, Any] | None = None, processor: Processor | None = None) -> Any:
        """`call` of a route whose answer is JSON, as an object."""
        return json.loads(self.call(path, body, processor))

    def metrics(self) -> str:
        """The engine's counters in Prometheus's form."""
        return self.call("/metrics").decode()


def _until_end(request: Request, parts: queue.SimpleQueue[tuple[bytes | None, IbidError | None]]) -> Generator[bytes, None, None]:
    try:
        while True:
            part, error = parts.get()
            if error is not None:
                raise error
            if part is None:
                return
            yield part
    finally:
        request.free()


def _events(parts: Generator[bytes, None, None]) -> Iterator[Any]:
    with contextlib.closing(parts):
        for part in parts:
            yield checked_event(part)


def checked_event(part: bytes) -> Any:
    """An event as an object; raises what one says that the request failed with."""
    event = json.loads(part)
    if isinstance(event, dict) and isinstance(event.get("error"), dict):
        raise IbidError(str(event["error"].get("message", "The request failed.")), body=part.decode())
    return event
