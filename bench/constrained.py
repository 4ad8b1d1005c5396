"""Constrained answers over HTTP: tokens per second beside llama.cpp's server, on the same file and the same schemas, in
turns; and what a constraint whose grammar is kept adds to the time to the first token."""
import concurrent.futures
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "process"), str(ROOT / "tests" / "support" / "py")]
import random_model  # noqa: E402
from harness import Process, Server, free_port, wait_until  # noqa: E402

POINT = {"type": "object", "required": ["x", "y", "kind"], "additionalProperties": False,
         "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 999}, "y": {"type": "integer", "minimum": 0, "maximum": 999},
                        "kind": {"enum": ["point", "line", "area"]}}}
PERSON = {"type": "object", "required": ["first_name", "last_name", "age", "languages", "address"], "additionalProperties": False,
          "properties": {"first_name": {"type": "string", "maxLength": 20}, "last_name": {"type": "string", "maxLength": 20},
                         "age": {"type": "integer", "minimum": 0, "maximum": 120},
                         "languages": {"type": "array", "minItems": 2, "maxItems": 4, "items": {"enum": ["English", "French", "German"]}},
                         "address": {"type": "object", "required": ["street", "city"], "additionalProperties": False,
                                     "properties": {"street": {"type": "string", "maxLength": 30}, "city": {"type": "string", "maxLength": 20}}}}}
SCHEMAS = {"a list of points": {"type": "array", "minItems": 8, "maxItems": 8, "items": POINT}, "a person": PERSON}
PROMPT = "The data, as JSON:\n"
TOKENS = 256  # of an answer at most


def post(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {text[:300]}")
    return json.loads(text)


def quire(server, schema, seed):
    answer = post(server.port, "/v1/completions", {
        "model": server.model, "prompt": PROMPT, "max_tokens": TOKENS, "temperature": 1.0, "seed": seed, "json_schema": schema})
    return answer["usage"]["completion_tokens"]


def llama(port, schema, seed):
    answer = post(port, "/completion", {"prompt": PROMPT, "n_predict": TOKENS, "temperature": 1.0, "seed": seed, "cache_prompt": False,
                                        "json_schema": schema, "top_k": 0, "top_p": 1.0, "min_p": 0.0})
    return answer["tokens_predicted"]


def tokens_per_second(ask, seeds):
    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(len(seeds)) as pool:
        tokens = sum(pool.map(ask, seeds))
    return tokens / (time.perf_counter() - begin)


class LlamaServer:
    def __init__(self, folder, model, slots):
        self.port = free_port()
        self.process = Process([folder / "llama-server", "-m", model, "-t", os.cpu_count(), "-c", 1024 * slots, "-np", slots, "-fa", "on",
                                "--port", self.port, "--host", "127.0.0.1", "--no-webui"])

        def ready():
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        wait_until(ready, "llama-server is ready", more=lambda: f": {self.process.lines[-5:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.close()


def against_llama(folder, model, cycles, spread):
    """Each cycle has other seeds; both servers are up, and one of them is asked at a time."""
    table = {}
    for slots in (1, 4):
        with Server("--max-num-seqs=8", model=model) as ours, LlamaServer(folder, model, slots) as theirs:
            for name, schema in SCHEMAS.items():
                rows = {"quire": [], "llama.cpp": [], "ratio": []}
                for cycle in range(cycles + 1):
                    seeds = [1 + cycle * slots + i for i in range(slots)]
                    asked = [lambda: tokens_per_second(lambda seed: quire(ours, schema, seed), seeds),
                             lambda: tokens_per_second(lambda seed: llama(theirs.port, schema, seed), seeds)]
                    found = [ask() for ask in asked] if cycle % 2 else [ask() for ask in reversed(asked)][::-1]
                    if cycle == 0:
                        continue  # grammars are compiled, pages are touched
                    for key, value in zip(rows, (*found, found[0] / found[1])):
                        rows[key].append(value)
                table[f"{name}, {slots} streams"] = {key: spread(values) for key, values in rows.items()}
                print(f"{name}, {slots} streams: {table[f'{name}, {slots} streams']}", flush=True)
    return table


def first_token_ms(server, body):
    begin = time.perf_counter()
    for data in server.stream("/v1/completions", body):
        if data != "[DONE]" and json.loads(data)["choices"] and json.loads(data)["choices"][0]["text"]:
            return (time.perf_counter() - begin) * 1000
    raise SystemExit("a stream had no token")


def first_token(model, rounds, spread):
    """Of a prompt that is not cached, with and without a constraint, in turns."""
    with Server(model=model) as server:
        added = []
        for number in range(rounds + 3):
            found = {}
            for constrained in ((False, True) if number % 2 else (True, False)):
                body = {"model": server.model, "prompt": f"{number} {constrained} " + PROMPT * 4, "max_tokens": 4, "temperature": 0}
                found[constrained] = first_token_ms(server, {**body, "json_schema": PERSON} if constrained else body)
            if number >= 3:
                added.append(found[True] - found[False])
    print(f"first token: {statistics.median(added):.2f} ms more")
    return spread(added)


def masks_by_tokenizer(program, cycles, last_json, spread):
    """Microseconds of compiling and of masks, for each tokenizer at hand: walks are random texts, instances plausible ones."""
    table = {}
    for tokenizer in random_model.ENDS:
        with tempfile.TemporaryDirectory() as folder:
            model = random_model.make(tokenizer, folder)
            runs = [last_json([program, f"--model={model}"]) for _ in range(cycles)]
        rows = {name: spread([run[name] for run in runs]) for name in runs[0] if name.endswith("_us") or name.endswith("_ms")}
        for text in ("walks", "instances"):
            for at in ("p50", "p99"):
                rows[f"{text}: pool over library, {at}"] = spread(
                    [run[f"{text}_pool_{at}_us"] / run[f"{text}_library_{at}_us"] for run in runs])
        table[tokenizer] = {"vocabulary": runs[0]["vocabulary"], "masks": runs[0]["masks"], **rows}
        print(f"{tokenizer}: {table[tokenizer]}", flush=True)
    return table


def peer_folder():
    built = subprocess.run(["bash", "bench/build_llama_cpp.sh", "llama-server"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(built.stdout.strip().splitlines()[-1])
