#!/usr/bin/env python3
"""libquire_cuda.so as ./dev cuda builds it: what it shows and needs, its table, and what the worker makes of it without a
GPU: one line and exit code 4. With --all-arch only that it is built for every architecture, as the image has it.
"""
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "kernels/cuda/toolchain"))
import compiler  # noqa: E402
import plugin  # noqa: E402
import toolkit  # noqa: E402

ALL = compiler.ALL_ARCHITECTURES
BUILD = ROOT / "build"
WORKER = BUILD / "bin/quire-worker"
FOLDER = BUILD / "cuda"
# The standard library and what it stands on; libpthread, libdl and librt are stubs of libc's.
NEEDED = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
          "ld-linux-x86-64.so.2"}
passed = failed = 0


def check(what, good, told=""):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f"FAIL {what}: {told}")


class Request(ctypes.Structure):
    _fields_ = [("device", ctypes.c_int32), ("major", ctypes.c_int32), ("minor", ctypes.c_int32),
                ("description", ctypes.c_char_p), ("nccl_library", ctypes.c_char_p),
                ("cublaslt_library", ctypes.c_char_p)]


class Table(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("build_id", ctypes.c_char_p), ("toolkit_version", ctypes.c_int32),
                ("oldest_major", ctypes.c_int32),
                ("open", ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(Request), ctypes.POINTER(ctypes.c_void_p),
                                          ctypes.c_char_p, ctypes.c_size_t)),
                ("close", ctypes.CFUNCTYPE(None, ctypes.c_void_p))]


def readelf(*args):
    return subprocess.run(["readelf", *args, str(FOLDER / plugin.NAME)], capture_output=True, text=True,
                          check=True).stdout


def test_shows_one_symbol_and_needs_the_standard_library():
    shown = {fields[7].split("@")[0] for line in readelf("-W", "--dyn-syms").splitlines()
             if len(fields := line.split()) > 7 and fields[4] in ("GLOBAL", "WEAK", "UNIQUE") and fields[6] != "UND"}
    check("one symbol is shown", shown == {"quire_cuda_table"}, shown)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d")))
    check("it needs the standard library alone", needed and needed <= NEEDED, needed)


def test_table():
    table = ctypes.CDLL(str(FOLDER / plugin.NAME))
    table.quire_cuda_table.restype = ctypes.POINTER(Table)
    table = table.quire_cuda_table().contents
    header = (plugin.GENERATED / "quire_build_id.h").read_text()
    declared = (ROOT / "kernels/cuda/plugin/plugin_table.h").read_text()
    fields = re.search(r"struct QuireCudaRequest \{(.*?)\n\};", declared, re.S)[1]
    fields = re.findall(r"(\w+)[,;]", re.sub("//.*", "", fields))
    check("a request has the fields of its header", fields == [name for name, _ in Request._fields_], fields)
    check("its version", f"kQuireCudaTableVersion = {table.version};" in declared, table.version)
    check("its build id is the tree's", f'"{table.build_id.decode()}"' in header and len(table.build_id) == 64, header)
    check("its toolkit", table.toolkit_version >= 13000 and table.oldest_major == 8, table.toolkit_version)

    def attempt(device, major, minor):
        backend, text = ctypes.c_void_p(), ctypes.create_string_buffer(512)
        request = Request(device, major, minor, b"a GPU", b"", b"")
        code = table.open(ctypes.byref(request), ctypes.byref(backend), text, 512)
        if backend:
            table.close(backend)
        return code, bool(backend), text.value.decode()

    check("one that estimates opens without a GPU", attempt(-1, 9, 0)[:2] == (0, True), attempt(-1, 9, 0))
    check("sm_86 runs what sm_80 does", attempt(-1, 8, 6)[:2] == (0, True), attempt(-1, 8, 6))
    for major, minor in ((7, 5), (10, 0)):
        code, opened, text = attempt(-1, major, minor)
        check(f"sm_{major}{minor} is told what there is machine code for",
              (code, opened) == (1, False) and "8.0, 9.0" in text and "--all-arch" in text, (code, text))
    check("an index that no device has", attempt(-2, 9, 0)[0] == 2, attempt(-2, 9, 0))
    if not pathlib.Path("/dev/nvidia0").exists():
        code, opened, text = attempt(0, 9, 0)
        check("without a driver no device opens", (code, opened) == (1, False) and text and "\n" not in text, text)


def worker(*flags, fake=None):
    env = dict(os.environ)
    if fake is not None:
        env |= {"FAKE_CUDA": fake, "LD_LIBRARY_PATH": str(BUILD / "tests/fake_cuda/driver")}
    done = subprocess.run([str(WORKER), f"--model={ROOT / 'models/demo'}", "--log-level=error", "--listen=127.0.0.1:0",
                           "--http-port=0", f"--cuda-plugin={FOLDER}", *flags], capture_output=True, text=True, env=env,
                          timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_worker():
    if not pathlib.Path("/dev/nvidia0").exists():
        code, said = worker("--device=cuda")
        check("no driver is one line and code 4",
              code == 4 and said.count("\n") == 1 and "libcuda.so.1" in said and "--device cpu" in said, (code, said))
        code, said = worker("--device=cuda", "--plan")
        check("what would help a plan is said", code == 4 and said.count("\n") == 1 and "--memory" in said, (code, said))
        code, said = worker("--device=cuda", "--plan", "--plan-memory=80GiB")
        plan = json.loads(said) if code == 0 else {}
        check("a plan needs no GPU", "not here" in plan.get("device", "") and plan["usable_bytes"] == 80 << 30 and
              plan["page_count"] > 0 and plan["block_size"] == 64, (code, said))
        code, said = worker("--device=auto", "--plan")
        check("auto takes the CPU", code == 0 and json.loads(said)["device"].startswith("cpu"), said)
    # A driver that shows a GPU and computes nothing.
    code, said = worker("--device=cuda", "--plan", fake="free_mib=4096")
    plan = json.loads(said) if code == 0 else {}
    check("a plan for a GPU is made by the plugin",
          plan.get("device") == "cuda:0 (Paper 9000)" and "sm_90" in plan["numerics"] and plan["block_size"] == 64 and
          plan["usable_bytes"] == (4096 - 512) << 20 and plan["page_count"] > 0, said)
    code, said = worker("--device=auto", "--plan", fake="")
    check("auto takes the GPU", code == 0 and json.loads(said)["device"].startswith("cuda:0"), said)
    code, said = worker("--device=cuda", "--plan", fake="major=12")
    check("a GPU without machine code is one line and code 4",
          code == 4 and said.count("\n") == 1 and "compute capability 12.0" in said, (code, said))
    code, said = worker("--device=cuda", fake="")
    check("a device that does not open is one line and code 4",
          code == 4 and said.count("\n") == 1 and "cuda:0 (Paper 9000) cannot be opened" in said, (code, said))
    code, said = worker("--device=cuda", "--dtype=float32", fake="")
    check("--dtype float32 is a bad argument", code == 2 and "--dtype" in said, (code, said))


def test_worker_has_no_emulator():
    symbols = subprocess.run(["nm", "-C", str(WORKER)], capture_output=True, text=True).stdout
    check("the worker has symbols to look at", "quire::WorkerLoader" in symbols)
    check("the worker has no emulator", "EmulatedRuntime" not in symbols and "cuda::emulate" not in symbols)


def test_machine_code_for_every_architecture():
    told = subprocess.run([toolkit.toolkit() / "bin/cuobjdump", "--list-elf", FOLDER / "all" / plugin.NAME],
                          capture_output=True, text=True).stdout
    found = set(re.findall(r"sm_(\d+a?)", told))
    check("each architecture has machine code", found == set(ALL), found)


def main():
    if toolkit.toolkit() is None:
        print("SKIP cuda-plugin: no toolkit of version 13 here, and its wheels cannot be fetched")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    every = "--all-arch" in sys.argv[1:]
    wrong = plugin.build(FOLDER / "all", ALL) if every else plugin.build(FOLDER)
    check("it is built", wrong is None, wrong)
    if wrong is None and every:
        test_machine_code_for_every_architecture()
    elif wrong is None:
        for test in (test_shows_one_symbol_and_needs_the_standard_library, test_table, test_worker,
                     test_worker_has_no_emulator):
            test()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
