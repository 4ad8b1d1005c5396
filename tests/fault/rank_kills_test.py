"""Ranks killed and stopped again and again, at random moments of their lives, the starts of those that follow
included: the group comes back each time, no stream loses a token while another worker is there, and nothing of the
old ranks is left. QUIRE_ROUNDS and QUIRE_SEED give the number of rounds and the seed, which is printed."""
import asyncio
import contextlib
import os
import random
import signal

from client import requests
from faults_test import all_of, nothing_is_held, same, undisturbed
from fleet import Fleet
from ranks_test import RANKS, back, ranks_of, shared_memory, until

ROUNDS = int(os.environ.get("QUIRE_ROUNDS", 12))
SEED = int(os.environ.get("QUIRE_SEED", random.SystemRandom().getrandbits(32)))


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
