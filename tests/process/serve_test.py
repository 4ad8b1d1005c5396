"""Real processes: the command line, supervision, bad input, a worker killed in mid-stream, Ctrl-C."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import pytest

from harness import BIN, DEMO, Process, Server, expect, run, wait_until

PROMPT = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0}


def text_of(answer):
    return answer["choices"][0]["text"]


def test_serve_answers_and_stops_cleanly():
    with Server() as server:
        for path in ("/livez", "/readyz", "/health"):
            status, _ = server.get(path)
            expect(status == 200, f"{path} gave {status}")
        status, models = server.get("/v1/models")
        expect(status == 200 and json.loads(models)["data"][0]["id"] == "demo", models)
        status, answer = server.post("/v1/completions", PROMPT)
        expect(status == 200, answer)
        expect(answer["usage"]["completion_tokens"] == 24, answer)
        expect(len(text_of(answer)) > 20, answer)
        longer = {**PROMPT, "prompt": PROMPT["prompt"] * 20}
        for turn in range(2):
            status, again = server.post("/v1/completions", longer)
            expect(status == 200, again)
            cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
            expect((cached > 0) == (turn > 0) and cached < again["usage"]["prompt_tokens"], again)
        streamed = ""
        last = None
        for data in server.stream("/v1/completions", PROMPT):
            last = data
            if data != "[DONE]":
                streamed += "".join(c["text"] for c in json.loads(data)["choices"])
        expect(last == "[DONE]", f"the stream ended with {last}")
        expect(streamed == text_of(answer), f"{streamed!r} != {text_of(answer)!r}")
        status, chat = server.post("/v1/chat/completions", {
            "model": "demo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16})
        expect(status == 200 and chat["choices"][0]["message"]["role"] == "assistant", chat)
        expect(server.stop() == 0, server.process.output())
        expect("Traceback" not in server.process.output(), "")


def test_workers_keep_their_tables_in_huge_pages_unless_told_otherwise():
    for given, kept in ((None, "glibc.malloc.hugetlb=1"), ("glibc.malloc.check=0", "glibc.malloc.check=0")):
        environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
        with Server(env=environment | ({"GLIBC_TUNABLES": given} if given else {})) as server:
            [worker] = server.children("quire-worker")
            variables = pathlib.Path(f"/proc/{worker}/environ").read_text().split("\0")
            expect([v for v in variables if v.startswith("GLIBC_")] == [f"GLIBC_TUNABLES={kept}"], variables)


def test_the_same_answer_alone_and_in_a_crowd():
    with Server() as server:
        alone = [text_of(server.post("/v1/completions", {**PROMPT, "prompt": p, "seed": 5,
                                                         "temperature": 0.9})[1])
                 for p in ("Once upon a time", "The fox", "A small bird said")]
        results = {}

        def ask(i):
            prompt = ("Once upon a time", "The fox", "A small bird said")[i % 3]
            results[i] = text_of(server.post("/v1/completions", {
                **PROMPT, "prompt": prompt, "seed": 5, "temperature": 0.9})[1])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for i in range(24):
            expect(results[i] == alone[i % 3], f"{i}: {results[i]!r} != {alone[i % 3]!r}")


def test_a_killed_worker_never_ends_a_stream_silently_and_comes_back():
    with Server() as server:
        events = []
        killed = False
        for data in server.stream("/v1/completions", {**PROMPT, "max_tokens": 1500, "ignore_eos": True,
                                                        "return_token_ids": True}):
            events.append(data)
            if not killed and len(events) == 3:
                os.kill(server.children("quire-worker")[0], signal.SIGKILL)
                killed = True
        expect(killed, "the stream was too short")
        # Either the stream is carried on to its whole length, or it ends in an error: never silently.
        if events[-1] == "[DONE]":
            tokens = sum(len(c.get("token_ids") or []) for e in events[:-1] for c in json.loads(e)["choices"])
            expect(tokens == 1500, f"{tokens} of 1500 tokens came")
        else:
            expect("error" in json.loads(events[-1]), events[-1])
        server.wait_until(lambda: server.post("/v1/completions", PROMPT)[0] == 200,
                          "service after the worker's restart")
        expect(server.stop() == 0, server.process.output())


def test_a_killed_router_comes_back_on_its_port():
    with Server() as server:
        os.kill(server.children("quire-router")[0], signal.SIGKILL)
        server.wait_until(lambda: server.post("/v1/completions", PROMPT)[0] == 200,
                          "service after the router's restart")


def test_two_workers_share_the_work_and_survive_one():
    with Server("--workers=2", "--threads=1") as server:
        expect(len(server.children("quire-worker")) == 2, server.process.output())
        def all_served(when):
            def ask(i):
                status[i] = server.post("/v1/completions", {**PROMPT, "prompt": f"Story number {i}", "ignore_eos": True})[0]
            status = {}
            threads = [threading.Thread(target=ask, args=(i,)) for i in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            expect(sorted(status) == list(range(12)) and set(status.values()) == {200}, f"{when}: {status}")

        all_served("two workers")
        made = re.findall(r'^quire_worker_generated_tokens_total{engine="\d"} (\d+)$', server.get("/metrics")[1], re.M)
        expect(len(made) == 2 and all(int(count) >= 24 for count in made), f"each has a part of the work: {made}")
        os.kill(server.children("quire-worker")[0], signal.SIGKILL)
        all_served("while one is gone")  # at once, and no client asks twice


def test_one_port_shows_the_metrics_of_all():
    """Also of a worker that was killed and came back on its ports."""
    with Server("--workers=2", "--threads=1") as server:
        def series(name):
            return dict(re.findall(rf'^{name}{{(?:[^}}]*,)?engine="(\d)"[^}}]*}} (\S+)$', server.get("/metrics")[1], re.M))
        expect(sorted(series("quire_worker_steps_total")) == ["0", "1"], "both workers' series are there")
        expect(sorted(series("vllm:num_requests_running")) == ["0", "1"], "the label that they had is replaced")
        text = server.get("/metrics")[1]
        expect(text.count("# TYPE process_resident_memory_bytes gauge\n") == 1, "a family comes once")
        expect(len(re.findall(r"^process_resident_memory_bytes", text, re.M)) == 3, "of router and both workers")
        os.kill(server.children("quire-worker")[0], signal.SIGKILL)
        wait_until(lambda: len(series("quire_worker_steps_total")) == 1, "a dead worker is left out")
        wait_until(lambda: len(series("quire_worker_steps_total")) == 2, "it comes back under its number")


def test_interrupt_drains_and_a_second_one_ends_at_once():
    with Server() as server:
        stream = server.stream("/v1/completions", {**PROMPT, "max_tokens": 1800, "ignore_eos": True})
        next(stream)
        server.process.signal(signal.SIGINT)
        server.process.wait_for_line("draining")
        server.process.signal(signal.SIGINT)
        server.process.wait(limit_s=20)
        expect(not server.children("quire-worker"), "a worker outlived its parent")


def test_children_die_with_their_parent():
    with Server() as server:
        children = server.children("quire-worker") + server.children("quire-router")
        server.process.child.kill()
        server.process.wait()

        def gone():
            for pid in children:
                try:
                    if pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z":
                        return False
                except OSError:
                    pass
            return True

        server.wait_until(gone, "the children's end")


def test_a_client_that_leaves_frees_the_worker():
    with Server("--max-num-seqs=2") as server:
        for _ in range(6):
            stream = server.stream("/v1/completions", {**PROMPT, "max_tokens": 1900, "ignore_eos": True})
            next(stream)
            stream.close()
        status, answer = server.post("/v1/completions", PROMPT)
        expect(status == 200, answer)
        server.wait_until(lambda: re.search(r'^quire_worker_running_rows{engine="0"} 0$', server.get("/metrics")[1], re.M),
                          "no row runs on")
        text = server.get("/metrics")[1]
        ended = {outcome: requests_that(text, outcome) for outcome in ("cancelled", "finished")}
        expect(sum(ended.values()) == 7 and ended["cancelled"] >= 3, f"{ended}: {text}")  # a late close meets an end
        made = int(re.search(r'^quire_worker_generated_tokens_total{engine="0"} (\d+)$', text, re.M)[1])
        expect(made < 3 * 1900, f"{made} tokens were made for clients that had left")


def requests_that(text, outcome):
    """Their count in a text of metrics."""
    return int(re.search(rf'^quire_router_requests_total{{model="demo",outcome="{outcome}"}} (\d+)$', text, re.M)[1])


BAD_REQUESTS = [
    # (path, body, status, needle in the answer)
    ("/v1/completions", "{", 400, "JSON"),
    ("/v1/completions", "[" * 10000, 400, ""),
    ("/v1/completions", "[]", 400, ""),
    ("/v1/completions", {}, 400, "prompt"),
    ("/v1/completions", {**PROMPT, "model": "nobody"}, 404, "nobody"),
    ("/v1/completions", {**PROMPT, "prompt": ""}, 400, "prompt"),
    ("/v1/completions", {**PROMPT, "prompt": 7}, 400, "prompt"),
    ("/v1/completions", {**PROMPT, "prompt": [-1]}, 400, "prompt"),
    ("/v1/completions", {**PROMPT, "prompt": [10**9]}, 400, "prompt"),
    ("/v1/completions", {**PROMPT, "max_tokens": 0}, 400, "max_tokens"),
    ("/v1/completions", {**PROMPT, "max_tokens": -1}, 400, "max_tokens"),
    ("/v1/completions", {**PROMPT, "max_tokens": 10**7}, 400, "max_tokens"),
    ("/v1/completions", {**PROMPT, "max_tokens": "many"}, 400, "max_tokens"),
    ("/v1/completions", {**PROMPT, "temperature": -1}, 400, "temperature"),
    ("/v1/completions", '{"model":"demo","prompt":"x","temperature":NaN}', 400, "JSON"),
    ("/v1/completions", {**PROMPT, "top_p": 0}, 400, "top_p"),
    ("/v1/completions", {**PROMPT, "top_p": 1.5}, 400, "top_p"),
    ("/v1/completions", {**PROMPT, "top_k": -2}, 400, "top_k"),
    ("/v1/completions", {**PROMPT, "min_p": 2}, 400, "min_p"),
    ("/v1/completions", {**PROMPT, "n": 1000000}, 400, "n"),
    ("/v1/completions", {**PROMPT, "stop": ["x"] * 17}, 400, "stop"),
    ("/v1/completions", {**PROMPT, "prompt": "word " * 5000}, 400, "context"),
    ("/v1/chat/completions", {"model": "demo"}, 400, "messages"),
    ("/v1/chat/completions", {"model": "demo", "messages": []}, 400, "messages"),
    ("/v1/chat/completions", {"model": "demo", "messages": [{"role": 1}]}, 400, "messages"),
    ("/nowhere", {}, 404, ""),
]


def test_bad_requests_name_what_is_wrong_and_hurt_nobody():
    with Server() as server:
        for path, body, wanted, needle in BAD_REQUESTS:
            status, answer = server.post(path, body)
            expect(status == wanted, f"{path} {str(body)[:80]}: {status} {answer}")
            message = json.dumps(answer.get("error", {})) if isinstance(answer, dict) else str(answer)
            expect(needle in message, f"{path} {str(body)[:80]}: {message}")
        status, _ = server.post("/v1/completions", b"x" * (64 << 20))
        expect(status == 413, f"a huge body gave {status}")
        expect(server.post("/v1/completions", PROMPT)[0] == 200, "service afterwards")


def one_line(output):
    return len([line for line in output.splitlines() if line.strip()])


def test_the_command_line_refuses_in_one_line_with_its_code():
    cases = [
        ([BIN / "quire", "serve", "demo", "--prot=1"], 2, "--port"),
        ([BIN / "quire", "serve", "/nowhere/model"], 3, "/nowhere/model"),
        ([BIN / "quire", "serve", DEMO, "--workers=0"], 2, "--workers"),
        # Before any worker has loaded the model:
        ([BIN / "quire", "serve", DEMO, "--host=0.0.0.0"], 2, "--insecure"),
        ([BIN / "quire", "serve", DEMO, "--tls-cert-file=x"], 2, "--tls-key-file is missing"),
        ([BIN / "quire", "nonsense"], 2, "nonsense"),
        ([BIN / "quire", "--hepl"], 2, "did you mean --help?"),
        ([BIN / "quire-worker", "--modle=x"], 2, "--model"),
        ([BIN / "quire-worker"], 2, "--model"),
        ([BIN / "quire-worker", "--model=/nowhere"], 3, "/nowhere"),
        ([BIN / "quire-worker", f"--model={DEMO}", "--block-size=7"], 2, "--block-size"),
        ([BIN / "quire-worker", f"--model={DEMO}", "--device=cuda"], 4, "cuda"),
        ([BIN / "quire-worker", f"--model={DEMO}", "--max-num-seqs=0"], 2, "--max-num-seqs"),
        ([BIN / "quire-worker", f"--model={DEMO}", "--listen=0.0.0.0:0"], 2, "--insecure"),
        ([BIN / "quire-router", "--host=0.0.0.0", "--worker=127.0.0.1:1"], 2, "--insecure"),
        ([BIN / "quire-router", "--worker=nonsense"], 2, "--worker"),
        ([BIN / "quire-router"], 2, "--worker"),
        ([BIN / "quire", "complete", "x", "--url=http://127.0.0.1:1"], 1, "127.0.0.1:1"),
    ]
    for command, wanted, needle in cases:
        code, output = run(command)
        shown = " ".join(str(c) for c in command[:3])
        expect(code == wanted, f"{shown}: code {code}, wanted {wanted}: {output}")
        expect(needle in output, f"{shown}: {output!r} does not name {needle}")
        expect(one_line(output) == 1, f"{shown}: not one line: {output!r}")


def test_files_with_keys_are_read_before_the_model():
    """A model that cannot be loaded shows which of the two came first."""
    with tempfile.TemporaryDirectory() as folder:
        model, rubbish = pathlib.Path(folder, "model"), pathlib.Path(folder, "rubbish")
        model.mkdir()
        (model / "config.json").write_text("{}")
        rubbish.write_text("neither keys nor a certificate\n")
        serve, worker = (BIN / "quire", "serve", model), (BIN / "quire-worker", f"--model={model}")
        none = pathlib.Path(folder, "none")
        cases = [
            ((*serve,), 3, "model.safetensors"),
            ((*serve, f"--api-key-file={none}", f"--salt-key-file={rubbish}"), 2, f"--api-key-file: {none}"),
            ((*serve, f"--api-key-file={rubbish}", f"--salt-key-file={rubbish}"), 2, f"--api-key-file: {rubbish}"),
            ((*serve, "--api-key=a-key-of-this-test", f"--salt-key-file={none}"), 2, f"--salt-key-file: {none}"),
            ((*serve, f"--tls-cert-file={none}", f"--tls-key-file={none}"), 2, f"{none}"),
            ((*serve, f"--tls-cert-file={rubbish}", f"--tls-key-file={rubbish}"), 2, f"{rubbish}"),
            ((*serve, "--admin-port=0", f"--admin-token-file={none}"), 2, f"--admin-token-file: {none}"),
            ((*worker,), 3, "model.safetensors"),
            ((*worker, f"--tls-cert-file={rubbish}", f"--tls-key-file={none}", f"--tls-ca-file={rubbish}"), 2,
             f"--tls-key-file: {none}"),
            ((*worker, *(f"--tls-{what}-file={rubbish}" for what in ("cert", "key", "ca"))), 2, "--tls-cert-file"),
        ]
        for command, wanted, needle in cases:
            code, output = run(command)
            expect(code == wanted and needle in output and one_line(output) == 1, f"{command[1:]}: {code} {output}")


def test_a_link_out_of_a_model_is_refused_by_all_that_read_models():
    with tempfile.TemporaryDirectory() as folder:
        model, secret = pathlib.Path(folder, "model"), pathlib.Path(folder, "tls.key")
        shutil.copytree(DEMO, model)
        secret.write_text("{{ 'a private key' }}\n")
        (model / "chat_template.jinja").unlink(missing_ok=True)
        (model / "chat_template.jinja").symlink_to(secret)
        readers = [(BIN / "quire-worker", f"--model={model}"), (BIN / "quire", "serve", model), (BIN / "quire", "plan", model)]
        for command in readers:
            code, output = run(command)
            expect(code == 3 and "chat_template.jinja: is a link out" in output and one_line(output) == 1,
                   f"{command[1:]}: {code} {output}")
        code, output = run((BIN / "quire", "plan", model, f"--allowed-model-root={folder}"))
        expect(code == 0, f"{code} {output}")


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        code, output = run([BIN / "quire-router", "--worker=127.0.0.1:1", f"--port={port}", "--grpc-port=0"])
        expect(code == 1 and str(port) in output and "--port" in output, f"{code} {output}")
        code, output = run([BIN / "quire-worker", f"--model={DEMO}", f"--listen=127.0.0.1:{port}",
                            "--http-port=0"])
        expect(code == 1 and str(port) in output and "--listen" in output, f"{code} {output}")
        with tempfile.TemporaryDirectory() as folder:  # before a worker has loaded the model
            token = pathlib.Path(folder) / "token"
            token.write_text("operator-token-of-the-test\n")
            for flag in ("--port", "--grpc-port", "--admin-port"):
                ports = {"--port": 0, "--grpc-port": 0, flag: port}
                flags = [f"{f}={p}" for f, p in ports.items()] + [f"--admin-token-file={token}"] * (len(ports) - 2)
                code, output = run([BIN / "quire", "serve", "demo", *flags])
                told = [line for line in output.splitlines() if "QUIRE_TEST_BUILD" not in line]
                expect(code == 1 and len(told) == 1 and told[0].startswith(f"quire-router: {flag}: cannot listen on "
                                                                          f"127.0.0.1 port {port}"), f"{code} {output}")


def test_a_router_without_workers_leaves_in_order():
    """While it dials a worker that is not there: by a signal at any moment, and by a port that is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        for attempt in range(20):
            code, output = run([BIN / "quire-router", "--worker=127.0.0.1:1", f"--port={port}", "--grpc-port=0"])
            expect(code == 1 and one_line(output) == 1, f"taken port, {attempt}: {code} {output}")
        for attempt in range(20):
            with Process([BIN / "quire-router", "--worker=127.0.0.1:1", "--worker=127.0.0.1:2", "--port=0",
                          "--grpc-port=0"]) as router:
                router.wait_for_line("listening")
                router.signal(signal.SIGTERM)
                expect(router.wait() == 0, f"SIGTERM, {attempt}: {router.output()}")


@pytest.mark.parametrize("kilobytes, program", [(60_000, "quire-worker"), (300_000, "quire-worker"), (40_000, "quire-router")])
def test_memory_that_the_system_does_not_give_is_one_line(kilobytes, program):
    of = {"quire-worker": [f"--model={DEMO}"], "quire-router": ["--worker=127.0.0.1:1", "--port=0", "--grpc-port=0"]}[program]
    code, output = run(["bash", "-c", f'ulimit -v {kilobytes}; exec "$@"', "bash", BIN / program, *of])
    said = [line for line in output.splitlines() if not line.startswith("{")]
    # 3: what does not fit any more is the model's file.
    expect(code in (1, 3) and len(said) == 1 and said[0].startswith(f"{program}: ") and "ulimit" in said[0],
           f"{code} {output}")


def test_broken_model_files_are_refused_by_name():
    with tempfile.TemporaryDirectory() as folder:
        broken = pathlib.Path(folder) / "broken"
        shutil.copytree(DEMO, broken)
        weights = broken / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[:len(whole) // 2])
        code, output = run([BIN / "quire-worker", f"--model={broken}"])
        expect(code == 3 and "model.safetensors" in output, f"{code} {output}")
        weights.write_bytes(b"\xff" * 100)
        code, output = run([BIN / "quire-worker", f"--model={broken}"])
        expect(code == 3 and "model.safetensors" in output, f"{code} {output}")
        weights.write_bytes(whole)
        config = json.loads((broken / "config.json").read_text())
        (broken / "config.json").write_text(json.dumps({**config, "architectures": ["NobodyForCausalLM"],
                                                        "model_type": "nobody"}))
        code, output = run([BIN / "quire-worker", f"--model={broken}"])
        expect(code == 3 and "nobody" in output.lower(), f"{code} {output}")
        (broken / "config.json").write_text(json.dumps({**config, "hidden_size": config["hidden_size"] * 2}))
        code, output = run([BIN / "quire-worker", f"--model={broken}"])
        expect(code == 3, f"{code} {output}")


def test_a_model_file_cut_short_in_use_is_survived_or_told():
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "shrinking"
        shutil.copytree(DEMO, model)
        with Server(model=model) as server:
            os.truncate(model / "model.safetensors", 0)  # nothing of the map is read once it serves
            status, answer = server.post("/v1/completions", {**PROMPT, "model": server.model})
            expect(status == 200, f"{status} {answer}")
            expect(server.stop() == 0, server.process.output())
        shutil.copy(DEMO / "model.safetensors", model / "model.safetensors")
        with Process([BIN / "quire-worker", f"--model={model}", "--listen=127.0.0.1:0",
                      "--http-port=0"]) as worker:
            worker.wait_for_line("ready:")
            worker.signal(signal.SIGBUS)  # what reading a lost page gives, as while loading
            expect(worker.wait() == 1, f"code {worker.child.returncode}")
            expect(str(model) in worker.lines[-1], worker.output())


def test_chat_and_complete_talk_to_a_server():
    with Server() as server:
        url = f"--url=http://127.0.0.1:{server.port}"
        code, output = run([BIN / "quire", "complete", "Once upon a time", url, "--max-tokens=12",
                            "--temperature=0"])
        expect(code == 0 and len(output.strip()) > 10, f"{code} {output}")
        code, output = run([BIN / "quire", "chat", url, "--max-tokens=12"],
                           stdin=b"Hello\n/clear\nTell me a story\n/exit\n")
        expect(code == 0 and len(output.strip()) > 10, f"{code} {output}")
        worker = server.children("quire-worker")[0]
        chat = subprocess.Popen([BIN / "quire", "chat", url, "--max-tokens=40", "--seed=6"], bufsize=0,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            os.kill(worker, signal.SIGSTOP)  # so that the answer cannot end by itself
            chat.stdin.write(b"Tell me a very long story\n")
            server.wait_until(lambda: "quire_router_live_requests 1" in server.get("/metrics")[1], "it is asked")
            chat.send_signal(signal.SIGINT)  # stops the answer, not the program
            server.wait_until(lambda: requests_that(server.get("/metrics")[1], "cancelled") == 1, "it is stopped")
            os.kill(worker, signal.SIGCONT)
            finished = requests_that(server.get("/metrics")[1], "finished")
            chat.stdin.write(b"Hello\n/exit\n")
            chat.stdin.close()
            expect(len(chat.stdout.read().strip()) > 10, "the next question is answered")
            expect(chat.wait(timeout=60) == 0, f"code {chat.returncode}")
            server.wait_until(lambda: requests_that(server.get("/metrics")[1], "finished") == finished + 1, "to its end")
        finally:
            chat.kill()
            chat.wait()
