"""Codex and Claude Code, as published, each do a small job against a scripted model: they read a file, edit it and run a command.
A worker is killed meanwhile; what they say and leave behind equals the undisturbed run.

Only in the long run: the two packages have 800 MB.
"""
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from agents_test import text, workers  # noqa: F401  (text is a fixture)
from harness import ROOT, expect
from mock_fleet import Router

PACKAGES = ("@openai/codex@0.169.0", "@anthropic-ai/claude-code@2.1.331")
FOLDER = ROOT / ".cache" / "npm-agents"


@pytest.fixture(scope="module")
def programs():
    done = FOLDER / ".complete"
    if not done.exists() or done.read_text() != " ".join(PACKAGES):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        (FOLDER / "package.json").write_text('{"private": true}')
        fetched = subprocess.run(["npm", "install", "--prefix", FOLDER, "--silent", "--no-audit", "--no-fund", *PACKAGES],
                                 capture_output=True, text=True)
        if fetched.returncode != 0:
            pytest.skip("the agents could not be fetched (no network?)")
        done.write_text(" ".join(PACKAGES))
    return FOLDER / "node_modules" / ".bin"


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def rules(steps):
    """Each step is said once the text before it came last in the prompt."""
    return json.dumps([{"when": when, "answer": answer} for when, answer in steps])


JOB = "Greet the world in greeting.txt, then run check.sh."


def codex_steps(folder):
    return [(JOB, "<think>\nI read it first.\n</think>\n\nI look at the file." + call("exec_command", cmd=f"cat {folder}/greeting.txt")),
            ("good morning nobody", call("exec_command", cmd=f"sed -i s/nobody/world/ {folder}/greeting.txt && echo edited $((6*7))")),
            ("edited 42", call("exec_command", cmd=f"sh {folder}/check.sh")),
            ("checked 43", "The file greets the world, and the check passes.")]


def claude_steps(folder):
    path = f"{folder}/greeting.txt"
    return [(JOB, "<think>\nI read it first.\n</think>\n\nI look at the file." + call("Read", file_path=path)),
            ("good morning nobody", call("Edit", file_path=path, old_string="nobody", new_string="world")),
            ("has been updated", call("Bash", command=f"sh {folder}/check.sh", description="Runs the check")),
            ("checked 43", "The file greets the world, and the check passes.")]


def codex(programs, folder, router):
    home = folder.parent / "home"
    home.joinpath("config.toml").write_text(
        'model = "mock"\nmodel_provider = "quire"\nmodel_providers.quire = { name = "Quire", '
        f'base_url = "http://{router.http}/v1", wire_api = "responses" }}\n')
    return ([programs / "codex", "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", JOB],
            {"CODEX_HOME": str(home)})


def claude(programs, folder, router):
    return ([programs / "claude", "-p", JOB, "--output-format", "stream-json", "--verbose", "--allowedTools", "Read,Edit,Bash"],
            {"ANTHROPIC_BASE_URL": f"http://{router.http}", "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": "mock",
             "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})


AGENTS = {"codex": (codex, codex_steps), "claude": (claude, claude_steps)}


def said(output):
    """The agent's own words and its tools' results, in order, of its events as JSON."""
    found = []
    for line in output.splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        item = event.get("item", {})
        if event.get("type") == "item.completed":
            found.append((item.get("type"), item.get("text") or item.get("aggregated_output")))
        for block in event.get("message", {}).get("content", []):
            found.append((block["type"], block.get("text") or block.get("thinking") or block.get("content") or block.get("input")))
    return found


@dataclasses.dataclass
class Job:
    said: list     # and what its tools answered
    left: str      # in the file
    cached: list   # the share of each prompt that came from the cache
    carry_ons: float


def do_job(agent, programs, text, place, kill):  # noqa: F811
    folder = place / "job"
    for made in (folder, place / "home"):
        made.mkdir(parents=True)
    folder.joinpath("greeting.txt").write_text("good morning nobody\n")
    folder.joinpath("check.sh").write_text(f"grep -q world {folder}/greeting.txt && echo checked $((42+1))\n")
    run, steps = AGENTS[agent]
    script = place / "rules.json"
    script.write_text(rules(steps(folder)))
    policy = "round-robin" if kill is kill_in_an_answer else "prefix-aware"
    with workers(text, script, decode_ms=12) as one, workers(text, script, decode_ms=12) as other, \
            Router(one.addresses + other.addresses, f"--routing-policy={policy}", f"--request-log={place}/log") as router:
        command, environment = run(programs, folder, router)
        child = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 text=True, env={"PATH": os.environ["PATH"], "HOME": str(place / "home"), **environment})
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            killed = pool.submit(kill, one, router)
            output, errors = child.communicate(timeout=300)
            killed.result()
        expect(child.returncode == 0, f"{agent}: {child.returncode}\n{output[-3000:]}\n{errors[-3000:]}")
        log = place / "log"
        carry_ons = router.metric("quire_router_carry_ons_total")
        router.wait_until(lambda: log.exists() and '"stop"' in log.read_text(), "the last request is in the log")
    shares = [one["cached_tokens"] / one["prompt_tokens"] for one in map(json.loads, log.read_text().splitlines())]
    return Job(said(output), folder.joinpath("greeting.txt").read_text(), shares, carry_ons)


def leave_alone(worker, router):
    pass


def kill_in_an_answer(worker, router):
    """As it answers, by what its counters said last; that may be the very end of an answer."""
    router.wait_until(lambda: (router.metric("quire_router_requests_total") or 0) >= 1 and worker.metric("mock_live_requests") > 0,
                      "it answers")
    begun = worker.metric("mock_tokens")
    router.wait_until(lambda: worker.metric("mock_tokens") > begun, "it has written something")
    worker.close()


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_does_its_job_through_a_killed_worker(agent, programs, text, tmp_path):  # noqa: F811
    undisturbed = do_job(agent, programs, text, pathlib.Path(tmp_path, "a"), leave_alone)
    expect(len(undisturbed.cached) >= 4 and min(undisturbed.cached[1:]) >= 0.9, f"cached shares: {undisturbed.cached}")
    expect(undisturbed.left == "good morning world\n", undisturbed)
    expect("check passes" in str(undisturbed.said[-1]), undisturbed)
    carry_ons = 0
    for place in "bcdef":
        disturbed = do_job(agent, programs, text, pathlib.Path(tmp_path, place), kill_in_an_answer)
        said = str(disturbed.said).replace(f"{tmp_path}/{place}", f"{tmp_path}/a")
        expect(said == str(undisturbed.said) and disturbed.left == undisturbed.left, f"{disturbed}\n---\n{undisturbed}")
        carry_ons += disturbed.carry_ons
        if carry_ons > 0:
            break
    expect(carry_ons > 0, "no worker was killed amid an answer")
