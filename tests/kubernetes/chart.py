"""The manifests of deploy/ on a real kube-apiserver with the operators' real definitions: every object passes its
validation, and the chart installs and upgrades with helm, the demo's secrets kept."""
import json
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "deploy"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "process"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import manifests as m  # noqa: E402
import tools  # noqa: E402
from cluster import ADMIN  # noqa: E402
from harness import expect  # noqa: E402

CLUSTER_WIDE = {"ClusterServingRuntime": True}


def kubeconfig(cluster, folder):
    path = folder / "kubeconfig"
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": f"https://{cluster.address}:{cluster.port}",
                                                  "insecure-skip-tls-verify": True}}],
        "users": [{"name": "admin", "user": {"token": ADMIN}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}]}))
    return path


def define(cluster):
    """The custom resources; each is served a moment after it was made."""
    kinds = {}
    for path in sorted(tools.CRDS.iterdir()):
        for crd in m.documents(path.read_text()):
            # No webhook answers here, so that each version stands for itself.
            crd["spec"].pop("conversion", None)
            crd["metadata"] = {"name": crd["metadata"]["name"], "annotations": {
                k: v for k, v in crd["metadata"].get("annotations", {}).items() if k.startswith("api-approved")}}
            status, answer = cluster.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            expect(status == 201, f"{path.name}: {answer}")
            for version in crd["spec"]["versions"]:
                at = f"/apis/{crd['spec']['group']}/{version['name']}"
                kinds[f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]] = (
                    at, crd["spec"]["names"]["plural"])
    end = time.monotonic() + 120
    for at, plural in kinds.values():
        while cluster.ask("GET", f"{at}/{plural}")[0] != 200:
            expect(time.monotonic() < end, f"{at}/{plural} is not served")
            time.sleep(0.1)
    return kinds


def built_in(cluster):
    """(apiVersion, kind) → (path, plural) of what the server serves by itself."""
    kinds = {}
    groups = [g["preferredVersion"]["groupVersion"] for g in cluster.ask("GET", "/apis")[1]["groups"]]
    for version, at in [("v1", "/api/v1"), *((g, f"/apis/{g}") for g in groups)]:
        for resource in cluster.ask("GET", at)[1].get("resources", []):
            if "/" not in resource["name"]:
                kinds[version, resource["kind"]] = at, resource["name"]
    return kinds


def validate_everything(cluster, kinds):
    checked = 0
    for name, objects in m.everything().items():
        for o in objects:
            at, plural = kinds[o["apiVersion"], o["kind"]]
            place = at if o["kind"] in CLUSTER_WIDE else f"{at}/namespaces/prod"
            o = {**o, "metadata": {k: v for k, v in o["metadata"].items() if k != "namespace"}}
            status, answer = cluster.ask("POST", f"{place}/{plural}?dryRun=All&fieldValidation=Strict", o)
            expect(status == 201, f"{name}: {o['kind']} {o['metadata']['name']}: {answer}")
            checked += 1
    expect(checked > 100, checked)


def secrets(cluster):
    listed = cluster.ask("GET", "/api/v1/namespaces/prod/secrets")[1]["items"]
    return {s["metadata"]["name"]: s["data"] for s in listed if s["type"] != "helm.sh/release.v1"}


def install_and_upgrade(config):
    demo = m.CHART / "profiles" / "cpu-demo.yaml"
    common = ["--namespace", "prod", "--kubeconfig", config, "-f", demo]
    code, text = m.helm("install", "quire", m.CHART, *common)
    expect(code == 0 and "port-forward service/quire-router" in text, text)
    yield
    code, text = m.helm("upgrade", "quire", m.CHART, *common, "--set", "router.maxLiveRequests=100")
    expect(code == 0 and "REVISION: 2" in text, text)
    yield
    code, text = m.helm("uninstall", "quire", "--namespace", "prod", "--kubeconfig", config)
    expect(code == 0, text)
    yield


def follow(cluster, folder):
    kinds = define(cluster)
    kinds.update(built_in(cluster))
    expect(cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "prod"}})[0] == 201, "namespace")
    # What a controller manager would make; pods are refused without it.
    account = {"metadata": {"name": "default"}}
    expect(cluster.ask("POST", "/api/v1/namespaces/prod/serviceaccounts", account)[0] == 201, "account")
    validate_everything(cluster, kinds)
    step = install_and_upgrade(kubeconfig(cluster, folder))
    next(step)
    first = secrets(cluster)
    expect(set(first) == {"quire-demo-keys", "quire-router-worker-tls", "quire-worker-tls"}, first.keys())
    next(step)
    expect(secrets(cluster) == first, "an upgrade made new keys")
    router = cluster.ask("GET", "/apis/apps/v1/namespaces/prod/deployments/quire-router")[1]
    expect("--max-live-requests=100" in router["spec"]["template"]["spec"]["containers"][0]["args"], router)
    next(step)
    expect(cluster.ask("GET", "/apis/apps/v1/namespaces/prod/deployments")[1]["items"] == [], "uninstalled")
