"""KV events of a running server over ZeroMQ: what a subscriber hears, what it missed and asks for, and what it is told of
the sources. kv_events_test.py BUILD_DIR. libzmq by ctypes, MessagePack by a reader of a few lines."""
import ctypes
import json
import struct
import subprocess
import tempfile

import tiny_model
from harness import IBID, Server, Skip, eventually, main

SUB, DEALER, SUBSCRIBE, RCVTIMEO, RCVMORE, LINGER, SNDMORE = 2, 5, 6, 27, 13, 17, 2


def library():
    try:
        zmq = ctypes.CDLL("libzmq.so.5")
    except OSError as error:
        raise Skip("libzmq5 is not installed") from error
    zmq.zmq_ctx_new.restype = zmq.zmq_socket.restype = ctypes.c_void_p
    zmq.zmq_socket.argtypes = [ctypes.c_void_p, ctypes.c_int]
    zmq.zmq_setsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    zmq.zmq_getsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    zmq.zmq_connect.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    zmq.zmq_send.argtypes = zmq.zmq_recv.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return zmq


class Peer:
    """A socket that is connected to the server's."""

    def __init__(self, kind, endpoint, topic=None):
        self.zmq = library()
        self.socket = self.zmq.zmq_socket(self.zmq.zmq_ctx_new(), kind)
        for option, value in ((RCVTIMEO, 20000), (LINGER, 0)):
            number = ctypes.c_int(value)
            self.zmq.zmq_setsockopt(self.socket, option, ctypes.byref(number), 4)
        if topic is not None:
            self.zmq.zmq_setsockopt(self.socket, SUBSCRIBE, topic, len(topic))
        assert self.zmq.zmq_connect(self.socket, endpoint.encode()) == 0

    def send(self, *frames):
        for i, frame in enumerate(frames):
            assert self.zmq.zmq_send(self.socket, frame, len(frame), SNDMORE if i + 1 < len(frames) else 0) >= 0

    def receive(self):
        frames, more = [], ctypes.c_int(1)
        while more.value:
            frame = ctypes.create_string_buffer(1 << 20)
            n = self.zmq.zmq_recv(self.socket, frame, len(frame), 0)
            assert n >= 0, "nothing came"
            frames.append(frame.raw[:n])
            size = ctypes.c_size_t(4)
            self.zmq.zmq_getsockopt(self.socket, RCVMORE, ctypes.byref(more), ctypes.byref(size))
        return frames


def unpack(data):
    """MessagePack's types that events have."""

    def take(n):
        nonlocal data
        head, data = data[:n], data[n:]
        assert len(head) == n
        return head

    def value():
        tag = take(1)[0]
        if tag < 0x80:
            return tag
        if tag < 0x90:
            return {value(): value() for _ in range(tag & 15)}
        if tag < 0xa0:
            return [value() for _ in range(tag & 15)]
        if tag < 0xc0:
            return take(tag & 31).decode()
        if tag == 0xc0:
            return None
        if tag == 0xcb:
            return struct.unpack(">d", take(8))[0]
        if 0xcc <= tag <= 0xcf:
            return int.from_bytes(take(1 << (tag - 0xcc)), "big")
        if 0xd9 <= tag <= 0xdb:
            return take(int.from_bytes(take(1 << (tag - 0xd9)), "big")).decode()
        if tag in (0xdc, 0xdd):
            return [value() for _ in range(int.from_bytes(take(2 << (tag - 0xdc)), "big"))]
        raise AssertionError(hex(tag))

    out = value()
    assert data == b""
    return out


def serve(folder, *flags):
    model = tiny_model.make(folder + "/tiny")
    return Server([IBID, "serve", model, "--port", 0, "--kv-events", f"ipc://{folder}/events", "--kv-events-replay",
                   f"ipc://{folder}/replay", *flags])


def replay(folder, start):
    """Numbers and payloads from `start` on."""
    peer, out = Peer(DEALER, f"ipc://{folder}/replay"), []
    peer.send(b"", struct.pack(">q", start))
    while True:
        empty, topic, number, payload = peer.receive()
        assert empty == b""
        if struct.unpack(">q", number)[0] == -1:
            return out
        out.append((topic, struct.unpack(">q", number)[0], unpack(payload)))


def test_a_subscriber_learns_what_the_cache_has():
    with tempfile.TemporaryDirectory() as folder, serve(folder, "--kv-events-topic", "kv@pod@tiny") as server:
        subscriber = Peer(SUB, f"ipc://{folder}/events", b"kv@")
        answer = server.post("/v1/completions", {"prompt": "x" * 100, "max_tokens": 4, "seed": 1, "return_token_ids": True})
        eventually(lambda: len(replay(folder, 0)) >= 2)
        told = replay(folder, 0)
        assert [number for _, number, _ in told] == list(range(len(told))), told
        assert told[0][2][1] == [{"type": "AllBlocksCleared"}] and {topic for topic, _, _ in told} == {b"kv@pod@tiny"}
        ids = answer["choices"][0]["prompt_token_ids"] + answer["choices"][0]["token_ids"]
        stored, tokens, last = 0, [], None
        for _, _, (time, events, rank) in told[1:]:
            assert time > 1.6e9 and rank == 0
            for event in events:
                assert event["type"] == "BlockStored" and event["medium"] == "GPU" and event["parent_block_hash"] == last
                assert len(event["token_ids"]) == event["block_size"] * len(event["block_hashes"])
                tokens += event["token_ids"]
                last = event["block_hashes"][-1]
                stored += len(event["block_hashes"])
        assert stored == len(ids) // event["block_size"] and tokens == ids[:len(tokens)], (stored, len(ids))
        assert replay(folder, len(told) - 1) == told[-1:] and replay(folder, len(told)) == []
        # What comes now is heard; the same prompt again stores nothing new.
        server.post("/v1/completions", {"prompt": "x" * 100, "max_tokens": 1, "seed": 1})
        server.post("/v1/completions", {"prompt": "y" * 100, "max_tokens": 1, "seed": 1, "cache_salt": "mine"})
        topic, number, payload = subscriber.receive()
        while struct.unpack(">q", number)[0] < len(told):
            topic, number, payload = subscriber.receive()
        assert topic == b"kv@pod@tiny" and struct.unpack(">q", number)[0] == len(told)
        event = unpack(payload)[1][0]
        assert event["parent_block_hash"] is None and event["extra_keys"][0] == ["\nmine"], event
        assert event["token_ids"][:5] != tokens[:5]
        sources = json.loads(server.get("/kv_event_sources"))["0"]
        assert sources["enable_kv_cache_events"] and sources["endpoint"] == f"ipc://{folder}/events", sources


def test_a_dead_subscriber_stops_nobody():
    with tempfile.TemporaryDirectory() as folder, serve(folder) as server:
        silent = Peer(SUB, f"ipc://{folder}/events", b"")  # reads nothing
        Peer(DEALER, f"ipc://{folder}/replay").send(b"", b"no number")
        Peer(DEALER, f"ipc://{folder}/replay").send(b"x" * 70000, b"", b"", b"", b"")
        for i in range(40):
            server.post("/v1/completions", {"prompt": str(i) * 200, "max_tokens": 1})
        assert len(replay(folder, 0)) > 20
        assert server.end()[0] == 0 and silent


def test_what_cannot_be_bound_is_one_sentence():
    library()
    with tempfile.TemporaryDirectory() as folder:
        model = tiny_model.make(folder + "/tiny")
        for flags, sentence in ((("--kv-events", "nowhere"), '"nowhere" cannot be bound'),
                                (("--kv-events-replay", "tcp://127.0.0.1:1"), "--kv-events")):
            ended = subprocess.run([IBID, "serve", model, "--port", "0", *flags], capture_output=True, text=True, timeout=600)
            assert ended.returncode != 0 and sentence in ended.stderr, ended


main(test_a_subscriber_learns_what_the_cache_has, test_a_dead_subscriber_stops_nobody, test_what_cannot_be_bound_is_one_sentence)
