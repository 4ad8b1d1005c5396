"""libquire_cuda.so as ./dev cuda builds it: what it shows and needs, its table, and what the worker makes of it without a
GPU: one line and exit code 4. With --long also that it is built for every architecture, as the image has it, and how
much its kernels spill there.
"""
import ctypes
import json
import os
import pathlib
import re
import subprocess

import pytest

import compiler
import plugin
import toolkit
from gate_test import read_ptxas
from harness import ROOT
from tier import GPU_ARCHITECTURES, LONG

NO_GPU = not pathlib.Path("/dev/nvidia0").exists()
ALL = compiler.ALL_ARCHITECTURES
BUILD = ROOT / "build"
WORKER = BUILD / "bin/quire-worker"
FOLDER = BUILD / "cuda"
# The standard library and what it stands on; libpthread, libdl and librt are stubs of libc's.
NEEDED = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
          "ld-linux-x86-64.so.2"}
# Stores and loads of one thread: eight registers, once each. Those that CI compiles for have none.
MOST_SPILLED_BYTES = 64


def check(what, good, told=""):
    assert good, f"{what}: {told}"


@pytest.fixture(scope="module")
def tools():
    found = toolkit.toolkit()
    if found is None:
        pytest.skip("no toolkit of version 13 here, and its wheels cannot be fetched")
    return found


@pytest.fixture(scope="module")
def built(tools):
    wrong = plugin.build(FOLDER, GPU_ARCHITECTURES)
    assert wrong is None, wrong


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


def test_shows_one_symbol_and_needs_the_standard_library(built):
    shown = {fields[7].split("@")[0] for line in readelf("-W", "--dyn-syms").splitlines()
             if len(fields := line.split()) > 7 and fields[4] in ("GLOBAL", "WEAK", "UNIQUE") and fields[6] != "UND"}
    check("one symbol is shown", shown == {"quire_cuda_table"}, shown)
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d")))
    check("it needs the standard library alone", needed and needed <= NEEDED, needed)


@pytest.fixture
def table(built):
    table = ctypes.CDLL(str(FOLDER / plugin.NAME))
    table.quire_cuda_table.restype = ctypes.POINTER(Table)
    return table.quire_cuda_table().contents


def attempt(table, device, major, minor):
    """(code, whether a backend was opened, what is said)."""
    backend, text = ctypes.c_void_p(), ctypes.create_string_buffer(512)
    request = Request(device, major, minor, b"a GPU", b"", b"")
    code = table.open(ctypes.byref(request), ctypes.byref(backend), text, 512)
    if backend:
        table.close(backend)
    return code, bool(backend), text.value.decode()


def test_its_table_is_as_declared(table):
    header = (plugin.GENERATED / "quire_build_id.h").read_text()
    declared = (ROOT / "kernels/cuda/plugin/plugin_table.h").read_text()
    fields = re.search(r"struct QuireCudaRequest \{(.*?)\n\};", declared, re.S)[1]
    fields = re.findall(r"(\w+)[,;]", re.sub("//.*", "", fields))
    check("a request has the fields of its header", fields == [name for name, _ in Request._fields_], fields)
    check("its version", f"kQuireCudaTableVersion = {table.version};" in declared, table.version)
    check("its build id is the tree's", f'"{table.build_id.decode()}"' in header and len(table.build_id) == 64, header)
    oldest = min(int(arch.rstrip("a")) // 10 for arch in GPU_ARCHITECTURES)
    check("its toolkit", table.toolkit_version >= 13000 and table.oldest_major == oldest, table.toolkit_version)


def test_one_that_estimates_opens_without_a_gpu(table):
    check("sm_90", attempt(table, -1, 9, 0)[:2] == (0, True), attempt(table, -1, 9, 0))
    if LONG:
        check("sm_86 runs what sm_80 does", attempt(table, -1, 8, 6)[:2] == (0, True), attempt(table, -1, 8, 6))


@pytest.mark.parametrize("major, minor", ((7, 5), (10, 0)))
def test_a_gpu_without_machine_code_is_told_what_there_is(table, major, minor):
    code, opened, text = attempt(table, -1, major, minor)
    there = "8.0, 9.0" if LONG else "9.0"
    check("one line", (code, opened) == (1, False) and there in text and "--all-arch" in text, (code, text))


def test_an_index_that_no_device_has(table):
    check("its code", attempt(table, -2, 9, 0)[0] == 2, attempt(table, -2, 9, 0))


@pytest.mark.skipif(not NO_GPU, reason="a GPU is here")
def test_without_a_driver_no_device_opens(table):
    code, opened, text = attempt(table, 0, 9, 0)
    check("one line", (code, opened) == (1, False) and text and "\n" not in text, text)


def worker(*flags, fake=None):
    env = dict(os.environ)
    if fake is not None:
        env |= {"FAKE_CUDA": fake, "LD_LIBRARY_PATH": str(BUILD / "tests/fake_cuda/driver")}
    done = subprocess.run([str(WORKER), f"--model={ROOT / 'models/demo'}", "--log-level=error", "--listen=127.0.0.1:0",
                           "--http-port=0", f"--cuda-plugin={FOLDER}", *flags], capture_output=True, text=True, env=env,
                          timeout=120)
    return done.returncode, done.stdout + done.stderr


without_a_gpu = pytest.mark.skipif(not NO_GPU, reason="a GPU is here")


@without_a_gpu
def test_no_driver_is_one_line_and_code_4(built):
    code, said = worker("--device=cuda")
    check("serving", code == 4 and said.count("\n") == 1 and "libcuda.so.1" in said and "--device cpu" in said, (code, said))
    code, said = worker("--device=cuda", "--plan")
    check("what would help a plan is said", code == 4 and said.count("\n") == 1 and "--memory" in said, (code, said))


@without_a_gpu
def test_a_plan_needs_no_gpu(built):
    code, said = worker("--device=cuda", "--plan", "--plan-memory=80GiB")
    plan = json.loads(said) if code == 0 else {}
    check("a plan", "not here" in plan.get("device", "") and plan["usable_bytes"] == 80 << 30 and
          plan["page_count"] > 0 and plan["block_size"] == 64, (code, said))


@without_a_gpu
def test_auto_takes_the_cpu(built):
    code, said = worker("--device=auto", "--plan")
    check("a plan", code == 0 and json.loads(said)["device"].startswith("cpu"), said)


# From here on by a driver that shows a GPU and computes nothing.
def test_a_plan_for_a_gpu_is_made_by_the_plugin(built):
    code, said = worker("--device=cuda", "--plan", fake="free_mib=4096")
    plan = json.loads(said) if code == 0 else {}
    check("a plan", plan.get("device") == "cuda:0 (Paper 9000)" and "sm_90" in plan["numerics"] and
          plan["block_size"] == 64 and plan["usable_bytes"] == (4096 - 512) << 20 and plan["page_count"] > 0, said)


def test_auto_takes_the_gpu(built):
    code, said = worker("--device=auto", "--plan", fake="")
    check("a plan", code == 0 and json.loads(said)["device"].startswith("cuda:0"), said)


def test_a_gpu_without_machine_code_is_one_line_and_code_4(built):
    code, said = worker("--device=cuda", "--plan", fake="major=12")
    check("a line", code == 4 and said.count("\n") == 1 and "compute capability 12.0" in said, (code, said))


def test_a_device_that_does_not_open_is_one_line_and_code_4(built):
    code, said = worker("--device=cuda", fake="")
    check("a line", code == 4 and said.count("\n") == 1 and "cuda:0 (Paper 9000) cannot be opened" in said, (code, said))


def test_dtype_float32_is_a_bad_argument(built):
    code, said = worker("--device=cuda", "--dtype=float32", fake="")
    check("a line", code == 2 and "--dtype" in said, (code, said))


def test_worker_has_no_emulator():
    symbols = subprocess.run(["nm", "-C", str(WORKER)], capture_output=True, text=True).stdout
    check("the worker has symbols to look at", "quire::WorkerLoader" in symbols)
    check("the worker has no emulator", "EmulatedRuntime" not in symbols and "cuda::emulate" not in symbols)


def machine_code_for_every_architecture(tools):
    wrong = plugin.build(FOLDER / "all", ALL)
    assert wrong is None, wrong
    told = subprocess.run([tools / "bin/cuobjdump", "--list-elf", FOLDER / "all" / plugin.NAME],
                          capture_output=True, text=True).stdout
    found = set(re.findall(r"sm_(\d+a?)", told))
    check("each architecture has machine code", found == set(ALL), found)


def spills_are_few_on_every_architecture(tools):
    """Files that the build before has compiled are not compiled again."""
    spilled = {}
    for path in plugin.files(["kernels/cuda/ops/*/*.cu"]):
        kernels, _ = read_ptxas(compiler.compile_file(tools, path, ALL)[1])
        check(f"ptxas tells of {path.name} on each architecture",
              {arch for _, arch in kernels} == {f"sm_{arch}" for arch in ALL}, kernels.keys())
        spilled |= {place: kernel.spills for place, kernel in kernels.items() if kernel.spills > 0}
    for (name, arch), count in sorted(spilled.items()):
        print(f"spills: {name} on {arch}: {count} bytes")
    check(f"no kernel spills more than {MOST_SPILLED_BYTES} bytes",
          all(count <= MOST_SPILLED_BYTES for count in spilled.values()), spilled)
    at_home = {place: count for place, count in spilled.items() if place[1].removeprefix("sm_") in compiler.ARCHITECTURES}
    check("none spills where the kernels were made", not at_home, at_home)


if LONG:  # eight minutes
    test_machine_code_for_every_architecture = machine_code_for_every_architecture
    test_spills_are_few_on_every_architecture = spills_are_few_on_every_architecture
