"""A router in front of mock workers: what it adds to a first token, requests/s, overload, many open streams.

Everything is told beside a bare gRPC server with the router's own messages (`router_echo`), loaded in the same run, the
two alternating; by the same client, except for the requests/s of streams over gRPC, where gRPC's client would be what is
measured. A run in which a token is not the one of its index is void.
"""
import os
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "process")]
from record import stolen_ms  # noqa: E402
from mock_fleet import Client, Echo, MockWorkers, Router, cpu_seconds, load  # noqa: E402

ROOMY = ("--max-live-requests=12000", "--max-connections=12000", "--max-queued-requests=12000")


def spread(values, digits=3):
    return {"median": round(statistics.median(values), digits), "min": round(min(values), digits),
            "max": round(max(values), digits), "n": len(values)}


def whole(result, what):
    if result["wrong_tokens"] or result["failed"]:
        raise SystemExit(f"{what}: {result['failed']} failed, {result['wrong_tokens']} with other tokens: void "
                         f"({result['error']})")
    return result


# Of the cores' time, in a run of a cycle that counts: one long stop of a virtual machine is a p99 of its own.
MOST_STOLEN = 0.05


def first_token(cycles, seconds):
    """Added time to first token at half of what 64 workers could do."""
    rows, tokens, step_ms = 4, 16, 40
    rate = 0.5 * 64 * rows / (tokens * step_ms / 1000)
    shape = {"rate": rate, "requests": int(rate * seconds), "max_tokens": tokens, "channels": 16, "prompt_tokens": 64}
    bare = {"p50": [], "p99": []}
    routed, added = ({way: {"p50": [], "p99": []} for way in ("gRPC", "HTTP")} for _ in range(2))
    stolen = {"bare": [], "gRPC": [], "HTTP": []}

    def run(options, seed):
        before = stolen_ms()
        row = whole(load(**options, **shape, **seed), "first token")["first_token_ms"]
        return row, stolen_ms() - before

    most_stolen_ms = MOST_STOLEN * seconds * 1000 * os.cpu_count()
    thrown = 0
    with MockWorkers(64, decode_ms=step_ms, max_num_seqs=rows) as mock, Echo(decode_ms=step_ms) as echo, \
            Router(mock.addresses) as router:
        ways = {"gRPC": {"target": router.grpc}, "HTTP": {"target": router.http, "http": True}}
        for options in ({"target": echo.grpc}, *ways.values()):  # connections, caches
            whole(load(**options, **{**shape, "requests": 200}), "warm-up")
        while len(bare["p50"]) < cycles:
            cycle = len(bare["p50"]) + thrown
            seed = {"first_seed": cycle * 10**6 + 1}
            rows_of = {way: run(options, seed) for way, options in {"bare": {"target": echo.grpc}, **ways}.items()}
            took = ", ".join(f"{ms:.0f}" for _, ms in rows_of.values())
            if max(ms for _, ms in rows_of.values()) > most_stolen_ms and thrown < 3 * cycles:
                thrown += 1
                print(f"cycle {cycle + 1}: thrown away, the host took {took} ms", flush=True)
                continue
            hop = rows_of["bare"][0]
            said = f"cycle {cycle + 1}: bare hop p50 {hop['p50']:.2f} p99 {hop['p99']:.2f} ms"
            for way in ways:
                ours = rows_of[way][0]
                for q in ("p50", "p99"):
                    routed[way][q].append(ours[q])
                    added[way][q].append((ours[q] - hop[q]) / hop[q])
                said += (f"; {way} through the router {ours['p50']:.2f} and {ours['p99']:.2f}, "
                         f"{added[way]['p50'][-1]:.2f} and {added[way]['p99'][-1]:.2f} hops more")
            for q in ("p50", "p99"):
                bare[q].append(hop[q])
            for way, (_, ms) in rows_of.items():
                stolen[way].append(ms)
            print(f"{said}; the host took {took} ms", flush=True)
    return {"workload": f"64 mock workers of {rows} rows, {rate:.0f} requests/s at random times, {tokens} tokens of "
                        f"{step_ms} ms each, prompts of 64 ids; gRPC clients ask for joined_events; all on "
                        f"{os.cpu_count()} cores",
            "bare hop ms": {q: spread(v) for q, v in bare.items()},
            "through the router ms": {way: {q: spread(v) for q, v in row.items()} for way, row in routed.items()},
            "added, in bare hops": {way: {q: spread(v) for q, v in row.items()} for way, row in added.items()},
            "time that the host took, ms of all cores": {way: spread(v, 0) for way, v in stolen.items()},
            f"cycles thrown away, where it took over {MOST_STOLEN:.0%} in a run": thrown}


def requests_per_second(cycles, requests):
    """Short requests, as many as go: the server at hand alone on core 0, all else on the others."""
    alone, others = ("0", f"1-{os.cpu_count() - 1}") if os.cpu_count() > 1 else (None, None)
    shape = {"concurrency": 64, "channels": 16}
    bare = "bare unary gRPC"  # by gRPC's own client: with the other one it serves less
    with MockWorkers(8, cores=others, decode_ms=5) as mock, Echo(cores=alone) as echo, \
            Router(mock.addresses, cores=alone) as router:
        cases = {bare: (echo.grpc, echo, {"unary": True, "requests": 4 * requests}),
                 f"{bare}, without gRPC's library": (echo.grpc, echo,
                                                     {"unary": True, "requests": 4 * requests, "http2": True}),
                 "HTTP, one piece": (router.http, router.process, {"http": True, "unary": True}),
                 "HTTP, events": (router.http, router.process, {"http": True}),
                 "gRPC": (router.grpc, router.process, {"http2": True})}
        cases = {name: (target, process, {"max_tokens": 1, "requests": requests, **options})
                 for name, (target, process, options) in cases.items()}
        table = {name: {"requests/s": [], "cpu us per request": []} for name in cases}
        ratios = {name: {"ratio": [], "by processor time of the server": []} for name in cases
                  if not name.startswith(bare)}
        for target, _, options in cases.values():
            load(target, cores=others, **shape, **{**options, "requests": 500})
        for cycle in range(cycles):
            said = f"cycle {cycle + 1}:"
            for name, (target, process, options) in cases.items():
                before = cpu_seconds(process)
                row = whole(load(target, cores=others, **shape, **options), name)
                speed, cost = table[name]["requests/s"], table[name]["cpu us per request"]
                speed.append(row["requests_per_second"])
                cost.append((cpu_seconds(process) - before) * 1e6 / options["requests"])
                said += f" {name} {speed[-1]:.0f} requests/s, {cost[-1]:.0f} us"
                if name.startswith(bare):
                    continue
                ratios[name]["ratio"].append(speed[-1] / table[bare]["requests/s"][-1])
                ratios[name]["by processor time of the server"].append(table[bare]["cpu us per request"][-1] / cost[-1])
                said += f" ({ratios[name]['ratio'][-1]:.3f}, {ratios[name]['by processor time of the server'][-1]:.3f})"
            print(said, flush=True)
    return {"workload": "64 callers without a pause, prompts of 16 ids, one token each, 8 mock workers; the server "
                        "alone on one core, callers and mock workers on the rest; gRPC clients ask for joined_events; "
                        "streams come from a client without gRPC's library, which would fill the callers' core first",
            **{name: {key: spread(v, 1) for key, v in row.items()} for name, row in table.items()},
            "over bare unary gRPC": {name: {key: spread(v) for key, v in row.items()} for name, row in ratios.items()}}


def overload(cycles, seconds):
    """Ten times what the workers can do: what is still completed, and how soon the others are told."""
    workers, rows, tokens, step_ms = 4, 4, 16, 10
    rate = workers * rows / (tokens * step_ms / 1000)
    goodput, told, capacities = [], [], []
    refusal = {"p50": [], "p99": []}
    with MockWorkers(workers, decode_ms=step_ms, max_num_seqs=rows, max_waiting=8) as mock, \
            Router(mock.addresses, "--max-queued-requests=128") as router:
        for cycle in range(cycles):
            capacity = whole(load(router.grpc, concurrency=3 * workers * rows, requests=int(rate * 4),
                                  max_tokens=tokens), "capacity")["requests_per_second"]
            row = load(router.grpc, rate=10 * rate, requests=int(10 * rate * seconds), max_tokens=tokens, channels=16)
            if row["wrong_tokens"] or set(row["failed_by_status"]) - {"14"}:
                raise SystemExit(f"overload: refused otherwise than UNAVAILABLE, or other tokens: void ({row})")
            capacities.append(capacity)
            goodput.append(row["completed_per_second_under_load"] / capacity)
            told.append(row["told_when_to_come_back"] / max(1, row["failed"]))
            for q in refusal:
                refusal[q].append(row["refusal_ms"][q])
            print(f"cycle {cycle + 1}: {row['completed_per_second_under_load']:.0f} of {capacity:.0f} requests/s, "
                  f"{goodput[-1]:.3f}; {row['failed']} refused after {refusal['p50'][-1]:.2f} ms, p99 "
                  f"{refusal['p99'][-1]:.2f}, {100 * told[-1]:.1f} % with a time to come back", flush=True)
    return {"workload": f"{workers} mock workers of {rows} rows, {10 * rate:.0f} requests/s at random times of {tokens} "
                        f"tokens; --max-queued-requests=128",
            "capacity requests/s": spread(capacities, 1), "goodput over capacity": spread(goodput),
            "time to refusal ms": {q: spread(v) for q, v in refusal.items()},
            "refusals with a time to come back": spread(told)}


STEPS = {"in step": {}, "steps spread": {"spread_steps": True}}


def open_streams(streams, workers, rate, tokens):
    """Many slow streams at once: memory of each, how old a token is when its reader has it.

    The bare server writes what the workers write: as many groups of tokens, of the same sizes, at the same times.
    """
    shape = {"requests": streams, "rate": rate, "max_tokens": tokens, "channels": max(4, streams // 100),
             "stamps": True, "timeout_s": 300}
    result = {"workload": f"{streams} streams of a token a second through {workers} mock workers, all of which step "
                          "within a tenth of a second (in step) or evenly over it (steps spread); gRPC 100 to a "
                          "connection, HTTP a connection each; the bare server's groups write at the same times"}
    for steps, options in STEPS.items():
        pace = {"decode_ms": 1000, "stamps": True, **options}
        with Echo(groups=workers, **pace) as echo:
            bare = whole(load(echo.grpc, **shape), "bare streams")["age_ms"]
        within_stamps(bare)
        row = result[steps] = {"bare: age of a token ms": ages(bare)}
        for way in ("gRPC", "HTTP"):
            with MockWorkers(workers, **pace) as mock, Router(mock.addresses, *ROOMY) as router:
                row[way] = streams_open(router, way, shape)
            row[way]["age of a token, added ms"] = {q: round(row[way]["age of a token ms"][q] - bare[q], 2)
                                                    for q in ("p50", "p99")}
            print(f"{streams} streams over {way}, {steps} (bare: tokens {bare['p50']:.1f} ms old, p99 {bare['p99']:.1f}): "
                  f"{row[way]}", flush=True)
    return result


def within_stamps(row):
    """A stamp begins again after 1.7 s: ages near to that would be read as young ones."""
    if row["p99"] > 1500:
        raise SystemExit(f"open streams: tokens {row['p99']:.0f} ms old, more than stamps can say: void")


def ages(row):
    return {q: round(row[q], 2) for q in ("p50", "p99")}


def streams_open(router, way, shape):
    target = {"target": router.http, "http": True} if way == "HTTP" else {"target": router.grpc}
    probes = {**target, "rate": 20, "max_tokens": 1, "channels": 4, "requests": 100, "stamps": True}
    live = "quire_router_live_requests"
    calm = whole(load(**probes), "calm")["first_token_ms"]
    before = router.memory()
    with Client(**target, **shape) as client:
        client.wait_for_line('"open"')
        during = router.memory()
        if router.metric(live) != shape["requests"]:
            raise SystemExit("open streams: some ended before all were open: void")
        beside = whole(load(**probes), "beside")["first_token_ms"]
        ours = whole(client.result(300), "streams")["age_ms"]
    within_stamps(ours)
    router.wait_until(lambda: router.metric(live) == 0, "nothing is left")
    return {"KiB of each open stream": round((during - before) * 1024 / shape["requests"], 1),
            "resident MiB": {"before": round(before, 1), "all open": round(during, 1),
                             "after": round(router.memory(), 1)},
            "age of a token ms": ages(ours), "first token ms": {"calm": ages(calm), "beside them": ages(beside)}}


def cancel_storm(requests):
    """Callers that give up before the first token and after each of seven, while others read on."""
    with MockWorkers(8, decode_ms=5) as mock, Router(mock.addresses, *ROOMY) as router:
        before = router.memory()
        with Client(router.grpc, requests=1000, concurrency=20, max_tokens=30, first_seed=10**6) as others:
            gone = load(router.grpc, requests=requests, concurrency=200, max_tokens=100, channels=16, cancel_percent=100)
            whole(others.result(), "others")
        router.wait_until(lambda: router.metric("quire_router_live_requests") == 0 and
                          mock.metric("mock_held_blocks") == 0, "nothing is left")
        print(f"{gone['cancelled']} given up in {gone['seconds']:.1f} s", flush=True)
        return {"given up": gone["cancelled"], "seconds": round(gone["seconds"], 1),
                "resident MiB": {"before": round(before, 1), "after": round(router.memory(), 1)}}
