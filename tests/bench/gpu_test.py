"""./dev gpu without a GPU: it says so; a rehearsal runs its stages on the emulated grid; a budget that ends is gone on from;
the test binary and the archive are made (--long); sizes.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types

import pytest

import device_build
import plugin
import toolkit
from harness import ROOT
from tier import LONG

RUN = ROOT / "bench/gpu/run.py"
MOST_REPOSITORY_BYTES = 52 << 20  # a machine with a GPU takes 64 MiB, and up to 12 are programs and libraries
MOST_ARCHIVE_BYTES = 24 << 20
NO_GPU = not pathlib.Path("/dev/nvidia0").exists()
sys.path.insert(0, str(RUN.parent))
import asked  # noqa: E402
import gtest  # noqa: E402
import roof  # noqa: E402
import run  # noqa: E402
import smoke  # noqa: E402

without_a_gpu = pytest.mark.skipif(not NO_GPU, reason="a GPU is here")


def check(what, good, told=""):
    assert good, f"{what}\n{told}"


def gpu(*args, program=RUN):
    done = subprocess.run([sys.executable, str(program), *map(str, args)], capture_output=True, text=True, timeout=800)
    return done.returncode, done.stdout + done.stderr


def cases_of(file):
    return [case for cases in json.loads(file.read_text())["stages"].values() for case in cases]


@without_a_gpu
def test_without_a_device(folder):
    out = folder / "none/gpu.json"
    code, said = gpu("--out", out)
    cases = cases_of(out)
    check("it says that there is no device", code == 4 and said.startswith("gpu: no CUDA device here"), said)
    check("every case is not run, and says why",
          cases and all(case["state"] == "not run" and case["why"] for case in cases), said)
    check("the device is named", json.loads(out.read_text())["device"] == "none", said)
    check("one file is written", [path.name for path in out.parent.iterdir()] == ["gpu.json"], said)
    out.write_text(out.read_text().replace('"device": "none"', '"device": "NVIDIA H200"'))
    before = out.read_text()
    code, said = gpu("--out", out)
    check("what a GPU has said is not written over", code == 4 and "keeps" in said and out.read_text() == before, said)


def test_recorded_results():
    files = list((ROOT / "bench/results/gpu").iterdir())
    check("at most 8 files of results", 0 < len(files) <= 8, files)
    for path in files:
        data = json.loads(path.read_text())
        states = {case["state"] for case in cases_of(path)}
        check(f"{path.name} is of a device, or says that nothing ran",
              data["device"] not in ("none", "emulated") or states == {"not run"}, (data["device"], states))


def test_rehearsal(folder):
    code, said = gpu("--rehearse")
    check("a rehearsal needs a file of its own", code == 1 and "--out" in said, said)
    out = folder / "rehearsed.json"
    code, said = gpu("--rehearse", "--out", out, "--scratch", folder / "weights", *(word for stage in
                     ("smoke", "probe", "ceilings", "kernels", "decode", "throughput", "serving", "runtime")
                     for word in ("--only", stage)))
    stages = json.loads(out.read_text())["stages"]
    ran = [case for cases in stages.values() for case in cases if case["state"] != "not run"]
    check("a rehearsal runs all but a peer", [case["case"] for cases in stages.values() for case in cases
                                              if case["state"] == "not run"] in ([], ["torch:tiny-llama"]), said)
    check("a rehearsal passes", code == 0 and ran and all(case["state"] == "passed" for case in ran), said)
    for stage in ("smoke", "probe", "ceilings", "decode", "throughput", "serving", "runtime"):
        check(f"{stage} has cases that ran", any(case["state"] == "passed" for case in stages[stage]), said)
    figures = {figure["name"] for case in ran for figure in case.get("rehearsed", [])}
    check("its figures are there",
          {"graph_launch", "one_piece_of_memory", "read_bandwidth", "copy_bandwidth", "launch", "graph_node", "gemm_4096_bf16", "decode_attention_bandwidth",
           "prefill_attention", "sample_256_rows", "load_tokens", "decode_tiny-llama",
           "decode_share_of_bandwidth_tiny-llama", "throughput_1000_1000_tiny-llama", "decode_tiny-llama-Q4_K",
           "decode_share_of_bandwidth_tiny-llama-Q4_K", "idle_gap_p99_6_rows_tiny-llama",
           "host_work_p50_6_rows_tiny-llama", "load_tiny-llama", "throughput_1000_1000_tiny-llama_fp8",
           "throughput_share_of_roof_tiny-llama_fp8", "decode_tiny-llama_variant", "gemm_16_rows_over_library",
           "library_gemm_fp8"} <= figures, figures)
    follow = json.loads(out.read_text())["rehearsed_follow"]
    check("what follows from them is there",
          {"decode_attention_share_of_bandwidth", "cost_of_batch_invariance_decode_tiny-llama"} <= set(follow), follow)
    check("what is rehearsed is no figure, and is held to nothing", '"figures"' not in out.read_text() and
          '"asked"' not in out.read_text(), said)
    torch = next(case for case in stages["decode"] if case["case"] == "torch:tiny-llama")
    check("a peer that is not here says so", torch["state"] == "passed" or "torch is not here" in torch["why"], torch)


def test_what_is_asked(folder):
    results = run.Results(folder / "asked.json", {"device": "Paper 9000"})
    taken = {"read_bandwidth": 4e12, "decode_attention_bandwidth": 3e12, "gemm_16_rows_weight_bandwidth": 2e12,
             "decode_Llama-3.1-8B": 120, "torch_decode_Llama-3.1-8B": 100, "decode_Llama-3.1-8B_variant": 150,
             "sample_256_rows": 150, "gemm_4096_bf16": 5e14, "library_gemm_4096_rows": 8e14}
    results.add("kernels", "one", "passed", 1, [{"name": name, "value": value, "unit": ""} for name, value in taken.items()])
    told = json.loads((folder / "asked.json").read_text())
    check("shares, ratios and costs follow", {name: one["value"] for name, one in told["follow"].items()} ==
          {"decode_attention_share_of_bandwidth": 75, "gemm_16_rows_share_of_bandwidth": 50,
           "decode_over_torch_Llama-3.1-8B": 1.2, "cost_of_batch_invariance_decode_Llama-3.1-8B": 20}, told["follow"])
    verdicts = {line["figure"]: line["verdict"] for line in told["asked"]}
    check("each figure that is asked for has a verdict", len(verdicts) == len(asked.ASKED) and
          verdicts["decode_attention_share_of_bandwidth"] == verdicts["sample_256_rows"] == "met" and
          verdicts["gemm_16_rows_share_of_bandwidth"] == "short" and
          verdicts["cost_of_batch_invariance_decode_Llama-3.1-8B"] == "told" and
          verdicts["idle_gap_p99_256_rows_Qwen2.5-0.5B"] == "not run", verdicts)
    check("programs are told of the device", run.ceilings(results.figures()) ==
          ["--bandwidth", str(4e12), "--rate", str(8e14)], run.ceilings(results.figures()))
    check("without the library's rate the maker's counts, and never our own",
          [run.ceilings({"gemm_4096_bf16": 1e15}, name) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "Paper")] ==
          [["--rate", str(989e12)], ["--rate", str(756e12)], []])
    cases = [name for _, _, what in run.STAGES if isinstance(what, list) for name in what]
    figures = {"_".join(name.split(":")[1:]) for name in cases if ":" in name}
    lost = [name for name, *_ in asked.ASKED if any(shape in name for shape in asked.SHAPES) and
            not any(name.endswith(figure) for figure in figures)]
    check("all that is asked of a model is of one that is run", not lost, lost)
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": 2, "num_attention_heads": 4,
                                                    "num_key_value_heads": 2, "hidden_size": 32}))
    shape = roof.Shape(folder, 2000, 100)
    check("bytes of keys and values", (shape.kv_bytes(False), shape.kv_bytes(True)) == (128, 96))
    least = roof.seconds(shape, rows=2, prompt=4, tokens=3, step_tokens=8, fp8=False, bandwidth=1e3, rate=1e30)
    check("a roof of bandwidth", abs(least - (2000 + 8 * 128 + 2000 + 2 * 5 * 128 + 2000 + 2 * 6 * 128) / 1e3) < 1e-9, least)
    least = roof.seconds(shape, rows=2, prompt=4, tokens=2, step_tokens=8, fp8=False, bandwidth=1e30, rate=1e3)
    flops = 8 * (2 * 900 + 4 * 2 * 4 * 8 * 2) + 2 * (2 * 1000 + 4 * 2 * 4 * 8 * 5)
    check("a roof of products", abs(least - flops / 1e3) < 1e-9, (least, flops))


def test_budget_and_resume(folder):
    out = folder / "short.json"
    own = ["--rehearse", "--out", out, "--only", "runtime"]
    code, said = gpu(*own, "--budget-s", 1)
    cases = cases_of(out)
    check("without budget nothing begins", code == 0 and cases and all("budget" in case["why"] for case in cases), said)
    code, said = gpu(*own, "--resume", out)
    again = cases_of(out)
    check("it is gone on from", [c["case"] for c in again] == [c["case"] for c in cases] and
          all(c["state"] == "passed" for c in again), said)
    code, said = gpu(*own, "--resume", out)
    check("what is done is not done again", "passed   runtime" not in said and code == 0 and cases_of(out) == again, said)
    out.write_text(out.read_text().replace('"device": "emulated"', '"device": "another"'))
    code, said = gpu(*own, "--resume", out)
    check("results of another device are not mixed in", code == 1 and "begin again" in said, said)


def test_a_case_that_hangs_or_fails(folder):
    state, seconds, _, why = run.run_case(["sh", "-c", "sleep 60 & sleep 60"], 0.3)
    check("a case ends at its limit with what it has started", state == "failed" and "limit" in why and seconds < 30, why)
    state, _, figures, why = run.run_case(["sh", "-c", 'echo \'figure {"name": "x", "value": 1, "unit": "s"}\'; exit 3'], 5)
    check("a case that fails has no figures", state == "failed" and not figures and "exit code 3" in why, why)
    state, _, _, why = run.run_case(["echo", "not here: a library"], 5)
    check("what is not here is not run", state == "not run" and "a library" in why, why)
    state, _, _, why = run.run_case(["sh", "-c", "echo no device: too small; exit 4"], 5)
    check("a device that cannot be used is a failure", state == "failed" and why == "no device: too small", why)


# A binary of tests as gtest.py meets it; each case does what its name says.
FAKE_TESTS = """#!/usr/bin/env python3
import os, sys, time
flags = open(sys.argv[1].split("=", 1)[1]).read()
names = flags.strip().split("=", 1)[1].split(":")
open(os.environ["STARTS"], "a").write(f"{len(names)}\\n")
for name in names:
    print(f"[ RUN      ] {name}", flush=True)
    kind = name.split(".")[1]
    if kind == "Hangs": time.sleep(60)
    if kind == "Crashes": print("it crashes", flush=True); os._exit(3)
    if kind == "Absent": print("not here: a library", flush=True)
    print('figure {"name": "%s", "value": 1, "unit": "s"}' % name, flush=True)
    if kind == "Fails": print("outputs differ", flush=True)
    end = {"Fails": "  FAILED  ", "Absent": "  SKIPPED "}.get(kind, "       OK ")
    print(f"[{end}] {name} (1 ms)", flush=True)
sys.exit(1 if any("Fails" in name for name in names) else 0)
"""


def run_fake(folder, monkeypatch, names, limit_s=30, budget_s=60):
    """(results by name, how many cases each process was given)"""
    binary, starts = folder / "fake_tests", folder / "starts"
    binary.write_text(FAKE_TESTS)
    binary.chmod(0o755)
    starts.write_text("")
    monkeypatch.setenv("STARTS", str(starts))
    end = time.monotonic() + budget_s
    results = {name: result for name, *result in gtest.run_cases([binary], names, limit_s, end)}
    return results, [int(line) for line in starts.read_text().split()]


def test_the_cases_of_a_stage_share_a_process_until_one_fails(folder, monkeypatch):
    results, starts = run_fake(folder, monkeypatch, ["A.Passes", "B.Absent", "C.Passes"])
    check("one process for all", starts == [3], starts)
    check("each has its result", [r[0] for r in results.values()] == ["passed", "not run", "passed"], results)
    check("and its figures", [f["name"] for f in results["C.Passes"][2]] == ["C.Passes"] and not results["B.Absent"][2], results)
    for kind, said in (("Crashes", "it crashes"), ("Fails", "outputs differ")):
        results, starts = run_fake(folder, monkeypatch, ["A.Passes", f"B.{kind}", "C.Passes", "D.Passes"])
        check("the others go on, each in a process of its own", starts == [4, 1, 1], starts)
        state, _, figures, why = results[f"B.{kind}"]
        check(f"it says why, and has no figures: {kind}", state == "failed" and not figures and said in why, results)
        check("all the others pass", [r[0] for r in results.values()].count("passed") == 3, results)


def test_a_case_that_hangs_ends_at_its_limit_and_the_budget_at_its_end(folder, monkeypatch):
    results, starts = run_fake(folder, monkeypatch, ["A.Passes", "B.Hangs", "C.Passes"], limit_s=1)
    check("at its limit", results["B.Hangs"][0] == "failed" and "limit of 1 s" in results["B.Hangs"][3], results)
    check("the others go on", results["C.Passes"][0] == "passed" and starts == [3, 1], (results, starts))
    results, _ = run_fake(folder, monkeypatch, ["A.Passes", "B.Hangs", "C.Passes"], budget_s=1)
    check("the budget ends it", results["B.Hangs"][0] == "not run" and "C.Passes" not in results, results)


def test_a_smoke_test_says_what_is_missing(folder):
    check("an old driver", "CUDA 12.8; one for 13.0" in smoke.judged_driver(12080, 9))
    check("an old device", "7.x; 8.0 or newer" in smoke.judged_driver(13000, 7))
    check("both will do", smoke.judged_driver(13000, 8) is None)
    check("a program that is not there", "is not built" in smoke.starts([folder / "none"], 5))
    check("a program without its libraries", "libx.so.1" in smoke.starts(
        ["sh", "-c", "echo error while loading shared libraries: libx.so.1; echo more; exit 127"], 5))
    check("a program that starts", smoke.starts(["true"], 5) is None)
    programs = types.SimpleNamespace(rehearse=True, tests=[folder / "none"], served=list, absent=lambda stage: None)
    results = run.Results(folder / "smoke.json", {"device": "Paper 9000"})
    run.run_stages(results, programs, types.SimpleNamespace(budget_s=60, only=["smoke", "ceilings"]), None)
    stages = json.loads((folder / "smoke.json").read_text())["stages"]
    check("nothing runs behind a failed smoke test", stages["smoke"][-1]["state"] == "failed" and
          "the smoke test failed: " in stages["ceilings"][0]["why"], stages)


def test_a_device_that_cannot_be_used(folder):
    case = ["sh", "-c", "echo no device: it is lost; exit 4"]
    programs = types.SimpleNamespace(absent=lambda stage: None if stage == "decode" else "not now", tests=[],
                                     cases=lambda stage, what: [("one", case), ("two", case)])
    results = run.Results(folder / "unusable.json", {"device": "Paper 9000"})
    run.run_stages(results, programs, types.SimpleNamespace(budget_s=60, only=None), None)
    stages = json.loads((folder / "unusable.json").read_text())["stages"]
    check("it fails once", [c["state"] for c in stages["decode"]][:2] == ["failed", "not run"], stages["decode"])
    check("no later stage tries it", all(c["state"] == "not run" for name, cases in stages.items() if name != "decode"
                                         for c in cases), stages)
    check("the run says so", results.unusable)


def the_test_binary(tools):
    wrong = device_build.build()
    check("the test binary is linked for a GPU", wrong is None, wrong)
    listed = subprocess.run([str(device_build.TARGET), "--gtest_list_tests"], capture_output=True, text=True).stdout
    for suite in ("CudaProbe.", "Ceilings.", "Rates.", "CudaGemm.", "CudaStepState.", "CudaRuntime.", "CudaNccl.", "Models/CudaParityTest.",
                  "Models/CudaRanksTest.", "Families/CudaKvTypesTest.", "Families/OneAnswerTest."):
        check(f"it has {suite}", re.search("^" + re.escape(suite), listed, re.M), listed)
    suites = {line.split("#")[0].strip().rstrip(".") for line in listed.splitlines() if re.match(r"[\w/]+\.", line)}
    astray = [suite for suite in suites if not any(isinstance(what, re.Pattern) and what.match(suite)
                                                   for stage, _, what in run.STAGES if stage != "sanitizer")]
    check("every suite of it is in a stage", suites and not astray, sorted(astray))
    check("it has no emulator", "EmulatedRuntime." not in listed and "Emulator" not in listed, listed)
    if not NO_GPU:
        return
    for case in ("CudaGemm.*", "Models/CudaParityTest.*"):
        done = subprocess.run([str(device_build.TARGET), f"--gtest_filter={case}"], capture_output=True, text=True)
        check("without a GPU it says so", done.returncode == 4 and "no device: " in done.stdout, done.stdout)


def the_archive(folder, tools):
    archive = folder / "quire-gpu.tar.xz"
    wrong = plugin.build(ROOT / "build/cuda")
    check("the plugin is built", wrong is None, wrong)
    code, said = gpu("--pack", archive, "--plugin", ROOT / "build/cuda" / plugin.NAME, program=RUN.parent / "pack.py")
    check("the archive is made and small enough", code == 0 and archive.stat().st_size <= MOST_ARCHIVE_BYTES, said)
    print(said.strip())
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    unpacked = folder / "quire-gpu"
    if NO_GPU:
        done = subprocess.run([str(unpacked / "run")], capture_output=True, text=True)
        check("the archive runs by itself", done.returncode == 4 and "no CUDA device here" in done.stdout and
              (unpacked / "results/gpu.json").exists(), done.stdout + done.stderr)
    own = {**os.environ, "LD_LIBRARY_PATH": str(unpacked / "lib")}
    for name in ("quire", "quire-worker", "quire-router", "load_generator"):
        done = subprocess.run([str(unpacked / "build/bin" / name), "--help"], capture_output=True, text=True, env=own)
        check(f"{name} of the archive runs", done.returncode in (0, 1, 2) and "shared libraries" not in done.stderr,
              done.stderr)
        needed = subprocess.run(["ldd", str(unpacked / "build/bin" / name)], capture_output=True, text=True, env=own)
        outside = [path for path in re.findall(r"=> (/\S+)", needed.stdout) if not path.startswith(str(unpacked))]
        check(f"{name} brings all but libc",
              all(re.match(r"lib(c|m|dl|rt|pthread|resolv|anl)\.so", os.path.basename(path)) for path in outside), outside)


def test_size_of_the_repository():
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True).stdout.decode().split("\0")
    size = sum((ROOT / name).lstat().st_size for name in listed if name and (ROOT / name).is_file())
    check(f"the repository has {size} bytes", 0 < size <= MOST_REPOSITORY_BYTES)


@pytest.fixture
def tools():
    if toolkit.toolkit() is None:
        pytest.skip("no toolkit of version 13 here, and its wheels cannot be fetched")


if LONG:  # what a machine with a GPU is given
    test_the_test_binary, test_the_archive = the_test_binary, the_archive
