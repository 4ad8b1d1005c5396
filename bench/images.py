"""How large the images are, unpacked: the root file systems that deploy/docker/root.py makes for them."""
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "kernels" / "cuda" / "toolchain"))
import toolkit  # noqa: E402

PLUGIN = "libquire_cuda.so"


def bytes_of(*paths):
    files = [f for path in paths for f in (path.rglob("*") if path.is_dir() else [path])]
    return sum(f.lstat().st_size for f in files if f.is_file() and not f.is_symlink())


def architectures(plugin):
    """Those of which it holds machine code."""
    told = subprocess.run([toolkit.toolkit() / "bin" / "cuobjdump", "--list-elf", plugin], capture_output=True, text=True, check=True)
    return sorted(set(re.findall(r"sm_\d+a?", told.stdout)))


def row(root):
    ours, model = root / "usr" / "local" / "bin", root / "usr" / "share" / "quire" / "models"
    whole, demo = bytes_of(root), bytes_of(model)
    found = {"without a model MB": round((whole - demo) / 1e6, 1), "whole MB": round(whole / 1e6, 1),
             **{f"{p.name} MB": round(bytes_of(p) / 1e6, 1) for p in sorted(ours.iterdir())},
             "libraries MB": round(bytes_of(*(p for p in root.rglob("*.so*") if p.parent != ours and p.is_file())) / 1e6, 1)}
    if (ours / PLUGIN).exists():
        found["machine code for"] = architectures(ours / PLUGIN)
    return found


def run(programs, names):
    """name → sizes. The image for GPUs is measured where ./dev cuda has built the plugin; its driver is the node's."""
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if name == "worker-cuda" and not (programs / PLUGIN).exists():
                table[name] = f"not measured: {PLUGIN} is not built (./dev cuda --all-arch, as deploy/docker/Dockerfile does)"
                continue
            root = pathlib.Path(folder) / name
            subprocess.run([sys.executable, ROOT / "deploy" / "docker" / "root.py", name, programs, root], check=True)
            table[name] = row(root)
    return table
