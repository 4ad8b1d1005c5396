"""Runs a container of a manifest as a process of its own: its command line, files, user and read-only root, on the
ports that the manifest names. Needs the fixture own_network, so that those ports are free."""
import atexit
import contextlib
import ctypes
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import manifests as m  # noqa: E402
from harness import ROOT, Process, expect  # noqa: E402

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
HANG_LIMIT_S = 120
HOSTS = ("127.0.0.1 localhost kubernetes.default.svc quire-router\n", "::1 localhost\n",
         "127.0.0.2 demo-peers\n", "127.0.0.3 demo-peers\n")
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


IMAGES = {}


def image_of(container):
    """The root file system of a container's image, made by what the Dockerfile makes it with."""
    name = container["image"].rsplit("/", 1)[1].split(":")[0].removeprefix("quire-")
    if name not in IMAGES:
        IMAGES[name] = pathlib.Path(tempfile.mkdtemp()) / name
        atexit.register(shutil.rmtree, IMAGES[name].parent)
        subprocess.run([sys.executable, ROOT / "deploy" / "docker" / "root.py", name, m.PROGRAMS, IMAGES[name]],
                       check=True)
        IMAGES[name].parent.chmod(0o755)
    return IMAGES[name]


def libc():
    return ctypes.CDLL(None, use_errno=True)


def mount(source, target, kind, flags, data=None):
    coded = [None if x is None else str(x).encode() for x in (source, target, kind, data)]
    if libc().mount(coded[0], coded[1], coded[2], flags, coded[3]) != 0:
        raise OSError(ctypes.get_errno(), f"mount {source} {target}")


def bind(source, target, read_only):
    """A file or folder of the machine inside the container's root."""
    if pathlib.Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(source, target, None, MS_BIND | MS_REC)
    if read_only:
        mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def make_root(spec):
    """The image under a layer of its own, as a container runtime lays them: mount points, then nothing to write to."""
    root = pathlib.Path(spec["root"])
    mount("tmpfs", root, "tmpfs", 0, "mode=0755")
    for name in ("upper", "work", "all"):
        (root / name).mkdir(mode=0o755)
    mount("overlay", root / "all", "overlay", 0,
          f"lowerdir={spec['image']},upperdir={root / 'upper'},workdir={root / 'work'}")
    root = root / "all"
    for name in ("dev", "proc", "sys"):
        bind(f"/{name}", root / name, False)
    (root / "etc" / "hosts").write_text("".join(HOSTS))
    (root / "etc" / "host.conf").write_text("multi on\n")  # a name on several lines has several addresses
    for volume in spec["mounts"]:
        target = root / volume["path"].lstrip("/")
        if volume["source"] is None:
            target.mkdir(parents=True, exist_ok=True)
            mount("tmpfs", target, "tmpfs", 0, "mode=1777")
        else:
            bind(volume["source"], target, volume["read_only"])
    mount(None, root, None, MS_REMOUNT | MS_RDONLY)
    return root


def enter(spec):
    """In the child: becomes the container. Never returns."""
    if libc().unshare(0x20000) != 0:  # CLONE_NEWNS
        raise OSError(ctypes.get_errno(), "unshare")
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    os.chroot(make_root(spec))
    os.chdir("/")
    if spec["user"] is not None:
        os.setgroups([])
        os.setgid(spec["user"])
        os.setuid(spec["user"])
    os.execve(spec["command"][0], spec["command"], spec["environment"])


class Container(Process):
    """A container of a pod, running. `secrets`: name → {entry: bytes}."""

    def __init__(self, pod, container, folder, secrets, account=None, model=None, address="127.0.0.1"):
        self.container = container
        mounts = []
        volumes = {v["name"]: v for v in pod.get("volumes", [])}
        for at in container.get("volumeMounts", []):
            volume = volumes[at["name"]]
            source = None
            if "secret" in volume:
                source = folder / f"{at['name']}-{len(list(folder.iterdir()))}"
                entries = secrets[volume["secret"]["secretName"]]
                items = volume["secret"].get("items", [{"key": key, "path": key} for key in entries])
                write_secret(source, {item["path"]: entries[item["key"]] for item in items})
            else:
                expect("emptyDir" in volume, f"a volume that only a cluster has: {volume}")
            mounts.append({"path": at["mountPath"], "source": source and str(source),
                           "read_only": at.get("readOnly", False)})
        if account is not None and pod.get("automountServiceAccountToken"):
            mounts.append({"path": ACCOUNT, "source": str(account), "read_only": True})
        if model is not None:  # as KServe's storage mounts it
            mounts.append({"path": "/mnt/models", "source": str(model), "read_only": True})
        environment = {"PATH": "/usr/local/bin:/usr/bin"}
        for variable in container.get("env", []):
            if "value" in variable:
                environment[variable["name"]] = variable["value"]
            elif "fieldRef" in variable["valueFrom"]:
                expect(variable["valueFrom"]["fieldRef"] == {"fieldPath": "status.podIP"}, variable)
                environment[variable["name"]] = address
            else:
                key = variable["valueFrom"]["secretKeyRef"]
                environment[variable["name"]] = secrets[key["name"]][key["key"]].decode()
        user = {**pod.get("securityContext", {}), **container["securityContext"]}["runAsUser"]
        root = pathlib.Path(tempfile.mkdtemp(dir=folder))
        expect(container["securityContext"]["readOnlyRootFilesystem"], "a root that can be written to")
        command = [re.sub(r"\$\((\w+)\)", lambda v: environment[v[1]], w) for w in m.command_line(container)]
        spec = {"root": str(root), "image": str(image_of(container)), "mounts": mounts, "environment": environment,
                "command": command, "user": user if os.geteuid() == 0 else None}
        super().__init__([sys.executable, __file__, "--enter", json.dumps(spec)])

    def port(self, named):
        ports = {p["name"]: p["containerPort"] for p in self.container["ports"]}
        return ports.get(named, named)

    def probe(self, name):
        """What the kubelet would hear: a status, or None for no answer."""
        asked = self.container[name]["httpGet"]
        return get(self.port(asked["port"]), asked["path"], tls=asked.get("scheme") == "HTTPS")[0]

    def wait_until_started(self):
        """As the kubelet does: the startup probe, then readiness."""
        for name in ("startupProbe", "readinessProbe"):
            end = time.monotonic() + HANG_LIMIT_S
            while name in self.container and self.probe(name) != 200:
                expect(self.child.poll() is None, f"ended before its {name}: {self.output()[-2000:]}")
                expect(time.monotonic() < end, f"{name} fails for {HANG_LIMIT_S} s: {self.output()[-2000:]}")
                time.sleep(0.05)

    def processes(self):
        """(process id, its status) of this container's first process and all under it."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if int(entry.name) == self.child.pid or descends_from(int(entry.name), self.child.pid):
                    found.append((int(entry.name), (entry / "status").read_text()))
        return found

    def peak_bytes(self):
        """The most memory that its processes have held."""
        return sum(int(status.split("VmHWM:")[1].split()[0]) * 1024 for _, status in self.processes())


def descends_from(child, parent):
    stat = pathlib.Path(f"/proc/{child}/stat").read_text()
    above = int(stat.rsplit(")", 1)[1].split()[1])
    return above == parent or above > 1 and descends_from(above, parent)


def write_secret(folder, data):
    """As the kubelet mounts it: 0440, of the pod's group."""
    folder.mkdir()
    for name, content in data.items():
        path = folder / name
        path.write_bytes(content)
        path.chmod(0o440)
        if os.geteuid() == 0:
            os.chown(path, 0, 65532)


def get(port, path, key=None, body=None, tls=False):
    """(status, text); status is None without an answer. Over TLS, as the kubelet, it takes any certificate."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if tls:
        any_certificate = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=any_certificate)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return None, ""
    finally:
        connection.close()


class KubernetesApi:
    """The API server of a cluster whose workers are on loopback: it lists EndpointSlices and tells of changes."""

    def __init__(self, folder, service, port, addresses=("127.0.0.1",)):
        self.queries, self.closing = [], False
        self.service, self.port = service, port
        self.changed = threading.Condition()
        self.version, self.addresses = 7, addresses
        self.account = folder / "account"
        self.account.mkdir()
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", "/CN=kubernetes", "-addext",
                        "subjectAltName=DNS:kubernetes.default.svc", "-keyout", folder / "api.key",
                        "-out", self.account / "ca.crt"], check=True, capture_output=True)
        (self.account / "token").write_text("a-token")
        (self.account / "namespace").write_text("prod")
        for path in self.account.iterdir():
            path.chmod(0o644)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.account / "ca.crt", folder / "api.key")
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                api.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 443), Handler)
        self.server.daemon_threads = True
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def slice(self):
        return {"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
                "metadata": {"name": f"{self.service}-a", "resourceVersion": str(self.version),
                             "labels": {"kubernetes.io/service-name": self.service}},
                "ports": [{"name": "wire", "port": self.port}],
                "endpoints": [{"addresses": [a], "conditions": {"ready": False}} for a in self.addresses]}

    def now(self, addresses):
        """Pods came or went."""
        with self.changed:
            self.version, self.addresses = self.version + 1, addresses
            self.changed.notify_all()

    def answer(self, request):
        self.queries.append((request.command, request.path, request.headers.get("Authorization")))
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()

        def say(value):
            text = json.dumps(value).encode() + b"\n"
            request.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
            request.wfile.flush()

        with contextlib.suppress(OSError), self.changed:
            if "watch=" not in request.path:
                say({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
                     "metadata": {"resourceVersion": str(self.version)}, "items": [self.slice()]})
            else:
                told = self.version
                while not self.closing:
                    self.changed.wait()
                    if self.version != told:
                        told = self.version
                        say({"type": "MODIFIED", "object": self.slice()})
            request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True

    def close(self):
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()


if __name__ == "__main__" and "--enter" in sys.argv:
    enter(json.loads(sys.argv[sys.argv.index("--enter") + 1]))
