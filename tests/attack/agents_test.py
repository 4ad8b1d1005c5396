"""Attacks by the APIs of agents and of Ollama: calls times results, and what an answer repeats of its request."""
import contextlib
import http.client
import json
import threading

from mock_fleet import MockWorkers, Router
from requests_test import post
from target import MIB, Target, Watched

SMALL = {"model": "demo", "max_tokens": 1}


def compact(body):
    return json.dumps(body, separators=(",", ":"))


def names_of_messages(size, results):
    call = {"type": "tool_use", "id": "a", "name": "n" * size, "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a"}
    return "/v1/messages", {**SMALL, "messages": [{"role": "assistant", "content": [call]},
                                                  {"role": "user", "content": [result] * results}]}


def names_of_responses(size, results):
    call = {"type": "function_call", "call_id": "a", "name": "n" * size, "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "a", "output": ""}
    return "/v1/responses", {"model": "demo", "max_output_tokens": 1, "input": [call, *[result] * results]}


def test_names_of_calls_times_their_results_are_bounded():
    """250 KB with one long name and results that each repeat it."""
    with Target() as target:
        for path, body in (names_of_messages(100_000, 3000), names_of_responses(100_000, 2000)):
            with target.router.growth(96 * MIB, f"names of calls to {path}"):
                status, text = post(target.port, path, compact(body))
            assert status == 413 and "--max-prompt-bytes" in text, text[:200]
        target.still_serves()


def test_results_find_their_calls_without_a_look_at_all_of_them():
    """Calls times results of a chat in Ollama's shape cost no more than both apart."""
    def cost(target, calls, results):
        body = {"model": "demo", "stream": False, "options": {"num_predict": 1},
                "messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "a"}}] * calls},
                             *[{"role": "tool", "content": "", "tool_call_id": "x"}] * results]}
        before = target.router.seconds()
        status, text = post(target.port, "/api/chat", compact(body))
        assert status == 400 and "template" in text, text[:200]
        return target.router.seconds() - before
    with Target() as target:
        honest = cost(target, 50_000, 10)
        hostile = cost(target, 50_000, 16_000)
        print(f"processor seconds: {hostile:.2f}, of few results {honest:.2f}")
        assert hostile <= 3 * honest + 0.5
        target.still_serves()


def respond(model="demo", **fields):
    return compact({"model": model, "input": "a", "max_output_tokens": 16, "stream": True, **fields})


def test_what_a_response_repeats_of_its_request_is_bounded(monkeypatch):
    """A response repeats its request three times in its stream: in its first two events and in its last one."""
    monkeypatch.setenv("QUIRE_MAX_CLIENT_MEMORY_BYTES", str(96 * MIB))
    with Target() as target:
        for fields in ({"metadata": {"a": "x" * (5 * MIB)}}, {"tools": [{"type": "web_search", "filters": "x" * (5 * MIB)}]}):
            asked, statuses = respond(**fields), []
            with target.router.growth(160 * MIB, f"{next(iter(fields))} that answers repeat"):
                asks = [threading.Thread(target=lambda a=asked, s=statuses: s.append(post(target.port, "/v1/responses", a)[0]))
                        for _ in range(24)]
                for ask in asks:
                    ask.start()
                for ask in asks:
                    ask.join()
            assert set(statuses) <= {400, 503} and 400 in statuses, statuses
        target.still_serves()


def test_connections_that_are_kept_alive_hold_nothing_of_their_answers():
    """Each has taken a stream of some megabytes, and waits for its next request."""
    asked = respond("mock", instructions="once upon a time there was a cat " * (2 * MIB // 33))
    with MockWorkers(1, max_model_len=1 << 20) as mock, Router(mock.addresses) as router, contextlib.ExitStack() as stack:
        watched = Watched(router.process.child.pid)
        before = None
        for _ in range(25):
            connection = stack.enter_context(contextlib.closing(http.client.HTTPConnection("127.0.0.1", router.port, timeout=60)))
            connection.request("POST", "/v1/responses", asked, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            taken = len(answer.read())
            assert answer.status == 200 and taken > 3 * len(asked) - MIB, (answer.status, taken)
            before = before or watched.resident()  # with what the work itself leaves
        grown = watched.resident() - before
        print(f"{grown / MIB:.0f} MiB more with 24 idle connections")
        assert grown <= 48 * MIB
