#!/usr/bin/env python3
"""Runs the test suites of a tier, prints what each took beside what it declared, and one closing line.

A suite is a GoogleTest binary of build/tests, or a script of the table below. A suite that overruns 1.5 times
its declared minutes is told in red: a thing to mend, never a failure. Wall-clock limits here only end what hangs.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
HANG_LIMIT_S = 900
BUILDING_HANG_LIMIT_S = 2700
BUILDING = {"sanitizers", "storm", "threads", "control-plane"}  # suites that make a build of their own

# Declared minutes of GoogleTest binaries that take more than a moment, and the slice they count in.
DECLARED = {
    "test_kernels": 1.0,
    "test_kernels_cuda": 1.0,
    "test_kernels_cuda_backend": 1.5,
    "test_golden": 2.0,
    "test_sim": 1.5,
    "test_worker_engine": 1.0,
    "test_worker_engine_cuda": 1.0,
    "test_worker_sim": 1.0,
    "test_worker_sim_cuda": 0.6,
    "test_worker_planted": 0.5,
    "test_worker_ranks": 0.4,
    "test_worker_ranks_cuda": 0.5,
    "test_common_text": 1.0,
    "test_router_front": 1.0,
    "test_router_planted": 1.0,
}
# Not in --quick: they fetch something, start many processes, or take long.
NOT_QUICK = {"test_router_front"}

# Scripts: (name, tiers, declared minutes, command, runs alone). They print `N passed, N failed[, N skipped]`.
SCRIPTS = [
    ("tidy", ("quick", "normal", "long"), 0.2, ["python3", "tests/tidy/run.py"], False),
    ("fetch", ("normal", "long"), 0.3, ["python3", "tests/models/fetch_test.py"], False),
    ("prepare", ("normal", "long"), 5.0, ["python3", "tests/prepare.py"], True),
    ("cuda-gate", ("normal", "long"), 3.0, ["python3", "tests/kernels/cuda/gate.py"], True),
    ("cuda-plugin", ("normal", "long"), 1.0, ["python3", "tests/kernels/cuda/plugin_test.py"], True),
    ("cuda-all-arch", ("long",), 8.0, ["python3", "tests/kernels/cuda/plugin_test.py", "--all-arch"], True),
    ("gpu", ("normal", "long"), 2.0, ["python3", "tests/bench/gpu_test.py"], True),
    ("bridge", ("long",), 1.0, ["bash", "tests/common/text/bridge.sh"], False),
    ("conformance", ("normal", "long"), 1.0, ["bash", "tests/conformance/run.sh"], True),
    ("load-tool", ("long",), 1.5, ["bash", "tests/conformance/load_tool.sh"], True),
    ("process", ("normal", "long"), 1.0, ["python3", "tests/process/run.py"], True),
    ("commands", ("normal", "long"), 0.5, ["python3", "tests/process/commands.py"], True),
    ("traces", ("normal", "long"), 0.4, ["python3", "tests/traces/run.py"], True),
    ("page", ("normal", "long"), 0.5, ["python3", "tests/page/run.py"], True),
    ("edge", ("normal", "long"), 0.4, ["python3", "tests/process/edge.py"], True),
    ("discovery", ("normal", "long"), 0.5, ["python3", "tests/process/discovery.py"], True),
    ("emulated", ("normal",), 0.6, ["python3", "tests/process/emulated.py"], True),
    ("emulated", ("long",), 2.0, ["python3", "tests/process/emulated.py", "--long"], True),
    ("streams", ("normal",), 0.5, ["python3", "tests/process/streams.py"], True),
    ("streams", ("long",), 4.5, ["python3", "tests/process/streams.py", "--long"], True),
    ("soak", ("normal",), 0.3, ["python3", "tests/process/soak.py", "8"], True),
    ("soak", ("long",), 10.5, ["python3", "tests/process/soak.py", "600", "--record"], True),
    ("faults", ("normal",), 2.5, ["python3", "tests/fault/run.py"], True),
    ("faults", ("long",), 12.0, ["python3", "tests/fault/run.py", "--long", "--record"], True),
    ("docs", ("normal", "long"), 0.6, ["python3", "tests/docs/run.py"], True),
    ("resumes", ("normal", "long"), 0.2, ["python3", "tests/fault/resumes.py"], True),
    ("hangs", ("normal", "long"), 0.4, ["python3", "tests/fault/hangs.py"], True),
    ("ranks", ("normal", "long"), 1.2, ["python3", "tests/fault/ranks.py"], True),
    ("rank-kills", ("long",), 4.0, ["python3", "tests/fault/rank_kills.py"], True),
    ("monitoring", ("normal", "long"), 0.9, ["python3", "tests/monitoring/run.py"], True),
    ("sanitizers", ("normal",), 10.0, ["bash", "tests/sanitizers/run.sh"], True),
    ("sanitizers", ("long",), 14.0, ["bash", "tests/sanitizers/run.sh", "full"], True),
    ("storm", ("long",), 4.0, ["bash", "tests/sanitizers/run.sh", "storm"], True),
    ("deploy", ("normal", "long"), 0.5, ["python3", "tests/deploy/static_test.py"], False),
    ("chart", ("normal", "long"), 0.3, ["python3", "tests/deploy/helm_test.py"], False),
    ("deployed", ("normal", "long"), 1.3, ["python3", "tests/deploy/live_test.py"], True),
    ("plane", ("normal", "long"), 1.0, ["python3", "tests/plane/local_test.py"], True),
    ("kubernetes", ("long",), 4.0, ["python3", "tests/kubernetes/run.py"], True),
    ("control-plane", ("long",), 5.0, ["python3", "tests/plane/run.py", "--record"], True),
    ("chart-on-cluster", ("long",), 1.0, ["python3", "tests/kubernetes/chart.py"], True),
    ("threads", ("long",), 4.0, ["bash", "tests/sanitizers/threads.sh"], True),
]

# Of a suite that failed, what it says of its other cases is left out: a reader may see the first lines alone.
PASSED = re.compile(r"ok   |COUNTS \d+ 0$|\[ +(OK|RUN) +\]")
MAX_TOLD_LINES, MAX_TOLD_CHARS = 80, 2000

RED, RESET = ("\033[31m", "\033[0m") if sys.stdout.isatty() or os.environ.get("CI") else ("", "")


class Result:
    def __init__(self, name, declared):
        self.name, self.declared = name, declared
        self.passed = self.failed = self.skipped = 0
        self.seconds = 0.0
        self.output = ""
        self.skips = []
        self.cases = []  # (seconds, name)


def run_gtest(binary, quick):
    result = Result(binary.name, DECLARED.get(binary.name, 0.2))
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [str(binary), f"--gtest_output=json:{report.name}", "--gtest_brief=1"]
        if quick:
            command.append("--gtest_filter=-*Slow*")
        begin = time.monotonic()
        code, result.output = execute(command)
        result.seconds = time.monotonic() - begin
        try:
            data = json.load(open(report.name))
        except ValueError:
            data = {"testsuites": []}
    for suite in data["testsuites"]:
        for case in suite["testsuite"]:
            name = f'{result.name}:{suite["name"]}.{case["name"]}'
            result.cases.append((float(case["time"].rstrip("s")), name))
            if case.get("failures"):
                result.failed += 1
            elif case.get("result") == "SKIPPED":
                result.skipped += 1
                result.skips.append(name)
            elif case.get("result") == "COMPLETED":
                result.passed += 1
    if code != 0 and result.failed == 0:
        result.failed += 1
        result.output += f"\n{binary.name} ended with exit code {code}"
    return result


def run_script(name, declared, command):
    result = Result(name, declared)
    begin = time.monotonic()
    code, result.output = execute(command, BUILDING_HANG_LIMIT_S if name in BUILDING else HANG_LIMIT_S)
    result.seconds = time.monotonic() - begin
    result.cases.append((result.seconds, name))
    counts = re.findall(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", result.output)
    for passed, failed, skipped in counts[-1:]:
        result.passed, result.failed, result.skipped = int(passed), int(failed), int(skipped or 0)
    result.skips = re.findall(r"^SKIP.*$", result.output, re.M)
    if code != 0 and result.failed == 0:
        result.failed = 1
        result.output += f"\n{name} ended with exit code {code}"
    return result


def execute(command, limit_s=HANG_LIMIT_S):
    try:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              stdin=subprocess.DEVNULL, timeout=limit_s)
        return done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as error:
        return -1, (error.stdout or b"").decode(errors="replace") + f"\nhung for {limit_s} s"


def show(result):
    minutes = result.seconds / 60
    late = minutes > 1.5 * result.declared
    verdict = "FAIL" if result.failed else "ok"
    line = (f"{verdict:4} {result.name:28} {result.passed:5} passed {result.failed:3} failed "
            f"{result.skipped:3} skipped  {minutes:5.2f} min of {result.declared:.2f}")
    print((RED + line + "  over its slice" + RESET) if late else line, flush=True)
    for skip in result.skips:
        print(f"     {skip if skip.startswith('SKIP') else 'SKIP ' + skip}", flush=True)
    if result.failed:
        lines = [line[:MAX_TOLD_CHARS] for line in result.output.splitlines() if not PASSED.match(line)]
        print("\n".join(lines[-MAX_TOLD_LINES:]), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tier", choices=("quick", "normal", "long"), default="normal")
    parser.add_argument("suites", nargs="*", help="only suites whose name contains one of these")
    args = parser.parse_args()

    def wanted(name):
        return not args.suites or any(s in name for s in args.suites)

    quick = args.tier == "quick"
    scripts = [s for s in SCRIPTS if args.tier in s[1] and wanted(s[0]) and (ROOT / s[3][1]).exists()]
    binaries = [b for b in sorted((BUILD / "tests").glob("*"))
                if b.name.startswith(("test_", "fuzz_")) and os.access(b, os.X_OK) and wanted(b.name)
                and not (quick and b.name in NOT_QUICK)]
    known = (BUILD / "tests.list")
    if known.exists():
        listed = set(known.read_text().split())
        binaries = [b for b in binaries if b.name in listed]
    binaries.sort(key=lambda b: -DECLARED.get(b.name, 0.2))  # the longest first: none runs alone at the end
    begin = time.monotonic()
    results = []

    def take(result):
        results.append(result)
        show(result)

    for name, _, declared, command, alone in scripts:
        if alone and name == "prepare":
            take(run_script(name, declared, command))
    with concurrent.futures.ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2))) as pool:
        jobs = [pool.submit(run_script, n, d, c) for n, _, d, c, alone in scripts if not alone]
        for binary in binaries:
            if binary.name.startswith("fuzz_"):
                jobs.append(pool.submit(run_script, binary.name, 0.2, [str(binary)]))
            else:
                jobs.append(pool.submit(run_gtest, binary, quick))
        for job in concurrent.futures.as_completed(jobs):
            take(job.result())
    for name, _, declared, command, alone in scripts:
        if alone and name != "prepare":
            take(run_script(name, declared, command))

    slowest = sorted((case for r in results for case in r.cases), reverse=True)[:10]
    print("\nten slowest:")
    for seconds, name in slowest:
        print(f"  {seconds:7.2f} s  {name}")
    total = sum(r.declared for r in results)
    print(f"declared {total:.1f} min, took {(time.monotonic() - begin) / 60:.1f} min\n")
    passed, failed, skipped = (sum(getattr(r, k) for r in results) for k in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
