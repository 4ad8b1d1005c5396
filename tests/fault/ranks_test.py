"""Faults of tensor-parallel ranks that are processes: two workers of two ranks each behind a router, and one rank
killed or stopped while streams are under way. Every stream has the tokens of the undisturbed run, the ranks come
back by themselves, and nothing of the old ones is left."""
import asyncio
import contextlib
import os
import pathlib
import signal

import pytest

from client import requests
from faults_test import CARRIED, READY, all_of, nothing_is_held, same, undisturbed
from fleet import Fleet
from harness import BIN, ROOT, expect

GEMMA = ROOT / ".cache" / "models" / "gemma3-270m" / "model.gguf"
RANKS = ("--tensor-parallel-size=2", "--rank-backend=process", "--rank-timeout=2s")
EMULATED = BIN.parent / "tests" / "quire-worker-emulated"  # the CUDA worker over the emulated grid
EMULATED_RANKS = ("--device=cuda-emulated", "--tensor-parallel-size=2", "--rank-backend=process", "--rank-timeout=30s",
                  "--max-model-len=256", "--max-num-seqs=8", "--max-num-batched-tokens=128", "--max-step-time-ms=0")


def stat_of(pid):
    """(state, parent) of a process, or nothing."""
    with contextlib.suppress(OSError):
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return fields[0], int(fields[1])
    return None


def children(worker):
    """Process id and state of a worker's children."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := stat_of(entry.name)) and stat[1] == worker.process.child.pid:
            found[int(entry.name)] = stat[0]
    return found


def ranks_of(worker):
    return sorted(pid for pid, state in children(worker).items() if state != "Z")


def memory_of(pid):
    """Bytes of a process's own memory that are resident: not the model's file, which all map."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


def shared_memory(worker):
    """How many pieces of the ranks' shared memory a worker holds, open and mapped."""
    pid = worker.process.child.pid
    links = []
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            links.append(os.readlink(entry))
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()
    return sum("memfd:quire" in link for link in links), sum("memfd:quire" in line for line in maps)


async def until(condition, what, limit_s=60, worker=None):
    end = asyncio.get_running_loop().time() + limit_s
    while not condition():
        if asyncio.get_running_loop().time() >= end:
            said = [] if worker is None else worker.process.lines[-12:]
            raise AssertionError(f"did not happen: {what}; {children(worker) if worker else ''} {said}")
        await asyncio.sleep(0.02)


async def back(fleet, worker, before, held):
    """The worker has new ranks, serves, and has kept nothing of the old ones."""
    await until(lambda: len(ranks_of(worker)) == 2 and not set(ranks_of(worker)) & set(before), "new ranks",
                worker=worker)
    async with asyncio.timeout(60):  # the router may not have seen yet that it was gone
        while await worker.metric("quire_worker_rank_ready") != 2:
            await asyncio.sleep(0.02)
    await fleet.until(lambda: fleet.router.metric(READY) == 2, "the worker is back")
    expect(worker.process.child.poll() is None, "the worker itself lived on")
    await until(lambda: "Z" not in children(worker).values(), "no zombie")
    await until(lambda: shared_memory(worker) == held, f"shared memory {shared_memory(worker)}, before {held}")


class Loss:
    """An on_event: when a first stream has `k` tokens, rank `rank` of the worker that serves it gets a signal."""

    def __init__(self, fleet, k, rank, number):
        self.fleet, self.k, self.rank, self.number = fleet, k, rank, number
        self.ranks = {worker: ranks_of(worker) for worker in fleet.workers}
        self.held = {worker: shared_memory(worker) for worker in fleet.workers}
        self.worker = None

    def __call__(self, answer):
        if self.worker is None and answer.count() >= self.k:
            self.worker = self.fleet.worker_named(answer.worker)
            os.kill(self.ranks[self.worker][self.rank], self.number)

    async def back(self):
        await back(self.fleet, self.worker, self.ranks[self.worker], self.held[self.worker])


async def lose(fleet, bodies, wanted, losses):
    """One after the other: rank `rank` gets signal `number` when a stream has `k` tokens."""
    for k, rank, number in losses:
        loss = Loss(fleet, k, rank, number)
        expect(all(len(ranks) == 2 for ranks in loss.ranks.values()), f"ranks {loss.ranks}")
        answers = await all_of(fleet.router.port, bodies, loss)
        same(bodies, answers, wanted, f"rank {rank} got signal {number} at token {k}")
        await loss.back()
    await fleet.until(lambda: fleet.router.metric(CARRIED) > 0, "streams were carried on")
    same(bodies, await all_of(fleet.router.port, bodies), wanted, "afterwards")
    await nothing_is_held(fleet)


async def lost_ranks():
    bodies = requests(16, seed=21, max_tokens=48)
    async with Fleet(workers=2, worker_flags=RANKS) as fleet:
        wanted = await undisturbed(fleet, bodies)
        await lose(fleet, bodies, wanted, [(1, 0, signal.SIGKILL), (7, 1, signal.SIGKILL), (19, 1, signal.SIGSTOP),
                                           (30, 0, signal.SIGKILL)])
        failures = [await w.metric(f'quire_worker_rank_failures_total{{why="{why}"}}')
                    for w in fleet.workers for why in ("died", "deadline", "rank")]
        expect(sum(failures) >= 4 and failures[0] >= 1, f"{failures}: each loss is counted by its reason")
        # While nothing runs it is seen as well.
        before, held = ranks_of(fleet.workers[1]), shared_memory(fleet.workers[1])
        os.kill(before[1], signal.SIGKILL)
        await back(fleet, fleet.workers[1], before, held)


def test_a_rank_that_dies_or_stops_costs_no_token_and_comes_back():
    asyncio.run(lost_ranks())


async def lost_emulated_ranks():
    bodies = requests(4, seed=26, max_tokens=12)
    async with Fleet(workers=2, worker_flags=EMULATED_RANKS, program=EMULATED) as fleet:
        wanted = await undisturbed(fleet, bodies)
        await lose(fleet, bodies, wanted, [(1, 0, signal.SIGKILL), (5, 1, signal.SIGKILL)])


def test_a_rank_of_the_emulated_device_that_dies_costs_no_token_and_comes_back():
    asyncio.run(lost_emulated_ranks())


async def leaving_workers():
    bodies = requests(4, seed=22, max_tokens=24)
    async with Fleet(workers=2, worker_flags=RANKS) as fleet:
        wanted = await undisturbed(fleet, bodies)
        first, second = (ranks_of(worker) for worker in fleet.workers)
        await fleet.workers[0].kill()
        await until(lambda: all(stat_of(pid) is None or stat_of(pid)[0] == "Z" for pid in first),
                    "ranks die with their worker")
        same(bodies, await all_of(fleet.router.port, bodies), wanted, "with the other worker")
        fleet.workers[1].signal(signal.SIGTERM)
        expect(await asyncio.to_thread(fleet.workers[1].process.wait) == 0, "it leaves in order")
        expect(all(stat_of(pid) is None for pid in second), "its ranks left before it")


def test_ranks_end_with_their_worker_however_it_ends():
    asyncio.run(leaving_workers())


async def backends():
    bodies = requests(8, seed=23, max_tokens=32)
    results = {}
    for dtype in ("float32", "fp8"):
        for backend in ("thread", "process"):
            flags = ("--tensor-parallel-size=2", f"--rank-backend={backend}", f"--kv-cache-dtype={dtype}")
            async with Fleet(workers=1, worker_flags=flags) as fleet:
                results[dtype, backend] = wanted = await undisturbed(fleet, bodies)
                # Again, now with what the cache holds, and one after the other: no neighbours.
                for body, answer in zip(bodies[:3], wanted):
                    same([body], await all_of(fleet.router.port, [body]), [answer], f"alone, {dtype}")
                await nothing_is_held(fleet)
        expect(results[dtype, "thread"] == results[dtype, "process"], f"threads and processes answer alike, {dtype}")
    expect(results["fp8", "thread"] != results["float32", "thread"], "fp8 pages are in use")


def test_ranks_as_threads_and_as_processes_answer_alike():
    asyncio.run(backends())


async def real_model():
    if not GEMMA.exists():
        pytest.skip(f"{GEMMA} is not there; ./dev model gemma3-270m fetches it")
    flags = ("--rank-backend=process", "--rank-timeout=10s", "--max-model-len=512", "--max-num-seqs=8",
             "--max-num-batched-tokens=256", "--kv-cache-memory-bytes=64MiB", "--served-model-name=gemma3-270m")
    bodies = [{**body, "model": "gemma3-270m"} for body in requests(4, seed=24, max_tokens=20)]
    begin = asyncio.get_running_loop().time()
    async with Fleet(workers=2, worker_flags=("--tensor-parallel-size=2", *flags), model=GEMMA) as fleet:
        print(f"two workers of two ranks were ready in {asyncio.get_running_loop().time() - begin:.1f} s")
        wanted = await undisturbed(fleet, bodies)
        halves = [memory_of(pid) for pid in ranks_of(fleet.workers[0])]
        loss = Loss(fleet, 3, 1, signal.SIGKILL)
        answers = await all_of(fleet.router.port, bodies, loss)
        same(bodies, answers, wanted, "a rank of the real model was killed at token 3")
        await fleet.until(lambda: fleet.router.metric(CARRIED) > 0, "streams were carried on")
        await loss.back()
        same(bodies, await all_of(fleet.router.port, bodies), wanted, "with the new ranks")
        await nothing_is_held(fleet)
    async with Fleet(workers=1, worker_flags=("--tensor-parallel-size=1", *flags), model=GEMMA) as fleet:
        await all_of(fleet.router.port, bodies)
        whole = memory_of(ranks_of(fleet.workers[0])[0])
    mebibytes = [round(n / 2**20) for n in (whole, *halves)]
    print(f"memory of a rank: {mebibytes[0]} MiB alone, {mebibytes[1:]} MiB of two")
    # Its half of the weights and of the pages; what is there whole is small.
    expect(max(halves) < 0.65 * whole, f"memory falls with the number of ranks: {mebibytes} MiB")


def test_real_model_on_two_ranks_loses_no_token_when_one_is_killed():
    asyncio.run(real_model())
