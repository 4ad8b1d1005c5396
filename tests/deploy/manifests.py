"""Renders the manifests of deploy/ with the tools of tools.py and gives them as plain values."""
import base64
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "process"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from harness import BIN as PROGRAMS  # noqa: E402
from harness import ROOT, expect  # noqa: E402
from tools import BIN as TOOLS  # noqa: E402
from tools import KUBERNETES  # noqa: E402

CHART = ROOT / "deploy" / "helm" / "quire"
KUSTOMIZE = ROOT / "deploy" / "k8s"
KSERVE = ROOT / "deploy" / "kserve"
PROFILES = sorted(p.stem for p in (CHART / "profiles").glob("*.yaml"))
OVERLAYS = sorted(p.name for p in (KUSTOMIZE / "overlays").iterdir())


def helm(*args):
    """(exit code, output); of a failure standard error too, which else only tells of the links in files/."""
    done = subprocess.run([TOOLS / "helm", *args], capture_output=True, text=True)
    return done.returncode, done.stdout + (done.stderr if done.returncode != 0 else "")


def template(*args, release="quire", namespace="prod"):
    return helm("template", release, CHART, "--namespace", namespace, "--kube-version", KUBERNETES, *args)


def documents(text):
    done = subprocess.run([TOOLS / "yamljson"], input=text, capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr + text[:400])
    return json.loads(done.stdout)


def chart(*args, **names):
    code, text = template(*args, **names)
    expect(code == 0, text)
    return documents(text)


def profile(name):
    return chart("-f", CHART / "profiles" / f"{name}.yaml")


def overlay(path):
    done = subprocess.run([TOOLS / "yamljson", path], capture_output=True, text=True)
    expect(done.returncode == 0, f"{path}: {done.stderr}")
    return json.loads(done.stdout)


def with_component(name):
    """The overlay with one GPU with one more component, as an overlay of somebody's own names them."""
    with tempfile.TemporaryDirectory() as folder:
        way = os.path.relpath(os.path.realpath(KUSTOMIZE), os.path.realpath(folder))
        (pathlib.Path(folder) / "kustomization.yaml").write_text(
            f"resources: [{way}/overlays/single-gpu]\ncomponents: [{way}/components/{name}]\n")
        return overlay(folder)


def kserve():
    found = []
    for path in sorted(KSERVE.rglob("*.yaml")):
        found += documents(path.read_text())
    return found


def everything():
    """name → the objects of each way in which deploy/ can be rendered."""
    found = {"chart with default values": chart(), "kserve": kserve()}
    for name in PROFILES:
        found[f"profile {name}"] = profile(name)
    for name in OVERLAYS:
        found[f"overlay {name}"] = overlay(KUSTOMIZE / "overlays" / name)
    for name in ("model-image", "model-oci"):
        found[f"component {name}"] = with_component(name)
    found["chart with all that is off"] = chart(
        "--set", "keda.enabled=true,metrics.monitors=true,gateway.enabled=true,gateway.parentRefs[0].name=public,"
        "kserve.enabled=true,kserve.inferenceService.enabled=true,kserve.inferenceService.storageUri=pvc://models/m,"
        "router.tlsSecret=edge,router.discovery=dns,worker.host=::,router.host=::,model.source.type=image,"
        "model.source.image.reference=registry.example.com/m:1,worker.maxModelLen=4096,worker.maxStepTimeMs=0,"
        "worker.blockSize=32,worker.threads=3,worker.kvCacheMemory=1GiB,worker.enablePrefixCaching=false,"
        "worker.schedulingPolicy=priority,image.pullSecrets[0].name=pull,router.corsAllowOrigins[0]=https://a.example,"
        "router.trustedProxies[0]=10.0.0.0/8,router.trustedProxies[1]=fd00::1")
    found["chart with a model from an image"] = chart(
        "--set", "model.source.type=oci,model.source.oci.image=registry.example.com/m:1,model.path=g.gguf,"
        "allowInsecure=true,workerTLS.mode=none,apiKeys.existingSecret=,router.autoscaling.enabled=false,"
        "networkPolicy.apiServer.cidrs[0]=10.0.0.5/32,networkPolicy.apiServer.cidrs[1]=fd00::5/128,networkPolicy.apiServer.ports[0]=6443")
    found["chart with a model by name"] = chart(
        "--set", "model.source.type=name,model.source.name.reference=hf:org/repo,model.servedNames[0]=m,"
        "model.source.name.existingSecret=pull,model.source.name.claimName=models-of-acme,worker.extraEnv[0].name=HF_ENDPOINT,"
        "worker.extraEnv[0].value=https://hub.example.com")
    found["chart for a cluster of one's own"] = chart(
        "-f", ROOT / "tests" / "deploy" / "own-cluster.yaml", release="a-release-with-quite-a-long-name-for-production-x-123")
    found["chart of workers alone"] = chart(
        "--set", "router.enabled=false,workerTLS.certManager.issuerRef.name=quire-ca,model.servedNames[0]=llama,"
        "keda.enabled=true,metrics.monitors=true", release="second")
    return found


def of_kind(objects, *kinds):
    return [o for o in objects if o["kind"] in kinds]


def pod_of(workload):
    """(labels, spec) of the pods of an object, or None for one that has none."""
    kind, spec = workload["kind"], workload.get("spec", {})
    if kind == "Pod":
        return workload["metadata"].get("labels", {}), spec
    if kind in ("Deployment", "StatefulSet", "Job"):
        return spec["template"]["metadata"]["labels"], spec["template"]["spec"]
    if kind == "LeaderWorkerSet":
        pod = spec["leaderWorkerTemplate"]["workerTemplate"]
        return pod["metadata"]["labels"], pod["spec"]
    if kind in ("ServingRuntime", "ClusterServingRuntime"):
        return {}, spec
    if kind == "InferenceService" and "containers" in spec["predictor"]:
        return {}, spec["predictor"]
    if kind == "LLMInferenceServiceConfig":
        return {}, spec["template"]
    return None


def our_containers(objects):
    """(object, pod's spec, container) for each container that runs a program of ours."""
    for o in objects:
        pod = pod_of(o)
        for container in pod[1].get("containers", []) if pod else []:
            if "/usr/local/bin/quire" in " ".join(container.get("command", [])):
                yield o, pod[1], container


def program_of(container):
    return pathlib.Path(container["command"][0]).name


def command_line(container):
    return [*container["command"], *container.get("args", [])]


def flags_of(container):
    """name → values, as the command line gives them."""
    found = {}
    for word in command_line(container)[1:]:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found.setdefault(name, []).append(value)
    return found


def seconds(text):
    match = re.fullmatch(r"(\d+)(ms|s|m|h)", text)
    expect(match, f"a time: {text}")
    return int(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[match[2]]


def bytes_of(quantity):
    match = re.fullmatch(r"([\d.]+)([KMGT]i)?", quantity)
    expect(match, f"a quantity: {quantity}")
    return float(match[1]) * 1024 ** " KMGT".index((match[2] or " ")[0])


def known_flags(program, *subcommand):
    """Every flag that the real program's --help lists, with the choices that it names."""
    done = subprocess.run([PROGRAMS / program, *subcommand, "--help"], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    found = dict(re.findall(r"^  --([a-z0-9-]+)(?: ([^\s]+))?", done.stdout, re.M))
    expect(found, done.stdout)
    return {**found, "help": "", "version": ""}


@functools.cache
def repeatable_flags(program, *subcommand):
    """Those that may be given several times; of any other one the last counts."""
    done = subprocess.run([PROGRAMS / program, *subcommand, "--describe"], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    return {flag["name"] for flag in json.loads(done.stdout)["flags"] if flag["repeatable"]}


def secret_data(secret):
    return {name: base64.b64decode(value) for name, value in secret["data"].items()}
