"""A real kube-apiserver with Debian's etcd on loopback, for tests of the long tier. The server is built from its Go
module (pinned) into .cache/kubernetes once."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "process"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "deploy"))
from harness import free_port  # noqa: E402
from tools import Missing, find_go  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "kubernetes"
VERSION = "1.34.2"
ADMIN = "admin-token"
ROUTER = "router-token"


def need_etcd():
    if shutil.which("etcd") is None:
        raise Missing("etcd is not installed (Debian's etcd-server)")


def built(*programs):
    """Where programs of Kubernetes' own module stand, built into .cache/kubernetes if they are not there."""
    at = [CACHE / f"{program}-v{VERSION}" for program in programs]
    missing = [p for p, path in zip(programs, at) if not path.exists()]
    if missing:
        build(find_go(), missing)
    return at


def build(go, programs):
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = pathlib.Path(name)
        env = {**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}
        env.pop("GOROOT", None)
        module = f"module kubernetes\ngo 1.24\nrequire k8s.io/kubernetes v{VERSION}\n"
        (folder / "go.mod").write_text(module)
        told = subprocess.run([go, "mod", "download", "-json", f"k8s.io/kubernetes@v{VERSION}"], cwd=folder, env=env,
                              capture_output=True, text=True)
        if told.returncode != 0:
            raise Missing(f"k8s.io/kubernetes cannot be downloaded: {told.stdout[-200:]}")
        # Its staging modules are required as v0.0.0, to be replaced by those of the same release.
        text = pathlib.Path(json.loads(told.stdout)["GoMod"]).read_text()
        staged = sorted(set(re.findall(r"^\s+(k8s\.io/[a-z-]+) v0\.0\.0(?:\s|$)", text, re.M)))
        release = VERSION.replace("1.", "v0.", 1)
        (folder / "go.mod").write_text(module + "".join(f"replace {m} => {m} {release}\n" for m in staged))
        # Else it says that it is of no version, and clients that ask for one turn away.
        major, minor, _ = VERSION.split(".")
        stamps = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
        link = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamps.items())
        for program in programs:
            fresh = folder / program
            subprocess.run([go, "build", "-ldflags", link, "-o", fresh, f"k8s.io/kubernetes/cmd/{program}"],
                           cwd=folder, env=env, check=True)
            fresh.rename(CACHE / f"{program}-v{VERSION}")  # whole, or not there


class Cluster:
    """An API server with the tokens ADMIN (all rights) and ROUTER (none until they are granted)."""
    address = "127.0.0.1"
    api_flags = ()

    def __init__(self, folder):
        self.folder = folder
        self.server, = built("kube-apiserver")
        need_etcd()
        self.etcd_port, peer, self.port = free_port(), free_port(), free_port()
        self.processes = {}
        etcd = f"http://127.0.0.1:{self.etcd_port}"
        self.start("etcd", ["etcd", "--data-dir", folder / "etcd", "--listen-client-urls", etcd,
                            "--advertise-client-urls", etcd,
                            "--listen-peer-urls", f"http://127.0.0.1:{peer}"])
        subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(
            f'{ADMIN},admin,1,"system:masters"\n{ROUTER},system:serviceaccount:prod:quire,2\n')
        self.start_api()

    def start(self, name, command):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log)

    def start_api(self):
        self.start("api", [
            self.server, "--etcd-servers", f"http://127.0.0.1:{self.etcd_port}", "--secure-port", self.port,
            "--bind-address", self.address, "--cert-dir", self.folder / "certs",
            "--service-account-key-file", self.folder / "sa.key",
            "--service-account-signing-key-file", self.folder / "sa.key",
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--token-auth-file", self.folder / "tokens.csv", "--authorization-mode", "RBAC",
            "--service-cluster-ip-range", "10.96.0.0/16", *self.api_flags])
        end = time.monotonic() + 120
        while time.monotonic() < end:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/readyz")[0] == 200:
                    return
            time.sleep(0.2)
        raise RuntimeError("kube-apiserver did not become ready: " +
                           (self.folder / "api.log").read_text(errors="replace")[-2000:])

    def stop_api(self):
        api = self.processes.pop("api")
        api.kill()
        api.wait()

    def ask(self, method, path, body=None, token=ADMIN):
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(self.address, self.port, context=context, timeout=30)
        connection.request(method, path, None if body is None else json.dumps(body),
                           {"Authorization": f"Bearer {token}", "Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
        with contextlib.suppress(ValueError):
            return answer.status, json.loads(text)
        return answer.status, text

    def compact(self):
        """Forgets all versions but the newest, as etcd does every few minutes."""
        version = self.ask("GET", "/api/v1/namespaces")[1]["metadata"]["resourceVersion"]
        subprocess.run(["etcdctl", "--endpoints", f"127.0.0.1:{self.etcd_port}", "compaction", version],
                       env={**os.environ, "ETCDCTL_API": "3"}, check=True, capture_output=True)

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
