#!/usr/bin/env python3
"""clang-tidy, clang's static analyser and its thread-safety analysis over the C++ sources of the tree, each once per content.

Usage: lint.py BUILD [--cache FOLDER] [--jobs N] [FILE...]. BUILD is configured by clang: it holds compile_commands.json and
the generated headers. There are two jobs:
  checks  the checks of .clang-tidy on what the build compiles: mostly eight sources as one, whose headers are read once
  alone   each source by itself, which shows what it forgot to include: those of the product with the analyser, which looks
          at the sources of a joined file only if it looks at each header too; those of tests without
A job that finds nothing leaves a mark in the cache. The mark's name is a digest of all that the answer depends on: the source,
every header of the tree that it includes, directly or not, its compile command, the checks, and the versions of
clang-tidy and of the installed development packages. While none of these changes, the job is not done again.
"""
import argparse
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIDY = "clang-tidy-14"
# Clients reach most of the first ones; the analyser sees all but the last.
ROOMS = ("router", "worker", "common", "kernels", "cli", "bench", "tests")
# One source of a joined file is "included" there.
JOINED = "-bugprone-suspicious-include"
ANALYSER = "-*,clang-diagnostic-*,clang-analyzer-*,-clang-analyzer-optin.performance.Padding"
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
FINDING = re.compile(r"^(\S+:\d+:\d+): (error|warning): ")
FINDINGS_SHOWN = 200


class Tree:
    """Digests of files, each with what it includes of the tree. A header is looked for where compilers look: beside the
    file that names it, at the root, and among generated files."""

    def __init__(self, root, build):
        self.root, self.roots = root, [root, build / "generated", build / "generated" / "build_id"]
        self.read = {}  # path → (digest, paths of what it includes)

    def look(self, path):
        if path not in self.read:
            data = path.read_bytes()
            names = INCLUDE.findall(data.decode(errors="replace"))
            found = []
            for name in names:
                places = (folder / name for folder in [path.parent, *self.roots])
                found += [place for place in places if place.is_file()][:1]
            self.read[path] = hashlib.sha256(data).hexdigest(), found
        return self.read[path]

    def digest(self, paths):
        seen, left = set(), list(paths)
        while left:
            one = left.pop()
            if one not in seen:
                seen.add(one)
                left += self.look(one)[1]
        return [(str(one.relative_to(self.root)), self.look(one)[0]) for one in sorted(seen)]


def versions():
    tidy = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout
    tidy = "\n".join(line for line in tidy.splitlines() if "Host CPU" not in line)
    packages = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", "*-dev"], capture_output=True,
                              text=True).stdout
    return tidy + packages


@dataclasses.dataclass
class Job:
    name: str
    source: pathlib.Path  # what the compiler reads, a file of the tree or one that joins several
    holds: list  # the files of the tree in it
    command: list
    mark: str = ""


def room_of(root, path):
    room = path.relative_to(root).parts[0]
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def jobs_of(tree, build):
    """All jobs, in the order in which they are done."""
    jobs, alone = [], set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source, words = pathlib.Path(entry["file"]), shlex.split(entry["command"])
        holds = tree.look(source)[1] if "Unity" in source.parts else [source]
        holds = [one for one in holds if build not in one.parents]
        if not holds:
            continue  # generated
        flags = [word for word in words[1:words.index("-o")] if word != "-c"]
        jobs.append(Job("checks", source, holds, [TIDY, "--quiet", f"--checks={JOINED}", str(source), "--", *flags]))
        for one in set(holds) - alone:
            alone.add(one)
            if room_of(tree.root, one) == ROOMS.index("tests"):
                command = [words[0], *flags, "-fsyntax-only", "-fno-color-diagnostics", str(one)]
            else:
                command = [TIDY, "--quiet", f"--checks={ANALYSER}", str(one), "--", *flags]
            jobs.append(Job("alone", one, [one], command))
    return sorted(jobs, key=lambda job: (job.name != "checks", room_of(tree.root, job.holds[0]), job.holds[0]))


def mark_of(tree, job, installed):
    command = [word.replace(str(tree.root), "") for word in job.command]
    said = json.dumps([job.name, tree.digest(job.holds), command, (tree.root / ".clang-tidy").read_text(), installed])
    return hashlib.sha256(said.encode()).hexdigest()


def do(job):
    """What the tools say, and whether they found nothing."""
    run = subprocess.run(job.command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return run.stdout + run.stderr, run.returncode == 0


class Report:
    """Prints each finding once: those of a header come back with every file that includes it."""

    def __init__(self, root):
        self.root, self.seen = root, set()

    def take(self, job, output):
        show, found = False, False
        for line in output.splitlines():
            if FINDING.match(line):
                found = True
                show = line not in self.seen and len(self.seen) < FINDINGS_SHOWN
                self.seen.add(line)
            if show:
                print(line.replace(f"{self.root}/", ""))
        if not found:
            print(f"{job.source.relative_to(self.root)}: {job.command[0]} failed: {output.strip()[-2000:]}")
        sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--cache", type=pathlib.Path, default=ROOT / ".cache" / "lint")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("files", nargs="*")
    options = parser.parse_intermixed_args()
    root, build = options.root.resolve(), options.build.resolve()
    options.cache.mkdir(parents=True, exist_ok=True)
    tree, installed, report, begun = Tree(root, build), versions(), Report(root), time.monotonic()
    jobs = jobs_of(tree, build)
    if options.files:
        wanted = {pathlib.Path(name).resolve() for name in options.files}
        if unknown := wanted - {one for job in jobs for one in job.holds}:
            print(f"lint: the build compiles no {', '.join(sorted(map(str, unknown)))}; name sources, not headers")
            return 1
        jobs = [job for job in jobs if wanted & set(job.holds)]
    for job in jobs:
        job.mark = options.cache / mark_of(tree, job, installed)
    left = [job for job in jobs if not job.mark.exists()]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for job, (output, clean) in zip(left, pool.map(do, left)):
            if clean:
                # Not of what has changed meanwhile.
                if options.cache / mark_of(Tree(root, build), job, installed) == job.mark:
                    job.mark.touch()
            else:
                failed += 1
                report.take(job, output)
    print(f"lint: {len(jobs)} jobs, {len(jobs) - len(left)} of them done before, {failed} with findings, "
          f"{time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
