"""How long a headless Chromium takes to load the router's page: the browser's own times of a fresh profile, and until the
page has listed the model and shows the worker."""
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "page"))
sys.path.insert(0, str(ROOT / "tests" / "process"))
from browser import Browser  # noqa: E402
from harness import Server  # noqa: E402

# Milliseconds since the navigation began, by the browser's clock.
TIMES = """(() => { const t = performance.getEntriesByType('navigation')[0];
const paint = performance.getEntriesByName('first-contentful-paint')[0];
return {"first byte": t.responseStart, "document ready": t.domContentLoadedEventEnd, "loaded": t.loadEventEnd,
        "first contentful paint": paint ? paint.startTime : null}; })()"""
SHOWN = ("document.getElementById('model').value === 'demo' && document.querySelectorAll('.worker .badge.good').length === 1 "
         "? performance.now() : 0")


def load(url):
    with Browser() as browser:  # a profile of its own: nothing is cached
        browser.size(1280, 800)
        browser.open(url)
        browser.until("performance.getEntriesByType('navigation')[0].loadEventEnd > 0", "the page is loaded")
        end = time.monotonic() + 60
        shown = 0
        while not shown:
            if time.monotonic() > end:
                raise SystemExit("the page shows no worker")
            shown = browser.value(SHOWN)
        times = {name: ms for name, ms in browser.value(TIMES).items() if ms is not None}
        return {**times, "model and worker shown": shown}


# A task of more than 50 ms on the page's main thread, by the browser's own definition.
WATCH = """(() => { window.long = []; new PerformanceObserver(list => list.getEntries().forEach(e => window.long.push(e.duration)))
.observe({type: 'longtask'}); return true; })()"""
STREAMS = 8


def long_tasks(server):
    """The long tasks of a page that shows an answer and the live fleet while so many answers stream."""
    body = {"model": "demo", "prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with Browser() as browser:
        browser.size(1280, 800)
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.until("!document.getElementById('model').disabled", "the model is listed")
        browser.until("performance.now() > 3000", "the page has settled")
        browser.value(WATCH)
        others = [threading.Thread(target=server.post, args=("/v1/completions", body)) for _ in range(STREAMS - 1)]
        for one in others:
            one.start()
        browser.value("document.getElementById('tokens').value = 1500")
        browser.type("#prompt", "Tell me a long story about a fox and a bear")
        browser.press_enter()
        browser.until("document.querySelector('.assistant .meta')?.textContent.includes('tokens')", "the answer ends")
        for one in others:
            one.join()
        return browser.value("window.long")


def run(cycles):
    found = {}
    with Server() as server:
        url = f"http://127.0.0.1:{server.port}/"
        load(url)  # the browser's files come from the disk once
        for _ in range(cycles):
            for name, ms in load(url).items():
                found.setdefault(name, []).append(ms)
        tasks = [long_tasks(server) for _ in range(cycles)]
        server.stop()
    return found, {"answers that stream": STREAMS, "tasks above 50 ms, by cycle": [len(one) for one in tasks],
                   "the longest, ms": round(max([0, *(ms for one in tasks for ms in one)]), 1)}
