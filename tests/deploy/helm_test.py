"""The chart with the real helm: lint, templates of every profile, its unit tests, its schema and its refusals."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest

import manifests as m
import tools
from harness import ROOT, expect, run

pytestmark = pytest.mark.usefixtures("deploy_tools")
OWN_CLUSTER = ROOT / "tests" / "deploy" / "own-cluster.yaml"
# Values of Kubernetes' own types, whose keys kubectl-validate checks once they are rendered.
OPEN = ("extraEnv", "extraVolumes", "extraVolumeMounts", "tolerations", "topologySpreadConstraints", "nodeAffinity",
        "podAffinity", "podAntiAffinity", "routerFrom", "extraEgress", "egress", "to", "parentRefs", "extraObjects", "global")
# What the schema refuses: the setting, and the key and words that the message has.
REFUSED_BY_SCHEMA = [
    ("router.prot=1", "/router", "'prot' not allowed"),
    ("ruter.port=1", "quire:", "'ruter' not allowed"),
    ("worker.podDisruptionBudget.minAvailable=1", "/worker/podDisruptionBudget", "'minAvailable' not allowed"),
    ("router.port=70000", "/router/port", "want 65,535"),
    ("router.port=http", "/router/port", "want integer"),
    ("router.replicas=0", "/router/replicas", "want 1"),
    ("router.routingPolicy=best", "/router/routingPolicy", "must be one of"),
    ("router.drainTimeoutSeconds=-1", "/router/drainTimeoutSeconds", "want 0"),
    ("router.service.type=Public", "/router/service/type", "must be one of"),
    ("router.service.ipFamilyPolicy=Both", "/router/service/ipFamilyPolicy", "must be one of"),
    ("fullnameOverride=my.model", "/fullnameOverride", "does not match"),
    ("ingress.host=https://a.example", "/ingress/host", "does not match"),
    ("ingress.hosts[0]=a.example", "/ingress", "'hosts' not allowed"),
    ("router.extraArgs[0]=port", "/router/extraArgs/0", "does not match"),
    (r"router.podLabels.app\.kubernetes\.io/name=x", "/router/podLabels/app.kubernetes.io", "false schema"),
    ("worker.device=tpu", "/worker/device", "must be one of"),
    ("worker.blockSize=17", "/worker/blockSize", "must be one of"),
    ("worker.adapters.maxRank=257", "/worker/adapters/maxRank", "want 256"),
    ("worker.adapters.maxLoras=0", "/worker/adapters/maxLoras", "want 1"),
    ("worker.adapters.dir=adapters", "/worker/adapters/dir", "does not match"),
    ("worker.kvCacheMemory=lots", "/worker/kvCacheMemory", "does not match"),
    ("worker.resources.limits.memory=lots", "/worker/resources/limits/memory", "does not match"),
    ("worker.resources.limit.memory=1Gi", "/worker/resources", "'limit' not allowed"),
    ("worker.image.digest=sha256:12", "/worker/image/digest", "does not match"),
    ("model.source.type=s3", "/model/source/type", "must be one of"),
    ("router.trustedProxies[0]=nginx", "/router/trustedProxies/0", "does not match"),
    ("networkPolicy.apiServer.cidrs[0]=10.0.0.5", "/networkPolicy/apiServer/cidrs/0", "does not match"),
    ("networkPolicy.apiServer.port=443", "/networkPolicy/apiServer", "'port' not allowed"),
    ("workerTLS.mode=tls", "/workerTLS/mode", "must be one of"),
    ("workerTLS.certManager.duration=long", "/workerTLS/certManager/duration", "does not match"),
    ("apiKeys.existingSecret=Not_A_Name", "/apiKeys/existingSecret", "does not match"),
    ("keda.kvThresholdPercent=101", "/keda/kvThresholdPercent", "want 100"),
    ("keda.prometheusURL=prometheus", "/keda/prometheusURL", "does not match"),
    ("kserve.inferenceService.deploymentMode=Raw", "/kserve/inferenceService/deploymentMode", "must be one of"),
]
# What contradicts itself, and is told at render in one line.
REFUSED_AT_RENDER = [
    ("apiKeys.existingSecret=", "apiKeys.existingSecret is empty: name a Secret"),
    ("workerTLS.mode=none", "workerTLS.mode is none: use certManager"),
    ("workerTLS.mode=secret", "workerTLS.existingSecrets: mode secret needs both"),
    ("workerTLS.mode=secret,workerTLS.existingSecrets.router=r", "workerTLS.existingSecrets: mode secret needs both"),
    ("router.terminationGracePeriodSeconds=74", "router.terminationGracePeriodSeconds is 74: .* need 75"),
    ("worker.terminationGracePeriodSeconds=96", "worker.terminationGracePeriodSeconds is 96: .* need 97"),
    ("worker.drainHardLimitSeconds=59", "worker.drainHardLimitSeconds is 59: .*which is 60"),
    ("router.grpcPort=8000", "router.grpcPort is router.port, 8000"),
    ("router.metricsPort=8001", "router.metricsPort is a port for clients, 8001"),
    ("worker.probePort=9000", "worker.probePort is worker.port, 9000"),
    ("model.source.pvc.claimName=", "model.source.pvc.claimName is empty"),
    ("model.source.type=image", "model.source.image.reference is empty"),
    ("model.source.type=oci", "model.source.oci.image is empty"),
    ("model.source.type=name", "model.source.name.reference is empty"),
    ("model.source.type=name,model.source.name.reference=hf:a/b", "model.servedNames is empty"),
    ("worker.tensorParallelSize=2", "worker.tensorParallelSize is 2: ranks are GPUs"),
    ("router.autoscaling.minReplicas=9", "router.autoscaling.minReplicas is 9, beyond maxReplicas, which is 8"),
    ("keda.enabled=true,keda.minReplicas=9", "keda.minReplicas is 9, beyond"),
    ("router.extraArgs[0]=--drain-timeout=600s", "router.extraArgs: --drain-timeout=600s is the chart's to set"),
    ("worker.extraArgs[0]=--http-port=9", "worker.extraArgs: --http-port=9 is the chart's to set"),
    ("gateway.enabled=true", "gateway.parentRefs is empty"),
    ("ingress.enabled=true", "ingress.host is empty"),
    ("router.enabled=false", "workerTLS.certManager.issuerRef.name is empty: workers alone"),
    ("router.enabled=false,demo=true", "router.enabled is false: the demo's certificates"),
    ("router.enabled=false,ingress.enabled=true,ingress.host=a.example", "router.enabled is false: ingress and gateway lead to routers"),
    ("kserve.enabled=true,kserve.inferenceService.enabled=true", "kserve.inferenceService.storageUri is empty"),
    ("kserve.inferenceService.enabled=true,kserve.inferenceService.storageUri=pvc://m", "needs kserve.enabled"),
]


def test_lint_finds_nothing():
    for name in [None, *m.PROFILES]:
        values = [] if name is None else ["-f", m.CHART / "profiles" / f"{name}.yaml"]
        code, text = m.helm("lint", m.CHART, "--strict", "--kube-version", m.KUBERNETES, *values)
        expect(code == 0 and "0 chart(s) failed" in text and "WARNING" not in text, text)


def test_every_dashboard_and_rule_is_in_the_chart_and_in_kustomize():
    written = {p.name: json.loads(p.read_text()) for p in (ROOT / "deploy" / "grafana").glob("*.json")}
    rules = m.documents((ROOT / "deploy" / "prometheus" / "rules.yaml").read_text())[0]
    expect(len(written) >= 6 and rules["groups"], written.keys())
    for objects in (m.profile("one-gpu"), m.overlay(m.KUSTOMIZE / "overlays" / "single-gpu")):
        found = {}
        for o in m.of_kind(objects, "ConfigMap"):
            expect(o["metadata"]["labels"]["grafana_dashboard"] == "1", o["metadata"])
            found.update({k.removeprefix("quire-"): json.loads(v) for k, v in o["data"].items()})
        expect(found == written, f"{found.keys()} of {written.keys()}")
        expect([o["spec"] for o in m.of_kind(objects, "PrometheusRule")] == [rules], "rules")


def test_its_unit_tests_pass():
    code, text = run([tools.BIN / "helm-unittest", "--strict", m.CHART])
    expect(code == 0, text)
    ran = re.search(r"Tests:\s+(\d+) passed, (\d+) total", text)
    expect(ran and ran[1] == ran[2] and int(ran[1]) >= 34, text)


def test_two_renderings_are_equal():
    for name in [None, *(p for p in m.PROFILES if p != "cpu-demo")]:  # the demo's own is in demo_secrets_test.yaml
        values = [] if name is None else ["-f", m.CHART / "profiles" / f"{name}.yaml"]
        first, second = m.template(*values), m.template(*values)
        expect(first[0] == 0, first[1])
        expect(first == second, f"{name}: two renderings differ")


def test_the_default_values_need_nothing_but_what_they_name():
    text = m.template()[1]
    expect("kind: Secret" not in text, "only the demo generates")
    for path in (m.CHART / "templates").rglob("*"):
        if path.is_file() and path.name != "demo-secrets.yaml":
            expect("lookup" not in path.read_text(), f"{path} asks the API server at render")


def test_the_schema_refuses_by_name():
    for setting, where, words in REFUSED_BY_SCHEMA:
        code, text = m.template("--set", setting)
        expect(code != 0 and where in text and words in text, f"{setting}: {text}")


def test_contradictions_fail_at_render_in_one_line():
    for setting, pattern in REFUSED_AT_RENDER:
        code, text = m.template("--set", setting)
        lines = [line for line in text.splitlines() if line.startswith("Error:")]
        expect(code != 0 and len(lines) == 1 and re.search(pattern, lines[0]), f"{setting}: {text}")


def test_kserve_is_given_every_kind_of_storage():
    for uri in ("pvc://models/gemma", "hf://google/gemma-3-270m:main", "s3://bucket/gemma", "gs://bucket/gemma",
                "oci://registry.example.com/models/gemma:1", "https://example.com/gemma.tar.gz"):
        objects = m.chart("--set", f"kserve.enabled=true,kserve.inferenceService.enabled=true,kserve.inferenceService.storageUri={uri}")
        service = m.of_kind(objects, "InferenceService")[0]
        expect(service["spec"]["predictor"]["model"]["storageUri"] == uri, service)
        runtime = m.of_kind(objects, "ServingRuntime")[0]
        expect(runtime["spec"]["containers"][0]["args"][0] == "/mnt/models", "where KServe puts each of them")
    code, text = m.template("--set", "kserve.enabled=true,kserve.inferenceService.enabled=true,kserve.inferenceService.storageUri=/models")
    expect(code != 0 and "/kserve/inferenceService/storageUri" in text, text)


def test_an_old_cluster_is_told_so():
    for version, words in (("1.29.0", "chart requires kubeVersion"), ("1.30.0", "needs Kubernetes 1.33")):
        code, text = m.helm("template", "quire", m.CHART, "--kube-version", version, "--set",
                            "model.source.type=image,model.source.image.reference=registry.example.com/m:1")
        expect(code != 0 and words in text, text)


def walk(schema, where, root):
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rsplit("/", 1)[1]]
    types = schema.get("type")
    if types == "object" and where.rsplit(".", 1)[-1] not in OPEN:
        closed = schema.get("additionalProperties")
        expect(closed is False or isinstance(closed, dict) and closed, f"{where} takes any key")
    for name, inner in schema.get("properties", {}).items():
        if inner is False:  # labels that are the chart's own
            continue
        yield from walk(inner, f"{where}.{name}", root)
    if "items" in schema and where.rsplit(".", 1)[-1] not in OPEN:
        yield from walk(schema["items"], where, root)
    yield where


def test_the_schema_is_closed_and_says_what_the_values_have():
    schema = json.loads((m.CHART / "values.schema.json").read_text())
    told = {w.removeprefix("values.") for w in walk(schema, "values", schema)}
    values = m.documents((m.CHART / "values.yaml").read_text())[0]

    def paths(value, where):
        for name, inner in value.items():
            path = f"{where}.{name}" if where else name
            yield path
            if isinstance(inner, dict) and inner and path in told:
                yield from paths(inner, path)

    have = set(paths(values, ""))
    amounts = {p for p in have if re.search(r"\.(requests|limits|dashboardLabels|nodeSelector)\.", p)}
    expect(have - amounts <= told, have - told)
    leaves = {p for p in told if p not in have and p != "values" and not re.search(r"^(global|.*\.affinity\..*)$", p)}
    expect(not {p for p in leaves if "pullSecrets" not in p}, f"values.yaml does not tell of {leaves}")


def test_the_readme_is_what_the_values_say_and_choices_are_those_of_the_flags():
    done = subprocess.run([sys.executable, ROOT / "deploy" / "helm" / "readme.py", "--check"], capture_output=True,
                          text=True)
    expect(done.returncode == 0, done.stdout + done.stderr)


def test_a_new_choice_of_a_flag_makes_the_chart_stale(tmp_path):
    """Of a copy of the chart and the reference: the check names the files and the command, which repairs them."""
    chart, reference = tmp_path / "deploy" / "helm", tmp_path / "docs" / "reference" / "cli.md"
    shutil.copytree(ROOT / "deploy" / "helm", chart)
    reference.parent.mkdir(parents=True)
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    reference.write_text(text.replace("consistent-hash`", "consistent-hash\\|made-up`"))

    def script(*args):
        return subprocess.run([sys.executable, chart / "readme.py", *args], capture_output=True, text=True)
    done = script("--check")
    expect(done.returncode == 1, done)
    for name in ("README.md", "values.yaml", "values.schema.json"):
        expect(f"{name} is not what its sources say; run {chart / 'readme.py'}" in done.stdout, done.stdout)
    expect(script().returncode == 0 and script("--check").returncode == 0, "it repairs what it found")
    schema = json.loads((chart / "quire" / "values.schema.json").read_text())
    policies = schema["properties"]["router"]["properties"]["routingPolicy"]["enum"]
    expect(policies[-1] == "made-up", policies)
    expect("consistent-hash or made-up." in (chart / "quire" / "values.yaml").read_text(), "values.yaml")


def test_notes_tell_commands_that_fit_what_is_rendered():
    for path in [*(m.CHART / "profiles").glob("*.yaml"), OWN_CLUSTER]:
        notes = rendered_notes("-f", path)
        expect("<no value>" not in notes and "curl http" in notes, notes)
    expect("{.data.first\\.key}" in notes, f"a dot in an entry's name: {notes}")
    alone = rendered_notes("--set", "router.enabled=false,workerTLS.certManager.issuerRef.name=quire-ca")
    expect("curl" not in alone and "{quire-worker}" in alone and "replaces its list" in alone, alone)
    for values, open_to_any in (("", True), ("networkPolicy.apiServer.cidrs[0]=10.0.0.5/32", False), ("router.discovery=dns", False),
                                ("networkPolicy.enabled=false", False)):
        notes = rendered_notes(*(["--set", values] if values else []))
        expect(("any address on ports 443 and 6443" in notes) == open_to_any, f"{values}: {notes}")
    way_in = ("gateway.enabled=true,gateway.parentRefs[0].name=g", "ingress.enabled=true,ingress.host=a.example")
    for values in way_in:
        for tls in ("", "t"):
            notes = rendered_notes("-f", OWN_CLUSTER, "--set", f"{values},router.tlsSecret={tls}")
            expect(("BackendTLSPolicy" in notes) == bool(tls), notes)
    notes = rendered_notes("-f", m.CHART / "profiles" / "cpu-demo.yaml")
    objects = m.profile("cpu-demo")
    names = {(o["kind"], o["metadata"]["name"]) for o in objects}
    for kind, pattern in (("StatefulSet", r"rollout status statefulset/(\S+)"),
                          ("Service", r"port-forward service/(\S+)"), ("Secret", r"get secret (\S+)")):
        found = re.search(pattern, notes)
        expect(found and (kind, found[1]) in names, notes)
    secret = next(o for o in objects if o["metadata"]["name"] == re.search(r"get secret (\S+)", notes)[1])
    expect(re.search(r"\{\.data\.([a-z-]+)\}", notes)[1] in secret["data"], notes)


def rendered_notes(*values):
    """NOTES.txt: a template like any other, taken under another name."""
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "quire"
        shutil.copytree(m.CHART, copy)
        notes = (copy / "templates" / "NOTES.txt").read_text()
        (copy / "templates" / "NOTES.txt").unlink()
        (copy / "templates" / "told.yaml").write_text(
            '{{ define "notes" }}' + notes + '{{ end }}\ntold: {{ include "notes" . | quote }}\n')
        code, text = m.helm("template", "quire", copy, "--namespace", "prod", "--kube-version", m.KUBERNETES,
                            *values, "--show-only", "templates/told.yaml")
        expect(code == 0, text)
        return m.documents(text)[0]["told"]
