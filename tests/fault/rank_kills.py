#!/usr/bin/env python3
"""Ranks killed and stopped again and again, at random moments of their lives, the starts of those that follow
included: the group comes back each time, no stream loses a token while another worker is there, and nothing of the
old ranks is left. The first argument is the number of rounds, the second the seed, which is printed."""
import asyncio
import contextlib
import os
import pathlib
import random
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "process"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from client import requests  # noqa: E402
from fleet import Fleet  # noqa: E402
from harness import main_of  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from ranks import RANKS, back, ranks_of, shared_memory, until  # noqa: E402
from run import all_of, nothing_is_held, same, undisturbed  # noqa: E402

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 12
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().getrandbits(32)
sys.argv[1:] = []


async def hurt(draw, worker):
    """One to three signals; the later ones find ranks that start or load. Returns whom they met."""
    met = set()
    for turn in range(draw.choice([1, 1, 1, 2, 3])):
        if turn > 0:
            await asyncio.sleep(draw.random() * 0.6)
        for pid in draw.sample(ranks_of(worker), min(1, len(ranks_of(worker)))):
            with contextlib.suppress(OSError):
                os.kill(pid, draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP]))
                met.add(pid)
    return met


async def rounds():
    print(f"seed {SEED}, {ROUNDS} rounds")
    draw = random.Random(SEED)
    bodies = requests(6, seed=25, max_tokens=48)
    async with Fleet(workers=2, worker_flags=RANKS) as fleet:
        wanted = await undisturbed(fleet, bodies)
        held = [shared_memory(worker) for worker in fleet.workers]
        for number in range(ROUNDS):
            which = draw.randrange(2)
            worker = fleet.workers[which]
            streams = asyncio.create_task(all_of(fleet.router.port, bodies)) if draw.random() < 0.8 else None
            await asyncio.sleep(draw.random() * 0.5)
            met = await hurt(draw, worker)
            await until(lambda: not set(ranks_of(worker)) & met, f"round {number}: old ranks are gone", worker=worker)
            await back(fleet, worker, met, held[which])
            if streams is not None:
                same(bodies, await streams, wanted, f"round {number}")
        await nothing_is_held(fleet)


def test_ranks_that_are_hurt_at_any_moment_come_back():
    asyncio.run(rounds())


if __name__ == "__main__":
    sys.exit(main_of(globals()))
