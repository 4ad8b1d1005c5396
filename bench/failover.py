"""What a client sees when its worker is killed, frozen or drained: the longest pause of each stream that the worker
had, beside the longest pause of the same streams undisturbed. Tokens are compared; a run with others is void."""
import asyncio
import pathlib
import random
import signal
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fault"))
from client import ask, requests  # noqa: E402
from fleet import Fleet  # noqa: E402

READY = 'quire_router_workers{phase="ready"}'
SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "drain": signal.SIGTERM}


def longest(answer):
    return max((b - a for a, b in zip(answer.times, answer.times[1:])), default=0.0)


def quantile(values, q):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


async def one_round(fleet, kind, turn, bodies, wanted, at):
    """The longest pauses of the streams that were struck; of all of them when nothing is done to any."""
    struck = []
    # Nothing is cached, so that both workers get their share; a salt changes no token.
    bodies = [{**body, "cache_salt": f"{kind} {turn}"} for body in bodies]

    def seen(answer):
        if not struck and answer.count() >= at and kind in SIGNALS:
            struck.append(answer.worker)
            fleet.worker_named(answer.worker).signal(SIGNALS[kind])
    answers = await asyncio.gather(*(ask(fleet.router.port, body, seen) for body in bodies))
    for body, answer, result in zip(bodies, answers, wanted):
        if answer.error or not answer.done or answer.result() != result:
            raise SystemExit(f"failover {kind}: {body} got {answer.error or 'other tokens'}: the run is void")
    if not struck:
        return [longest(a) for a in answers]
    worker = fleet.worker_named(struck[0])
    if kind == "freeze":
        worker.signal(signal.SIGCONT)
    else:
        await asyncio.to_thread(worker.process.wait)
        await worker.start()
    await fleet.until(lambda: fleet.router.metric(READY) == len(fleet.workers), "it is back")
    return [longest(a) for a in answers if a.worker == struck[0]]


async def measure(rounds):
    draw = random.Random(1)
    bodies = requests(16, seed=20, max_tokens=300)
    found = {}
    async with Fleet(workers=2, worker_flags=("--drain-timeout=500ms",)) as fleet:
        first = await asyncio.gather(*(ask(fleet.router.port, body) for body in bodies))
        wanted = [answer.result() for answer in first]
        for turn in range(rounds):
            for kind in ("undisturbed", *SIGNALS):
                found.setdefault(kind, []).extend(await one_round(fleet, kind, turn, bodies, wanted, draw.randrange(1, 20)))
    return {kind: {"streams": len(gaps), "p50_s": round(quantile(gaps, 0.5), 3),
                   "p99_s": round(quantile(gaps, 0.99), 3), "max_s": round(max(gaps), 3)}
            for kind, gaps in found.items()}


def run(rounds):
    return asyncio.run(measure(rounds))
