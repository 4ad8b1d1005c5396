"""Faults between and in real processes. One oracle: every stream has the tokens, text, logprobs and ends of the
undisturbed run; afterwards nothing is held anywhere.

With --record it writes what was measured, with the commit and the machine, to bench/results/faults.json.
"""
import asyncio
import os
import signal
import statistics
import time

import pytest

import record
from client import Answer, ask, constrained, requests
from fleet import Fleet
from harness import expect
from proxy import DOWN, UP
from tier import LONG, RECORD

FIGURES = {}  # by test: what it measured
CARRIED = "quire_router_carry_ons_total"
DEATHS = "quire_router_worker_deaths_total"
READY = 'quire_router_workers{phase="ready"}'


def note(what, text, **figures):
    FIGURES[what] = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    print(f"{what}: {text}", flush=True)


async def all_of(port, bodies, on_event=None):
    return await asyncio.gather(*(ask(port, body, on_event) for body in bodies))


async def undisturbed(fleet, bodies):
    answers = await all_of(fleet.router.port, bodies)
    for body, answer in zip(bodies, answers):
        expect(answer.done and not answer.error, f"{body}: {answer.error}")
    return [answer.result() for answer in answers]


def same(bodies, answers, wanted, what):
    for body, answer, result in zip(bodies, answers, wanted):
        expect(answer.error is None and answer.done, f"{what}: {body}: {answer.status} {answer.error}")
        expect(answer.result() == result, f"{what}: {body}: {answer.result()} != {result}")


async def nothing_is_held(fleet):
    await fleet.worker_metrics_are("quire_worker_pages_held", 0)
    await fleet.worker_metrics_are("quire_worker_running_rows", 0)
    await fleet.worker_metrics_are("quire_worker_waiting_requests", 0)
    for router in fleet.routers:
        await fleet.until(lambda: router.metric("quire_router_live_requests") == 0, "no request lives in the router")


def longest_gap(answers):
    gaps = [b - a for answer in answers for a, b in zip(answer.times, answer.times[1:])]
    return max(gaps, default=0)


def at_token(k, act):
    """An on_event that acts once, when some stream has k tokens."""
    state = {"done": False}

    def seen(answer):
        if not state["done"] and answer.count() >= k:
            state["done"] = True
            act()
    return seen


async def kill_at(fleet, worker, bodies, wanted, k):
    if k == 0:
        streams = asyncio.ensure_future(all_of(fleet.router.port, bodies))
        await asyncio.sleep(0.01)
        worker.signal(signal.SIGKILL)
        answers = await streams
    else:
        answers = await all_of(fleet.router.port, bodies, at_token(k, lambda: worker.signal(signal.SIGKILL)))
    same(bodies, answers, wanted, f"kill -9 at token {k}")
    await asyncio.to_thread(worker.process.wait)
    await worker.start()
    await fleet.until(lambda: fleet.router.metric(READY) == len(fleet.workers), "it is back")
    return longest_gap(answers)


async def killed_workers():
    bodies = requests(50, seed=1)
    async with Fleet(workers=2) as fleet:
        wanted = await undisturbed(fleet, bodies)
        ks = range(0, 33) if LONG else (0, 1, 2, 7, 19, 32)
        gaps = [await kill_at(fleet, fleet.workers[turn % 2], bodies, wanted, k) for turn, k in enumerate(ks)]
        await fleet.until(lambda: fleet.router.metric(CARRIED) > 0, "streams were carried on")
        note("kill -9", f"longest gap: median {statistics.median(gaps):.3f} s, worst {max(gaps):.3f} s",
             kills=len(gaps), streams=len(bodies), median_longest_gap_s=statistics.median(gaps),
             longest_gap_s=max(gaps))
        await nothing_is_held(fleet)


def test_kill_at_any_token_is_not_seen_by_any_of_fifty_streams():
    asyncio.run(killed_workers())


async def killed_in_mid_json():
    bodies = constrained(24, seed=8)
    async with Fleet(workers=2) as fleet:
        wanted = await undisturbed(fleet, bodies)
        ends = [reason for _, _, _, finish in wanted for reason in finish.values()]
        expect(ends.count("stop") > len(ends) / 2, f"most answers are whole: {ends}")
        for turn, k in enumerate(range(0, 60) if LONG else (0, 1, 9, 33)):
            await kill_at(fleet, fleet.workers[turn % 2], bodies, wanted, k)
        await fleet.until(lambda: fleet.router.metric(CARRIED) > 0, "streams were carried on")
        await nothing_is_held(fleet)


def test_kill_in_the_middle_of_a_constrained_answer_changes_no_byte():
    asyncio.run(killed_in_mid_json())


async def stopped_worker():
    bodies = requests(12, seed=2, max_tokens=900)
    async with Fleet(workers=2) as fleet:
        wanted = await undisturbed(fleet, bodies)
        stopped = []

        def stop(answer):
            if not stopped and answer.count() >= 3:
                stopped.append(fleet.worker_named(answer.worker))
                stopped[0].signal(signal.SIGSTOP)
        answers = await all_of(fleet.router.port, bodies, stop)
        worker = stopped[0]
        same(bodies, answers, wanted, "SIGSTOP")
        await fleet.until(lambda: fleet.router.metric(CARRIED) > 0, "streams moved")
        gap = longest_gap(answers)
        if LONG:
            await asyncio.sleep(30)
        worker.signal(signal.SIGCONT)  # its late tokens are of attempts that are not current
        await fleet.until(lambda: fleet.router.metric(READY) == 2, "it is back")
        same(bodies, await all_of(fleet.router.port, bodies), wanted, "after SIGCONT")
        note("SIGSTOP of a worker", f"longest gap {gap:.3f} s (silent after 2 s)", stopped_s=30 if LONG else 0,
             streams=len(bodies), longest_gap_s=gap)
        await nothing_is_held(fleet)


def test_streams_move_on_from_a_stopped_worker_and_its_late_tokens_are_dropped():
    asyncio.run(stopped_worker())


async def stopped_router():
    bodies = requests(20, seed=3, max_tokens=96)
    async with Fleet(workers=2) as fleet:
        wanted = await undisturbed(fleet, bodies)
        process = fleet.router.process
        stopped = asyncio.Event()

        def stop():
            process.signal(signal.SIGSTOP)
            stopped.set()
        streams = asyncio.ensure_future(all_of(fleet.router.port, bodies, at_token(2, stop)))
        await stopped.wait()
        seconds = 10 if LONG else 6
        await asyncio.sleep(seconds)  # longer than the 5 s after which workers give a router up
        before = len(process.lines)
        process.signal(signal.SIGCONT)
        same(bodies, await streams, wanted, "SIGSTOP of the router")
        expect(not any("silent" in line for line in process.lines[before:]), process.lines[before:])
        await fleet.until(lambda: fleet.router.metric(READY) == 2, "no worker is out")
        note("SIGSTOP of the router", f"{seconds} s, no stream lost", stopped_s=seconds, streams=len(bodies))
        await nothing_is_held(fleet)


def test_a_stopped_router_loses_no_stream_and_ejects_no_worker():
    asyncio.run(stopped_router())


async def nobody_left():
    body = requests(1, seed=4, max_tokens=8)[0]
    async with Fleet(workers=2) as fleet:
        wanted = await undisturbed(fleet, [body])
        await asyncio.gather(*(worker.kill() for worker in fleet.workers))
        begin = time.monotonic()
        answer = await ask(fleet.router.port, body)
        refused = time.monotonic() - begin
        expect(answer.status == 503, f"{answer.status} {answer.error}")
        await fleet.workers[0].start()
        # Asked at once: the request waits in a router that has not found the worker again yet.
        begin = time.monotonic()
        back = await ask(fleet.router.port, body)
        while back.status == 503 and time.monotonic() < begin + 60:
            back = await ask(fleet.router.port, body)
        same([body], [back], wanted, "service again")
        found = back.times[0] - begin
        note("both workers killed", f"503 after {refused:.2f} s; a first token {found:.2f} s after one was ready",
             refused_after_s=refused, served_after_s=found)


def test_with_both_workers_dead_the_answer_is_503_and_service_comes_back():
    asyncio.run(nobody_left())


async def drained_worker():
    bodies = requests(20, seed=5, max_tokens=400)
    async with Fleet(workers=2, worker_flags=("--drain-timeout=1s",)) as fleet:
        wanted = await undisturbed(fleet, bodies)
        worker = fleet.workers[0]
        answers = await all_of(fleet.router.port, bodies, at_token(2, lambda: worker.signal(signal.SIGTERM)))
        same(bodies, answers, wanted, "drain")
        expect(await asyncio.to_thread(worker.process.wait) == 0, worker.process.output())
        note("drain of a worker", f"longest gap {longest_gap(answers):.3f} s", streams=len(bodies),
             longest_gap_s=longest_gap(answers))
        await nothing_is_held(fleet)


def test_a_drained_worker_leaves_with_its_streams_finished_or_moved():
    asyncio.run(drained_worker())


async def resuming(fleet, body, turn, leaving):
    """A client that goes on with another router when its own was told to leave, and asks a second time for no other
    reason. The answer, and how often it moved."""
    had, moves = Answer(), 0
    while True:
        ports = [router.port for router in fleet.routers if router.port not in leaving]
        port = ports[turn % len(ports)]
        answer = await ask(port, body if not had.resume else {**body, "resume": {
            **had.resume, "outputs": [{"token_ids": had.tokens.get(i, [])} for i in range(body.get("n", 1))]}})
        for i, tokens in answer.tokens.items():
            had.tokens.setdefault(i, []).extend(tokens)
            had.texts[i] = had.texts.get(i, "") + answer.texts[i]
        for i, logprobs in answer.logprobs.items():
            had.logprobs.setdefault(i, []).extend(logprobs)
        had.resume = had.resume or answer.resume
        had.finish |= answer.finish
        had.status, had.error, had.done = answer.status, answer.error, answer.done
        if (answer.done and answer.error is None) or port not in leaving:
            return had, moves
        moves += 1


async def rolling_restart():
    bodies = requests(24, seed=6, max_tokens=64)
    async with Fleet(workers=3, routers=2, router_flags=("--drain-delay=0s", "--drain-timeout=1ms"),
                     worker_flags=("--drain-timeout=1s",)) as fleet:
        wanted = await undisturbed(fleet, bodies)
        stop, leaving, served, moved = asyncio.Event(), set(), 0, 0

        async def load(i):
            nonlocal served, moved
            turn = i
            while not stop.is_set():
                had, moves = await resuming(fleet, bodies[i], turn, leaving)
                same([bodies[i]], [had], [wanted[i]], "rolling restart")
                served, moved, turn = served + 1, moved + moves, turn + 1
        clients = [asyncio.ensure_future(load(i)) for i in range(len(bodies))]
        for worker in fleet.workers:
            await asyncio.sleep(0.3)
            worker.signal(signal.SIGTERM)
            expect(await asyncio.to_thread(worker.process.wait) == 0, worker.process.output())
            await worker.start()
            for router in fleet.routers:
                await fleet.until(lambda: router.metric(READY) == 3, "it is back")
        expect(moved == 0, "no client may have to ask again while workers restart")
        by_workers = served
        for i, router in enumerate(fleet.routers):
            await asyncio.sleep(0.3)
            leaving.add(router.port)
            router.process.signal(signal.SIGTERM)
            expect(await asyncio.to_thread(router.process.wait) == 0, router.process.output())
            fleet.routers[i] = await fleet.start_router()
            leaving.remove(router.port)
        stop.set()
        await asyncio.gather(*clients)
        expect(by_workers > 0 and moved > 0, f"{by_workers} answers, {moved} went on with another router")
        note("rolling restart", f"{by_workers} answers while 3 workers restarted, each asked for once; "
             f"{served - by_workers} while 2 routers did, {moved} times at another router; 0 failed",
             answers_while_workers=by_workers, answers_while_routers=served - by_workers, moved=moved, failed=0)
        await nothing_is_held(fleet)


def test_a_rolling_restart_under_load_fails_no_request():
    asyncio.run(rolling_restart())


async def leaving_router():
    bodies = [body for body in requests(12, seed=12, max_tokens=400) if body.get("n", 1) == 1]
    flags = ("--drain-delay=0s", "--drain-timeout=10ms")
    async with Fleet(workers=2, routers=2, router_flags=flags) as fleet:
        wanted = await undisturbed(fleet, bodies)
        leaving, gone = fleet.routers[0], []

        def at_eight(answer):
            if answer.count() >= 8 and not gone:
                gone.append(True)
                leaving.process.signal(signal.SIGTERM)
        first = await all_of(leaving.port, bodies, at_eight)
        expect(await asyncio.to_thread(leaving.process.wait) == 0, leaving.process.output())
        fleet.routers.pop(0)
        moved = 0
        for body, had, result in zip(bodies, first, wanted):
            if had.done:
                same([body], [had], [result], "ended in time")
                continue
            expect(had.error and had.error.get("code") == "unavailable", f"{body}: {had.status} {had.error}")
            if had.told_to_resume is None:
                expect(had.count() == 0, f"{body}: ended without a word of how to go on")
                continue
            moved += 1
            expect(had.told_to_resume == had.resume, f"{had.told_to_resume} {had.resume}")
            rest = await ask(fleet.router.port, {**body, "resume": {
                **had.told_to_resume, "outputs": [{"token_ids": had.tokens.get(0, [])}]}})
            expect(rest.done and had.tokens.get(0, []) + rest.tokens[0] == result[0][0], f"{body}: other tokens")
        expect(moved > 0, "all of them ended in time: nothing was tried")
        note("SIGTERM of a router", f"{moved} of {len(bodies)} streams told how to go on, and went on elsewhere",
             streams=len(bodies), moved=moved)
        await nothing_is_held(fleet)


def test_a_router_that_leaves_tells_its_streams_how_to_go_on_elsewhere():
    asyncio.run(leaving_router())


def began_on(fleet, worker, answers):
    return sum(fleet.worker_named(answer.worker) is worker for answer in answers)


async def crash_loop():
    bodies = requests(8, seed=7, max_tokens=24)
    async with Fleet(workers=2) as fleet:
        wanted = await undisturbed(fleet, bodies)
        crashing = fleet.workers[0]
        loop_ends, crashes = asyncio.Event(), [0]

        async def crash():
            while not loop_ends.is_set():
                await asyncio.sleep(0.05)
                await crashing.kill()
                crashes[0] += 1
                await crashing.start()
        looping = asyncio.ensure_future(crash())
        total = taken = before = 0
        end = time.monotonic() + (60 if LONG else 8)
        while time.monotonic() < end:
            # Each life is shorter than the time for which the router leaves out a worker that died twice.
            settled = fleet.router.metric(DEATHS) >= 2
            answers = await all_of(fleet.router.port, bodies)
            same(bodies, answers, wanted, "crash loop")
            here = began_on(fleet, crashing, answers)
            total, taken, before = (total + len(answers), taken + here, before) if settled else (total, taken, before + here)
        loop_ends.set()
        await looping
        expect(total >= 100, f"only {total} requests were sent after the second death")
        expect(taken <= total / 100, f"{taken} of {total} requests began on the crashing worker")
        note("crash loop", f"{crashes[0]} crashes; {before} requests began on the crashing worker before its second "
             f"death was known, {taken} of {total} after it", crashes=crashes[0], requests=total, began_there=taken,
             began_there_before=before)


async def left_out():
    bodies = requests(8, seed=7, max_tokens=24)
    async with Fleet(workers=2) as fleet:
        wanted = await undisturbed(fleet, bodies)
        crashing = fleet.workers[0]
        for deaths in (1, 2, 3):
            await crashing.kill()
            await fleet.until(lambda: fleet.router.metric(DEATHS) == deaths, f"death {deaths} is known")
            begin = time.monotonic()  # its time begins when it is back, later than this
            await crashing.start()
            await fleet.until(lambda: fleet.router.metric(READY) == 2, "it is back")
        used, end = None, begin + 60
        while used is None and time.monotonic() < end:
            answers = await all_of(fleet.router.port, bodies)
            same(bodies, answers, wanted, "after three deaths")
            if began_on(fleet, crashing, answers) > 0:
                used = time.monotonic() - begin
        expect(used is not None, "it is never used again")
        expect(used >= 2, f"it was used {used:.2f} s after its third death, before its 2 s were over")
        note("back-off after three deaths", f"used again after {used:.2f} s (left out for 2)", used_after_s=used)


def test_a_worker_that_died_three_times_is_left_out_for_two_seconds_and_used_again():
    asyncio.run(left_out())


def test_a_worker_that_crashes_again_and_again_hurts_nobody():
    asyncio.run(crash_loop())


async def bad_network(what, act, seconds, moves=True):
    bodies = requests(16, seed=8, max_tokens=300)
    async with Fleet(workers=2, proxied=True) as fleet:
        wanted = await undisturbed(fleet, bodies)
        ends, busy = asyncio.Event(), asyncio.get_running_loop().create_future()

        def first_tokens(answer):
            if answer.count() >= 2 and not busy.done():
                busy.set_result(fleet.proxies[fleet.workers.index(fleet.worker_named(answer.worker))])
        acting = asyncio.ensure_future(act(fleet, ends, busy))
        end = time.monotonic() + seconds
        rounds, worst = 0, 0.0
        while rounds == 0 or time.monotonic() < end:
            answers = await all_of(fleet.router.port, bodies, first_tokens)
            same(bodies, answers, wanted, what)
            worst = max(worst, longest_gap(answers))
            rounds += 1
        ends.set()
        await acting
        if moves:
            await fleet.until(lambda: fleet.router.metric(CARRIED) > 0, "streams moved")
        note(what, f"{rounds} rounds of {len(bodies)} streams, longest gap {worst:.2f} s", seconds=seconds,
             rounds=rounds, streams=len(bodies), longest_gap_s=worst)
        await nothing_is_held(fleet)


async def hold(ends, busy, direction):
    proxy = await busy  # before a worker that has streams
    proxy.held[direction] = True
    await ends.wait()
    proxy.held[direction] = False


async def reset_often(fleet, ends, _):
    while not ends.is_set():
        await asyncio.sleep(0.5)
        fleet.proxies[0].reset_all()


async def end_inside_frames(fleet, ends, _):
    while not ends.is_set():
        fleet.proxies[0].end_after_bytes = 3001
        await asyncio.sleep(0.7)


async def narrow(fleet, ends, _):
    for proxy in fleet.proxies:
        proxy.bytes_per_s = 125_000
    await ends.wait()


async def far_away(fleet, ends, _):
    for proxy in fleet.proxies:
        proxy.delay_s = 0.05
    await ends.wait()


def test_a_link_that_hears_nothing_is_left():
    asyncio.run(bad_network("worker's frames held", lambda f, e, b: hold(e, b, DOWN), 20 if LONG else 4))


def test_a_link_that_is_not_heard_is_left():
    asyncio.run(bad_network("router's frames held", lambda f, e, b: hold(e, b, UP), 20 if LONG else 8))


def test_a_link_that_is_reset_again_and_again():
    asyncio.run(bad_network("reset every 500 ms", reset_often, 60 if LONG else 4))


def test_a_link_that_ends_inside_frames():
    asyncio.run(bad_network("end inside a frame", end_inside_frames, 30 if LONG else 3))


def test_narrow_links():
    asyncio.run(bad_network("1 Mbit/s", narrow, 20 if LONG else 2, moves=False))


def test_far_links():
    asyncio.run(bad_network("50 ms each way", far_away, 20 if LONG else 2, moves=False))


async def leaving_clients():
    bodies = requests(6, seed=9, max_tokens=32)
    async with Fleet(workers=2) as fleet:
        wanted = await undisturbed(fleet, bodies)

        async def leave_after(body, seconds):
            task = asyncio.ensure_future(ask(fleet.router.port, {**body, "max_tokens": 500}))
            await asyncio.sleep(seconds)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        storm = 10_000 if LONG else 600
        at_once = asyncio.Semaphore(64)

        async def one(i):
            async with at_once:
                await leave_after(bodies[i % len(bodies)], (i % 10) * 0.004)
        leaving = asyncio.gather(*(one(i) for i in range(storm)))
        rounds = 0
        while rounds == 0 or not leaving.done():
            same(bodies, await all_of(fleet.router.port, bodies), wanted, "while others leave")
            rounds += 1
        await leaving
        note("clients that leave", f"{storm} left in all phases; {rounds} rounds beside them", clients=storm,
             rounds_beside=rounds)
        await nothing_is_held(fleet)


def test_clients_that_leave_free_everything_and_change_nothing_for_others():
    asyncio.run(leaving_clients())


async def slow_readers():
    body = requests(1, seed=10, max_tokens=16)[0]
    # Their windows are used up long before their answers end; together they could fill the pool.
    flags = ("--slow-client-timeout=2s",)
    async with Fleet(workers=1, router_flags=flags, worker_flags=("--kv-cache-memory-bytes=4MiB",)) as fleet:
        wanted = await undisturbed(fleet, [body])
        big = {**body, "max_tokens": 1000, "logprobs": 20, "temperature": 1}
        readers = [asyncio.ensure_future(ask(fleet.router.port, {**big, "seed": i}, bytes_per_s=1))
                   for i in range(100)]
        begin = time.monotonic()
        end = begin + 60
        while await fleet.workers[0].metric("quire_worker_windows_used_up_total") == 0:
            expect(time.monotonic() < end, "no reader was slow enough to be felt")
            await asyncio.sleep(0.05)
        same([body], [await ask(fleet.router.port, body)], wanted, "beside 100 slow readers")
        felt = time.monotonic() - begin
        note("100 readers of 1 byte/s", f"a window was used up after {felt:.1f} s", readers=len(readers),
             window_used_up_after_s=felt)
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        await nothing_is_held(fleet)


def test_a_normal_request_is_served_beside_a_hundred_readers_of_a_byte_a_second():
    asyncio.run(slow_readers())


def write_record(conditions):
    record.record("faults", {"model": "demo", "form": "long" if LONG else "normal",
                             "load_average_1m": round(os.getloadavg()[0], 1),
                             "workload": "tests/fault/faults_test.py; every answer equal to the undisturbed run",
                             "results": FIGURES}, conditions)


@pytest.fixture(scope="module", autouse=True)
def recorded(request):
    failed_before = request.session.testsfailed
    conditions = record.Run() if RECORD else None
    yield
    if RECORD and request.session.testsfailed == failed_before:
        write_record(conditions)
