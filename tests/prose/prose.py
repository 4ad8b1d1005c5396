#!/usr/bin/env python3
"""Holds the pages that people read, and the comments of the code, to plain English: Vale with the word lists of
styles/Quire, lines of at most 100 columns outside of code and tables.

Usage: prose.py [FILE...], all pages and sources without one; --fetch only builds Vale. Prints a line for each fault and
ends with 1 when there is any, with 3 when Vale cannot be built.
"""
import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
BIN = ROOT / ".cache" / "go-bin"
VALE = BIN / "vale"
MODULE = "github.com/vale-cli/vale/v3/cmd/vale@v3.21.0"
MAX_COLUMNS = 100
# Written from the code, which has their words.
GENERATED = {f"docs/reference/{name}.md" for name in ("api", "cli", "errors", "metrics")} | {"deploy/helm/quire/README.md"}

SOURCES = ("*.h", "*.cc", "*.cu")
# The tests' own comments are not all plain yet.
NOT_YET = ("tests/",)
# A string, or a comment to the end of its line.
COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\])+\'|(//+.*)')
ITEM = re.compile(r"\s*(?:\d+\.|[-*]) ")
# What a comment quotes is not its own prose.
QUOTED = re.compile(r'`[^`]*`|"[^"]*"')


def listed(*patterns):
    return subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", *patterns],
                          capture_output=True, text=True, check=True).stdout.split()


def pages():
    return sorted(page for page in listed("*.md") if page not in GENERATED and (ROOT / page).is_file() and
                  (page.startswith("docs/") or page.endswith("README.md") or page == "SECURITY.md"))


def sources():
    return sorted(name for name in listed(*SOURCES) if (ROOT / name).is_file() and not name.startswith(NOT_YET))


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


def comments(text):
    """The paragraphs of the comments of a source: (line, text) of each. Items of a list, and the comments behind two
    lines of code, are paragraphs of their own; lines that are set in are tables or code and left out."""
    found, column, indent, item = [], None, 0, False
    for number, line in enumerate(text.splitlines(), 1):
        starts = [match.start(1) for match in COMMENT.finditer(line) if match.group(1)]
        body = line[starts[0]:].lstrip("/").removeprefix(" ") if starts else ""
        if not body.strip() or "NOLINT" in body:
            column = None
            continue
        inset = len(body) - len(body.lstrip())
        alone = not line[:starts[0]].strip()
        if alone and column == starts[0] and not ITEM.match(body) and (inset == indent or item and inset > indent):
            found[-1][1] += " " + body.strip()
            item = False
        elif alone and inset > 1:
            column = None
            continue
        else:
            found.append([number, body.strip()])
            item = bool(ITEM.match(body))
        column, indent = starts[0], inset
    return [(number, QUOTED.sub("code", paragraph)) for number, paragraph in found]


def alerts(paths):
    """What Vale finds in these files: (path, line, check, message) of each."""
    done = subprocess.run([VALE, "--config", HERE / "vale.ini", "--output", "JSON", "--no-exit", *paths],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"vale: {done.stdout}{done.stderr}")
    return [(path, alert["Line"], alert["Check"], alert["Message"])
            for path, those in json.loads(done.stdout or "{}").items() for alert in those]


def comment_faults(paths):
    """Vale reads the comments as one text, a paragraph on every second line; the word at its end keeps sentences apart."""
    places, lines = [], []
    for path in paths:
        for number, paragraph in comments(path.read_text()):
            places.append(f"{path}:{number}")
            lines.append(f"{paragraph} Next.\n\n")
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
        text.write("".join(lines))
        text.flush()
        return [f"{places[line // 2]}: {check}: {message}" for _, line, check, message in alerts([text.name])]


def faults(paths):
    """A line for each fault of these files."""
    code = [path for path in paths if f"*{path.suffix}" in SOURCES]
    prose = [path for path in paths if path not in code]
    found = [fault for path in prose for fault in long_lines(path)]
    found += [f"{path}:{line}: {check}: {message}" for path, line, check, message in (alerts(prose) if prose else [])]
    return found + (comment_faults(code) if code else [])


def main(arguments):
    try:
        ensure_vale()
    except Exception as missing:  # no Go, no network, another registry: the reason is what helps
        print(f"prose: {missing}")
        return 3
    if arguments == ["--fetch"]:
        return 0
    found = faults([pathlib.Path(page).resolve() for page in arguments] or [ROOT / name for name in [*pages(), *sources()]])
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
