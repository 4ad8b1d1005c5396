#!/usr/bin/env python3
"""Runs the suites of a tier, prints what each took beside what it declared, and one closing line.

A suite is a test of CTest in one of the builds (cmake/tests.cmake), or a script of tests/suites.py. One that takes
1.5 times its declared minutes is told in red: a thing to mend, never a failure. Limits of time only end what hangs.
Every run writes the seconds of each suite to build/test-times.json.

Suites of processes run beside each other and depend on a machine that others share. Where at most MAX_SECOND_RUNS of
their tests fail, each runs once more, alone. The run names those that pass then: each is a race to be found.

  run.py --tier TIER [NAME...]                  only suites whose name holds one of the names
  run.py --tier TIER --targets BUILD [NAME...]  what of BUILD must be built before
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import datetime
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

import suites
from suites import ROOT

BUILD = ROOT / "build"
RESULTS = BUILD / "tests" / "results"
TIMES = BUILD / "test-times.json"
PREPARED = ROOT / ".cache" / "prepared.json"  # what tests/prepare.py has written
# Builds of a tier, with what the names of their suites end in.
BUILDS = {"quick": {"build": ""}, "normal": {"build": "", "build-asan": ".asan"},
          "long": {"build": "", "build-asan": ".asan", "build-tsan": ".tsan"}}
PLAIN = ["quire", "quire_proto", "quire_kernels_cpu"]  # what build-asan takes of the release build
SHORTEST_LIMIT_S, SLICES = 180, 5
MAX_SECOND_RUNS = 2
AT_ONCE = max(1, os.cpu_count() or 2)

# Of a suite that failed, what it says of its other cases is left out: a reader may see the first lines alone.
PASSED = re.compile(r"ok   |COUNTS \d+ 0$|\[ +(OK|RUN) +\]")
MAX_TOLD_LINES, MAX_TOLD_CHARS = 80, 2000
RED, RESET = ("\033[31m", "\033[0m") if sys.stdout.isatty() or os.environ.get("CI") else ("", "")


class Result:
    def __init__(self, name, declared_s):
        self.name, self.declared_s = name, declared_s
        self.passed = self.failed = self.skipped = 0
        self.seconds = 0.0
        self.output = ""
        self.skips = []
        self.cases = []  # (seconds, name)
        self.failures = []  # of pytest: (file, name)

    def fail(self, why):
        self.failed += 1
        self.output += f"\n{self.name} {why}"


def wanted(name, names):
    return not names or any(one in name for one in names)


# --- tests of CTest -----------------------------------------------------------------------------

def ctests(build, tier, names, ending):
    """Test → (binary, declared seconds), of a build that is configured."""
    told = subprocess.run(["ctest", "--test-dir", str(ROOT / build), "--show-only=json-v1"], capture_output=True, text=True,
                          check=True)
    found = {}
    for test in json.loads(told.stdout)["tests"]:
        properties = {one["name"]: one["value"] for one in test["properties"]}
        binary = re.sub(r"\.(\d+|rest)$", "", test["name"])
        if tier in properties["LABELS"] and wanted(test["name"] + ending, names):
            found[test["name"]] = binary, properties["COST"]
    return found


def take_cases(result, report):
    for suite in report["testsuites"]:
        for case in suite["testsuite"]:
            name = f'{result.name}:{suite["name"]}.{case["name"]}'
            if case.get("result") == "SUPPRESSED" or case.get("status") == "NOTRUN":
                continue
            result.cases.append((float(case["time"].rstrip("s")), name))
            if case.get("failures"):
                result.failed += 1
            elif case.get("result") == "SKIPPED":
                result.skipped += 1
                result.skips.append(name)
            elif case.get("result") == "COMPLETED":
                result.passed += 1


def result_of_ctest(name, declared_s, seconds, status, output, report):
    """`report` is GoogleTest's, or a file that is not there: of what prints its counts."""
    result = Result(name, declared_s)
    result.seconds, result.output = seconds, output
    if report.exists():
        take_cases(result, json.loads(report.read_text()))
    else:
        take_counts(result)
        result.cases.append((seconds, name))
    if status != "Passed" and result.failed == 0:
        result.fail(f"ended with: {status}")
    elif result.passed + result.failed + result.skipped == 0:
        result.fail("has run nothing")
    return result


def run_ctests(build, tests, quick, ending, take):
    """One ctest over all of them, the dearest first, as many at once as there are cores."""
    if not tests:
        return
    results = ROOT / build / "tests" / "results"
    for name in tests:
        (results / f"{name}.json").unlink(missing_ok=True)
    results.mkdir(parents=True, exist_ok=True)
    command = ["ctest", "--test-dir", str(ROOT / build), "-j", str(AT_ONCE), "--verbose", "--no-tests=error",
               "-R", "^(" + "|".join(re.escape(name) for name in tests) + ")$"]
    env = {**os.environ, **({"GTEST_FILTER": "-*Slow.*:*SlowTest.*"} if quick else {})}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                             stdin=subprocess.DEVNULL, env=env)
    outputs, seen = collections.defaultdict(list), set()
    for line in child.stdout:
        if said := re.match(r"(\d+): (.*)$", line):
            outputs[said[1]].append(said[2])
        elif ended := re.match(r"\s*\d+/\d+ Test\s+#(\d+): (\S+) \.*\s*(.*?)\s+([\d.]+) sec", line):
            name = ended[2]
            seen.add(name)
            take(result_of_ctest(name + ending, tests[name][1], float(ended[4]), ended[3].strip("* "),
                                 "\n".join(outputs.pop(ended[1], [])), results / f"{name}.json"))
    child.wait()
    for name in tests.keys() - seen:
        result = Result(name + ending, tests[name][1])
        result.fail("was not run by ctest")
        take(result)


# --- scripts ------------------------------------------------------------------------------------

def take_counts(result):
    counts = re.findall(r"(\d+) passed, (\d+) failed(?:, (\d+) skipped)?", result.output)
    for passed, failed, skipped in counts[-1:]:
        result.passed, result.failed, result.skipped = int(passed), int(failed), int(skipped or 0)
    result.skips = re.findall(r"^SKIP.*$", result.output, re.M)


def take_report(result, path):
    """pytest's report."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        name = f'{result.name}:{case.get("name")}'
        result.cases.append((float(case.get("time")), name))
        if case.find("failure") is not None or case.find("error") is not None:
            result.failed += 1
            result.failures.append((f'tests/{case.get("classname").replace(".", "/")}.py', case.get("name")))
        elif (skip := case.find("skipped")) is not None:
            result.skipped += 1
            result.skips.append(f"SKIP {name}: {skip.get('message')}")
        else:
            result.passed += 1


def execute(command, env, limit_s):
    """(exit code, output); what it has started ends with it."""
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                             env={**os.environ, **env}, start_new_session=True)
    try:
        output, _ = child.communicate(timeout=limit_s)
        return child.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        output, _ = child.communicate()
        return -1, output.decode(errors="replace") + f"\nhung for {limit_s:.0f} s"


def run_suite(suite):
    result = Result(suite.name, suite.minutes * 60)
    begin = time.monotonic()
    report = RESULTS / f"{suite.name}.xml"
    report.unlink(missing_ok=True)
    command = list(suite.command)
    if command[0] == "pytest":
        command[:1] = [str(suites.PYTHON), "-m", "pytest", "-q", "--tb=short", f"--junit-xml={report}"]
    if not suite.file().exists():
        result.fail(f"is gone: {suite.file()} is not there")
        return result
    env = {**suite.env, **sanitizer_log(suite.name)} if "QUIRE_TEST_BUILD" in suite.env else suite.env
    code, result.output = execute(command, env, max(SHORTEST_LIMIT_S, SLICES * result.declared_s))
    result.seconds = time.monotonic() - begin
    if report.exists():
        take_report(result, report)
    elif " passed, " in result.output or suite.command[0] == "pytest":
        take_counts(result)
        result.cases.append((result.seconds, suite.name))
    elif code == 0:  # a check that says nothing when all is well
        result.passed = 1
    for told in sorted(RESULTS.glob(f"{suite.name}.sanitizer.*")):
        result.fail(f"a sanitizer says:\n{told.read_text(errors='replace')[:6000]}")
    if code != 0 and result.failed == 0:
        result.fail(f"ended with exit code {code}")
    elif result.passed + result.failed + result.skipped == 0:
        result.fail("has run nothing")
    return result


def second_runs(results):
    """(suite, file, name) of each failed test that passes alone; it then counts as passed."""
    failures = [(result, *failure) for result in results for failure in result.failures]
    if len(failures) > MAX_SECOND_RUNS or sum(result.failed for result in results) != len(failures):
        return []
    kept = []
    for result, file, name in failures:
        suite = next(s for s in suites.SUITES if s.name == result.name)
        flags = [word for word in suite.command if word.startswith("--")]
        again = run_suite(dataclasses.replace(suite, command=["pytest", f"{file}::{name}", *flags]))
        if again.passed == 1 and again.failed == 0:
            result.failed -= 1
            result.passed += 1
            kept.append((result.name, file, name))
    return kept


def sanitizer_log(name):
    """A process that is killed has no exit code to look at: what a sanitizer says of it is in a file."""
    for old in RESULTS.glob(f"{name}.sanitizer.*"):
        old.unlink()
    log = f"log_path={RESULTS / name}.sanitizer"
    return {"ASAN_OPTIONS": f"detect_stack_use_after_return=1:strict_string_checks=1:{log}",
            "UBSAN_OPTIONS": f"print_stacktrace=1:{log}"}


def prepared():
    """What was fetched beside the builds."""
    told = json.loads(PREPARED.read_text())
    result = Result("prepare", told["declared_s"])
    for item in told["items"]:
        result.cases.append((item["seconds"], f'prepare:{item["name"]}'))
        result.seconds += item["seconds"]
        if item["here"]:
            result.passed += 1
        else:
            result.failed += 1
            result.output += f'{item["name"]} cannot be fetched:\n{item["said"]}\n'
    return result


# --- the run ------------------------------------------------------------------------------------

def show(result):
    late = result.seconds > 1.5 * result.declared_s
    line = (f"{'FAIL' if result.failed else 'ok':4} {result.name:32} {result.passed:5} passed {result.failed:3} failed "
            f"{result.skipped:3} skipped  {result.seconds / 60:5.2f} min of {result.declared_s / 60:.2f}")
    print((RED + line + "  over its slice" + RESET) if late else line, flush=True)
    for skip in result.skips:
        print(f"     {skip if skip.startswith('SKIP') else 'SKIP ' + skip}", flush=True)
    if result.failed:
        lines = [line[:MAX_TOLD_CHARS] for line in result.output.splitlines() if not PASSED.match(line)]
        print("\n".join(lines[-MAX_TOLD_LINES:]), flush=True)


def machine():
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return {"cpu": cpu[1] if cpu else "unknown", "cores": os.cpu_count()}


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


def write_times(args, results, took_s):
    rows = [{"suite": r.name, "seconds": round(r.seconds, 1), "declared": round(r.declared_s), "passed": r.passed,
             "failed": r.failed, "skipped": r.skipped} for r in sorted(results, key=lambda r: -r.seconds)]
    head = json.dumps({
        "date": datetime.date.today().isoformat(), "commit": git("rev-parse", "--short", "HEAD"),
        "dirty": bool(git("status", "--porcelain")), "tier": args.tier, "only": args.names, "machine": machine(),
        "seconds": round(took_s, 1)}, indent=1).removesuffix("\n}")
    TIMES.write_text(head + ',\n "suites": [\n  ' + ",\n  ".join(json.dumps(row) for row in rows) + "\n ]\n}\n")


def selected(args):
    tests = {build: ctests(build, args.tier, args.names, ending) for build, ending in BUILDS[args.tier].items()}
    scripts = [s for s in suites.SUITES if args.tier in s.tiers and wanted(s.name, args.names)]
    return tests, scripts


def print_targets(args):
    tests, scripts = selected(args)
    binaries = {binary for binary, _ in tests.get(args.targets, {}).values()}
    if args.targets == "build" and (any(not s.own_build for s in scripts)):
        binaries.add("quire_programs")
    if args.targets == "build" and (tests.get("build-asan") or any(s.env for s in scripts)):
        binaries.update(PLAIN)
    if args.targets == "build-asan" and any("build-asan" in s.env.values() for s in scripts):
        binaries.update(["quire-router", "quire-worker"])
    if args.targets == "fetched" and (not args.names or scripts or wanted("prepare", args.names)):
        binaries.add("all")  # what suites need is fetched as one
    for binary in sorted(binaries):
        print(binary)


def run_all(args, take):
    tests, scripts = selected(args)
    if PREPARED.exists() and args.prepared:
        take(prepared())
    for build, ending in BUILDS[args.tier].items():
        run_ctests(build, tests[build], args.tier == "quick", ending, take)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for suite in scripts:
        if suite.alone:
            take(run_suite(suite))
    with concurrent.futures.ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        jobs = [pool.submit(run_suite, s) for s in sorted(scripts, key=lambda s: -s.minutes) if not s.alone]
        for job in concurrent.futures.as_completed(jobs):
            take(job.result())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tier", choices=("quick", "normal", "long"), default="normal")
    parser.add_argument("--targets")
    parser.add_argument("--prepared", action="store_true", help="tests/prepare.py has run beside the builds")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.targets:
        return print_targets(args)
    begin = time.monotonic()
    results = []

    def take(result):
        results.append(result)
        show(result)

    run_all(args, take)
    for suite, file, name in second_runs(results):
        print(f"{RED}AGAIN {suite}: {file}::{name} failed beside other suites and passes alone{RESET}", flush=True)
    took_s = time.monotonic() - begin
    slowest = sorted((case for r in results for case in r.cases), reverse=True)[:10]
    print("\nten slowest:")
    for seconds, name in slowest:
        print(f"  {seconds:7.2f} s  {name}")
    print(f"declared {sum(r.declared_s for r in results) / 60:.1f} min, took {took_s / 60:.1f} min; "
          f"seconds of each suite: {TIMES.relative_to(ROOT)}\n")
    write_times(args, results, took_s)
    passed, failed, skipped = (sum(getattr(r, k) for r in results) for k in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
