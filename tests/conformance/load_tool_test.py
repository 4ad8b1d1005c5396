"""aiperf, unmodified, against a real router and worker that serve the demo model: it runs to its end, and its numbers agree
with each other and with what was asked for."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from harness import BIN, DEMO, ROOT, Process, expect

PACKAGE = "aiperf==0.13.0"  # about 1 GiB with what it needs
VENV = ROOT / ".cache" / "venv-aiperf"
AIPERF = VENV / "bin" / "aiperf"
REQUESTS, TOKENS, AT_ONCE = 48, 12, 4


@pytest.fixture
def aiperf():
    complete = VENV / ".complete"
    if complete.exists() and complete.read_text() == PACKAGE:
        return
    shutil.rmtree(VENV, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
    if subprocess.run([VENV / "bin" / "pip", "install", "-q", "--disable-pip-version-check", PACKAGE]).returncode != 0:
        pytest.skip(f"{PACKAGE} could not be fetched (no network?)")
    complete.write_text(PACKAGE)


def profile(url, folder):
    command = [AIPERF, "profile", "--model", "demo", "--url", url, "--endpoint-type", "chat", "--streaming",
               "--tokenizer", DEMO, "--concurrency", AT_ONCE, "--request-count", REQUESTS, "--isl", 40, "--osl", TOKENS,
               "--extra-inputs", "ignore_eos:true", "--use-server-token-count", "--random-seed", 7, "--ui", "none",
               "--artifact-dir", folder]
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
                          env={**os.environ, "HOME": str(folder)})
    expect(done.returncode == 0, done.stdout[-3000:])
    return json.loads((pathlib.Path(folder) / "profile_export_aiperf.json").read_text())


def test_a_load_runs_to_its_end_with_numbers_that_agree(aiperf):
    worker_command = [BIN / "quire-worker", "--model", DEMO, "--served-model-name=demo", "--listen=127.0.0.1:0", "--http-port=0"]
    with Process(worker_command) as worker, tempfile.TemporaryDirectory() as folder:
        wire = worker.wait_for_line("ready: ").split()[1]
        with Process([BIN / "quire-router", f"--worker={wire}", "--port=0", "--grpc-port=0", "--ready-fd=1"]) as router:
            port = json.loads(router.wait_for_line('"listen"'))["listen"].rsplit(":", 1)[1]
            report = profile(f"http://127.0.0.1:{port}", folder)
    value = {name: entry["avg"] for name, entry in report.items() if isinstance(entry, dict) and "avg" in entry}
    expect(report["is_complete"] and not report["error_summary"], report["error_summary"])
    expect(value["request_count"] == REQUESTS and value.get("request_error_rate", 0) == 0, value)
    expect(value["total_usage_completion_tokens"] == REQUESTS * TOKENS, value["total_usage_completion_tokens"])
    expect(0 < value["time_to_first_token"] <= value["request_latency"], value)
    told, seen = value["output_token_throughput"], REQUESTS * TOKENS / value["benchmark_duration"]
    expect(abs(told - seen) < 0.1 * seen, f"{told} tokens/s told, {seen} by its own duration")
    expect(value["request_throughput"] * value["request_latency"] / 1000 <= 1.1 * AT_ONCE, "more in flight than were let in")
    print(f"aiperf: {REQUESTS} requests, {AT_ONCE} at once: first token {value['time_to_first_token']:.1f} ms, "
          f"{told:.0f} tokens/s", flush=True)
