"""Starts real processes of Quire on ports of the system's choice and talks to them. Standard library only."""
import contextlib
import http.client
import json
import os
import pathlib
import queue
import random
import re
import signal
import socket
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Another build is the sanitizers' own. Programs would warn of a setting that they do not know.
BIN = ROOT / os.environ.pop("QUIRE_TEST_BUILD", "build") / "bin"
DEMO = ROOT / "models" / "demo"
START_LIMIT_S = 120  # only ends what hangs


class Failure(AssertionError):
    pass


def expect(condition, message):
    if not condition:
        raise Failure(message)


def free_port():
    """A port that nobody has now and that the system gives to nobody who asks for any, as clients do: a server may
    leave it and come back to it."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(min(20000, lowest // 2), lowest)
        with contextlib.suppress(OSError), socket.socket() as taken:
            taken.bind(("127.0.0.1", port))
            return port


class Process:
    """A child whose output lines are collected; ended and reaped on exit of the context. It may be looked into, by
    /proc/PID/fd, without being root."""

    def __init__(self, command, env=None, stdin=subprocess.DEVNULL, pass_fds=()):
        self.lines = []
        self.queue = queue.Queue()
        self.child = subprocess.Popen([str(c) for c in command], stdin=stdin,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      errors="replace", env={**os.environ, "QUIRE_CORE_DUMPS": "true", **(env or {})},
                                      start_new_session=True, pass_fds=pass_fds)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.child.stdout:
            self.lines.append(line.rstrip("\n"))
            self.queue.put(line.rstrip("\n"))
        self.queue.put(None)

    def wait_for_line(self, text, limit_s=START_LIMIT_S):
        end = time.monotonic() + limit_s
        while True:
            try:
                line = self.queue.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                raise Failure(f"no line with {text!r}; last lines: {self.lines[-15:]}") from None
            if line is None:
                raise Failure(f"ended before a line with {text!r}: {self.lines[-15:]}")
            if text in line:
                return line

    def signal(self, number):
        self.child.send_signal(number)

    def wait(self, limit_s=60):
        code = self.child.wait(timeout=limit_s)
        self.reader.join(timeout=5)
        return code

    def output(self):
        return "\n".join(self.lines)

    def close(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run(command, env=None, limit_s=60, stdin=None):
    """Runs to the end; returns (code, output)."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          input=stdin, timeout=limit_s, env={**os.environ, **(env or {})})
    return done.returncode, done.stdout.decode(errors="replace")


def wait_until(condition, what, limit_s=60, more=lambda: ""):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if condition():
                return
        time.sleep(0.05)
    raise Failure(f"did not happen: {what}{more()}")


def metric_in(text, name):
    """The sum of the series of that name, with the labels that it has or with any, in a /metrics text; None without one."""
    found = [line for line in text.splitlines() if line.startswith((name + " ", name + "{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in found) if found else None


def listening_ports(pid):
    """TCP port → address, in hexadecimal, of what a process listens on as the kernel sees it."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(fd)))
    ports = {}
    for table in ("tcp", "tcp6"):
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # LISTEN
                address, port = fields[1].split(":")
                ports[int(port, 16)] = address
    return ports


class Server:
    """`quire serve` with ports chosen by the system."""

    def __init__(self, *args, model=DEMO, env=None):
        self.process = Process([BIN / "quire", "serve", model, "--port=0", "--grpc-port=0", *args], env=env)
        try:
            line = self.process.wait_for_line("ready: http://")
        except Failure:
            self.process.close()
            raise
        self.port = int(line.split("http://")[1].split()[0].rsplit(":", 1)[1])
        self.model = line.split(" serves ")[1].split()[0]

    def children(self, name):
        """Process ids of this server's children with that program name."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                stat = (entry / "stat").read_text()
                parent = int(stat.rsplit(")", 1)[1].split()[1])
                argv0 = (entry / "cmdline").read_bytes().split(b"\0")[0].decode()
                if parent == self.process.child.pid and argv0.endswith("/" + name):
                    found.append(int(entry.name))
        return sorted(found)

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def get(self, path):
        connection = self.connection()
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    def post(self, path, body):
        connection = self.connection()
        try:
            connection.request("POST", path,
                               json.dumps(body) if not isinstance(body, (bytes, str)) else body,
                               {"Content-Type": "application/json"})
            answer = connection.getresponse()
        except BrokenPipeError:  # refused before the whole body was sent: the answer is there to be read
            answer = http.client.HTTPResponse(connection.sock, method="POST")
            answer.begin()
        text = answer.read().decode()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, text

    def stream(self, path, body):
        """Yields the data of each event; ends at the end of the answer."""
        connection = self.connection()
        connection.request("POST", path, json.dumps({**body, "stream": True}),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise Failure(f"status {answer.status}: {answer.read()[:300]}")
        while True:
            line = answer.readline()
            if not line:
                return
            if line.startswith(b"data: "):
                yield line[6:].strip().decode()

    def wait_until(self, condition, what, limit_s=60):
        wait_until(condition, what, limit_s, lambda: f"; last lines: {self.process.lines[-15:]}")

    def stop(self):
        self.process.signal(signal.SIGTERM)
        return self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.close()


class RouterUnderTest(Server):
    """`quire-router` alone, on ports of the system's choice, with what finds its workers."""

    def __init__(self, *args):  # does not wait until it is ready: its workers may come later
        self.process = Process([BIN / "quire-router", "--port=0", "--grpc-port=0", "--log-format=json", *args])
        try:
            line = json.loads(self.process.wait_for_line('"listening"'))
        except Failure:
            self.process.close()
            raise
        self.port = int(line["http"].rsplit(":", 1)[1])

    def metric(self, name):
        return metric_in(self.get("/metrics")[1], name)
