"""The hub's own client and a server of S3, in a virtual environment of .cache/, and a registry in Go. Run as a script it
fetches them."""
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
MARK = FOLDER / ".complete"
OCI = ROOT / "tests" / "supply" / "oci"
REGISTRY = ROOT / ".cache" / "go-bin" / "oci-registry"


def fetch():
    if MARK.exists() and MARK.read_text() == " ".join(PACKAGES):
        return True
    shutil.rmtree(FOLDER, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", str(FOLDER)], capture_output=True)
    got = made.returncode == 0 and subprocess.run(
        [str(PYTHON), "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES]).returncode == 0
    if got:
        MARK.write_text(" ".join(PACKAGES))
    return got


def ensure():
    import pytest
    if not fetch():
        pytest.skip(f"cannot fetch {', '.join(PACKAGES)}")


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
    sys.exit(0 if fetch() and build_registry() else 3)
