"""Cases of a GoogleTest binary in one process, which opens the device once; each case's result as soon as it ends.

After a case that fails, crashes or hangs the others go on in a process of their own each: what it left of the device may
be unusable.
"""
import contextlib
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BEGIN = re.compile(r"^\[ RUN      \] (\S+)")
END = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+?)(?:,.*)?(?: \(\d+ ms\))?$")


class Case:
    """What a case has said, and how it ended."""

    def __init__(self, name):
        self.name, self.lines, self.begin = name, [], time.monotonic()

    def result(self, state, why=""):
        """(name, state, seconds, figures, why)"""
        state, figures, why = judged(self.lines, state, why)
        return self.name, state, round(time.monotonic() - self.begin, 2), figures, why


def judged(lines, state, why):
    """(state, figures, why) of a case that said these lines. Only a case that passed has figures."""
    for line in lines:
        if line.startswith("no device: "):  # whether there is one was asked before: it cannot be used
            return "failed", [], line
    for line in lines:
        if line.startswith("not here: "):
            return "not run", [], line
    if state != "passed":
        return state, [], why
    return state, [json.loads(line[7:]) for line in lines if line.startswith("figure {")], ""


def end_group(child):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def lines_of(child):
    """A queue of the child's lines; None behind the last."""
    lines = queue.Queue()

    def read():
        for line in child.stdout:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines


def run_together(command, names, limit_s, end):
    """Yields results of `names` in their order, until one does not pass or `end`, a monotonic time, has come.

    What was begun when the budget ended is yielded as "not run".
    """
    with tempfile.NamedTemporaryFile("w", suffix=".flags") as flags:
        flags.write("--gtest_filter=" + ":".join(names) + "\n")
        flags.flush()
        child = subprocess.Popen([*map(str, command), f"--gtest_flagfile={flags.name}"], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, text=True,
                                 errors="replace", env={**os.environ, "QUIRE_SOURCE_FOLDER": str(ROOT)})
        try:
            yield from results_of(child, lines_of(child), names, limit_s, end)
        finally:
            end_group(child)
            child.wait()


def results_of(child, lines, names, limit_s, end):
    case, before = None, []
    while True:
        until = min(end, (case.begin if case else time.monotonic()) + limit_s)
        try:
            line = lines.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            case = case or Case(names[0])
            if time.monotonic() >= end:
                yield case.result("not run", "the budget was used up within it")
            else:
                yield case.result("failed", f"ended after its limit of {limit_s:.0f} s")
            return
        if line is None:
            break
        if begun := BEGIN.match(line):
            case = Case(begun.group(1))
        elif case and (ended := END.match(line)) and ended.group(2) == case.name:
            state = {"OK": "passed", "SKIPPED": "not run"}.get(ended.group(1), "failed")
            result = case.result(state, "" if state == "passed" else "\n".join(case.lines)[-1500:] or state)
            yield result
            case = None
            if result[1] == "failed":
                return
        else:
            (case.lines if case else before).append(line)
    code = child.wait()
    if case or code != 0:
        case = case or Case(names[0])
        case.lines[:0] = before
        yield case.result("failed", f"exit code {code}: " + "\n".join(case.lines)[-1500:])


def run_cases(command, names, limit_s, end):
    """Results of all `names` that could begin before `end`; see run_together."""
    left, together = list(names), True
    while left and time.monotonic() < end:
        batch = left if together else left[:1]
        done = set()
        for result in run_together(command, batch, limit_s, end):
            yield result
            done.add(result[0])
            together = together and result[1] != "failed"
        if not done:
            yield batch[0], "failed", 0.0, [], "the binary has no such case"
            done.add(batch[0])
        left = [name for name in left if name not in done]
