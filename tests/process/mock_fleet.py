"""A real router in front of mock workers, and the client that loads it: for what needs many workers or streams."""
import json
import pathlib
import re
import subprocess
import sys
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import BIN, Failure, Process, RouterUnderTest, expect, metric_in  # noqa: E402


def flags(options):
    return [f"--{name.replace('_', '-')}={str(value).lower() if isinstance(value, bool) else value}"
            for name, value in options.items()]


def pinned(command, cores):
    return command if cores is None else ["taskset", "-c", cores, *command]


class MockWorkers(Process):
    """All in one process; `ports` and `http` say where they are."""

    def __init__(self, count, cores=None, ports=(), **options):
        super().__init__(pinned([BIN / "mock_workers", f"--workers={count}", f"--text={BIN.parents[1]}/models/demo",
                                 *(f"--port={p}" for p in ports), *flags(options)], cores))
        said = json.loads(self.wait_for_line('"workers"'))
        self.addresses, self.http = said["workers"], said["http"]
        self.ports = [a.rsplit(":", 1)[1] for a in self.addresses]

    def metric(self, name):
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            return metric_in(answer.read().decode(), name)


class Echo(Process):
    """The bare hop."""

    def __init__(self, cores=None, **options):
        super().__init__(pinned([BIN / "router_echo", *flags(options)], cores))
        self.grpc = json.loads(self.wait_for_line('"grpc"'))["grpc"]


class Router(RouterUnderTest):
    """`grpc` and `http` are its addresses; ready when it is made."""

    def __init__(self, workers, *args, cores=None):
        self.process = Process(pinned([BIN / "quire-router", "--port=0", "--grpc-port=0", "--log-format=json",
                                       *(f"--worker={a}" for a in workers), *args], cores))
        try:
            line = json.loads(self.process.wait_for_line('"listening"'))
        except Failure:
            self.process.close()
            raise
        self.port = int(line["http"].rsplit(":", 1)[1])
        self.grpc, self.http = line["grpc"], line["http"]
        try:
            self.wait_until(lambda: self.metric('quire_router_workers{phase="ready"}') == len(workers), "all are ready")
        except Failure:
            self.process.close()
            raise

    def memory(self):
        """Resident MiB now."""
        status = pathlib.Path(f"/proc/{self.process.child.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024

    def busy(self):
        return cpu_seconds(self.process)


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


class Client(Process):
    """A load under way; `result` waits for its end."""

    def __init__(self, target, cores=None, **options):
        super().__init__(pinned([BIN / "router_client", f"--target={target}", *flags(options)], cores))

    def result(self, limit_s=180):
        try:
            self.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.close()
            raise Failure(f"router_client did not end in {limit_s} s: {self.lines[-5:]}") from None
        lines = [line for line in self.lines if line.startswith("{")]
        expect(lines, f"router_client said nothing: {self.lines[-5:]}")
        self.close()
        return json.loads(lines[-1])


def load(target, cores=None, **options):
    with Client(target, cores, **options) as client:
        return client.result()
