"""Models by `mlflow:`: against a real tracking server, to which MLflow's own client logs, and against a hostile one."""
import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.parse
import urllib.request

import pytest
from client import MLFLOW_PYTHON, PYTHON, ensure, ensure_mlflow
from harness import DEMO, ROOT, Process, expect, free_port, wait_until
from machine import CLEAN, Machine
from tracking import ID, RUN, Tracking
from tracking import ROOT as ARTIFACTS

FILES = {path.name: path.read_bytes() for path in DEMO.iterdir() if path.suffix in (".json", ".safetensors", ".jinja")}
TOKENIZER = {name for name in FILES if name.startswith(("tokenizer", "chat_template"))}
# As MLflow 3.17.2 writes it of a pipeline of transformers 5.23.
MLMODEL = b"""artifact_path: mlflow-artifacts:/0/models/m-86bbd72046be4f44bab37c93e6825234/artifacts
flavors:
  python_function:
    env:
      conda: conda.yaml
      virtualenv: python_env.yaml
    loader_module: mlflow.transformers
    python_version: 3.11.7
  transformers:
    code: null
    components:
    - tokenizer
    instance_type: TextGenerationPipeline
    model_binary: model
    pipeline_model_type: LlamaForCausalLM
    source_model_name: demo
    task: text-generation
    tokenizer_type: TokenizersBackend
    torch_dtype: torch.bfloat16
    transformers_version: 5.23.0
is_signature_from_type_hint: false
mlflow_version: 3.17.2
signature:
  inputs: '[{"type": "string", "required": true}]'
  outputs: '[{"type": "string", "required": true}]'
  params: null
utc_time_created: '2026-11-29 03:22:27.491567'
"""
CHAT = {"MLmodel": MLMODEL, "LICENSE.txt": b"free", "requirements.txt": b"", "conda.yaml": b"name: mlflow-env\n",
        **{("components/tokenizer/" if name in TOKENIZER else "model/") + name: data for name, data in FILES.items()}}


def write(folder, files):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def here(path):
    return {p.name: p.read_bytes() for p in path.iterdir() if not p.name.startswith(".")}


class Real:
    """MLflow's own server, with what its client has logged."""

    def __init__(self, folder):
        ensure_mlflow()
        self.url = f"http://127.0.0.1:{free_port()}"
        quiet = {**CLEAN, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "HOME": str(folder)}
        self.process = Process([MLFLOW_PYTHON, "-m", "mlflow", "server", "--host=127.0.0.1", f"--port={self.url.rpartition(':')[2]}", "--workers=1",
                                f"--backend-store-uri=sqlite:///{folder}/tracking.db", "--serve-artifacts", f"--artifacts-destination={folder}/artifacts"],
                               env=quiet)
        try:
            wait_until(self.is_up, "MLflow's server is there", 120)
            write(folder / "chat", CHAT)
            write(folder / "plain", FILES)
            done = subprocess.run([str(MLFLOW_PYTHON), str(ROOT / "tests/supply/mlflow_client.py"), self.url, str(folder)], env=quiet,
                                  capture_output=True, text=True, timeout=120)
            expect(done.returncode == 0, done.stderr[-3000:])
            self.ids = json.loads(done.stdout.strip().splitlines()[-1])
        except BaseException:
            self.close()
            raise

    def is_up(self):
        try:
            return urllib.request.urlopen(f"{self.url}/health", timeout=2).status == 200
        except OSError:
            return False

    def close(self):
        """The server runs in a child of what was started: both are in one group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.child.pid, signal.SIGKILL)
        self.process.close()
        expect(not self.is_up(), "no server is left behind")


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    server = Real(tmp_path_factory.mktemp("mlflow"))
    yield server
    server.close()


@pytest.fixture
def machine(folder):
    return Machine(folder / "home")


@pytest.fixture
def tracking(machine):
    with Tracking(CHAT) as tracking:
        machine.env["MLFLOW_TRACKING_URI"] = tracking.url
        yield tracking


def test_every_name_of_a_real_server_leads_to_the_model_that_its_client_logged(machine, real):
    machine.env["MLFLOW_TRACKING_URI"] = real.url
    run, logged = real.ids["run"], real.ids["logged"]
    for name, folder in (("models:/the demo/1", "the-demo:1"), ("models:/the demo@champion", "the-demo:champion"), (f"models:/{logged}", logged),
                         ("models:/the demo/latest", "the-demo"), (f"runs:/{run}/chat", f"chat:{run[:8]}"), (f"runs:/{run}/deep/plain", f"plain:{run[:8]}")):
        path = machine.pulled(f"mlflow:{name}")
        expect(path == machine.home / ".cache/quire/models" / folder and here(path) == FILES, (name, list(path.iterdir())))
    code, out, err = machine.quire("pull", "mlflow:models:/the demo/1")
    expect(code == 0 and "nothing was left to fetch" in err, err)
    code, out, err = machine.quire("run", "mlflow:models:/the demo/1", "Tell me a story", "--max-tokens=8", "--seed=1")
    expect(code == 0 and len(out.split()) > 3, (code, out, err))
    expect(re.search(r"^the-demo:1 +5\.\d MB", machine.quire("list")[1], re.M), "listed")
    expect(machine.quire("rm", "mlflow:models:/the demo/1")[0] == 0, "gone")
    machine.refused(2, "is of the flavor python_function; Quire reads", "pull", f"mlflow:models:/{real.ids['pickled']}")
    for name in ("models:/the demo/9", "models:/the demo@none", "models:/none/1", f"models:/m-{'0' * 32}", f"runs:/{'0' * 32}/chat"):
        machine.refused(3, "it has no such model, version, alias or run", "pull", f"mlflow:{name}")
    machine.refused(3, "has no artifacts there", "pull", f"mlflow:runs:/{run}/none")
    machine.refused(3, "has no version", "pull", "mlflow:models:/local/latest")


def shape_of(value):
    if isinstance(value, dict):
        return {name: shape_of(member) for name, member in value.items()}
    return [shape_of(value[0])] if isinstance(value, list) and value else type(value).__name__


def is_within(ours, theirs):
    if isinstance(ours, dict):
        return isinstance(theirs, dict) and all(name in theirs and is_within(member, theirs[name]) for name, member in ours.items())
    return is_within(ours[0], theirs[0]) if isinstance(ours, list) and isinstance(theirs, list) else ours == theirs


def test_the_stand_in_answers_as_the_real_server_does(real, tracking):
    ids = real.ids
    at = {real.url: (ids["logged"], ids["run"], ids["uri"].removeprefix("mlflow-artifacts:/")), tracking.url: (ID, RUN, ARTIFACTS)}
    for route in ("mlflow/registered-models/alias?name=the%20demo&alias=champion", "mlflow/model-versions/get-download-uri?name=the%20demo&version=1",
                  "mlflow/model-versions/search?filter=name%3D%27the%20demo%27&max_results=1&order_by=version_number%20DESC", "mlflow/logged-models/{0}",
                  "mlflow/runs/get?run_id={1}", "mlflow-artifacts/artifacts?path={2}", "mlflow-artifacts/artifacts?path={2}/model",
                  "mlflow/model-versions/get-download-uri?name=none&version=1"):
        answers = {}
        for url, words in at.items():
            try:
                with urllib.request.urlopen(f"{url}/api/2.0/{route.format(*words)}") as answer:
                    answers[url] = 200, json.load(answer)
            except urllib.error.HTTPError as error:
                answers[url] = error.code, json.load(error)
        (their_status, theirs), (status, ours) = answers[real.url], answers[tracking.url]
        expect(status == their_status and is_within(shape_of(ours), shape_of(theirs)), (route, theirs, ours))
        if "?path" in route:
            names = [{(file["path"], file["is_dir"], file.get("file_size")) for file in answer["files"]} for answer in (ours, theirs)]
            expect(names[0] == names[1], (route, names))


def test_accounts_go_to_their_own_server_alone(machine, tracking):
    name = "mlflow:models:/the demo/1"
    tracking.account = "Bearer a-token"
    machine.refused(1, "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN", "pull", name)
    machine.refused(1, "this account may not read it", "pull", name, env={"MLFLOW_TRACKING_TOKEN": "wrong"})
    tracking.redirect = True
    expect(here(machine.pulled(name, env={"MLFLOW_TRACKING_TOKEN": "a-token"})) == FILES, "by a token")
    machine.quire("rm", name)
    tracking.account = "Basic " + base64.b64encode(b"me:a word").decode()
    account = {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "a word", "MLFLOW_TRACKING_TOKEN": "unused"}
    expect(here(machine.pulled(name, env=account)) == FILES, "by an account")
    seen = {server for server, *_ in tracking.requests}
    expect(seen == {"hub", "storage"}, seen)
    expect(all(server == "hub" or "Authorization" not in headers for server, _, _, headers in tracking.requests), "no other host gets it")


def test_what_a_hostile_server_says_ends_the_pull(machine, tracking):
    def refused(code, mention, name="mlflow:models:/the demo/1"):
        machine.refused(code, mention, "pull", name)
        left = [p for p in machine.home.rglob("*") if p.is_file() and not p.name.startswith(".")]
        expect(not left, (mention, left))
    for status, code, mention in ((403, 1, "status 403"), (404, 3, "it has no such model"), (429, 1, "too many requests"), (500, 1, "(TEMPORARILY_UNAVAILABLE); try again")):
        tracking.status = status
        refused(code, mention)
    tracking.status = None
    for uri, mention in (("file:///etc", "which Quire does not read"), ("/etc/passwd", "which Quire does not read"), ("", "which Quire does not read"),
                         ("dbfs:/x", "which Quire does not read"), ("mlflow-artifacts://127.0.0.1:1/x", "another server than"),
                         ("mlflow-artifacts:/a/../../b", "which is no folder"), ("mlflow-artifacts:/", "which is no folder"), ("s3://../x", "no prefix of a bucket")):
        tracking.uri = uri
        refused(1, mention)
    tracking.uri = f"mlflow-artifacts:/{ARTIFACTS}"
    listing = "mlflow-artifacts/artifacts"
    good = {"path": "model.safetensors", "is_dir": False, "file_size": 5}
    for wrong, code, mention in (
            ({"path": "../evil.json"}, 2, "leaves its folder"), ({"path": "/etc/evil.json"}, 2, "leaves its folder"), ({"path": "a/b.json"}, 2, "a name with a '/'"),
            ({"path": 7}, 2, "empty or too long"), ({"path": "a\nb"}, 2, "characters"), ({"file_size": -1}, 2, "file_size: must be"),
            ({"file_size": 1 << 50}, 2, "file_size: must be"), ({"file_size": "5"}, 2, "file_size"), ({"path": "model.bin"}, 3, "pickled weights")):
        tracking.answers[listing] = {"files": [{**good, **wrong}]}
        refused(code, mention)
    for count, code, mention in ((10_000, 3, "has no model that Quire reads"), (10_001, 1, "more than 10,000")):
        tracking.answers[listing] = {"files": [{**good, "path": f"{i}.txt"} for i in range(count)]}
        refused(code, mention)
    tracking.answers[listing] = {"files": [good, {**good, "path": "config.json"}]}
    refused(3, "has no tokenizer.json")
    for answer, code, mention in ({"files": 7}, 2, "files"), ([], 3, "has no artifacts"), (b"<html>", 1, "answers without JSON"), (b" " * ((8 << 20) + 1), 1, "longer than 8388608"):
        tracking.answers[listing] = answer
        refused(code, mention)
    del tracking.answers[listing]
    limit = 1 << 20
    for text, code, mention in (
            (b"a: [", 2, "is no YAML"), (b"", 2, "names no flavors"), (b"flavors: 7", 2, "names no flavors"), (b"flavors: {sklearn: {}}", 2, "of the flavor sklearn"),
            (b"flavors: {transformers: {peft_adaptor: peft, model_binary: model}}", 2, "is an adapter of PEFT"), (b"x: " + b"[" * 100_000, 2, "is no YAML"), (b"flavors: " + b"[" * 32 + b"]" * 32, 1, "nested too deep"),
            (b"flavors: {transformers: {source_model_name: org/m}}", 3, "logged without its weights (save_pretrained=False), of org/m; pull that"),
            (b"flavors: {transformers: {model_binary: ../..}}", 2, "leaves its folder"), (b"flavors: {x: 1} #".ljust(limit), 2, "of the flavor x"),
            (b"flavors: {x: 1} #".ljust(limit + 1), 1, "longer than 1048576 bytes")):
        tracking.files = {**CHAT, "MLmodel": text}
        refused(code, mention)
    tracking.files = CHAT
    for status, code, mention in ((404, 3, "status 404"), (401, 1, "status 401")):
        tracking.file_status = status
        refused(code, mention)
    tracking.file_status, tracking.short = None, 10
    refused(1, "closed the connection")


def test_a_pull_that_ends_early_keeps_what_has_come_and_another_model_takes_none_of_it(machine, tracking):
    name, weights = "mlflow:models:/the demo@champion", "model/model.safetensors"
    tracking.files = {path: data for path, data in CHAT.items() if path != weights} | {weights: b""}
    served = tracking.file

    def fails_last(request, path):
        """The failure of the weights ends the pull: the other files come before it."""
        if not path.endswith(weights):
            served(request, path)
            return came.add(path.rpartition("/")[2])
        wait_until(lambda: FILES.keys() - {"model.safetensors"} <= came, "the other files have come")
        return request.answer(404, b"")
    came, tracking.file = set(), fails_last
    tracking.listing, usual = (lambda path: {"files": [dict(f, file_size=len(CHAT[weights])) if f["path"].endswith(".safetensors") else f for f in usual(path)["files"]]}), tracking.listing
    machine.refused(3, "there is no such file", "pull", name)
    tracking.file, tracking.files, tracking.listing = served, CHAT, usual
    before = len(tracking.requests)
    path = machine.pulled(name)
    asked = [urllib.parse.unquote(p) for _, _, p, _ in tracking.requests[before:] if "/artifacts/0/" in p]
    again = {p.rpartition("/")[2] for p in asked}
    expect(here(path) == FILES and {"MLmodel", "model.safetensors"} <= again and len(again) < len(came), asked)
    # The alias leads to another model of the same sizes.
    other = bytearray(CHAT[weights])
    other[-1] ^= 1
    tracking.files = {**CHAT, weights: bytes(other)}
    tracking.uri = f"mlflow-artifacts:/{ARTIFACTS}/"
    expect(here(machine.pulled(name))["model.safetensors"] == bytes(other), "nothing is kept of the first")


def test_artifacts_in_a_store_that_speaks_s3(machine, tracking, folder):
    ensure()
    write(folder / "bucket" / "runs" / "1", CHAT)
    with Process([PYTHON, ROOT / "tests/supply/s3_server.py", folder / "bucket"], stdin=subprocess.PIPE) as server:
        port = int(server.wait_for_line("port ").split()[1])
        tracking.uri, tracking.account = "s3://models/runs/1", "Bearer a-token"
        env = {"AWS_ACCESS_KEY_ID": "an-id", "AWS_SECRET_ACCESS_KEY": "a-secret", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "MLFLOW_TRACKING_TOKEN": "a-token"}
        path = machine.pulled("mlflow:models:/the demo/1", env=env)
        expect(here(path) == FILES, list(path.iterdir()))


def test_names_that_are_none_say_what_would_be(machine):
    for name, mention in (("x", "begins with models:/ or runs:/"), ("models:/", "names no version and no alias"), ("models:/demo", "names no version and no alias"),
                          ("models:/demo/Production", "VERSION is a number or latest"), ("models:/demo/1/x", "VERSION is a number"), ("models:/a'b/1", "NAME is no name"),
                          ("models:/demo@", "ALIAS has"), ("models:/demo@a b", "ALIAS has"), ("models:/m-../x", "VERSION is"), ("runs:/", "RUN is the ID"),
                          ("runs:/abc", "PATH is a folder"), ("runs:/abc/../x", "PATH is a folder"), ("runs:/a b/x", "RUN is the ID")):
        machine.refused(2, mention, "pull", f"mlflow:{name}")
    for uri, mention in ((None, "is not set"), ("file:///tmp/mlruns", "must name the tracking server"), ("databricks", "must name the tracking server"),
                         ("http://user:word@host", "is no address")):
        machine.refused(2, mention, "pull", "mlflow:models:/demo/1", env={"MLFLOW_TRACKING_URI": uri} if uri else {})
    machine.refused(1, "is there a way to it from here?", "pull", "mlflow:models:/demo/1", env={"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{free_port()}"})
