"""Each libFuzzer target for two minutes and more, from its committed corpus, with inputs as long as the product takes them.
In --long alone: `./dev pytest tests/fuzz --long -k tokenizer`. What is found new is kept in .cache/fuzz."""
import concurrent.futures
import os
import re
import subprocess

import pytest

from harness import ROOT
from tier import LONG

SECONDS = int(os.environ.get("QUIRE_FUZZ_SECONDS", 120))
BUILD = ROOT / "build-fuzz"
# The constant that bounds what each parser is given; of a flag, its default.
LIMITS = {
    "chat_template": ("common/text/chat_template.h", "kMaxTemplateBytes"),
    "endpoint_slices": ("router/discovery/kubernetes_source.h", "kMaxPageBytes"),
    "gguf": ("worker/load/gguf.h", "kMaxGgufStringBytes"),
    "key_file": ("router/keys/key_table.h", "kMaxKeyFileBytes"),
    "model_config": ("worker/load/model_files.h", "kMaxConfigBytes"),
    "rank_messages": ("worker/ranks/host_channel.h", "kMaxMessageBytes"),
    "router_frame": ("common/wire.h", "kMaxFrameBytes"),
    "safetensors": ("worker/load/safetensors.h", "kMaxSafetensorsHeaderBytes"),
    "step_packet": ("worker/ranks/host_channel.h", "kMaxMessageBytes"),
    "tokenizer": ("common/text/tokenizer.h", "kMaxTokenizerJsonBytes"),
    "worker_frame": ("common/wire.h", "kMaxFrameBytes"),
}
REQUEST_BYTES = 32 << 20  # --max-body-bytes: of what clients send
MEMORY_MIB = 4096
TARGETS = sorted(path.name.removesuffix("_fuzz.cc") for path in (ROOT / "tests" / "fuzz").glob("*_fuzz.cc"))


def longest(target):
    """Bytes of the longest input that the product hands to this parser."""
    if target not in LIMITS:
        return REQUEST_BYTES
    header, name = LIMITS[target]
    value = re.search(rf"\b{name} = ([^;]+);", (ROOT / header).read_text())[1]
    return eval(re.sub(r"size_t\{(\d+)\}|(\d)u\b|'", r"\1\2", value), {})  # a product or a shift of numbers


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


def test_every_target_has_a_corpus():
    for target in TARGETS:
        assert any((ROOT / "tests" / "fuzz" / "corpus" / target).iterdir()), target
        assert longest(target) >= 1 << 20, target


@pytest.mark.skipif(not LONG, reason="minutes for each target: --long")
@pytest.mark.parametrize("target", TARGETS)
def test_nothing_breaks(target, found):
    code, said = found(target)
    assert code == 0, said[-6000:]
