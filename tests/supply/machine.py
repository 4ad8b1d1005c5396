"""A home of its own for `quire pull` and its like."""
import os
import pathlib
import subprocess

from harness import BIN, expect

QUIRE = BIN / "quire"
# What CLEAN leaves out decides where models are and which hub is asked.
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("QUIRE_", "HF_", "XDG_", "TRANSFORMERS_", "DOCKER_", "MLFLOW_"))}


class Machine:
    """A home of its own, and commands that run in it."""

    def __init__(self, folder, hub=None):
        self.home, self.hub = folder, hub
        self.cache = folder / ".cache" / "huggingface" / "hub"
        folder.mkdir(exist_ok=True)
        self.env = {**CLEAN, "HOME": str(folder), **({"HF_ENDPOINT": hub.url} if hub else {})}

    def command(self, *args):
        return [str(QUIRE), *map(str, args)]

    def quire(self, *args, env=None, stdin=None, limit_s=60):
        done = subprocess.run(self.command(*args), env={**self.env, **(env or {})}, capture_output=True, text=True,
                              input=stdin, timeout=limit_s)
        return done.returncode, done.stdout, done.stderr

    def pulled(self, name, *args, env=None):
        """The path that a pull that works prints."""
        code, out, err = self.quire("pull", name, *args, env=env)
        expect(code == 0, (code, out, err))
        return pathlib.Path(out.strip())

    def refused(self, code, mention, *args, env=None):
        found, out, err = self.quire(*args, env=env)
        last = err.strip().splitlines()[-1] if err.strip() else ""
        expect(found == code and mention in last and last.startswith("quire "), (args, found, out, err))

    def parts(self):
        return [p for p in self.home.rglob("*.quire-part*")]
