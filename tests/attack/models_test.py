"""Attacks by model files: templates, tokenizers, vocabularies and links that a registry may hold. The workers of such a
model are not used; every other model goes on being served."""
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import struct
import subprocess
import threading
import time

from edge_test import Running
from mock_fleet import MockWorkers
from target import BIN, DEMO, MIB, Process, Watched, free_port, wait_until

FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
         "chat_template.jinja")
DEPTH = 20_000
TREES = {
    "joined strings": "{{ " + "~".join(["a"] * DEPTH) + " }}",
    "sums": "{{ " + "+".join(["a"] * DEPTH) + " }}",
    "attributes": "{{ a" + ".a" * DEPTH + " }}",
    "items": "{{ a" + "[0]" * DEPTH + " }}",
    "signs": "{{ " + "- " * DEPTH + "1 }}",
    "negations": "{{ " + "not " * DEPTH + "a }}",
    "filters": "{{ a" + "|trim" * DEPTH + " }}",
    "else-ifs": "{% if a %}" + "{% elif a %}" * DEPTH + "{% endif %}",
    "brackets": "{{ " + "(" * DEPTH + "a" + ")" * DEPTH + " }}",
    "lists": "{{ " + "[" * DEPTH + "]" * DEPTH + " }}",
    "ifs": "{% if a %}" * DEPTH + "{% endif %}" * DEPTH,
    "powers": "{{ " + "**".join(["2"] * DEPTH) + " }}",
}


def model(folder, name, template=None, tokenizer=None):
    """A copy of the demo model with another template, or with `tokenizer` applied to its tokenizer.json."""
    made = pathlib.Path(folder) / name
    made.mkdir()
    for file in FILES:
        if (DEMO / file).exists():
            os.symlink(DEMO / file, made / file) if file == "model.safetensors" else shutil.copy(DEMO / file, made / file)
    shutil.copy(DEMO / "model.safetensors", made / "copied")
    os.replace(made / "copied", made / "model.safetensors")
    if template is not None:
        (made / "chat_template.jinja").write_text(template)
    if tokenizer is not None:
        document = json.loads((made / "tokenizer.json").read_text())
        tokenizer(document)
        (made / "tokenizer.json").write_text(json.dumps(document))
    return made


class Cluster(contextlib.ExitStack):
    """A router, a worker of the demo model and one of each hostile model, which is served as `bad`."""

    def __init__(self, *hostile):
        super().__init__()
        addresses = []
        for number, path in enumerate((DEMO, *hostile)):
            name = "demo" if number == 0 else f"bad{number}"
            worker = self.enter_context(Running("quire-worker", "--model", path, "--listen=127.0.0.1:0", "--http-port=0",
                                                "--threads=1", f"--served-model-name={name}"))
            addresses.append(worker.ready()["listen"])
        self.process = self.enter_context(Process(
            [BIN / "quire-router", "--port=0", "--grpc-port=0", "--log-format=json", *(f"--worker={a}" for a in addresses)]))
        self.port = int(json.loads(self.process.wait_for_line('"listening"'))["http"].rsplit(":", 1)[1])
        self.router = Watched(self.process.child.pid)
        wait_until(lambda: self.ask("demo")[0] == 200 or self.process.child.poll() is not None, "the demo model is served",
                   more=lambda: f"; {self.process.lines[-5:]}")

    def post(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        return 0, ""

    def ask(self, name, prompt="a"):
        return self.post("/v1/completions", {"model": name, "prompt": prompt, "max_tokens": 1})

    def still_serves(self):
        assert self.router.alive() and self.process.child.poll() is None, f"the router died: {self.process.lines[-5:]}"
        status, text = self.ask("demo")
        assert status == 200, text


def test_templates_of_deep_trees_kill_no_router(tmp_path):
    hostile = [model(tmp_path, f"tree{number}", template=text) for number, text in enumerate(TREES.values())]
    for first in range(0, len(hostile), 4):
        with Cluster(*hostile[first:first + 4]) as cluster:
            for number in range(1, 5):
                cluster.post("/v1/chat/completions", {"model": f"bad{number}", "max_tokens": 1,
                                                      "messages": [{"role": "user", "content": "a"}]})
            cluster.still_serves()


def doubling(document):
    document["normalizer"] = {"type": "Sequence", "normalizers": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"} for _ in range(27)]}


def test_a_normalizer_that_doubles_is_bounded(tmp_path):
    with Cluster(model(tmp_path, "doubling", tokenizer=doubling)) as cluster:
        with cluster.router.growth(96 * MIB, "a prompt that a normalizer doubles 27 times"):
            cluster.ask("bad1", "a")
            cluster.still_serves()


def look_ahead(document):
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "(?=.*z)x|."}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}


def stripping(document):
    document["added_tokens"].append({"id": 5, "content": " ", "single_word": False, "lstrip": False, "rstrip": True,
                                     "normalized": False, "special": True})


def work_of(cluster, name, text):
    before = cluster.router.seconds()
    cluster.post("/tokenize", {"model": name, "prompt": text})
    return cluster.router.seconds() - before


def test_work_of_tokenising_grows_with_the_text_and_not_faster(tmp_path):
    """Twice the text costs at most a little more than twice the work, or is refused: quadratic work does not hide."""
    with Cluster(model(tmp_path, "look-ahead", tokenizer=look_ahead), model(tmp_path, "stripping", tokenizer=stripping)) as cluster:
        honest = work_of(cluster, "demo", "a" * 200_000)
        for name, letter in (("bad1", "a"), ("bad2", " ")):
            spent = work_of(cluster, name, letter * 200_000)
            print(f"{name}: {spent:.2f} processor seconds, the demo model {honest:.2f}")
            assert spent <= 5 * honest + 1.0, name
        cluster.still_serves()


def test_links_out_of_a_model_are_not_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("{{ 'the secret' }}")
    for target in (secret, pathlib.Path("/proc/self/environ")):
        linked = model(tmp_path, f"linked-{target.name}")
        (linked / "chat_template.jinja").unlink()
        (linked / "chat_template.jinja").symlink_to(target)
        with Process([BIN / "quire-worker", "--model", linked, "--listen=127.0.0.1:0", "--http-port=0", "--threads=1"]) as worker:
            ended = threading.Event()
            threading.Thread(target=lambda: (worker.child.wait(), ended.set()), daemon=True).start()
            assert ended.wait(20), "the worker serves what the link points to"
            code, output = worker.wait(), worker.output()
        assert code == 3, output
        assert "chat_template.jinja" in output, output


def another_model(document):
    document["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.0]]}


def a_long_token(document):
    document["added_tokens"].append({"id": 5, "content": "a" * 4097, "single_word": False, "lstrip": False, "rstrip": False,
                                     "normalized": False, "special": False})


def many_steps(document):
    document["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFC"} for _ in range(33)]}


def a_broken_expression(document):
    document["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "(" * 1000}, "behavior": "Isolated", "invert": False}


REFUSED = {another_model: "model type 'Unigram' is not supported", a_long_token: "longer than 4096 bytes",
           many_steps: "more than 32 steps", a_broken_expression: "regular expression can't be used"}


class Stream:
    """An answer of the honest model that is under way for many seconds."""
    TOKENS = 600

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self.connection.request("POST", "/v1/completions", json.dumps(
            {"model": "mock", "prompt": "a", "max_tokens": self.TOKENS, "ignore_eos": True, "stream": True,
             "stream_options": {"include_usage": True}}), {"Content-Type": "application/json"})
        self.answer = self.connection.getresponse()
        assert self.answer.status == 200, self.answer.read()
        self.first = self.answer.readline()

    def whole(self):
        text = (self.first + self.answer.read()).decode()
        self.connection.close()
        return text.endswith("data: [DONE]\n\n") and f'"completion_tokens":{self.TOKENS}' in text


def ask(port, method, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def test_a_refused_tokenizer_leaves_every_other_model_served(tmp_path):
    """Workers that have not looked at their tokenizer come while another model streams. Each is refused with the reason, and
    no stream ends early. Nothing is timed: streams end after the refusals since a mock paces them."""
    ports = {change: free_port() for change in REFUSED}
    with contextlib.ExitStack() as stack:
        honest = stack.enter_context(MockWorkers(1, decode_ms=20))
        router = stack.enter_context(Process([
            BIN / "quire-router", "--port=0", "--grpc-port=0", "--log-format=json",
            *(f"--worker={address}" for address in (*honest.addresses, *(f"127.0.0.1:{p}" for p in ports.values())))]))
        port = int(json.loads(router.wait_for_line('"listening"'))["http"].rsplit(":", 1)[1])
        small = {"model": "mock", "prompt": "a", "max_tokens": 1}
        wait_until(lambda: ask(port, "POST", "/v1/completions", small)[0] == 200, "the honest model is served")
        streams = [Stream(port) for _ in range(4)]
        for change, reason in REFUSED.items():
            document = json.loads((DEMO / "tokenizer.json").read_text())
            change(document)
            file = tmp_path / f"{change.__name__}.json"
            file.write_text(json.dumps(document))
            stack.enter_context(MockWorkers(1, ports=[ports[change]], tokenizer=file, served_name=change.__name__,
                                            model_id=change.__name__))
            router.wait_for_line(reason)
            problems = {w["target"]: w["problem"] for w in ask(port, "GET", "/fleet")[1]["workers"]}
            problem = problems[f"127.0.0.1:{ports[change]}"]
            assert "unusable" in problem and reason in problem, problems
            status, answer = ask(port, "POST", "/v1/completions", {**small, "model": change.__name__})
            assert status in (404, 503), answer
            assert ask(port, "POST", "/v1/completions", small)[0] == 200
        assert len(ask(port, "GET", "/fleet")[1]["streams"]) == len(streams), "none has ended meanwhile"
        assert all(stream.whole() for stream in streams)


def gguf_string(text):
    return struct.pack("<Q", len(text)) + text


def test_a_vocabulary_of_empty_strings_is_refused_before_it_is_held(tmp_path):
    """A model that is whole but for its vocabulary, whose strings take eight bytes of the file each."""
    made, count = tmp_path / "made", 1 << 25
    subprocess.run([BIN / "quire", "make-weights", "tiny-llama", made, "--dtype=q4_k"], check=True, capture_output=True)
    data = (made / "model.gguf").read_bytes()
    key = gguf_string(b"tokenizer.ggml.tokens") + struct.pack("<II", 9, 8)
    at = data.index(key) + len(key)
    end, strings = at + 8, struct.unpack_from("<Q", data, at)[0]
    for _ in range(strings):
        end += 8 + struct.unpack_from("<Q", data, end)[0]
    path = tmp_path / "empty.gguf"
    with path.open("wb") as file:
        file.write(data[:at] + struct.pack("<Q", count))
        file.write(bytes(8 * (count - 1)))
        file.write(gguf_string(b" " * ((end - at - 8 - 8 * count) % 32)))  # what follows keeps its alignment
        file.write(data[end:])
    with Process([BIN / "quire-worker", "--model", path, "--listen=127.0.0.1:0", "--http-port=0", "--threads=1"]) as worker:
        watched, own = Watched(worker.child.pid), 0
        while worker.child.poll() is None:
            with contextlib.suppress(AssertionError, OSError):
                own = max(own, watched.own())
            time.sleep(0.01)
        assert worker.child.returncode == 3, worker.output()
        print(worker.output()[-400:], f"{own / MIB:.0f} MiB of its own at the peak")
        assert own <= 256 * MIB
