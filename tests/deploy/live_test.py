"""The demo of each way to deploy, run as its manifests say: command lines, ports, probes, secrets, user, read-only
root, and an API server. What they promise of memory, metrics and endings is held against the processes."""
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

import manifests as m
import pods
from harness import DEMO, Failure, expect, metric_in
from pods import Container, KubernetesApi, get

pytestmark = pytest.mark.usefixtures("deploy_tools", "own_network")
ASK = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}


def only(objects, kind, component):
    found = [o for o in m.of_kind(objects, kind) if component in o["metadata"]["name"]]
    expect(len(found) == 1, f"{len(found)} of {kind} {component}")
    return found[0]


def secrets_of(objects):
    return {o["metadata"]["name"]: m.secret_data(o) for o in m.of_kind(objects, "Secret")}


def container_of(o):
    return m.pod_of(o)[1], m.pod_of(o)[1]["containers"][0]


class Deployed:
    """Router, worker and API server of a rendering, started as a cluster would."""

    def __init__(self, objects, secrets, addresses=("127.0.0.1",)):
        self.stack = contextlib.ExitStack()
        self.objects, self.secrets = objects, secrets
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.folder.chmod(0o755)
        service = next(o for o in m.of_kind(objects, "Service") if o["spec"].get("clusterIP") == "None")
        self.service = service["metadata"]["name"]
        self.api = KubernetesApi(self.folder, self.service, service["spec"]["ports"][0]["port"], addresses)
        self.stack.callback(self.api.close)
        try:
            self.worker = self.start(only(objects, "StatefulSet", "worker")) if addresses else None
            self.router = self.start(only(objects, "Deployment", "router"))
        except BaseException:
            self.stack.close()
            raise

    def start(self, o):
        container = self.stack.enter_context(
            Container(*container_of(o), self.folder, self.secrets, self.api.account))
        container.wait_until_started()
        return container

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stack.close()


def check_ports_and_probes(d):
    for container in (d.worker, d.router):
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            expect(container.probe(probe) == 200, f"{probe}: {container.output()[-500:]}")
    for port in ("http", "grpc"):
        expect(get(d.router.port(port), "/livez")[0] == 200, port)
    expect(get(d.worker.port("probes"), "/metrics")[0] == 200, "metrics")
    expect(get(d.router.port("metrics"), "/metrics")[0] == 200, "metrics")
    expect(get(d.router.port("http"), "/metrics")[0] == 403, "metrics name tenants")


def check_keys(d, key):
    expect(get(d.router.port("http"), "/v1/completions", None, ASK)[0] == 401, "without a key")
    status, text = get(d.router.port("http"), "/v1/completions", key, ASK)
    expect(status == 200 and json.loads(text)["usage"]["completion_tokens"] == 24, text)


def check_rights(d):
    """What the router asked of the API server, and that the Role grants that and no more."""
    label = f"labelSelector=kubernetes.io%2Fservice-name%3D{d.service}"
    expect(d.api.queries, "the router asked nothing")
    for method, path, token in d.api.queries:
        expect(method == "GET" and token == "Bearer a-token", (method, token))
        expect(path.startswith("/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices?"), path)
        expect(label in path, f"{path}: not {label}")
    expect(any("watch=" in path for _, path, _ in d.api.queries), d.api.queries)
    rules = only(d.objects, "Role", "router")["rules"]
    expect(rules == [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"],
                      "verbs": ["list", "watch"]}], rules)


def check_memory(d, key):
    """Under as many requests as run at once, what was asked for holds what is taken."""
    crowd = [threading.Thread(target=get, args=(d.router.port("http"), "/v1/completions", key, {
        **ASK, "prompt": f"Tale {i}: " + "once upon a time " * 20, "max_tokens": 64})) for i in range(64)]
    for one in crowd:
        one.start()
    for one in crowd:
        one.join()
    plan = next(json.loads(line) for line in d.worker.lines if '"memory plan"' in line)
    planned = plan["weight_bytes"] + plan["workspace_bytes"] + plan["kv_bytes"]
    limits = [c.container["resources"] for c in (d.worker, d.router)]
    expect(planned + (64 << 20) <= m.bytes_of(limits[0]["limits"]["memory"]), f"the worker plans {planned} bytes")
    for container, resources in zip((d.worker, d.router), limits):
        peak = container.peak_bytes()
        expect(0 < peak <= m.bytes_of(resources["requests"]["memory"]), f"{peak} bytes of {resources}")


def check_endings(d, key):
    """SIGTERM in mid-answer: the router says that it is not ready, ends what runs, and goes; then the worker."""
    answers = []
    running = threading.Thread(target=lambda: answers.append(get(
        d.router.port("http"), "/v1/completions", key, {**ASK, "max_tokens": 1500, "ignore_eos": True})))
    running.start()
    d.router.signal(signal.SIGTERM)
    statuses = []
    while d.router.child.poll() is None and 503 not in statuses:
        statuses.append(d.router.probe("readinessProbe"))
    expect(503 in statuses, f"the router never said that it leaves: {set(statuses)}")
    status, text = get(d.router.port("http"), "/v1/completions", key, ASK)
    expect(status == 200, f"in the drain delay requests are taken still: {status} {text}")
    running.join()
    expect(answers[0][0] == 200 and json.loads(answers[0][1])["usage"]["completion_tokens"] == 1500, answers)
    for container, o in ((d.router, only(d.objects, "Deployment", "router")),
                         (d.worker, only(d.objects, "StatefulSet", "worker"))):
        if container is d.worker:  # the router has been told: a second signal would end it at once
            container.signal(signal.SIGTERM)
        code = container.wait(m.pod_of(o)[1]["terminationGracePeriodSeconds"])
        expect(code == 0, f"ended with {code}: {container.output()[-1000:]}")


def check_all(objects, secrets, keys, before_the_end=lambda d: None):
    with Deployed(objects, secrets) as d:
        key = secrets[keys]["api-key"].decode()
        check_ports_and_probes(d)
        check_keys(d, key)
        check_rights(d)
        check_memory(d, key)
        check_metrics_of_scalers(d)
        before_the_end(d)
        check_endings(d, key)


def series_of(query):
    """Names of series in PromQL; label values may look like them."""
    return set(re.findall(r"\b(?:quire|vllm)[a-z_:]+", re.sub(r"\"[^\"]*\"", "", query)))


def check_metrics_of_scalers(d):
    """Every series that a ScaledObject of deploy/ asks for is one that these processes export, labels included."""
    exported = get(d.router.port("metrics"), "/metrics")[1] + get(d.worker.port("probes"), "/metrics")[1]
    names = set(re.findall(r"^([a-z_:]+)(?:\{| )", exported, re.M))
    asked = set()
    for _, objects in m.everything().items():
        for o in m.of_kind(objects, "ScaledObject"):
            for trigger in o["spec"]["triggers"]:
                asked |= series_of(trigger["metadata"]["query"])
        for o in m.of_kind(objects, "InferenceService"):
            for metric in o["spec"]["predictor"].get("autoScaling", {}).get("metrics", []):
                asked |= series_of(metric["external"]["metric"]["query"])
    expect(len(asked) >= 6, asked)
    expect(asked <= names, f"asked for, not exported: {asked - names}")


def test_the_demo_of_the_chart():
    objects = m.profile("cpu-demo")

    def helm_test(d):
        pod = next(o for o in m.of_kind(objects, "Pod"))
        with Container(*container_of(pod), d.folder, d.secrets) as run:
            expect(run.wait() == 0, run.output())

    check_all(objects, secrets_of(objects), "quire-demo-keys", helm_test)


def test_the_demo_of_kustomize():
    made = subprocess.run([m.KUSTOMIZE / "secrets.sh", "prod"], capture_output=True, text=True, check=True).stdout
    objects = m.overlay(m.KUSTOMIZE / "overlays" / "cpu-demo")
    check_all(objects, secrets_of(m.documents(made)), "quire-api-keys")


def test_from_no_worker_to_the_first():
    """What KEDA scales by, without KEDA: the router is ready with no worker, its queue shows the request that waits,
    and a worker that comes answers it."""
    objects = m.chart("-f", m.CHART / "profiles" / "cpu-demo.yaml", "--set", "keda.enabled=true")
    trigger = only(objects, "ScaledObject", "worker")["spec"]["triggers"][0]
    series = re.match(r"sum\((\w+)\{", trigger["metadata"]["query"])[1]
    secrets = secrets_of(objects)
    with Deployed(objects, secrets, addresses=()) as d:
        def queued():
            text = get(d.router.port("metrics"), "/metrics")[1]
            return sum(float(v) for v in re.findall(rf"^{series}(?:\{{.*\}})? (\S+)$", text, re.M))

        expect(queued() == float(trigger["metadata"]["activationThreshold"]), "nothing is asked yet")
        expect(get(d.router.port("http"), "/health")[0] == 503, "nothing could be answered")
        answers = []
        asking = threading.Thread(target=lambda: answers.append(
            get(d.router.port("http"), "/v1/completions", secrets["quire-demo-keys"]["api-key"].decode(), ASK)))
        asking.start()
        await_true(lambda: queued() > float(trigger["metadata"]["activationThreshold"]) or answers, d.router)
        expect(not answers, answers)
        d.start(only(objects, "StatefulSet", "worker"))
        d.api.now(["127.0.0.1"])
        asking.join()
        expect(answers[0][0] == 200, answers)


def runtimes():
    """Runtimes for CPUs, as KServe fills them in."""
    for o in m.of_kind(m.kserve(), "ClusterServingRuntime", "ServingRuntime"):
        text = json.dumps(o).replace("{{.Name}}", "demo")
        if "--device=cuda" not in text and "--peer-worker-dns" not in text:
            yield json.loads(text)


def grpc_answer(port):
    """The text of a completion over HTTP/2 in the clear."""
    grpcurl = m.ROOT / ".cache" / "go-bin" / "grpcurl"
    done = subprocess.run([grpcurl, "-plaintext", "-d", '{"text": "Once upon a time", "sampling": {"max_tokens": 8}}',
                           f"127.0.0.1:{port}", "quire.v1.Inference/Generate"], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    return done.stdout


def test_each_runtime_of_kserve_serves_what_is_mounted_on_each_of_its_ports():
    served = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        for o in runtimes():
            with Container(*container_of(o), folder, {}, model=DEMO) as run:
                run.wait_until_started()
                for port in run.container["ports"]:
                    number = port["containerPort"]
                    if port["name"] in ("http", "http1"):
                        status, text = get(number, "/v1/completions", None, ASK)
                        expect(status == 200, text)
                    elif m.ROOT.joinpath(".cache", "go-bin", "grpcurl").exists():
                        expect('"text"' in grpc_answer(number), grpc_answer(number))
                    served.append(port["name"])
                run.signal(signal.SIGTERM)
                expect(run.wait() == 0, run.output()[-1000:])
    expect(sorted(served) == ["grpc", "h2c", "http", "http1"], served)


def peer(index, folder, secrets):
    """A pod of the runtime whose pods share workers; the second one's ports are moved, since all are one machine."""
    text = json.dumps(next(o for o in m.kserve() if o["metadata"]["name"] == "quire-cpu-peers"))
    text = text.replace("{{.Name}}", "demo").replace("8080", str(8080 + index)).replace("=9000", f"={9010 + index}")
    text = text.replace("=8002", f"={8002 + index}")
    return Container(*container_of(json.loads(text)), folder, secrets, model=DEMO, address=f"127.0.0.{2 + index}")


def await_true(condition, run, limit_s=pods.HANG_LIMIT_S):
    """Ends what hangs."""
    end = time.monotonic() + limit_s
    while not condition():
        expect(run.child.poll() is None and time.monotonic() < end, run.output()[-3000:])
        time.sleep(0.02)


def metric(port, name):
    return metric_in(get(port, "/metrics")[1], name) or 0


def kill_until_a_stream_is_carried_on(run, clients):
    """Kills the pod's worker amid answers. One kill may meet only answers without a token, which start again: a gap
    is between tokens."""
    gaps = lambda: metric(8002, "quire_router_failover_gap_seconds_count")  # noqa: E731
    tokens = lambda: metric(8002, "quire_router_accepted_tokens_total")  # noqa: E731
    end = time.monotonic() + pods.HANG_LIMIT_S
    while not gaps():
        expect(time.monotonic() < end, run.output()[-3000:])
        await_true(lambda: metric(8002, 'quire_router_workers{phase="ready"}') == 2, run)
        before = tokens()
        await_true(lambda: tokens() >= before + 100 * clients, run)
        for process, status in run.processes():
            if "Name:\tquire-worker" in status:
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(Failure):
            await_true(gaps, run, limit_s=5)


def test_pods_of_kserve_share_their_workers_and_answers_outlive_one():
    made = subprocess.run([m.KUSTOMIZE / "secrets.sh", "prod"], capture_output=True, text=True, check=True).stdout
    asks = [{**ASK, "prompt": f"Tale number {i} begins:", "max_tokens": 1200, "ignore_eos": True} for i in range(8)]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        pair = [stack.enter_context(peer(i, folder, secrets_of(m.documents(made)))) for i in range(2)]
        for run in pair:
            run.wait_until_started()
        ready = 'quire_router_workers{phase="ready"}'
        for i, run in enumerate(pair):
            await_true(lambda: metric(8002 + i, ready) == 2, run)
        port = pair[0].port("http")
        alone = [json.loads(get(port, "/v1/completions", None, ask)[1])["choices"][0]["text"] for ask in asks]
        answers, stop = [], threading.Event()

        def client(i):  # asks again and again: an answer may be over before anything is killed
            while not stop.is_set():
                answers.append((i, *get(port, "/v1/completions", None, asks[i])))
        crowd = [threading.Thread(target=client, args=(i,)) for i in range(len(asks))]
        for one in crowd:
            one.start()
        try:
            kill_until_a_stream_is_carried_on(pair[0], len(asks))
        finally:
            stop.set()
            for one in crowd:
                one.join()
        for i, status, text in answers:
            expect(status == 200, f"{i}: {text}")
            expect(json.loads(text)["choices"][0]["text"] == alone[i], f"{i}: another answer than the undisturbed one")
        for run in pair:
            run.signal(signal.SIGTERM)
        for run in pair:
            expect(run.wait() == 0, run.output()[-1000:])


def test_the_config_of_llm_inference_services_with_and_without_tls():
    made = subprocess.run([m.KUSTOMIZE / "secrets.sh", "prod"], capture_output=True, text=True, check=True).stdout
    written = json.dumps(next(o for o in m.kserve() if o["kind"] == "LLMInferenceServiceConfig"))
    for tls in (False, True):
        # As KServe's Go templates fill it in.
        text = written.replace("{{ .Spec.Model.Name }}", "demo").replace("{{ .ObjectMeta.Namespace }}", "prod")
        text = re.sub(r"\{\{ if \.GlobalConfig\.EnableTLS \}\}(.*?)(?:\{\{ else \}\}(.*?))?\{\{ end \}\}",
                      r"\1" if tls else r"\2", text)
        expect("{{" not in text, text)
        pod, container = container_of(json.loads(text))
        # KServe's own template brings the volume.
        pod["volumes"] = [{"name": "tls-certs", "secret": {"secretName": "quire-router-tls"}}]
        container["volumeMounts"] = [{"name": "tls-certs", "mountPath": "/var/run/kserve/tls", "readOnly": True}]
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            folder.chmod(0o755)
            with Container(pod, container, folder, secrets_of(m.documents(made)), model=DEMO) as run:
                run.wait_until_started()
                for model in ("demo", "publishers/prod/models/demo"):
                    status, answer = get(run.port("http"), "/v1/completions", None, {**ASK, "model": model}, tls)
                    expect(status == 200, answer)
                # The hook is a program that the image has, and that ends at once.
                hook = container["lifecycle"]["preStop"]["exec"]["command"]
                ran = subprocess.run([m.PROGRAMS / pathlib.Path(hook[0]).name, *hook[1:]], capture_output=True)
                expect(ran.returncode == 0, hook)
                run.signal(signal.SIGTERM)
                run.signal(signal.SIGTERM)  # does not wait the drain delay
                run.wait()


def test_the_demo_of_kserve():
    demo = m.documents((m.KSERVE / "examples" / "demo-cpu.yaml").read_text())[0]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        with Container(*container_of(demo), folder, {}) as run:
            run.wait_until_started()
            expect(run.probe("livenessProbe") == 200, run.output())
            for port in ("http", "grpc"):
                status, text = get(run.port(port), "/v1/completions", None, ASK)
                expect(status == 200, text)
            peak, limits = run.peak_bytes(), run.container["resources"]
            expect(peak <= m.bytes_of(limits["requests"]["memory"]), f"{peak} bytes of {limits}")
            run.signal(signal.SIGTERM)
            expect(run.wait(demo["spec"]["predictor"]["terminationGracePeriodSeconds"]) == 0, run.output()[-1000:])


def size_of(root):
    return sum(p.lstat().st_size for p in root.rglob("*") if p.is_file() and not p.is_symlink())


def test_images_are_small_and_hold_nothing_to_run_but_the_programs():
    for name, programs, most in (("router", {"quire", "quire-router"}, 60e6),
                                 ("worker", {"quire", "quire-router", "quire-worker"}, 120e6)):
        root = pods.image_of({"image": f"registry/quire-{name}:1"})
        model = root / "usr" / "share" / "quire" / "models"
        without_model = size_of(root) - (size_of(model) if model.exists() else 0)
        print(f"     image {name}: {without_model / 1e6:.1f} MB without a model")
        expect(without_model <= most, f"{name}: {without_model} bytes")
        run = {p.name for p in root.rglob("*") if p.is_file() and p.lstat().st_mode & 0o111 and ".so" not in p.name}
        expect(run == programs, run)
        expect(not [p for p in root.rglob("*") if p.lstat().st_mode & 0o6000], "set-user-id")
        bill = json.loads((root / "usr" / "share" / "quire" / "sbom.spdx.json").read_text())
        named = {p["name"] for p in bill["packages"]}
        expect({f"quire-{name}", "libnghttp2-14", "libc6", "libssl3", "tokenizers", "minijinja"} <= named, named)
        expect("libgrpc29" not in named, f"gRPC's library is the tests' alone: {named}")
        expect((root / "usr" / "share" / "doc" / "libnghttp2-14" / "copyright").exists(), "licences of what is inside")


def test_the_image_for_gpus_holds_plugin_and_nccl():
    built = m.ROOT / "build" / "cuda" / "libquire_cuda.so"  # where the plugin's own test leaves it
    if not built.exists():
        pytest.skip("libquire_cuda.so is not built: tests/kernels/cuda/plugin_test.py does it, where a CUDA toolkit can be had")
    with tempfile.TemporaryDirectory() as name:
        programs, root = pathlib.Path(name) / "bin", pathlib.Path(name) / "root"
        programs.mkdir()
        for source in [built, *m.PROGRAMS.glob("quire*")]:
            (programs / source.name).symlink_to(source)
        command = [sys.executable, m.ROOT / "deploy" / "docker" / "root.py", "worker-cuda", programs, root]
        done = subprocess.run(command, capture_output=True, text=True)
        if "NCCL cannot be fetched" in done.stderr:
            pytest.skip("NCCL cannot be fetched")
        expect(done.returncode == 0, done.stderr)
        beside = root / "usr" / "local" / "bin"
        expect({p.name for p in beside.iterdir()} == {"quire", "quire-router", "quire-worker", built.name, "libnccl.so.2"}, list(beside.iterdir()))
        print(f"     image worker-cuda: {size_of(root) / 1e6:.1f} MB, {(beside / 'libnccl.so.2').stat().st_size / 1e6:.1f} of them NCCL")
        bill = json.loads((root / "usr" / "share" / "quire" / "sbom.spdx.json").read_text())
        expect("nvidia-nccl-cu13" in {p["name"] for p in bill["packages"]}, bill["packages"][-1])
        # It finds its plugin, and says what only a node with a GPU has.
        pods.mount("proc", root / "proc", "proc", 0)  # by which a program knows where it is
        done = subprocess.run(["chroot", root, "/usr/local/bin/quire-worker", "--model=/usr/share/quire/models/demo", "--device=cuda", "--plan"],
                              capture_output=True, text=True)
        subprocess.run(["umount", root / "proc"], check=True)
        if "it is of build" in done.stderr:
            pytest.skip("libquire_cuda.so is of another tree: tests/kernels/cuda/plugin_test.py builds it again")
        expect(done.returncode == 4 and "libcuda.so.1" in done.stderr, f"{done.returncode} {done.stdout}{done.stderr}")
        (programs / built.name).unlink()
        done = subprocess.run([*command[:-1], pathlib.Path(name) / "other"], capture_output=True, text=True)
        expect(done.returncode == 1 and "./dev cuda builds it" in done.stderr, done.stderr)
