"""Builds what the control plane needs from Go modules, all pinned, once: Kubernetes' programs and KServe's manager into
.cache/kubernetes, the node agent into .cache/plane."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "kubernetes"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "deploy"))
import tools  # noqa: E402
from cluster import CACHE, built  # noqa: E402

HERE = pathlib.Path(__file__).parent
KSERVE = "v0.20.0"
KSERVE_MODULE = "github.com/kserve/kserve"
AGENT = tools.ROOT / ".cache" / "plane" / "agent"


def kubernetes():
    return built("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def kserve_module():
    """The folder of KServe's module: its definitions and its configuration are in it."""
    return pathlib.Path(tools.download(tools.find_go(), f"{KSERVE_MODULE}@{KSERVE}")["Dir"])


def kserve_manager():
    at = CACHE / f"kserve-manager-{KSERVE}"
    if at.exists():
        return at
    go, module = tools.find_go(), kserve_module()
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = pathlib.Path(name)
        # A module that another one requires does not bring its replacements: they are taken over.
        text = (module / "go.mod").read_text()
        text = re.sub(r"^module .*", "module manager", text, count=1, flags=re.M)
        (folder / "go.mod").write_text(text + f"\nrequire {KSERVE_MODULE} {KSERVE}\n")
        (folder / "go.sum").write_bytes((module / "go.sum").read_bytes())
        fresh = folder / "manager"
        done = subprocess.run([go, "build", "-o", fresh, f"{KSERVE_MODULE}/cmd/manager"], cwd=folder,
                              env={**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"}, capture_output=True, text=True)
        if done.returncode != 0:
            raise tools.Missing(f"KServe's manager cannot be built: {done.stderr[-1000:]}")
        fresh.rename(at)
    return at


def agent():
    """The node agent, built again when its sources have changed."""
    tools.ensure()
    pin = json.dumps({str(p): p.read_text() for p in sorted((HERE / "agent").rglob("*")) if p.is_file()})
    mark = AGENT.with_suffix(".built")
    if AGENT.exists() and mark.exists() and mark.read_text() == pin:
        return AGENT
    AGENT.parent.mkdir(parents=True, exist_ok=True)
    # As the deploy tools are built: what Helm has of Kubernetes' client is then compiled already.
    done = subprocess.run([tools.find_go(), "build", "-gcflags=all=-N -l", "-ldflags=-s -w", "-o", AGENT, "."],
                          cwd=HERE / "agent", capture_output=True, text=True,
                          env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"})
    if done.returncode != 0:
        raise tools.Missing(f"the node agent cannot be built: {done.stderr[-2000:]}")
    mark.write_text(pin)
    return AGENT


if __name__ == "__main__":
    try:
        wanted = sys.argv[1:] or ["agent"]
        for name in wanted:
            print({"agent": agent, "kubernetes": kubernetes, "kserve": kserve_manager}[name]())
    except tools.Missing as missing:
        print(f"control plane: {missing}")
        sys.exit(3)
