"""The hub's own client and a server of S3, in a virtual environment of .cache/, MLflow in another, and a registry in Go. Run
as a script it fetches them."""
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ["huggingface_hub==2.4.0", "moto[server,s3]==5.2.5", "boto3==1.44.8"]
FOLDER = ROOT / ".cache" / "venv-hub"
PYTHON = FOLDER / "bin" / "python"
# What MLflow's server imports here; the whole of its requirements is some gigabytes.
MLFLOW_PACKAGES = ["mlflow-skinny==3.17.2", "flask==3.1.2", "flask-cors==6.0.5", "graphene==3.4.3", "sqlalchemy==2.1.9", "alembic==1.20.1", "huey==3.5.4", "aiohttp==3.14.5", "pandas==3.1.1"]
MLFLOW = ROOT / ".cache" / "venv-mlflow"
MLFLOW_PYTHON = MLFLOW / "bin" / "python"
OCI = ROOT / "tests" / "supply" / "oci"
REGISTRY = ROOT / ".cache" / "go-bin" / "oci-registry"


def fetch_packages(folder, packages, alone=()):
    """A virtual environment with the packages, and those of `alone` without what they require."""
    mark, pin = folder / ".complete", " ".join([*packages, *alone])
    if mark.exists() and mark.read_text() == pin:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    commands = [[sys.executable, "-m", "venv", str(folder)], [*pip, *packages], *([[*pip, "--no-deps", *alone]] if alone else [])]
    got = all(subprocess.run(command).returncode == 0 for command in commands)
    if got:
        mark.write_text(pin)
    return got


def fetch():
    return fetch_packages(FOLDER, PACKAGES)


def fetch_mlflow():
    return fetch_packages(MLFLOW, MLFLOW_PACKAGES, ["mlflow==3.17.2"])


def ensure():
    import pytest
    if not fetch():
        pytest.skip(f"cannot fetch {', '.join(PACKAGES)}")


def ensure_mlflow():
    import pytest
    if not fetch_mlflow():
        pytest.skip("cannot fetch MLflow")


def build_registry():
    """go-containerregistry's registry and client, in one program."""
    mark, pin = REGISTRY.with_name(".oci-registry"), "".join((OCI / name).read_text() for name in ("go.mod", "go.sum", "main.go"))
    REGISTRY.parent.mkdir(parents=True, exist_ok=True)
    with open(REGISTRY.with_name("oci-registry.lock"), "w") as lock:  # suites run beside each other
        fcntl.flock(lock, fcntl.LOCK_EX)
        if REGISTRY.exists() and mark.exists() and mark.read_text() == pin:
            return True
        go = shutil.which("go") or "/usr/local/go/bin/go"
        env = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
        built = pathlib.Path(go).exists() and subprocess.run(
            [go, "build", "-ldflags=-s -w", "-o", str(REGISTRY), "."], cwd=OCI, env=env).returncode == 0
        if built:
            mark.write_text(pin)
        return built


def ensure_registry():
    import pytest
    if not build_registry():
        pytest.skip("cannot build go-containerregistry's registry")


if __name__ == "__main__":
    sys.exit(0 if fetch() and fetch_mlflow() and build_registry() else 3)
