"""What agents' APIs cost beside plain chat: 64 streams of /v1/responses and /v1/messages, and a first token with tools.

The router stands before mock workers that answer a long text; the APIs take turns, and so do the chats with tools and
without. Both chats have the same prompt: one has its tools in `tools`, the other has in its system message what the
template makes of them. A run with an answer of another length is void.
"""
import contextlib
import http.client
import json
import pathlib
import re
import shutil
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "process")]
from harness import DEMO, Server  # noqa: E402
from mock_fleet import MockWorkers, Router  # noqa: E402
from router_load import spread  # noqa: E402

AGENTS = ROOT / "tests" / "conformance" / "agents"
STREAMS = 64
SENTENCE = "The little fox went into the wood and looked for a friend. "
QUESTION = "Tell me a story about a fox."
TOOLS = [{"type": "function", "function": {"name": name, "description": f"Looks for {name} in what was read before.", "parameters": {
    "type": "object", "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}}, "required": ["path"]}}}
    for name in ("read_file", "write_file", "list_files", "search", "run_command", "fetch", "get_weather", "plan")]
USER = {"role": "user", "content": QUESTION}
PATHS = {
    "/v1/chat/completions": ({"messages": [USER]}, b"data: [DONE]"),
    "/v1/responses": ({"input": QUESTION}, b"event: response.completed"),
    "/v1/messages": ({"messages": [USER], "max_tokens": 4000}, b"event: message_stop"),
}


@contextlib.contextmanager
def served(sentences, decode_ms):
    """A router in front of a worker whose every answer is so long, with a template that knows tools."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file in ("tokenizer.json", "config.json", "generation_config.json", "model.safetensors"):
            shutil.copy(DEMO / file, folder)
        settings = json.loads((DEMO / "tokenizer_config.json").read_text())
        settings["chat_template"] = (AGENTS / "chat_template.jinja").read_text()
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        script = folder / "script.json"
        script.write_text(json.dumps([{"answer": SENTENCE * sentences}]))
        with MockWorkers(1, text=folder, script=script, decode_ms=decode_ms) as fleet, Router(fleet.addresses) as router:
            yield router


@contextlib.contextmanager
def real(model):
    """`quire serve` with that model and the same template."""
    with Server("--served-model-name=mock", f"--chat-template={AGENTS / 'chat_template.jinja'}", model=model) as server:
        server.http = f"127.0.0.1:{server.port}"
        yield server


def answer(connection, path, body, end):
    """Milliseconds to the first event with text and to the end, and how long the text is."""
    begin = time.monotonic()
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"{path}: {response.status} {response.read().decode()}")
    first, told, whole = None, 0, False
    for line in response:
        whole = whole or line.startswith(end)
        found = re.search(rb'"(?:content|delta|text)":"((?:[^"\\]|\\.)*)"', line) if line.startswith(b"data: ") else None
        if found and found.group(1) and b'"text":"' not in line.split(b'"delta"')[0]:
            first = first or time.monotonic()
            told += len(found.group(1))
    if not whole or first is None:
        raise SystemExit(f"{path}: the answer was cut short: void")
    return (first - begin) * 1000, (time.monotonic() - begin) * 1000, told


def streams(router, path, each):
    """So many streams at once, each with some answers: milliseconds of an answer, and of the router's processor."""
    body, end = PATHS[path]
    took, lock = [], threading.Lock()

    def client(number):
        connection = http.client.HTTPConnection(router.http, timeout=120)
        rows = [answer(connection, path, {**body, "model": "mock", "stream": True, "seed": number * 1000 + i}, end)
                for i in range(each)]
        connection.close()
        with lock:
            took.extend(rows)

    busy = router.busy()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(STREAMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    busy = router.busy() - busy
    if len(took) != STREAMS * each:
        raise SystemExit(f"{path}: {STREAMS * each - len(took)} answers failed: void")
    return {"ms of an answer": statistics.median(row[1] for row in took), "processor ms of an answer": busy * 1000 / len(took),
            "text": {row[2] for row in took}}


def agents_apis(cycles, small):
    rows = {path: [] for path in PATHS}
    with served(10 if small else 20, decode_ms=20) as router:
        for path in PATHS:
            streams(router, path, 1)  # connections, caches
        for _ in range(cycles):
            for path in PATHS:
                rows[path].append(streams(router, path, 1 if small else 2))
    texts = set().union(*(row["text"] for of_path in rows.values() for row in of_path))
    if len(texts) != 1:
        raise SystemExit(f"answers of {sorted(texts)} bytes, which should be one length: void")
    plain = rows["/v1/chat/completions"]
    told = {}
    for path, of_path in rows.items():
        told[path] = {key: spread([row[key] for row in of_path]) for key in ("ms of an answer", "processor ms of an answer")}
        told[path]["answer over that of chat"] = spread([a["ms of an answer"] / b["ms of an answer"] for a, b in zip(of_path, plain)])
        told[path]["processor over that of chat"] = spread(
            [a["processor ms of an answer"] / b["processor ms of an answer"] for a, b in zip(of_path, plain)])
        print(f"{path}: {told[path]['ms of an answer']['median']} ms an answer, {told[path]['answer over that of chat']['median']} of chat; "
              f"{told[path]['processor ms of an answer']['median']} ms of the router's processor", flush=True)
    return {"streams": STREAMS, "bytes of an answer": texts.pop(), "ms of a step": 20, "by path": told}


def first_tokens(cycles, small, serving):
    """One stream: a chat with tools and one whose system message holds the same text, in turns."""
    shown = "# Tools\n<tools>" + "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in TOOLS) + \
        '\n</tools>\nCall one as <tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call>'
    bodies = {"tools": {"messages": [USER], "tools": TOOLS}, "plain": {"messages": [{"role": "system", "content": shown}, USER]}}
    end = PATHS["/v1/chat/completions"][1]
    medians, tokens = {name: [] for name in bodies}, {}
    with serving as router:
        connection = http.client.HTTPConnection(router.http, timeout=60)
        for name, body in bodies.items():
            connection.request("POST", "/v1/chat/completions", json.dumps({**body, "model": "mock", "max_tokens": 1}))
            tokens[name] = json.loads(connection.getresponse().read())["usage"]["prompt_tokens"]
        if abs(tokens["tools"] - tokens["plain"]) > 2:
            raise SystemExit(f"prompts of {tokens}: void")
        for cycle in range(cycles):
            firsts = {name: [] for name in bodies}
            for i in range(20 if small else 100):
                for name, body in bodies.items():
                    asked = {"role": "user", "content": f"{QUESTION} Its number is {cycle * 1000 + i}."}
                    row = answer(connection, "/v1/chat/completions",
                                 {**body, "messages": [*body["messages"][:-1], asked], "model": "mock", "stream": True,
                                  "max_tokens": 2, "temperature": 0, "ignore_eos": True}, end)
                    firsts[name].append(row[0])
            for name in bodies:
                medians[name].append(statistics.median(firsts[name]))
    ratio = spread([a / b for a, b in zip(medians["tools"], medians["plain"])])
    print(f"first token: {statistics.median(medians['tools']):.2f} ms with tools, {statistics.median(medians['plain']):.2f} plain, "
          f"{ratio['median']} of it", flush=True)
    return {"tools": len(TOOLS), "prompt tokens": tokens, "ms": {name: spread(rows) for name, rows in medians.items()},
            "with tools over plain": ratio}


def run(cycles, small, model):
    return {"64 streams": agents_apis(cycles, small),
            "first token, a worker that answers in 2 ms": first_tokens(cycles, small, served(1, decode_ms=2)),
            "first token, Gemma 3 270M": first_tokens(cycles, small, real(model))}
