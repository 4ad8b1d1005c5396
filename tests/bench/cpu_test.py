"""The CPU's bench: a run that was cut short goes on where it ended, and only there."""
import json
import types

import cpu
import pytest
import record


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """against_peer over one cell whose rates are counted, on a commit, a processor and a tree that tests set."""
    here = types.SimpleNamespace(asked=[], commit="a1", cpu="Z", changed=[], fail_at=None)

    def ours(*_):
        if len(here.asked) == here.fail_at:
            raise KeyboardInterrupt
        here.asked.append("ours")
        return {"tokens_per_second": float(len(here.asked))}

    monkeypatch.setattr(cpu, "FOLDER", tmp_path)
    monkeypatch.setattr(cpu, "probes", lambda: {"read_gb_per_s": 1.0, "dot_gop_per_s": 0})
    monkeypatch.setattr(record, "commit", lambda: here.commit)
    monkeypatch.setattr(record, "machine", lambda: {"cpu": here.cpu})
    monkeypatch.setattr(record, "changed_files", lambda: here.changed)
    args = types.SimpleNamespace(cycles=3, small=True)
    table = {"cell": (ours, lambda folder, model, flash: 2.0 + flash)}
    here.run = lambda name="model": cpu.against_peer(None, name, None, args, list, table)["cell"]
    return here


def test_a_run_goes_on_where_it_was_cut_short(bench):
    bench.fail_at = 2
    with pytest.raises(KeyboardInterrupt):
        bench.run()
    bench.fail_at = None
    row = bench.run()
    assert bench.asked == ["ours"] * 3
    assert row["quire"] == [1.0, 2.0, 3.0]
    assert row["llama.cpp"] == [3.0] * 3 and row["llama.cpp flash attention"] == 1  # the better of both
    assert bench.run() == row and len(bench.asked) == 3


@pytest.mark.parametrize("change", [{"commit": "b2"}, {"cpu": "Y"}, {"changed": ["kernels/a.cc"]}])
def test_what_was_measured_elsewhere_does_not_count(bench, change):
    bench.run()
    vars(bench).update(change)
    assert bench.run()["quire"] == [4.0, 5.0, 6.0]


def test_another_model_is_measured_too_and_a_changed_tree_leaves_nothing(bench):
    bench.changed = ["kernels/a.cc"]
    bench.run()
    assert not list(cpu.FOLDER.iterdir())
    bench.changed = []
    bench.run()
    bench.run("other")
    assert len(bench.asked) == 9
    assert len({json.loads(line)["model"] for line in (cpu.FOLDER / "bench-cpu.jsonl").read_text().splitlines()}) == 2


def test_a_start_is_timed_and_its_memory_weighed(tmp_path):
    seconds, peak = cpu.cost_of(["python3", "-c", "import time; held = bytearray(64 << 20); time.sleep(0.2)"])
    assert 0.2 <= seconds < 20 and 64 <= peak < 256
    with pytest.raises(RuntimeError, match="failed"):
        cpu.cost_of(["false"])
