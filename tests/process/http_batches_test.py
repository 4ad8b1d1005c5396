"""/v1/files and /v1/batches of a real router: each line exactly one result through kill -9, tenants apart, hostile uploads."""
import hashlib
import http.client
import json
import pathlib
import signal
import socket
import time

import pytest
from harness import BIN, DEMO, Process, Server, expect, metric_in, wait_until

KEYS = {"acme": "key-of-acme-in-tests", "beta": "key-of-beta-in-tests"}
ENDED = ("completed", "failed", "expired", "cancelled")


def line(custom_id, prompt="Once upon a time", **body):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/completions",
                       "body": {"prompt": prompt, **body}})


def ask(port, method, path, body=None, key=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if isinstance(body, dict):
        body, headers = json.dumps(body), {"Content-Type": "application/json", **headers}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


def form(parts, boundary="XX"):
    out = b""
    for name, filename, data in parts:
        head = f'Content-Disposition: form-data; name="{name}"' + (f'; filename="{filename}"' if filename else "")
        out += f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n"
    return out + f"--{boundary}--\r\n".encode()


def upload(port, text, key=None, purpose="batch"):
    body = form([("purpose", None, purpose.encode()), ("file", "in.jsonl", text.encode())])
    status, answer = ask(port, "POST", "/v1/files", body, key, **{"Content-Type": "multipart/form-data; boundary=XX"})
    return status, json.loads(answer)


def create(port, file_id, key=None, **more):
    status, answer = ask(port, "POST", "/v1/batches", {"input_file_id": file_id, "endpoint": "/v1/completions",
                                                       "completion_window": "24h", **more}, key)
    return status, json.loads(answer)


def begin(port, lines, key=None):
    status, file = upload(port, "\n".join(lines), key)
    expect(status == 200, file)
    status, batch = create(port, file["id"], key)
    expect(status == 200 and batch["status"] == "validating", batch)
    return batch["id"]


def batch_now(port, batch_id, key=None):
    status, answer = ask(port, "GET", f"/v1/batches/{batch_id}", key=key)
    expect(status == 200, answer)
    return json.loads(answer)


def wait_for_end(port, batch_id, key=None):
    wait_until(lambda: batch_now(port, batch_id, key)["status"] in ENDED, f"the end of {batch_id}", 90)
    return batch_now(port, batch_id, key)


def results(port, batch, key=None):
    """The results by custom_id; each has one."""
    found = {}
    for file_id in (batch["output_file_id"], batch["error_file_id"]):
        if file_id is None:
            continue
        status, text = ask(port, "GET", f"/v1/files/{file_id}/content", key=key)
        expect(status == 200, text)
        for one in text.decode().splitlines():
            result = json.loads(one)
            expect(result["custom_id"] not in found, f"{result['custom_id']} has two results")
            found[result["custom_id"]] = result
    return found


class Cell:
    """A worker, and routers in front of it that share a folder."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.worker = Process([BIN / "quire-worker", "--model", DEMO, "--served-model-name=demo", "--threads=1",
                               "--listen=127.0.0.1:0", "--http-port=0"])
        self.wire = self.worker.wait_for_line("ready: ").split()[1]
        self.routers = []

    def router(self, *args):
        router = Process([BIN / "quire-router", f"--worker={self.wire}", "--port=0", "--grpc-port=0", "--ready-fd=1",
                          f"--batches-dir={self.folder}", *args])
        self.routers.append(router)
        router.port = int(json.loads(router.wait_for_line('"listen"'))["listen"].rsplit(":", 1)[1])
        return router

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in (*self.routers, self.worker):
            process.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "batches"
    with Server("--threads=1", f"--batches-dir={folder}", "--max-body-bytes=2MiB") as one:
        one.folder = folder
        yield one


def test_without_the_flag_the_answer_names_it():
    with Server("--threads=1") as plain:
        for method, path in (("GET", "/v1/files"), ("GET", "/v1/batches"), ("POST", "/v1/batches/batch_1/cancel")):
            status, answer = ask(plain.port, method, path)
            expect(status == 404 and b"--batches-dir" in answer, answer)


def test_a_batch_gives_what_its_requests_give(server):
    lines = [line("a", max_tokens=4, temperature=0), line("bad", max_tokens=-1), line("stream", stream=True)]
    batch = wait_for_end(server.port, begin(server.port, lines))
    expect(batch["status"] == "completed" and batch["request_counts"] == {"total": 3, "completed": 1, "failed": 2}, batch)
    found = results(server.port, batch)
    expect(found["bad"]["response"]["status_code"] == 400 and found["stream"]["error"]["code"] == "invalid_body", found)
    status, direct = server.post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0})
    expect(status == 200 and direct["choices"] == found["a"]["response"]["body"]["choices"], (direct, found["a"]))
    text = server.get("/metrics")[1]
    expect(metric_in(text, 'quire_router_batch_lines_total{result="ok"}') >= 1, "the line is not counted")
    status, answer = ask(server.port, "DELETE", f"/v1/files/{batch['input_file_id']}")
    expect(status == 200 and json.loads(answer)["deleted"], answer)
    status, answer = ask(server.port, "GET", f"/v1/files/{batch['input_file_id']}/content")
    expect(status == 404, answer)


def test_uploads_are_checked(server):
    kind = {"Content-Type": "multipart/form-data; boundary=XX"}
    good = ("purpose", None, b"batch"), ("file", "f", b"{}")
    for parts, word in ((good[:1], "file: is missing"), (good[1:], "purpose: is missing"),
                        ((("purpose", None, b"fine-tune"), good[1]), "only \\\"batch\\\""),
                        ((*good, ("expires_after[anchor]", None, b"created_at")), "do not expire"),
                        ((*good, good[1]), "came twice"), ((*good, ("x", None, b"")), "not a field"),
                        ((good[0], ("file", "f" * 256, b"{}")), "filename"), (good * 9, "16 parts")):
        status, answer = ask(server.port, "POST", "/v1/files", form(parts), **kind)
        expect(status == 400 and word in answer.decode(), (status, answer, word))
    status, answer = ask(server.port, "POST", "/v1/files", {"purpose": "batch"})
    expect(status == 415 and b"multipart/form-data" in answer, answer)
    status, answer = ask(server.port, "POST", "/v1/completions", form(good), **kind)
    expect(status == 415, answer)
    status, answer = upload(server.port, "x" * (3 << 20))
    expect(status == 413 and "--max-body-bytes" in answer["error"]["message"], answer)
    expect(not list(server.folder.rglob(".tmp-*")), "an upload left something behind")


def test_hostile_uploads_cost_little_and_leave_nothing(server):
    router = server.children("quire-router")[0]
    def resident():
        status = pathlib.Path(f"/proc/{router}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10
    before, begun = resident(), time.monotonic()
    kind = {"Content-Type": "multipart/form-data; boundary=XX"}
    near = b"\r\n--X\r\n--XY" * (150 << 10)
    for body in (form([("p", None, b"")] * 20000), b"--XX\r\n" + b"a: b\r\n" * 300000, b"--XX\r\n\r\n" + near,
                 b"--XX\r\nContent-Disposition: form-data; name=\"" + b"n" * (1 << 20), near):
        status, answer = ask(server.port, "POST", "/v1/files", body, **kind)
        expect(status == 400, (status, answer[:200]))
    # Lines of many values, and many lines of little.
    for text in ("[" * 500_000, '{"custom_id":"a","body":[' + "0," * 900_000 + "0]}", "{}\n" * 600_000, "\n" * 1_500_000):
        status, file = upload(server.port, text)
        expect(status == 200, file)
        status, batch = create(server.port, file["id"])
        ended = wait_for_end(server.port, batch["id"])
        expect(ended["status"] == "failed" and 1 <= len(ended["errors"]["data"]) <= 100, ended)
        ask(server.port, "DELETE", f"/v1/files/{file['id']}")
    expect(resident() - before < 256 << 20, f"the router grew by {(resident() - before) >> 20} MiB")
    expect(time.monotonic() - begun < 60, "it took too long")
    # One that never comes to its end holds a connection, and nothing on disk.
    files = sorted(server.folder.rglob("*"))
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        slow.sendall(b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=XX\r\n"
                     b"Content-Length: 1000000\r\n\r\n--XX\r\n")
        expect(ask(server.port, "GET", "/v1/files")[0] == 200, "it does not serve beside a slow upload")
        expect(sorted(server.folder.rglob("*")) == files, "half an upload is on disk")


def test_batches_are_checked_listed_and_cancelled(server):
    for more, word in (({"endpoint": "/v1/embeddings"}, "/v1/embeddings"), ({"completion_window": "1h"}, "24h"),
                       ({"metadata": {"k": "v" * 513}}, "metadata"), ({"input_file_id": "file-x"}, "input_file_id")):
        status, answer = ask(server.port, "POST", "/v1/batches", {
            "input_file_id": "file-" + "0" * 32, "endpoint": "/v1/completions", "completion_window": "24h", **more})
        expect(status == 400 and word in answer.decode(), (status, answer))
    ids = [begin(server.port, [line(f"r{i}", max_tokens=400, ignore_eos=True) for i in range(300)])]
    wait_until(lambda: batch_now(server.port, ids[0])["status"] == "in_progress", "the batch runs")
    status, answer = ask(server.port, "DELETE", f"/v1/files/{batch_now(server.port, ids[0])['input_file_id']}")
    expect(status == 409, answer)
    # A client's own request passes the whole batch.
    begun = time.monotonic()
    status, _ = server.post("/v1/completions", {"prompt": "a", "max_tokens": 8})
    expect(status == 200 and time.monotonic() - begun < 20, f"it waited {time.monotonic() - begun:.1f} s")
    status, answer = ask(server.port, "POST", f"/v1/batches/{ids[0]}/cancel")
    expect(status == 200 and json.loads(answer)["status"] == "cancelling", answer)
    expect(wait_for_end(server.port, ids[0])["status"] == "cancelled", "it is not cancelled")
    status, answer = ask(server.port, "POST", f"/v1/batches/{ids[0]}/cancel")
    expect(status == 409, answer)
    seen, after = [], ""
    while True:
        page = json.loads(ask(server.port, "GET", f"/v1/batches?limit=2{after}")[1])
        seen += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    expect(seen == sorted(seen, reverse=True) and ids[0] == seen[0] and len(set(seen)) == len(seen), seen)
    expect(ask(server.port, "GET", "/v1/batches?limit=101")[0] == 400, "a limit of 101 was taken")


def test_streams_do_not_wait_for_a_batch(server):
    """Hundreds of requests wait, and a stream's first token comes as if none did; it ends long before they do."""
    batch_id = begin(server.port, [line(f"r{i}", max_tokens=400, ignore_eos=True) for i in range(2000)])
    wait_until(lambda: batch_now(server.port, batch_id)["request_counts"]["completed"] > 0, "the batch runs")
    for _ in range(3):
        begun, first = time.monotonic(), None
        for _data in server.stream("/v1/completions", {"prompt": "Once", "max_tokens": 50, "ignore_eos": True}):
            first = first or time.monotonic() - begun
        expect(first < 5, f"the first token took {first:.1f} s")
    now = batch_now(server.port, batch_id)
    expect(now["status"] == "in_progress" and now["request_counts"]["completed"] < 1500, now)
    ask(server.port, "POST", f"/v1/batches/{batch_id}/cancel")
    wait_for_end(server.port, batch_id)


def test_each_line_has_one_result_through_kills_of_the_router(tmp_path):
    with Cell(tmp_path / "batches") as cell:
        router = cell.router("--max-batch-in-flight=4")
        count = 60
        batch_id = begin(router.port, [line(f"r{i}", f"Story {i}", max_tokens=120, temperature=0, ignore_eos=True)
                                       for i in range(count)])
        for stop in (5, 25):
            def done():
                return sum(path.read_bytes().count(b"\n") for path in cell.folder.rglob("*.out"))
            wait_until(lambda stop=stop: done() >= stop, f"{stop} results")
            router.signal(signal.SIGKILL)
            router.wait()
            expect(done() < count, "the batch was over before the router was killed")
            router = cell.router("--max-batch-in-flight=4")
        batch = wait_for_end(router.port, batch_id)
        expect(batch["status"] == "completed" and batch["request_counts"]["completed"] == count, batch)
        found = results(router.port, batch)
        expect(sorted(found) == sorted(f"r{i}" for i in range(count)), sorted(found))
        expect(all(one["response"]["body"]["usage"]["completion_tokens"] == 120 for one in found.values()), "cut short")


def test_routers_with_one_folder_run_a_batch_once_and_take_over(tmp_path):
    with Cell(tmp_path / "batches") as cell:
        one, other = cell.router("--max-batch-in-flight=2"), cell.router("--max-batch-in-flight=2")
        count = 400
        batch_id = begin(one.port, [line(f"r{i}", max_tokens=150, temperature=0, ignore_eos=True) for i in range(count)])
        wait_until(lambda: batch_now(other.port, batch_id)["request_counts"]["completed"] >= 3, "the other shows it")

        def running():
            return [metric_in(ask(router.port, "GET", "/metrics")[1].decode(), "quire_router_batches_running")
                    for router in (one, other)]
        wait_until(lambda: sum(running()) == 1, "one of both runs it")  # the other one looks now and then
        expect(batch_now(other.port, batch_id)["status"] == "in_progress", "the batch is over too soon")
        by_one = bool(running()[0])
        (one if by_one else other).signal(signal.SIGTERM)
        left = other if by_one else one
        batch = wait_for_end(left.port, batch_id)
        expect(batch["status"] == "completed" and len(results(left.port, batch)) == count, batch)


def test_tenants_have_their_own(tmp_path):
    keys = tmp_path / "keys.json"
    salt = tmp_path / "salt"
    salt.write_text("0123456789abcdef" * 4)
    keys.write_text(json.dumps({"keys": [{"tenant": name, "sha256": hashlib.sha256(key.encode()).hexdigest()}
                                         for name, key in KEYS.items()]}))
    with Cell(tmp_path / "batches") as cell:
        router = cell.router(f"--api-key-file={keys}", f"--salt-key-file={salt}", "--max-batch-files=4")
        acme, beta = KEYS["acme"], KEYS["beta"]
        batch_id = begin(router.port, [line("a", max_tokens=3)], acme)
        batch = wait_for_end(router.port, batch_id, acme)
        expect(batch["status"] == "completed" and len(results(router.port, batch, acme)) == 1, batch)
        for path in (f"/v1/batches/{batch_id}", f"/v1/files/{batch['output_file_id']}",
                     f"/v1/files/{batch['input_file_id']}/content"):
            expect(ask(router.port, "GET", path, key=beta)[0] == 404, path)
            expect(ask(router.port, "GET", path)[0] == 401, path)
        expect(json.loads(ask(router.port, "GET", "/v1/files", key=beta)[1])["data"] == [], "beta sees files of acme")
        status, answer = upload(router.port, "{}", acme)  # it has two, its share
        expect(status == 429 and "--max-batch-files" in answer["error"]["message"], answer)
        expect(upload(router.port, "{}", beta)[0] == 200, "beta has no room beside acme")


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link", "none/below"):
        with Process([BIN / "quire-router", "--worker=127.0.0.1:1", "--port=0", "--grpc-port=0",
                      f"--batches-dir={tmp_path / name}"]) as router:
            expect(router.wait() != 0 and "--batches-dir" in router.output(), router.output())
