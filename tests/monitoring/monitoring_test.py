"""Dashboards, rules and the names that they use, held against a real Prometheus and Alertmanager that watch a real
router and two workers under load, while one of them dies, both freeze, and more comes than is allowed to wait."""
import asyncio
import contextlib
import hashlib
import json
import math
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request

import pytest

from fleet import Fleet
from harness import BIN, ROOT, Failure, Server, expect, run
from tier import WRITE_REFERENCE
from watchers import RULES, Watchers, missing_tools

MISSING = missing_tools()
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
KEY, POOR_KEY = "a-key-of-the-test", "a-key-of-one-request-a-minute"
REWRITE = "./dev pytest tests/monitoring -k finds_numbers --write-reference"
NAME = re.compile(r"\b(?:quire|vllm|process)[_:][a-zA-Z0-9_:]+")


def panels():
    """(dashboard, panel title, query) of every query that is drawn."""
    for path in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield path.stem, panel["title"], target["expr"]


def family(name):
    return re.sub(r"_(bucket|sum|count)$", "", name)


def names_in(text):
    """Families of the series that a query or a document names; recorded series are none."""
    return {family(n) for n in NAME.findall(re.sub(r'"[^"]*"', "", text)) if not n.startswith("quire:")}


def test_dashboards_and_operator_rules_are_what_their_scripts_write():
    for script in ("deploy/grafana/dashboards.py", "deploy/prometheus/wrap.py"):
        code, said = run([sys.executable, ROOT / script, "--check"])
        expect(code == 0, said)
        code, said = run([sys.executable, ROOT / script, "--wrong"])
        expect(code == 2, f"{script} takes a wrong argument: {said}")


def test_every_panel_says_what_it_shows():
    for path in sorted((ROOT / "deploy" / "grafana").glob("*.json")):
        panels = [p for p in json.loads(path.read_text())["panels"] if p["type"] != "row"]
        expect(panels, f"{path.name} has no panels")
        silent = [p["title"] for p in panels if not p["description"].strip()]
        expect(not silent, f"{path.name}: without a description: {silent}")


def test_the_runbook_names_routes_that_are_there():
    served = set(re.findall(r'"(/[a-z0-9/-]+)"', (ROOT / "router/http/routes.cc").read_text() + (ROOT / "router/admin/admin_routes.cc").read_text()))
    named = set(re.findall(r"(?:GET|PUT|POST) (/[a-z0-9/-]+)", (ROOT / "docs" / "runbook.md").read_text()))
    expect(named and named <= served, f"the runbook names routes that nobody serves: {sorted(named - served)}")


def test_rules_fire_on_what_they_are_for():
    for command in (["check", "rules", RULES], ["test", "rules", ROOT / "tests" / "monitoring" / "rules_test.yaml"]):
        code, said = run(["promtool", *command], limit_s=600)  # hours of rules: seconds of a processor, which may be shared
        expect(code == 0, said)


def test_every_alert_is_tested_and_has_its_page_in_the_runbook():
    alerts = re.findall(r"- alert: (\w+)\n", RULES.read_text())
    pages = re.findall(r"^## (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.M)
    expect(sorted(alerts) == sorted(pages), f"alerts and pages differ: {set(alerts) ^ set(pages)}")
    links = re.findall(r"runbook_url: docs/runbook.md#(\w+)\n", RULES.read_text())
    expect(links == [a.lower() for a in alerts], "each alert's link leads to its own page")
    tests = (ROOT / "tests" / "monitoring" / "rules_test.yaml").read_text()
    for alert in alerts:
        fires = re.search(rf"alertname: {alert}\n\s+eval_time: \w+\n\s+exp_alerts:\n\s+- exp_labels", tests)
        expect(fires, f"no test in which {alert} fires")


def test_every_limit_that_sheds_is_alerted_on():
    """Causes as the generated reference lists them; a router that leaves sheds on purpose."""
    text = (ROOT / "docs" / "reference" / "errors.md").read_text()
    section = re.search(r"## What a router refuses at a limit\n(.*?)\n## ", text, re.S)[1]
    sheds = set(re.findall(r"^\| `(\w+)` \| 503 ", section, re.M)) - {"draining"}
    alerted = set(re.search(r'refused_requests_total\{cause=~"([^"]+)"', RULES.read_text())[1].split("|"))
    expect(len(sheds) > 4 and sheds == alerted, f"shed at {sorted(sheds)}, alerted on {sorted(alerted)}")
    own = "quire_router_bodies_refused_total"  # of the one limit whose refusals are counted by themselves
    expect(own in section and own in RULES.read_text(), f"{own} is not in the reference, or not alerted on")


def test_documents_name_flags_that_exist():
    known = {"--version", "--help"}
    for program in ("quire-router", "quire-worker"):
        known |= set(re.findall(r"^\s+(--[a-z0-9-]+)", run([BIN / program, "--help"])[1], re.M))
    known |= {"--no-" + flag[2:] for flag in known}
    for name in ("runbook.md", "api-keys.md", "reference/errors.md", "how-to/tls.md", "how-to/tuning.md"):
        named = set(re.findall(r"`(--[a-z0-9-]+)", (ROOT / "docs" / name).read_text()))
        expect(named <= known, f"{name} names flags that nobody takes: {sorted(named - known)}")


async def ask(port, prompt, max_tokens=24, key=KEY):
    """One streamed request; its status, or None where the connection broke."""
    body = json.dumps({"model": "demo", "prompt": prompt, "max_tokens": max_tokens, "stream": True, "ignore_eos": True})
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                     f"Authorization: Bearer {key}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1]) if answer else None
    return None


async def load(port, stop):
    """Four clients with shared and own prompts until `stop` is set."""
    async def client(number):
        asked = 0
        while not stop.is_set():
            asked += 1
            await ask(port, "Once upon a time there was a little fox. " * 4 + f"Client {number} asks {asked}.")
    await asyncio.gather(*(client(i) for i in range(4)))


async def reaches(watchers, alert, limit_s=60):
    begin = asyncio.get_running_loop().time()
    while alert not in await asyncio.to_thread(watchers.alerts):
        if asyncio.get_running_loop().time() > begin + limit_s:
            firing = await asyncio.to_thread(watchers.query, "ALERTS")
            raise Failure(f"{alert} never reached Alertmanager; Prometheus says {[one['metric'] for one in firing]}; "
                          f"{watchers.processes[1].lines[-3:]}")
        await asyncio.sleep(0.1)
    print(f"     {alert} reached Alertmanager after {asyncio.get_running_loop().time() - begin:.1f} s "
          "(rules' own waits left out)", flush=True)


async def scraped(watchers, targets):
    """Each target a few times, so that there is a rate before the first trouble."""
    async def often():
        return [one for one in await asyncio.to_thread(watchers.query, "sum_over_time(up[1m]) >= 4")]
    end = asyncio.get_running_loop().time() + 60
    while len(await often()) < targets:
        expect(asyncio.get_running_loop().time() < end, "Prometheus does not scrape all targets")
        await asyncio.sleep(0.2)


def split(text, words):
    """Parts of a query between any of the words, but for those inside of brackets and quotes."""
    parts, depth, quoted = [""], 0, False
    for word in re.findall(r'"|[(){}\[\]]|\s+|[^\s"(){}\[\]]+', text):
        quoted ^= word == '"'
        depth += (word in "({[") - (word in ")}]")
        if word in words and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += word
    return [part.strip() for part in parts]


def sides(expression):
    """What an alert compares: there are numbers on both sides also while it does not fire. What it was an hour ago, and of certificates
    that are not there, is left out."""
    expression = expression.replace(" offset 1h", "").replace("} > 0)", "})")
    parts = [re.sub(r"^on \([a-z, ]+\) ", "", part) for part in split(expression, ("and", "or", "unless"))]
    return [side for part in parts for side in split(part, (">", "<", ">=", "<=", "==", "!="))]


def queries_return_numbers(watchers):
    substitutes = {"$__rate_interval": "5m", "$model": ".*", "$worker": ".*"}
    wrong = []
    recorded = re.findall(r"record: (\S+)", RULES.read_text())
    asked = [(f"{board}: {title}", query) for board, title, query in panels()]
    asked += [("recorded", name) for name in recorded]
    asked += [("alert", side) for expression in re.findall(r"- alert: .*\n    expr: (.*)", RULES.read_text()) for side in sides(expression)]
    for place, query in asked:
        for variable, value in substitutes.items():
            query = query.replace(variable, value)
        found = watchers.query(query)
        if found and not isinstance(found[0], dict):  # a number by itself
            found = [{"value": found, "metric": {}}]
        if not found:
            wrong.append(f"{place}: nothing for {query}")
        wrong += [f"{place}: {one['value'][1]} for {query} {one['metric']}" for one in found
                  if not math.isfinite(float(one["value"][1]))]
    expect(not wrong, "\n".join(wrong))


def labels_of(text):
    """family → its labels, in order, of a /metrics text."""
    labels = {}
    for line in text.splitlines():
        told = re.match(r"# TYPE (\S+)", line)
        if told:
            labels[told[1]] = {}
        elif not line.startswith("#"):
            name, inside = re.match(r"([^{ ]+)(?:\{(.*)\})? ", line).groups()
            of = labels[name if name in labels else family(name)]
            of.update(dict.fromkeys(l for l in re.findall(r'(\w+)="', inside or "") if l != "le"))
    return labels


def table(text):
    """Markdown of all families of a /metrics text: name, type, labels, what it says."""
    families, labels = {}, labels_of(text)
    for kind, name, words in re.findall(r"^# (HELP|TYPE) (\S+) ?(.*)$", text, re.M):
        families.setdefault(name, {})[kind] = words
    shown = {}
    for dashboard, _, query in panels():
        for name in names_in(query):
            shown.setdefault(name, set()).add(dashboard)
    ruled = names_in(RULES.read_text())
    rows = [f"| `{n}` | {families[n]['TYPE']} | {', '.join(labels[n])} | {families[n].get('HELP', '')} | "
            f"{', '.join(sorted(shown.get(n, ())) + ['alerts'] * (n in ruled)) or 'debugging'} |\n" for n in sorted(families)]
    return "| name | type | labels | what it says | shown by |\n|---|---|---|---|---|\n" + "".join(rows)


def reference(router, worker):
    return (f"# Metrics\n\nWritten by `{REWRITE}` from what the programs say.\nHistograms have "
            "`_bucket`, `_sum` and `_count`. Where a label could take any value it is bounded, and the rest counts as `other`. "
            "The last column names the dashboards of `deploy/grafana` that show a metric; `debugging` is for those that no panel shows.\n\n"
            f"## Router: `/metrics` of its port\n\n{table(router)}\n"
            "## Worker: `/metrics` of `--http-port`\n\nNames that begin with `vllm:` are vLLM's, with its types, labels and "
            f"buckets, so that what was made for\nit works here.\n\n{table(worker)}")


def names_agree(router, worker):
    """What code exports, dashboards and rules draw on, and the reference lists, are the same names."""
    if WRITE_REFERENCE:
        REFERENCE.write_text(reference(router, worker))
    expect(REFERENCE.read_text() == reference(router, worker),
           f"docs/reference/metrics.md is not what the programs say: {REWRITE}")
    exported = names_in(re.sub(r" .*", "", re.sub(r"^# TYPE ", "", router + worker, flags=re.M), flags=re.M))
    drawn = set().union(*(names_in(query) for _, _, query in panels()), names_in(RULES.read_text()))
    drawn |= {"quire_router_certificate_not_after_seconds", "quire_worker_certificate_not_after_seconds"}  # one selects both
    expect(drawn <= exported, f"drawn, and exported by nobody: {sorted(drawn - exported)}")
    documents_agree(labels_of(router) | labels_of(worker))
    made = set(re.findall(r'"(quire_(?:router|worker)_[a-z0-9_]+[a-z0-9])"', "".join(
        path.read_text() for side in ("router", "worker") for path in (ROOT / side).rglob("*.cc"))))
    missing = {name for name in made if family(name) not in exported} - {"quire_router_admin"} - of_gpus()  # a library's name
    expect(not missing, f"in the code, and not in the reference: {sorted(missing)}")


def of_gpus():
    """Exported only where a GPU is looked at through NVML, which docs/how-to/gpu.md says."""
    return set(re.findall(r'"(quire_worker_device_[a-z_]+)"', (ROOT / "worker/device/device_monitor.cc").read_text()))


def documents_agree(labels):
    """Each series that a document names is exported, with the label that it names."""
    named = re.compile(r"\b((?:quire_(?:router|worker)|vllm:)[a-z0-9_:]*[a-z0-9])(?![\w*:])(?:\{(\w+))?")
    count = 0
    for path in (path for top in ("docs", "deploy", "router", "worker", "tests") for path in (ROOT / top).rglob("*.md")):
        for name, label in named.findall(path.read_text()):
            if name in of_gpus():
                continue
            known = labels.get(name, labels.get(family(name)))
            expect(known is not None, f"{path.relative_to(ROOT)}: nobody exports {name}")
            expect(not label or label in known, f"{path.relative_to(ROOT)}: {name} has no label {label}, but {sorted(known)}")
            count += 1
    expect(count > 100, f"{count} names in documents: has the test lost its subject?")


def text_of(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return answer.read().decode()


def families_under_serve(router):
    """What the router of `quire serve` says beyond a cluster's: of models that it loads on demand."""
    with Server("--keep-alive=5m") as server:
        text = text_of(server.port)
    known = set(re.findall(r"^# TYPE (\S+)", router, re.M))
    blocks = {block.split()[2]: block for block in re.split(r"^(?=# HELP )", text, flags=re.M) if block}
    more = {name: block for name, block in blocks.items() if name.startswith("quire_router_") and name not in known}
    expect("quire_router_models_loaded" in more, sorted(more))
    return "".join(more.values())


async def troubles(fleet, watchers):
    """Kill one of two, more than may wait, freeze all that is left: each reaches Alertmanager."""
    port = fleet.router.port
    await fleet.workers[0].kill()
    await reaches(watchers, "QuireWorkerDied")
    await reaches(watchers, "QuireTargetDown")
    stop = asyncio.Event()

    async def flood():
        while not stop.is_set():
            await asyncio.gather(*(ask(port, f"Number {i} wants more.", 200) for i in range(24)))
    starving = asyncio.create_task(flood())
    await reaches(watchers, "QuireSheds")
    stop.set()
    await starving
    await asyncio.to_thread(queries_return_numbers, watchers)
    router, worker = [await asyncio.to_thread(text_of, port) for port in (port, fleet.workers[1].http_port)]
    await asyncio.to_thread(names_agree, router + await asyncio.to_thread(families_under_serve, router), worker)
    fleet.workers[1].signal(signal.SIGSTOP)
    await reaches(watchers, "QuireEngineStuck")
    await reaches(watchers, "QuireNoReadyWorker")
    firing = await asyncio.to_thread(watchers.query, 'ALERTS{alertname="QuireNoReadyWorker"}')
    expect({one["metric"].get("model") for one in firing} == {"demo"}, f"it names the model: {firing}")
    fleet.workers[1].signal(signal.SIGCONT)


async def watched(folder):
    keys = pathlib.Path(folder) / "keys.json"
    digest = {key: hashlib.sha256(key.encode()).hexdigest() for key in (KEY, POOR_KEY)}
    keys.write_text(json.dumps({"keys": [{"sha256": digest[KEY], "tenant": "acme"},
                                         {"sha256": digest[POOR_KEY], "tenant": "poor", "requests_per_minute": 1}]}))
    salt = pathlib.Path(folder) / "salt"
    salt.write_text("5" * 64)
    more_workers = pathlib.Path(folder) / "workers"
    more_workers.write_text("")
    # A source of workers, a draft model and the records have metrics of their own.
    flags = (f"--api-key-file={keys}", f"--salt-key-file={salt}", "--max-queued-requests=4",
             f"--worker-file={more_workers}", f"--request-log={folder}/requests.jsonl")
    drafts = json.dumps({"method": "draft_model", "model": "demo", "num_speculative_tokens": 1})
    of_workers = ("--max-num-seqs=8", f"--speculative-config={drafts}", "--max-waiting-requests=1", f"--request-log={folder}/attempts.jsonl")
    async with Fleet(workers=2, router_flags=flags, worker_flags=of_workers) as fleet:
        targets = {"quire-router": [f"127.0.0.1:{fleet.router.port}"],
                   "quire-worker": [f"127.0.0.1:{worker.http_port}" for worker in fleet.workers]}
        with Watchers(folder, targets) as watchers:
            stop = asyncio.Event()
            loading = asyncio.create_task(load(fleet.router.port, stop))
            told = [await ask(fleet.router.port, "A word.", 1, POOR_KEY) for _ in range(2)]
            expect(told == [200, 429], f"a tenant over its quota is told {told}")
            await scraped(watchers, 3)
            # Long enough to be under way when their worker is killed; nobody waits for their ends.
            streams = [asyncio.create_task(ask(fleet.router.port, f"{i} tells a long story.", 1800)) for i in range(12)]
            await asyncio.sleep(0.2)
            await troubles(fleet, watchers)
            stop.set()
            await loading
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)


def test_prometheus_finds_numbers_behind_every_query_and_alerts_arrive():
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(watched(folder))


def test_our_names_pass_promtool():
    async def texts():
        async with Fleet(workers=1) as fleet:
            return [await asyncio.to_thread(text_of, port) for port in (fleet.router.port, fleet.workers[0].http_port)]
    for text in asyncio.run(texts()):  # vLLM's names have a colon, which is for recorded series
        ours = "\n".join(line for line in text.splitlines() if "vllm:" not in line) + "\n"
        done = subprocess.run(["promtool", "check", "metrics"], input=ours, text=True, capture_output=True)
        expect(done.returncode == 0, done.stderr)
