"""Tokens per second with n-gram drafts over those without: copying work (a text that is asked for again, code with a
small change) and text that repeats nothing. Two servers, asked in turns; tokens are compared, and a run with others is
void."""
import asyncio
import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fault"))
sys.path.insert(0, str(ROOT / "tests" / "process"))
from client import ask  # noqa: E402
from harness import Server  # noqa: E402

CONFIG = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_min": 2, "prompt_lookup_max": 5}
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


def run(model, cycles, tokens=160):
    table = {}
    with Server(model=model) as plain, Server(f"--speculative-config={json.dumps(CONFIG)}", model=model) as drafting:
        for kind in ("copying", "without repeats"):
            for streams in (1, 8):
                off, on, ratios = [], [], []
                for cycle in range(cycles + 1):
                    requests = [{**body, "model": plain.model} for body in bodies(kind, streams, tokens, f"{cycle}")]
                    servers = (plain, drafting) if cycle % 2 else (drafting, plain)
                    found = {server: asyncio.run(together(server.port, requests)) for server in servers}
                    if found[plain][1] != found[drafting][1]:
                        raise SystemExit("speculation: other tokens: the run is void")
                    if cycle == 0:
                        continue  # both learn what their steps cost
                    off.append(found[plain][0])
                    on.append(found[drafting][0])
                    ratios.append(on[-1] / off[-1])
                    print(f"{kind}, {streams} streams: {on[-1]:.1f} over {off[-1]:.1f} tokens/s, {ratios[-1]:.2f}", flush=True)
                table[f"{kind}, {streams} streams"] = {
                    "off": statistics.median(off), "on": statistics.median(on),
                    "ratio": {"median": round(statistics.median(ratios), 3), "min": round(min(ratios), 3),
                              "max": round(max(ratios), 3), "n": len(ratios)}}
    return table
