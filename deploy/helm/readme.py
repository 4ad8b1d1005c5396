#!/usr/bin/env python3
"""Writes quire/README.md from quire/README.md.in and the comments of values.yaml, and the choices of flags from
docs/reference/cli.md into values.yaml and values.schema.json; --check only compares."""
import json
import pathlib
import re
import sys

CHART = pathlib.Path(__file__).parent / "quire"
REFERENCE = CHART.parents[2] / "docs" / "reference" / "cli.md"
# Values of the router that are flags with choices, which their comments list after a colon.
CHOICES = {"routingPolicy": "routing-policy", "carryOn": "carry-on"}


def choices(flag):
    return re.search(rf"^\| `--{flag} ([^`]*)`", REFERENCE.read_text(), re.M)[1].split("\\|")


def values():
    """values.yaml, with the choices that its flags have."""
    text = (CHART / "values.yaml").read_text()
    for value, flag in CHOICES.items():
        *most, last = choices(flag)
        listed = ", ".join(most) + " or " + last
        text = re.sub(rf"(# -- .*: )[^:\n]*\.(\n *{value}:)", rf"\g<1>{listed}.\2", text)
    return text


def schema():
    tree = json.loads((CHART / "values.schema.json").read_text())
    for value, flag in CHOICES.items():
        tree["properties"]["router"]["properties"][value]["enum"] = choices(flag)
    return json.dumps(tree, indent=2) + "\n"


def rows():
    """(key, default, meaning) of each value that holds no others; a comment `# --` stands before its key."""
    path, said = [], ""
    lines = values().splitlines()
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


def readme():
    table = "| value | default | meaning |\n|---|---|---|\n"
    for key, default, said in rows():
        shown = f"`{default}`" if default else ""
        table += f"| `{key}` | {shown} | {said.replace('|', '/')} |\n"
    return (CHART / "README.md.in").read_text().replace("{{values}}\n", table)


def main():
    written = {"README.md": readme(), "values.yaml": values(), "values.schema.json": schema()}
    stale = [CHART / name for name, text in written.items() if (CHART / name).read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path} is not what its sources say; run {sys.argv[0]}")
        return 1 if stale else 0
    for path in stale:
        path.write_text(written[path.name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
