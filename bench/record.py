"""How a figure is recorded: one file for each benchmark in bench/results/, one entry in it for each model of processor.

An entry says when, on which commit and machine, by which command and in how many seconds it was measured, whether the
tree held uncommitted changes, what a probe of the machine gave before and after it, and how much time the host took
meanwhile. Where a ratio depends on the processor's maker, both stand and the worse one is the figure; a maker that was
not met is named under `missing`.
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
MAKERS = ("AMD", "Intel")
PROBE_BYTES = 32 << 20


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    cpu = re.search(r"model name\s*: (.*)", info)
    flags = re.search(r"flags\s*: (.*)", info).group(1).split()
    isa = [f for f in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8") if f in flags]
    numbers = {name: re.search(rf"^{name}\s*: (\d+)", info, re.M) for name in ("cpu family", "model", "stepping")}
    return {"cpu": cpu.group(1) if cpu else "unknown", "threads": os.cpu_count(), "isa": isa,
            **{name: int(found.group(1)) for name, found in numbers.items() if found},
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)}


def processor(machine):
    """A processor's name in the results. Hosts give many models one name, so that its family and model stand beside it."""
    if "model" not in machine:
        return machine["cpu"]
    return f"{machine['cpu']} (family {machine['cpu family']}, model {machine['model']})"


def maker_of(cpu):
    return next((maker for maker in MAKERS if maker.lower() in cpu.lower()), "other")


def git(*command):
    return subprocess.run(["git", "-C", str(ROOT), *command], capture_output=True, text=True).stdout.rstrip()


def commit():
    return git("rev-parse", "--short", "HEAD")


def shown(word):
    """A word of the command line; of a path outside the tree its last name alone, the rest is this machine's."""
    outside = os.path.isabs(word) and not pathlib.Path(word).is_relative_to(ROOT)
    return f".../{pathlib.Path(word).name}" if outside else word


def changed_files():
    """Files that differ from the commit, results apart: what was measured is not what the commit holds."""
    lines = git("status", "--porcelain", "--untracked-files=no").splitlines()
    return sorted(line[3:] for line in lines if not line[3:].startswith("bench/results/"))


def stolen_ms():
    """Of all cores, so far: time that the host gave to others."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) * 1000 / os.sysconf("SC_CLK_TCK")


def probe():
    """What one core does now: hashing (processor) and copying (memory), the median of five short runs each."""
    data = bytearray(PROBE_BYTES)
    rates = {"sha256 MB/s": [], "copy GB/s": []}
    for _ in range(5):
        begin = time.perf_counter()
        hashlib.sha256(memoryview(data)[:PROBE_BYTES // 8]).digest()
        rates["sha256 MB/s"].append(PROBE_BYTES / 8 / (time.perf_counter() - begin) / 1e6)
        begin = time.perf_counter()
        bytes(data)
        rates["copy GB/s"].append(PROBE_BYTES / (time.perf_counter() - begin) / 1e9)
    return {name: round(statistics.median(values), 1) for name, values in rates.items()}


class Run:
    """The conditions of one measurement, from its making to `entry`."""

    def __init__(self):
        self.begin = time.monotonic()
        self.stolen = stolen_ms()
        self.probe = probe()

    def entry(self, body):
        seconds = time.monotonic() - self.begin
        changed = changed_files()
        return {"date": datetime.date.today().isoformat(), "commit": commit(),
                **({"uncommitted changes": changed} if changed else {}),
                "command": [os.path.relpath(sys.argv[0], ROOT), *map(shown, sys.argv[1:])],
                "machine": machine(), "seconds": round(seconds, 1),
                "time that the host took, ms of all cores": round(stolen_ms() - self.stolen),
                "probe": {"before": self.probe, "after": probe()}, **body}


def read(name):
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"benchmark": name, "figures": {}}


def of_this_commit(name):
    """What this processor has already on this commit, of an unchanged tree; empty: nothing."""
    entry = read(name)["figures"].get(processor(machine()), {})
    return entry if entry.get("commit") == commit() and not changed_files() and "uncommitted changes" not in entry else {}


def write(name, document):
    met = {maker_of(cpu) for cpu in document["figures"]}
    document["missing"] = [maker for maker in MAKERS if maker not in met]
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    beside.rename(path)
    print(f"written to {os.path.relpath(path, ROOT)}")


def stale(benches):
    """One line for each result that is older than the code it measures, or was never taken."""
    lines = []
    for name, bench in benches.items():
        document = read(bench.file)
        for maker in document.get("missing", MAKERS):
            lines.append(f"{name}: never measured on {maker}")
        for cpu, entry in document["figures"].items():
            since = git("rev-list", "--count", f"{entry['commit']}..HEAD", "--", *bench.measures)
            if since != "0":
                lines.append(f"{name} ({cpu}): {since or 'unknown'} commits to what it measures since {entry['commit']}")
    return lines


def record(name, body, run):
    """Puts what `run` saw into the file of this benchmark, in place of what this processor had before."""
    document = read(name)
    entry = run.entry(body)
    document["figures"][processor(entry["machine"])] = entry
    write(name, document)
