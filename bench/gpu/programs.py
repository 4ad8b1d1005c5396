#!/usr/bin/env python3
"""One case of ./dev gpu that runs the programs themselves: a worker on the device, a router in front of it, and clients.

Figures are lines that begin with "figure ". Ends with 0 when it went well. Whoever started it ends what it started.
"""
import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build/bin"
SMALL = "tiny-llama"  # made on the spot, as all others are
PROMPTS = [[10 * p + i for i in range(1, 6 + 3 * p)] for p in range(4)]


def figure(name, value, unit):
    print("figure " + json.dumps({"name": name, "value": float(f"{value:.6g}"), "unit": unit}), flush=True)


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


def decode(args, shape):
    """One stream: what it reads for each token, over what can be read."""
    model = made(args, shape)
    weight_bytes = bytes_of_a_step(model, shape)
    served = Served(args, model, *(small(args) or ["--max-model-len=4096"]))
    figure(f"start_to_first_token_{shape}", served.start_s, "s")
    sizes = dict(requests=1, max_tokens=3, prompt_tokens=8) if args.rehearse else \
        dict(requests=3, max_tokens=512, prompt_tokens=32)
    told = served.load(streams=1, vocab=256, **sizes)
    gap_s = told["gap_ms_p50"] / 1000
    figure(f"decode_{shape}", 1 / gap_s if gap_s > 0 else 0, "tokens/s")
    if args.bandwidth and gap_s > 0:
        figure(f"decode_share_of_bandwidth_{shape}", 100 * weight_bytes / gap_s / args.bandwidth, "%")


def throughput(args, shape):
    """1,000 tokens in, 1,000 out, 256 at once."""
    flags = small(args) or ["--max-model-len=2048", "--max-num-seqs=256", "--max-num-batched-tokens=8192"]
    served = Served(args, made(args, shape), *flags)
    sizes = dict(streams=2, requests=2, max_tokens=3, prompt_tokens=8) if args.rehearse else \
        dict(streams=256, requests=256, max_tokens=1000, prompt_tokens=1000)
    told = served.load(vocab=256, **sizes)
    figure(f"throughput_1000_1000_{shape}", told["tokens_per_second"], "tokens/s")
    figure(f"first_token_p50_{shape}", told["first_token_ms_p50"], "ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("case")
    parser.add_argument("--worker", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--bandwidth", type=float, help="bytes a second that this device has been seen to read")
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    name, _, shape = args.case.partition(":")
    cases = {"answers": answers, "load": load, "decode": decode, "throughput": throughput}
    cases[name](args, *([shape] if shape else []))
    return 0


if __name__ == "__main__":
    sys.exit(main())
