#!/usr/bin/env python3
"""Holds the tree to its own style rules: layering, sizes, headers, placement of dependencies, decisions.

Usage: tidy.py [ROOT]. Prints one line per violation (file:line: rule: what) and exits 1 when there is any.
"""
import pathlib
import re
import subprocess
import sys

MAX_FUNCTION_LINES = 70
MAX_SOURCE_LINES = 500
MAX_HEADER_LINES = 200
MAX_PARAMETERS = 5
MAX_COLUMNS = 100
LINES_PER_ASSERTION = 25

# Folders whose code decides something: no iteration over unordered containers.
DECISIONS = ("worker/scheduler", "worker/kv", "worker/engine", "router/routing", "router/fleet",
             "router/dispatch", "router/admission", "router/pipeline", "router/link", "router/stream")
ASSERTED = ("worker/engine", "worker/scheduler", "worker/kv", "router/routing")
GENERATED = ("tests/golden/", "models/", "tests/fuzz/corpus/", "third_party/")

# (include pattern, rule name, where it may stand)
PLACEMENT = [
    (re.compile(r'boost/(asio|beast)'), "asio",
     lambda p: p.endswith(("_asio.cc", "_asio.h")) or p.startswith(
         ("router/http/", "router/front/", "tests/", "bench/", "cli/"))
     or p in ("router/main.cc", "worker/main.cc")),
    (re.compile(r'grpcpp/|^grpc/(?!health/|reflection/)|\.grpc\.pb\.h'), "grpc",
     lambda p: p.startswith(("tests/", "bench/"))),
    (re.compile(r'\.pb\.h|google/protobuf'), "protobuf",
     lambda p: re.search(r'(^|/)(rpc|grpc|link)/|^common/wire/.*_frames_.*\.cc$', p) is not None or p.startswith(
         ("common/trace/", "tests/", "bench/", "cli/"))),
    (re.compile(r'boost/json'), "boost.json", lambda p: p.startswith(("common/json/", "tests/common/json/"))),
    (re.compile(r'nghttp2/'), "nghttp2", lambda p: p.startswith(("common/http2/", "tests/"))),
    (re.compile(r'spdlog/'), "spdlog", lambda p: p.startswith("common/log/")),
    (re.compile(r'prometheus/'), "prometheus", lambda p: p.startswith("common/metrics/")),
    (re.compile(r'yaml-cpp/'), "yaml-cpp", lambda p: p.startswith("common/config/")),
    (re.compile(r'(absl|boost|grpc|spdlog|common)/'), "kernels use the standard library only",
     lambda p: not p.startswith("kernels/")),
]


def tracked_files(root):
    try:
        out = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
                             capture_output=True, text=True, check=True).stdout
        names = out.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
    return sorted(n for n in names if (root / n).is_file())


def strip_code(text):
    """The same text with comments, strings and characters blanked, line breaks kept."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"([^()\\ ]{0,16})\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|'
        r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)

    def blank(match):
        s = match.group(0)
        if s.startswith(("/", )):
            return re.sub(r"[^\n]", " ", s)
        return '"' + re.sub(r"[^\n]", " ", s[1:-1]) + '"'

    return pattern.sub(blank, text)


CONTAINER = re.compile(r'\b(namespace|class|struct|union|enum|extern)\b[^;(){}]*$')
FUNCTION = re.compile(r'\)\s*((const|noexcept|override|final|mutable|&&?|try)\s*|->\s*[\w:<>,\s*&]+|'
                      r'(requires|ABSL_\w+)\s*(\([^()]*\))?\s*|:\s*[^;{}]*(\{[^{}]*\}[^;{}]*)*)*$', re.S)


def functions(code):
    """Yields (first line, line count, header text) of every function definition."""
    stack = []  # (kind, header line, header)
    start = 0   # where the text before the next brace begins
    line_at = [0]
    for m in re.finditer(r"\n", code):
        line_at.append(m.end())

    import bisect

    def line_of(pos):
        return bisect.bisect_right(line_at, pos)

    depth_parens = 0
    for m in re.finditer(r"[{}();]", code):
        c, pos = m.group(0), m.start()
        if c == "(":
            depth_parens += 1
        elif c == ")":
            depth_parens = max(0, depth_parens - 1)
        elif c == ";":
            if depth_parens == 0:
                start = pos + 1
        elif c == "{":
            header = code[start:pos]
            inside_function = any(k == "function" for k, _, _ in stack)
            if depth_parens > 0 or inside_function:
                stack.append(("block", pos, ""))
                continue
            stripped = re.sub(r'(?m)^\s*#.*(\\\n.*)*$', '', header).strip()
            if stripped.endswith(("=", ",", "return")) or (
                    re.search(r'[\w>]$', stripped) and "(" in stripped and ":" in stripped and
                    not CONTAINER.search(stripped) and re.search(r'\)\s*:[^:]', stripped)):
                stack.append(("init", pos, ""))  # an initialiser: the header goes on after it
            elif CONTAINER.search(stripped) and not re.search(r'\)\s*$', stripped):
                stack.append(("container", pos, ""))
                start = pos + 1
            elif "(" in stripped:
                # Directives above the function are not part of it.
                lead = 0
                for skip in re.finditer(r'(?m)^[ \t]*(#.*(\\\n.*)*)?\n', header):
                    if skip.start() != lead and header[lead:skip.start()].strip():
                        break
                    lead = skip.end()
                lead += len(header[lead:]) - len(header[lead:].lstrip())
                stack.append(("function", start + lead, stripped))
            else:
                stack.append(("init", pos, ""))
        elif c == "}":
            if not stack:
                start = pos + 1
                continue
            kind, begin, header = stack.pop()
            if kind == "function":
                first, last = line_of(begin), line_of(pos)
                yield first, last - first + 1, header
                start = pos + 1
            elif kind == "container":
                start = pos + 1


def parameter_count(header):
    """Parameters of the function whose definition header this is."""
    open_at = header.find("(")
    m = re.search(r'operator\s*\(\)\s*\(', header)
    if m:
        open_at = m.end() - 1
    depth = angle = commas = 0
    seen = False
    for i in range(open_at, len(header)):
        c = header[i]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                break
        elif c == "<":
            angle += 1
        elif c == ">":
            angle = max(0, angle - 1)
        elif c == "," and depth == 1 and angle == 0:
            commas += 1
        if depth >= 1 and i > open_at and not c.isspace():
            seen = True
    return commas + 1 if seen else 0


def read_layers(root):
    """folder → set of folders it may include, from the quire_folder calls."""
    text = re.sub(r"#[^\n]*", "", (root / "CMakeLists.txt").read_text())
    deps = {}
    for call in re.finditer(r"quire_folder\(([^)]*)\)", text):
        words = call.group(1).split()
        folder, mode, own = words[0], None, []
        for word in words[1:]:
            if word in ("PARTS", "DEPS", "LIBS"):
                mode = word
            elif mode == "DEPS":
                own.append(word)
        deps[folder] = own
    return deps


def check_layers(deps, report):
    closure = {}

    def visit(folder, path):
        if folder in path:
            report("CMakeLists.txt", 1, "cycle", " → ".join(path[path.index(folder):] + [folder]))
            return set()
        if folder in closure:
            return closure[folder]
        reach = {folder}
        for dep in deps.get(folder, []):
            if dep not in deps:
                report("CMakeLists.txt", 1, "layering", f"{folder} names an unknown folder {dep}")
                continue
            reach |= visit(dep, path + [folder])
        closure[folder] = reach
        return reach

    for folder in deps:
        visit(folder, [])
    return closure


def folder_of(path, deps):
    parts = path.split("/")[:-1]
    while parts:
        if "/".join(parts) in deps:
            return "/".join(parts)
        parts.pop()
    return None


def check_use(deps, included, report):
    """A folder, with the program in it, includes something of each that it names."""
    for folder, targets in included.items():
        for dep in sorted(set(deps[folder]) & set(deps) - targets):
            report("CMakeLists.txt", 1, "unused dependency", f"{folder} names {dep} and includes nothing of it")


def check_includes(name, text, deps, closure, report):
    """Returns the folders of which it includes something."""
    folder = folder_of(name, deps)
    targets = set()
    for number, line in enumerate(text.splitlines(), 1):
        m = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if not m:
            continue
        target = m.group(2)
        for pattern, rule, allowed in PLACEMENT:
            if pattern.match(target) or (pattern.search(target) and rule in ("grpc", "protobuf")):
                if not allowed(name):
                    report(name, number, rule, f"may not include {target} here")
        if m.group(1) == '"' and folder and not name.startswith("tests/"):
            target_folder = folder_of(target, deps)
            targets.add(target_folder)
            if target_folder and target_folder not in closure[folder] and not name.endswith("main.cc"):
                report(name, number, "layering",
                       f"{folder} includes {target}, but {target_folder} is not below it")
    return targets


UNORDERED = re.compile(
    r'\b(?:std::|absl::)?(?:unordered_(?:multi)?(?:map|set)|flat_hash_(?:map|set)|node_hash_(?:map|set))\s*<')


def unordered_names(code):
    names = set()
    for m in UNORDERED.finditer(code):
        depth, i = 1, m.end()
        while i < len(code) and depth:
            depth += {"<": 1, ">": -1}.get(code[i], 0)
            i += 1
        name = re.match(r'\s*[&*]?\s*(\w+)\s*[;={(,)A]', code[i:i + 120])
        if name:
            names.add(name.group(1))
    return names


def check_decisions(name, code, names, report):
    for m in re.finditer(r'\bfor\s*\([^;()]*:\s*([\w.\->]+)\s*\)', code):
        last = re.split(r'\.|->', m.group(1))[-1]
        if last in names:
            report(name, code.count("\n", 0, m.start()) + 1, "unordered",
                   f"a decision iterates the unordered container {m.group(1)}")
    for m in re.finditer(r'(\w+)\s*(?:\.|->)\s*begin\s*\(', code):
        if m.group(1) in names:
            report(name, code.count("\n", 0, m.start()) + 1, "unordered",
                   f"a decision walks the unordered container {m.group(1)}")


def check_file(name, text, code, report):
    lines = text.splitlines()
    is_header = name.endswith((".h", ".cuh"))
    limit = MAX_HEADER_LINES if is_header else MAX_SOURCE_LINES
    if len(lines) > limit and not name.startswith("tests/"):
        report(name, len(lines), "file length", f"{len(lines)} lines; at most {limit}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS and "http" not in line and 'R"(' not in line:
            report(name, number, "width", f"{len(line)} columns; at most {MAX_COLUMNS}")
            break
    if is_header:
        if not lines or not lines[0].startswith("// "):
            report(name, 1, "header", "opens without the line that says its one idea")
        if not re.search(r'^#pragma once$', text, re.M) and "/bridge/" not in name:
            report(name, 1, "header", "has no #pragma once")
    if re.search(r'\bgetenv\s*\(', code) and not name.endswith("main.cc") and not name.startswith(
            ("tests/", "bench/")):
        report(name, code[:code.find("getenv")].count("\n") + 1, "getenv",
               "the environment is read in main only")
    for first, count, header in functions(code):
        if count > MAX_FUNCTION_LINES and not header.startswith("TEST"):
            report(name, first, "function length", f"{count} lines; at most {MAX_FUNCTION_LINES}")
        if not name.startswith(("tests/", "bench/")):
            parameters = parameter_count(header)
            if parameters > MAX_PARAMETERS:
                report(name, first, "parameters", f"{parameters}; at most {MAX_PARAMETERS}")


# What kernel files reach through kernels/cuda/device alone.
HARDWARE = re.compile(
    r'<<<|\b(?:threadIdx|blockIdx|blockDim|gridDim|warpSize)\b|\b__(?:syncthreads|syncwarp|shfl|ballot|'
    r'threadfence|shared__|launch_bounds__|global__)\w*|\batomic(?:Add|Max|Min|CAS|Exch|Or|And)\b|\basm\b|'
    r'\b(?:cub|cooperative_groups|cutlass|thrust)::')
HARDWARE_INCLUDE = re.compile(r'\s*#\s*include\s*<(?:cub/|cuda|cooperative_groups|cutlass/|thrust/|mma\.h)')


def check_kernel_file(name, text, code, report):
    """Indices, barriers, shuffles, atomics, copies and tensor cores only through kernels/cuda/device."""
    if name.startswith("kernels/cuda/device/") or name == "kernels/cuda/runtime/runtime_cuda.cu":
        return
    if not name.endswith((".cu", ".cuh")) and not name.startswith("kernels/cuda/ops/"):
        return
    for m in HARDWARE.finditer(code):
        report(name, code.count("\n", 0, m.start()) + 1, "kernel",
               f"uses {m.group(0)} past kernels/cuda/device")
    for number, line in enumerate(text.splitlines(), 1):
        if HARDWARE_INCLUDE.match(line):
            report(name, number, "kernel", f"{line.strip()}: kernel files include kernels/cuda/device only")


def check_assertions(root, names, report):
    for folder in ASSERTED:
        code_lines = checks = 0
        for name in names:
            if name.startswith(folder + "/") and name.endswith((".cc", ".h")):
                code = strip_code((root / name).read_text())
                code_lines += sum(1 for line in code.splitlines() if len(line.strip()) > 1)
                checks += len(re.findall(r'\bQUIRE_D?CHECK(?:_MSG)?\s*\(', code))
        if code_lines > LINES_PER_ASSERTION * max(checks, 1) and code_lines > 100:
            report(folder, 1, "assertions",
                   f"{checks} in {code_lines} lines; at least 1 per {LINES_PER_ASSERTION}")


TYPE = re.compile(r'^(?:struct|class|enum class)\s+(?:\w+\s+)*?(\w+)(?:\s+final)?(?:\s*:(?!:)[^;{]*)?\s*\{', re.M)


def check_type_names(root, names, report):
    """Router and worker share a namespace, and tests link both: a type's name stands in one header only."""
    defined = {}
    for name in names:
        if not name.endswith(".h") or name.startswith(("tests/", "bench/")):
            continue
        code = strip_code((root / name).read_text(errors="replace"))
        for m in TYPE.finditer(code):
            namespaces = re.findall(r'^namespace\s+([\w:]*)', code[:m.start()], re.M)
            key = (namespaces[-1] if namespaces else "", m.group(1))
            if defined.setdefault(key, name) != name:
                report(name, code.count("\n", 0, m.start()) + 1, "type name",
                       f"{m.group(1)} is defined in {defined[key]} too")


def run(root):
    violations = []

    def report(name, line, rule, what):
        violations.append(f"{name}:{line}: {rule}: {what}")

    names = [n for n in tracked_files(root) if not n.startswith(GENERATED)]
    deps = read_layers(root)
    closure = check_layers(deps, report)
    included = {}  # of a folder: the folders of which its files include something
    sources = [n for n in names if n.endswith((".cc", ".h", ".cu", ".cuh"))]
    for name in sources:
        text = (root / name).read_text(errors="replace")
        code = strip_code(text)
        targets = check_includes(name, text, deps, closure, report)
        if folder_of(name, deps):
            included.setdefault(folder_of(name, deps), set()).update(targets)
        check_file(name, text, code, report)
        check_kernel_file(name, text, code, report)
        if name.startswith(DECISIONS):
            names_here = unordered_names(code)
            header = root / (name.rsplit(".", 1)[0] + ".h")
            if header.is_file():
                names_here |= unordered_names(strip_code(header.read_text()))
            check_decisions(name, code, names_here, report)
    check_use(deps, included, report)
    check_assertions(root, sources, report)
    check_type_names(root, sources, report)
    for name in names:
        if name.startswith("tests/tidy/") or not (root / name).is_file():
            continue
        data = (root / name).read_bytes()
        if b"\0" in data or len(data) > 1 << 20:
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if re.search(r'(^|[\s"\'=(])/work/|\bTODO\b|\bFIXME\b|\bXXX\b', line):
                report(name, number, "leftover", line.strip()[:80])
    return violations


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                        pathlib.Path(__file__).resolve().parents[2])
    violations = run(root)
    for violation in violations:
        print(violation)
    print(f"tidy: {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
