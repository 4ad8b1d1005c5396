"""LoRA adapters under `quire serve`: how clients name them, see them and may use them; what is refused at the start."""
import hashlib
import json

import lora
import pytest
from harness import BIN, DEMO, Server, expect, metric_in, run

PROMPT = {"prompt": "Once upon a time there was", "max_tokens": 24, "temperature": 0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two adapters of the demo, by name."""
    folder = tmp_path_factory.mktemp("adapters")
    return {name: lora.make(DEMO, folder / name, seed) for name, seed in (("sql", 1), ("legal", 2))}


@pytest.fixture(scope="module")
def server(made):
    # As vLLM's clients and manifests write it: several after one flag, and as JSON.
    with Server("--enable-lora", "--max-loras=2", "--max-lora-rank=8", "--lora-modules", f"sql={made['sql']}",
                json.dumps({"name": "legal", "path": str(made["legal"]), "base_model_name": "demo"})) as server:
        yield server


def text_of(server, model, **more):
    status, answer = server.post("/v1/completions", {**PROMPT, "model": model, **more})
    expect(status == 200, answer)
    expect(answer["model"] == model, answer["model"])
    return answer["choices"][0]["text"]


def test_an_adapter_is_a_model_to_clients(server):
    texts = {name: text_of(server, name) for name in ("demo", "sql", "legal")}
    expect(len(set(texts.values())) == 3, f"each writes its own: {texts}")
    expect(text_of(server, "demo:sql") == texts["sql"], "behind its model's name")
    with Server() as plain:
        expect(text_of(plain, "demo") == texts["demo"], "the model alone is what it was")
    status, answer = server.post("/v1/chat/completions", {
        "model": "legal", "max_tokens": 8, "messages": [{"role": "user", "content": "Tell me of a dog."}]})
    expect(status == 200 and answer["model"] == "legal", answer)
    events = list(server.stream("/v1/completions", {**PROMPT, "model": "sql"}))
    expect(events[-1] == "[DONE]", events[-1])
    streamed = "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1] if json.loads(event)["choices"])
    expect(streamed == texts["sql"], streamed)


def test_models_are_listed_with_their_parent_and_unknown_names_with_the_nearest(server):
    models = {model["id"]: model for model in json.loads(server.get("/v1/models")[1])["data"]}
    expect(set(models) == {"demo", "sql", "legal"}, models)
    expect(models["demo"]["parent"] is None and models["demo"]["adapter"] is None, models["demo"])
    for name in ("sql", "legal"):
        expect(models[name]["parent"] == models[name]["root"] == "demo", models[name])
        expect(len(models[name]["adapter"]) == 64, models[name])
    expect(models["sql"]["adapter"] != models["legal"]["adapter"], models)
    for name, nearest in (("sqll", "sql"), ("demo:leagl", "demo:legal")):
        status, answer = server.post("/v1/completions", {**PROMPT, "model": name})
        expect(status == 404 and f"nearest name is {nearest};" in answer["error"]["message"], answer)


def test_metrics_name_them(server):
    text = server.get("/metrics")[1]
    expect(metric_in(text, "quire_worker_lora_adapters") == 2, "the worker holds two")
    ready = 'quire_router_model_ready_workers{model="sql"}'
    server.wait_until(lambda: metric_in(server.get("/metrics")[1], ready) == 1, "the router knows who holds it")
    expect('max_lora="2",running_lora_adapters="",waiting_lora_adapters=""}' in text, "none is at work")


def test_a_key_for_a_model_does_not_open_its_adapters(made, tmp_path):
    keys, salt = tmp_path / "keys.json", tmp_path / "salt"
    entries = {"key-of-the-model-01": ["demo"], "key-of-the-adapter": ["sql"]}
    keys.write_text(json.dumps({"keys": [{"sha256": hashlib.sha256(key.encode()).hexdigest(), "tenant": f"t{i}", "models": may}
                                         for i, (key, may) in enumerate(entries.items())]}))
    salt.write_text("a secret of at least sixteen bytes\n")
    with Server("--enable-lora", f"--lora-modules=sql={made['sql']}", f"--api-key-file={keys}",
                f"--salt-key-file={salt}") as server:
        def status(key, model):
            connection = server.connection()
            connection.request("POST", "/v1/completions", json.dumps({**PROMPT, "max_tokens": 1, "model": model}),
                               {"Content-Type": "application/json", "Authorization": f"Bearer {key}"})
            return connection.getresponse().status
        model, adapter = entries
        expect([status(model, name) for name in ("demo", "sql", "demo:sql")] == [200, 404, 404], "a key of the model")
        expect([status(adapter, name) for name in ("demo", "sql", "demo:sql")] == [404, 200, 200], "a key of the adapter")


def refusal(*args):
    code, output = run([BIN / "quire", "serve", DEMO, "--port=0", "--grpc-port=0", *args])
    expect(code != 0, output)
    return output


def test_what_cannot_be_served_ends_the_start_with_one_line(made, tmp_path):
    sql = made["sql"]
    wrong = lora.make(DEMO, tmp_path / "wrong", 3, modules=("q_proj",))
    file = wrong / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes().replace(b"self_attn.q_proj", b"self_attn.x_proj"))
    for args, needle in (
            ((f"--lora-modules=sql={sql}",), "--enable-lora"),
            (("--enable-lora", f"--lora-modules=demo={sql}"), "is a name of the model"),
            (("--enable-lora", f"--lora-modules=a:b={sql}"), "has a ':'"),
            (("--enable-lora", "--max-lora-rank=4", f"--lora-modules=sql={sql}"), "--max-lora-rank"),
            (("--enable-lora", f"--lora-modules=sql={wrong}"), "x_proj"),
            (("--enable-lora", f"--lora-modules=sql={tmp_path / 'nowhere'}"), "nowhere")):
        output = refusal(*args)
        expect(needle in output, f"{args}: {output}")
