"""Two tenants at one router: A floods with texts to tokenise, B sends small chats one after the other. What B's wait is alone
and beside A, in turns.

A is a program of its own and sends whole texts, not rates: each of its clients asks again once it is answered. What it sent is
stated beside the result, and so is what it was answered.
"""
import argparse
import contextlib
import gzip
import hashlib
import http.client
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "process"), str(ROOT / "tests" / "attack")]
import raw_http2 as http2  # noqa: E402
from harness import Process  # noqa: E402
from mock_fleet import MockWorkers, Router  # noqa: E402

KEYS = {"A": "the-key-of-tenant-A", "B": "the-key-of-tenant-B"}
CLIENTS = 4  # of each kind of A's requests
TEXT_BYTES, PROMPT_BYTES, PACKED_BYTES = 2 << 20, 6 << 10, 96 << 10
WIDE_STREAMS = b"\0\4\x40\0\0\0"  # their first window
CONTEXT = 8192


def words(size):
    """The same words for every run, none of them a run that a tokenizer meets again and again."""
    draw = random.Random(7)
    text = ""
    while len(text) < size:
        text += " ".join("".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(5000)) + " "
    return text[:size]


class Flood:
    """Tenant A."""

    def __init__(self, http_port, grpc_port):
        self.http_port, self.grpc_port = http_port, grpc_port
        self.end, self.lock, self.sent, self.answers = threading.Event(), threading.Lock(), 0, {}

    def count(self, size, answer):
        with self.lock:
            self.sent += size
            self.answers[str(answer)] = self.answers.get(str(answer), 0) + 1

    def posts(self, path, body):
        head = {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS['A']}"}
        while not self.end.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=120)
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
                while not self.end.is_set():
                    connection.request("POST", path, body, head)
                    answer = connection.getresponse()
                    answer.read()
                    self.count(len(body), f"{path} {answer.status}")

    def packed(self, text):
        body = gzip.compress(http2.field(2, text.encode()))
        message = b"\1" + len(body).to_bytes(4, "big") + body
        head = http2.request("/quire.v1.Inference/Tokenize", **{"grpc-encoding": "gzip", "authorization": f"Bearer {KEYS['A']}"})
        while not self.end.is_set():
            with contextlib.suppress(OSError), http2.Connection(self.grpc_port, WIDE_STREAMS) as connection:
                connection.send(http2.frame(http2.WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
                for stream in range(1, 1 << 20, 2):
                    if self.end.is_set() or connection.closed:
                        break
                    pieces = [message[at:at + 16_384] for at in range(0, len(message), 16_384)]
                    connection.send(http2.frame(http2.HEADERS, http2.END_HEADERS, stream, head) + b"".join(
                        http2.frame(http2.DATA, http2.END_STREAM if piece is pieces[-1] else 0, stream, piece) for piece in pieces))
                    if connection.ends(stream):
                        self.count(len(message), "gzip ended")

    def run(self, seconds):
        text = words(TEXT_BYTES)
        kinds = [(self.posts, "/tokenize", json.dumps({"prompt": text})),
                 (self.posts, "/v1/completions", json.dumps({"prompt": text[:PROMPT_BYTES], "max_tokens": 1})),
                 (self.packed, text[:PACKED_BYTES])]
        threads = [threading.Thread(target=kind[0], args=kind[1:], daemon=True) for kind in kinds for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        print("begun", flush=True)
        time.sleep(seconds)
        with self.lock:
            print(json.dumps({"sent": self.sent, "seconds": seconds, "answers": self.answers}), flush=True)


def chats(port, seconds):
    """Tenant B: the wait for each of its chats, in ms."""
    body = json.dumps({"messages": [{"role": "user", "content": "How are you?"}], "max_tokens": 1})
    head = {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS['B']}"}
    connection, waits, end = http.client.HTTPConnection("127.0.0.1", port, timeout=120), [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.monotonic()
        connection.request("POST", "/v1/chat/completions", body, head)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"B was answered {answer.status}: {said[:200]}")
        waits.append((time.monotonic() - begun) * 1e3)
        time.sleep(0.005)
    connection.close()
    return waits


def port(address):
    return int(address.rsplit(":", 1)[1])


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def cycle(router, seconds):
    alone = chats(port(router.http), seconds)
    with Process([sys.executable, __file__, f"--http={port(router.http)}", f"--grpc={port(router.grpc)}",
                  f"--seconds={seconds + 1}"]) as flood:
        flood.wait_for_line("begun")
        time.sleep(0.5)  # its texts are under way
        beside = chats(port(router.http), seconds)
        flood.wait(120)
        said = json.loads(flood.lines[-1])
    row = {}
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        a, b = quantile(alone, share), quantile(beside, share)
        row |= {f"B alone {name} ms": a, f"B beside A {name} ms": b, f"{name} ratio": b / a}
    row |= {"B chats alone": len(alone), "B chats beside A": len(beside), "A MB/s": said["sent"] / said["seconds"] / 1e6}
    for kind in ("/tokenize 200", "/v1/completions 200", "gzip ended"):
        row[f"A answered: {kind}"] = said["answers"].get(kind, 0)
    row["A refused"] = sum(n for kind, n in said["answers"].items() if not kind.endswith(("200", "ended")))
    return row


def run(cycles, seconds):
    rows = []
    with tempfile.TemporaryDirectory() as folder, MockWorkers(1, decode_ms=1, max_model_len=CONTEXT) as mock:
        keys, salt = pathlib.Path(folder) / "keys.json", pathlib.Path(folder) / "salt"
        keys.write_text(json.dumps({"keys": [{"sha256": hashlib.sha256(key.encode()).hexdigest(), "tenant": name}
                                             for name, key in KEYS.items()]}))
        salt.write_bytes(b"s" * 32)
        with Router(mock.addresses, f"--api-key-file={keys}", f"--salt-key-file={salt}") as router:
            chats(port(router.http), 0.5)  # connections, caches
            for number in range(cycles):
                rows.append(cycle(router, seconds))
                print(f"cycle {number + 1}: {json.dumps({k: round(v, 2) for k, v in rows[-1].items()})}", flush=True)

    def spread(values):
        return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2),
                "n": len(values)}
    return {"workload": f"tenant B: chats of three words and one token, one after the other; tenant A: {CLIENTS} clients each of "
                        f"/tokenize with {TEXT_BYTES >> 20} MiB, of completions with {PROMPT_BYTES >> 10} KiB and of gRPC's "
                        f"Tokenize with {PACKED_BYTES >> 10} KiB in gzip; one mock worker; {seconds} s alone and {seconds} s beside A in each cycle",
            "results": {key: spread([row[key] for row in rows]) for key in rows[0]}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int, required=True)
    parser.add_argument("--grpc", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    Flood(args.http, args.grpc).run(args.seconds)


if __name__ == "__main__":
    main()
