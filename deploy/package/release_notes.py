#!/usr/bin/env python3
"""Release notes as Markdown: what the commits since a release say, by the part of Quire that they change.

  release_notes.py [--since REV] [--until REV] [--packages FOLDER]

Without --since: since the newest tag before --until (HEAD), or since the first commit. --packages lists the files of a folder
with their sizes and SHA-256.
"""
import argparse
import hashlib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The first whose folders hold most of a commit's files has it.
PARTS = (("Router", ("router/",)), ("Worker and models", ("worker/", "models/")), ("Kernels", ("kernels/",)),
         ("Command line and library", ("cli/", "library/")), ("Deployment and monitoring", ("deploy/",)),
         ("Shared parts", ("common/", "proto/")), ("Documents", ("docs/", "README.md", "SECURITY.md", "CONTRIBUTING.md")),
         ("Tests and figures", ("tests/", "bench/")))
OTHER = "The rest"


def git(folder, *args):
    done = subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"release_notes.py: git {args[0]}: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def newest_tag(folder, until):
    done = subprocess.run(["git", "-C", str(folder), "describe", "--tags", "--abbrev=0", f"{until}^"], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def part_of(files):
    """Where most of the files are; tests and figures count only where there is nothing else."""
    counts = {name: sum(file.startswith(folders) for file in files) for name, folders in PARTS}
    for names in ([name for name, _ in PARTS[:-2]], [PARTS[-2][0]], [PARTS[-1][0]]):
        best = max(names, key=lambda name: counts[name])
        if counts[best]:
            return best
    return OTHER


def commits(folder, since, until):
    """(subject, files) of each commit without merges, oldest first."""
    told = git(folder, "log", "--no-merges", "--reverse", "--name-only", "--format=%x00%s", f"{since}..{until}" if since else until)
    for one in told.split("\0")[1:]:
        subject, *files = [line for line in one.splitlines() if line]
        yield subject, files


def version_of(folder, until):
    found = re.search(r"project\(\w+ VERSION ([\d.]+)", git(folder, "show", f"{until}:CMakeLists.txt"))
    return found.group(1) if found else until


def notes(folder, since, until, packages):
    since = since or newest_tag(folder, until)
    found = {name: [] for name in [*(name for name, _ in PARTS), OTHER]}
    for subject, files in commits(folder, since, until):
        found[part_of(files)].append(subject)
    date = git(folder, "log", "-1", "--format=%cs", until).strip()
    yield f"# Quire {version_of(folder, until)}\n\n{date}, {sum(map(len, found.values()))} changes since {since or 'the beginning'}.\n"
    for name, subjects in found.items():
        if subjects:
            yield f"\n## {name}\n" + "".join(f"- {subject}\n" for subject in subjects)
    files = sorted(path for path in pathlib.Path(packages).iterdir() if path.is_file()) if packages else []
    if files:
        yield "\n## Packages\n| File | Bytes | SHA-256 |\n|---|---|---|\n"
        for path in files:
            yield f"| {path.name} | {path.stat().st_size} | {hashlib.sha256(path.read_bytes()).hexdigest()} |\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--since", help="a tag or commit; the newest tag without one")
    parser.add_argument("--until", default="HEAD", help="a tag or commit [HEAD]")
    parser.add_argument("--packages", help="a folder of packages to list")
    parser.add_argument("--repository", default=ROOT, help="the checkout [this one]")
    args = parser.parse_args()
    sys.stdout.writelines(notes(args.repository, args.since, args.until, args.packages))


if __name__ == "__main__":
    main()
