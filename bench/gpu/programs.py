#!/usr/bin/env python3
"""One case of ./dev gpu that runs the programs themselves: a worker on the device, a router in front of it, and clients.

Figures are lines that begin with "figure ". Ends with 0 when it went well. Whoever started it ends what it started.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request

import roof

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BIN = ROOT / "build/bin"
SMALL = "tiny-llama"  # made on the spot, as all others are
PROMPTS = [[10 * p + i for i in range(1, 6 + 3 * p)] for p in range(4)]


def figure(name, value, unit):
    print("figure " + json.dumps({"name": name, "value": float(f"{value:.6g}"), "unit": unit}), flush=True)


def not_here(what):
    print(f"not here: {what}", flush=True)
    sys.exit(0)


class Child:
    """A program whose output is read to its end, so that it never waits."""

    def __init__(self, command):
        self.lines, self.more = [], threading.Condition()
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True,
                                        stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, errors="replace")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.more:
                self.lines.append(line.rstrip("\n"))
                self.more.notify()
        with self.more:
            self.lines.append(None)
            self.more.notify()

    def wait_for(self, text):
        seen = 0
        with self.more:
            while True:
                while seen < len(self.lines):
                    line = self.lines[seen]
                    seen += 1
                    if line is None:
                        sys.exit("\n".join([f"ended before {text!r}:", *map(str, self.lines[-12:-1])]))
                    if text in line:
                        return line
                self.more.wait()


class Served:
    def __init__(self, args, model, *flags):
        device = "cuda-emulated" if args.rehearse else "cuda"
        begin = time.monotonic()
        self.worker = Child([args.worker, "--model", model, f"--device={device}", "--served-model-name=model",
                             "--listen=127.0.0.1:0", "--http-port=0", "--log-format=json", "--rank-timeout=60s", *flags])
        address = self.worker.wait_for("ready: ").split("ready: ")[1].split()[0]
        self.start_s = time.monotonic() - begin  # the ready line follows a first token
        self.router = Child([BIN / "quire-router", "--port=0", "--grpc-port=0", "--log-format=json",
                             f"--worker={address}"])
        line = json.loads(self.router.wait_for('"listening"'))
        self.url = "http://127.0.0.1:" + line["http"].rsplit(":", 1)[1]
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=10).read()
                return
            except OSError:
                time.sleep(0.1)
        sys.exit("the router has no worker")

    def ask(self, prompt, tokens):
        body = {"model": "model", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
                "return_token_ids": True}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        return json.load(urllib.request.urlopen(request, timeout=300))["choices"][0]["token_ids"]

    def load(self, **options):
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        done = subprocess.run([str(BIN / "load_generator"), f"--url={self.url}", "--model=model", *flags],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"load_generator: {done.stdout}{done.stderr}")
        return json.loads(done.stdout.strip().splitlines()[-1])


def small(args):
    return ["--max-model-len=256", "--max-num-seqs=8", "--max-num-batched-tokens=128",
            "--max-step-time-ms=0"] if args.rehearse else []


def answers(args):
    """Tokens of a request are the same alone, and beside others."""
    served = Served(args, made(args, SMALL), *small(args))
    tokens = 6 if args.rehearse else 48
    alone = [served.ask(prompt, tokens) for prompt in PROMPTS]
    with concurrent.futures.ThreadPoolExecutor(len(PROMPTS)) as pool:
        together = list(pool.map(lambda prompt: served.ask(prompt, tokens), PROMPTS))
    if alone != together or any(len(ids) != tokens for ids in alone):
        sys.exit(f"alone {alone}, together {together}")
    figure(f"start_to_first_token_{SMALL}", served.start_s, "s")


def load(args):
    served = Served(args, made(args, SMALL), *small(args))
    sizes = dict(streams=2, requests=2, max_tokens=3, prompt_tokens=8) if args.rehearse else \
        dict(streams=64, requests=512, max_tokens=128, prompt_tokens=32)
    told = served.load(vocab=256, **sizes)
    figure("load_tokens", told["tokens_per_second"], "tokens/s")
    figure("load_gap_p99", told["gap_ms_p99"], "ms")


QUANTISED = "-Q4_K"  # ends the name of a shape whose matrices are so
# Elements of the tables of which a step reads a few rows: of shapes whose head is another matrix.
TABLES = {"Llama-3.1-8B": 128_256 * 4096, "tiny-llama": 512 * 128}
BYTES_PER_ELEMENT = {"": 2, QUANTISED: 4.5 / 8}


def made(args, shape):
    """The folder of a shape's weights, or its GGUF file, made once."""
    folder, quantised = args.scratch / shape, shape.endswith(QUANTISED)
    if not folder.exists():
        args.scratch.mkdir(parents=True, exist_ok=True)
        part = args.scratch / f"{shape}.part"
        subprocess.run(["rm", "-rf", str(part)], check=True)
        subprocess.run([str(BIN / "quire"), "make-weights", shape.removesuffix(QUANTISED), str(part),
                        f"--dtype={'q4_k' if quantised else 'bf16'}"], check=True, stdout=subprocess.DEVNULL)
        part.rename(folder)
    return folder / "model.gguf" if quantised else folder


def bytes_of_a_step(model, shape):
    """What one token reads of the weights: all but the table of embeddings, where that is not the head too."""
    files = [model] if model.is_file() else model.glob("*.safetensors")
    kind = QUANTISED if shape.endswith(QUANTISED) else ""
    return sum(file.stat().st_size for file in files) - \
        TABLES.get(shape.removesuffix(QUANTISED), 0) * BYTES_PER_ELEMENT[kind]


# What a case's name may end with: flags of the worker, and how its figures are told apart.
OPTIONS = {"": [], "fp8": ["--kv-cache-dtype=fp8"], "variant": ["--no-batch-invariant"]}
FAKE_CUBLASLT = ROOT / "build/tests/fake_cublaslt/good"


def served_with(args, model, option, flags):
    if option == "variant" and args.rehearse:  # each size of step is timed: few of them here
        flags = ["--max-model-len=64", "--max-num-seqs=2", "--max-num-batched-tokens=16", "--max-step-time-ms=0",
                 f"--cublaslt-library={FAKE_CUBLASLT}"]
    served = Served(args, model, *flags, *OPTIONS[option])
    if alone := [line for line in served.worker.lines if line and "our own products alone" in line]:
        not_here(alone[0])
    return served


def read_through(model):
    """So that what is loaded lies in the page cache."""
    for file in [model] if model.is_file() else sorted(model.glob("*.safetensors")):
        with open(file, "rb", buffering=0) as opened:
            while opened.read(64 << 20):
                pass


def decode(args, shape, option=""):
    """One stream: what it reads for each token, over what can be read."""
    model = made(args, shape)
    weight_bytes = bytes_of_a_step(model, shape)
    read_through(model)
    served = served_with(args, model, option, small(args) or ["--max-model-len=4096"])
    of = shape + (f"_{option}" if option else "")
    figure(f"start_to_first_token_{of}", served.start_s, "s")
    sizes = dict(requests=1, max_tokens=3, prompt_tokens=8) if args.rehearse else \
        dict(requests=3, max_tokens=512, prompt_tokens=32)
    told = served.load(streams=1, vocab=256, **sizes)
    gap_s = told["gap_ms_p50"] / 1000
    figure(f"decode_{of}", 1 / gap_s if gap_s > 0 else 0, "tokens/s")
    if args.bandwidth and gap_s > 0:
        figure(f"decode_share_of_bandwidth_{of}", 100 * weight_bytes / gap_s / args.bandwidth, "%")


def throughput(args, shape, option=""):
    """1,000 tokens in, 1,000 out, 256 at once."""
    run = dict(rows=2, prompt=8, tokens=3, step_tokens=128) if args.rehearse else \
        dict(rows=256, prompt=1000, tokens=1000, step_tokens=8192)
    flags = small(args) or ["--max-model-len=2048", f"--max-num-seqs={run['rows']}",
                            f"--max-num-batched-tokens={run['step_tokens']}"]
    model = made(args, shape)
    told = served_with(args, model, option, flags).load(
        vocab=256, streams=run["rows"], requests=run["rows"], max_tokens=run["tokens"], prompt_tokens=run["prompt"])
    of = shape + (f"_{option}" if option else "")
    figure(f"throughput_1000_1000_{of}", told["tokens_per_second"], "tokens/s")
    figure(f"first_token_p50_{of}", told["first_token_ms_p50"], "ms")
    if not (args.bandwidth and args.rate):
        return
    head = json.loads((model / "config.json").read_text())
    of_shape = roof.Shape(model, bytes_of_a_step(model, shape), head["vocab_size"] * head["hidden_size"])
    least_s = roof.seconds(of_shape, **run, fp8=option == "fp8", bandwidth=args.bandwidth, rate=args.rate)
    at_most = run["rows"] * run["tokens"] / least_s
    figure(f"throughput_share_of_roof_{of}", 100 * told["tokens_per_second"] / at_most, "%")


def pace(args, shape):
    """Idle gaps of the device, work of the host, and the time that weights take to the device, by the test binary."""
    model = made(args, shape)
    read_through(model)
    done = subprocess.run([str(args.tests), "--gtest_filter=CudaGraphPace.*", "--gtest_brief=1"], capture_output=True,
                          text=True, env={**os.environ, "QUIRE_PACE_MODEL": str(model)})
    print(done.stdout + done.stderr, end="", flush=True)
    if done.returncode != 0 or "[  PASSED  ] 1 test" not in done.stdout:
        sys.exit(done.returncode or "no such test in the binary")


def torch(args, shape):
    """The same weights and lengths as decode, in PyTorch."""
    sizes = ["--tokens=3", "--prompt=10,11,12"] if args.rehearse else ["--tokens=512"]
    done = subprocess.run([sys.executable, str(HERE / "torch_decode.py"), str(made(args, shape)), *sizes],
                          capture_output=True, text=True)
    said = done.stdout.strip().splitlines()
    if said and said[-1].startswith("not here: "):
        not_here(said[-1].removeprefix("not here: "))
    if done.returncode != 0 or not said:
        sys.exit(f"torch_decode: {done.stdout}{done.stderr}")
    figure(f"torch_decode_{shape}", json.loads(said[-1])["tokens_per_second"], "tokens/s")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case", help="CASE[:SHAPE[:OPTION]]")
    parser.add_argument("--worker", type=pathlib.Path, required=True)
    parser.add_argument("--tests", type=pathlib.Path, required=True, help="the test binary of the backend")
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--bandwidth", type=float, help="bytes a second that this device has been seen to read")
    parser.add_argument("--rate", type=float, help="products and sums of bfloat16 a second that it has been seen to make")
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    name, *about = args.case.split(":")
    cases = {"answers": answers, "load": load, "decode": decode, "throughput": throughput, "pace": pace, "torch": torch}
    cases[name](args, *about)
    return 0


if __name__ == "__main__":
    sys.exit(main())
