"""The recorded figures: each says where it comes from, and the stale ones are listed."""
import json
import pathlib

import record
from table import BENCHES

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What every entry must say; entries taken before these were recorded are listed as stale until they are taken again.
NEEDED = {"date", "commit", "machine"}
NEEDED_NOW = NEEDED | {"command", "seconds", "probe", "time that the host took, ms of all cores"}
# Recorded by other programs in forms of their own.
OF_THEIR_OWN = {"test_times"}


def documents():
    return {path.stem: json.loads(path.read_text()) for path in sorted(record.RESULTS.glob("*.json"))
            if path.stem not in OF_THEIR_OWN}


def test_every_file_is_of_a_benchmark_that_exists():
    assert set(documents()) <= {bench.file for bench in BENCHES.values()}


def test_what_a_benchmark_measures_is_in_the_tree():
    for name, bench in BENCHES.items():
        for path in bench.measures:
            assert (ROOT / path).exists(), f"{name} measures {path}, which is gone"


def test_every_figure_says_where_it_comes_from():
    for name, document in documents().items():
        for cpu, entry in document["figures"].items():
            assert NEEDED <= set(entry), f"{name}, {cpu}: lacks {NEEDED - set(entry)}"
            assert record.processor(entry["machine"]) == cpu
            if "command" in entry:
                assert NEEDED_NOW <= set(entry), f"{name}, {cpu}: lacks {NEEDED_NOW - set(entry)}"


def test_a_maker_that_was_not_met_is_named():
    for name, document in documents().items():
        met = {record.maker_of(cpu) for cpu in document["figures"]}
        assert document["missing"] == [maker for maker in record.MAKERS if maker not in met], name


def test_a_new_entry_takes_the_place_of_its_own_processor_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    other = {"date": "x", "commit": "y", "machine": {"cpu": "Intel Z"}, "value": 1}
    record.write("some", {"benchmark": "some", "figures": {"Intel Z": other}})
    for value in (2, 3):
        record.record("some", {"value": value}, record.Run())
    document = record.read("some")
    here = record.processor(record.machine())
    assert document["figures"]["Intel Z"] == other
    assert document["figures"][here]["value"] == 3
    assert NEEDED_NOW <= set(document["figures"][here])
    assert "Intel" not in document["missing"]


def test_a_run_that_goes_on_has_what_its_commit_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(record, "RESULTS", tmp_path)
    monkeypatch.setattr(record, "changed_files", lambda: [])
    assert record.of_this_commit("some") == {}
    record.record("some", {"value": 2}, record.Run())
    assert record.of_this_commit("some")["value"] == 2
    monkeypatch.setattr(record, "changed_files", lambda: ["kernels/a.cc"])
    assert record.of_this_commit("some") == {}
    monkeypatch.setattr(record, "changed_files", lambda: [])
    monkeypatch.setattr(record, "commit", lambda: "another")
    assert record.of_this_commit("some") == {}


def test_models_of_one_name_have_entries_of_their_own():
    zen = {"cpu": "AMD EPYC", "cpu family": 25}
    assert record.processor(zen | {"model": 1}) != record.processor(zen | {"model": 17})
    assert record.processor({"cpu": "AMD EPYC"}) == "AMD EPYC"


def test_results_that_are_older_than_their_code_are_listed():
    lines = record.stale(BENCHES)
    print("\n".join(lines))
    for line in lines:
        assert line.split(" ")[0].rstrip(":") in BENCHES
