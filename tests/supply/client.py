"""The hub's own client and a server of S3, in a virtual environment of .cache/. Run as a script it fetches them."""
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ["huggingface_hub==2.4.0", "moto[server,s3]==5.2.5", "boto3==1.44.8"]
FOLDER = ROOT / ".cache" / "venv-hub"
PYTHON = FOLDER / "bin" / "python"
MARK = FOLDER / ".complete"


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


if __name__ == "__main__":
    sys.exit(0 if fetch() else 3)
