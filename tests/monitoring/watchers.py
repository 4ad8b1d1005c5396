"""A real Prometheus and Alertmanager on loopback, with the rules that we ship."""
import json
import os
import pathlib
import re
import shutil
import sys
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "process"))
sys.path.insert(0, str(ROOT / "tests" / "fault"))
from harness import Process, free_port  # noqa: E402

RULES = ROOT / "deploy" / "prometheus" / "rules.yaml"


def missing_tools():
    """What is not installed of what is needed, or None."""
    os.environ["PATH"] += f":{ROOT}/.cache/debian/usr/bin"  # where ./dev unpacks them
    for tool in ("prometheus", "promtool", "prometheus-alertmanager"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (Debian's prometheus, prometheus-alertmanager)"
    return None


class Watchers:
    """The rules as they are; `quick`: but for the time that they wait, and often scraped and judged."""

    def __init__(self, folder, targets, quick=True):
        self.folder = pathlib.Path(folder)
        scrape, judge = ("333ms", "500ms") if quick else ("15s", "15s")
        self.port, self.alert_port = free_port(), free_port()
        jobs = "".join(f"- job_name: {job}\n  static_configs: [{{targets: {json.dumps(at)}}}]\n" for job, at in targets.items())
        (self.folder / "prometheus.yaml").write_text(
            f"global: {{scrape_interval: {scrape}, evaluation_interval: {judge}}}\n"
            f"rule_files: [{self.folder}/rules.yaml]\n"
            f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{self.alert_port}']}}]}}]}}\n"
            f"scrape_configs:\n{jobs}")
        text = RULES.read_text()
        if quick:
            text = re.sub(r"interval: 15s", f"interval: {judge}", re.sub(r"\bfor: \w+", "for: 0s", text))
        (self.folder / "rules.yaml").write_text(text)
        (self.folder / "alertmanager.yaml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
        self.processes = []

    def __enter__(self):
        self.processes.append(Process(["prometheus-alertmanager", f"--config.file={self.folder}/alertmanager.yaml",
                                       f"--storage.path={self.folder}/alerts", "--cluster.listen-address=",
                                       f"--web.listen-address=127.0.0.1:{self.alert_port}"]))
        self.processes.append(Process(["prometheus", f"--config.file={self.folder}/prometheus.yaml",
                                       f"--storage.tsdb.path={self.folder}/series",
                                       f"--web.listen-address=127.0.0.1:{self.port}"]))
        self.processes[0].wait_for_line("Listening")
        self.processes[1].wait_for_line("Server is ready")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.close()

    def ask(self, path, port=None):
        with urllib.request.urlopen(f"http://127.0.0.1:{port or self.port}{path}", timeout=30) as answer:
            return json.loads(answer.read())

    def query(self, query):
        return self.ask("/api/v1/query?" + urllib.parse.urlencode({"query": query}))["data"]["result"]

    def alerts(self):
        """Names of those that have reached Alertmanager."""
        return {alert["labels"]["alertname"] for alert in self.ask("/api/v2/alerts", self.alert_port)}
