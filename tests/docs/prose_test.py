"""Holds the documents and the comments of the code to plain English, and the check itself to faults that are planted."""
import pathlib
import sys

import pytest

from harness import ROOT, expect

sys.path.insert(0, str(ROOT / "tests" / "prose"))
import prose  # noqa: E402

# A text with a fault, and the rule that must find it.
PLANTED = [
    ("The worker computes the prompt anew.", "Quire.Words"),
    ("The router tells the client its error.", "Quire.Words"),
    ("Nobody reads this.", "Quire.Words"),
    ("The stream goes on at another worker.", "Quire.Words"),
    ("A router wants API keys.", "Quire.Turns"),
    ("Its limit is that of the tenant.", "Quire.Turns"),
    ("Whoever has a key may enter.", "Quire.Turns"),
    ("The router sends the the answer.", "Quire.Repeats"),
    ("The router\n" + "reads a request and\n" * 12 + "answers.", "Quire.Sentences"),
    ("The router turns text into tokens. " * 3, "columns"),
]
CLEAN = "# A page\n\nThe router turns text into tokens.\n\n```sh\necho anew\n```\n\n| a table |\n|---|\n| " + "one cell and " * 9 + "|\n"


@pytest.fixture(scope="module", autouse=True)
def vale():
    if not prose.VALE.exists():
        pytest.skip("vale is not here: python3 tests/prose/prose.py --fetch builds it")


def checked(folder, text):
    page = pathlib.Path(folder, "page.md")
    page.write_text(text)
    return prose.faults([page])


@pytest.mark.parametrize("text, rule", PLANTED, ids=lambda value: value[:30])
def test_a_planted_fault_is_found(tmp_path, text, rule):
    found = checked(tmp_path, f"# A page\n\n{text}\n")
    expect(len(found) == 1 and f"page.md:3: {rule}:" in found[0], f"{text!r}: {found}")


def test_a_clean_page_has_no_fault(tmp_path):
    expect(checked(tmp_path, CLEAN) == [], f"{checked(tmp_path, CLEAN)}")


# A comment with a fault, and the rule that must find it.
PLANTED_COMMENTS = [
    ("// Its owner computes\n// the prompt anew.", "Quire.Words", 3),
    ("int a = 0;  // told by the worker", "Quire.Words", 3),
    ("//  1. It is clean.\n//  2. Its end\n//     is that of the call.", "Quire.Turns", 4),
    ("// The router\n" + "// reads a request and\n" * 12 + "// answers.", "Quire.Sentences", 3),
]
CLEAN_SOURCE = """// Reads pages. `tell` is a method, and "told" its text.
//
//   told   a table   of words
#pragma once
int tell();  // a count
int told();  // a count
const char* text = "// told";
"""


def checked_source(folder, text):
    source = pathlib.Path(folder, "page.h")
    source.write_text(text)
    return prose.faults([source])


@pytest.mark.parametrize("text, rule, line", PLANTED_COMMENTS, ids=lambda value: str(value)[:30])
def test_a_planted_fault_in_a_comment_is_found_at_its_line(tmp_path, text, rule, line):
    found = checked_source(tmp_path, f"#pragma once\n\n{text}\n")
    expect(len(found) == 1 and f"page.h:{line}: {rule}:" in found[0], f"{text!r}: {found}")


def test_clean_comments_have_no_fault(tmp_path):
    expect(checked_source(tmp_path, CLEAN_SOURCE) == [], f"{checked_source(tmp_path, CLEAN_SOURCE)}")


def test_pages_and_comments_are_plain_english():
    found = prose.faults([ROOT / name for name in [*prose.pages(), *prose.sources()]])
    expect(not found, "\n".join(found))
