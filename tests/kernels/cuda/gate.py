#!/usr/bin/env python3
"""Compiles every CUDA file for GPUs and holds its kernels to kernels/cuda/budget.csv.

Fails on a compile error or warning, spilled registers, a stack frame, notes of serialised tensor-core products, a kernel
without a row in budget.csv or a row without a kernel, registers above the row's ceiling, and machine code that lacks an
instruction class of the row (`LDG.E.128`; several are parted by blanks, a|b is one of two). The other columns of
budget.csv are held by tests/kernels/cuda (counters of the emulated grid). First the gate itself is tried on kernels
that it must refuse. Compiled files are kept in .cache/cuda-gate by the hash of all that they come from.
"""
import concurrent.futures
import csv
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import toolkit  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
KEPT = ROOT / ".cache" / "cuda-gate"
ARCHITECTURES = ("90a", "80")
MACHINE_CODE_ARCHITECTURE = "90a"
FLAGS = ["-std=c++20", "-fmad=false", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Wno-unused-parameter",
         "-Xptxas", "-v,-warn-spills,-warn-lmem-usage"]
# Notes of ptxas that cost an order of magnitude and that it does not call errors.
SERIALISED = re.compile(r"\bC75(?:08|10|11|17|19)\b|serializ", re.I)
DECLARED = re.compile(r"^QUIRE_KERNEL\(\s*(\w+)", re.M)


class Kernel:
    def __init__(self):
        self.registers = self.stack = self.spills = 0


def read_ptxas(text):
    """Kernel name → what ptxas -v said of it; and what of the text no gate may let pass."""
    kernels, bad, current = {}, [], None
    for line in text.splitlines():
        if m := re.search(r"Compiling entry function '(\w+)'", line):
            current = kernels.setdefault(m.group(1), Kernel())
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


def headers_hash():
    digest = hashlib.sha256()
    for path in sorted(ROOT.glob("kernels/**/*.h")) + sorted(ROOT.glob("tests/kernels/cuda/**/*.h")):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def compile_file(tools, source, arch, headers):
    """(error text or None, ptxas text, machine code text)"""
    key = hashlib.sha256("\0".join([headers, source.read_text(), arch, str(tools), *FLAGS,
                                    pathlib.Path(__file__).read_text()]).encode()).hexdigest()
    kept = KEPT / f"{key}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.cubin"
        done = subprocess.run([str(tools / "bin/nvcc"), *FLAGS, "-I", str(ROOT), "-cubin",
                               f"-gencode=arch=compute_{arch},code=sm_{arch}", str(source), "-o", str(out)],
                              capture_output=True, text=True, cwd=folder)
        said = done.stdout + done.stderr
        code = ""
        if done.returncode == 0 and arch == MACHINE_CODE_ARCHITECTURE:
            dump = subprocess.run([str(tools / "bin/cuobjdump"), "-sass", str(out)], capture_output=True, text=True,
                                  env={**os.environ, "PATH": f"{tools}/bin:{os.environ['PATH']}"})
            code = dump.stdout
    result = [None if done.returncode == 0 else said, said, code]
    if done.returncode == 0:
        KEPT.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(result))
    return result


def complaints(error, ptxas, code, rows, names, arch):
    """What is wrong with one compiled file. `rows`: budget by kernel, or None where none is needed."""
    kernels, wrong = read_ptxas(ptxas)
    # Spills and frames are told by the numbers below; a file that errs on their account has no others.
    if error and not (kernels and all(re.search(r"spill|local memory|lmem", line, re.I)
                                      for line in error.splitlines() if re.search(r"error|warning", line))):
        wrong.append(error.strip()[-1500:])
    for name in names:
        kernel = kernels.get(name)
        if kernel is None:
            if not error:
                wrong.append(f"{name}: not in what was compiled")
            continue
        if kernel.spills:
            wrong.append(f"{name}: {kernel.spills} bytes of spills on {arch}")
        if kernel.stack:
            wrong.append(f"{name}: a stack frame of {kernel.stack} bytes on {arch}")
        row = rows.get(name) if rows is not None else None
        if row is None:
            continue
        if kernel.registers > int(row["max_registers"]):
            wrong.append(f"{name}: {kernel.registers} registers on {arch}; at most {row['max_registers']}")
        if arch == MACHINE_CODE_ARCHITECTURE:
            instructions = read_machine_code(code).get(name, set())
            for wanted in row["machine_code"].split():
                if not has_class(instructions, wanted):
                    wrong.append(f"{name}: no {wanted} in its machine code")
    return wrong


def try_the_gate(tools, headers):
    """The gate refuses what it must. Returns complaints about the gate."""
    naive = compile_file(tools, ROOT / "tests/kernels/cuda/gate/naive.cu", "90a", headers)
    narrow = compile_file(tools, ROOT / "tests/kernels/cuda/gate/narrow.cu", "90a", headers)
    row = {"max_registers": "255", "machine_code": "LDG.E.128 HMMA|LDG.E"}
    found = "\n".join(complaints(*naive, {}, ["gate_spills", "gate_stack"], "90a") +
                      complaints(*narrow, {"gate_narrow": row}, ["gate_narrow"], "90a"))
    note = read_ptxas("ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized")[1]
    few = "\n".join(complaints(*narrow, {"gate_narrow": {**row, "max_registers": "1"}}, ["gate_narrow"], "90a"))
    checks = {"spills": "gate_spills:" in found and "spills" in found,
              "a stack frame": "gate_stack: a stack frame" in found,
              "an instruction class that is missing": "gate_narrow: no LDG.E.128" in found,
              "serialised tensor-core products": bool(note), "too many registers": "at most 1" in few}
    wrong = [f"the gate lets {what} pass" for what, good in checks.items() if not good]
    if "HMMA|LDG.E" in found:
        wrong.append("the gate does not know one class of two")
    return wrong


def link(tools, sources):
    """Links all kernels and the runtime into one program, and runs it."""
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / "probe"
        done = subprocess.run([str(tools / "bin/nvcc"), "-std=c++20", "-fmad=false", "-I", str(ROOT),
                               "-gencode=arch=compute_90a,code=sm_90a", "-t", "2", *map(str, sources), "-o",
                               str(program), f"-L{tools}/lib", f"-L{tools}/lib64", "-lcudart_static"],
                              capture_output=True, text=True, cwd=folder)
        if done.returncode != 0:
            return [(done.stdout + done.stderr)[-1500:]]
        ran = subprocess.run([str(program)], capture_output=True, text=True)
        print(f"probe: {ran.stdout.strip()}")
        return [] if ran.returncode == 0 else [f"the probe ends with {ran.returncode}: {ran.stdout}{ran.stderr}"]


def main():
    tools = toolkit.toolkit()
    if tools is None:
        print("SKIP cuda: no toolkit of version 13 here, and its wheels cannot be fetched")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    with open(ROOT / "kernels/cuda/budget.csv") as file:
        rows = {row["kernel"]: row for row in csv.DictReader(file)}
    ops = sorted((ROOT / "kernels/cuda/ops").glob("*.cu"))
    runtime = ROOT / "kernels/cuda/runtime/runtime_cuda.cu"
    planted = sorted((ROOT / "tests/kernels/cuda/planted").glob("*.cu"))
    headers = headers_hash()
    names = {path: DECLARED.findall(path.read_text()) for path in ops}
    passed, failures = 0, []

    def take(what, wrong):
        nonlocal passed
        if wrong:
            failures.append(what)
            print(f"FAIL {what}")
            print("\n".join("  " + line for line in wrong))
        else:
            passed += 1

    declared = [name for path in ops for name in names[path]]
    take("budget.csv", [f"{name}: no row" for name in declared if name not in rows] +
         [f"{name}: a row without a kernel" for name in rows if name not in declared])
    take("the gate", try_the_gate(tools, headers))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {(path, arch): pool.submit(compile_file, tools, path, arch, headers)
                for path in [*ops, runtime, *planted] for arch in ARCHITECTURES}
        for (path, arch), job in jobs.items():
            error, ptxas, code = job.result()
            take(f"{path.relative_to(ROOT)} for {arch}",
                 complaints(error, ptxas, code, rows, names.get(path, []), arch))
    if not failures:
        take("link", link(tools, [*ops, runtime, ROOT / "tests/kernels/cuda/gate/probe.cu"]))
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
