"""How large the images are, unpacked: the root file systems that deploy/docker/root.py makes for them."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]


def bytes_of(*paths):
    files = [f for path in paths for f in (path.rglob("*") if path.is_dir() else [path])]
    return sum(f.lstat().st_size for f in files if f.is_file() and not f.is_symlink())


def run(programs, names):
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            root = pathlib.Path(folder) / name
            subprocess.run([sys.executable, ROOT / "deploy" / "docker" / "root.py", name, programs, root], check=True)
            ours, model = root / "usr" / "local" / "bin", root / "usr" / "share" / "quire" / "models"
            whole, demo = bytes_of(root), bytes_of(model)
            table[name] = {"without a model MB": round((whole - demo) / 1e6, 1), "whole MB": round(whole / 1e6, 1),
                           **{f"{p.name} MB": round(bytes_of(p) / 1e6, 1) for p in sorted(ours.iterdir())},
                           "libraries MB": round(bytes_of(*(p for p in root.rglob("*.so*") if p.parent != ours and p.is_file())) / 1e6, 1)}
    return table
