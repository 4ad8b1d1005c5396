"""What is attacked: `quire serve demo`, or programs apart, with what an attack may cost them.

Costs are counted, not timed: resident memory at its peak, processor seconds beside those of an honest client that sends
as many bytes, answers that came before others. QUIRE_TEST_BUILD names another build, to see an attack succeed there.
"""
import contextlib
import json
import pathlib
import subprocess

from harness import BIN, DEMO, Process, Server, free_port, wait_until  # noqa: F401

MIB = 1 << 20
TICKS = 100


class Watched:
    """A process whose memory and processor time are watched."""

    def __init__(self, pid):
        self.pid = pid
        self.folder = pathlib.Path(f"/proc/{pid}")

    def _status(self, name):
        for line in (self.folder / "status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"process {self.pid} is gone")

    def resident(self):
        return self._status("VmRSS")

    def peak(self):
        return self._status("VmHWM")

    def own(self):
        """What is not mapped from files."""
        return self._status("RssAnon")

    def forget_peak(self):
        (self.folder / "clear_refs").write_text("5")

    def seconds(self):
        fields = (self.folder / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def alive(self):
        return self.folder.exists() and ") Z " not in (self.folder / "stat").read_text()

    @contextlib.contextmanager
    def growth(self, most, what):
        """Fails when the peak inside the block lies more than `most` bytes above what was resident before it."""
        before = self.resident()
        self.forget_peak()
        yield
        grown = self.peak() - before
        print(f"{what}: {grown / MIB:.1f} MiB more at the peak, at most {most / MIB:.0f}")
        assert grown <= most, f"{what} makes the process hold {grown / MIB:.0f} MiB, more than {most / MIB:.0f}"


class Target(Server):
    """`quire serve demo` on loopback."""

    def __init__(self, *args, model=DEMO):
        self.grpc_port = free_port()
        super().__init__(f"--grpc-port={self.grpc_port}", *args, model=model)
        self.router = Watched(self.children("quire-router")[0])

    def serves(self, **headers):
        """An honest completion; its status."""
        connection = self.connection()
        connection.request("POST", "/v1/completions", json.dumps({"model": self.model, "prompt": "a", "max_tokens": 1}),
                           {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def still_serves(self):
        assert self.router.alive(), f"the router died: {self.process.lines[-5:]}"
        assert self.serves() == 200


def certificates(folder):
    """An authority and certificates of a server and a client below it."""
    def openssl(*args):
        subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)
    folder = pathlib.Path(folder)
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=ca",
            "-keyout", folder / "ca.key", "-out", folder / "ca.pem")
    for name in ("quire-router", "quire-worker", "server"):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.csr")
        (folder / "ext").write_text(f"subjectAltName=DNS:{name},DNS:localhost,IP:127.0.0.1\n"
                                    "extendedKeyUsage=serverAuth,clientAuth\n")
        openssl("x509", "-req", "-in", folder / f"{name}.csr", "-CA", folder / "ca.pem", "-CAkey", folder / "ca.key",
                "-CAcreateserial", "-days", "2", "-extfile", folder / "ext", "-out", folder / f"{name}.pem")
    return folder
