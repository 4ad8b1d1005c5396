"""Steps inside real worker processes that hang, and one that is slow but legitimate. A hang is told on the wire, by
/health and in the log with the stacks of all threads; the streams go on elsewhere with the tokens of the undisturbed
run; then the process leaves. A slow step is none of these. The workers are quire-worker but for their kernels, which
go wrong when a signal says so (tests/support/hanging_worker)."""
import asyncio
import contextlib
import json
import re
import signal

from client import requests
from faults_test import CARRIED, READY, all_of, longest_gap, nothing_is_held, same, undisturbed
from fleet import Fleet
from harness import BIN, expect

PROGRAM = BIN.parent / "tests" / "quire-worker-hanging"
HANG, BE_SLOW = signal.SIGUSR1, signal.SIGUSR2
STUCK = '"msg":"stuck; the stacks of all threads follow on standard error"'
LEAVING = "quire-worker: a step has run for "


class Struck:
    """An on_event that signals the worker of the first stream that has three tokens, once."""

    def __init__(self, fleet, number):
        self.fleet, self.number, self.worker = fleet, number, None

    def __call__(self, answer):
        if self.worker is None and answer.count() >= 3:
            self.worker = self.fleet.worker_named(answer.worker)
            self.worker.signal(self.number)


async def probes(struck):
    """What /health says of the worker that was struck while it is not well, until its process ends."""
    told = []
    while struck.worker is None or struck.worker.process.child.poll() is None:
        if struck.worker is not None:
            with contextlib.suppress(OSError, IndexError):
                told.append(await struck.worker.get("/health"))
        await asyncio.sleep(0.05)
    return [answer for answer in told if answer[0] != 200]


def phases(fleet, worker):
    """The phases that the router has seen of a worker, in order."""
    lines = [json.loads(line) for line in fleet.router.process.lines if '"worker changed"' in line]
    return [line["phase"] for line in lines if line["worker"].endswith(f":{worker.port}")]


def stacks(output):
    """The frames of each thread that the log has, by the thread's name."""
    found = {}
    name = None
    for line in output.splitlines():
        if begin := re.fullmatch(r"thread \d+ \((.*)\):", line):
            name = begin.group(1)
            found.setdefault(name, [])
        elif name is not None and "(+0x" in line:
            found[name].append(line)
        else:
            name = None
    return found


async def hung_step():
    bodies = requests(12, seed=31, max_tokens=1500)  # far from their ends when one of them is at its third token
    async with Fleet(workers=2, worker_flags=("--watchdog-grace=3s", "--log-format=json"), program=PROGRAM) as fleet:
        wanted = await undisturbed(fleet, bodies)
        struck = Struck(fleet, HANG)
        told = asyncio.ensure_future(probes(struck))
        answers = await all_of(fleet.router.port, bodies, struck)
        same(bodies, answers, wanted, "a step hangs")
        worker = struck.worker
        await fleet.until(lambda: fleet.router.metric(CARRIED) > 0, "streams were carried on")
        code = await asyncio.to_thread(worker.process.wait)
        output = worker.process.output()
        expect(code == 1, f"it leaves with 1, not {code}: {output[-2000:]}")
        told = await told
        expect(any(status == 503 and "stuck: a step has run for" in text for status, text in told), f"/health: {told}")
        seen = phases(fleet, worker)
        expect("stuck" in seen, f"the router was told: {seen}")
        expect("connecting" not in seen[:seen.index("stuck")], f"it moved on before the process left: {seen}")
        expect(0 <= output.find(STUCK) < output.find(LEAVING), f"the log: {output[-4000:]}")
        threads = stacks(output)
        expect({"engine", "watchdog"} <= set(threads) and len(threads) >= 3, f"threads {list(threads)}")
        for name, frames in threads.items():
            expect(frames, f"no stack of {name}")
        expect(any(PROGRAM.name in frame for frame in threads["engine"]), threads["engine"])
        print(f"hang: longest gap {longest_gap(answers):.2f} s; stacks of {len(threads)} kinds of threads")
        await worker.start()
        await fleet.until(lambda: fleet.router.metric(READY) == 2, "it is back")
        same(bodies, await all_of(fleet.router.port, bodies), wanted, "afterwards")
        await nothing_is_held(fleet)


def test_a_step_that_hangs_is_told_and_logged_its_streams_move_on_and_the_process_leaves():
    asyncio.run(hung_step())


async def slow_step():
    bodies = requests(12, seed=32, max_tokens=200)
    async with Fleet(workers=2, worker_flags=("--watchdog-grace=100ms", "--log-format=json"),
                     program=PROGRAM) as fleet:
        wanted = await undisturbed(fleet, bodies)
        struck = Struck(fleet, BE_SLOW)
        answers = await all_of(fleet.router.port, bodies, struck)
        same(bodies, answers, wanted, "a slow step")
        worker = struck.worker
        expect(longest_gap(answers) >= 0.6, f"no step was slow: longest gap {longest_gap(answers):.2f} s")
        expect(fleet.router.metric(CARRIED) == 0, "no stream had to move")
        expect(phases(fleet, worker)[-1] == "ready", f"the router: {phases(fleet, worker)}")
        expect("stuck" not in phases(fleet, worker) and worker.process.child.poll() is None, "it is no failure")
        expect((await worker.get("/health"))[0] == 200, "it is healthy")
        expect("stuck" not in worker.process.output(), worker.process.output()[-2000:])
        await nothing_is_held(fleet)


def test_a_slow_step_is_legitimate_and_moves_nobody():
    asyncio.run(slow_step())
