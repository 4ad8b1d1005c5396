#!/usr/bin/env python3
"""Builds the Go programs of the deploy tests into .cache/deploy/bin and puts custom resource definitions and schemas
beside them, all pinned, once. Ends with 3 when the Go proxy cannot be reached."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests" / "deploy"
CACHE = ROOT / ".cache" / "deploy"
BIN = CACHE / "bin"
CRDS = CACHE / "crds"
SCHEMAS = CACHE / "schemas"
GO_NEEDED, TOOLCHAIN = (1, 26), "v0.0.1-go1.26.0.linux-amd64"
KUBERNETES = "v1.34.2"
VALIDATE = "sigs.k8s.io/kubectl-validate@v0.0.4"
PROGRAMS = ["helm.sh/helm/v3/cmd/helm", "github.com/helm-unittest/helm-unittest/cmd/helm-unittest", "./yamljson"]
DEFINITIONS = [  # module, its files with custom resource definitions
    ("github.com/kserve/kserve@v0.20.0", ["config/crd/full/serving.*.yaml", "config/crd/full/llmisvc/serving.*.yaml"]),
    ("github.com/kedacore/keda/v2@v2.17.2", ["config/crd/bases/keda.sh_*.yaml"]),
    ("sigs.k8s.io/gateway-api@v1.3.0", ["config/crd/standard/gateway.*.yaml"]),
    ("sigs.k8s.io/lws@v0.7.0", ["config/crd/bases/*.yaml"]),
    ("github.com/cert-manager/cert-manager@v1.18.2", ["deploy/crds/crd-certificates.yaml", "deploy/crds/crd-issuers.yaml"]),
    ("github.com/prometheus-operator/prometheus-operator@v0.85.0", [
        f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
        for kind in ("servicemonitors", "podmonitors", "prometheusrules")]),
]


class Missing(Exception):
    """What this machine lacks."""


def go_version(go):
    told = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    return tuple(int(n) for n in re.search(r"go(\d+)\.(\d+)", told).groups())


def download(go, module):
    """A module in Go's cache: what `go mod download` says of it."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "go.mod").write_text("module fetch\n")
        done = subprocess.run([go, "mod", "download", "-json", module], cwd=folder, capture_output=True, text=True,
                              env={**os.environ, "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local"})
    if done.returncode != 0:
        raise Missing(f"{module} cannot be downloaded: {(done.stdout + done.stderr)[-300:]}")
    return json.loads(done.stdout)


def newer_go(go):
    """Debian's Go cannot build today's Kubernetes; a newer one is a Go module as well."""
    root = pathlib.Path(download(go, f"golang.org/toolchain@{TOOLCHAIN}")["Dir"])
    for folder in (root / "bin", root / "pkg" / "tool"):
        for path in folder.rglob("*"):
            if path.is_file():
                path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(root / "bin" / "go")


def find_go():
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not pathlib.Path(go).exists():
        raise Missing("go is not installed")
    return go if go_version(go) >= GO_NEEDED else newer_go(go)


def build(go):
    BIN.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "GOBIN": str(BIN), "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    env.pop("GOROOT", None)
    for folder, programs in ((HERE / "tools", PROGRAMS), (CACHE, [VALIDATE])):
        # Not optimised: that takes longer than these short runs win back.
        done = subprocess.run([go, "install", "-gcflags=all=-N -l", "-ldflags=-s -w", *programs],
                              cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode != 0:
            raise Missing(f"{' '.join(programs)} cannot be built: {done.stderr[-1000:]}")


def take_definitions(go):
    shutil.rmtree(CRDS, ignore_errors=True)
    CRDS.mkdir(parents=True)
    for module, patterns in DEFINITIONS:
        folder = pathlib.Path(download(go, module)["Dir"])
        for pattern in patterns:
            found = [p for p in folder.glob(pattern) if p.name != "kustomization.yaml"]
            if not found:
                raise Missing(f"{module} has no {pattern}")
            for path in found:
                shutil.copyfile(path, CRDS / path.name)


def take_schemas(go):
    """Kubernetes' own kinds of that release, where kubectl-validate looks for them."""
    shutil.rmtree(SCHEMAS, ignore_errors=True)
    folder = pathlib.Path(download(go, f"k8s.io/kubernetes@{KUBERNETES}")["Dir"]) / "api" / "openapi-spec" / "v3"
    for path in folder.glob("*__*_openapi.json"):
        *group, version = path.name.removesuffix("_openapi.json").split("__")
        if group != ["api"] and not (len(group) == 2 and group[0] == "apis"):
            continue
        to = SCHEMAS.joinpath(*group) / f"{version}.json"
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def ensure():
    """Builds and fetches what is not there yet."""
    pin = json.dumps([PROGRAMS, VALIDATE, KUBERNETES, DEFINITIONS]) + "".join(
        (HERE / "tools" / name).read_text() for name in ("go.mod", "go.sum", "yamljson/main.go"))
    mark = CACHE / "complete"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:  # suites run beside each other
        fcntl.flock(lock, fcntl.LOCK_EX)
        if mark.exists() and mark.read_text() == pin:
            return
        go = find_go()
        for step in (take_definitions, take_schemas, build):
            begin = time.monotonic()
            step(go)
            print(f"deploy tools: {step.__name__} took {time.monotonic() - begin:.0f} s", flush=True)
        mark.write_text(pin)


if __name__ == "__main__":
    try:
        ensure()
    except Missing as missing:
        print(f"deploy tools: {missing}")
        sys.exit(3)
