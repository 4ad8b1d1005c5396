"""What tests of the node agent share: a machine of their own, the agent, and clients that compare tokens."""
import asyncio
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).parent
for name in ("fault", "process", "deploy", "kubernetes"):
    sys.path.insert(0, str(HERE.parent / name))
sys.path.insert(0, str(HERE))
import manifests as m  # noqa: E402
import programs  # noqa: E402
from client import ask, requests  # noqa: E402
from harness import BIN, ROOT, Process, expect, metric_in, wait_until  # noqa: E402

VALUES = HERE / "values.yaml"
INSIDE = "QUIRE_PLANE_INSIDE"
NAMESPACES = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def alone():
    """Runs this program again in namespaces of its own, where it is the first process: with it all others end. Says why
    that cannot be."""
    if os.environ.pop(INSIDE, None) == "1":
        # What is written goes with the namespace as well.
        folder = ROOT / ".cache" / "plane" / "files"
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755", "tmpfs", folder], check=True)
        tempfile.tempdir = str(folder)
        return None
    missing = [tool for tool in ("unshare", "nsenter", "setpriv", "ip") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not installed (Debian's util-linux, iproute2)"
    command = [*NAMESPACES, *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        return "namespaces cannot be made here"
    os.environ[INSIDE] = "1"
    os.execvp("setpriv", ["setpriv", "--pdeathsig", "KILL", *command, sys.executable, *sys.argv])


def images(folder):
    """The root file systems of our images, and the machine's own under the name `machine`."""
    found = {"machine": pathlib.Path("/")}
    for name in ("router", "worker"):
        found[f"quire-{name}"] = folder / name
        subprocess.run([sys.executable, ROOT / "deploy" / "docker" / "root.py", name, BIN, folder / name], check=True)
    return found


class Agent:
    """The node agent in one of its ways to run."""

    def __init__(self, folder, way, *flags):
        self.folder = folder
        roots = [f"--image={name}={path}" for name, path in images(folder).items()]
        self.process = Process([programs.AGENT, way, f"--folder={folder}", *roots, *flags])
        line = self.process.wait_for_line("control at")
        self.control = "http://" + line.rsplit(" ", 1)[1]

    def ask(self, path, **query):
        text = "&".join(f"{k}={v}" for k, v in query.items())
        request = urllib.request.Request(f"{self.control}{path}?{text}", method="POST" if query else "GET")
        try:
            answer = urllib.request.urlopen(request, timeout=120).read()
        except urllib.error.HTTPError as error:
            expect(False, f"{path} {text}: {error.read().decode()}")
        return json.loads(answer or b"null")

    def pods(self):
        return self.ask("/pods")

    def ready(self, name):
        pod = self.pods().get(name)
        return pod is not None and any(c["type"] == "Ready" and c["status"] == "True"
                                       for c in pod["pod"]["status"]["conditions"])

    def await_ready(self, *names, limit_s=120):
        for name in names:
            wait_until(lambda: self.ready(name), f"{name} is ready", limit_s, lambda: "\n" + self.told(name))

    def kill(self, pod, number=signal.SIGKILL):
        self.ask("/kill", pod=pod, signal=int(number))

    def told(self, pod):
        """The last of what a pod and the agent wrote."""
        logs = sorted((self.folder / "logs").glob(pod.replace("/", "_") + "_*.log"))
        return "\n".join([*(p.read_text()[-3000:] for p in logs), *self.process.lines[-30:]])

    def stop(self):
        self.process.signal(signal.SIGTERM)
        return self.process.wait(limit_s=150)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.close()


class Load:
    """Streams that are asked again and again, each compared with what it was undisturbed."""

    def __init__(self, where, count=6, max_tokens=48, model="demo"):
        self.where = where
        self.bodies = [{**body, "model": model} for body in requests(count, seed=11, max_tokens=max_tokens)]
        self.wanted = [a.result() for a in asyncio.run(self.all_once())]
        self.served, self.wrong, self.gaps = 0, [], []

    async def all_once(self):
        answers = await asyncio.gather(*(ask(self.where, body) for body in self.bodies))
        for body, answer in zip(self.bodies, answers):
            expect(answer.done and answer.error is None, f"undisturbed: {body}: {answer.status} {answer.error}")
        return answers

    async def one(self, i, on_event=None):
        answer = await ask(self.where, self.bodies[i], on_event)
        self.served += 1
        self.gaps += [b - a for a, b in zip(answer.times, answer.times[1:])]
        if answer.error is not None or not answer.done or answer.result() != self.wanted[i]:
            self.wrong.append((self.bodies[i], answer.status, answer.error, answer.tokens, self.wanted[i][0]))

    async def beside(self, act):
        ends = asyncio.Event()

        async def again(i):
            while not ends.is_set():
                await self.one(i)
        clients = [asyncio.ensure_future(again(i)) for i in range(len(self.bodies))]
        before = self.served
        try:
            while self.served == before:
                await asyncio.sleep(0.02)
            result = await asyncio.to_thread(act)
        finally:
            ends.set()
            await asyncio.gather(*clients)
        return result

    async def beside_one_round(self, act):
        begun = asyncio.Event()
        asked = asyncio.gather(*(self.one(i, lambda _: begun.set()) for i in range(len(self.bodies))))
        await begun.wait()
        result = await asyncio.to_thread(act)
        await asked
        return result

    def once(self, act):
        """Runs `act` when the first token of one round of streams is there."""
        result = asyncio.run(self.beside_one_round(act))
        expect(not self.wrong, self.wrong[:1])
        return result

    def during(self, act):
        """Runs `act` while all streams are under way; every answer must be the undisturbed one."""
        before, self.gaps = self.served, []
        result = asyncio.run(self.beside(act))
        expect(not self.wrong, f"{len(self.wrong)} of {self.served - before}: {self.wrong[:1]}")
        return result, self.served - before, max(self.gaps, default=0.0)


def secrets():
    """Certificates, keys and salt as people without cert-manager make them, by openssl."""
    return m.documents(subprocess.run([m.KUSTOMIZE / "secrets.sh", "prod"], capture_output=True, text=True, check=True).stdout)


def key_of(objects, secret, entry="api-key"):
    return m.secret_data(next(o for o in objects if o["kind"] == "Secret" and o["metadata"]["name"] == secret))[entry].decode()


def metric(where, name):
    """Of a router, as metric_in has it."""
    with urllib.request.urlopen(f"http://{where[0]}:{where[1]}/metrics", timeout=10) as answer:
        return metric_in(answer.read().decode(), name)


def ready_workers(where):
    return metric(where, 'quire_router_workers{phase="ready"}')


def temporary_folder():
    """A folder that containers of other users may enter."""
    folder = tempfile.TemporaryDirectory()
    pathlib.Path(folder.name).chmod(0o755)
    return folder


def seconds_of(act):
    begin = time.monotonic()
    act()
    return time.monotonic() - begin
