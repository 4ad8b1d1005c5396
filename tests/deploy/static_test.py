"""The manifests of deploy/ held against themselves and against what the binaries say of their flags."""
import copy
import json
import os
import pathlib
import re
import subprocess
import tempfile

import pytest

import manifests as m
import tools
from harness import Failure, expect

pytestmark = pytest.mark.usefixtures("deploy_tools")
SPARE_S = 5
# Flags that a build of today refuses, by the words with which it does; each goes when the build serves it.
PENDING = ("cuda needs the plugin of this build",)
FROM_OUTSIDE = {  # what a cluster must have before; README files name them
    "Secret": {"quire-api-keys", "quire-router-tls", "quire-worker-tls", "quire-peer-tls", "edge", "pull", "acme-keys", "acme-router",
               "acme-worker"},
    "PersistentVolumeClaim": {"quire-model", "models-of-acme", "records"},
    "ServiceAccount": set(),
}
ALL = {}
OF_KSERVE = "serving.kserve.io/inferenceservice"  # the label that KServe gives its pods


def everything():
    if not ALL:
        ALL.update(m.everything())
    return ALL.items()


def ours():
    for name, objects in everything():
        for o, spec, container in m.our_containers(objects):
            yield f"{name}: {o['kind']} {o['metadata']['name']}", o, spec, container


def test_every_flag_exists_and_its_value_is_one_of_its_choices():
    known = {"quire-router": m.known_flags("quire-router"), "quire-worker": m.known_flags("quire-worker"),
             "quire serve": m.known_flags("quire", "serve"), "quire complete": m.known_flags("quire", "complete")}
    seen = set()
    for where, _, _, container in ours():
        words = m.command_line(container)
        program = m.program_of(container)
        if program == "quire":
            program += " " + words[1]
        for name, values in m.flags_of(container).items():
            flag = name.removeprefix("no-") if name.startswith("no-") else name
            expect(flag in known[program], f"{where}: {program} has no --{flag}")
            expect(len(values) == 1 or flag in m.repeatable_flags(*program.split()), f"{where}: of {len(values)} --{flag} one counts")
            choices = known[program][flag].split("|")
            for value in values:
                free = len(choices) == 1 or choices[0].isupper()
                expect(free or value in choices or not value, f"{where}: --{flag}={value}")
            seen.add((program, flag))
    for wanted in (("quire-worker", "tensor-parallel-size"), ("quire-router", "ready-without-workers"),
                   ("quire-router", "worker-dns"), ("quire serve", "grpc-port"), ("quire complete", "url")):
        expect(wanted in seen, f"no manifest gives {wanted}: has the test lost its subject?")


def test_the_binaries_take_every_command_line_up_to_what_only_a_pod_has():
    """Each runs until it misses its files: bad ranges and contradictions are told before that."""
    done = set()
    for where, _, _, container in ours():
        words = [w.replace("{{.Name}}", "model").replace("=0.0.0.0", "=127.0.0.1").replace("=::", "=::1")
                 .replace("[::]", "[::1]") for w in m.command_line(container)]
        if m.program_of(container) not in ("quire-router", "quire-worker") or tuple(words) in done:
            continue
        done.add(tuple(words))
        with tempfile.TemporaryDirectory() as empty:
            words = [w.replace("=/etc/quire", f"={empty}").replace("=/usr/share/quire", f"={empty}") for w in words]
            if "--insecure" in words and m.program_of(container) == "quire-router":
                words.append(f"--k8s-service-account={empty}")
            words = [w for w in words if w != "--insecure"]
            ran = subprocess.run([m.PROGRAMS / m.program_of(container), *words[1:]], capture_output=True, text=True,
                                 timeout=60, env={**os.environ, "HF_HUB_OFFLINE": "1"})
        said = ran.stdout + ran.stderr
        missing = any(words in said for words in ("No such file", "no such", "cannot", "namespace", "cannot be pulled"))
        expect(ran.returncode in (1, 2, 3) and missing or any(p in said for p in PENDING), f"{where}: {said[-500:]}")
        expect("unknown" not in said and "must be" not in said, f"{where}: {said[-500:]}")
    expect(len(done) >= 10, len(done))


def test_ports_are_those_of_the_command_line():
    for where, o, _, container in ours():
        flags, ports = m.flags_of(container), {p["name"]: p["containerPort"] for p in container.get("ports", [])}
        if "listen" in flags:
            told = {"wire": int(flags["listen"][0].rsplit(":", 1)[1]), "probes": int(flags["http-port"][0])}
        elif o["kind"] == "Pod":
            told = {}
        else:
            told = {"http": int(flags["port"][0]), "grpc": int(flags["grpc-port"][0])}
            if told["grpc"] == 0:  # Knative: one port, named by its protocol
                told = {next(iter(ports)): told["http"]}
            metrics = int(flags["metrics-port"][0])
            expect(metrics not in told.values(), f"{where}: metrics name tenants, {metrics} is for clients")
            if m.program_of(container) == "quire-router":
                told["metrics"] = metrics
            scraped = o["spec"].get("annotations", {}).get("prometheus.kserve.io/port", metrics)
            expect(int(scraped) == metrics, f"{where}: {scraped} is scraped, metrics are on {metrics}")
        expect(ports == told, f"{where}: {ports} against {told}")
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if probe in container:
                port = container[probe]["httpGet"]["port"]
                expect(port in ports or port in ports.values(), f"{where}: {probe} asks at {port}")
                told_path = container[probe]["httpGet"]["path"]
                expect(told_path in ("/livez", "/readyz", "/health"), f"{where}: {told_path}")
        if o["kind"] not in ("Pod",):
            expect(container["livenessProbe"]["httpGet"]["path"] == "/livez", f"{where}: liveness is the process's")
            expect(container["readinessProbe"]["httpGet"]["path"] != "/livez", f"{where}: readiness is more")
        if m.program_of(container) == "quire-router":
            expect(container["readinessProbe"]["httpGet"]["path"] == "/readyz", where)


def test_grace_holds_hook_delay_drain_and_some_seconds_to_spare():
    checked = 0
    for where, o, spec, container in ours():
        if o["kind"] == "Pod":
            continue
        flags = m.flags_of(container)
        hook = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        delay = m.seconds(flags.get("drain-delay", ["0s"])[0])
        drain = m.seconds(flags["drain-timeout"][0])
        hard = m.seconds(flags.get("drain-hard-limit", flags["drain-timeout"])[0])
        grace = spec.get("terminationGracePeriodSeconds", 30)
        needed = hook + delay + max(drain, hard) + SPARE_S
        expect(needed <= grace, f"{where}: needs {needed} s, has {grace}")
        checked += 1
    expect(checked >= 15, checked)


def labels_match(selector, labels):
    return all(labels.get(k) == v for k, v in selector.items())


def meets_its_peers(objects, service):
    """A headless Service beside an InferenceService: its runtime's pods look for each other under that name and port."""
    name = service["spec"]["selector"][OF_KSERVE]
    looked_for = set()
    for o in m.of_kind(objects, "InferenceService"):
        for runtime in m.of_kind(objects, "ClusterServingRuntime"):
            if o["metadata"]["name"] == name and o["spec"]["predictor"].get("model", {}).get("runtime") == runtime["metadata"]["name"]:
                flags = m.flags_of(runtime["spec"]["containers"][0])
                looked_for |= {v.replace("{{.Name}}", name) for v in flags.get("peer-worker-dns", [])}
    expect(service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"], service)
    found = f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"
    expect(found in looked_for, f"nobody looks for {found}, but for {looked_for}")


def test_selectors_targets_and_named_ports_meet_something():
    for name, objects in everything():
        pods = [(o["metadata"]["name"], *m.pod_of(o)) for o in objects
                if o["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet")]
        ports_of = lambda found: {p["name"] for _, _, spec in found for c in spec["containers"] for p in c["ports"]}  # noqa: E731

        def selected(selector, why):
            found = [p for p in pods if labels_match(selector, p[1])]
            expect(len(found) == 1, f"{name}: {why} selects {[p[0] for p in found]}")
            return found

        for service in m.of_kind(objects, "Service"):
            if OF_KSERVE in service["spec"]["selector"]:
                meets_its_peers(objects, service)
                continue
            found = selected(service["spec"]["selector"], f"Service {service['metadata']['name']}")
            for port in service["spec"]["ports"]:
                expect(port["targetPort"] in ports_of(found), f"{name}: {service['metadata']['name']} {port}")
        for o in m.of_kind(objects, "PodDisruptionBudget"):
            selected(o["spec"]["selector"]["matchLabels"], "PodDisruptionBudget")
        for o in m.of_kind(objects, "NetworkPolicy"):
            if o["metadata"]["labels"]["app.kubernetes.io/component"] == "kserve":
                continue  # of pods that KServe makes: test_pods_of_kserve_are_closed
            found = selected(o["spec"]["podSelector"]["matchLabels"], "NetworkPolicy")
            for rule in o["spec"]["ingress"]:
                for port in rule["ports"]:
                    expect(port["port"] in ports_of(found), f"{name}: {o['metadata']['name']} {port}")
        for o in m.of_kind(objects, "PodMonitor"):
            found = selected(o["spec"]["selector"]["matchLabels"], "PodMonitor")
            expect(o["spec"]["podMetricsEndpoints"][0]["port"] in ports_of(found), name)
        for o in m.of_kind(objects, "ServiceMonitor"):
            services = [s for s in m.of_kind(objects, "Service")
                        if labels_match(o["spec"]["selector"]["matchLabels"], s["metadata"]["labels"])]
            expect(len(services) == 1, f"{name}: ServiceMonitor selects {len(services)} Services")
            expect(o["spec"]["endpoints"][0]["port"] in {p["name"] for p in services[0]["spec"]["ports"]}, name)
        there = {(o["kind"], o["metadata"]["name"]) for o in objects}
        for o in m.of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject"):
            target = o["spec"]["scaleTargetRef"]
            expect((target["kind"], target["name"]) in there, f"{name}: {o['kind']} scales {target}")
            scaled = [x for x in objects if (x["kind"], x["metadata"]["name"]) == (target["kind"], target["name"])]
            expect("replicas" not in scaled[0]["spec"], f"{name}: two say how many {target['name']} there are")
        services = {s["metadata"]["name"]: s["spec"]["ports"] for s in m.of_kind(objects, "Service")}
        for o in m.of_kind(objects, "HTTPRoute"):
            for rule in o["spec"]["rules"]:
                backend = rule["backendRefs"][0]
                port = next(p for p in services[backend["name"]] if p["port"] == backend["port"])
                is_grpc = "." in rule["matches"][-1]["path"]["value"].removesuffix(".js")
                expect(port["name"] == ("grpc" if is_grpc else "http"), f"{name}: {backend}")
        for o in m.of_kind(objects, "Ingress"):
            for path in o["spec"]["rules"][0]["http"]["paths"]:
                backend = path["backend"]["service"]
                expect(backend["port"]["name"] in {p["name"] for p in services[backend["name"]]}, f"{name}: {backend}")


def leads(matches, path):
    """Whether one of (type, path) leads to `path`, by the rules of Ingress and HTTPRoute."""
    return any(path == to or (kind != "Exact" and (path + "/").startswith(to.rstrip("/") + "/")) for kind, to in matches)


def test_what_is_published_is_the_api_without_metrics_and_fleet():
    """/metrics names tenants, /fleet workers and streams; probes are the cluster's own. A cluster's router has no route that
    loads or unloads models."""
    lines = (m.ROOT / "docs" / "reference" / "api.md").read_text().splitlines()
    table = "\n".join(line for line in lines if "under `quire serve` alone" not in line)
    paths = set(re.findall(r"^\| (?:GET|POST) \| `(/(?!admin/)[^`]*)` \|", table, re.M))
    inner = {"/metrics", "/fleet", "/livez", "/readyz"}
    expect(len(paths) > 15 and inner <= paths, paths)
    seen = 0
    for name, objects in everything():
        for o in m.of_kind(objects, "Ingress", "HTTPRoute"):
            if o["kind"] == "Ingress":
                matches = [(p["pathType"], p["path"]) for r in o["spec"]["rules"] for p in r["http"]["paths"]]
            else:
                matches = [(p["path"]["type"], p["path"]["value"]) for r in o["spec"]["rules"] for p in r["matches"]]
            expect({p for p in paths if leads(matches, p)} == paths - inner, (name, o["kind"], matches))
            expect(leads(matches, "/openai/v1/models") and not leads(matches, "/fleet/"), (name, matches))
            seen += 1
    expect(seen >= 2, f"only {seen} are rendered")


def test_a_gateway_has_one_kind_of_route_and_all_grpc_services_in_it():
    """A gateway accepts one of two routes of different kinds for a host name; what is served is said by the protos."""
    served = {f"/{package}.{service}" for path in (m.ROOT / "proto").rglob("*.proto") if "worker" not in path.name
              for package in re.findall(r"^package ([a-z0-9.]+);", path.read_text(), re.M)
              for service in re.findall(r"^service (\w+)", path.read_text(), re.M)}
    seen = 0
    for name, objects in everything():
        routes = m.of_kind(objects, "HTTPRoute", "GRPCRoute", "TLSRoute")
        expect(len({o["kind"] for o in routes}) <= 1, f"{name}: {[o['kind'] for o in routes]}")
        for o in routes:
            paths = {match["path"]["value"] for rule in o["spec"]["rules"] for match in rule.get("matches", [])}
            expect(served <= paths and len(served) >= 2, f"{name}: {served} in {paths}")
            seen += 1
    expect(seen > 0, "no rendering has a route")


def test_what_pods_refer_to_is_rendered_or_named_as_wanted():
    for name, objects in everything():
        there = {(o["kind"], o["metadata"]["name"]) for o in objects}
        there |= {("Secret", o["spec"]["secretName"]) for o in m.of_kind(objects, "Certificate")}
        for o in objects:
            pod = m.pod_of(o)
            if pod is None:
                continue
            spec, wanted = pod[1], []
            for volume in spec.get("volumes", []):
                if "secret" in volume:
                    wanted.append(("Secret", volume["secret"]["secretName"]))
                if "persistentVolumeClaim" in volume:
                    wanted.append(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
            if "serviceAccountName" in spec:
                wanted.append(("ServiceAccount", spec["serviceAccountName"]))
            for kind, wanted_name in wanted:
                expect((kind, wanted_name) in there or wanted_name in FROM_OUTSIDE[kind],
                       f"{name}: {o['kind']} {o['metadata']['name']} wants {kind} {wanted_name}")
            volumes = {v["name"] for v in spec.get("volumes", [])}
            for container in spec["containers"] + spec.get("initContainers", []):
                for mount in container.get("volumeMounts", []):
                    expect(mount["name"] in volumes, f"{name}: mount {mount['name']}")


def secrets_made(*args):
    """(exit code, names of the Secrets that deploy/k8s/secrets.sh prints, what it says)."""
    done = subprocess.run([m.KUSTOMIZE / "secrets.sh", *args], capture_output=True, text=True)
    return done.returncode, [o["metadata"]["name"] for o in m.documents(done.stdout)] if done.stdout else [], done.stderr


def test_certificates_tell_routers_from_workers():
    """By names and by extended key usage, whoever makes them."""
    made = subprocess.run([m.KUSTOMIZE / "secrets.sh"], capture_output=True, text=True, check=True).stdout
    roles = {"router": (["quire-router"], {"client"}), "worker": (["quire-worker"], {"server"}),
             "peer": (["quire-worker", "quire-router"], {"client", "server"})}
    for secret in m.documents(made):
        if secret["type"] == "Opaque":
            continue
        names, usages = roles[secret["metadata"]["name"].split("-")[1]]
        text = subprocess.run(["openssl", "x509", "-noout", "-ext", "subjectAltName,extendedKeyUsage"],
                              input=m.secret_data(secret)["tls.crt"], capture_output=True, check=True).stdout.decode()
        expect(re.findall(r"DNS:([\w-]+)", text) == names, text)
        expect(set(re.findall(r"TLS Web (Client|Server) Authentication", text)) == {u.capitalize() for u in usages}, text)
    seen = 0
    for name, objects in everything():
        for o in m.of_kind(objects, "Certificate"):
            if o["spec"].get("isCA"):
                continue
            role = next(r for r in roles if r in o["spec"]["secretName"].replace("router-worker", "router"))
            names, usages = roles[role]
            expect(o["spec"]["dnsNames"] == names, (name, o["spec"]))
            expect(set(o["spec"]["usages"]) == {"digital signature", *(f"{u} auth" for u in usages)}, (name, o["spec"]))
            seen += 1
    expect(seen > 3, seen)


def test_the_script_for_secrets_leaves_certificates_to_who_makes_them():
    asked_for = {o["spec"]["secretName"] for o in m.of_kind(dict(everything())["chart with default values"], "Certificate")}
    _, whole, _ = secrets_made("prod")
    expect(asked_for & set(whole), f"with cert-manager these would be two's: {asked_for} {whole}")
    expect(secrets_made("prod", "keys")[:2] == (0, ["quire-api-keys"]), secrets_made("prod", "keys"))
    for wrong in (("prod", "certs"), ("prod", "keys", "more"), ("--help",), ("Prod",)):
        code, names, said = secrets_made(*wrong)
        expect((code, names) == (2, []) and said.startswith("usage: secrets.sh"), (wrong, code, said))


def test_pods_are_restricted():
    checked = 0
    for name, objects in everything():
        for o in objects:
            pod = m.pod_of(o)
            if pod is None:
                continue
            spec = pod[1]
            for container in spec["containers"] + spec.get("initContainers", []):
                context = {**spec.get("securityContext", {}), **container["securityContext"]}
                where = f"{name}: {o['kind']} {o['metadata']['name']}"
                expect(context["runAsNonRoot"] and context["runAsUser"] > 0, where)
                expect(context["allowPrivilegeEscalation"] is False and context["readOnlyRootFilesystem"], where)
                expect(context["capabilities"] == {"drop": ["ALL"]}, where)
                expect(context["seccompProfile"] == {"type": "RuntimeDefault"}, where)
                expect("memory" in container["resources"]["limits"] and container["resources"]["requests"], where)
                checked += 1
            if o["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet"):
                expect(spec["enableServiceLinks"] is False and spec["topologySpreadConstraints"], where)
                expect(spec["nodeSelector"]["kubernetes.io/arch"] == "amd64", f"{where}: the images are for x86-64")
                token = spec["automountServiceAccountToken"]
                reads = any("worker-k8s" in m.flags_of(c) for c in spec["containers"])
                expect(token == reads, f"{where}: a token only for who asks the API server")
            if o["kind"] == "LeaderWorkerSet":
                expect(o["spec"]["leaderWorkerTemplate"]["size"] == 1, f"{where}: a worker does not span nodes")
    expect(checked >= 20, checked)


def test_pods_of_kserve_are_closed():
    """They serve whoever reaches them: each runtime has the labels by which a policy lets gateways and peers in alone."""
    ruled = 0
    for name, objects in everything():
        policies = [o["spec"] for o in m.of_kind(objects, "NetworkPolicy")]
        for o in m.of_kind(objects, "ClusterServingRuntime", "ServingRuntime"):
            labels = o["spec"]["labels"]
            closing = [p for p in policies if p["podSelector"]["matchLabels"].items() <= labels.items()]
            expect(len(closing) == 1 and "Ingress" in closing[0]["policyTypes"], f"{name}: {o['metadata']['name']}")
            expect(all(rule["from"] for rule in closing[0]["ingress"]), f"{name}: {closing}")
            ruled += 1
    expect(ruled >= 6, ruled)


def test_only_routers_reach_workers():
    for name, objects in everything():
        for o in m.of_kind(objects, "NetworkPolicy"):
            if o["metadata"]["labels"]["app.kubernetes.io/component"] != "worker":
                continue
            spec = o["spec"]
            expect(spec["policyTypes"] == ["Ingress", "Egress"], name)
            wire = [r for r in spec["ingress"] if {"port": "wire"} in r["ports"]]
            expect(len(wire) == 1 and len(wire[0]["from"]) == 1, name)
            labels = wire[0]["from"][0]["podSelector"]["matchLabels"]
            expect(labels["app.kubernetes.io/component"] == "router", name)


def test_routers_reach_workers_dns_and_the_api_server():
    """Ports without a destination lead anywhere: only the API server's do, whose addresses no manifest can know."""
    seen = 0
    for name, objects in everything():
        for o in m.of_kind(objects, "NetworkPolicy"):
            if o["metadata"]["labels"]["app.kubernetes.io/component"] != "router":
                continue
            spec, anywhere = o["spec"], set()
            expect(spec["policyTypes"] == ["Ingress", "Egress"], name)
            for rule in spec["egress"]:
                cidrs = {to["ipBlock"]["cidr"] for to in rule.get("to", []) if "ipBlock" in to}
                expect(not cidrs & {"0.0.0.0/0", "::/0"} and ("to" not in rule or rule["to"]), f"{name}: {rule}")
                if "to" not in rule:
                    anywhere |= {port["port"] for port in rule["ports"]}
            watches = any("worker-k8s" in m.flags_of(c) for w, _, c in m.our_containers(objects) if w["kind"] == "Deployment")
            named = any(port["port"] == 6443 for rule in spec["egress"] if "to" in rule for port in rule.get("ports", []))
            expect(anywhere == (set() if named or not watches else {443, 6443}), f"{name}: {anywhere} of any address")
            seen += 1
    expect(seen > 8, seen)


def test_an_overlay_names_the_api_server_as_the_readme_says():
    patches = re.search(r"```yaml\n(patches:.*?)```", (m.KUSTOMIZE / "README.md").read_text(), re.S)[1]
    with tempfile.TemporaryDirectory() as folder:
        way = os.path.relpath(os.path.realpath(m.KUSTOMIZE), os.path.realpath(folder))
        (pathlib.Path(folder) / "kustomization.yaml").write_text(f"resources: [{way}/overlays/cpu-demo]\n{patches}")
        policy = next(o for o in m.overlay(folder) if o["kind"] == "NetworkPolicy" and o["metadata"]["name"] == "quire-router")
    expect(policy["spec"]["egress"][2] == {"ports": [{"port": 443}, {"port": 6443}],
                                           "to": [{"ipBlock": {"cidr": "10.0.0.5/32"}}]}, policy)
    expect(all("to" in rule for rule in policy["spec"]["egress"]), policy)


def test_everything_is_valid_to_kubernetes_and_to_the_operators():
    with tempfile.TemporaryDirectory() as folder:
        files, skipped = 0, set()
        for name, objects in everything():
            for i, o in enumerate(objects):
                o = {**o, "metadata": {"namespace": "prod", **o["metadata"]}}
                if o["kind"] in ("ClusterServingRuntime",):
                    o["metadata"].pop("namespace")
                (pathlib.Path(folder) / f"{name.replace(' ', '-')}-{i}-{o['kind']}.json").write_text(json.dumps(o))
                files += 1
        code, output = validate(folder)
        expect(code == 0, "\n".join(line for line in output.splitlines() if not line.endswith("OK"))[-4000:])
        expect(output.count("OK") == files and not skipped, f"{output.count('OK')} of {files}")
        # And it does look: a misspelt key of each kind is found.
        bad = pathlib.Path(folder) / "bad"
        bad.mkdir()
        kinds = {}
        for _, objects in everything():
            for o in objects:
                kinds.setdefault(o["kind"], o)
        for kind, o in kinds.items():
            part = "spec" if "spec" in o else "metadata"
            wrong = {**o, part: {**o[part], "nonsense": 1}}
            wrong["metadata"] = {**wrong["metadata"], "namespace": "prod"}
            (bad / f"{kind}.json").write_text(json.dumps(wrong))
        code, output = validate(bad)
        expect(code != 0, output)
        expect("OK" not in output.replace("NOTOK", ""), output[-3000:])


def test_the_dockerfile_agrees_with_the_build_and_the_manifests():
    text = (m.ROOT / "deploy" / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    installed = set(re.search(r"--no-install-recommends(.*)", text)[1].split())
    dev = (m.ROOT / "dev").read_text()
    needed = set(re.search(r"^PACKAGES=\((.*?)\)", dev, re.M | re.S)[1].split()) - {"ccache", "python3-venv"}
    expect(needed <= installed, f"./dev builds with {needed - installed} besides")
    stages = {name: body for name, body in re.findall(r"^FROM scratch AS ([\w-]+)\n(.*?)(?=\n\n|\Z)", text, re.M | re.S)}
    expect(re.search(r"^ARG BASE=debian:12-slim\n\nFROM \$\{BASE\} AS build$", text, re.M), "a base of one's own choice")
    expect(set(re.findall(r"^FROM (\S+)", text, re.M)) == {"${BASE}", "build", "scratch"}, "and no other one")
    images = {re.split("[:@]", o["image"].rsplit("/", 1)[1])[0] for _, _, _, o in ours()}
    expect({f"quire-{s}" for s in stages} == images, f"{stages.keys()} {images}")
    for name, body in stages.items():
        expect("USER 65532:65532" in body, body)
        expect(("ENV GLIBC_TUNABLES=glibc.malloc.hugetlb=1\n" in body) == name.startswith("worker"), body)
        expect("ARG BASE\nLABEL org.opencontainers.image.base.name=${BASE}\n" in body, body)
        expect(f'ENTRYPOINT ["/usr/local/bin/quire-{name.removesuffix("-cuda")}"]' in body, body)
        exposed = set(map(int, re.search(r"EXPOSE (.*)", body)[1].split()))
        for where, o, _, container in ours():
            if where.startswith("chart with default") and container["name"] == name.removesuffix("-cuda"):
                expect(exposed == {p["containerPort"] for p in container["ports"]}, f"{where}: {exposed}")


def first_of(objects, kind, component=""):
    return next(o for o in objects if o["kind"] == kind and component in o["metadata"]["name"])


def arguments(objects, kind, component):
    return m.pod_of(first_of(objects, kind, component))[1]["containers"][0]["args"]


def replaced(words, old, new):
    words[words.index(old)] = new


# What each check must find: the check, and what is broken for it in the profile with one GPU.
BROKEN = [
    (test_every_flag_exists_and_its_value_is_one_of_its_choices,
     lambda o: arguments(o, "Deployment", "router").append("--max-conections=9")),
    (test_every_flag_exists_and_its_value_is_one_of_its_choices,
     lambda o: arguments(o, "Deployment", "router").append("--worker-k8s=another")),
    (test_every_flag_exists_and_its_value_is_one_of_its_choices,
     lambda o: replaced(arguments(o, "StatefulSet", "worker"), "--log-format=json", "--log-format=jason")),
    (test_the_binaries_take_every_command_line_up_to_what_only_a_pod_has,
     lambda o: replaced(arguments(o, "StatefulSet", "worker"), "--device=cuda", "--device=gpu")),
    (test_the_binaries_take_every_command_line_up_to_what_only_a_pod_has,
     lambda o: arguments(o, "Deployment", "router").append("--max-connections=0")),
    (test_ports_are_those_of_the_command_line,
     lambda o: replaced(arguments(o, "Deployment", "router"), "--port=8000", "--port=8080")),
    (test_ports_are_those_of_the_command_line,
     lambda o: m.pod_of(first_of(o, "StatefulSet"))[1]["containers"][0]["livenessProbe"]["httpGet"].update(path="/")),
    (test_grace_holds_hook_delay_drain_and_some_seconds_to_spare,
     lambda o: m.pod_of(first_of(o, "StatefulSet"))[1].update(terminationGracePeriodSeconds=96)),
    (test_grace_holds_hook_delay_drain_and_some_seconds_to_spare,
     lambda o: replaced(arguments(o, "Deployment", "router"), "--drain-delay=5s", "--drain-delay=6s")),
    (test_selectors_targets_and_named_ports_meet_something,
     lambda o: first_of(o, "Service", "worker")["spec"]["selector"].update({"app.kubernetes.io/component": "works"})),
    (test_selectors_targets_and_named_ports_meet_something,
     lambda o: first_of(o, "ScaledObject")["spec"]["scaleTargetRef"].update(name="quire")),
    (test_what_pods_refer_to_is_rendered_or_named_as_wanted,
     lambda o: m.pod_of(first_of(o, "Deployment"))[1]["volumes"][0]["secret"].update(secretName="quire-keys")),
    (test_pods_are_restricted,
     lambda o: m.pod_of(first_of(o, "Deployment"))[1]["containers"][0]["securityContext"].update(
         readOnlyRootFilesystem=False)),
    (test_only_routers_reach_workers,
     lambda o: first_of(o, "NetworkPolicy", "worker")["spec"]["ingress"][0]["from"].append({"podSelector": {}})),
    (test_routers_reach_workers_dns_and_the_api_server,
     lambda o: first_of(o, "NetworkPolicy", "router")["spec"]["egress"][1].pop("to")),
    (test_routers_reach_workers_dns_and_the_api_server,
     lambda o: first_of(o, "NetworkPolicy", "router")["spec"]["egress"].append({"ports": [{"port": 80}]})),
]


def test_the_checks_find_what_is_broken():
    whole = dict(everything())
    try:
        for check, breaks in BROKEN:
            objects = copy.deepcopy(whole["profile one-gpu"])
            breaks(objects)
            ALL.clear()
            ALL.update({**whole, "broken": objects})
            found = ""
            try:
                check()
            except Failure as failure:
                found = str(failure)
            expect("broken" in found, f"{check.__name__} found nothing, or something else: {found}")
    finally:
        ALL.clear()
        ALL.update(whole)


def validate(folder):
    done = subprocess.run([tools.BIN / "kubectl-validate", folder, "--local-crds", tools.CRDS, "--local-schemas",
                           tools.SCHEMAS, "--version", "1.30"], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr
