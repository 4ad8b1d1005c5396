"""LoRA adapters of a running `quire serve`: loaded, replaced and unloaded by orders and by --lora-dir, beside streams
that notice nothing."""
import hashlib
import json
import os
import shutil
import signal
import threading

import lora
import pytest
from harness import DEMO, Server, expect, metric_in
from lora_test import refusal

PROMPT = {"prompt": "Once upon a time there was", "max_tokens": 24, "temperature": 0}
LONG = {**PROMPT, "max_tokens": 300, "ignore_eos": True}
LOADED = "Success: LoRA adapter '{}' added successfully."


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with four adapters of the demo."""
    folder = tmp_path_factory.mktemp("adapters")
    for seed, name in enumerate(("one", "two", "three", "four"), 1):
        lora.make(DEMO, folder / name, seed)
    broken = folder / "broken"
    shutil.copytree(folder / "one", broken)
    (broken / "adapter_model.safetensors").write_bytes(b"no tensors")
    return folder


@pytest.fixture(scope="module")
def texts(made):
    """What the model and each adapter write, alone."""
    names = ("one", "two", "three", "four")
    modules = [f"--lora-modules={name}={made / name}" for name in names]
    with Server("--enable-lora", "--max-loras=4", *modules) as server:
        found = {name: (text_of(server, name), stream_of(server, name)) for name in ("demo", *names)}
    expect(len({text for text, _ in found.values()}) == 5, f"each writes its own: {found}")
    return found


def text_of(server, model):
    status, answer = server.post("/v1/completions", {**PROMPT, "model": model})
    expect(status == 200, answer)
    return answer["choices"][0]["text"]


def joined(events):
    parts = [json.loads(event) for event in events if event != "[DONE]"]
    expect(all("choices" in part for part in parts), parts[-1:])
    return "".join(part["choices"][0]["text"] for part in parts if part["choices"])


def stream_of(server, model):
    return joined(server.stream("/v1/completions", {**LONG, "model": model}))


def load(server, name, path, **more):
    return server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path), **more})


def unload(server, name):
    return server.post("/v1/unload_lora_adapter", {"lora_name": name})


def names(server):
    return {model["id"] for model in json.loads(server.get("/v1/models")[1])["data"]}


def status_of(server, model):
    return server.post("/v1/completions", {**PROMPT, "model": model, "max_tokens": 1})[0]


def metric(server, name):
    return metric_in(server.get("/metrics")[1], name)


def changes_beside_streams(server, made, texts):
    """A stream of the model and one of `sql`, which is the first adapter; others come and go meanwhile."""
    answers = {}

    def stream(model):
        answers[model] = stream_of(server, model)
    running = [threading.Thread(target=stream, args=(model,)) for model in ("demo", "sql")]
    for thread in running:
        thread.start()
    while any(thread.is_alive() for thread in running):
        expect(load(server, "more", made / "two")[0] == 200, "another one")
        expect(text_of(server, "more") == texts["two"][0], "and its answers")
        expect(load(server, "more", made / "three", load_inplace=True)[0] == 200, "replaced")
        expect(text_of(server, "more") == texts["three"][0], "the new content")
        expect(load(server, "bad", made / "broken")[0] == 400, "a broken one")
        expect(unload(server, "more") == (200, "Success: LoRA adapter 'more' removed successfully."), "it goes")
        expect(status_of(server, "more") == 404, "it is gone")
    for thread in running:
        thread.join()
    expect(answers == {"demo": texts["demo"][1], "sql": texts["one"][1]}, "streams are what they are alone")


def test_adapters_come_and_go_while_streams_run(made, texts):
    with Server("--enable-lora", "--max-loras=3", "--max-lora-rank=8") as server:
        expect(names(server) == {"demo"}, names(server))
        expect(status_of(server, "sql") == 404, "no worker has it")
        expect(load(server, "sql", made / "one") == (200, LOADED.format("sql")), "it is loaded")
        models = {model["id"]: model for model in json.loads(server.get("/v1/models")[1])["data"]}
        expect(models["sql"]["parent"] == "demo" and len(models["sql"]["adapter"]) == 64, models)
        expect(text_of(server, "sql") == text_of(server, "demo:sql") == texts["one"][0], "its answers")
        changes_beside_streams(server, made, texts)
        expect(names(server) == {"demo", "sql"}, names(server))


def test_running_answers_keep_what_they_began_with(made, texts):
    with Server("--enable-lora", "--max-loras=2") as server:
        expect(load(server, "sql", made / "one")[0] == 200, "loaded")
        old = server.stream("/v1/completions", {**LONG, "model": "sql"})
        events = [next(old)]
        expect(load(server, "sql", made / "two", load_inplace=True)[0] == 200, "replaced under it")
        expect(text_of(server, "sql") == texts["two"][0], "new requests get the new content")
        expect(unload(server, "sql")[0] == 200, "unloaded under it")
        expect(status_of(server, "sql") == 404, "and no new request gets it")
        expect(load(server, "more", made / "three")[0] == 200, "the slot of the content that nothing uses")
        expect(joined(events + list(old)) == texts["one"][1], "the answer goes on to its end with what began it")
        expect(text_of(server, "more") == texts["three"][0], "and the other one is what it is")


def test_errors_are_vllms(made):
    with Server("--enable-lora", "--max-loras=1", "--max-lora-rank=8", f"--lora-modules=kept={made / 'one'}") as server:
        for body, status, needle in (
                ({"lora_name": "x"}, 400, "Both 'lora_name' and 'lora_path' must be provided."),
                ({"lora_name": "", "lora_path": "x"}, 400, "must be provided"),
                ({"lora_name": 5, "lora_path": "x"}, 400, "lora_name"),
                ({"lora_name": "a:b", "lora_path": "x"}, 400, "lora_name"),
                ({"lora_name": "demo", "lora_path": "x"}, 400, "is a name of a model"),
                ({"lora_name": "x" * 257, "lora_path": "x"}, 400, "at most 256"),
                ({"lora_name": "x", "lora_path": "y" * 4097}, 400, "at most 4096"),
                ({"lora_name": "x", "lora_path": "y", "load_inplace": "yes"}, 400, "load_inplace"),
                ({"lora_name": "x", "lora_path": "y", "base_model_name": "dem"}, 404, "nearest name is demo"),
                ({"lora_name": "x", "lora_path": str(made / "none")}, 404, "no adapter is found at"),
                ({"lora_name": "x", "lora_path": str(made / "broken")}, 400, "adapter_model.safetensors"),
                ({"lora_name": "kept", "lora_path": str(made / "two")}, 400,
                 "The lora adapter 'kept' has already been loaded."),
                ({"lora_name": "x", "lora_path": str(made / "two")}, 409, "--max-loras 1"),
                ("{", 400, "cut short"), ("[]", 400, "body")):
            code, answer = server.post("/v1/load_lora_adapter", body)
            expect(code == status and needle in answer["error"]["message"], f"{body}: {code} {answer}")
            expect("\n" not in answer["error"]["message"], answer)
        code, answer = unload(server, "nobody")
        expect(code == 404 and "The lora adapter 'nobody' cannot be found." in answer["error"]["message"], answer)
        expect(server.post("/v1/unload_lora_adapter", {})[0] == 400, "no name")
        expect(server.get("/v1/load_lora_adapter")[0] == 405, "POST alone")
        expect(names(server) == {"demo", "kept"}, names(server))
        expect(metric(server, "quire_worker_lora_load_failures_total") == 3, "not found, broken, no slot")
    with Server() as plain:
        code, answer = load(plain, "x", made / "one")
        expect(code == 400 and "--enable-lora" in answer["error"]["message"], answer)


def test_the_least_recently_used_gives_way(made, texts):
    with Server("--enable-lora", "--max-loras=2") as server:
        for name in ("one", "two"):
            expect(load(server, name, made / name)[0] == 200, name)
        expect(text_of(server, "one") == texts["one"][0], "used last")
        expect(load(server, "three", made / "three")[0] == 200, "the third")
        expect(names(server) == {"demo", "one", "three"}, names(server))
        expect(status_of(server, "two") == 404, "it gave way")
        busy = [server.stream("/v1/completions", {**LONG, "model": name}) for name in ("one", "three")]
        begun = [[next(stream)] for stream in busy]
        code, answer = load(server, "four", made / "four")
        expect(code == 409 and "in use" in answer["error"]["message"], answer)
        for stream, events, name in zip(busy, begun, ("one", "three")):
            expect(joined(events + list(stream)) == texts[name][1], name)
        expect(load(server, "four", made / "four")[0] == 200, "now one is idle")
        expect(metric(server, "quire_worker_lora_evictions_total") == 2, "two gave way")


def test_a_folder_says_what_is_served_also_after_a_restart(made, texts, tmp_path):
    folder = tmp_path / "wanted"
    folder.mkdir()
    for name in ("one", "broken"):
        shutil.copytree(made / name, folder / name)
    with Server("--enable-lora", "--max-loras=4", f"--lora-dir={folder}") as server:
        expect(names(server) == {"demo", "one"}, names(server))
        expect(text_of(server, "one") == texts["one"][0], "served from the start")
        expect(metric(server, "quire_worker_lora_broken_entries") == 1, "the broken one counts")
        expect(load(server, "mine", made / "two")[0] == 200, "an order beside it")
        code, answer = load(server, "one", made / "two", load_inplace=True)
        expect(code == 400 and "--lora-dir" in answer["error"]["message"], answer)
        shutil.copytree(made / "three", tmp_path / "three")
        os.rename(tmp_path / "three", folder / "three")
        server.wait_until(lambda: "three" in names(server), "a new folder is served")
        expect(text_of(server, "three") == texts["three"][0], "with its content")
        os.kill(server.children("quire-worker")[0], signal.SIGKILL)
        server.wait_until(lambda: names(server) == {"demo", "one", "three"} and status_of(server, "one") == 200,
                          "a new worker has what the folder says, and nothing else")
        expect(text_of(server, "three") == texts["three"][0], "as before")
        shutil.rmtree(folder / "three")
        server.wait_until(lambda: status_of(server, "three") == 404, "a folder that goes takes its name along")


def write_list(folder, **paths):
    text = json.dumps({"adapters": [{"name": name, "path": path} for name, path in paths.items()]})
    (folder / "new.json").write_text(text)
    os.replace(folder / "new.json", folder / "adapters.json")


def test_a_list_switches_names_and_back_without_a_load(made, texts, tmp_path):
    folder = tmp_path / "wanted"
    folder.mkdir()
    for name in ("one", "two"):
        shutil.copytree(made / name, folder / f"sql-{name}")
    write_list(folder, sql="sql-one")
    with Server("--enable-lora", "--max-loras=2", f"--lora-dir={folder}") as server:
        expect(text_of(server, "sql") == texts["one"][0], "the first version")
        old = server.stream("/v1/completions", {**LONG, "model": "sql"})
        events = [next(old)]
        write_list(folder, sql="sql-two")
        server.wait_until(lambda: text_of(server, "sql") == texts["two"][0], "the second one")
        loads = metric(server, "quire_worker_lora_loads_total")
        write_list(folder, sql="sql-one")
        server.wait_until(lambda: text_of(server, "sql") == texts["one"][0], "and back")
        expect(metric(server, "quire_worker_lora_loads_total") == loads, "a rollback loads nothing")
        expect(metric(server, "quire_worker_lora_switches_total") == 1, "it switches")
        expect(joined(events + list(old)) == texts["one"][1], "what ran meanwhile")
        (folder / "adapters.json").write_text("{")
        write_list(folder, sql="../outside", other="sql-two")
        server.wait_until(lambda: "other" in names(server), "the usable entry")
        expect(text_of(server, "sql") == texts["one"][0], "a broken entry changes nothing")


def test_with_keys_operators_alone_give_orders_and_paths_lie_in_the_folder(made, tmp_path):
    folder, keys, salt, token = (tmp_path / name for name in ("wanted", "keys.json", "salt", "token"))
    folder.mkdir()
    shutil.copytree(made / "one", tmp_path / "hidden")
    shutil.copytree(made / "two", folder / "inside")
    os.symlink(tmp_path / "hidden", folder / "link")
    write_list(folder)
    client, operator = "key-of-a-client-01", "operator-token-0123456"
    keys.write_text(json.dumps({"keys": [{"sha256": hashlib.sha256(client.encode()).hexdigest(), "tenant": "t"}]}))
    salt.write_text("a secret of at least sixteen bytes\n")
    token.write_text(operator + "\n")
    with Server("--enable-lora", f"--lora-dir={folder}", f"--api-key-file={keys}", f"--salt-key-file={salt}",
                "--admin-port=0", f"--admin-token-file={token}") as server:
        def ask(key, path, name="sql"):
            connection = server.connection()
            body = {"lora_name": name, "lora_path": str(path)}
            headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
            connection.request("POST", "/v1/load_lora_adapter", json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        for key in (None, client, "wrong-key-0123456789"):
            expect(ask(key, "inside")[0] in (401, 403), f"{key}: not an operator's")
        for path in (made / "one", "../hidden", "link", folder / ".." / "hidden"):
            status, text = ask(operator, path)
            expect(status == 400 and "\n" not in json.loads(text)["error"]["message"], f"{path}: {status} {text}")
        expect(ask(operator, "inside") == (200, LOADED.format("sql")), "inside the folder")
        expect(ask(operator, folder / "inside", "too")[0] == 200, "the whole path")


def test_wrong_folders_and_flags_end_the_start_with_one_line(tmp_path):
    for args, needle in ((("--enable-lora", f"--lora-dir={tmp_path / 'none'}"), "--lora-dir"),
                         ((f"--lora-dir={tmp_path}",), "--enable-lora")):
        output = refusal(*args)
        expect(needle in output, f"{args}: {output}")


def test_an_order_reaches_all_workers_and_streams_outlive_one_of_them(made, texts):
    ready = 'quire_router_model_ready_workers{model="sql"}'
    with Server("--enable-lora", "--workers=2", "--max-loras=2") as server:
        base = 'quire_router_model_ready_workers{model="demo"}'
        server.wait_until(lambda: metric(server, base) == 2, "both workers are there")
        expect(load(server, "sql", made / "one")[0] == 200, "loaded at both")
        server.wait_until(lambda: metric(server, ready) == 2, "both give it the name")
        answers = []

        def stream():
            answers.append(stream_of(server, "sql"))
        running = [threading.Thread(target=stream) for _ in range(6)]
        for thread in running:
            thread.start()
        server.wait_until(lambda: (metric(server, "quire_router_accepted_tokens_total") or 0) > 20, "they are under way")
        os.kill(server.children("quire-worker")[0], signal.SIGKILL)
        for thread in running:
            thread.join()
        expect(answers == [texts["one"][1]] * 6, "each goes on with the adapter that began it")
        server.wait_until(lambda: (metric(server, base), metric(server, ready)) == (2, 1),
                          "a new worker is there, without what was loaded by order")
        expect(load(server, "sql", made / "one")[0] == 200, "the new one loads it, the other has it")
        server.wait_until(lambda: metric(server, ready) == 2, "both again")
        expect(load(server, "sql", made / "one")[0] == 400, "now it is loaded already")
