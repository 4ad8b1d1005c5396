"""Honest streams beside 100 hostile connections: what they lose, and what the router comes to hold.

The hostile connections send at a stated rate to the router and, taking turns, to a program that only reads: what the
second costs the streams is the machine's, not the router's.
"""
import json
import pathlib
import re
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "process"), str(ROOT / "tests" / "attack")]
from harness import Process  # noqa: E402
from mock_fleet import Client, MockWorkers, Router  # noqa: E402

STREAMS, STEP_MS, CONNECTIONS, RATE = 16, 40, 100, 64 << 10
ACCOUNT = 256 << 20  # --max-client-memory-bytes
FLOOD = [sys.executable, ROOT / "tests" / "attack" / "flood.py"]


def memory(router, name):
    status = pathlib.Path(f"/proc/{router.process.child.pid}/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status).group(1)) / 1024


def port(address):
    return int(address.rsplit(":", 1)[1])


def beside(router, target, seconds):
    """16 streams of `seconds` while the flood goes to `target`."""
    tokens = int(seconds * 1000 / STEP_MS)
    with Process([*FLOOD, *target, f"--connections={CONNECTIONS}", f"--bytes-per-second={RATE}", f"--seconds={seconds + 2}"]) as flood:
        with Client(router.http, http=True, requests=STREAMS, concurrency=STREAMS, channels=STREAMS, max_tokens=tokens,
                    prompt_tokens=16) as client:
            honest = client.result()
        flood.wait(60)
        return honest, json.loads(flood.lines[-1])


def cycle(seconds):
    with MockWorkers(1, decode_ms=STEP_MS, max_num_seqs=64) as mock, Process([*FLOOD, "--serve-sink"]) as sink, \
            Router(mock.addresses, f"--max-client-memory-bytes={ACCOUNT}") as router:
        sink_port = json.loads(sink.wait_for_line('"sink"'))["sink"]
        beside(router, [f"--sink={sink_port}"], 1)  # connections, caches
        idle = memory(router, "VmRSS")
        quiet, quiet_flood = beside(router, [f"--sink={sink_port}"], seconds)
        hostile, flood = beside(router, [f"--http={port(router.http)}", f"--grpc={port(router.grpc)}"], seconds)
        return {"gap p99 ms, bytes to a sink": quiet["gap_ms"]["p99"], "gap p99 ms, bytes to the router": hostile["gap_ms"]["p99"],
                "gap ratio": hostile["gap_ms"]["p99"] / quiet["gap_ms"]["p99"],
                "streams lost": hostile["requests"] - hostile["complete"], "wrong tokens": hostile["wrong_tokens"],
                "resident MiB idle": idle, "resident MiB at the peak": memory(router, "VmHWM"),
                "peak over idle and account": memory(router, "VmHWM") / (idle + ACCOUNT / (1 << 20)),
                "MB/s sent": flood["bytes sent"] / seconds / 1e6, "MB/s sent to the sink": quiet_flood["bytes sent"] / seconds / 1e6,
                "connections closed": flood["connections closed by the server"]}


def run(cycles, seconds):
    rows = []
    for number in range(cycles):
        rows.append(cycle(seconds))
        print(f"cycle {number + 1}: {json.dumps({k: round(v, 2) for k, v in rows[-1].items()})}", flush=True)
    def spread(values):
        return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2),
                "n": len(values)}
    return {"workload": f"{STREAMS} streams of tokens every {STEP_MS} ms beside {CONNECTIONS} hostile connections that send "
                        f"{RATE >> 10} KiB/s each, every attack of tests/attack/flood.py in turn; account of "
                        f"{ACCOUNT >> 20} MiB",
            "results": {key: spread([row[key] for row in rows]) for key in rows[0]}}
