"""What `/metrics` costs: how long an answer of `quire serve`, its worker's joined, takes while every row decodes, and
tokens/s with and without three scrapes a second, alternating in one run."""
import asyncio
import pathlib
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fault"))
sys.path.insert(0, str(ROOT / "tests" / "process"))
from client import ask  # noqa: E402
from harness import Server  # noqa: E402

STREAMS, INTERVAL_S = 16, 1 / 3


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


async def decode(port, seconds):
    """Tokens a second of STREAMS clients that ask one after the other."""
    end = time.monotonic() + seconds
    tokens = 0

    async def client(number):
        nonlocal tokens
        while time.monotonic() < end:
            body = {"model": "demo", "prompt": f"Story {number}:", "max_tokens": 200, "ignore_eos": True, "temperature": 0}
            answer = await ask(port, body)
            if answer.error is not None or not answer.done:
                raise SystemExit(f"an answer failed: {answer.status} {answer.error}")
            tokens += answer.count()
    begin = time.monotonic()
    await asyncio.gather(*(client(i) for i in range(STREAMS)))
    return tokens / (time.monotonic() - begin)


async def scrape(port, stop, times):
    def once():
        begin = time.monotonic()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            size = len(answer.read())
        times.append(time.monotonic() - begin)
        return size
    while not stop.is_set():
        await asyncio.to_thread(once)
        await asyncio.sleep(INTERVAL_S)


async def measure(cycles, seconds):
    found = {"with": [], "without": []}
    times = []
    with Server("--workers=1", "--threads=1") as server:
        await decode(server.port, 1)
        for cycle in range(2 * cycles):
            kind = ("with", "without")[cycle % 2]
            stop = asyncio.Event()
            scraping = asyncio.create_task(scrape(server.port, stop, times)) if kind == "with" else None
            found[kind].append(await decode(server.port, seconds))
            stop.set()
            if scraping:
                await scraping
    ratios = [a / b for a, b in zip(found["with"], found["without"])]
    return {"tokens_per_second": {k: [round(v) for v in values] for k, values in found.items()},
            "ratio_with_over_without": [round(r, 3) for r in ratios],
            "answer_ms": {"n": len(times), "p50": round(1000 * quantile(times, 0.5), 1), "p99": round(1000 * quantile(times, 0.99), 1),
                          "max": round(1000 * max(times), 1)}}


def run(cycles, seconds=8):
    return asyncio.run(measure(cycles, seconds))
