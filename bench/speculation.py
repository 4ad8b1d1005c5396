"""Tokens per second with drafts over those without. Copying work (code that is asked for again) and text that repeats
nothing are drafted for by n-grams; a second model drafts for any text. A server without drafts, one with them, and
llama.cpp's with its own speculation are asked in turns; the tokens of the first two are compared, and a run with others is
void."""
import asyncio
import concurrent.futures
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fault"))
sys.path.insert(0, str(ROOT / "tests" / "process"))
from client import ask  # noqa: E402
from harness import Process, Server, free_port, metric_in, wait_until  # noqa: E402

CONFIG = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_min": 2, "prompt_lookup_max": 5}
# llama.cpp's look-ups, as long an agreement and as many drafts as ours.
PEER = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 5, "--spec-ngram-simple-size-m", 6]
CASES = [(kind, streams) for kind in ("copying", "without repeats") for streams in (1, 8)]
NAMES = ("amount", "balance", "counter", "distance", "element", "figure", "height", "index")


def code(name):
    return "".join(f"def {verb}_{name}(values, limit):\n    total = 0\n    for value in values:\n"
                   f"        if value {sign} limit:\n            total += value\n    return total\n\n\n"
                   for verb, sign in (("sum", "<"), ("large", ">"), ("equal", "=="), ("small", "<=")))


def bodies(kind, streams, tokens, salt):
    """`streams` requests; what they share of a prompt is not cached, so that all compute alike."""
    made = []
    for i in range(streams):
        name = NAMES[i % len(NAMES)]
        if kind == "copying":
            text = code(name)
            prompt = f"The file {name}.py:\n\n{text}The same file again, unchanged:\n\n" + text[:40]
        else:
            prompt = f"A long story that was never told before, of a {name}, begins on a cold day in"
        made.append({"prompt": prompt, "max_tokens": tokens, "ignore_eos": True, "seed": i + 1, "cache_salt": salt,
                     "temperature": 0 if kind == "copying" else 1.0})
    return made


async def together(port, requests):
    begin = time.perf_counter()
    answers = await asyncio.gather(*(ask(port, body) for body in requests))
    took = time.perf_counter() - begin
    for answer in answers:
        if answer.error or not answer.done:
            raise SystemExit(f"{answer.error}: the run is void")
    return sum(answer.count() for answer in answers) / took, [answer.result() for answer in answers]


def one_of_the_peer(port, body):
    """Its tokens; nothing of an earlier prompt is used, as the salts of ours have it."""
    text = json.dumps({key: body[key] for key in ("prompt", "max_tokens", "temperature", "seed", "ignore_eos")} |
                      {"cache_prompt": False}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", text, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def peer_together(port, requests):
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(len(requests)) as pool:
        tokens = sum(pool.map(lambda body: one_of_the_peer(port, body), requests))
    return tokens / (time.perf_counter() - begin)


@contextlib.contextmanager
def peer(folder, model, streams, flags):
    port = free_port()
    command = [folder / "llama-server", "-m", model, "--port", port, "-t", os.cpu_count(), "-np", streams,
               "-c", 2048 * streams, "-fa", "on", "--no-webui", *flags]
    with Process([str(part) for part in command]) as process:
        wait_until(lambda: subprocess.run(["curl", "-sf", f"http://127.0.0.1:{port}/health"],
                                          stdout=subprocess.DEVNULL).returncode == 0, "llama-server answers")
        yield port, process


def spread(values):
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3), "max": round(max(values), 3),
            "n": len(values)}


def accepted(server):
    """Of the tokens that were drafted since the start."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    drafted = metric_in(text, "quire_worker_draft_tokens_total")
    return round(metric_in(text, "quire_worker_accepted_draft_tokens_total") / drafted, 3) if drafted else None


def compare(model, config, cases, cycles, folder, peer_flags, tokens=160, flags=()):
    """`cases`: kinds of text, with streams."""
    table = {}
    for kind, streams in cases:
        with contextlib.ExitStack() as stack:
            plain, drafting = (stack.enter_context(Server(*flags, *more, model=model))
                               for more in ((), (f"--speculative-config={json.dumps(config)}",)))
            port, _ = stack.enter_context(peer(folder, model, streams, peer_flags))
            off, on, theirs = [], [], []
            for cycle in range(cycles + 1):
                requests = [{**body, "model": plain.model} for body in bodies(kind, streams, tokens, f"{cycle}")]
                turns = [plain, drafting, port]
                turns = turns[cycle % 3:] + turns[:cycle % 3]
                found = {turn: peer_together(port, requests) if turn == port else asyncio.run(together(turn.port, requests))
                         for turn in turns}
                if found[plain][1] != found[drafting][1]:
                    raise SystemExit("speculation: other tokens: the run is void")
                if cycle == 0:
                    continue  # all learn what their steps cost
                off.append(found[plain][0])
                on.append(found[drafting][0])
                theirs.append(found[port])
                print(f"{kind}, {streams} streams: {on[-1]:.1f} over {off[-1]:.1f} tokens/s, {on[-1] / off[-1]:.2f}; "
                      f"llama.cpp {theirs[-1]:.1f}", flush=True)
            table[f"{kind}, {streams} stream{'' if streams == 1 else 's'}"] = {
                "off": round(statistics.median(off), 1), "on": round(statistics.median(on), 1),
                "llama.cpp with its own": round(statistics.median(theirs), 1),
                "ratio": spread([b / a for a, b in zip(off, on)]),
                "ratio to llama.cpp": spread([b / a for a, b in zip(theirs, on)]),
                "accepted of drafted": accepted(drafting)}
    return table
