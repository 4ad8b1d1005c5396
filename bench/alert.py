"""From the kill -9 of a worker to its alert in Alertmanager: with the rules and the 15 s between scrapes as they are shipped, under
load, at a moment that no scrape knows of."""
import asyncio
import pathlib
import random
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
for folder in ("process", "fault", "monitoring"):
    sys.path.insert(0, str(ROOT / "tests" / folder))
from client import ask  # noqa: E402
from fleet import Fleet  # noqa: E402
from watchers import Watchers, missing_tools  # noqa: E402

ALERTS = ("QuireWorkerDied", "QuireTargetDown")
LIMIT_S = 300


async def load(port, stop):
    async def client(number):
        while not stop.is_set():
            answer = await ask(port, {"model": "demo", "prompt": f"Story {number}:", "max_tokens": 200, "ignore_eos": True})
            if answer.error is not None or not answer.done:
                raise SystemExit(f"an answer failed: {answer.status} {answer.error}")
    await asyncio.gather(*(client(i) for i in range(4)))


async def once(quick, rng):
    """Seconds from the kill until each of ALERTS is in Alertmanager."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        async with Fleet(workers=2) as fleet:
            targets = {"quire-router": [f"127.0.0.1:{fleet.router.port}"],
                       "quire-worker": [f"127.0.0.1:{worker.http_port}" for worker in fleet.workers]}
            with Watchers(folder, targets, quick) as watchers:
                stop = asyncio.Event()
                loading = asyncio.create_task(load(fleet.router.port, stop))
                while len(await asyncio.to_thread(watchers.query, "sum_over_time(up[2m]) >= 3")) < 3:
                    await asyncio.sleep(0.2)
                await asyncio.sleep(rng.uniform(0, 0.5 if quick else 15))
                begin, found = loop.time(), {}
                await fleet.workers[0].kill()
                while len(found) < len(ALERTS):
                    if loop.time() > begin + LIMIT_S:
                        raise SystemExit(f"no alert in {LIMIT_S} s: {set(ALERTS) - set(found)}")
                    for name in await asyncio.to_thread(watchers.alerts):
                        found.setdefault(name, loop.time() - begin)
                    await asyncio.sleep(0.05)
                    found = {name: found[name] for name in ALERTS if name in found}
                stop.set()
                await loading
    return found


def run(cycles, quick):
    """{alert: seconds, one of each cycle}."""
    if missing := missing_tools():
        raise SystemExit(missing)
    rng = random.Random(7)
    rows = [asyncio.run(once(quick, rng)) for _ in range(cycles)]
    return {name: [row[name] for row in rows] for name in ALERTS}
