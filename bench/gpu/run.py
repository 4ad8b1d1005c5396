#!/usr/bin/env python3
"""What a GPU says: a smoke test, a probe of what no emulator knows, ceilings, decode, throughput, then correctness.

Usage: ./dev gpu [--budget-s 540] [--out FILE] [--resume FILE] [--rehearse] [--only STAGE] | ./dev gpu --pack FILE

One file of results, bench/results/gpu/gpu.json, is written again after each case; --resume FILE goes on from what such a
file has. A case that did not run says why: there is no device, the budget is used up, or what it needs is not here. The tests
of a stage share one process (gtest.py); figures of a case count once it has passed, its outputs compared. Where the smoke
test fails nothing else runs. A case that runs past its limit is ended and has failed. Ends with 0 when no case failed,
1 when one did, 4 when there is no device or the one that is there cannot be used. --rehearse runs the same stages
on the emulated grid, which proves the stages and says nothing of speed: its numbers are called rehearsed, are no figures,
and never go to bench/results/gpu/. Behind the stages stands what is asked of the figures (asked.py), and whether it is
met. Needs Python's standard library, no network; a peer in PyTorch runs where that can be imported.
"""
import argparse
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import asked
import gtest
import roof
import smoke

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]  # of the tree, or of an unpacked archive, which is laid out alike
RESULTS = ROOT / "bench/results/gpu"
MOST_FILES = 8  # that RESULTS may hold
LEAST_CASE_S = 5  # with less of the budget left no case begins
NO_DEVICE = 4

# (stage, seconds that a case may take, tests by suite, or names of programs.py's cases)
STAGES = [
    ("smoke", 30, ["driver", "programs", "tests", "first kernel"]),
    ("probe", 30, re.compile(r"CudaProbe$")),
    ("ceilings", 60, re.compile(r"Ceilings$")),
    ("kernels", 60, re.compile(r"(Library)?Rates$")),
    ("decode", 300, ["decode:Llama-3.1-8B", "pace:Llama-3.1-8B", "torch:Llama-3.1-8B", "decode:Llama-3.1-8B-Q4_K",
                     "decode:Llama-3.2-1B", "torch:Llama-3.2-1B", "decode:Qwen2.5-0.5B", "pace:Qwen2.5-0.5B",
                     "decode:Llama-3.1-8B:variant"]),
    ("throughput", 300, ["throughput:Llama-3.1-8B", "throughput:Llama-3.1-8B:fp8", "throughput:Qwen2.5-0.5B",
                         "throughput:Llama-3.1-8B:variant"]),
    ("serving", 120, ["answers", "load"]),
    ("ops", 60, re.compile(r"Cuda(?!Probe|Runtime|Graph|Nccl|Ranks|Parity|Chunks)\w+$")),
    ("runtime", 60, re.compile(r"Cuda(Runtime|Graph)\w*$")),
    ("ranks", 60, re.compile(r"(Models/CudaRanksTest|CudaNccl)$")),
    ("models", 60, re.compile(r"(Models/Cuda(Parity|Chunks)Test|Families/(CudaKvTypes|OneAnswer)Test)$")),
    ("sanitizer", 120, re.compile(r"Cuda(?!Probe|Nccl|Ranks|Parity|Chunks|GraphPace)\w+$")),
]
PROGRAM_STAGES = ("decode", "throughput", "serving")
REHEARSED = {"decode": ["decode:tiny-llama", "torch:tiny-llama", "pace:tiny-llama", "decode:tiny-llama:variant",
                        "decode:tiny-llama-Q4_K"],
             "throughput": ["throughput:tiny-llama", "throughput:tiny-llama:fp8"]}


def device():
    """(name of the device, None), or (None, why there is none)."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return None, f"no CUDA device here: {error}"
    code, count = driver.cuInit(0), ctypes.c_int()
    if code == 0:
        code = driver.cuDeviceGetCount(ctypes.byref(count))
    if code != 0 or count.value == 0:
        return None, f"no CUDA device here: the driver says {code} and shows {count.value} devices"
    name, handle, version = ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(handle), 0)
    driver.cuDeviceGetName(name, 255, handle)
    driver.cuDriverGetVersion(ctypes.byref(version))
    return f"{name.value.decode()}, driver for CUDA {version.value // 1000}.{version.value % 1000 // 10}", None


def commit():
    if (ROOT / "COMMIT").exists():
        return (ROOT / "COMMIT").read_text().strip()
    done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def list_cases(binary, suites):
    """Full names of a GoogleTest binary's cases, in its order, of the suites that match."""
    done = subprocess.run([str(binary), "--gtest_list_tests"], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{binary} --gtest_list_tests: exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    cases, suite = [], ""
    for line in done.stdout.splitlines():
        if line and not line.startswith(" "):
            suite = line.split("#")[0].strip()
        elif line.startswith("  ") and suites.match(suite.rstrip(".")):
            cases.append(suite + line.split("#")[0].strip())
    return cases


def run_case(command, limit_s):
    """(state, seconds, figures, why) of one case, in processes of its own that all end with it."""
    begin = time.monotonic()
    child = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             stdin=subprocess.DEVNULL, start_new_session=True,
                             env={**os.environ, "QUIRE_SOURCE_FOLDER": str(ROOT)})
    try:
        output, code = child.communicate(timeout=limit_s)[0], child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, code = child.communicate()[0], None
    with contextlib.suppress(ProcessLookupError):  # what it has started
        os.killpg(child.pid, signal.SIGKILL)
    output, seconds = output.decode(errors="replace"), round(time.monotonic() - begin, 2)
    why = f"ended after its limit of {limit_s:.0f} s" if code is None else f"exit code {code}: {output[-1500:]}"
    state, figures, why = gtest.judged(output.splitlines(), "passed" if code == 0 else "failed", why)
    return state, seconds, figures, why


class Results:
    """All cases of all stages; written whole after each one."""

    def __init__(self, file, about):
        self.file, self.about, self.stages = file, about, {name: [] for name, _, _ in STAGES}
        self.unusable = False  # a device is there that no case can open
        self.kind = "rehearsed" if about.get("rehearsal") else "figures"  # a rehearsal takes no figures
        file.parent.mkdir(parents=True, exist_ok=True)

    def resume(self, path):
        data = json.loads(path.read_text())
        if data.get("device") != self.about["device"]:
            sys.exit(f"gpu: {path} is of {data.get('device')}, here is {self.about['device']}; begin again")
        for name, cases in data["stages"].items():
            self.stages[name] = [case for case in cases if case["state"] != "not run"]

    def done(self, stage, case):
        return any(c["case"] == case for c in self.stages[stage])

    def figures(self):
        """Values of all that was taken, or rehearsed, by name, and what follows from them."""
        taken = {f["name"]: f["value"] for cases in self.stages.values() for case in cases
                 for f in case.get(self.kind, [])}
        return {**taken, **{name: value for name, (value, _) in asked.follows(taken).items()}}

    def add(self, stage, case, state, seconds=0.0, figures=(), why=""):
        entry = {"case": case, "state": state}
        if state != "not run":
            entry["seconds"] = seconds
        if figures:
            entry[self.kind] = list(figures)
        if why:
            entry["why"] = why
        self.stages[stage].append(entry)
        self.write()
        note = "".join(f"  {f['name']} {f['value']:g} {f['unit']}" for f in figures)
        print(f"{state:8} {stage}: {case}{note}{'  (' + why.splitlines()[0] + ')' if why else ''}", flush=True)

    def write(self):
        taken = self.figures()
        follow = {name: {"value": value, "unit": unit} for name, (value, unit) in asked.follows(taken).items()}
        body = {**self.about, "stages": self.stages}
        body |= {"rehearsed_follow": follow} if self.kind == "rehearsed" else {"follow": follow, "asked": asked.verdicts(taken)}
        part = self.file.with_name(self.file.name + ".part")
        part.write_text(json.dumps(body, indent=1) + "\n")
        part.rename(self.file)

    def count(self, state):
        return sum(case["state"] == state for cases in self.stages.values() for case in cases)


class Programs:
    """What the stages run, of the tree or of an unpacked archive: on a GPU, or rehearsed."""

    def __init__(self, rehearse, scratch):
        self.rehearse, self.scratch = rehearse, scratch
        tests = ROOT / "build/tests"
        self.tests = ([tests / "test_kernels_cuda", tests / "test_kernels_cuda_backend"] if rehearse
                      else [ROOT / "build/gpu/gpu_tests"])
        self.worker = tests / "quire-worker-emulated" if rehearse else ROOT / "build/bin/quire-worker"
        found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        self.sanitizer = found if os.path.exists(found) and not rehearse else None

    def served(self):
        """The programs that requests go through."""
        return [self.worker, ROOT / "build/bin/quire-router", ROOT / "build/bin/load_generator", ROOT / "build/bin/quire"]

    def absent(self, stage):
        """Why a stage cannot run; None when it can."""
        if stage == "smoke":  # says itself what is missing
            return None
        needed = [*self.served(), self.tests[-1]] if stage in PROGRAM_STAGES else self.tests
        if stage in PROGRAM_STAGES and not self.rehearse:
            needed = [*needed, ROOT / "build/bin/libquire_cuda.so"]
        missing = [str(path.relative_to(ROOT)) for path in needed if not path.exists()]
        if missing:
            return f"{' '.join(missing)}: not built; ./dev gpu builds it where a CUDA toolkit is"
        if stage == "sanitizer" and self.sanitizer is None:
            return "compute-sanitizer is not here"
        return None

    def cases(self, stage, what):
        """(name, command) of each case of a stage."""
        if isinstance(what, list):
            if self.rehearse:
                what = REHEARSED.get(stage, what)
            return [(name, [sys.executable, HERE / "programs.py", name, "--worker", self.worker, "--tests", self.tests[-1],
                            "--scratch", self.scratch, *(["--rehearse"] if self.rehearse else [])]) for name in what]
        before = [self.sanitizer, "--tool", "memcheck", "--error-exitcode", "9"] if stage == "sanitizer" else []
        return [(name, [*before, binary, f"--gtest_filter={name}", "--gtest_brief=1"])
                for binary in self.tests for name in list_cases(binary, what)]


class Run:
    """The stages of one run, until its budget is used up or the device turns out to be unusable."""

    def __init__(self, results, programs, args, missing):
        self.results, self.programs, self.args, self.missing = results, programs, args, missing
        self.end = time.monotonic() + args.budget_s

    def left(self):
        return self.end - time.monotonic()

    def stage(self, stage, limit_s, what):
        absent = self.missing or self.programs.absent(stage)
        if absent:
            return self.results.add(stage, "all", "not run", why=absent)
        if stage == "smoke":
            return self.smoke(limit_s, what)
        try:
            if isinstance(what, list) or stage == "sanitizer":
                return self.apart(stage, limit_s, self.programs.cases(stage, what))
            found = [(binary, list_cases(binary, what)) for binary in self.programs.tests]
            if not any(cases for _, cases in found):
                raise RuntimeError("no case of this stage is in the test binary")
        except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
            return self.results.add(stage, "all", "failed", why=str(error))
        for binary, cases in found:
            self.together(stage, limit_s, binary, cases)

    def note(self, stage, case, state, seconds, figures, why):
        self.results.add(stage, case, state, seconds, figures, why)
        if why.startswith("no device: "):
            self.missing, self.results.unusable = why, True  # for the others too

    def not_run(self, stage, cases):
        why = self.missing or f"the budget of {self.args.budget_s} s is used up"
        for case in cases:
            self.results.add(stage, case, "not run", why=why)

    def together(self, stage, limit_s, binary, cases):
        """Tests in one process."""
        left = [case for case in cases if not self.results.done(stage, case)]
        if left and self.left() >= LEAST_CASE_S and not self.missing:
            for result in gtest.run_cases([binary], list(left), limit_s, self.end):
                self.note(stage, *result)
                left.remove(result[0])
                if self.missing:
                    break
        self.not_run(stage, left)

    def apart(self, stage, limit_s, cases):
        """Each case in processes of its own."""
        for case, command in cases:
            if self.results.done(stage, case):
                continue
            left = self.left()
            if self.missing or left < LEAST_CASE_S:
                self.not_run(stage, [case])
                continue
            if stage in PROGRAM_STAGES:
                command = [*command, *ceilings(self.results.figures(), self.results.about["device"])]
            state, seconds, figures, why = run_case(command, min(limit_s, left))
            if state == "failed" and left < limit_s and seconds >= left:
                state, why = "not run", f"the budget of {self.args.budget_s} s was used up within it"
            self.note(stage, case, state, seconds, figures, why)

    def smoke(self, limit_s, what):
        """What has to be there before anything else is worth its time."""
        for case in what:
            if self.results.done("smoke", case):
                continue
            begin = time.monotonic()
            why = smoke.fault(case, self.programs, limit_s)
            seconds = round(time.monotonic() - begin, 2)
            self.results.add("smoke", case, "failed" if why else "passed", seconds, why=why or "")
            if why:
                self.missing, self.results.unusable = f"the smoke test failed: {why.splitlines()[0]}", True
                return


def run_stages(results, programs, args, missing):
    run = Run(results, programs, args, missing)
    for stage, limit_s, what in STAGES:
        if not args.only or stage in args.only:
            run.stage(stage, limit_s, what)


def ceilings(figures, device_name=""):
    """What programs.py is told of the device: bytes a second that it reads, products a second that it makes.

    The rate is the library's, or where that did not run the maker's figure: a roof of our own kernels would flatter them.
    """
    rate = figures.get("library_gemm_4096_rows") or roof.dense_rate(device_name)
    told = {"--bandwidth": figures.get("read_bandwidth"), "--rate": rate}
    return [word for flag, value in told.items() if value for word in (flag, str(value))]


def main():
    parser = argparse.ArgumentParser(prog="./dev gpu")
    parser.add_argument("--budget-s", type=int, default=540, help="no case begins beyond it")
    parser.add_argument("--out", type=pathlib.Path, help="file of results [bench/results/gpu/gpu.json]")
    parser.add_argument("--resume", type=pathlib.Path, help="a file of results to go on from")
    parser.add_argument("--rehearse", action="store_true", help="on the emulated grid; needs --out")
    parser.add_argument("--only", action="append", choices=[name for name, _, _ in STAGES], help="this stage alone")
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("/tmp/quire-gpu"),
                        help="where weights are made, up to 20 GB")
    args = parser.parse_args()
    out = args.out or RESULTS / "gpu.json"
    if args.rehearse:
        if args.out is None or out.resolve().parent == RESULTS:
            sys.exit("gpu: --rehearse says nothing of a GPU: give it an --out elsewhere")
        name, missing = "emulated", None
    else:
        name, missing = device()
    about = {"benchmark": "gpu", "date": datetime.date.today().isoformat(), "commit": commit(),
             "device": name or "none", "budget_s": args.budget_s, **({"rehearsal": True} if args.rehearse else {})}
    if missing:
        if out.exists() and json.loads(out.read_text()).get("device") != "none":
            print(f"gpu: {missing}; {out} keeps what a GPU has said")
            return NO_DEVICE
        print(f"gpu: {missing}; every case is recorded as not run", flush=True)
    results = Results(out, about)
    if args.resume:
        results.resume(args.resume)
    run_stages(results, Programs(args.rehearse, args.scratch), args, missing)
    if not args.rehearse and not missing:
        for line in asked.verdicts(results.figures()):
            print(f"{line['verdict']:8} {line['figure']}: {line['value']}, asked {line['asked']}")
    print(f"{results.count('passed')} passed, {results.count('failed')} failed, {results.count('not run')} not run")
    return NO_DEVICE if missing or results.unusable else 1 if results.count("failed") else 0


if __name__ == "__main__":
    sys.exit(main())
