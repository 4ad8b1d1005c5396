"""Pulls over Ollama's API against a hub on loopback: what bounds them, and what ends them."""
import http.client
import json
import signal

import pytest
from harness import BIN, DEMO, Process, Server, expect, metric_in, wait_until
from hub import Hub, Repo

FILES = {path.name: path.read_bytes() for path in DEMO.iterdir() if path.suffix in (".json", ".safetensors", ".jinja")}
MIB = 1 << 20


@pytest.fixture
def hub():
    with Hub({"org/demo": Repo(FILES), "org/elsewhere": Repo(FILES, {"model.safetensors"})}) as hub:
        yield hub


def home(folder, hub):
    return {"HOME": str(folder), "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(folder / "hub")}


def serving(folder, hub, *args):
    return Server(*args, env=home(folder, hub))


def pull(server, name):
    return server.post("/api/pull", {"model": name, "stream": False})


def test_a_model_at_the_limit_of_bytes_is_pulled_and_one_byte_more_is_refused_and_counted(folder, hub):
    size = sum(len(data) for data in FILES.values())
    with serving(folder, hub, f"--max-pull-bytes={size - 1}") as server:
        status, answer = pull(server, "hf:org/demo")
        expect(status == 413 and f"has {size} bytes" in answer["error"] and "--max-pull-bytes" in answer["error"], (status, answer))
        expect(not list((folder / "hub").rglob("blobs/*")), "nothing was fetched")
        expect(metric_in(server.get("/metrics")[1], "quire_router_pulls_too_large_total") == 1, "counted")
    with serving(folder, hub, f"--max-pull-bytes={size}") as server:
        expect(pull(server, "hf:org/demo") == (200, {"status": "success"}), "pulled")
        status, answer = server.post("/api/generate", {"model": "org/demo", "prompt": "x", "stream": False, "options": {"num_predict": 2}})
        expect(status == 200 and answer["eval_count"] == 2, answer)


def test_no_redirect_leads_a_client_to_a_private_address(folder, hub):
    with serving(folder, hub) as server:
        status, answer = pull(server, "hf:org/elsewhere")
        expect(status == 403 and "is an address of a private network" in answer["error"], (status, answer))
        expect(not any(name == "storage" for name, *_ in hub.requests), "the other host was asked")
    with Process([BIN / "quire", "pull", "hf:org/elsewhere"], env=home(folder, hub)) as by_hand:
        expect(by_hand.wait() == 0, by_hand.output())  # whoever sits at the machine may


def stick(hub):
    """A repository org/slow whose weights stay under way until the client has gone; returns the requests for them, and what
    lets others through."""
    hub.repos["org/slow"] = Repo({**FILES, "model.safetensors": bytes(64 * MIB)})
    stuck, resolve = [], hub.resolve

    def wait(request, name, revision, path):
        if not path.endswith(".safetensors"):
            return resolve(request, name, revision, path)
        stuck.append(path)
        request.send_response(206)
        request.send_header("Content-Range", f"bytes 0-{4 * MIB - 1}/{64 * MIB}")
        request.send_header("Content-Length", str(4 * MIB))
        request.end_headers()
        request.connection.recv(1)  # until the client has gone
        request.close_connection = True
        stuck.remove(path)
        return None

    hub.resolve = wait
    return stuck, lambda: setattr(hub, "resolve", resolve)


def test_a_client_that_leaves_ends_its_pull(folder, hub):
    stuck, release = stick(hub)
    with serving(folder, hub) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/api/pull", json.dumps({"model": "hf:org/slow"}), {"Content-Type": "application/json"})
        wait_until(lambda: stuck and server.children("quire"), "the pull is under way")
        connection.close()
        wait_until(lambda: not server.children("quire"), "the pull has ended")
        release()
        expect(pull(server, "hf:org/demo")[0] == 200, "others are pulled")


def test_the_model_that_serve_keeps_has_its_names_alone(folder, hub):
    with serving(folder, hub, "--served-model-name=mine") as server:
        expect(pull(server, "hf:org/demo")[0] == 200, "pulled")
        models = {model["name"]: model for model in json.loads(server.get("/api/tags")[1])["models"]}
        expect(set(models) == {"mine", "org/demo"}, models)
        for name in models:
            status, answer = server.post("/api/generate", {"model": name, "prompt": "x", "stream": False, "options": {"num_predict": 2}})
            expect(status == 200 and answer["eval_count"] == 2, answer)
        found = {model["id"]: model["model_ids"] for model in json.loads(server.get("/v1/models")[1])["data"]}
        expect(len(found["mine"]) == 1 and set(found) == set(models), found)


def test_with_keys_only_the_operators_token_pulls_and_deletes(folder, hub):
    token, asked = folder / "token", {"model": "hf:org/demo", "stream": False}
    token.write_text("the-token-of-operators\n")
    with serving(folder, hub, "--api-key=the-key-of-a-client", "--admin-port=0", f"--admin-token-file={token}") as server:
        def ask(method, path, key):
            connection = server.connection()
            headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
            connection.request(method, path, json.dumps(asked), headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        for method, path in (("POST", "/api/pull"), ("DELETE", "/api/delete")):
            for key in (None, "the-key-of-a-client", "wrong"):
                status, answer = ask(method, path, key)
                expect(status == 401 and isinstance(answer["error"], str), (path, key, status, answer))
        expect(not hub.requests, "nothing was asked of the hub")
        expect(ask("POST", "/api/pull", "the-token-of-operators") == (200, {"status": "success"}), "pulled")
        expect(ask("DELETE", "/api/delete", "the-token-of-operators") == (200, {"status": "success"}), "deleted")
        expect(not list((folder / "hub").rglob("*.safetensors")), "its files are gone")


def worker(folder, hub, name, *args):
    return Process([BIN / "quire-worker", f"--model={name}", "--listen=127.0.0.1:0", "--http-port=0", "--device=cpu", *args],
                   env=home(folder, hub))


def writings(folder):
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_a_worker_pulls_what_it_is_named_and_then_needs_no_hub_and_no_place_to_write(folder, hub):
    with worker(folder, hub, "hf:org/demo", "--rank-backend=process", "--tensor-parallel-size=2") as first:
        wait_until(lambda: "ready: " in first.output(), "the worker serves", more=first.output)
        expect("serves org/demo to routers" in first.output(), first.output())
    served, tree = hub.served_bytes, writings(folder)
    with worker(folder, hub, "hf:org/demo") as second:
        wait_until(lambda: "ready: " in second.output(), "it serves again", more=second.output)
    expect(hub.served_bytes == served, "nothing was fetched again")
    expect(writings(folder) == tree, "nothing was written: a pod mounts it read-only")


def test_a_worker_says_why_a_name_leads_nowhere(folder, hub):
    for name, why in (("hf:org/none", "org/none"), ("lama3", "nearest: ")):
        with worker(folder, hub, name) as process:
            code = process.wait()
            expect(code == 3 and why in process.output() and f"--model: {name} cannot be pulled" in process.output(),
                   (name, code, process.output()))


def test_a_worker_that_is_ended_in_mid_pull_ends_the_pull(folder, hub):
    stuck, _ = stick(hub)
    with worker(folder, hub, "hf:org/slow") as process:
        wait_until(lambda: stuck, "the pull is under way")
        process.signal(signal.SIGTERM)
        process.wait()
        wait_until(lambda: not stuck, "the pull has left the hub")
