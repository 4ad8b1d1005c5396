"""What control_plane_test.py installs on a control plane, as the node agent runs it without one: pods with addresses of
their own, probes, hooks, grace, Services and DNS; and what the agent does with pods that fail, wait or will not end."""
import json
import pathlib
import signal
import time

import pytest

import manifests as m
import plane
from harness import expect, wait_until
from plane import Agent, Load, ready_workers

pytestmark = pytest.mark.usefixtures("agent_program")
WORKERS, ROUTERS = ("prod/quire-worker-0", "prod/quire-worker-1"), ("prod/quire-router-0", "prod/quire-router-1")


def written(folder, objects):
    path = folder / "manifests.json"
    path.write_text("\n---\n".join(json.dumps(o) for o in objects))
    return f"--manifests={path}"


def exit_codes(pod):
    return [s["state"]["terminated"]["exitCode"] for s in pod["status"]["containerStatuses"]]


def test_the_chart():
    objects = [*m.chart("-f", plane.VALUES), *plane.secrets()]
    with plane.temporary_folder() as name:
        folder = pathlib.Path(name)
        with Agent(folder, "run", written(folder, objects)) as agent:
            begin = time.monotonic()
            agent.await_ready(*WORKERS, *ROUTERS)
            print(f"     ready {time.monotonic() - begin:.1f} s after the start")
            service = next(s for s in agent.ask("/services") if s["metadata"]["name"] == "quire-router")
            where = (service["spec"]["clusterIP"], 8000, plane.key_of(objects, "quire-api-keys"))
            await_workers(agent)
            load = Load(where)
            crash(agent, load, WORKERS[0])
            leave(agent, load, WORKERS[1])
            helm_test(agent)
            end(agent, load)
            expect(agent.stop() == 0, agent.process.output())


def await_workers(agent):
    """Each router has found both workers, by its own watch."""
    addresses = [agent.pods()[name]["pod"]["status"]["podIP"] for name in ROUTERS]
    wait_until(lambda: all(ready_workers((a, 9090)) == 2 for a in addresses), "routers have both workers")


def crash(agent, load, worker):
    """kill -9 in mid-stream: it is started again, and no answer shows it."""
    def act():
        agent.kill(worker)
        wait_until(lambda: restarts(agent, worker) == 1, "a restart is counted")
        agent.await_ready(worker)
        await_workers(agent)
    _, served, gap = load.during(act)
    print(f"     kill -9 of a worker: {served} answers, longest gap {gap:.2f} s")


def restarts(agent, pod):
    return agent.pods()[pod]["pod"]["status"]["containerStatuses"][0]["restartCount"]


def leave(agent, load, worker):
    """A pod that is deleted: its hook, its drain, and it ends by itself within its grace."""
    def act():
        gone = agent.ask("/delete", pod=worker)
        expect(exit_codes(gone["pod"]) == [0], agent.told(worker))
        expect(gone["seconds"] < gone["pod"]["spec"]["terminationGracePeriodSeconds"], gone["seconds"])
        agent.ask("/start", pod=worker)
        agent.await_ready(worker)
        await_workers(agent)
        return gone["seconds"]
    seconds, served, gap = load.during(act)
    print(f"     a deleted worker: gone after {seconds:.1f} s, {served} answers, longest gap {gap:.2f} s")


def helm_test(agent):
    agent.ask("/start", pod="prod/quire-test")
    wait_until(lambda: agent.pods()["prod/quire-test"]["pod"]["status"]["phase"] in ("Succeeded", "Failed"), "it ends",
               60, lambda: agent.told("prod/quire-test"))
    expect(exit_codes(agent.pods()["prod/quire-test"]["pod"]) == [0], agent.told("prod/quire-test"))


def end(agent, load):
    """A router leaves: what runs on it is finished, new requests go to the other one, and it is gone within its grace."""
    gone, served, _ = load.during(lambda: agent.ask("/delete", pod=ROUTERS[0]))
    expect(exit_codes(gone["pod"]) == [0] and gone["seconds"] < 75, agent.told(ROUTERS[0]))
    print(f"     a deleted router: gone after {gone['seconds']:.1f} s, {served} answers")


def shell(name, script, **more):
    container = {"name": "main", "image": "registry.example.com/machine:1", "command": ["/bin/sh", "-c", script],
                 **more.pop("container", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "prod", "labels": {"app": name}},
            "spec": {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 2, "containers": [container],
                     **more}}


FILES = """set -x
test "$(cat /files/greeting)" = hello && test "$(cat /secret/word)" = xyzzy && test "$POD_IP" = "$(hostname -I | tr -d ' ')" &&
test "$WORD" = xyzzy && test "$BOTH" = 'xyzzy and $(NOBODY)' && test "$MEBIBYTES" = 64 && test "$MY_NAME" = files &&
test "$(id -u):$(id -g)" = 1000:1001 && test "$(cat /shared/from-init)" = here && ! touch /etc/x 2>/dev/null &&
grep -q '^NoNewPrivs:.*1' /proc/self/status && test "$(cat /labels)" = 'app="files"' && test "$$$$" = 1 &&
test "$(stat -c %a:%g /labels)" = 440:1002 && test "$NOTE" = 'in plain text'
"""


def files():
    pod = shell("files", FILES, restartPolicy="Never", container={
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "MY_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "words", "key": "word"}}},
                {"name": "NOT_THERE", "valueFrom": {"secretKeyRef": {"name": "words", "key": "no", "optional": True}}},
                {"name": "NOTE", "valueFrom": {"secretKeyRef": {"name": "notes", "key": "note"}}},
                {"name": "MEBIBYTES", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
                {"name": "BOTH", "value": "$(WORD) and $(NOBODY)"}],
        "resources": {"limits": {"memory": "64Mi"}},
        "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
        "volumeMounts": [{"name": "config", "mountPath": "/files"}, {"name": "secret", "mountPath": "/secret"},
                         {"name": "shared", "mountPath": "/shared"},
                         {"name": "about", "mountPath": "/labels", "subPath": "labels"}]})
    pod["spec"] |= {
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 1002},
        "initContainers": [{"name": "first", "image": "machine", "command": ["/bin/sh", "-c", "echo here > /shared/from-init"],
                            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
        "volumes": [{"name": "config", "configMap": {"name": "settings"}}, {"name": "shared", "emptyDir": {}},
                    {"name": "secret", "secret": {"secretName": "words", "defaultMode": 0o400}},
                    {"name": "about", "downwardAPI": {"defaultMode": 0o440, "items": [
                        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}
    return pod


def every_second(**action):
    return {**action, "periodSeconds": 1, "failureThreshold": 1}


def odd_pods():
    """Pods whose shells say what the agent did with them."""
    exec_ = lambda words: {"exec": {"command": ["/bin/sh", "-c", words]}}  # noqa: E731
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"greeting": "hello"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "words"}, "data": {"word": "eHl6enk="}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "notes"}, "stringData": {"note": "in plain text"}},
        files(),
        # Ends by its hook's word; without the hook it would not.
        shell("hooked", "while ! test -e /hook/told; do sleep 0.05; done; exit 0", terminationGracePeriodSeconds=30,
              volumes=[{"name": "hook", "emptyDir": {}}], container={
                  "lifecycle": {"preStop": exec_("touch /hook/told")},
                  "volumeMounts": [{"name": "hook", "mountPath": "/hook"}]}),
        # Its hook never ends by itself, and what it started holds its output.
        shell("stuck-hook", "trap 'exit 0' TERM; while :; do sleep 0.05; done", container={
            "lifecycle": {"preStop": exec_("sleep 600 & sleep 600")}}),
        shell("rested", "trap 'exit 0' TERM; while :; do sleep 0.05; done", container={
            "lifecycle": {"postStart": {"sleep": {"seconds": 1}}, "preStop": {"sleep": {"seconds": 1}}},
            "readinessProbe": every_second(**exec_("true"))}),
        shell("init-fails", "true", initContainers=[{"name": "first", "image": "machine", "command": ["/bin/sh", "-c", "exit 4"]}]),
        shell("init-lasts", "true", initContainers=[{
            "name": "first", "image": "machine", "command": ["/bin/sh", "-c", "trap 'exit 5' TERM; while :; do sleep 0.05; done"]}]),
        shell("half-dropped", "true", container={"securityContext": {"capabilities": {"drop": ["NET_RAW"]}}}),
        shell("deaf", "trap '' TERM; while :; do sleep 0.05; done"),
        # Its startup probe holds the others back; then its liveness probe ends it.
        shell("sick", "sleep 1; touch /probe/up; sleep 2; touch /probe/sick; while :; do sleep 0.05; done",
              volumes=[{"name": "p", "emptyDir": {}}], container={
                  "startupProbe": {**exec_("test -e /probe/up"), "periodSeconds": 1, "failureThreshold": 20},
                  "livenessProbe": every_second(**exec_("test ! -e /probe/sick")),
                  "volumeMounts": [{"name": "p", "mountPath": "/probe"}]}),
        shell("never-up", "while :; do sleep 0.05; done", container={
            "startupProbe": every_second(tcpSocket={"port": 7}), "readinessProbe": every_second(tcpSocket={"port": 7})}),
        shell("crashing", "exit 3"),
        shell("waiting", "true", volumes=[{"name": "none", "secret": {"secretName": "not-there"}}]),
        shell("no-image", "true", container={"image": "registry.example.com/nobody:1"}),
        {**shell("root-refused", "true"), "spec": {**shell("x", "true")["spec"], "securityContext": {"runAsNonRoot": True}}},
    ]


def test_pods_that_are_odd():
    if pathlib.Path("/proc/self/uid_map").read_text().split()[2] == "1":
        pytest.skip("users cannot be switched: run as root")
    with plane.temporary_folder() as name:
        folder = pathlib.Path(name)
        with Agent(folder, "run", written(folder, odd_pods())) as agent:
            def status(pod):
                return agent.pods()[f"prod/{pod}"]["pod"]["status"]

            def container(pod):
                return status(pod)["containerStatuses"][0]

            def becomes(pod, what, condition):
                wait_until(lambda: condition(container(pod)), f"{pod} {what}", 30,
                           lambda: f"{status(pod)}\n{agent.told('prod/' + pod)}")

            becomes("files", "ends", lambda c: "terminated" in c["state"])
            expect(status("files")["phase"] == "Succeeded", agent.told("prod/files"))
            becomes("crashing", "waits before its next start", lambda c: c["restartCount"] == 1 and
                    c["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff" and
                    c["lastState"]["terminated"]["exitCode"] == 3)
            becomes("sick", "is started again", lambda c: c["restartCount"] == 1)
            becomes("never-up", "is started again", lambda c: c["restartCount"] >= 1 and not c["ready"])
            expect("not-there" in status("waiting")["message"], status("waiting"))
            becomes("rested", "is ready when its hook is over", lambda c: c["ready"] and c["restartCount"] == 0)

            def first(pod):
                return status(pod)["initContainerStatuses"][0]
            wait_until(lambda: first("init-fails")["restartCount"] == 1 and "waiting" in first("init-fails")["state"] and
                       first("init-fails")["lastState"]["terminated"]["exitCode"] == 4, "its init container waits", 30,
                       lambda: str(status("init-fails")))
            wait_until(lambda: "running" in first("init-lasts")["state"], "an init container runs", 30)
            for pod, words in (("no-image", "no root file system"), ("root-refused", "runAsNonRoot"), ("half-dropped", "ALL")):
                becomes(pod, "says why", lambda c: words in c["state"].get("waiting", {}).get("message", ""))
            gone = agent.ask("/delete", pod="prod/hooked")
            expect(exit_codes(gone["pod"]) == [0] and gone["seconds"] < 20, gone)
            gone = agent.ask("/delete", pod="prod/deaf")
            expect(exit_codes(gone["pod"]) == [128 + signal.SIGKILL] and gone["seconds"] >= 2, gone)
            gone = agent.ask("/delete", pod="prod/stuck-hook")
            expect(exit_codes(gone["pod"]) == [0] and 2 <= gone["seconds"] < 30, gone)
            gone = agent.ask("/delete", pod="prod/init-lasts")["pod"]["status"]["initContainerStatuses"][0]
            expect(gone["state"]["terminated"]["exitCode"] == 5, gone)
            for pod in ("waiting", "no-image", "crashing", "rested", "init-fails"):
                agent.ask("/delete", pod=f"prod/{pod}")
            expect(agent.stop() == 0, agent.process.output())
            expect(not list((folder / "pods").iterdir()), "folders of pods that are gone")
