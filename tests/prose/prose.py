#!/usr/bin/env python3
"""Holds the pages that people read to plain English: Vale with the word lists of styles/Quire, lines of at most 100
columns outside of code and tables.

Usage: prose.py [PAGE...], all pages without one; --fetch only builds Vale. Prints a line for each fault and ends with 1
when there is any, with 3 when Vale cannot be built.
"""
import fcntl
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
BIN = ROOT / ".cache" / "go-bin"
VALE = BIN / "vale"
MODULE = "github.com/vale-cli/vale/v3/cmd/vale@v3.21.0"
MAX_COLUMNS = 100
# Written from the code, which has their words.
GENERATED = {f"docs/reference/{name}.md" for name in ("api", "cli", "errors", "metrics")} | {"deploy/helm/quire/README.md"}


def pages():
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.md"],
                            capture_output=True, text=True, check=True).stdout.split()
    return sorted(page for page in listed if page not in GENERATED and (ROOT / page).is_file() and
                  (page.startswith("docs/") or page.endswith("README.md") or page == "SECURITY.md"))


def ensure_vale():
    """Builds Vale once, with the Go that the deploy tests use."""
    sys.path.insert(0, str(ROOT / "tests" / "deploy"))
    import tools
    BIN.mkdir(parents=True, exist_ok=True)
    mark = BIN / ".vale"
    with open(BIN / "vale.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if VALE.exists() and mark.exists() and mark.read_text() == MODULE:
            return
        env = {**os.environ, "GOBIN": str(BIN), "GOTOOLCHAIN": "local"}
        env.pop("GOROOT", None)
        done = subprocess.run([tools.find_go(), "install", "-ldflags=-s -w", MODULE], env=env,
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise tools.Missing(f"{MODULE} cannot be built: {done.stderr[-1000:]}")
        mark.write_text(MODULE)


def long_lines(path):
    code = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.lstrip().startswith("|") and len(line) > MAX_COLUMNS:
            yield f"{path}:{number}: columns: {len(line)}, at most {MAX_COLUMNS}"


def faults(paths):
    """A line for each fault of these files."""
    found = [fault for path in paths for fault in long_lines(path)]
    done = subprocess.run([VALE, "--config", HERE / "vale.ini", "--output", "JSON", "--no-exit", *paths],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"vale: {done.stdout}{done.stderr}")
    for path, alerts in json.loads(done.stdout or "{}").items():
        found += [f"{path}:{alert['Line']}: {alert['Check']}: {alert['Message']}" for alert in alerts]
    return found


def main(arguments):
    try:
        ensure_vale()
    except Exception as missing:  # no Go, no network, another registry: the reason is what helps
        print(f"prose: {missing}")
        return 3
    if arguments == ["--fetch"]:
        return 0
    found = faults([pathlib.Path(page).resolve() for page in arguments] or [ROOT / page for page in pages()])
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
