"""The router's page in a real browser: chat with streaming, and a fleet of which a worker dies under streams.

Screenshots of what was tested are left in .cache/page/, light and dark.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import tempfile
import threading
import time

import pytest

from browser import Browser
from harness import BIN, DEMO, ROOT, Process, Server, expect, free_port

pytestmark = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium, which ./dev test installs")
PICTURES = ROOT / ".cache" / "page"


def picture(browser, name):
    PICTURES.mkdir(parents=True, exist_ok=True)
    for dark in (False, True):
        browser.dark(dark)
        browser.screenshot(PICTURES / f"{name}-{'dark' if dark else 'light'}.png")
    browser.dark(False)


def count(selector):
    return f"document.querySelectorAll({json.dumps(selector)}).length"


def test_the_page_is_small_and_keeps_to_itself():
    with Server() as server:
        size = 0
        for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript"),
                           ("/chat.js", "text/javascript"), ("/markdown.js", "text/javascript")):
            connection = server.connection()
            connection.request("GET", path)
            answer = connection.getresponse()
            size += len(answer.read())
            policy = answer.getheader("Content-Security-Policy")
            expect(answer.status == 200 and answer.getheader("Content-Type").startswith(kind), (path, answer.status))
            expect("default-src 'none'" in policy and "unsafe" not in policy and "*" not in policy, policy)
            expect(answer.getheader("X-Content-Type-Options") == "nosniff", path)
        expect(size < 48 << 10, f"{size} bytes")
        with Browser() as browser:
            browser.open(f"http://127.0.0.1:{server.port}/")
            browser.until("document.getElementById('model').value === 'demo'", "the model is listed")
            browser.until(count(".worker .badge.good") + " === 1", "the worker is shown")
            ours = f"http://127.0.0.1:{server.port}/"
            strange = [u for u in browser.requests if not u.startswith((ours, "data:"))]
            expect(not strange, strange)
            expect(not browser.problems, browser.problems)
        expect(server.stop() == 0, server.process.output())


def test_an_answer_streams_in_and_markup_stays_text():
    with Server() as server, Browser() as browser:
        browser.size(1280, 800)
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.until("!document.getElementById('model').disabled", "the model is listed")
        browser.type("#prompt", "<b>Once</b> upon a time <img src=x onerror=alert(1)>")
        browser.press_enter()
        browser.until("document.querySelector('.assistant .meta')?.textContent.includes('tokens')", "the answer ends")
        expect(browser.value("document.querySelector('.user .text').textContent").startswith("<b>Once</b>"), "as typed")
        expect(browser.value(count(".message b, .message img")) == 0, "no element of it")
        text = browser.value("document.querySelector('.assistant .text').textContent")
        meta = browser.value("document.querySelector('.assistant .meta').textContent")
        expect(len(text) > 10 and re.match(r"\d+ tokens · first after \d+ ms(?: · [\d.]+ tokens/s)?$", meta.split(" · ended")[0]), (text, meta))
        # The second turn sends the first along, whose tokens the cache has.
        browser.value("document.getElementById('tokens').value = 6")
        browser.type("#prompt", "And then?")
        browser.click("#send")
        browser.until("document.querySelectorAll('.assistant .meta')[1]?.textContent.includes('tokens')", "again")
        meta = browser.value("document.querySelectorAll('.assistant .meta')[1].textContent")
        # Tokens that come at one moment have no speed.
        told = re.fullmatch(r"6 tokens · first after \d+ ms · (?:[\d.]+ tokens/s · )?(\d+) of (\d+) prompt tokens from the cache "
                            r"· ended: length", meta)
        expect(told and 0 < int(told[1]) < int(told[2]), meta)
        # A long one is stopped, and nothing of it runs on. It may be over before the page stops it: then there is another.
        browser.value("document.getElementById('tokens').value = 800")
        for turn in range(2, 12):
            browser.value(f"""new MutationObserver((_, watching) => {{
                if (!(document.querySelectorAll('.assistant .text')[{turn}]?.textContent.length > 5)) return;
                watching.disconnect();
                document.getElementById('send').click();
            }}).observe(document.getElementById('messages'), {{ childList: true, subtree: true }}) || true""")
            browser.type("#prompt", "A very long story")
            asked = time.monotonic()
            browser.click("#send")
            browser.until(f"document.querySelectorAll('.assistant .meta')[{turn}]?.textContent", "it is stopped as it begins")
            meta = browser.value(f"document.querySelectorAll('.assistant .meta')[{turn}].textContent")
            if meta.endswith("ended: stopped"):
                break
            # A click that comes after the end sends nothing, as the prompt is empty.
        told = re.fullmatch(r"(?:\d+ tokens · )?first after (\d+) ms · (?:.* · )?ended: stopped", meta)
        expect(told and int(told[1]) <= (time.monotonic() - asked) * 1000, meta)
        box = "document.getElementById('messages')"
        expect(browser.value(f"{box}.scrollHeight - {box}.scrollTop - {box}.clientHeight") < 2, "its last line is in sight")
        server.wait_until(lambda: "quire_router_live_requests 0" in server.get("/metrics")[1], "nothing runs on")
        picture(browser, "chat")
        expect(not browser.problems, browser.problems)


SAMPLE = """# Head

Some **bold**, *soft* and `code` with <b>markup</b>, a [link](https://example.com/x) and [no link](javascript:alert(1)).

- one
- two
  more

1. first

> quoted

| a | b |
|---|---|
| 1 | 2 |

```python
def f(x):  # a comment
    return "<i>" + str(12)
```
end"""


def test_markdown_becomes_elements_and_never_markup():
    with Server() as server, Browser() as browser:
        browser.open(f"http://127.0.0.1:{server.port}/")
        whole = browser.value(f"""(() => {{
            const box = document.createElement("div");
            showMarkdown(box, {json.dumps(SAMPLE)});
            return box.outerHTML;
        }})()""")
        for piece in ("<h3>Head</h3>", "<strong>bold</strong>", "<em>soft</em>", "<code>code</code>", "&lt;b&gt;markup&lt;/b&gt;",
                      '<a href="https://example.com/x" title="https://example.com/x" rel="noopener noreferrer" target="_blank">link</a>',
                      "[no link](javascript:alert(1))", "<ul><li>one</li><li>two more</li></ul>", "<ol><li>first</li></ol>".replace("<ol>", '<ol start="1">'),
                      "<blockquote>quoted</blockquote>", "<th>a</th>", "<td>2</td>", '<span class="code-word">def</span>',
                      '<span class="code-comment"># a comment</span>', '<span class="code-string">"&lt;i&gt;"</span>',
                      '<span class="code-number">12</span>', "<p>end</p>"):
            expect(piece in whole, (piece, whole))
        # Cut anywhere while it comes, it ends the same; blocks that are whole are not made again.
        same = browser.value(f"""(() => {{
            const text = {json.dumps(SAMPLE)}, box = document.createElement("div");
            let first;
            for (let i = 1; i <= text.length; ++i) {{
                showMarkdown(box, text.slice(0, i));
                if (i === 40) first = box.firstChild;
            }}
            return [box.outerHTML, box.firstChild === first];
        }})()""")
        expect(same == [whole, True], same)
        # 8 long answers that come at once keep no turn of the page busy for long.
        longest = browser.value(f"""(() => {{
            const text = {json.dumps(SAMPLE + chr(10) * 2)}.repeat(20), boxes = [...Array(8)].map(() => document.createElement("div"));
            let longest = 0;
            for (let i = 0; i < text.length; i += 50) {{
                const begin = performance.now();
                for (const box of boxes) showMarkdown(box, text.slice(0, i));
                longest = Math.max(longest, performance.now() - begin);
            }}
            return longest;
        }})()""")
        print(f"longest turn {longest:.1f} ms")
        expect(not browser.problems, browser.problems)


def reload(browser):
    browser.value("window.isOld = true")
    browser.call("Page.reload")
    browser.until("!window.isOld && document.readyState === 'complete'", "the page is loaded again")


def test_conversations_are_kept_edited_and_asked_again():
    with Server() as server, Browser() as browser:
        browser.size(1280, 800)
        url = f"http://127.0.0.1:{server.port}/"
        browser.open(url)
        browser.until("!document.getElementById('model').disabled", "the model is listed")
        expect("a chat with a language model" in browser.value("document.querySelector('.welcome').textContent"), "it says what it is")
        picture(browser, "first")

        def ask(text, turn):
            browser.type("#prompt", text)
            browser.press_enter()
            browser.until(f"document.querySelectorAll('.assistant .meta')[{turn}]?.textContent.includes('tokens')", "an answer")

        browser.value("for (const [n, v] of [['tokens', '12'], ['temperature', '0'], ['system', 'Be brief.']]) {"
                      "document.getElementById(n).value = v; document.getElementById(n).dispatchEvent(new Event('change')) }")
        ask("Hello", 0)
        ask("And then?", 1)
        said = browser.value("[...document.querySelectorAll('.text')].map(t => t.textContent)")
        # A reload forgets neither the talk nor the settings, and the key is not among them.
        reload(browser)
        browser.until("!document.getElementById('model').disabled", "the model is listed")
        expect(browser.value("[...document.querySelectorAll('.text')].map(t => t.textContent)") == said, said)
        expect(browser.value("[document.getElementById('system').value, document.getElementById('tokens').value]") == ["Be brief.", "12"], "settings")
        expect(browser.value("Object.keys(localStorage).sort().join()") == "quire-conversations,quire-settings", "no key is kept")
        # The last answer again: with temperature 0 it is the same; then the first question anew.
        browser.value("document.querySelectorAll('.assistant .actions button')[3].click()")
        browser.until("!chat.running && chat.now.messages.length === 4", "asked again")
        expect(browser.value("[...document.querySelectorAll('.text')].map(t => t.textContent)") == said, said)
        browser.value("document.querySelectorAll('.user .actions button')[1].click()")
        expect(browser.value(count(".message")) == 0 and browser.value("document.getElementById('prompt').value") == "Hello", "edited")
        browser.value("document.getElementById('prompt').value = ''")
        ask("Hello you", 0)
        browser.click("#new")
        browser.until(count(".welcome") + " === 1", "a new one")
        ask("Another", 0)
        titles = "[...document.querySelectorAll('#conversations option')].map(o => o.textContent)"
        expect(browser.value(titles) == ["Another", "Hello"], browser.value(titles))
        browser.value("const s = document.getElementById('conversations'); s.value = '1'; s.dispatchEvent(new Event('change'))")
        expect(browser.value("document.querySelector('.user .text').textContent") == "Hello you", "the other talk")
        browser.click("#clear")
        browser.until(f"JSON.stringify({titles}) === JSON.stringify(['New chat', 'Another'])", "one is deleted")
        # What another page of this origin may have left there does no harm.
        browser.value("localStorage.setItem('quire-conversations', '[{\"title\": 1}, null, 7]')")
        reload(browser)
        browser.until(count(".welcome") + " === 1", "it begins anew")
        expect(not browser.problems, browser.problems)


def test_a_model_that_does_not_chat_says_so_on_the_page(folder):
    model = folder / "base"
    shutil.copytree(DEMO, model)
    (model / "chat_template.jinja").unlink()
    config = json.loads((model / "tokenizer_config.json").read_text())
    config.pop("chat_template", None)
    (model / "tokenizer_config.json").write_text(json.dumps(config))
    with Server(model=model) as server, Browser() as browser:
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.until("!document.getElementById('problem').hidden", "it is said")
        text = browser.value("document.getElementById('problem').textContent")
        expect("base: the model has no chat template" in text and "--chat-template" in text, text)


def test_streams_are_seen_to_move_when_their_worker_dies():
    with Server("--workers=3", "--max-num-seqs=16") as server, Browser() as browser:
        browser.size(1280, 800)
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.until(count(".worker .badge.good") + " === 3", "three workers are ready")
        browser.type("#prompt", "Tell me of the fleet")
        browser.press_enter()
        ended = []

        def ask(i):
            events = [e for e in server.stream("/v1/completions", {
                "model": "demo", "prompt": f"Story number {i}", "max_tokens": 1900, "ignore_eos": True})]
            ended.append(events[-1])

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(24)]
        for thread in threads:
            thread.start()
        busy = "[...document.querySelectorAll('.worker')].filter(w => w.querySelector('.stream')).length >= 2"
        browser.until(busy, "streams are shown at several workers")
        victims = server.children("quire-worker")
        fullest = browser.value("[...document.querySelectorAll('.worker')].sort((a, b) => b.querySelectorAll('.stream')"
                                ".length - a.querySelectorAll('.stream').length)[0].querySelector('.name').firstChild.data")
        os.kill(worker_at(victims, int(fullest.rsplit(":", 1)[1])), signal.SIGKILL)
        browser.until(count(".worker .stream.moved") + " > 0", "streams are shown where they moved to")
        browser.until("document.getElementById('events').textContent.includes('went on at')", "and told of")
        browser.until("document.getAnimations().length === 0", "the dots have arrived")
        picture(browser, "fleet")
        browser.size(420, 900)
        picture(browser, "narrow")
        browser.size(1280, 800)
        for thread in threads:
            thread.join()
        expect(ended == ["[DONE]"] * 24, ended)
        browser.until(count(".worker .badge.good") + " === 3", "the dead one is back")
        browser.until(count(".stream:not(.key)") + " === 0", "the streams are gone with their ends")
        expect(not browser.problems, browser.problems)


def worker_at(processes, port):
    """The one of these processes that listens on the port."""
    wanted = f":{port:04X} "
    inodes = {line.split()[9] for table in ("tcp", "tcp6")
              for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]
              if line.split()[3] == "0A" and wanted in line.split()[1] + " "}
    for pid in processes:
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.readlink(fd).strip("socket:[]") in inodes:
                    return pid
            except OSError:
                pass
    raise AssertionError(f"no worker listens on {port}")


def test_with_keys_the_page_is_open_and_its_data_is_not():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "token").write_text("the-operators-token\n")
        (folder / "salt").write_text("a secret of at least sixteen bytes\n")
        with Server("--api-key=a-clients-key-0123", f"--salt-key-file={folder / 'salt'}", f"--admin-port={free_port()}",
                    f"--admin-token-file={folder / 'token'}") as server, Browser() as browser:
            status, _ = server.get("/fleet")
            expect(status == 401, status)
            browser.open(f"http://127.0.0.1:{server.port}/")
            browser.until("!document.getElementById('operator').hidden", "the token is asked for")
            expect(browser.value(count(".worker")) == 0 and browser.value("document.getElementById('model').disabled"),
                   "nothing is shown to a stranger")
            # A client's key is no operator's.
            browser.type("#token", "a-clients-key-0123")
            browser.click("#operator button")
            browser.until("!document.getElementById('operator').hidden", "still")
            browser.value("document.getElementById('token').value = ''")
            browser.type("#token", "the-operators-token")
            browser.click("#operator button")
            browser.until(count(".worker .badge.good") + " === 1", "the fleet is shown to an operator")
            browser.value("document.getElementById('key').value = 'a-clients-key-0123';"
                          "document.getElementById('key').dispatchEvent(new Event('change'))")
            browser.until("document.getElementById('model').value === 'demo'", "the model is shown to a client")
            browser.type("#prompt", "Hello")
            browser.press_enter()
            browser.until("document.querySelector('.assistant .meta')?.textContent.includes('tokens')", "an answer")
            refusals = [p for p in browser.problems if "401" not in p]
            expect(not refusals, refusals)


def test_off_loopback_without_a_token_the_fleet_is_nobodys():
    with Process([BIN / "quire-worker", "--model", DEMO, "--listen=127.0.0.1:0", "--http-port=0",
                  "--threads=1"]) as worker:
        address = worker.wait_for_line("ready:").split()[1]
        with Process([BIN / "quire-router", "--host=0.0.0.0", "--insecure", "--port=0", "--grpc-port=0",
                      f"--worker={address}"]) as router:
            port = int(router.wait_for_line("ready: http://").split("http://")[1].split()[0].rsplit(":", 1)[1])
            with Browser() as browser:
                browser.open(f"http://127.0.0.1:{port}/")
                browser.until("!document.getElementById('operator').hidden", "an operator is asked for")
                why = browser.value("document.getElementById('why').textContent")
                expect("--admin-token-file" in why, why)
                browser.until("document.getElementById('model').value === 'demo'", "chat is open, as --insecure says")
