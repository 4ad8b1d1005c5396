"""The tidy rules hold for the tree, and the checker is checked: each planted violation must be found."""
import pathlib
import tempfile
import unittest

import tidy

CMAKE = """
quire_folder(common LIBS absl::status)
quire_folder(kernels)
quire_folder(worker/kv DEPS common)
quire_folder(worker/engine DEPS worker/kv)
"""
HEADER = "// One idea.\n#pragma once\n\nint F();\n"


def violations(files, cmake=CMAKE):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "CMakeLists.txt").write_text(cmake)
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tidy.run(root)


def body(lines):
    return "int F(int a) {\n" + "  a += 1;\n" * (lines - 3) + "  return a;\n}\n"


class TidyTest(unittest.TestCase):
    def expect(self, rule, files, cmake=CMAKE):
        found = violations(files, cmake)
        self.assertTrue(any(f": {rule}: " in v for v in found), f"{rule} not found in {found}")

    def test_kernel_files_reach_hardware_through_the_wrappers_only(self):
        for line in ("int i = threadIdx.x;", "f<<<1, 2>>>(a);", "__syncthreads();", "atomicAdd(p, 1);",
                     "__shared__ float s[4];", 'asm("trap;");', "cub::BlockReduce<float, 32> r;",
                     "#include <cub/cub.cuh>", "#include <cuda_runtime.h>"):
            self.expect("kernel", {"kernels/cuda/ops/a.cu": line + "\n"})
        self.assertEqual([], violations({
            "kernels/cuda/device/a.h": HEADER + "int i = threadIdx.x;\n",
            "kernels/cuda/ops/a.cu": "// threadIdx is not used here\nint F() { return ThreadIndex(); }\n"}))

    def test_a_clean_tree_passes(self):
        self.assertEqual(violations({
            "common/a.h": HEADER, "worker/kv/b.h": HEADER,
            "worker/kv/b.cc": '#include "worker/kv/b.h"\n\n#include "common/a.h"\n' + body(70)}), [])

    def test_upward_include(self):
        self.expect("layering", {"worker/engine/e.h": HEADER,
                                 "worker/kv/b.cc": '#include "worker/engine/e.h"\n'})

    def test_sideways_include(self):
        self.expect("layering", {"kernels/k.h": HEADER, "worker/kv/b.cc": '#include "kernels/k.h"\n'})

    def test_parts_belong_to_their_folder(self):
        cmake = "quire_folder(common)\nquire_folder(cli PARTS serve DEPS common)\n"
        self.assertEqual(violations({"common/a.h": HEADER, "cli/serve/b.cc": '#include "common/a.h"\n'}, cmake), [])
        self.expect("unused dependency", {"common/a.h": HEADER, "cli/serve/b.cc": "\n"}, cmake)

    def test_cycle(self):
        self.expect("cycle", {}, "quire_folder(a DEPS b)\nquire_folder(b DEPS a)\n")

    def test_unused_dependency(self):
        files = {"common/a.h": HEADER, "worker/kv/b.cc": "int g;\n"}
        self.expect("unused dependency", files)
        files["worker/kv/c.cc"] = '#include "common/a.h"\n'
        self.assertEqual([], violations(files))

    def test_unknown_dependency(self):
        self.expect("layering", {}, "quire_folder(a DEPS nowhere)\n")

    def test_function_of_71_lines(self):
        self.expect("function length", {"common/a.cc": body(71)})
        self.assertEqual(violations({"common/a.cc": body(70)}), [])

    def test_long_method_in_a_class_in_a_namespace(self):
        method = "namespace q {\nclass C {\n public:\n" + body(71) + "};\n}  // namespace q\n"
        self.expect("function length", {"common/a.cc": method})

    def test_long_constructor_with_initialisers(self):
        text = "C::C(int a)\n    : a_{a}, b_(a) {\n" + "  ++a_;\n" * 70 + "}\n"
        self.expect("function length", {"common/a.cc": text})

    def test_file_lengths(self):
        self.expect("file length", {"common/a.cc": "int x;\n" * 501})
        self.expect("file length", {"common/a.h": HEADER + "int F();\n" * 200})

    def test_header_without_its_line(self):
        self.expect("header", {"common/a.h": "#pragma once\nint F();\n"})
        self.expect("header", {"common/a.h": "// One idea.\nint F();\n"})

    def test_six_parameters(self):
        self.expect("parameters", {"common/a.cc": "int F(int a, int b, int c, int d, int e, int f) {\n}\n"})
        self.assertEqual(violations({
            "common/a.cc": "int F(int a, std::map<int, int> b, int c, int d, int e) {\n}\n"}), [])

    def test_decision_iterates_an_unordered_container(self):
        loop = "void F() {\n  for (auto& x : rows_) Use(x);\n}\n"
        header = "// One idea.\n#pragma once\nstd::unordered_map<int, std::vector<int>> rows_;\n"
        self.expect("unordered", {"worker/kv/b.h": header, "worker/kv/b.cc": loop})
        self.assertEqual(violations({"common/b.h": header, "common/b.cc": loop}), [])

    def test_dependencies_in_the_wrong_place(self):
        self.expect("asio", {"worker/kv/b.cc": "#include <boost/asio/io_context.hpp>\n"})
        self.expect("grpc", {"worker/kv/b.cc": "#include <grpcpp/grpcpp.h>\n"})
        self.expect("protobuf", {"worker/kv/b.cc": '#include "quire/v1/worker.pb.h"\n'})
        self.expect("kernels use the standard library only",
                    {"kernels/b.cc": '#include "absl/status/status.h"\n'})

    def test_getenv_below_main(self):
        self.expect("getenv", {"common/a.cc": 'char* F() { return getenv("HOME"); }\n'})

    def test_width_and_leftovers(self):
        self.expect("width", {"common/a.cc": "int " + "x" * 100 + ";\n"})
        self.expect("leftover", {"docs/a.md": "see /work/main\n"})

    def test_one_type_name_in_two_headers(self):
        header = "// One idea.\n#pragma once\nnamespace q {\nstruct Request {\n};\n}\n"
        self.expect("type name", {"router/a.h": header, "worker/b.h": header})
        other = header.replace("namespace q", "namespace q::other")
        self.assertEqual(violations({"router/a.h": header, "worker/b.h": other}), [])
        self.assertEqual(violations({"router/a.h": header, "worker/b.h": HEADER + "struct Request;\n"}), [])

    def test_too_few_assertions(self):
        self.expect("assertions", {"worker/kv/b.cc": (body(30) + "\n") * 5})

    def test_comments_and_strings_are_no_code(self):
        text = 'const char* kA = "{{{";  // {{{ getenv(\n' + body(60)
        self.assertEqual(violations({"common/a.cc": text}), [])


def test_the_tree():
    found = tidy.run(pathlib.Path(__file__).resolve().parents[2])
    assert not found, "\n".join(map(str, found))
