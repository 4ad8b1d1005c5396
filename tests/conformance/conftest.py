import subprocess

import pytest

from harness import ROOT


@pytest.fixture(scope="session")
def clients():
    """What setup.sh fetches."""
    done = subprocess.run(["bash", ROOT / "tests" / "conformance" / "setup.sh"], capture_output=True, text=True)
    if done.returncode == 3:
        pytest.skip("a client (Python packages, grpcurl) could not be fetched (no network?)")
    assert done.returncode == 0, done.stderr[-2000:]
