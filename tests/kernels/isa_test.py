"""Files that are compiled for a wider instruction set share no function with the rest of the program.

Where two object files define one weak function (an inline one, or a template's), the linker keeps the first. If that one
is compiled for AVX-512, a processor without it stops at the first call, whichever kernels were chosen. So a weak
function of such a file is over a type of its own (Vec16...), or no other file has it. Files for AVX2 may share the CPU's
kernels with plain ones: no processor without AVX2 gets as far as these.
"""
import collections
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
OBJECTS = ROOT / "build" / "CMakeFiles"
WIDER = re.compile(r"_(avx2|avxvnni|avx512|avx512vnni|avx512bf16|amx)\.cc\.o$")


def weak_functions(path):
    lines = subprocess.run(["nm", "-C", "--defined-only", path], capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split(" ", 2)[2] for line in lines if line.split(" ", 2)[1] == "W"}


def shared(functions):
    """(file, function) for each weak function of a wider file that is over no type of its own, and that is the library's
    or that another file, of the other set, defines too."""
    owners = collections.defaultdict(set)
    for file, names in functions.items():
        for name in names:
            owners[name].add(file)

    def set_of(file):
        found = WIDER.search(file)
        return found.group(1) if found else "avx2"

    return sorted((file, name) for file, names in functions.items() if WIDER.search(file) for name in names
                  if ("Vec16" not in name and not name.split("(")[0].split(" ")[-1].startswith("quire::"))
                  or {set_of(other) for other in owners[name]} != {set_of(file)})


def test_functions_of_wider_files_are_theirs_alone():
    wider = [path for path in OBJECTS.glob("quire_*.dir/**/*.o") if WIDER.search(path.name)]
    assert len(wider) >= 12, "the build's object files are elsewhere"
    folders = {path.relative_to(OBJECTS).parts[0] for path in wider}
    functions = {str(path.relative_to(OBJECTS)): weak_functions(path) for folder in folders
                 for path in (OBJECTS / folder).glob("**/*.o")}
    assert shared(functions) == []


def test_what_is_shared_is_found():
    own, both = "void quire::kernels::cpu::Norm<Vec16Amx>(int)", "quire::kernels::cpu::FindPages(int)"
    functions = {"a_amx.cc.o": {own, both}, "b_avx2.cc.o": {both}}
    assert shared(functions) == [("a_amx.cc.o", both), ("b_avx2.cc.o", both)]
    assert shared({"a_amx.cc.o": {"std::vector<int>::push_back(int)"}}) != []
    assert shared({"a_amx.cc.o": {own}, "plain.cc.o": {"std::vector<int>::push_back(int)"}}) == []
    assert shared({"a_avx512.cc.o": {both}, "plain.cc.o": {both}}) == [("a_avx512.cc.o", both)]
    assert shared({"a_avx2.cc.o": {both}, "plain.cc.o": {both}}) == []
