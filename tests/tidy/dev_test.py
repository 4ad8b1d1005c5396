"""What ./dev shows while it builds, with stand-ins for the programs that it runs."""
import contextlib
import os
import pathlib
import pty
import shutil
import subprocess

import pytest

DEV = pathlib.Path(__file__).resolve().parents[2] / "dev"
NINJA = """#!/bin/sh
echo "ninja: Entering directory 'build'"
for i in 1 2 3; do echo "[$i/3] Building CXX object thing_$i.o"; done
[ -z "$FAILS" ] || { echo "thing.cc:1: error: planted"; exit 1; }
"""


@pytest.fixture
def tree(tmp_path):
    shutil.copy(DEV, tmp_path / "dev")
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "build.ninja").write_text("")
    for name, text in (("ninja", NINJA), ("dpkg-query", "#!/bin/sh\nprintf 'install ok installed'\n"), ("cargo", "#!/bin/sh\n")):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return tmp_path


def at_a_terminal(tree, **env):
    master, slave = pty.openpty()
    child = subprocess.Popen([tree / "dev", "build", "thing"], stdin=subprocess.DEVNULL, stdout=slave, stderr=slave,
                             env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}", **env})
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):
        while more := os.read(master, 4096):
            seen += more
    os.close(master)
    return child.wait(timeout=60), seen.decode()


def test_a_build_at_a_terminal_says_how_far_it_is(tree):
    code, seen = at_a_terminal(tree)
    assert code == 0 and "1 of 3 steps" in seen and "3 of 3 steps" in seen and "thing_1" not in seen, seen
    assert "[3/3] Building CXX object thing_3.o" in (tree / ".cache" / "build.log").read_text()


def test_a_build_that_fails_there_shows_why(tree):
    code, seen = at_a_terminal(tree, FAILS="1")
    assert code == 1 and "thing.cc:1: error: planted" in seen and "the build failed" in seen, seen


def test_elsewhere_there_is_one_line(tree):
    done = subprocess.run([tree / "dev", "build", "thing"], capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{tree / 'bin'}:{os.environ['PATH']}"})
    assert done.returncode == 0 and "steps" not in done.stderr and done.stderr.count("\n") == 1, done.stderr
