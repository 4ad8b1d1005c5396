"""The chart and an InferenceService on a real control plane: etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, KServe's manager and two nodes that are the agent. What operators do happens under load; every answer
must be token by token the undisturbed one."""
import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import time

import pytest

import chart
import manifests as m
import plane
import programs
import record
import tools
from client import Answer, ask
from cluster import need_etcd
from control import NODES, ControlPlane, is_ready
from harness import BIN, DEMO, expect, wait_until
from plane import VALUES, Load, ready_workers, seconds_of
from tier import RECORD

WORKERS, ROUTER = ("statefulsets", "quire-worker"), ("deployments", "quire-router")


class Steps:
    """What was done, how long it took and what clients had of it; told and recorded."""

    def __init__(self):
        self.rows = []

    def note(self, what, seconds, answers=None, gap=None, **more):
        row = {"what": what, "seconds": round(seconds, 2), **more}
        if answers is not None:
            row |= {"answers": answers, "failed": 0, "longest_gap_s": round(gap, 3)}
        self.rows.append(row)
        print("     " + ", ".join(f"{k} {v}" for k, v in row.items()), flush=True)

    def under_load(self, what, load, act, **more):
        def timed():
            begin = time.monotonic()
            result = act()
            return time.monotonic() - begin, result
        (seconds, result), answers, gap = load.during(timed)
        self.note(what, seconds, answers, gap, **more, **(result or {}))


def prepare(cluster):
    kinds = chart.define(cluster)
    kinds.update(chart.built_in(cluster))
    # No pod that the Pod Security Standard "restricted" refuses ever starts there.
    cluster.do("POST", "/api/v1/namespaces", {"metadata": {"name": "prod", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}}})
    wait_until(lambda: cluster.ask("GET", "/api/v1/namespaces/prod/serviceaccounts/default")[0] == 200, "an account")
    expect_refusal_of_the_unrestricted(cluster)
    chart.validate_everything(cluster, kinds)
    secrets = plane.secrets()
    cluster.apply(secrets, kinds)
    return kinds, plane.key_of(secrets, "quire-api-keys")


def expect_refusal_of_the_unrestricted(cluster):
    pod = {"metadata": {"name": "free"}, "spec": {"containers": [{"name": "free", "image": "any"}]}}
    status, answer = cluster.ask("POST", "/api/v1/namespaces/prod/pods?dryRun=All", pod)
    expect(status == 403 and "PodSecurity" in str(answer), f"a pod without a security context is taken: {status} {answer}")


def service_of(cluster, name):
    return cluster.get(f"/api/v1/namespaces/prod/services/{name}")["spec"]["clusterIP"]


def await_workers(cluster, count):
    """Each router has found this many, by its own watch."""
    def found():
        return all(ready_workers((p["status"]["podIP"], 9090)) == count for p in cluster.ready_pods("router"))
    wait_until(found, f"routers have {count} workers", 120, cluster.told)


def install(cluster, key, steps):
    begin = time.monotonic()
    cluster.helm("install", "quire", m.CHART, "-f", VALUES)
    installed = time.monotonic() - begin
    cluster.await_rollout(*WORKERS)
    cluster.await_rollout(*ROUTER)
    steps.note("helm install to ready", time.monotonic() - begin, helm_itself_s=round(installed, 2), workers=2, routers=2)
    nodes = {p["spec"]["nodeName"] for p in cluster.pods("worker")}
    expect(nodes == set(NODES), f"workers are spread: {nodes}")
    where = (service_of(cluster, "quire-router"), 8000, key)
    status = asyncio.run(ask((*where[:2], None), {"model": "demo", "prompt": "a", "max_tokens": 1})).status
    expect(status == 401, f"without a key: {status}")
    await_workers(cluster, 2)
    cluster.helm("test", "quire")
    return where


def killed_worker(cluster):
    cluster.agent.kill("prod/quire-worker-0")

    def restarted():
        pod = cluster.get("/api/v1/namespaces/prod/pods/quire-worker-0")
        return pod["status"]["containerStatuses"][0]["restartCount"] == 1 and is_ready(pod)
    wait_until(restarted, "the API server tells of the restart", 60, cluster.told)
    await_workers(cluster, 2)


def deleted_worker(cluster):
    path = "/api/v1/namespaces/prod/pods/quire-worker-1"
    uid = cluster.get(path)["metadata"]["uid"]
    cluster.do("DELETE", path)

    def replaced():
        status, pod = cluster.ask("GET", path)
        return status == 200 and pod["metadata"]["uid"] != uid and is_ready(pod)
    wait_until(replaced, "another took its place", 120, cluster.told)
    await_workers(cluster, 2)


def scaled(cluster, count):
    cluster.scale(*WORKERS, count)
    cluster.await_rollout(*WORKERS)
    wait_until(lambda: len(cluster.pods("worker")) == count, "no pod too many", 120, cluster.told)
    await_workers(cluster, count)


def rolled(cluster):
    """An upgrade that changes the command lines of routers and workers."""
    cluster.helm("upgrade", "quire", m.CHART, "-f", VALUES, "--set", "router.maxLiveRequests=500,worker.maxNumSeqs=32")
    cluster.await_rollout(*WORKERS)
    cluster.await_rollout(*ROUTER)
    for component, flag in (("router", "--max-live-requests=500"), ("worker", "--max-num-seqs=32")):
        for pod in cluster.ready_pods(component):
            expect(flag in pod["spec"]["containers"][0]["args"], pod["metadata"]["name"])
    wait_until(lambda: len(cluster.pods("router")) == 2, "old routers are gone", 120, cluster.told)
    await_workers(cluster, 2)


def drained(cluster, node, other):
    refused = cluster.drain(node)
    cluster.await_rollout(*WORKERS)
    cluster.await_rollout(*ROUTER)
    for component in ("router", "worker"):
        expect({p["spec"]["nodeName"] for p in cluster.ready_pods(component)} == {other}, cluster.told())
    cluster.uncordon(node)
    await_workers(cluster, 2)
    return {"evictions_refused_by_budgets": refused}


def drained_whole(cluster):
    """All pods are on one node now: budgets must let them go one at a time."""
    result = drained(cluster, "node-b", "node-a")
    expect(result["evictions_refused_by_budgets"] > 0, "no budget ever said no")
    return result


def ready_of(cluster, model):
    """Ready workers of a model, as each router tells its alert."""
    return {plane.metric((p["status"]["podIP"], 9090), f'quire_router_model_ready_workers{{model="{model}"}}')
            for p in cluster.ready_pods("router")}


def second_model(cluster, where):
    """Workers alone, of another model from a claim, behind the routers of the first release; then they go again."""
    cluster.helm("install", "second", m.CHART, "-f", VALUES, "--set", "router.enabled=false,worker.replicas=1,model.source.type=pvc,"
                 "model.source.pvc.claimName=models,model.path=tiny-llama,model.servedNames={second}")
    cluster.await_rollout("statefulsets", "second-quire-worker")
    cluster.helm("upgrade", "quire", m.CHART, "-f", VALUES, "--set", "router.extraWorkerServices={second-quire-worker}")
    cluster.await_rollout(*WORKERS)
    cluster.await_rollout(*ROUTER)
    wait_until(lambda: len(cluster.pods("router")) == 2, "old routers are gone", 120, cluster.told)
    await_workers(cluster, 3)
    answer = asyncio.run(ask(where, {"model": "second", "prompt": "Once", "max_tokens": 8, "ignore_eos": True}))
    expect(answer.done and answer.count() == 8, f"{answer.status} {answer.error}")
    wait_until(lambda: ready_of(cluster, "second") == {1} and ready_of(cluster, "demo") == {2}, "each model has its own", 30, cluster.told)
    cluster.helm("uninstall", "second")
    wait_until(lambda: len(cluster.pods("worker")) == 2, "its worker is gone", 120, cluster.told)
    wait_until(lambda: ready_of(cluster, "second") == {0} and ready_of(cluster, "demo") == {2}, "an alert would name it", 30, cluster.told)
    cluster.helm("upgrade", "quire", m.CHART, "-f", VALUES)
    cluster.await_rollout(*WORKERS)
    cluster.await_rollout(*ROUTER)
    wait_until(lambda: len(cluster.pods("router")) == 2, "old routers are gone", 120, cluster.told)
    await_workers(cluster, 2)
    return {"models": 2}


async def resumed(where, body, begun, moved):
    """A client that goes on elsewhere when its router dies, as the documents say; `moved` is told whether it had to."""
    had, cut = Answer(), False
    for _ in range(100):
        outputs = [{"token_ids": had.tokens.get(i, [])} for i in range(body.get("n", 1))]
        answer = await ask(where, body if not had.resume else {**body, "resume": {**had.resume, "outputs": outputs}},
                           lambda _: begun.set())
        for i, tokens in answer.tokens.items():
            had.tokens.setdefault(i, []).extend(tokens)
        had.resume = had.resume or answer.resume
        if answer.done and answer.error is None:
            moved.append(cut)
            return had
        cut = cut or had.count() > 0
        await asyncio.sleep(0.05)
    raise AssertionError(f"never served: {answer.status} {answer.error}")


def killed_router(cluster, load, steps):
    """kill -9 of one of two routers: clients ask the Service again, with what they have."""
    bodies = [{**body, "max_tokens": 600} for body in load.bodies]

    async def undisturbed():
        return await asyncio.gather(*(ask(load.where, body) for body in bodies))

    async def disturbed(moved):
        begun = asyncio.Event()
        streams = asyncio.gather(*(resumed(load.where, body, begun, moved) for body in bodies))
        await begun.wait()
        await asyncio.to_thread(cluster.agent.kill, f'prod/{cluster.ready_pods("router")[0]["metadata"]["name"]}')
        return await streams
    wanted = [a.tokens for a in asyncio.run(undisturbed())]
    begin, moved, rounds = time.monotonic(), [], 0
    while not any(moved):  # until the router that died had a stream under way
        expect(rounds < 10, "no stream was ever cut")
        expect([a.tokens for a in asyncio.run(disturbed(moved))] == wanted, "tokens differ")
        wait_until(lambda: len(cluster.ready_pods("router")) == 2, "it is back", 60, cluster.told)
        rounds += 1
    steps.note("kill -9 of a router, clients resume", time.monotonic() - begin, streams=rounds * len(wanted),
               resumed=sum(moved), failed=0)


def to_keda(cluster):
    """The chart's form for scaling to zero; this test does what KEDA would."""
    cluster.helm("upgrade", "quire", m.CHART, "-f", VALUES, "--set", "keda.enabled=true")
    cluster.await_rollout(*ROUTER)
    wait_until(lambda: len(cluster.pods("router")) == 2, "old routers are gone", 120, cluster.told)
    scaled(cluster, 2)  # without a number of its own in the chart it was set to one


def from_zero(cluster, load, steps):
    """No worker at all, a request that waits, then one worker."""
    cluster.scale(*WORKERS, 0)
    wait_until(lambda: not cluster.pods("worker"), "no worker", 120, cluster.told)
    await_workers(cluster, 0)

    async def first_token():
        waiting = asyncio.ensure_future(ask(load.where, load.bodies[0]))
        begin = time.monotonic()
        await asyncio.to_thread(cluster.scale, *WORKERS, 1)
        answer = await waiting
        expect(answer.done and answer.result() == load.wanted[0], f"{answer.status} {answer.error}{cluster.told()}")
        return answer.times[0] - begin
    steps.note("scale 0 to 1 to the first token", asyncio.run(first_token()))
    scaled(cluster, 2)


def inference_service(cluster, kinds, steps):
    """The demo's own example, as it is."""
    demo = m.documents((m.KSERVE / "examples" / "demo-cpu.yaml").read_text())[0]
    name = ("deployments", "demo-predictor")
    steps.note("InferenceService to ready", seconds_of(lambda: serve(cluster, [demo], kinds, name)))
    load = Load((service_of(cluster, "demo-predictor"), 80, None))
    steps.under_load("InferenceService from 1 to 2 pods", load, lambda: resize(cluster, "demo", 2))
    steps.under_load("a pod of the InferenceService is deleted", load, lambda: delete_one(cluster, name))
    resize(cluster, "demo", 1)


def serve(cluster, objects, kinds, name):
    cluster.apply(objects, kinds)
    path = f"/apis/apps/v1/namespaces/prod/{name[0]}/{name[1]}"
    wait_until(lambda: cluster.ask("GET", path)[0] == 200, "KServe makes a Deployment", 120, cluster.told)
    cluster.await_rollout(*name)


def resize(cluster, service, count):
    """Another number of replicas in the InferenceService; KServe's controller passes it on."""
    at = f"/apis/serving.kserve.io/v1beta1/namespaces/prod/inferenceservices/{service}"
    o = cluster.get(at)
    o["spec"]["predictor"] |= {"minReplicas": count, "maxReplicas": count}
    cluster.do("PUT", at, o)
    path = f"/apis/apps/v1/namespaces/prod/deployments/{service}-predictor"
    wait_until(lambda: cluster.get(path)["spec"]["replicas"] == count, "KServe passes it on", 60, cluster.told)
    cluster.await_rollout("deployments", f"{service}-predictor")


def pods_of(cluster, name):
    return [p for p in cluster.get("/api/v1/namespaces/prod/pods")["items"] if p["metadata"]["name"].startswith(name[1] + "-")]


def delete_one(cluster, name):
    gone = pods_of(cluster, name)[0]["metadata"]["name"]
    cluster.do("DELETE", f"/api/v1/namespaces/prod/pods/{gone}")
    wait_until(lambda: gone not in [p["metadata"]["name"] for p in pods_of(cluster, name)], "it is gone", 60, cluster.told)
    cluster.await_rollout(*name)


def claim():
    """A volume of models and its claim, as storage of a cluster would have them."""
    size, modes = {"storage": "1Gi"}, ["ReadOnlyMany"]
    return [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "models"}, "spec": {
                 "capacity": size, "accessModes": modes, "hostPath": {"path": "/none"}, "storageClassName": "",
                 "claimRef": {"namespace": "prod", "name": "models"}}},
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "models"}, "spec": {
                "accessModes": modes, "resources": {"requests": size}, "storageClassName": "", "volumeName": "models"}}]


def peers(cluster, kinds, steps):
    """A runtime of ours, a model in a claim that KServe's webhook mounts, and pods that share their workers."""
    runtime = m.documents((m.KSERVE / "runtimes" / "cluster-serving-runtime-peers.yaml").read_text())
    example = m.documents((m.KSERVE / "examples" / "standard-cpu-peers.yaml").read_text())
    example[0]["spec"]["predictor"] |= {"minReplicas": 2, "maxReplicas": 2}
    name = ("deployments", "gemma-predictor")
    steps.note("InferenceService of our runtime to ready", seconds_of(
        lambda: serve(cluster, [*runtime, *example], kinds, name)))
    addresses = [p["status"]["podIP"] for p in pods_of(cluster, name)]
    wait_until(lambda: all(ready_workers((a, 8002)) == 2 for a in addresses), "each router has both workers", 60, cluster.told)
    load = Load((service_of(cluster, name[1]), 80, None), model="gemma")

    def kill_worker():
        """The worker beside one of the routers dies, again and again until a stream was on it; its supervisor starts
        another."""
        kills = 0
        while not carried_on(addresses):
            expect(kills < 10, f"no answer went on at a peer: {cluster.told()}")
            pod = pods_of(cluster, name)[kills % 2]["metadata"]["name"]
            supervisor = cluster.agent.pods()[f"prod/{pod}"]["processes"]["kserve-container"]
            killed = child_of(supervisor, "quire-worker")
            os.kill(killed, signal.SIGKILL)
            kills += 1
            wait_until(lambda: child_of(supervisor, "quire-worker") not in (None, killed), "another one", 60, cluster.told)
            wait_until(lambda: all(ready_workers((a, 8002)) == 2 for a in addresses), "it is back", 60, cluster.told)
        return {"kills": kills, "carried_on": int(carried_on(addresses))}
    steps.under_load("kill -9 of a worker of an InferenceService", load, kill_worker)
    steps.under_load("a pod that shares its worker is deleted", load, lambda: delete_one(cluster, name))


def carried_on(addresses):
    return sum(plane.metric((a, 8002), "quire_router_failover_gap_seconds_count") or 0 for a in addresses)


def child_of(parent, program):
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            above = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if above == parent and (entry / "cmdline").read_bytes().split(b"\0")[0].decode().endswith(program):
                return int(entry.name)
    return None


def follow(cluster, steps):
    kinds, key = prepare(cluster)
    where = install(cluster, key, steps)
    load = Load(where)
    steps.under_load("kill -9 of a worker", load, lambda: killed_worker(cluster))
    steps.under_load("a worker's pod is deleted", load, lambda: deleted_worker(cluster))
    steps.under_load("workers from 2 to 3", load, lambda: scaled(cluster, 3))
    steps.under_load("workers from 3 to 1", load, lambda: scaled(cluster, 1))
    steps.under_load("workers from 1 to 2", load, lambda: scaled(cluster, 2))
    steps.under_load("rolling update of routers and workers", load, lambda: rolled(cluster))
    steps.under_load("a node with half of the pods is drained", load, lambda: drained(cluster, "node-a", "node-b"))
    steps.under_load("a node with all pods is drained", load, lambda: drained_whole(cluster))
    cluster.apply(claim(), kinds)
    steps.under_load("a second model comes behind the routers and goes", load, lambda: second_model(cluster, where))
    killed_router(cluster, load, steps)
    steps.under_load("upgrade to scaling by KEDA", load, lambda: to_keda(cluster))
    from_zero(cluster, load, steps)
    cluster.start_kserve(kinds)
    inference_service(cluster, kinds, steps)
    peers(cluster, kinds, steps)
    cluster.helm("uninstall", "quire")
    wait_until(lambda: not cluster.pods("worker") and not cluster.pods("router"), "all is gone", 180, cluster.told)


def start(folder):
    models = folder / "models"
    models.mkdir()
    (models / "gemma3-270m").symlink_to(DEMO)  # what the example names; the demo is enough for what is tried here
    subprocess.run([BIN / "quire", "make-weights", "tiny-llama", models / "tiny-llama"], check=True, stdout=subprocess.DEVNULL)
    return ControlPlane(folder, claims=[("models", models)])


@pytest.fixture
def all_programs(agent_program):
    try:
        need_etcd()
        programs.kubernetes()
        programs.kserve_manager()
    except tools.Missing as missing:
        pytest.skip(str(missing))


def test_what_operators_do_loses_no_token(all_programs):
    steps = Steps()
    conditions = record.Run() if RECORD else None
    with plane.temporary_folder() as name, contextlib.closing(start(pathlib.Path(name))) as cluster:
        follow(cluster, steps)
    if RECORD:
        record.record("plane", {"model": "demo", "streams_at_once": 6, "load_average_at_end": os.getloadavg()[0],
                                "steps": steps.rows}, conditions)
    print(f"{len(steps.rows)} steps on a real control plane")
