"""What ./dev lint takes for known to be clean: all that an answer depends on is in the name of its mark."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

LINT = pathlib.Path(__file__).with_name("lint.py")
# Stands for clang-tidy: notes each source that it is given, and finds fault with one that says BUG or includes it.
TIDY = """#!/usr/bin/env python3
import os, pathlib, sys
if "--version" in sys.argv:
    print("version " + os.environ.get("TIDY_VERSION", "1"))
    sys.exit()
root, source = pathlib.Path(os.environ["TREE"]), pathlib.Path(sys.argv[3])
with open(root / "calls", "a") as calls:
    calls.write(source.name + "\\n")
if os.environ.get("EDITS") == source.name:
    source.write_text("int C();\\n")
if "BUG" in source.read_text() + (root / "common/a.h").read_text():
    print(f"{root}/common/a.h:1:1: error: a bug [planted]")
    sys.exit(1)
"""


class Tree:
    def __init__(self, root):
        self.root = root
        self.write("common/a.h", "int A();\n")
        self.write("common/a.cc", '#include "common/a.h"\n')
        self.write("common/b.cc", "int B();\n")
        self.write("router/c.cc", '#include "generated.h"\n')
        self.write("build/generated/generated.h", '#include "common/a.h"\n')
        self.write("build/CMakeFiles/x/Unity/unity_0_cxx.cxx", f'#include "{root}/common/a.cc"\n#include "{root}/common/b.cc"\n')
        self.write(".clang-tidy", "Checks: all\n")
        self.write("bin/clang-tidy-14", TIDY)
        (root / "bin/clang-tidy-14").chmod(0o755)
        self.write("bin/dpkg-query", "#!/bin/sh\necho libx-dev 1\n")
        (root / "bin/dpkg-query").chmod(0o755)
        self.compile("-O2")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def compile(self, flag):
        sources = [self.root / "build/CMakeFiles/x/Unity/unity_0_cxx.cxx", self.root / "router/c.cc"]
        self.write("build/compile_commands.json", json.dumps(
            [{"file": str(one), "command": f"clang++ {flag} -I{self.root} -o x.o -c {one}"} for one in sources]))

    def lint(self, *words, **env):
        """The sources that were looked at, the exit code, and what was printed."""
        (self.root / "calls").write_text("")
        run = subprocess.run(
            [sys.executable, LINT, "--root", self.root, "--cache", self.root / "cache", "--jobs", "1", self.root / "build", *words],
            capture_output=True, text=True, env={**os.environ, "PATH": f"{self.root}/bin:{os.environ['PATH']}",
                                                 "TREE": str(self.root), **env})
        return sorted((self.root / "calls").read_text().split()), run.returncode, run.stdout + run.stderr


ALL = ["a.cc", "b.cc", "c.cc", "c.cc", "unity_0_cxx.cxx"]


@pytest.fixture
def tree(tmp_path):
    tree = Tree(tmp_path)
    assert tree.lint()[:2] == (ALL, 0)
    assert tree.lint()[:2] == ([], 0)
    return tree


def test_a_source_is_looked_at_again_when_it_changes(tree):
    tree.write("common/b.cc", "int B();  // NOLINT\n")
    assert tree.lint()[0] == ["b.cc", "unity_0_cxx.cxx"]
    assert tree.lint()[0] == []


def test_a_header_counts_for_all_that_include_it_through_generated_ones_too(tree):
    tree.write("common/a.h", "int A(int);\n")
    assert tree.lint()[0] == ["a.cc", "c.cc", "c.cc", "unity_0_cxx.cxx"]


def test_a_command_the_checks_and_versions_count(tree):
    tree.compile("-O3")
    assert tree.lint()[0] == ALL
    tree.write(".clang-tidy", "Checks: more\n")
    assert tree.lint()[0] == ALL
    assert tree.lint(TIDY_VERSION="2")[0] == ALL
    assert tree.lint(TIDY_VERSION="2")[0] == []


def test_what_was_found_is_found_again_and_said_once(tree):
    tree.write("common/a.h", "BUG\n")
    for _ in range(2):
        calls, code, said = tree.lint()
        assert (calls, code) == (["a.cc", "c.cc", "c.cc", "unity_0_cxx.cxx"], 1)
        assert said.count("common/a.h:1:1: error: a bug [planted]") == 1 and "4 with findings" in said


def test_a_source_that_changes_while_it_is_looked_at_is_not_known_by_its_old_content(tree):
    tree.write("router/c.cc", "BUG\n")
    assert tree.lint(EDITS="c.cc")[1] == 0
    tree.write("router/c.cc", "BUG\n")
    assert tree.lint()[:2] == (["c.cc", "c.cc"], 1)


def test_what_was_named_is_looked_at_and_nothing_else(tree):
    tree.write("common/a.h", "int A(long);\n")
    assert tree.lint(tree.root / "router/c.cc")[0] == ["c.cc", "c.cc"]
    calls, code, said = tree.lint(tree.root / "common/a.h")
    assert (calls, code) == ([], 1) and "name sources, not headers" in said
