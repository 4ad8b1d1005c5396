"""How long a headless Chromium takes to load the router's page: the browser's own times of a fresh profile, and until the
page has listed the model and shows the worker."""
import pathlib
import sys
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


def run(cycles):
    found = {}
    with Server() as server:
        url = f"http://127.0.0.1:{server.port}/"
        load(url)  # the browser's files come from the disk once
        for _ in range(cycles):
            for name, ms in load(url).items():
                found.setdefault(name, []).append(ms)
        server.stop()
    return found
