"""What tracing costs: tokens/s of `quire serve` without it, with a collector that takes every span, and with one that is
away, alternating in one run. All three give the same tokens."""
import asyncio
import contextlib
import http.server
import os
import pathlib
import socket
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fault"))
sys.path.insert(0, str(ROOT / "tests" / "process"))
from client import ask  # noqa: E402
from harness import Server  # noqa: E402

STREAMS, TOKENS = 16, 64  # short answers: a trace for every 64 tokens
KINDS = ("off", "on", "collector away")


class Sink(http.server.BaseHTTPRequestHandler):
    """Takes what comes."""
    taken = []

    def do_POST(self):
        self.taken.append(len(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def exporting_to(port):
    before = os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
    if port:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
    try:
        yield
    finally:
        os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
        if before is not None:
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = before


async def decode(port, seconds, answers=None):
    """Tokens a second of STREAMS clients that ask one after the other; `answers` gets each one's first tokens."""
    end = time.monotonic() + seconds
    tokens = 0

    async def client(number):
        nonlocal tokens
        while time.monotonic() < end:
            body = {"model": "demo", "prompt": f"Story {number}:", "max_tokens": TOKENS, "ignore_eos": True, "temperature": 0}
            answer = await ask(port, body)
            if answer.error is not None or not answer.done:
                raise SystemExit(f"an answer failed: {answer.status} {answer.error}")
            if answers is not None:
                answers.setdefault(number, answer.tokens)
            tokens += answer.count()
    begin = time.monotonic()
    await asyncio.gather(*(client(i) for i in range(STREAMS)))
    return tokens / (time.monotonic() - begin)


def metric(server, name):
    return sum(float(line.rsplit(" ", 1)[1]) for line in server.get("/metrics")[1].splitlines()
               if line.startswith((name + " ", name + "{")))


async def measure(cycles, seconds):
    found = {kind: [] for kind in KINDS}
    answers = {kind: {} for kind in KINDS}
    sink = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    threading.Thread(target=sink.serve_forever, daemon=True).start()
    with socket.socket() as nobody:  # bound and not listening: connections are refused
        nobody.bind(("127.0.0.1", 0))
        ports = {"off": 0, "on": sink.server_address[1], "collector away": nobody.getsockname()[1]}
        with contextlib.ExitStack() as stack:
            servers = {}
            for kind in KINDS:
                with exporting_to(ports[kind]):
                    servers[kind] = stack.enter_context(Server("--workers=1", "--threads=1"))
            for kind in KINDS:
                await decode(servers[kind].port, 1, answers[kind])
            for cycle in range(cycles):
                for i in range(len(KINDS)):
                    kind = KINDS[(cycle + i) % len(KINDS)]
                    found[kind].append(await decode(servers[kind].port, seconds))
            spans = {kind: {what: sum(metric(servers[kind], f"quire_{who}_trace_spans_{what}_total")
                                      for who in ("router", "worker")) for what in ("exported", "dropped")} for kind in KINDS}
    sink.shutdown()
    if any(answers[kind] != answers["off"] for kind in KINDS):
        raise SystemExit("tracing changed a token")
    return {"tokens_per_second": {kind: [round(v) for v in values] for kind, values in found.items()},
            "ratio_over_off": {kind: [round(a / b, 3) for a, b in zip(found[kind], found["off"])] for kind in KINDS[1:]},
            "spans": {kind: {what: int(n) for what, n in row.items()} for kind, row in spans.items()},
            "bytes_taken": sum(Sink.taken)}


def run(cycles, seconds=8):
    return asyncio.run(measure(cycles, seconds))
