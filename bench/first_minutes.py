"""What a new user waits for: a pull, the first token of `quire run`, a change of models, and many prompts in one process or file."""
import contextlib
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "process"), str(ROOT / "tests" / "supply"), str(ROOT / "tests" / "support" / "py")]
from harness import BIN, Server, free_port, wait_until  # noqa: E402
from machine import CLEAN  # noqa: E402
from nginx import nginx  # noqa: E402

QUIRE = BIN / "quire"
STARTED_S = 8  # a worker has then prepared its vocabulary for grammars, which takes it seconds of one processor


@contextlib.contextmanager
def file_server(folder):
    port = free_port()
    with nginx(folder, f"sendfile on; server {{ listen 127.0.0.1:{port}; root {folder}; }}") as process:
        url = f"http://127.0.0.1:{port}/model.gguf"
        wait_until(lambda: subprocess.run(["curl", "-sfI", url], stdout=subprocess.DEVNULL).returncode == 0, "nginx answers",
                   more=process.output)
        yield url


def seconds_of(command, **more):
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
    return time.perf_counter() - begin


def pulls(cycles, mib, spread):
    """MB/s of `quire pull` and of `curl | tee FILE | sha256sum`, from nginx on loopback, in turns."""
    rows = {"quire": [], "curl | tee | sha256sum": [], "ratio": []}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rng = random.Random(1)
        with open(folder / "model.gguf", "wb") as file:
            for _ in range(mib):
                file.write(rng.randbytes(1 << 20))
        with file_server(folder) as url:
            for cycle in range(cycles + 1):
                home = folder / f"home{cycle}"
                home.mkdir()

                def ours():
                    return seconds_of([QUIRE, "pull", url], env={**CLEAN, "HOME": str(home)})

                def theirs():
                    return seconds_of(["bash", "-c", f"curl -s {url} | tee {home}/copy | sha256sum"])
                found = (ours(), theirs()) if cycle % 2 else (theirs(), ours())[::-1]
                subprocess.run(["rm", "-r", home], check=True)
                if cycle == 0:
                    continue  # the pages of the file are touched
                for key, value in zip(rows, [mib * 1.048576 / s for s in found] + [found[1] / found[0]]):
                    rows[key].append(value)
    return {key: spread(values) for key, values in rows.items()}


def first_token(cycles, spread):
    """Seconds from `quire run demo PROMPT` to the first byte of its answer."""
    found = []
    for _ in range(cycles):
        begin = time.perf_counter()
        with subprocess.Popen([QUIRE, "run", "demo", "Tell me a story about a fox"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL) as child:
            if not child.stdout.read(1):
                raise SystemExit("quire run demo gave no answer")
            found.append(time.perf_counter() - begin)
            child.stdout.read()
    return spread(found)


def switches(cycles, models, spread):
    """Seconds to the first token of a model that is not loaded, another giving way to it, beyond those that a read of its file takes."""
    rows = {name: {"first token s": [], "read of the file s": [], "beyond the read s": []} for name in models}
    paths = list(models.values())
    with Server(*map(str, paths[1:]), "--max-loaded-models=1", model=str(paths[0])) as server:
        served = [model["id"] for model in json.loads(server.get("/v1/models")[1])["data"]]
        for _ in range(cycles + 1):
            for (name, path), model in reversed(list(zip(models.items(), served))):
                read = seconds_of(["cat", path if path.is_file() else path / "model.safetensors"])
                begin = time.perf_counter()
                status, answer = server.post("/v1/completions", {"model": model, "prompt": "Once", "max_tokens": 1})
                took = time.perf_counter() - begin
                if status != 200:
                    raise SystemExit(f"{model}: {status} {answer}")
                for key, value in zip(rows[name], (took, read, took - read)):
                    rows[name][key].append(value)
    return {name: {key: spread(values[1:]) for key, values in row.items()} for name, row in rows.items()}


def prompts_of(count, vocabulary):
    """Prompts of 16 to 47 token ids and the tokens of their answers, 32 to 95: the sizes that engine_bench --mixed=1 has."""
    rng = random.Random(2)
    shares = [32 + i * 37 % 64 for i in range(count)]
    return [{"prompt": [rng.randrange(10, vocabulary) for _ in range(32 * share // 64)], "tokens": 64 * share // 64}
            for share in shares]


LIBRARY = """
import json, sys, time
from quire import LLM, SamplingParams
asked = json.load(sys.stdin)
with LLM(model=sys.argv[1], threads=int(sys.argv[2]), max_num_seqs=128) as llm:
    params = [SamplingParams(temperature=0, max_tokens=a["tokens"], ignore_eos=True) for a in asked]
    prompts = [{"prompt_token_ids": a["prompt"]} for a in asked]
    llm.generate(prompts[:1], params[:1])
    begin = time.monotonic()
    found = llm.generate(prompts, params)
    seconds = time.monotonic() - begin
print(json.dumps({"tokens_per_second": sum(len(f.outputs[0].token_ids) for f in found) / seconds,
                  "outputs": [list(f.outputs[0].token_ids) for f in found]}))
"""


def library(python, folder, threads, count, every):
    """Tokens/s of LLM().generate over `count` prompts, and of transformers over one in `every` of them, one by one."""
    asked = prompts_of(count, 250_000)
    done = subprocess.run([sys.executable, "-c", LIBRARY, folder, str(threads)], input=json.dumps(asked), capture_output=True, text=True,
                          check=True, env={**CLEAN, "PYTHONPATH": str(ROOT / "library" / "python")})
    ours = json.loads(done.stdout.strip().splitlines()[-1])
    some = asked[::every]
    done = subprocess.run([python, ROOT / "bench" / "transformers" / "generate.py", "run", folder, str(threads)],
                          input=json.dumps(some), capture_output=True, text=True, check=True)
    theirs = json.loads(done.stdout.strip().splitlines()[-1])
    equal = sum(a == b for a, b in zip(ours["outputs"][::every], theirs["outputs"]))
    return {"prompts": count, "of them for transformers": len(some), "wholly equal answers": equal,
            "LLM().generate": round(ours["tokens_per_second"], 1), "transformers one by one": round(theirs["tokens_per_second"], 2),
            "ratio": round(ours["tokens_per_second"] / theirs["tokens_per_second"], 2)}


def batch(model, threads, count, cycles, engine, spread):
    """Tokens/s of `quire run-batch` over a file, its start and end included, by a server that has run for some seconds, and of the
    bare engine over requests of the same sizes."""
    rows = {"run-batch": [], "bare engine": [], "ratio": []}
    asked = prompts_of(count, 250_000)
    tokens = sum(a["tokens"] for a in asked)

    def alone():
        return engine("closed", model, threads, batch=64, requests=count, context=32, tokens=64, mixed=1, repeats=1,
                      warmups=0)["tokens_per_second"]

    for cycle in range(cycles):
        bare = alone() if cycle % 2 else None
        with tempfile.TemporaryDirectory() as name, Server("--max-num-seqs=64", f"--threads={threads}", model=str(model)) as server:
            lines = [json.dumps({"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {
                "model": server.model, "prompt": a["prompt"], "max_tokens": a["tokens"], "temperature": 0, "ignore_eos": True}})
                for i, a in enumerate(asked)]
            server.post("/v1/completions", {"model": server.model, "prompt": "Once", "max_tokens": 1})
            time.sleep(STARTED_S)
            path = pathlib.Path(name) / "in.jsonl"
            path.write_text("\n".join(lines) + "\n")
            took = seconds_of([QUIRE, "run-batch", "-i", path, "-o", path.with_name("out.jsonl"), f"--url=http://127.0.0.1:{server.port}"])
        found = (tokens / took, bare or alone())
        for key, value in zip(rows, (*found, found[0] / found[1])):
            rows[key].append(value)
    return {key: spread(values) for key, values in rows.items()}
