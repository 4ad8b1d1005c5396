"""The runner's second runs: what they let pass, and what they never do."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import run  # noqa: E402


def failed(*names, more=0):
    result = run.Result("process", 60)
    result.failed = len(names) + more
    result.failures = [("tests/process/serve_test.py", name) for name in names]
    return result


def of_second_runs(monkeypatch, passing, *results):
    """(names that count as passed, names that ran again), when the tests `passing` pass alone."""
    ran = []

    def alone(suite):
        name = suite.command[1].split("::")[1]
        ran.append(name)
        again = run.Result(suite.name, 60)
        again.passed, again.failed = int(name in passing), int(name not in passing)
        return again

    monkeypatch.setattr(run, "run_suite", alone)
    return [name for _, _, name in run.second_runs(list(results))], ran


def test_what_passes_alone_counts_as_passed_and_is_named(monkeypatch):
    result = failed("a", "b")
    assert of_second_runs(monkeypatch, {"a"}, result) == (["a"], ["a", "b"])
    assert (result.passed, result.failed) == (1, 1)


def test_more_failures_than_the_limit_run_no_second_time(monkeypatch):
    names = [str(i) for i in range(run.MAX_SECOND_RUNS + 1)]
    assert of_second_runs(monkeypatch, set(names), failed(*names)) == ([], [])
    assert of_second_runs(monkeypatch, set(names), failed(*names[:-1])) == (names[:-1], names[:-1])


def test_a_failure_that_is_no_test_of_pytest_leaves_no_second_run(monkeypatch):
    assert of_second_runs(monkeypatch, {"a"}, failed("a", more=1)) == ([], [])
    assert of_second_runs(monkeypatch, {"a"}, failed("a"), failed(more=1)) == ([], [])
