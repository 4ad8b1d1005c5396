"""`quire run-batch` with real processes: each request has its line exactly once, whatever is killed."""
import collections
import contextlib
import http.client
import http.server
import json
import os
import signal
import threading
import time

import pytest
from harness import BIN, DEMO, Process, Server, expect, run, wait_until

LOWEST = 2**31 - 1


def request(custom_id, prompt="Once upon a time", url="/v1/completions", **body):
    if url == "/v1/chat/completions":
        body = {"messages": [{"role": "user", "content": prompt}], **body}
    elif url == "/v1/responses":
        body = {"input": prompt, **body}
    else:
        body = {"prompt": prompt, **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


def results(path):
    """The results by line of the input; each line has one."""
    found = {}
    for line in path.read_text().splitlines():
        result = json.loads(line)
        expect(set(result) == {"id", "custom_id", "response", "error"}, line)
        number = int(result["id"].removeprefix("batch_req_"))
        expect(number not in found, f"line {number} has two results")
        found[number] = result
    return found


def batch(*args, **more):
    return run([BIN / "quire", "run-batch", *args], **more)


class Backend:
    """A server that answers as it is told, and keeps what it was asked."""

    def __init__(self, answer):
        backend = self
        self.seen, self.lock, self.now, self.most = [], threading.Lock(), 0, 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with backend.lock:
                    backend.seen.append((self.path, dict(self.headers), body))
                    backend.now += 1
                    backend.most = max(backend.most, backend.now)
                try:
                    status, text = answer(body, len(backend.seen))
                    if status is None:  # goes away in mid-answer
                        self.connection.close()
                        return
                    data = text.encode()
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass
                finally:
                    with backend.lock:
                        backend.now -= 1

            def log_message(self, *_):
                pass

        class Many(http.server.ThreadingHTTPServer):
            request_queue_size = 512

        self.server = Many(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def server():
    with Server("--workers=2", "--threads=1") as one:
        yield one


def url_of(server):
    return f"--url=http://127.0.0.1:{server.port}"


def test_each_line_has_its_answer_or_its_error(server, tmp_path):
    lines = [request("chat", "Hello", "/v1/chat/completions", max_tokens=4, temperature=0),
             request("text", max_tokens=4, temperature=0),
             request("response", "Hello", "/v1/responses", max_output_tokens=4, temperature=0),
             "", "{broken", request("text", max_tokens=4),
             request("elsewhere", url="/v1/moderations"),
             request("bad", max_tokens=-1), request("stream", stream=True),
             json.dumps({"method": "POST"}), request("foreign", model="gpt-none")]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    out = tmp_path / "out.jsonl"
    code, said = batch("-i", tmp_path / "in.jsonl", "-o", out, url_of(server))
    expect(code == 4 and "10 of 10 requests have their line" in said and "7 of them failed" in said, said)
    found = results(out)
    expect(sorted(found) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 11], found)
    for number, custom_id in ((1, "chat"), (2, "text"), (3, "response")):
        result = found[number]
        expect(result["custom_id"] == custom_id and result["response"]["status_code"] == 200, result)
        expect(result["response"]["request_id"].startswith("batch_req_") and result["error"] is None, result)
    expect(found[1]["response"]["body"]["choices"][0]["message"]["role"] == "assistant", found[1])
    status, direct = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0})
    expect(status == 200 and direct["choices"][0]["text"] == found[2]["response"]["body"]["choices"][0]["text"], direct)
    for number, code in ((5, "invalid_json"), (6, "duplicate_custom_id"), (7, "invalid_url"), (9, "invalid_body"),
                         (10, "invalid_custom_id")):
        expect(found[number]["response"] is None and found[number]["error"]["code"] == code, found[number])
    expect(found[8]["response"]["status_code"] == 400 and "max_tokens" in found[8]["response"]["body"]["error"]["message"],
           found[8])
    expect(found[11]["response"]["status_code"] == 404, found[11])
    before = out.read_bytes()
    code, said = batch("-i", tmp_path / "in.jsonl", "-o", out, url_of(server))
    expect(code == 4 and out.read_bytes() == before, said)  # there is nothing left to do


def test_a_killed_client_carries_on_and_each_request_is_there_once(server, tmp_path):
    count, out = 60, tmp_path / "out.jsonl"
    (tmp_path / "in.jsonl").write_text("\n".join(
        request(f"r{i}", f"Story number {i}", max_tokens=150, temperature=0, ignore_eos=True) for i in range(count)))
    command = [BIN / "quire", "run-batch", "-i", tmp_path / "in.jsonl", "-o", out, url_of(server), "--max-in-flight=2"]
    for stop in (3, 15, 30):
        with Process(command) as client:
            wait_until(lambda stop=stop: out.exists() and out.read_bytes().count(b"\n") >= stop, f"{stop} results")
            client.signal(signal.SIGKILL)
            client.wait()
        expect(len(results_whole(out)) < count, "the batch was over before it was killed")
    with open(out, "ab") as file:  # as if it had been killed in the middle of a write
        file.write(b'{"id":"batch_req_59","custom')
    code, said = run(command)
    expect(code == 0, said)
    found = results(out)
    expect(sorted(found) == list(range(1, count + 1)), sorted(found))
    expect(all(found[i + 1]["custom_id"] == f"r{i}" for i in range(count)), found)


def results_whole(path):
    return [line for line in path.read_bytes().split(b"\n")[:-1]]


def answers(server):
    with contextlib.suppress(OSError, http.client.HTTPException):
        return server.get("/readyz")[0] == 200
    return False


def test_killed_workers_and_a_killed_router_cost_no_request(tmp_path):
    with Server("--workers=2", "--threads=1") as server:
        count, out = 24, tmp_path / "out.jsonl"
        (tmp_path / "in.jsonl").write_text("\n".join(
            request(f"r{i}", f"Story number {i}", max_tokens=300, temperature=0.8, seed=i, ignore_eos=True)
            for i in range(count)))
        with Process([BIN / "quire", "run-batch", "-i", tmp_path / "in.jsonl", "-o", out, url_of(server),
                      "--max-in-flight=8"]) as client:
            for stop, victim in ((1, "quire-worker"), (6, "quire-router"), (12, "quire-worker")):
                wait_until(lambda stop=stop: out.exists() and len(results_whole(out)) >= stop, f"{stop} results")
                os.kill(server.children(victim)[0], signal.SIGKILL)
            expect(client.wait() == 0, client.output())
        found = results(out)
        expect(sorted(found) == list(range(1, count + 1)), sorted(found))
        for i in range(count):
            expect(found[i + 1]["response"]["body"]["usage"]["completion_tokens"] == 300, found[i + 1])
        seen = found[9]["response"]["body"]["choices"][0]["text"]
        wait_until(lambda: answers(server), "a router: on a busy machine the batch is over before the last one is killed")
        status, again = server.post("/v1/completions", {"prompt": "Story number 8", "max_tokens": 300, "temperature": 0.8,
                                                        "seed": 8, "ignore_eos": True})
        expect(status == 200 and again["choices"][0]["text"] == seen, (again, seen))


def test_a_model_is_served_as_long_as_the_batch_runs(tmp_path):
    (tmp_path / "in.jsonl").write_text("\n".join(
        request(f"r{i}", "Hello", "/v1/chat/completions", max_tokens=4, **({"model": "gpt-4o"} if i else {}))
        for i in range(3)))
    code, said = batch("-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--model", DEMO,
                       "--served-model-name=demo", "--served-model-name=gpt-4o")
    expect(code == 0 and "3 of 3" in said, said)
    names = [one["response"]["body"]["model"] for one in results(tmp_path / "out.jsonl").values()]
    expect(collections.Counter(names) == {"demo": 1, "gpt-4o": 2}, names)


def test_ctrl_c_stops_in_order(server, tmp_path):
    out = tmp_path / "out.jsonl"
    (tmp_path / "in.jsonl").write_text("\n".join(
        request(f"r{i}", max_tokens=200, ignore_eos=True) for i in range(200)))
    with Process([BIN / "quire", "run-batch", "-i", tmp_path / "in.jsonl", "-o", out, url_of(server),
                  "--max-in-flight=2"]) as client:
        wait_until(lambda: out.exists() and len(results_whole(out)) >= 1, "a result")
        client.signal(signal.SIGINT)
        expect(client.wait() == 130 and "the same command carries on" in client.output(), client.output())
        expect(f"{len(results_whole(out))} of 200 requests" in client.output(), client.output())


def test_ctrl_c_does_not_wait_for_a_server_that_is_silent(tmp_path):
    silence = threading.Event()

    def answer(_body, _number):
        silence.wait(60)
        return 200, "{}"

    (tmp_path / "in.jsonl").write_text("\n".join(request(f"r{i}") for i in range(9)))
    with Backend(answer) as backend:
        try:
            with Process([BIN / "quire", "run-batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl",
                          "--url", backend.url, "--max-in-flight=3"]) as client:
                wait_until(lambda: len(backend.seen) == 3, "requests in flight")
                client.signal(signal.SIGINT)
                start = time.monotonic()
                expect(client.wait() == 130 and "0 of 9 requests" in client.output(), client.output())
                expect(time.monotonic() - start < 20, "Ctrl-C waited for the server")
        finally:
            silence.set()


def test_what_is_in_flight_is_bounded_and_goes_last(tmp_path):
    gate = threading.Event()

    def answer(_body, number):
        if number == 7:
            threading.Timer(0.3, gate.set).start()
        gate.wait(30)
        return 200, "{}"

    with Backend(answer) as backend:
        (tmp_path / "in.jsonl").write_text("\n".join(
            [request(f"r{i}") for i in range(40)] + [request("own", priority=3, model="mine")]))
        code, said = batch("-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--url", backend.url,
                           "--max-in-flight=7", "--api-key=secret")
        expect(code == 0 and backend.most == 7, (said, backend.most))
        bodies = [body for _, _, body in backend.seen]
        expect(sorted(body["priority"] for body in bodies) == [3] + [LOWEST] * 40, bodies)
        expect(all("stream" not in body for body in bodies), bodies)
        expect(len({headers["x-request-id"] for _, headers, _ in backend.seen}) == 41, backend.seen)
        expect(all(headers["Authorization"] == "Bearer secret" for _, headers, _ in backend.seen), backend.seen)


def test_a_server_that_is_busy_fails_or_goes_away_is_asked_again(tmp_path):
    asked = collections.Counter()

    def answer(body, _number):
        asked[body["prompt"]] += 1
        turn = asked[body["prompt"]]
        plan = {"busy": [429, 503, 200], "gone": [None, 200], "bad": [500, 500, 500, 200], "once": [500, 200],
                "refused": [400, 200]}[body["prompt"]]
        status = plan[turn - 1]
        return status, json.dumps({"error": {"message": "no"}} if status != 200 else {"turn": turn})

    with Backend(answer) as backend:
        (tmp_path / "in.jsonl").write_text("\n".join(
            request(word, word) for word in ("busy", "gone", "bad", "once", "refused")))
        code, said = batch("-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--url", backend.url)
        expect(code == 4 and "2 of them failed" in said, said)
        got = {one["custom_id"]: one["response"]["status_code"] for one in results(tmp_path / "out.jsonl").values()}
        expect(got == {"busy": 200, "gone": 200, "bad": 500, "once": 200, "refused": 400}, got)
        expect(asked == {"busy": 3, "gone": 2, "bad": 3, "once": 2, "refused": 1}, asked)


def test_a_server_that_stays_away_ends_the_run_without_lines(tmp_path):
    (tmp_path / "in.jsonl").write_text(request("a"))
    out = tmp_path / "out.jsonl"
    code, said = batch("-i", tmp_path / "in.jsonl", "-o", out, "--url=http://127.0.0.1:1", "--patience=1s")
    expect(code == 1 and "0 of 1 requests" in said and "127.0.0.1:1" in said, said)
    expect(out.read_bytes() == b"", out.read_bytes())
    with Backend(lambda *_: (401, json.dumps({"error": {"message": "no such key"}}))) as backend:
        code, said = batch("-i", tmp_path / "in.jsonl", "-o", out, "--url", backend.url)
        expect(code == 1 and "no such key" in said and out.read_bytes() == b"", said)


def test_arguments_are_checked_before_anything_runs(tmp_path):
    (tmp_path / "in.jsonl").write_text(request("a"))
    (tmp_path / "notes").write_text("my notes\n")
    (tmp_path / "other.jsonl").write_text('{"id":"batch_req_1","custom_id":"z","response":{"status_code":200},"error":null}\n')
    there, out, url = ("-i", tmp_path / "in.jsonl"), ("-o", tmp_path / "out.jsonl"), "--url=http://127.0.0.1:1"
    for args, word, wanted in (((*out, url), "-i FILE is missing", 2), ((*there, url), "-o FILE is missing", 2),
                               ((*there, *out), "either --model NAME", 2),
                               ((*there, *out, url, "--model=demo"), "either --model NAME", 2),
                               (("-i", tmp_path / "none", *out, url), "No such file", 3),
                               ((*there, "-o", tmp_path / "notes", url), "holds something else", 2),
                               ((*there, "-o", tmp_path / "other.jsonl", url), "results of another input", 2),
                               ((*there, *out, url, "--max-in-flight=1025"), "max-in-flight", 2),
                               ((*there, *out, url, "--max-in-flight=0"), "max-in-flight", 2)):
        code, said = batch(*args)
        expect(code == wanted and word in said, (args, code, said))
    expect((tmp_path / "notes").read_text() == "my notes\n", "a foreign file was changed")


def test_two_runs_do_not_share_an_output(tmp_path):
    gate = threading.Event()
    with Backend(lambda *_: (gate.wait(30) and 200, "{}")) as backend:
        (tmp_path / "in.jsonl").write_text(request("a"))
        command = [BIN / "quire", "run-batch", "-i", tmp_path / "in.jsonl", "-o", tmp_path / "out.jsonl", "--url",
                   backend.url]
        with Process(command) as first:
            wait_until(lambda: backend.seen, "the first run's request")
            code, said = run(command)
            expect(code == 1 and "another process writes" in said, said)
            gate.set()
            expect(first.wait() == 0, first.output())
    with contextlib.suppress(FileNotFoundError):
        expect(len(results(tmp_path / "out.jsonl")) == 1, "")
