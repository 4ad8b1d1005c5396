"""Our server against llama.cpp's over HTTP: tokens/s, first token, gaps, and the processor seconds of a thousand tokens."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "process")]
from harness import BIN, Process, Server, free_port, wait_until  # noqa: E402

STREAMS = (1, 8, 32)
PROMPT, ANSWER = 128, 128
TICKS = os.sysconf("SC_CLK_TCK")
FIGURES = ("tokens_per_second", "first_token_ms_p50", "gap_ms_p50", "gap_ms_p99", "processor s per 1,000 tokens")


def processor_seconds(pid):
    """Of a process and all its children, the ended ones too."""
    total, children = 0.0, {}
    stats = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                stats[int(entry.name)] = sum(map(int, fields[11:15])) / TICKS
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        total += stats.get(one, 0)
        waiting += children.get(one, [])
    return total


@contextlib.contextmanager
def ours(model, streams):
    with Server(f"--max-num-seqs={streams}", model=str(model)) as server:
        yield server.port, server.model, server.process.child.pid
        server.stop()


@contextlib.contextmanager
def theirs(folder, model, streams, flash):
    """A slot for each stream, and room in each for a whole request."""
    port = free_port()
    command = [folder / "llama-server", "-m", model, "--port", port, "-t", os.cpu_count(), "-np", streams,
               "-c", streams * (PROMPT + ANSWER + 64), "-fa", "on" if flash else "off", "--no-webui"]
    with Process([str(c) for c in command]) as process:
        wait_until(lambda: subprocess.run(["curl", "-sf", f"http://127.0.0.1:{port}/health"],
                                          stdout=subprocess.DEVNULL).returncode == 0, "llama-server answers")
        yield port, "any", process.child.pid


def load(server, streams, seed):
    port, name, pid = server
    before = processor_seconds(pid)
    requests = max(4, 2 * streams) if streams < 32 else streams
    done = subprocess.run([str(BIN / "load_generator"), f"--url=http://127.0.0.1:{port}", f"--model={name}",
                           f"--streams={streams}", f"--requests={requests}", f"--first-seed={seed}",
                           f"--prompt-tokens={PROMPT}", f"--max-tokens={ANSWER}"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"load_generator: {done.stdout[-500:]}{done.stderr[-500:]}")
    row = json.loads(done.stdout)
    row["processor s per 1,000 tokens"] = 1000 * (processor_seconds(pid) - before) / row["tokens"]
    return row


def run(folder, model, cycles, spread):
    """Both servers stay up and take turns; the peer has its better setting of flash attention."""
    table = {}
    for streams in STREAMS:
        with contextlib.ExitStack() as stack:
            mine = stack.enter_context(ours(model, streams))
            peers = [stack.enter_context(theirs(folder, model, streams, flash)) for flash in (True, False)]
            tried = [load(peer, streams, 1_000_000)["tokens_per_second"] for peer in peers]
            peer = peers[tried.index(max(tried))]
            load(mine, streams, 1_000_000)
            rows = []
            for cycle in range(cycles):
                pair = [load(one, streams, 10_000 * (cycle + 1)) for one in ((mine, peer) if cycle % 2 else (peer, mine))]
                rows.append(pair if cycle % 2 else pair[::-1])
                print(f"{model.name}, {streams} streams, cycle {cycle + 1}: "
                      f"{rows[-1][0]['tokens_per_second']:.1f} and {rows[-1][1]['tokens_per_second']:.1f} tokens/s", flush=True)
        table[f"{streams} streams"] = {
            "llama-server flash attention": tried.index(max(tried)) == 0,
            **{figure: {"quire": spread([a[figure] for a, _ in rows]), "llama-server": spread([b[figure] for _, b in rows]),
                        "ratio": spread([a[figure] / b[figure] for a, b in rows])} for figure in FIGURES}}
    return table
