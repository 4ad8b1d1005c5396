"""Compiles every CUDA file for GPUs and holds its kernels to kernels/cuda/budget.csv.

Fails on a compile error or warning, spilled registers, a stack frame, notes of serialised tensor-core products, a kernel
without a row in budget.csv or a row without a kernel, registers above the row's ceiling, and machine code that lacks an
instruction class of the row (`LDG.E.128`; several are parted by blanks, a|b is one of two) or, on devices that launch
kernels early, the wait for those before it. The other columns of budget.csv are held by tests/kernels/cuda (counters of
the emulated grid). First the gate itself is tried on kernels that it must refuse. Compiled files are kept in
.cache/cuda-gate by the hash of all that they come from. The normal tier compiles for one architecture, --long for two.
"""
import concurrent.futures
import csv
import ctypes
import os
import pathlib
import re
import subprocess
import tempfile

import pytest

import compiler
import toolkit
from compiler import compile_file
from tier import GPU_ARCHITECTURES

ROOT = compiler.ROOT
OPS = sorted((ROOT / "kernels/cuda/ops").glob("*/*.cu"))
RUNTIME = ROOT / "kernels/cuda/runtime/runtime_cuda.cu"
PROBE = ROOT / "tests/kernels/cuda/gate/probe.cu"
OF_TESTS = [path for folder in ("planted", "timing") for path in sorted((ROOT / "tests/kernels/cuda" / folder).glob("*.cu"))]
FILES = [*OPS, RUNTIME, PROBE, *OF_TESTS]
HOST_FILES = [ROOT / "kernels" / name for name in ("grid_blocks.cc", "grid_tables.cc")]  # what packing weights calls
# Notes of ptxas that cost an order of magnitude and that it does not call errors.
SERIALISED = re.compile(r"\bC75(?:08|10|11|17|19)\b|serializ", re.I)
DECLARED = re.compile(r"^QUIRE_KERNEL(?:_AHEAD)?\(\s*(\w+)", re.M)
# A test that holds kernels to their rows names each of them; to name one elsewhere holds nothing.
TEST = re.compile(r"^TEST(?:_[FP])?\(.*?^}$", re.M | re.S)
HOLDS = "ExpectWithinBudget("
WAITS = "ACQBULK"  # the machine code of griddepcontrol.wait


class Kernel:
    def __init__(self):
        self.registers = self.stack = self.spills = 0


def read_ptxas(text):
    """(kernel, architecture) → what ptxas -v said of it; and what of the text no gate may let pass."""
    kernels, bad, current = {}, [], None
    for line in text.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            current = kernels.setdefault(m.groups(), Kernel())
        elif m := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            if current:
                current.stack = int(m.group(1))
                current.spills = int(m.group(2)) + int(m.group(3))
        elif m := re.search(r"Used (\d+) registers", line):
            current.registers = int(m.group(1))
        elif SERIALISED.search(line):
            bad.append(line.strip())
    return kernels, bad


def read_machine_code(text):
    """Kernel name → the set of its instructions."""
    code, current = {}, None
    for line in text.splitlines():
        if m := re.match(r"\s*Function : (\w+)", line):
            current = code.setdefault(m.group(1), set())
        elif current is not None and (m := re.match(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line)):
            current.add(m.group(1))
    return code


def has_class(instructions, wanted):
    return any(i == one or i.startswith(one + ".") for one in wanted.split("|") for i in instructions)


def complaints(compiled, rows, names):
    """What is wrong with one compiled file. `rows`: budget by kernel, where there is a row."""
    error, ptxas, code, _ = compiled
    kernels, wrong = read_ptxas(ptxas)
    # Spills and frames are told by the numbers below; a file that errs on their account has no others.
    if error and not (kernels and all(re.search(r"spill|local memory|lmem", line, re.I)
                                      for line in error.splitlines() if re.search(r"error|warning", line))):
        wrong.append(error.strip()[-1500:])
    machine_code = read_machine_code(code)
    for name in names:
        of_name = {arch: kernel for (its_name, arch), kernel in kernels.items() if its_name == name}
        if not error:
            wrong += [f"{name}: not compiled for {arch}" for arch in GPU_ARCHITECTURES if f"sm_{arch}" not in of_name]
        for arch, kernel in of_name.items():
            if kernel.spills:
                wrong.append(f"{name}: {kernel.spills} bytes of spills on {arch}")
            if kernel.stack:
                wrong.append(f"{name}: a stack frame of {kernel.stack} bytes on {arch}")
            if name in rows and kernel.registers > int(rows[name]["max_registers"]):
                wrong.append(f"{name}: {kernel.registers} registers on {arch}; "
                             f"at most {rows[name]['max_registers']}")
        if not error and not has_class(machine_code.get(name, set()), WAITS):
            wrong.append(f"{name}: does not wait for the kernels before it")
        if name in rows and not error:
            for wanted in rows[name]["machine_code"].split():
                if not has_class(machine_code.get(name, set()), wanted):
                    wrong.append(f"{name}: no {wanted} in its machine code")
    return wrong


def budget_complaints(rows, declared, held):
    """What is wrong with the table: the ratios are the design's, and no row has others."""
    most = {"max_bytes_ratio": 1.1, "max_tile_ratio": 1.15}
    return ([f"{name}: no row" for name in declared if name not in rows] +
            [f"{name}: a row without a kernel" for name in rows if name not in declared] +
            [f"{name}: no test holds its counters to its row" for name in declared if name not in held] +
            [f"{name}: {column} {row[column]}; at most {bound}" for name, row in rows.items()
             for column, bound in most.items() if float(row[column] or 0) > bound])


def held_by(text):
    """Names of what the tests in a file hold to budget.csv."""
    code = re.sub(r"//[^\n]*", "", text)
    return {name for test in TEST.findall(code) if HOLDS in test for name in re.findall(r'"(\w+)"', test)}


def keys_under(*releases):
    """Keys of one file, compiled by toolkits of these releases that stand at one place after another."""
    keys = []
    with tempfile.TemporaryDirectory() as folder:
        nvcc = pathlib.Path(folder) / "bin/nvcc"
        nvcc.parent.mkdir()
        for release in releases:
            nvcc.write_text(f"#!/bin/sh\necho release {release}\n")
            nvcc.chmod(0o755)
            keys.append(compiler.key_of_kernels(pathlib.Path(folder), ROOT / "tests/kernels/cuda/gate/narrow.cu", ()))
    return keys


def try_the_gate(tools):
    """The gate refuses what it must. Returns complaints about the gate."""
    naive = compile_file(tools, ROOT / "tests/kernels/cuda/gate/naive.cu", GPU_ARCHITECTURES)
    narrow = compile_file(tools, ROOT / "tests/kernels/cuda/gate/narrow.cu", GPU_ARCHITECTURES)
    row = {"max_registers": "255", "machine_code": "LDG.E.128 HMMA|LDG.E"}
    found = "\n".join(complaints(naive, {}, ["gate_spills", "gate_stack"]) +
                      complaints(narrow, {"gate_narrow": row}, ["gate_narrow", "gate_early"]))
    note = read_ptxas("ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized")[1]
    few = "\n".join(complaints(narrow, {"gate_narrow": {**row, "max_registers": "1"}}, ["gate_narrow"]))
    held = held_by('TEST(A, B) {\n  EXPECT_EQ(Run("named"), "");\n  // ExpectWithinBudget(r, "told", 1, 0);\n}\n'
                   'TEST_F(A, C) {\n  for (const char* k : {"one", "two"}) {\n'
                   '    ExpectWithinBudget(r, k, 1, 0);\n  }\n}\n')
    wide = budget_complaints({"a": {"max_bytes_ratio": "1.11", "max_tile_ratio": ""},
                              "b": {"max_bytes_ratio": "1.1", "max_tile_ratio": "1.16"},
                              "c": {"max_bytes_ratio": "1.1", "max_tile_ratio": "1.15"}}, "abc", "abc")
    checks = {"rows of more bytes or tiles than the design's": [line.split(":")[0] for line in wide] == ["a", "b"],
              "spills": re.search(r"gate_spills: \d+ bytes of spills", found),
              "a kernel that no test holds to its row": held == {"one", "two"},
              "files of another release of the toolkit": len(set(keys_under("13.0", "13.1", "13.1"))) == 2,
              "a stack frame": "gate_stack: a stack frame" in found,
              "a kernel that does not wait": "gate_early: does not wait" in found,
              "an instruction class that is missing": "gate_narrow: no LDG.E.128" in found,
              "serialised tensor-core products": bool(note), "too many registers": "at most 1" in few}
    wrong = [f"the gate lets {what} pass" for what, good in checks.items() if not good]
    if "gate_narrow: does not wait" in found:
        wrong.append("the gate does not see a wait")
    if "HMMA|LDG.E" in found:
        wrong.append("the gate does not know one class of two")
    return wrong


def link(tools, objects):
    """Links all kernels and the runtime into one program, and runs it."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "probe"
        done = subprocess.run([str(tools / "bin/nvcc"), "-std=c++20", "-I", str(ROOT), *map(str, objects),
                               *map(str, HOST_FILES), "-o", str(program), f"-L{tools}/lib", f"-L{tools}/lib64",
                               "-lcudart_static"], capture_output=True, text=True, cwd=folder)
        if done.returncode != 0:
            return [(done.stdout + done.stderr)[-1500:]]
        ran = subprocess.run([str(program)], capture_output=True, text=True)
        print(f"probe: {ran.stdout.strip()}")
        return [] if ran.returncode == 0 else [f"the probe ends with {ran.returncode}: {ran.stdout}{ran.stderr}"]


def stand_in_complaints(tools, runtime):
    """The compiled runtime over functions that stand in for the API's and come before the library's."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "stand_in"
        done = subprocess.run(["g++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT), "-isystem",
                               str(tools / "include"), str(ROOT / "tests/kernels/cuda/gate/stand_in.cc"), str(runtime),
                               "-o", str(program), f"-L{tools}/lib", f"-L{tools}/lib64", "-Wl,-z,muldefs",
                               "-lcudart_static", "-ldl", "-lrt", "-lpthread"], capture_output=True, text=True)
        if done.returncode != 0:
            return [(done.stdout + done.stderr)[-1500:]]
        ran = subprocess.run([str(program)], capture_output=True, text=True, timeout=60)
        return [] if ran.returncode == 0 else [f"it ends with {ran.returncode}: {ran.stdout}{ran.stderr}"]


def nccl_complaints(tools, nccl):
    """Our declarations against NCCL's header, and the functions that are opened against its library."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([str(tools / "bin/nvcc"), "-std=c++20", "-ccbin", "g++", "-I", str(ROOT), "-I",
                               str(nccl / "include"), "-c", str(ROOT / "tests/kernels/cuda/gate/nccl_abi.cu"), "-o",
                               str(pathlib.Path(folder) / "abi.o")], capture_output=True, text=True)
    wrong = [] if done.returncode == 0 else [(done.stdout + done.stderr)[-1500:]]
    library = ctypes.CDLL(str(nccl / "lib/libnccl.so.2"))
    opened = re.findall(r'Need\("(nccl\w+)"', (ROOT / "kernels/cuda/nccl/nccl_library.cc").read_text())
    wrong += [f"NCCL has no {name}" for name in opened if not hasattr(library, name)]
    version = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(version))
    needed = re.search(r"kNcclHeaderVersion = (\d+)", (ROOT / "kernels/cuda/nccl/nccl_abi.h").read_text()).group(1)
    if version.value != int(needed) or not opened:
        wrong.append(f"NCCL {version.value} with {len(opened)} functions; {needed} is declared")
    return wrong


def header_complaints(tools, include, name, sources):
    """Our declarations against a library's header, and that it names all functions that `sources` open."""
    done = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", str(ROOT), "-isystem", str(include),
                           "-isystem", str(tools / "include"), str(ROOT / f"tests/kernels/cuda/gate/{name}")],
                          capture_output=True, text=True)
    wrong = [] if done.returncode == 0 else [(done.stdout + done.stderr)[-1500:]]
    header = "".join(path.read_text(errors="replace") for path in include.glob("*.h"))
    opened = [found for source in sources for found in re.findall(r'(?:Need|Take)\("(\w+)"', (ROOT / source).read_text())]
    wrong += [f"the header has no {found}" for found in opened if not re.search(rf"\b{found}\b", header)]
    return wrong + ([] if opened else ["no function is opened"])


def hold(wrong):
    assert not wrong, "\n".join(wrong)


def declared_in(path):
    """Kernels of a file that the product has."""
    return DECLARED.findall(path.read_text()) if path in OPS else []


@pytest.fixture(scope="module")
def tools():
    found = toolkit.toolkit()
    if found is None:
        pytest.skip("no toolkit of version 13 here, and its wheels cannot be fetched")
    yield found
    compiler.forget_old()


@pytest.fixture(scope="module")
def rows():
    """The budget of each kernel."""
    with open(ROOT / "kernels/cuda/budget.csv") as file:
        return {row["kernel"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def compiled(tools):
    """File → what came of it; all are under way from the first question on."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {path: pool.submit(compile_file, tools, path, GPU_ARCHITECTURES) for path in FILES}
        yield lambda path: jobs[path].result()


def test_every_kernel_has_its_row_and_a_test_that_holds_it(rows):
    declared = [name for path in OPS for name in declared_in(path)]
    held = set().union(*(held_by(path.read_text()) for path in (ROOT / "tests/kernels/cuda").rglob("*_test.cc")))
    hold(budget_complaints(rows, declared, held))


def test_the_gate_refuses_what_it_must(tools):
    hold(try_the_gate(tools))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_compiles_within_its_budget(path, compiled, rows):
    hold(complaints(compiled(path), rows, declared_in(path)))


def test_all_kernels_link_into_one_program(tools, compiled):
    objects = [compiled(path)[3] for path in FILES if path not in OF_TESTS]
    assert None not in objects, "a file was not compiled"
    hold(link(tools, objects))


def test_the_runtime_runs_over_functions_that_stand_in_for_the_apis(tools, compiled):
    assert compiled(RUNTIME)[3] is not None, "it was not compiled"
    hold(stand_in_complaints(tools, compiled(RUNTIME)[3]))


def test_our_declarations_are_nccls(tools):
    nccl = toolkit.nccl()
    if nccl is None:
        pytest.skip("the wheel of NCCL cannot be fetched")
    hold(nccl_complaints(tools, nccl))


@pytest.mark.parametrize("find, declarations, source", (
    ("nvml", "nvml_abi.cu", "kernels/cuda/driver/nvml.cc"),
    ("cublas", "cublaslt_abi.cu", "kernels/cuda/cublaslt/cublaslt_library.cc")))
def test_our_declarations_are_those_of_the_header(tools, find, declarations, source):
    include = getattr(toolkit, find)()
    if include is None:
        pytest.skip(f"the headers of {find} cannot be fetched")
    hold(header_complaints(tools, include, declarations, [source]))
