"""Adapters and kill -9: each answer goes on, to the byte, with the adapter that began it, or ends; never with another one,
and never without it."""
import asyncio
import signal

import lora
from client import requests
from faults_test import CARRIED, READY, all_of, kill_at, nothing_is_held, same, undisturbed
from fleet import Fleet
from harness import DEMO, expect

NAMES = ("demo", "first", "demo:second")


def flags(folder, **seeds):
    """The worker's flags for adapters of these names, each made from its seed."""
    made = [f"--lora-modules={name}={lora.make(DEMO, folder / f'{name}-{seed}', seed)}" for name, seed in seeds.items()]
    return ("--enable-lora", f"--max-loras={len(made)}", *made)


def mixed(count, seed, **more):
    """The same prompts under each name, so that blocks of one would fit the others but for their root."""
    return [{**body, "model": name} for body in requests(count, seed, **more) for name in NAMES]


async def kills(folder):
    bodies = mixed(8, seed=41)
    held = flags(folder, first=1, second=2)
    async with Fleet(workers=1, worker_flags=held) as alone:
        wanted = await undisturbed(alone, bodies)
        for i in range(0, len(bodies), len(NAMES)):
            tokens = [str(wanted[i + k][0]) for k in range(len(NAMES))]
            expect(len(set(tokens)) == len(NAMES), f"{bodies[i]}: the adapters have answers of their own")
        same(bodies, await all_of(alone.router.port, bodies), wanted, "with what the first time left in the cache")
    async with Fleet(workers=1) as plain:
        only = [body for body in bodies if body["model"] == "demo"]
        theirs = [result for body, result in zip(bodies, wanted) if body["model"] == "demo"]
        same(only, await all_of(plain.router.port, only), theirs, "without adapters beside them")
    async with Fleet(workers=2, worker_flags=held) as fleet:
        for turn, k in enumerate((0, 1, 7, 19)):
            await kill_at(fleet, fleet.workers[turn % 2], bodies, wanted, k)
        await fleet.until(lambda: fleet.router.metric(CARRIED) > 0, "streams were carried on")
        await nothing_is_held(fleet)


def test_streams_of_adapters_outlive_their_workers_to_the_byte(tmp_path):
    asyncio.run(kills(tmp_path))


async def other_content(folder):
    """Two workers, one of which has another adapter under the same name: an update that is half done."""
    bodies = [{**body, "model": "first"} for body in requests(12, seed=43, max_tokens=200)]
    wanted = {}  # By what the client is told of who answers it.
    for seed in (1, 2):
        async with Fleet(workers=1, worker_flags=flags(folder, first=seed)) as alone:
            answers = await all_of(alone.router.port, bodies)
            wanted[answers[0].resume["model_id"]] = [answer.result() for answer in answers]
    doomed, spared = wanted
    expect(doomed != spared and wanted[doomed] != wanted[spared], f"two adapters: {doomed}, {spared}")
    fleet = Fleet(workers=2)
    fleet.workers[0].flags = flags(folder, first=1)
    fleet.workers[1].flags = flags(folder, first=2)
    async with fleet:
        killed = []

        def kill(answer):
            if not killed and answer.resume.get("model_id") == doomed and answer.count() >= 5:
                killed.append(answer)
                fleet.workers[0].signal(signal.SIGKILL)
        answers = await all_of(fleet.router.port, bodies, kill)
        expect(killed, "the first worker had some of them")
        lost = 0
        for i, answer in enumerate(answers):
            if not answer.resume:  # It had not begun.
                expect(answer.error is not None, f"{bodies[i]}: no answer and no error")
                continue
            whole, told = wanted[answer.resume["model_id"]][i], answer.result()
            if answer.error is None:
                expect(told == whole, f"{bodies[i]}: {told} != {whole}")
                continue
            lost += 1
            expect(answer.resume["model_id"] == doomed, f"its worker lives: {answer.error}")
            for choice, tokens in answer.tokens.items():
                expect(tokens == whole[0][choice][:len(tokens)], f"{bodies[i]}: {tokens} != {whole[0][choice]}")
        expect(lost > 0, "what the dead worker had begun ends in an error")
        await asyncio.to_thread(fleet.workers[0].process.wait)
        await fleet.workers[0].start()
        await fleet.until(lambda: fleet.router.metric(READY) == 2, "it is back")
        await nothing_is_held(fleet)


def test_an_answer_never_goes_on_with_another_adapter_of_the_same_name(tmp_path):
    asyncio.run(other_content(tmp_path))
