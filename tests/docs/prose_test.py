"""Holds the documents to plain English, and the check itself to faults that are planted."""
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


def test_pages_are_plain_english():
    found = prose.faults([ROOT / page for page in prose.pages()])
    expect(not found, "\n".join(found))
