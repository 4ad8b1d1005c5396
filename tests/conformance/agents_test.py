"""The packages of OpenAI, Anthropic and Ollama on /v1/responses, /v1/messages and /api, unmodified, against a real router and
workers that answer by agents/rules.json in the words of a model that knows tools and thoughts: what they accumulate, what a
killed worker changes (nothing), and how much of an agent's prompts the cache covers.
"""
import http.client
import json
import re
import shutil
import threading

import pytest

import random_model
from conformance_test import HERE, checks_of, node, outcomes, python
from harness import DEMO, ROOT, Server, expect
from hub import Hub, Repo
from mock_fleet import MockWorkers, Router

AGENTS = ROOT / "tests" / "conformance" / "agents"
AI_MODULES = ROOT / ".cache" / "npm-ai" / "node_modules"
OLLAMA_MODULES = ROOT / ".cache" / "npm-ollama" / "node_modules"
MODEL = "mock"
pytestmark = pytest.mark.usefixtures("clients")


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The demo model's tokenizer with a template that knows tools and thoughts."""
    folder = tmp_path_factory.mktemp("agents")
    for name in ("tokenizer.json", "config.json", "generation_config.json", "model.safetensors"):
        shutil.copy(DEMO / name, folder)
    settings = json.loads((DEMO / "tokenizer_config.json").read_text())
    settings["chat_template"] = (AGENTS / "chat_template.jinja").read_text()
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def workers(text, script=AGENTS / "rules.json", **options):
    return MockWorkers(1, text=text, script=script, max_model_len=131072, **options)


@pytest.fixture(scope="module")
def served(text):
    with workers(text, decode_ms=1) as fleet, Router(fleet.addresses, "--responses-store=16MiB") as router:
        router.said = {}  # by script: what became of each of its checks
        yield router


@pytest.fixture(scope="module")
def enforced(tmp_path_factory):
    """A model of random weights: what its answers hold is enforced."""
    folder = random_model.make("qwen3", tmp_path_factory.mktemp("random"))
    with Server(f"--served-model-name={MODEL}", "--max-model-len=4096", "--reasoning-parser=deepseek_r1", model=folder) as server:
        server.http, server.said = f"127.0.0.1:{server.port}", {}
        yield server


@pytest.fixture(scope="module")
def steered(tmp_path_factory):
    """The same, whose thoughts a client may switch off, which it may load and unload, and a hub to pull from."""
    folder = random_model.make("qwen3", tmp_path_factory.mktemp("random"))
    files = {path.name: path.read_bytes() for path in DEMO.iterdir() if path.suffix in (".json", ".safetensors", ".jinja")}
    with Hub({"org/demo": Repo(files), "org/elsewhere": Repo(files, {"model.safetensors"})}) as hub:
        home = {"HOME": str(tmp_path_factory.mktemp("home")), "HF_ENDPOINT": hub.url}
        with Server(f"--served-model-name={MODEL}", "--max-model-len=1024", model=folder, env=home) as server:
            server.http, server.said = f"127.0.0.1:{server.port}", {}
            yield server


CLIENTS = {  # script → its command line
    "anthropic_client.py": lambda at: python("venv-agents", "anthropic_client.py", f"http://{at.http}", MODEL),
    "responses_client.py": lambda at: python("venv-agents", "responses_client.py", f"http://{at.http}", MODEL),
    "agents_client.mjs": lambda at: node("agents_client.mjs", f"http://{at.http}", MODEL),
    "langchain_agent_client.py": lambda at: python("venv-langchain-agents", "langchain_agent_client.py", f"http://{at.http}", MODEL),
    "ollama_client.py": lambda at: python("venv-ollama", "ollama_client.py", f"http://{at.http}", MODEL),
    "ollama_client.mjs": lambda at: ["node", HERE / "ollama_client.mjs", OLLAMA_MODULES, f"http://{at.http}", MODEL],
    "ollama_serve_client.py": lambda at: python("venv-ollama", "ollama_serve_client.py", f"http://{at.http}", MODEL),
    "ollama_serve_client.mjs": lambda at: ["node", HERE / "ollama_serve_client.mjs", OLLAMA_MODULES, f"http://{at.http}"],
    "tools_client.py": lambda at: python("venv-agents", "tools_client.py", f"http://{at.http}", MODEL),
    "tools_client.mjs": lambda at: node("tools_client.mjs", f"http://{at.http}", MODEL, AI_MODULES),
}
FIXTURES = {"tools_client.py": "enforced", "tools_client.mjs": "enforced", "ollama_serve_client.py": "steered",
            "ollama_serve_client.mjs": "steered"}


@pytest.mark.parametrize("script, check", [(script, check) for script in CLIENTS for check in checks_of(script)])
def test_client(script, check, request):
    at = request.getfixturevalue(FIXTURES.get(script, "served"))
    if script not in at.said:
        at.said[script] = outcomes(CLIENTS[script](at))
    found, errors = at.said[script]
    said = found.get(check, "was not run")
    expect(said == "ok", f"{script} {check}: {said}\n{errors if check not in found else ''}")


# --- without a client's package -----------------------------------------------------------------

QUESTION = "What is the weather in Paris?"
BODIES = {
    "/v1/responses": {"model": MODEL, "input": QUESTION, "stream": True, "seed": 7, "tools": [
        {"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("get_weather", "get_time")]},
    "/v1/messages": {"model": MODEL, "max_tokens": 500, "stream": True, "seed": 7,
                     "messages": [{"role": "user", "content": QUESTION}],
                     "tools": [{"name": name, "input_schema": {"type": "object"}} for name in ("get_weather", "get_time")]},
    "/api/chat": {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "options": {"seed": 7}, "tools": [
        {"type": "function", "function": {"name": name}} for name in ("get_weather", "get_time")]},
}


def post(address, path, body, on_line=None):
    """The body of the answer, line by line as it comes; and the worker that began it."""
    connection = http.client.HTTPConnection(address, timeout=120)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json", "x-request-id": "the-same"})
    answer = connection.getresponse()
    lines = []
    for line in answer:
        lines.append(line.decode())
        if on_line is not None:
            on_line(len(lines))
    text = "".join(lines)
    expect(answer.status == 200, f"{path}: {answer.status}: {text}")
    return text, answer.getheader("X-Quire-Worker")


@pytest.mark.parametrize("path", BODIES)
def test_a_killed_worker_changes_no_byte_of_a_stream(path, text):
    """Each of two workers begins an answer; one is killed while both are under way."""
    def transcript(stream):
        """Without times, and what the cache of a worker had of the prompt."""
        stream = re.sub(r'"created_at":"[^"]*"|_duration":\d+', "", stream)
        stream = re.sub(r'"(created_at|cached_tokens)":\d+', r'"\1":0', stream)
        return re.sub(r'"input_tokens":\d+,"cache_creation_input_tokens":0,"cache_read_input_tokens":\d+', "", stream)

    with workers(text, decode_ms=8) as one, workers(text, decode_ms=8) as other, \
            Router(one.addresses + other.addresses, "--routing-policy=round-robin") as router:
        undisturbed, _ = post(router.http, path, BODIES[path])
        early = undisturbed.count("\n") // 4
        expect(early > 2, undisturbed)
        begun = threading.Barrier(2, action=one.close)  # SIGKILL
        found = []

        def stream():
            found.append(post(router.http, path, BODIES[path], lambda lines: begun.wait(60) if lines == early else None))

        threads = [threading.Thread(target=stream) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        expect(len(found) == 2 and found[0][1] != found[1][1], f"two workers began: {found}")
        for got, worker in found:
            differ = [pair for pair in zip(transcript(got).split("\n"), transcript(undisturbed).split("\n")) if pair[0] != pair[1]]
            expect(transcript(got) == transcript(undisturbed), f"{worker}: {differ[:3]}\n{got[-500:]}")
        expect(router.metric("quire_router_carry_ons_total") >= 1, "no answer was continued")


def claude_code(turns, request):
    """A request as Claude Code sends it: a line that differs each time, system blocks, tools, a growing conversation."""
    messages = [{"role": "user", "content": [{"type": "text", "text": "<system-reminder>\nThe date is today.\n</system-reminder>"},
                                             {"type": "text", "text": "Mend the tests of this project."}]},
                {"role": "system", "content": [{"type": "text", "text": "# Environment\nA folder with a project. " * 20}]}]
    for turn in range(turns):
        messages += [
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": f"I read file {turn}.", "signature": "quire"},
                {"type": "tool_use", "id": f"call_{turn}", "name": "Read", "input": {"file_path": f"/src/file_{turn}.py"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"call_{turn}",
                                          "content": f"line {turn} of a file\n" * 10}]}]
    return {"model": MODEL, "max_tokens": 8, "messages": messages, "tools": [
                {"name": name, "description": "Does one thing well. " * 30, "input_schema": {"type": "object", "properties": {
                    "file_path": {"type": "string"}}}} for name in ("Bash", "Edit", "Read", "Write")],
            "system": [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={request * 7919 % 65536:04x};"},
                       {"type": "text", "text": "You work on code.", "cache_control": {"type": "ephemeral"}},
                       {"type": "text", "text": "Be careful, and test what you change. " * 60,
                        "cache_control": {"type": "ephemeral"}}]}


def test_an_agents_prompts_come_from_the_cache_from_the_second_turn_on(served):
    for turn in range(5):
        usage = json.loads(post(served.http, "/v1/messages?beta=true", claude_code(turn, turn + 1))[0])["usage"]
        prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
        share = usage["cache_read_input_tokens"] / prompt
        expect(turn == 0 or share >= 0.9, f"turn {turn}: {share:.2f} of {prompt} tokens were cached")


def test_a_tool_of_its_maker_is_left_out_and_counted(served):
    before = served.metric("quire_router_tools_left_out_total")
    body = {**BODIES["/v1/responses"], "tools": [{"type": "web_search"}], "stream": False}
    post(served.http, "/v1/responses", body)
    expect(served.metric("quire_router_tools_left_out_total") == before + 1, "not counted")
