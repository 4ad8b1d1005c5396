"""The benches of the CPU's engine: speed against llama.cpp, and how far int8 activations move a model.

Models that are too large to fetch have true shapes and made-up weights: `quire make-weights`, then llama.cpp's own
llama-quantize, so that both engines read the files that llama.cpp writes.
"""
import json
import os
import pathlib
import re
import subprocess
import time

import record as recording

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = ROOT / "build" / "bin"
FOLDER = ROOT / ".cache"
MODELS = FOLDER / "models"
KL_WINDOWS = 21  # of 512 tokens; the second half of each is scored
KL_MXFP4 = "MXFP4 mlp, Q8_0"
KL_MIXTURE = "Qwen3-30B-A3B's shape, 2 layers, Q4_K_M, made-up weights"
KL_FORMATS = ("Q4_K_M", "Q8_0", "Q5_K_M", "Q6_K")  # those that `auto` takes


def peer_folder(*more):
    """Its usual tools, and `more` of them."""
    tools = ["llama-bench", "llama-batched-bench", "llama-quantize", "llama-perplexity", *more]
    built = subprocess.run(["bash", "bench/build_llama_cpp.sh", *tools], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(built.stdout.strip().splitlines()[-1])


def quantised(folder, source, kind, mlp=None):
    """`source` as llama.cpp writes it in another format, beside it; `mlp`: the type of those matrices."""
    to = source.parent / (f"{kind}.gguf" if mlp is None else f"{kind}-{mlp}.gguf")
    if not to.exists():
        part = to.with_suffix(".part")
        types = [f"--tensor-type=ffn_{name}={mlp}" for name in ("gate", "up", "down") if mlp]
        options = [word for text in types for word in text.split("=", 1)]
        subprocess.run([folder / "llama-quantize", "--allow-requantize", *options, source, part, kind, str(os.cpu_count())],
                       check=True, capture_output=True)
        part.rename(to)
    return to


def shape(folder, name, kind):
    """A published model's shape. Q4_K_M is made from Q8_0, which holds the made-up weights nearly as they are."""
    first = MODELS / f"{name.lower()}-shape" / "model.gguf"
    if not first.exists():
        subprocess.run([BIN / "quire", "make-weights", "--dtype=q4_k", name, first.parent], check=True)
    eight = quantised(folder, first, "Q8_0")
    return eight if kind == "Q8_0" else quantised(folder, eight, kind)


def shape_1b(folder, kind):
    return shape(folder, "Llama-3.2-1B", kind)


def made_up(folder, name, layers, vocabulary=32_000):
    """A shape of newer families, cut, in Q4_K_M: llama-quantize takes it from blocks of our own."""
    to = MODELS / f"{name.lower()}-{layers}-layers" / "Q4_K_M.gguf"
    if not to.exists():
        first = to.with_name("model.gguf")
        if not first.exists():
            subprocess.run([BIN / "quire", "make-weights", "--dtype=q4_k", f"--layers={layers}", f"--vocabulary={vocabulary}",
                            name, first.parent], check=True)
        quantised(folder, first, "Q4_K_M")
        first.unlink()
    return to


def engine(mode, model, **options):
    command = [BIN / "engine_bench", f"--model={model}", f"--mode={mode}", f"--threads={os.cpu_count()}"]
    command += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def llama_bench(folder, model, flash, prompt, generate, repeats):
    done = subprocess.run([str(c) for c in (folder / "llama-bench", "-m", model, "-t", os.cpu_count(), "-p", prompt, "-n",
                                            generate, "-fa", flash, "-r", repeats, "-o", "json")],
                          capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout[done.stdout.index("["):])
    return max(row["avg_ts"] for row in rows)


def llama_batched(folder, model, flash, batch, context, tokens):
    command = [folder / "llama-batched-bench", "-m", model, "-t", os.cpu_count(), "-c", batch * (context + tokens) + 64,
               "-b", 2048, "-ub", 512, "-npp", context, "-ntg", tokens, "-npl", batch, "-fa", "on" if flash else "off",
               *(["-pps"] if batch > 1 else []), "--output-format", "jsonl"]  # no copies of recurrent states there
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")][-1]["speed_tg"]


def streams(batch, context):
    """Tokens/s of so many streams, in both engines: the prompt is computed once and its keys and values are copied, so
    that each stream has its own."""
    return (lambda folder, model: engine("decode", model, batch=batch, context=context, tokens=24, repeats=1, warmups=0, copied=1),
            lambda folder, model, fa: llama_batched(folder, model, fa, batch, context, 24))


def prompt(tokens):
    warmups = {"warmups": 0} if tokens > 512 else {}
    return (lambda folder, model: engine("prefill", model, tokens=tokens, repeats=1, **warmups),
            lambda folder, model, fa: llama_bench(folder, model, fa, tokens, 0, 1))


ALONE = (lambda folder, model: engine("decode", model, tokens=48, batch=1, repeats=1),
         lambda folder, model, fa: llama_bench(folder, model, fa, 0, 48, 1))


# Of one model: name to (ours, the peer's by its flash attention).
SHORT = {"prefill 512": prompt(512), "decode batch 1": ALONE, "decode batch 4": streams(4, 128), "decode batch 16": streams(16, 128)}
LONG = {"prefill 4096": prompt(4096), "decode batch 16 at 4096": streams(16, 4096)}


KEYS = ("quire", "llama.cpp", "ratio", "read GB/s", "int8 Gop/s")


class Kept:
    """What was measured on this commit and processor, one line for each cell and cycle. A tree with changes keeps
    nothing: what it measures is not the commit's."""
    def __init__(self):
        self.path = None
        if recording.changed_files():
            return
        self.about = {"commit": recording.commit(), "cpu": recording.processor(recording.machine())}
        self.path = FOLDER / "bench-cpu.jsonl"

    def read(self, name):
        """Of one model: the lines of each cell."""
        rows = {}
        if self.path is None or not self.path.exists():
            return rows
        for line in map(json.loads, self.path.read_text().splitlines()):
            if self.about | {"model": name} == {key: line[key] for key in (*self.about, "model")}:
                rows.setdefault(line["cell"], []).append(line)
        return rows

    def add(self, line):
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(self.about | line) + "\n")


def against_peer(folder, name, model, args, spread, table):
    """Every cell of the table in turns, the peer with its better setting of flash attention, the machine's limits beside
    each. A run that was cut short goes on where it ended, on the same commit."""
    kept = Kept()
    rows = kept.read(name)
    for cycle in range(args.cycles):
        for cell, (mine, peer) in table.items():
            row = rows.setdefault(cell, [])
            if len(row) > cycle:
                continue
            limits = probes()
            ours = mine(folder, model)["tokens_per_second"]
            tried = (row[0]["flash"],) if row else (0, 1)  # the first cycle tries both
            theirs, flash = max((peer(folder, model, fa), fa) for fa in tried)
            values = (ours, theirs, ours / theirs, limits["read_gb_per_s"], limits["dot_gop_per_s"])
            row.append({"model": name, "cell": cell, "flash": flash, **dict(zip(KEYS, values))})
            kept.add(row[-1])
            print(f"cycle {cycle + 1}: {name} {cell}: {ours:.1f} and {theirs:.1f} tokens/s, {ours / theirs:.2f}x; "
                  f"{limits['read_gb_per_s']} GB/s", flush=True)
    return {cell: {**{key: spread([line[key] for line in row]) for key in KEYS},
                   "llama.cpp flash attention": row[0]["flash"]} for cell, row in rows.items() if cell in table}


def cost_of(command):
    """Wall seconds and the peak of resident MiB of a process, or of this one where that is more: a new process begins
    with the peak of the one that starts it."""
    begin = time.perf_counter()
    started = subprocess.Popen([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(started.pid, 0)
    if status != 0:
        raise RuntimeError(f"{command[0]} failed: {status}")
    return time.perf_counter() - begin, usage.ru_maxrss / 1024


def starts(folder, model, cycles, spread):
    """From the start of a process to the end of a prompt of eight tokens, the file in the page cache: both engines in
    turns. Wall seconds and peaks of resident memory."""
    commands = {"quire": [BIN / "engine_bench", f"--model={model}", "--mode=prefill", "--tokens=8", "--repeats=1", "--warmups=0",
                          f"--threads={os.cpu_count()}"],
                "llama.cpp": [folder / "llama-bench", "-m", model, "-t", os.cpu_count(), "-p", 8, "-n", 0, "-r", 1, "--no-warmup"]}
    with model.open("rb") as file:  # held by the page cache, not by this process
        while file.read(1 << 20):
            pass
    rows = [{name: cost_of(command) for name, command in commands.items()} for _ in range(cycles)]
    found = {f"{name} {what}": spread([row[name][i] for row in rows])
             for name in commands for i, what in enumerate(("seconds", "peak MiB"))}
    return {"commit": recording.commit(), **found, "file MiB": round(model.stat().st_size / 2**20, 1),
            "ratio of seconds": spread([row["quire"][0] / row["llama.cpp"][0] for row in rows])}


def step_shares(model, mode, **options):
    """Of the time of a run's steps: each kind of op, routing within mixtures, and threads that wait for others."""
    return {name: round(share, 4) for name, share in engine(mode, model, times=1, **options)["times"].items()}


def step_table(model):
    """The same for the usual runs."""
    return {"prefill 512": step_shares(model, "prefill", tokens=512), "decode batch 1": step_shares(model, "decode", tokens=48),
            "decode batch 16": step_shares(model, "decode", batch=16, context=128, tokens=24)}


def probes():
    """Of both cores: reading in GB/s, and int8 dot products in Gop/s, as one run of a second gives them."""
    done = subprocess.run([str(BIN / "quire-bench-kernels"), str(os.cpu_count()), "auto", "0", "limits"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def kl_text():
    """Pages of this tree, the same for both engines."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
    to = ROOT / ".cache" / "kl_text.txt"
    to.write_text("".join(page.read_text() for page in pages))
    return to


def peer_divergence(folder, exact, model, text):
    """llama.cpp's own mean divergence on the file, from the same weights as float32."""
    base = ROOT / ".cache" / "kl_base.bin"
    common = ["-f", text, "-t", os.cpu_count(), "-c", 512, "--chunks", KL_WINDOWS]
    if not base.exists():
        subprocess.run([str(c) for c in (folder / "llama-perplexity", "-m", exact, *common, "--save-all-logits", base)],
                       check=True, capture_output=True)
    done = subprocess.run([str(c) for c in (folder / "llama-perplexity", "-m", model, *common, "--kl-divergence",
                                            "--kl-divergence-base", base)], check=True, capture_output=True, text=True)
    found = re.search(r"Mean +KLD: +([0-9.eE+-]+) *± *([0-9.eE+-]+)", done.stdout + done.stderr)
    return {"mean_kl": float(found.group(1)), "standard_error": float(found.group(2))}


def divergence(folder, model, text):
    """Ours and llama.cpp's on one file, and their ratio."""
    exact = model.with_name(f"{model.stem}-F32.gguf")
    if not exact.exists():
        subprocess.run([folder / "llama-quantize", "--allow-requantize", model, exact, "F32", str(os.cpu_count())],
                       check=True, capture_output=True)
    command = [BIN / "activations_bench", f"--model={model}", f"--text={text}", f"--windows={KL_WINDOWS}",
               f"--threads={os.cpu_count()}"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True)
    rows = {"quire": json.loads(done.stdout), "llama.cpp": peer_divergence(folder, exact, model, text)}
    (ROOT / ".cache" / "kl_base.bin").unlink()
    exact.unlink()
    return rows | {"ratio": round(rows["quire"]["mean_kl"] / rows["llama.cpp"]["mean_kl"], 3)}


def divergences(source, formats):
    """Of the first formats, made from the published file, and of a mixture of true shape with made-up weights."""
    folder, text = peer_folder(), kl_text()
    files = {kind: lambda kind=kind: source if kind == "Q4_K_M" else quantised(folder, source, kind)
             for kind in KL_FORMATS[:formats]}
    files[KL_MXFP4] = lambda: quantised(folder, source, "Q8_0", mlp="mxfp4")
    files[KL_MIXTURE] = lambda: made_up(folder, "Qwen3-30B-A3B", 2)
    table = {}
    for name, make in files.items():
        table[name] = divergence(folder, make(), text)
        print(name, json.dumps(table[name]), flush=True)
    return table
