"""`quire chat` as a person uses it, at a terminal and through a pipe, and models that do not chat."""
import contextlib
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import time

import pytest

from commands_test import CLEAN, QUIRE, quire
from harness import BIN, DEMO, Failure, Process, Server, expect, wait_until


@pytest.fixture(scope="module")
def server():
    with Server() as server:
        yield server


class Terminal:
    """`quire chat` at a terminal of its own."""

    def __init__(self, folder, *args):
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 40))
        self.child = subprocess.Popen([str(a) for a in (QUIRE, *args)], stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                      env={**CLEAN, "HOME": str(folder), "TERM": "xterm", "LANG": "C.UTF-8", "XDG_STATE_HOME": str(folder)})
        os.close(slave)
        self.seen = ""

    def take(self):
        if select.select([self.master], [], [], 0.2)[0]:
            with contextlib.suppress(OSError):
                self.seen += os.read(self.master, 65536).decode(errors="replace")

    def until(self, pattern, limit_s=60):
        """What came since the last time, up to the pattern."""
        end = time.monotonic() + limit_s
        while not (found := re.search(pattern, self.seen)):
            expect(time.monotonic() < end, f"never came: {pattern!r} in {self.seen!r}")
            self.take()
        before, self.seen = self.seen[:found.end()], self.seen[found.end():]
        return before

    def takes_keys(self):
        return not termios.tcgetattr(self.master)[3] & termios.ICANON

    def keys(self, text):
        # The editor shows its prompt a moment before it takes keys one by one.
        wait_until(self.takes_keys, "keys are taken one by one")
        os.write(self.master, text.encode())

    def end(self):
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self.child.wait(timeout=60)
            os.close(self.master)
            return code
        self.take()
        raise Failure(f"did not end; shown last: {self.seen!r}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


def url_of(server):
    return f"--url=http://127.0.0.1:{server.port}"


def test_at_a_terminal_lines_are_edited_remembered_and_broken_off(server, folder):
    with Terminal(folder, "chat", url_of(server), "--max-tokens=8", "--seed=1") as talk:
        talk.until("/help lists commands")
        talk.until("> ")
        talk.keys("/systen Be kind.\x1b[D\x1b[D\x1b[H" + "\x1b[C" * 7 + "\x7fm\r")  # the wrong letter is mended by arrow keys
        talk.until("> ")
        talk.keys("/system\r")
        talk.until(r"Be kind\.\r\n")
        talk.keys("Never sent\x03")
        talk.until(r"Ctrl-D or /exit leaves")
        talk.keys("Hello\\\r")
        talk.until(r"\. ")
        talk.keys("there\r")
        talk.until(r"> $")
        talk.keys("/set\r")
        talk.until(r"max_tokens +8\r\n")
        talk.keys("/save talk.json\r".replace("talk.json", str(folder / "talk.json")))
        talk.until("2 messages saved")
        talk.keys("\x04")
        expect(talk.end() == 0, "Ctrl-D leaves")
    messages = json.loads((folder / "talk.json").read_text())["messages"]
    expect([m["role"] for m in messages] == ["system", "user", "assistant"], messages)
    expect(messages[0]["content"] == "Be kind." and messages[1]["content"] == "Hello\nthere", messages)
    history = folder / "quire" / "chat_history"
    expect(history.stat().st_mode & 0o777 == 0o600, oct(history.stat().st_mode))
    with Terminal(folder, "chat", url_of(server), "--max-tokens=4") as talk:
        talk.until("> ")
        talk.keys(f"/load {folder / 'talk.json'}\r")
        talk.until("2 messages loaded")
        talk.until("> ")
        talk.keys("\x1b[A\x1b[A\x1b[A\r")  # the third line back is that of the last time
        talk.until(r"max_tokens +4\r\n")
        talk.keys("/exit\r")
        expect(talk.end() == 0, "/exit leaves")


def test_ctrl_c_stops_an_answer_and_the_talk_goes_on(server, folder):
    with Terminal(folder, "chat", url_of(server), "--max-tokens=1900") as talk:
        talk.until("> ")
        talk.keys("A very long story\r")
        talk.until(r"story\r\n[^>]+[a-z]{2}")
        talk.child.send_signal(signal.SIGINT)
        talk.until(r"> $")
        talk.keys("/exit\r")
        expect(talk.end() == 0, "left in order")


def test_a_signal_at_the_prompt_takes_no_line_away(server, folder):
    with Terminal(folder, "chat", url_of(server)) as talk:
        talk.until("> ")
        wait_until(talk.takes_keys, "keys are taken one by one")
        talk.child.send_signal(signal.SIGINT)
        talk.keys("/exit\r")
        expect(talk.end() == 0, "left in order")


def test_a_pipe_carries_questions_and_plain_answers(server, folder):
    code, out, err = quire("chat", url_of(server), "--max-tokens=5", "--temperature=0",
                           stdin='/system Be kind.\nHello\n"""a\nb"""\n/system\n')
    lines = out.splitlines()
    expect(code == 0 and len(lines) == 3 and lines[2] == "Be kind." and "\x1b" not in out, (code, out, err))
    code, _, err = quire("chat", url_of(server), stdin="/nonsense\n")
    expect(code == 0 and err == "there is no command /nonsense; /help lists them\n", (code, err))


def base_model(folder, template=None):
    """The demo without a chat template, or with that one."""
    model = folder / "base"
    shutil.copytree(DEMO, model)
    (model / "chat_template.jinja").unlink()
    config = json.loads((model / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    if template:
        (model / "chat_template.jinja").write_text(template)
    return model


@pytest.mark.parametrize("template, mention", ((None, "has no chat template"), ("{% for %}", "chat template is not usable")))
def test_a_model_that_does_not_chat_is_said_wherever_it_is_met(folder, template, mention):
    with Server(model=base_model(folder, template)) as server:
        started = server.process.output()
        expect(mention in started and "--chat-template FILE or one of chatml, " in started, started)
        (model,) = json.loads(server.get("/v1/models")[1])["data"]
        expect(mention in model["chat_problem"] and "--chat-template" in model["chat_problem"], model)
        status, body = server.post("/v1/chat/completions", {"model": "base", "messages": [{"role": "user", "content": "x"}]})
        expect(status == 400 and mention in body["error"]["message"], body)
        code, out, err = quire("chat", url_of(server), stdin="Hello\n")
        expect(code == 2 and out == "" and mention in err and "`quire complete`" in err, (code, out, err))
        code, out, _ = quire("complete", url_of(server), "Once", "--max-tokens=4")
        expect(code == 0 and out.strip(), "completions work")


def test_a_template_by_name_or_file_makes_it_chat(folder):
    model = base_model(folder)
    for template in ("plain", folder / "own.jinja"):
        if isinstance(template, pathlib.Path):
            template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
        with Server(f"--chat-template={template}", model=model) as server:
            (entry,) = json.loads(server.get("/v1/models")[1])["data"]
            expect(entry["chat_problem"] is None, entry)
            status, body = server.post("/v1/chat/completions", {"model": "base", "max_tokens": 3, "messages": [{"role": "user", "content": "x"}]})
            expect(status == 200, body)
    (folder / "broken.jinja").write_text("{{ messages")
    for template, said in (("llama3", "llama3 needs the token <|start_header_id|>"), ("nonsense", "neither a file nor a built-in template; there are chatml, "),
                           (folder / "broken.jinja", "line 1")):
        with Process([BIN / "quire-worker", "--model", model, f"--chat-template={template}", "--listen=127.0.0.1:0", "--http-port=0"]) as worker:
            code = worker.wait()
            expect(code in (2, 3) and "--chat-template: " in worker.output() and said in worker.output(), (code, worker.output()))
