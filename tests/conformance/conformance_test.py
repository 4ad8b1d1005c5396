"""Unmodified clients against a real router and a real worker that serve the demo model.

Clients that come as packages run as scripts of their own, each in an environment that setup.sh has made; each check of a
script is a test here.
"""
import base64
import json
import re
import subprocess
import urllib.request

import pytest

from harness import BIN, DEMO, ROOT, Process, expect
from http2_spec import h2spec_finds_what_is_allowed

HERE = ROOT / "tests" / "conformance"
GRPCURL = ROOT / ".cache" / "go-bin" / "grpcurl"
GHZ = ROOT / ".cache" / "go-bin" / "ghz"
NODE_MODULES = ROOT / ".cache" / "npm-clients" / "node_modules"
MODEL = "demo"
pytestmark = pytest.mark.usefixtures("clients")


class Served:
    """Where the router listens: `http` and `grpc` are its two ports, each of which speaks both; and the worker: `wire`."""

    def __init__(self, http, grpc, wire):
        self.http, self.grpc, self.wire = http, grpc, wire
        self.said = {}  # by script: what became of each of its checks


@pytest.fixture(scope="module")
def served(clients, tmp_path_factory):
    worker_command = [BIN / "quire-worker", "--model", DEMO, "--served-model-name", MODEL,
                      "--listen=127.0.0.1:0", "--http-port=0",
                      '--speculative-config={"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 8}']
    with Process(worker_command) as worker:
        wire = worker.wait_for_line("ready: ").split()[1]
        router_command = [BIN / "quire-router", f"--worker={wire}", "--port=0", "--grpc-port=0",
                          "--ready-fd=1", f"--batches-dir={tmp_path_factory.mktemp('batches')}"]
        with Process(router_command) as router:
            line = json.loads(router.wait_for_line('"listen"'))
            yield Served(*(f"127.0.0.1:{line[key].rsplit(':', 1)[1]}" for key in ("listen", "grpc")), wire)


@pytest.fixture(params=("grpc", "http"))
def target(request, served):
    return getattr(served, request.param)


# --- scripts of clients -------------------------------------------------------------------------

def python(environment, script, *arguments):
    return [ROOT / ".cache" / environment / "bin" / "python", HERE / script, *arguments]


def node(script, *arguments):
    return ["node", HERE / script, NODE_MODULES, *arguments]


CLIENTS = {  # script → its command line
    "openai_client.py": lambda at: python("venv-conformance", "openai_client.py", f"http://{at.http}", MODEL),
    "openai_batches_client.py": lambda at: python("venv-conformance", "openai_batches_client.py", f"http://{at.http}", MODEL),
    "openai_client.mjs": lambda at: node("openai_client.mjs", f"http://{at.http}", MODEL),
    "langchain_client.py": lambda at: python("venv-langchain", "langchain_client.py", f"http://{at.http}", MODEL),
    "structured_client.py": lambda at: python("venv-structured", "structured_client.py", f"http://{at.http}", MODEL),
    "triton_client.py": lambda at: python("venv-tritonclient", "triton_client.py", at.grpc, MODEL),
    "triton_http_client.py": lambda at: python("venv-tritonclient", "triton_http_client.py", at.http, MODEL),
    "open_webui_client.py": lambda at: python("venv-open-webui", "open_webui_client.py", f"http://{at.http}/v1", MODEL),
    "kserve_client.py": lambda at: python("venv-kserve", "kserve_client.py", at.http, at.grpc, MODEL),
    "grpc_client.mjs": lambda at: node("grpc_client.mjs", at.grpc, MODEL),
    "triton_faults.py": lambda at: python("venv-tritonclient", "triton_faults.py"),
}


def checks_of(script):
    """The names of the checks that a script holds."""
    text = (HERE / script).read_text()
    found = re.findall(r"^@check\n(?:async )?def (\w+)", text, re.M) or re.findall(r"^  async (\w+)\(\) \{", text, re.M)
    assert found, f"{script} holds no checks"
    return found


def outcomes(command):
    """Check → "ok", or what went wrong."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    found, name = {}, None
    for line in done.stdout.splitlines():
        if told := re.match(r"(ok  |FAIL) [^:]*\b(\w+)(?::(.*))?$", line):
            name = told[2]
            found[name] = "ok" if told[1] == "ok  " else told[3]
        elif name is not None and found[name] != "ok":
            found[name] += "\n" + line
    return found, done.stderr[-2000:]


@pytest.mark.parametrize("script, check", [(script, check) for script in CLIENTS for check in checks_of(script)])
def test_client(script, check, served):
    if script not in served.said:
        served.said[script] = outcomes(CLIENTS[script](served))
    found, errors = served.said[script]
    said = found.get(check, "was not run")
    expect(said == "ok", f"{script} {check}: {said}\n{errors if check not in found else ''}")


# --- tools --------------------------------------------------------------------------------------

def grpcurl(target, method, body=None, flags=(), want=0):
    command = [str(GRPCURL), "-plaintext", *flags]
    if body is not None:
        command += ["-d", json.dumps(body)]
    command += [target] + ([method] if method else [])
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    expect((done.returncode == 0) == (want == 0), f"{command}: {done.returncode}: {done.stderr}")
    return done.stdout + done.stderr


def messages(text):
    """The JSON objects that grpcurl prints one after the other."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def test_reflection_lists_the_services(target):
    services = grpcurl(target, "list").split()
    for name in ("quire.v1.Inference", "inference.GRPCInferenceService", "grpc.health.v1.Health"):
        expect(name in services, services)
    described = subprocess.run([str(GRPCURL), "-plaintext", target, "describe", "quire.v1.Inference"],
                               stdout=subprocess.PIPE, text=True, timeout=60).stdout
    for method in ("Generate", "Chat", "ListModels", "Tokenize"):
        expect(f"rpc {method} " in described, described)


def test_a_prompt_alone_is_echoed_and_scored(target):
    answer = messages(grpcurl(target, "quire.v1.Inference/Generate", {
        "text": "Once upon a time", "echo": True, "sampling": {"max_tokens": 0, "logprobs": 2}}))
    prompt = [message["prompt"] for message in answer if "prompt" in message]
    expect("".join(part.get("text", "") for part in prompt) == "Once upon a time", answer)
    tokens = [token for part in prompt for token in part.get("logprobs", [])]
    ids = answer[0]["started"]["prompt_token_ids"]
    expect([token.get("id", 0) for token in tokens] == ids, answer)
    expect(tokens[0].get("unscored") and "top" not in tokens[0], tokens[0])
    for token in tokens[1:]:
        expect(token["logprob"] <= 0 and token["rank"] >= 1 and len(token["top"]) == 2, token)
    expect(not any("delta" in message for message in answer), answer)
    expect([m["done"]["finish_reason"] for m in answer if "done" in m] == ["length"], answer)
    expect(answer[-1]["usage"].get("completion_tokens", 0) == 0, answer[-1])


def test_generate_streams(target):
    request = {"text": "Once upon a time", "sampling": {"max_tokens": 8, "temperature": 0}}
    events = messages(grpcurl(target, "quire.v1.Inference/Generate", request))
    expect("started" in events[0] and events[0]["started"]["model"] == MODEL, events[:1])
    deltas = [e["delta"] for e in events if "delta" in e]
    ids = [i for d in deltas for i in d.get("token_ids", [])]
    expect(len(ids) == int(events[-1]["usage"]["completion_tokens"]), events[-1])
    expect([e["done"]["finish_reason"] for e in events if "done" in e] in (["length"], ["stop"]), events)
    expect("".join(d.get("text", "") for d in deltas), "no text came")
    by_ids = {"token_ids": {"ids": events[0]["started"]["prompt_token_ids"]},
              "sampling": {"max_tokens": 8, "temperature": 0}}
    again = messages(grpcurl(target, "quire.v1.Inference/Generate", by_ids))
    expect([i for e in again if "delta" in e for i in e["delta"].get("token_ids", [])] == ids,
           "token ids as prompt gave other tokens")


def test_chat_streams(target):
    request = {"messages": [{"role": "user", "content": "Tell me a story."}],
               "sampling": {"max_tokens": 8, "temperature": 0}}
    events = messages(grpcurl(target, "quire.v1.Inference/Chat", request))
    expect("".join(e["delta"].get("text", "") for e in events if "delta" in e), events)
    expect("usage" in events[-1], events[-1])


def test_an_answer_has_the_format_that_was_asked_for(target):
    schema = {"type": "object", "properties": {"b": {"enum": [1, 2]}, "a": {"enum": [3]}}, "required": ["b", "a"],
              "additionalProperties": False}
    compact = json.dumps({**schema, "x-guidance": {"whitespace_flexible": False}})
    forms = [({"json_schema": compact}, lambda text: list(json.loads(text)) == ["b", "a"]),
             ({"json_schema": json.dumps(schema), "disable_any_whitespace": True}, lambda text: " " not in text),
             ({"regex": "[0-9]{4}"}, lambda text: len(text) == 4 and text.isdigit()),
             ({"choice": {"texts": ["yes", "no"]}}, lambda text: text in ("yes", "no")),
             ({"grammar": 'root ::= "a" | "b"'}, lambda text: text in ("a", "b")),
             ({"lark": 'start: "a" | "b"'}, lambda text: text in ("a", "b")),
             ({"structural_tag": json.dumps({"format": {"type": "const_string", "value": "ab"}})}, lambda text: text == "ab")]
    for form, holds in forms:
        for method, prompt in (("Generate", {"text": "Once"}), ("Chat", {"messages": [{"role": "user", "content": "Hi."}]})):
            events = messages(grpcurl(target, f"quire.v1.Inference/{method}", {
                **prompt, "sampling": {"max_tokens": 200, "seed": 5, "temperature": 1}, "response_format": form}))
            text = "".join(e["delta"].get("text", "") for e in events if "delta" in e)
            expect(holds(text), (form, text))
            expect([e["done"]["finish_reason"] for e in events if "done" in e] == ["stop"], events[-3:])
    for form, field in [({"json_schema": '{"not": {}}'}, "response_format.json_schema"), ({"regex": ""}, "response_format.regex"),
                        ({"regex": "a", "disable_any_whitespace": True}, "response_format.disable_any_whitespace")]:
        output = grpcurl(target, "quire.v1.Inference/Generate", {"text": "x", "response_format": form}, want=1)
        expect("InvalidArgument" in output and field in output, output)


def test_models_and_tokens(target):
    models = messages(grpcurl(target, "quire.v1.Inference/ListModels", {}))[0]["models"]
    expect([m["name"] for m in models] == [MODEL], models)
    tokens = messages(grpcurl(target, "quire.v1.Inference/Tokenize", {"text": "Once upon a time"}))[0]
    expect(len(tokens["token_ids"]) > 1, tokens)


def test_health_is_served(target):
    health = messages(grpcurl(target, "grpc.health.v1.Health/Check", {}))[0]
    expect(health["status"] == "SERVING", health)


def test_the_open_protocol_takes_typed_contents(target):
    request = {"model_name": MODEL, "id": "g", "inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": [1],
         "contents": {"bytes_contents": [base64.b64encode(b"Once upon a time").decode()]}}],
        "parameters": {"max_tokens": {"int64_param": 6}, "temperature": {"double_param": 0},
                       "binary_data_output": {"bool_param": False}}}
    whole = messages(grpcurl(target, "inference.GRPCInferenceService/ModelInfer", request))[0]
    outputs = {o["name"]: o["contents"] for o in whole["outputs"]}
    steps = messages(grpcurl(target, "inference.GRPCInferenceService/ModelStreamInfer", request))
    expect(len(steps) == 6 and steps[-1]["infer_response"]["parameters"]["triton_final_response"]["bool_param"], steps)
    ids = [i for s in steps for o in s["infer_response"]["outputs"] if o["name"] == "output_ids"
           for i in o["contents"]["int_contents"]]
    expect(ids == outputs["output_ids"]["int_contents"], whole)
    output = grpcurl(target, "inference.GRPCInferenceService/ModelInfer", {**request, "model_name": "nope"}, want=1)
    expect("NotFound" in output, output)


def test_bad_requests_name_their_field(target):
    for request, field in [({"text": ""}, "text"), ({}, "prompt"),
                           ({"text": "x", "sampling": {"max_tokens": 0}}, "max_tokens"),
                           ({"text": "x", "sampling": {"temperature": -1}}, "temperature")]:
        output = grpcurl(target, "quire.v1.Inference/Generate", request, want=1)
        expect("InvalidArgument" in output and field in output, output)
    output = grpcurl(target, "quire.v1.Inference/Generate", {"text": "x", "model": "nope"}, want=1)
    expect("NotFound" in output, output)


def test_probes_and_metrics_are_answered(target):
    def get(path):
        with urllib.request.urlopen(f"http://{target}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    for path in ("/livez", "/readyz", "/health", "/version", "/metrics"):
        status, body = get(path)
        expect(status == 200 and body, f"{path}: {status} {body}")
    expect("quire_router_http_requests_total" in get("/metrics")[1], "no counter of requests")


def ghz(target, proto, call, body, requests):
    """The report of a load of ghz: every call ended well."""
    done = subprocess.run([str(GHZ), "--insecure", "--import-paths", str(ROOT / "proto"), "--proto",
                           str(ROOT / "proto" / proto), "--call", call, "-d", json.dumps(body), "-n", str(requests),
                           "-c", "8", "-O", "json", target],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    expect(done.returncode == 0, done.stderr)
    report = json.loads(done.stdout)
    expect(report["count"] == requests and report["statusCodeDistribution"] == {"OK": requests},
           report["statusCodeDistribution"])


def test_ghz_loads_both_services(served):
    ghz(served.grpc, "quire/v1/inference.proto", "quire.v1.Inference.Generate",
        {"text": "Once upon a time", "sampling": {"max_tokens": 4}}, 48)
    body = {"model_name": MODEL, "parameters": {"max_tokens": {"int64_param": 4}}, "inputs": [
        {"name": "text_input", "datatype": "BYTES", "shape": [1],
         "contents": {"bytes_contents": [base64.b64encode(b"Once upon a time").decode()]}}]}
    for method in ("ModelInfer", "ModelStreamInfer"):
        ghz(served.grpc, "inference/open_inference.proto", f"inference.GRPCInferenceService.{method}", body, 48)


def curl(*arguments):
    done = subprocess.run(["curl", "-sS", "--max-time", "120", *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=150)
    expect(done.returncode == 0, f"{arguments}: {done.stderr}")
    return done.stdout


def test_curl_streams_and_asks(served):
    url = f"http://{served.http}"
    asked = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 6, "temperature": 0}
    whole = json.loads(curl(f"{url}/v1/completions", "-d", json.dumps(asked)))["choices"][0]["text"]
    events = curl("-N", f"{url}/v1/completions", "-d", json.dumps({**asked, "stream": True})).split("\n\n")
    parts = [json.loads(e[6:])["choices"][0]["text"] for e in events if e.startswith("data: {")]
    expect("".join(parts) == whole and events[-2] == "data: [DONE]", events)
    generate = {"text_input": "Once upon a time", "parameters": {"max_tokens": 6, "temperature": 0}}
    open_url = f"{url}/v2/models/{MODEL}"
    answer = json.loads(curl(f"{open_url}/generate", "-d", json.dumps(generate)))
    expect(answer["text_output"] == whole and answer["finish_reason"] == "length", answer)
    events = [json.loads(e[6:]) for e in curl("-N", f"{open_url}/generate_stream", "-d", json.dumps(generate)).split("\n\n")
              if e]
    expect("".join(e["text_output"] for e in events) == whole and len(events) == 6, events)
    expect(json.loads(curl(f"{url}/v2/health/ready")) == {"ready": True}, "ready")


@pytest.mark.parametrize("port", ("grpc", "wire"))
def test_h2spec_finds_what_is_allowed(served, port):
    h2spec_finds_what_is_allowed(getattr(served, port))
