"""A soak: the real router and worker under mixed random load, watched for memory that grows.

Eight seconds, or ten minutes with --long, of which --record writes what was seen to bench/results/soak.json.

Streams and whole answers, several choices, beams, penalties, logprobs, prompts that begin alike, a cache that is
too small for them, clients that go away, requests that are refused. At the end nothing may be held. A run of a
minute or more also judges the resident memory: Theil-Sen slopes behind the warm-up, so that a single step up or
a noisy sample moves nothing.
"""
import contextlib
import http.client
import json
import pathlib
import random
import re
import statistics
import threading
import time
import traceback

import record
from harness import Failure, Server, expect, listening_ports, metric_in
from tier import LONG, RECORD

CLIENTS = 8
VOCAB = 2048
LONGEST = 1024
WARM_UP = 0.3  # of the run: caches, pools and allocators reach their size
SAMPLE_EVERY_S = 1.0
JUDGED_FROM_S = 60
GROWTH_LIMIT_MIB = 8.0  # in ten minutes, by the slope; a leak of 100 bytes a request is several times that
WORKER = ("--kv-cache-memory-bytes=8388608", f"--max-model-len={LONGEST}", "--max-num-seqs=16")


def request(draw):
    """A random body, and whether it is to be refused."""
    opening = draw.randrange(6)
    length = draw.choice((draw.randint(1, 40), draw.randint(1, 600)))
    alike = draw.randint(0, length)
    prompt = [(10 + opening * 131 + i * 7) % VOCAB if i < alike else draw.randrange(10, VOCAB)
              for i in range(length)]
    body = {"model": "demo", "prompt": prompt, "max_tokens": draw.randint(1, 100),
            "temperature": draw.choice((0, 0.8, 1.0)), "seed": draw.getrandbits(31)}
    extras = [{"n": draw.randint(2, 4)}, {"logprobs": draw.randint(0, 5)}, {"frequency_penalty": 0.5},
              {"repetition_penalty": 1.2, "top_k": 40}, {"top_p": 0.9, "min_p": 0.02}, {"ignore_eos": True},
              {"stop": ["the", "\n\n"]}, {"logit_bias": {str(draw.randrange(VOCAB)): -2}}]
    for extra in extras:
        if draw.random() < 0.2:
            body.update(extra)
    if draw.random() < 0.04:
        body = {**{key: body[key] for key in ("model", "prompt", "max_tokens")}, "use_beam_search": True, "n": 3}
    if draw.random() < 0.04:
        body.update(draw.choice(({"temperature": -1}, {"max_tokens": 10 * LONGEST}, {"top_p": 7})))
        return body, True
    return body, False


class Load:
    """Clients in threads, each its requests one after the other, until told to stop."""

    def __init__(self, server, seed):
        self.server, self.seed = server, seed
        self.stop = threading.Event()
        self.lock = threading.Lock()  # guards the two below
        self.counts = {}
        self.errors = []
        self.threads = [threading.Thread(target=self.client, args=(i,)) for i in range(CLIENTS)]

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def client(self, index):
        draw = random.Random(self.seed * 1000 + index)
        while not self.stop.is_set():
            try:
                self.one(draw)
            except Exception:
                with self.lock:
                    self.errors.append(traceback.format_exc())
                return

    def one(self, draw):
        body, bad = request(draw)
        leaves_after = draw.randint(0, 10) if draw.random() < 0.2 else None
        body["stream"] = not bad and draw.random() < 0.6
        with contextlib.closing(self.server.connection()) as connection:
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            if leaves_after == 0:
                return self.count("left at once")
            answer = connection.getresponse()
            if bad:
                expect(answer.status == 400, f"{answer.status} for {body}")
                answer.read()
                return self.count("refused")
            text = answer.read().decode() if answer.status != 200 or not body["stream"] else ""
            if answer.status in (429, 503):
                return self.count("turned away")
            expect(answer.status == 200, f"{answer.status}: {text[:300]}")
            if not body["stream"]:
                usage = json.loads(text)["usage"]
                expect(usage["completion_tokens"] >= 1, text[:300])
                return self.count("whole answers")
            self.take(answer, leaves_after)

    def take(self, answer, leaves_after):
        events = 0
        for line in iter(answer.readline, b""):
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                return self.count("streams")
            expect(b'"error"' not in line, line[:300])
            events += 1
            if events == leaves_after:
                return self.count("left in mid-stream")
        raise Failure(f"a stream ended after {events} events and without its end")

    def run(self, seconds, every):
        for thread in self.threads:
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.errors:
            every()
            time.sleep(min(SAMPLE_EVERY_S, max(0, end - time.monotonic())))
        self.stop.set()
        for thread in self.threads:
            thread.join(timeout=120)
        expect(not self.errors, "\n".join(self.errors[:2]))
        expect(not any(thread.is_alive() for thread in self.threads), "a client waits for ever")


def resident_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024


def slope_per_s(samples):
    """The median of the slopes between samples half the run apart (Theil-Sen on the far pairs)."""
    half = len(samples) // 2
    return statistics.median((b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(samples, samples[half:]))


def worker_metrics(pid):
    """From the worker's own HTTP port; the other one speaks gRPC."""
    for port in listening_ports(pid):
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(
                http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            if "quire_worker_pages_free" in text:
                return text
    raise Failure("the worker tells no metrics")


def at_rest(server, worker):
    text = worker_metrics(worker) + server.get("/metrics")[1]
    return all(metric_in(text, name) == 0 for name in (
        "quire_worker_running_rows", "quire_worker_waiting_requests", "quire_worker_pages_held",
        "quire_router_live_requests"))


def judge(name, samples, seconds):
    kept = [s for s in samples if s[0] >= WARM_UP * seconds]
    growth = slope_per_s(kept) * 600
    result = {"after warm-up MiB": round(kept[0][1], 1), "end MiB": round(kept[-1][1], 1),
              "growth in ten minutes MiB": round(growth, 2), "samples": len(kept)}
    print(f"{name}: {kept[0][1]:.1f} MiB after the warm-up, {kept[-1][1]:.1f} at the end, "
          f"{growth:+.2f} MiB in ten minutes by the slope of {len(kept)} samples")
    return result


def soak(seconds, seed=1):
    with Server(*WORKER) as server:
        pids = {name: server.children(name)[0] for name in ("quire-worker", "quire-router")}
        samples = {name: [] for name in pids}
        begin = time.monotonic()

        def sample():
            for name, pid in pids.items():
                samples[name].append((time.monotonic() - begin, resident_mib(pid)))

        load = Load(server, seed)
        load.run(seconds, sample)
        server.wait_until(lambda: at_rest(server, pids["quire-worker"]), "nothing is held at rest")
        text = worker_metrics(pids["quire-worker"])
        print(json.dumps(load.counts, sort_keys=True))
        for name in ("hits_total", "evicted_blocks_total"):
            name = f"quire_worker_prefix_cache_{name}"
            expect(metric_in(text, name) > 0, f"{name}: the load was meant to meet it")
        for what in ("whole answers", "streams"):
            expect(load.counts.get(what, 0) > 0, f"no {what}")
        expect(server.children("quire-worker") == [pids["quire-worker"]], "the worker was started again")
        code = server.stop()
        expect(code == 0, f"exit code {code}")
    if seconds < JUDGED_FROM_S:
        return None
    memory = {name: judge(name, values, seconds) for name, values in samples.items()}
    for name, row in memory.items():
        growth = row["growth in ten minutes MiB"]
        expect(growth < GROWTH_LIMIT_MIB, f"{name} grows by {growth} MiB in ten minutes")
    return {"seconds": seconds, "requests": load.counts, "resident": memory}


def test_mixed_load_leaves_nothing_held_and_memory_does_not_grow():
    conditions = record.Run() if RECORD else None
    found = soak(600 if LONG else 8)
    if RECORD and found is not None:
        record.record("soak", {"model": "demo", **found}, conditions)
