"""Each libFuzzer target for two minutes and more, from its committed corpus, with inputs as long as the product takes them.
In --long alone: `./dev pytest tests/fuzz --long -k tokenizer`. What is found new is kept in .cache/fuzz."""
import concurrent.futures
import os
import subprocess

import pytest

from harness import ROOT
from limits import LIMITS, longest
from tier import LONG

SECONDS = int(os.environ.get("QUIRE_FUZZ_SECONDS", 120))
BUILD = ROOT / "build-fuzz"
MEMORY_MIB = 4096
CORPORA_BYTES = 8 << 20  # in all
TARGETS = sorted(path.name.removesuffix("_fuzz.cc") for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cc"))


def fuzz(target):
    kept = ROOT / ".cache" / "fuzz" / target
    kept.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([BUILD / "tests" / f"fuzz_{target}", f"-max_total_time={SECONDS}", "-timeout=25",
                           f"-rss_limit_mb={MEMORY_MIB}", f"-max_len={longest(target)}", f"-artifact_prefix={kept}-",
                           kept, ROOT / "tests" / "fuzz" / "corpus" / target],
                          capture_output=True, text=True, errors="replace", cwd=ROOT)
    return done.returncode, done.stderr


@pytest.fixture(scope="module")
def found(request):
    """Target → (exit code, what libFuzzer said); all that were asked for are under way, one on each core."""
    asked = [item.callspec.params["target"] for item in request.session.items
             if getattr(item, "callspec", None) and "target" in item.callspec.params]
    done = subprocess.run(["./dev", "fuzz", "--build", *asked], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {target: pool.submit(fuzz, target) for target in asked}
        yield lambda target: jobs[target].result()


def test_every_target_has_a_corpus_and_a_limit_of_the_product():
    assert sorted(LIMITS) == TARGETS
    for target in TARGETS:
        assert any((ROOT / "tests" / "fuzz" / "corpus" / target).iterdir()), target
        assert longest(target) >= 1 << 16, target


def test_the_corpora_stay_small():
    files = (path for path in (ROOT / "tests" / "fuzz" / "corpus").rglob("*") if path.is_file())
    assert sum(path.stat().st_size for path in files) <= CORPORA_BYTES


@pytest.mark.skipif(not LONG, reason="minutes for each target: --long")
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_breaks(target, found):
    code, said = found(target)
    assert code == 0, said[-6000:]
