#!/usr/bin/env python3
"""Writes quire/README.md from quire/README.md.in and the comments of values.yaml; --check only compares."""
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).parent / "quire"


def rows():
    """(key, default, meaning) of each value that holds no others; a comment `# --` stands before its key."""
    path, said = [], ""
    lines = (CHART / "values.yaml").read_text().splitlines()
    for at, line in enumerate(lines):
        comment = re.match(r"\s*# -- (.*)", line)
        if comment:
            said = comment[1]
            continue
        key = re.match(r"( *)([A-Za-z]+):\s*(.*)", line)
        if not key:
            continue
        depth = len(key[1]) // 2
        path[depth:] = [key[2]]
        inner = next((x for x in lines[at + 1:] if x.strip() and not x.strip().startswith("#")), "")
        parent = len(inner) - len(inner.lstrip()) > len(key[1])
        if not parent:
            yield ".".join(path), key[3] or "null", said
            said = ""
        elif said:
            yield ".".join(path), "", said
            said = ""


def text():
    table = "| value | default | meaning |\n|---|---|---|\n"
    for key, default, said in rows():
        shown = f"`{default}`" if default else ""
        table += f"| `{key}` | {shown} | {said.replace('|', '/')} |\n"
    return (CHART / "README.md.in").read_text().replace("{{values}}\n", table)


def main():
    to = CHART / "README.md"
    if "--check" in sys.argv:
        if not to.exists() or to.read_text() != text():
            print(f"{to} is not what values.yaml says; run {sys.argv[0]}")
            return 1
        return 0
    to.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
