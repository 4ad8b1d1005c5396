"""Many streams through one router, on mock workers paced by a timer: token-identical, and nothing is left of them.

What mock workers write at each index is a rule that the client knows, so that every stream is held to it whichever
workers wrote it. With --long: 10,000 streams and a storm of 10,000.
"""
import asyncio
import json
import signal
import socket
import time

from harness import Failure, expect
from mock_fleet import Client, MockWorkers, Router, load
from proxy import FaultProxy
from tier import LONG

LIVE, JOURNAL = "quire_router_live_requests", "quire_router_journal_bytes"
ROOMY = ("--max-live-requests=12000", "--max-connections=12000", "--max-queued-requests=12000")


def nothing_is_left(router, workers):
    router.wait_until(lambda: router.metric(LIVE) == 0 and router.metric(JOURNAL) == 0, "the router holds no request")
    router.wait_until(lambda: workers.metric("mock_held_blocks") == 0 and workers.metric("mock_live_requests") == 0,
                      "workers hold no block")
    wrong = router.metric('quire_router_cache_predictions_total{verdict="wrong"}')
    expect(wrong == 0, f"{wrong} predictions of caches were wrong")


def all_well(result, count):
    expect(result["complete"] == count and result["wrong_tokens"] == 0, f"of {count} streams: {result}")


def many_streams(http):
    streams, workers, rate = (10_000, 64, 1000) if LONG else (300, 8, 300)
    with MockWorkers(workers, decode_ms=1000 if LONG else 50) as mock, Router(mock.addresses, *ROOMY) as router:
        target = router.http if http else router.grpc
        all_well(load(target, http=http, requests=50, concurrency=50), 50)
        before = router.memory()
        with Client(target, http=http, requests=streams, rate=rate, max_tokens=60,
                    channels=max(4, streams // 100)) as client:
            client.wait_for_line('"open"')
            router.wait_until(lambda: router.metric(LIVE) == streams, f"all {streams} open streams live")
            during = router.memory()
            all_well(client.result(), streams)
        nothing_is_left(router, mock)
        print(f"{streams} streams over {'HTTP' if http else 'gRPC'}: {(during - before) * 1024 / streams:.1f} KiB each; "
              f"resident {before:.1f}, {during:.1f} and then {router.memory():.1f} MiB")


def test_many_streams_over_grpc_are_complete_and_leave_nothing():
    many_streams(http=False)


def test_many_streams_over_http_are_complete_and_leave_nothing():
    many_streams(http=True)


def storm(http):
    leaving, beside = (10_000, 2000) if LONG else (1000, 100)
    with MockWorkers(8, decode_ms=5) as mock, Router(mock.addresses, *ROOMY) as router:
        target = router.http if http else router.grpc
        with Client(target, http=http, requests=beside, concurrency=20, max_tokens=30, first_seed=10**6) as others:
            gone = load(target, http=http, requests=leaving, concurrency=200, max_tokens=100, channels=16,
                        cancel_percent=100)
            all_well(others.result(), beside)
        expect(gone["cancelled"] == leaving and gone["wrong_tokens"] == 0, f"{gone}")
        nothing_is_left(router, mock)
        all_well(load(target, http=http, requests=20, concurrency=20), 20)


def test_a_storm_of_cancels_over_grpc_frees_everything_and_changes_nothing_for_others():
    storm(http=False)


def test_a_storm_of_clients_that_leave_over_http_frees_everything_and_changes_nothing_for_others():
    storm(http=True)


def test_with_every_worker_killed_clients_hear_so_soon_and_are_served_again():
    flags = ("--empty-pool-wait=1s",)
    workers = [MockWorkers(1, decode_ms=20) for _ in range(2)]
    try:
        with Router([w.addresses[0] for w in workers], *flags) as router:
            with Client(router.grpc, requests=40, concurrency=40, max_tokens=2000) as client:
                client.wait_for_line('"open"')
                for worker in workers:
                    worker.signal(signal.SIGKILL)
                result = client.result()
            expect(result["failed_by_status"] == {"14": 40}, f"not UNAVAILABLE: {result}")
            refused = load(router.grpc, requests=10, concurrency=10)
            expect(refused["failed_by_status"] == {"14": 10}, f"not UNAVAILABLE: {refused}")
            expect(refused["told_when_to_come_back"] == 10, f"without a time to come back: {refused}")
            begin = time.monotonic()
            workers.append(MockWorkers(1, ports=workers[0].ports))
            while load(router.grpc, requests=1, concurrency=1)["complete"] == 0:
                if time.monotonic() > begin + 60:
                    raise Failure("no service after a worker came back")
            print(f"refused after {refused['refusal_ms']['max'] / 1000:.2f} s at most; "
                  f"served {time.monotonic() - begin:.2f} s after a worker was started again")
            router.wait_until(lambda: router.metric(LIVE) == 0 and router.metric(JOURNAL) == 0, "nothing is left")
    finally:
        for worker in workers:
            worker.close()


def slow_reader(router, body):
    """A connection that has asked, and has room for little of the answer."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", router.port))
    client.settimeout(60)
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                   b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    return client


def test_a_leaving_router_gives_slow_readers_until_its_deadline():
    body = json.dumps({"model": "mock", "prompt": "a", "n": 8, "max_tokens": 6000, "ignore_eos": True}).encode()
    with MockWorkers(1, decode_ms=0.2) as mock, Router(mock.addresses, "--drain-timeout=7s") as router:
        late, never = slow_reader(router, body), slow_reader(router, body)
        router.wait_until(lambda: router.metric("quire_router_admitted_requests_total") == 2, "both have been let in")
        router.wait_until(lambda: router.metric(LIVE) == 0, "both answers are written")
        router.process.signal(signal.SIGTERM)
        begin = time.monotonic()
        time.sleep(4)  # longer than what an answer that has ended is given anyway
        expect(router.process.child.poll() is None, "the router left before its deadline")
        said = b""
        while piece := late.recv(1 << 20):
            said += piece
        answer = json.loads(said.split(b"\r\n\r\n", 1)[1])
        expect([c["finish_reason"] for c in answer["choices"]] == ["length"] * 8, "a choice has not ended")
        expect(router.process.wait() == 0, "the router left with an error")
        took = time.monotonic() - begin
        expect(took > 6.5, f"left after {took:.1f} s with a reader that had not read yet")
        never.close()


async def queued_behind_a_proxy():
    idle, queued, flags = (20, 40, ()) if LONG else (2, 5, ("--sse-commit-after=300ms", "--stream-keep-alive=300ms"))
    with MockWorkers(1, decode_ms=1000, max_num_seqs=1) as mock, Router(mock.addresses, *flags) as router:
        proxies = [await FaultProxy(int(target.rsplit(":", 1)[1])).start() for target in (router.http, router.grpc)]
        for proxy in proxies:
            proxy.idle_s = idle
        with Client(router.grpc, requests=1, max_tokens=queued) as busy:
            await asyncio.to_thread(busy.wait_for_line, '"open"')
            silent, writer = await asyncio.open_connection("127.0.0.1", proxies[0].port)
            writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await silent.readuntil(b"\r\n\r\n")
            begin = time.monotonic()
            ways = [{"target": f"127.0.0.1:{proxies[0].port}", "http": True}, {"target": f"127.0.0.1:{proxies[1].port}"}]
            if LONG:  # a client may ping every ten seconds
                ways.append({"target": router.grpc, "keepalive_ms": 10_000})
            waiting = [asyncio.to_thread(load, requests=1, max_tokens=2, timeout_s=300, **way) for way in ways]
            cut = asyncio.ensure_future(silent.read())
            for result in await asyncio.gather(*waiting):
                all_well(result, 1)
            expect(cut.done(), "the proxy cut nothing: it says nothing of streams that lived")
            expect(time.monotonic() - begin > idle, "nothing was queued for longer than the proxy waits")
            all_well(await asyncio.to_thread(busy.result), 1)
        for proxy in proxies:
            await proxy.close()


def test_a_queued_stream_outlives_the_idle_timeout_of_a_proxy():
    asyncio.run(queued_behind_a_proxy())
