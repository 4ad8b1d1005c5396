#!/usr/bin/env python3
"""Writes docs/reference/dialects.md from common/dialect: each dialect with its models, an example and its thoughts. `--check` ends
with 1 where the file is not what it would write."""
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "reference" / "dialects.md"
RULES = (
    "The joined deltas are the same however the text is cut. Text that may begin a mark is held back until that is sure.",
    "Where the input has special tokens, they decide, and text that looks like one is text.",
    "A call that cannot be read becomes content without its marks. Arguments that are not JSON stay a string.",
    "JSON arguments stay as the model wrote them. Dialects that write values as bare text get JSON by the tools' schemas: a value that does "
    "not fit its type, or whose type is unknown, is a string. In MiniMax M3's elements a text of unknown type is a number or a truth value "
    "where it reads as one.",
    "Functions that the request does not declare pass through.",
    "Newlines beside a mark belong to the mark.",
    "A call ends a thought that is still open.",
)
STRING = r'"(?:[^"\\]|\\.)*"'


def said(block, field):
    """The string of a field, whose literals may be several."""
    found = re.search(rf"\.{field} =\s*((?:{STRING}\s*)+)", block)
    text = "".join(part[1:-1] for part in re.findall(STRING, found[1])) if found else ""
    return re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), text)


def cell(text):
    return text.replace("|", "\\|")


def code(text):
    return "`" + cell(text).replace("\n", "⏎") + "`"


def wrapped(text, indent=""):
    return textwrap.wrap(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def dialects():
    rows = []
    for path in sorted((ROOT / "common" / "dialect").glob("*_dialects.cc")):
        rows += re.findall(r"^const Dialect k\w+ = \{\n(.*?)^\};", path.read_text(), re.M | re.S)
    return sorted((said(row, "name"), said(row, "families"), said(row, "thoughts"), said(row, "example")) for row in rows)


def table_text():
    return (ROOT / "common" / "dialect" / "table.cc").read_text()


def thoughts():
    block = table_text().split("constexpr Thoughts kThoughts[] = {")[1].split("\n};")[0]
    return [(said(row, "name"), said(row, "about")) for row in re.split(r"^    \{", block, flags=re.M)[1:]]


def aliases(name):
    block = re.search(rf"constexpr Alias {name}\[\] = \{{(.*?)\}};", table_text(), re.S)[1]
    return ", ".join(f"`{a}` = `{b}`" for a, b in sorted(re.findall(r'\{"(\w+)", "(\w+)"\}', block)))


def document():
    rows = dialects()
    listed = re.search(r"kDialects\[\] = \{(.*?)\};", table_text(), re.S)[1]
    if len(rows) != len(re.findall(r"&k\w+", listed)):
        sys.exit("write_dialects.py: table.cc lists another number of dialects than the files define")
    lines = ["# Dialects of tool calls and thoughts", "",
             "Written by `python3 docs/reference/write_dialects.py` from `common/dialect`.", "",
             *wrapped("`quire parse --dialect NAME < raw.txt` takes a model's raw answer apart. The names are vLLM's; ⏎ is a newline."), "",
             "| dialect | models | thoughts | a call |", "|---|---|---|---|",
             *(f"| `{name}` | {cell(models)} | `{thought}` | {code(example)} |" for name, models, thought, example in rows), "",
             *wrapped(f"Other names: {aliases('kDialectAliases')}."), "", "## Thoughts", "", "| reasoning | what it reads |", "|---|---|",
             *(f"| `{name}` | {cell(about)} |" for name, about in thoughts()), "",
             *wrapped(f"Other names: {aliases('kThoughtsAliases')}."), "", "## What the parser does",
             *(line for rule in RULES for line in wrapped("- " + rule, "  ")), ""]
    return "\n".join(lines)


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: write_dialects.py [--check]")
    text = document()
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != text:
            sys.exit("docs/reference/dialects.md is not what the code says: python3 docs/reference/write_dialects.py")
        return
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
