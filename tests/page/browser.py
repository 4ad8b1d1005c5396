"""A headless Chromium spoken to over its debugging pipe. Standard library only."""
import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time

LIMIT_S = 60  # only ends what hangs


class Browser:
    """One page in a profile of its own; collects what the page complains of and what it fetches."""

    def __init__(self, width=1280, height=800):
        self.folder = tempfile.mkdtemp(prefix="quire-chromium-")
        down, self.write = os.pipe()  # the browser reads commands from 3 and writes answers to 4
        self.read, up = os.pipe()
        def in_child():
            a, b = os.dup(down), os.dup(up)
            os.dup2(a, 3)
            os.dup2(b, 4)
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
                   "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-background-networking",
                   "--disable-component-update", "--no-first-run", f"--user-data-dir={self.folder}",
                   f"--window-size={width},{height}", "about:blank"]
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, preexec_fn=in_child, close_fds=False,
                                      start_new_session=True)
        os.close(down)
        os.close(up)
        self.number = 0
        self.answers = {}
        self.arrived = threading.Condition()
        self.problems, self.requests = [], []
        threading.Thread(target=self._listen, daemon=True).start()
        targets = self._send("Target.getTargets")["targetInfos"]
        target = next(t for t in targets if t["type"] == "page")["targetId"]
        self.session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _listen(self):
        pending = b""
        while True:
            try:
                chunk = os.read(self.read, 1 << 16)
            except OSError:
                chunk = b""
            if not chunk:
                break
            *lines, pending = (pending + chunk).split(b"\0")
            for line in lines:
                self._take(json.loads(line))
        with self.arrived:
            self.answers[None] = "the browser has ended"
            self.arrived.notify_all()

    def _take(self, message):
        if "id" in message:
            with self.arrived:
                self.answers[message["id"]] = message
                self.arrived.notify_all()
            return
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"].get("exception", {}).get("description", str(params)))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def _send(self, method, session=None, **params):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.write, json.dumps(message).encode() + b"\0")
        with self.arrived:
            if not self.arrived.wait_for(lambda: number in self.answers or None in self.answers, LIMIT_S):
                raise RuntimeError(f"{method}: no answer")
            answer = self.answers.pop(number, None)
        if answer is None or "error" in answer:
            raise RuntimeError(f"{method}: {answer and answer['error'] or 'the browser has ended'}")
        return answer["result"]

    def call(self, method, **params):
        return self._send(method, self.session, **params)

    def open(self, url):
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'", "the page is loaded")

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression, what):
        end = time.monotonic() + LIMIT_S
        while not self.value(expression):
            if time.monotonic() > end:
                raise AssertionError(f"did not happen: {what}; {self.problems}; "
                                     f"{self.value('document.body.innerText')[-1500:]}")
            time.sleep(0.05)

    def type(self, selector, text):
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def press_enter(self):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter", windowsVirtualKeyCode=13,
                      text="\r" if kind == "keyDown" else "")

    def click(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).click()")

    def dark(self, on):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme",
                                                           "value": "dark" if on else "light"}])

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        with contextlib.suppress(Exception):
            self._send("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(timeout=10)
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        for fd in (self.write, self.read):
            with contextlib.suppress(OSError):
                os.close(fd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
