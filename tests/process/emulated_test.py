"""The CUDA worker over the emulated device, behind a router: its tokens are the backend's own, alone and together."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import threading
import urllib.request

import lora
import pytest

from harness import BIN, DEMO, ROOT, Process, RouterUnderTest, expect, run
from tier import LONG

WORKER = BIN.parent / "tests" / "quire-worker-emulated"
SERVED = json.loads((ROOT / "tests/kernels/cuda/backend/served_tokens.json").read_text())["prompts"]
NCCL = BIN.parent / "tests/fake_nccl/good"
CUBLASLT = BIN.parent / "tests/fake_cublaslt/good"
GEMMA = ROOT / ".cache/models/gemma3-270m/model.gguf"
SMALL = ("--listen=127.0.0.1:0", "--http-port=0", "--log-format=json", "--max-model-len=256",
         "--max-num-seqs=8", "--max-num-batched-tokens=128", "--rank-timeout=60s", "--max-step-time-ms=0")


@contextlib.contextmanager
def serving(*flags, model=DEMO, env=None):
    """A router, and the emulated worker behind it."""
    with Process([WORKER, "--model", model, *SMALL, "--served-model-name=demo", "--device=cuda-emulated", *flags],
                 env=env) as worker:
        address = worker.wait_for_line("ready: ").split("ready: ")[1].split()[0]
        with RouterUnderTest(f"--worker={address}") as router:
            router.wait_until(lambda: router.metric('quire_router_workers{phase="ready"}') == 1,
                              f"the worker is ready, which says {worker.lines}")
            yield worker, router


def body(prompt, tokens, **more):
    return {"model": "demo", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True, **more}


def ask(router, prompt, tokens, **more):
    status, answer = router.post("/v1/completions", body(prompt, tokens, **more))
    expect(status == 200, answer)
    return answer["choices"][0]["token_ids"]


def ids_of(event):
    return json.loads(event)["choices"][0].get("token_ids") or []


def worker_metric(worker, name):
    probes = next(line for line in worker.lines if "ready: " in line).split("curl ")[1].split("/health")[0]
    with urllib.request.urlopen(probes + "/metrics", timeout=60) as answer:
        return next(float(line.split()[-1]) for line in answer.read().decode().splitlines() if line.split(" ")[0].split("{")[0] == name)


def all_at_once(calls):
    answers = [None] * len(calls)

    def one(i):
        answers[i] = calls[i]()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_tokens_are_the_backends_alone_and_together():
    with serving() as (worker, router):
        line = next(json.loads(x) for x in worker.lines if '"numerics"' in x)
        expect(line["device"] == "emulated grid" and "emulated" in line["numerics"], line)
        expected = [p["tokens"] for p in SERVED]
        alone = [ask(router, p["prompt"], len(p["tokens"])) for p in SERVED]
        expect(alone == expected, f"{alone} != {expected}")
        drawn = {"temperature": 0.9, "seed": 5}
        once = [ask(router, p["prompt"], 8, **drawn) for p in SERVED]
        calls = [lambda p=p: ask(router, p["prompt"], len(p["tokens"])) for p in SERVED]
        calls += [lambda p=p: ask(router, p["prompt"], 8, **drawn) for p in SERVED]
        together = all_at_once(calls)
        expect(together == expected + once, f"{together} != {expected + once}")
        worker.signal(signal.SIGTERM)
        expect(worker.wait() == 0, worker.output())


def test_two_ranks_serve_the_same_in_every_batch_as_threads_and_processes():
    answers = []
    for flags in (["--rank-backend=thread"], ["--rank-backend=process"],
                  ["--rank-backend=thread", f"--nccl-library={NCCL}"],
                  ["--rank-backend=process", f"--nccl-library={NCCL}"]):
        with serving("--tensor-parallel-size=2", *flags) as (worker, router):
            unused = worker_metric(worker, "quire_worker_device_memory_free_bytes")
            alone = [ask(router, p["prompt"], 4) for p in SERVED]
            together = all_at_once([lambda p=p: ask(router, p["prompt"], 4) for p in SERVED])
            expect(together == alone, f"{together} != {alone}")
            answers.append(alone)
            after = worker_metric(worker, "quire_worker_device_memory_free_bytes")
            expect(unused == after > 0, f"steps of ranks took device memory: {unused} became {after}")
            worker.signal(signal.SIGTERM)
            expect(worker.wait() == 0, worker.output())
    expect(all(answer == answers[0] for answer in answers), answers)


def test_adapters_on_the_device_come_and_go(tmp_path):
    for seed, name in enumerate(("one", "two", "three"), 1):
        lora.make(DEMO, tmp_path / name, seed, size=0.12)
    for flags in ((), ("--tensor-parallel-size=2", "--rank-backend=process")):
        with serving("--enable-lora", "--max-loras=2", "--max-lora-rank=8", f"--lora-modules=one={tmp_path / 'one'}", *flags) as (worker, router):
            def answer(model):
                return ask(router, "Once upon a time there was", 8, model=model)

            def order(route, **more):
                status, said = router.post(f"/v1/{route}", more)
                expect(status == 200, f"{route}: {said}")
            alone = {model: answer(model) for model in ("demo", "one")}
            for name in ("two", "three"):
                order("load_lora_adapter", lora_name=name, lora_path=str(tmp_path / name))
                alone[name] = answer(name)
                for model in ("demo", "one", name):
                    together = all_at_once([lambda m=m: answer(m) for m in ("demo", "one", name, model)])
                    expect(together == [alone[m] for m in ("demo", "one", name, model)], f"{together} != {alone}")
                order("unload_lora_adapter", lora_name=name)
            expect(len({tuple(ids) for ids in alone.values()}) == 4, f"each writes its own: {alone}")
            worker.signal(signal.SIGTERM)
            expect(worker.wait() == 0, worker.output())


def test_a_draft_model_on_the_device_changes_no_token():
    config = {"method": "draft_model", "model": str(DEMO), "num_speculative_tokens": 4}
    for flags in ([], ["--tensor-parallel-size=2"]):
        with serving(f"--speculative-config={json.dumps(config)}", *flags) as (worker, router):
            answers = [ask(router, p["prompt"], len(p["tokens"])) for p in SERVED]
            if not flags:
                expect(answers == [p["tokens"] for p in SERVED], answers)
            drafted = worker_metric(worker, "quire_worker_draft_tokens_total")
            accepted = worker_metric(worker, "quire_worker_accepted_draft_tokens_total")
            expect(drafted >= 8, f"{drafted} tokens were drafted")
            # One rank is the very same model; two add up in another order.
            expect(accepted == drafted if not flags else accepted >= 0.8 * drafted, f"{accepted} of {drafted}")
            worker.signal(signal.SIGTERM)
            expect(worker.wait() == 0, worker.output())


def children(pid):
    return [int(child) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()]


def test_a_group_over_nccl_is_made_anew_after_whatever_ends_it():
    with tempfile.TemporaryDirectory() as folder:
        order = pathlib.Path(folder) / "order"
        with serving("--tensor-parallel-size=2", "--rank-backend=process", f"--nccl-library={NCCL}", "--rank-timeout=10s",
                     env={**os.environ, "FAKE_NCCL_ORDER": str(order)}) as (worker, router):
            known = ask(router, SERVED[0]["prompt"], 6)
            for word in ("die", "error", "hang"):
                before = children(worker.child.pid)
                part = order.with_suffix(".part")
                part.write_text(f"1 {word}")
                part.rename(order)
                # Carried on by the ranks that come next, or refused: never another token, never silence.
                status, answer = router.post("/v1/completions", body(SERVED[0]["prompt"], 6))
                expect(status != 200 or answer["choices"][0]["token_ids"] == known, f"{word}: {status} {answer}")
                expect(not order.exists(), f"{word}: nobody has obeyed")
                router.wait_until(lambda: router.post("/v1/completions", body(SERVED[0]["prompt"], 1))[0] == 200,
                                  f"{word}: the ranks are back")
                expect(ask(router, SERVED[0]["prompt"], 6) == known, f"{word}: tokens of the new ranks")
                after = children(worker.child.pid)
                expect(len(after) == len(before) and not set(after) & set(before), f"{word}: {before} {after}")
            worker.signal(signal.SIGTERM)
            expect(worker.wait() == 0, worker.output())
    left = [path.name for path in pathlib.Path("/dev/shm").glob("quire_fake_nccl.*")]
    expect(not left, left)


def test_a_killed_rank_is_loaded_anew():
    with serving("--rank-backend=process") as (worker, router):
        ranks = children(worker.child.pid)
        expect(len(ranks) == 1, ranks)
        streamed = []
        for data in router.stream("/v1/completions", body(SERVED[0]["prompt"], 40)):
            if data == "[DONE]" or "error" in json.loads(data):
                streamed.append(data)
                break
            streamed += ids_of(data)
            if ranks and len(streamed) >= 3:
                os.kill(ranks.pop(), signal.SIGKILL)
        expect(not ranks, "the stream was too short")
        # Carried on when the rank is back, or ended by an error: never silently, and no token another.
        last = streamed.pop()
        expect(last != "[DONE]" or len(streamed) == 40, f"{len(streamed)} of 40 tokens came")
        known = SERVED[0]["tokens"]
        expect(streamed[:len(known)] == known[:len(streamed)], streamed)
        router.wait_until(lambda: router.post("/v1/completions", {"model": "demo", "prompt": "A", "max_tokens": 1})[0]
                          == 200, "the rank is back")
        expect(ask(router, SERVED[1]["prompt"], 12) == SERVED[1]["tokens"], "tokens of the new rank")
        expect(len(children(worker.child.pid)) == 1, "one rank runs")


def test_nvml_is_looked_at_and_says_what_became_of_a_lost_rank():
    told = {"LD_LIBRARY_PATH": str(BIN.parent / "tests/fake_cuda/nvml"), "FAKE_NVML": "xid=79 uncorrected=1"}
    with Process([WORKER, "--model", DEMO, *SMALL, "--device=cuda-emulated", "--rank-backend=process"], env=told) as worker:
        probes = worker.wait_for_line("ready: ").split("curl ")[1].removesuffix("/health")

        def text():
            with urllib.request.urlopen(f"{probes}/metrics", timeout=10) as answer:
                return answer.read().decode()
        shown = set(re.findall(r"^(quire_worker_device_\w+)", text(), re.M))
        documented = set(re.findall(r"`(quire_worker_device_\w+)`", (ROOT / "docs/how-to/gpu.md").read_text()))
        # Those of every worker are in the reference.
        expect(shown - {"quire_worker_device_memory_bytes", "quire_worker_device_memory_free_bytes"} == documented,
               f"{sorted(shown ^ documented)}")
        expect('quire_worker_device_xid{rank="0",device="00000000-0000-0000-0000-000000000000"} 79' in text(), text())
        os.kill(children(worker.child.pid)[0], signal.SIGKILL)
        line = json.loads(worker.wait_for_line('"devices"'))
        expect("killed by signal 9" in line["what"] and
               line["devices"].startswith("rank 0: XID 79, 1 uncorrected ECC errors, 41 C, 310 W"), line)


def test_batch_invariance_may_be_given_up_for_cublaslt():
    # Each shape of product is timed at every power of two of a step's tokens: few of them are enough.
    with serving("--no-batch-invariant", f"--cublaslt-library={CUBLASLT}", "--max-num-batched-tokens=32") as (worker, router):
        answers = [ask(router, p["prompt"], 6) for p in SERVED]
        # Products are summed in another order: first tokens, where the goldens leave no doubt, are the same.
        expect(all(len(answer) == 6 for answer in answers), answers)
        expect([a[0] for a in answers] == [p["tokens"][0] for p in SERVED], f"{answers} {SERVED}")
        worker.signal(signal.SIGTERM)
        expect(worker.wait() == 0, worker.output())
    for flags, numerics in ((["--no-batch-invariant"], "/batch-variant"), ([], "/batch-invariant"),
                            (["--no-batch-invariant", "--device=cpu"], "/batch-invariant")):
        code, said = run([WORKER, "--model", DEMO, *SMALL, "--device=cuda-emulated", "--plan", "--plan-bandwidth=1GB", *flags])
        expect(code == 0 and json.loads(said.splitlines()[-1])["numerics"].endswith(numerics), (flags, said))


def test_pages_of_fp8_serve_the_same_alone_and_together():
    with serving("--kv-cache-dtype=fp8") as (worker, router):
        line = next(json.loads(x) for x in worker.lines if '"numerics"' in x)
        expect("emulated" in line["numerics"], line)
        alone = [ask(router, p["prompt"], 8) for p in SERVED]
        together = all_at_once([lambda p=p: ask(router, p["prompt"], 8) for p in SERVED])
        expect(together == alone, f"{together} != {alone}")
        worker.signal(signal.SIGTERM)
        expect(worker.wait() == 0, worker.output())


def byte_tokenizer():
    """Of 256 tokens, one for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters = printable + [256 + i for i in range(256 - len(printable))]
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": step, "post_processor": None,
            "decoder": step, "model": {"type": "BPE", "vocab": {chr(c): i for i, c in enumerate(characters)}, "merges": []}}


def test_a_mixture_of_experts_serves_the_same_alone_and_together():
    with tempfile.TemporaryDirectory() as folder:
        for name in ("config.json", "model.safetensors"):
            shutil.copy(ROOT / "tests/golden/models/gpt-oss-mxfp4" / name, folder)
        (pathlib.Path(folder) / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
        prompts = [[(7 * i + n) % 251 for i in range(5 + 9 * n)] for n in range(4)]
        with serving(model=folder) as (worker, router):
            alone = [ask(router, prompt, 8) for prompt in prompts]
            together = all_at_once([lambda p=p: ask(router, p, 8) for p in prompts])
            expect(together == alone, f"{together} != {alone}")
            worker.signal(signal.SIGTERM)
            expect(worker.wait() == 0, worker.output())
        # Each of two ranks has three experts whole: the first token is the same where it is clear.
        whole = ("--tensor-parallel-size=2", "--enable-expert-parallel", "--rank-backend=process")
        with serving(*whole, model=folder) as (worker, router):
            ranks = [ask(router, prompt, 8) for prompt in prompts]
            together = all_at_once([lambda p=p: ask(router, p, 8) for p in prompts])
            expect(together == ranks, f"{together} != {ranks}")
            expect([r[0] for r in ranks] == [a[0] for a in alone], f"{ranks} {alone}")
        numerics = set()
        for flags in ([], whole[:1], whole[:2]):
            code, said = run([WORKER, "--model", folder, *SMALL, "--device=cuda-emulated", "--plan", "--plan-bandwidth=1GB", *flags])
            expect(code == 0, said)
            numerics.add(json.loads(said.splitlines()[-1])["numerics"])
        expect(len(numerics) == 3, f"sums of another order are another class: {numerics}")
        code, said = run([WORKER, "--model", folder, *SMALL, "--device=cuda-emulated", "--plan", "--plan-bandwidth=1GB"])
        plan = json.loads(said.splitlines()[-1])
        # Two matrices of each of six experts in two layers stay as they are; the plan tells them from the rest.
        expect(code == 0 and plan["quantised_matrices"] == 24 and plan["expanded_matrices"] == 0, said)
        expect(0 < plan["expert_bytes"] < plan["step_weight_bytes"] < plan["weight_bytes"], said)


def test_what_a_gpu_does_not_do_is_one_line():
    for flags, code, text in ((["--dtype=float32"], 2, "--dtype: a GPU keeps"),
                              (["--kv-cache-dtype=float32"], 2, "--kv-cache-dtype: a GPU keeps"),
                              (["--kv-cache-memory-bytes=2GiB"], 3, "fits"),
                              (["--tensor-parallel-size=2", "--nccl-library=/nowhere"], 4, "NCCL 2.28.9"),
                              (["--tensor-parallel-size=2", f"--nccl-library={NCCL.parent / 'old'}"], 4, "it is NCCL 2.18"),
                              (["--device=cuda-emulatd"], 2, "--device: must be auto")):
        got, output = run([WORKER, "--model", DEMO, *SMALL, "--device=cuda-emulated", *flags])
        expect(got == code and text in output and output.count("quire-worker:") == 1, f"{flags}: {got} {output}")
    got, output = run(["env", "QUIRE_EMULATED_SHARED_BYTES=65536", WORKER, "--model", DEMO, *SMALL, "--device=cuda-emulated"])
    expect(got == 4 and "65536 bytes of shared memory, 101376 are needed" in output and output.count("quire-worker:") == 1,
           f"a device that is too small: {got} {output}")
    got, output = run([BIN / "quire-worker", "--model", DEMO, *SMALL, "--device=cuda-emulated"])
    expect(got == 2 and "--device: must be auto" in output, f"the product has an emulator: {got} {output}")


def gemma_3_270m_begins_as_the_reference():
    if not GEMMA.exists():
        pytest.skip("gemma3-270m has not been fetched: ./dev model gemma3-270m")
    golden = json.loads((ROOT / "tests/golden/models/gemma3_270m.json").read_text())["prompts"][:2]
    with serving("--kv-cache-memory-bytes=64MiB", "--max-num-batched-tokens=64", model=GEMMA) as (_, router):
        for prompt in golden:
            length, tokens = prompt["prompt_length"], prompt["tokens"]
            events = list(router.stream("/v1/completions", body(tokens[:length], 4)))
            got = sum((ids_of(event) for event in events if event != "[DONE]"), [])
            expect(got == tokens[length:length + 4], f"{got} != {tokens[length:length + 4]}")


if LONG:  # a minute on the emulated device
    test_gemma_3_270m_begins_as_the_reference = gemma_3_270m_begins_as_the_reference
