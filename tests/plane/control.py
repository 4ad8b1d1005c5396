"""A control plane of real programs on a machine's own network: etcd, kube-apiserver, kube-controller-manager,
kube-scheduler, KServe's manager, and nodes that are the agent."""
import base64
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import plane  # noqa: E402
import chart  # noqa: E402
import manifests as m  # noqa: E402
import programs  # noqa: E402
from cluster import Cluster  # noqa: E402
from harness import expect, free_port, wait_until  # noqa: E402

NODES = ("node-a", "node-b")
POLL_S = 0.1
CLUSTER_WIDE = {*chart.CLUSTER_WIDE, "PersistentVolume", "MutatingWebhookConfiguration",
                "ValidatingWebhookConfiguration", "CustomResourceDefinition", "ClusterStorageContainer"}


class ControlPlane(Cluster):
    """`with ControlPlane(folder) as cluster`: ready when both nodes are."""
    address = "10.244.0.1"  # the nodes' own, on the bridge that the agent lays
    api_flags = ("--advertise-address", "10.244.0.1", "--allow-privileged")

    def __init__(self, folder, claims=()):
        self.manager = None
        _, self.controllers, self.scheduler = programs.kubernetes()
        self.config = folder / "kubeconfig"
        self.claims = [f"--claim={name}={path}" for name, path in claims]
        super().__init__(folder)

    def start_api(self):
        chart.kubeconfig(self, self.folder)
        self.agent = plane.Agent(self.folder, "node", f"--kubeconfig={self.config}", f"--nodes={','.join(NODES)}",
                                 *self.claims)
        super().start_api()
        common = ["--kubeconfig", self.config, "--leader-elect=false", "--bind-address", "127.0.0.1", "--secure-port"]
        self.start("controllers", [
            self.controllers, *common, free_port(), "--controllers=*,-nodeipam,-cloud-node-lifecycle",
            "--service-account-private-key-file", self.folder / "sa.key",
            "--root-ca-file", self.folder / "certs" / "apiserver.crt", "--use-service-account-credentials=false"])
        self.start("scheduler", [self.scheduler, *common, free_port()])
        wait_until(lambda: all(self.node_is_ready(n) for n in NODES), "the nodes are ready", 60, self.agent.process.output)

    def node_is_ready(self, name):
        status, node = self.ask("GET", f"/api/v1/nodes/{name}")
        return status == 200 and not node["spec"].get("taints") and any(
            c["type"] == "Ready" and c["status"] == "True" for c in node["status"]["conditions"])

    # What a person does with kubectl.
    def get(self, path):
        status, answer = self.ask("GET", path)
        expect(status == 200, f"{path}: {answer}")
        return answer

    def do(self, method, path, body=None):
        status, answer = self.ask(method, path, body)
        expect(status in (200, 201, 202), f"{method} {path}: {answer}")
        return answer

    def apply(self, objects, kinds, namespace="prod"):
        for o in objects:
            at, plural = kinds[o["apiVersion"], o["kind"]]
            place = at if o["kind"] in CLUSTER_WIDE else f"{at}/namespaces/{namespace}"
            self.do("POST", f"{place}/{plural}", o)

    def pods(self, component, namespace="prod"):
        label = f"?labelSelector=app.kubernetes.io/component%3D{component}"
        return self.get(f"/api/v1/namespaces/{namespace}/pods{label}")["items"]

    def ready_pods(self, component):
        return [p for p in self.pods(component) if "deletionTimestamp" not in p["metadata"] and is_ready(p)]

    def rolled_out(self, kind, name, namespace="prod"):
        """As `kubectl rollout status` sees it: all replicas are of the newest template, and ready."""
        o = self.get(f"/apis/apps/v1/namespaces/{namespace}/{kind}/{name}")
        spec, status = o["spec"], o.get("status", {})
        count = spec["replicas"]
        return (status.get("observedGeneration", 0) >= o["metadata"]["generation"]
                and status.get("updatedReplicas", 0) == count and status.get("readyReplicas", 0) == count
                and status.get("replicas", 0) == count)

    def await_rollout(self, kind, name, namespace="prod", limit_s=240):
        wait_until(lambda: self.rolled_out(kind, name, namespace), f"{kind}/{name} is rolled out", limit_s, self.told)

    def scale(self, kind, name, count, namespace="prod"):
        path = f"/apis/apps/v1/namespaces/{namespace}/{kind}/{name}/scale"
        o = self.get(path)
        o["spec"]["replicas"] = count
        self.do("PUT", path, o)

    def drain(self, node):
        """kubectl drain: no new pods, then each is evicted, again and again where its budget says no."""
        o = self.get(f"/api/v1/nodes/{node}")
        o["spec"]["unschedulable"] = True
        self.do("PUT", f"/api/v1/nodes/{node}", o)
        refused, end = 0, time.monotonic() + 300
        while time.monotonic() < end:
            left = [p for p in self.get("/api/v1/pods?fieldSelector=spec.nodeName%3D" + node)["items"]]
            if not left:
                return refused
            for pod in left:
                if "deletionTimestamp" in pod["metadata"]:
                    continue
                meta = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
                status, answer = self.ask("POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction",
                                          {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})
                expect(status in (201, 404, 429), answer)
                refused += status == 429
            time.sleep(POLL_S)
        expect(False, f"{node} is not empty: {self.told()}")

    def uncordon(self, node):
        o = self.get(f"/api/v1/nodes/{node}")
        o["spec"].pop("unschedulable", None)
        self.do("PUT", f"/api/v1/nodes/{node}", o)

    def helm(self, *args):
        code, text = m.helm(*args, "--namespace", "prod", "--kubeconfig", self.config)
        expect(code == 0, text + self.told())
        return text

    def start_kserve(self, kinds):
        """KServe's manager with its configuration for Deployments and no ingress of its own."""
        manager, module = programs.kserve_manager(), programs.kserve_module()
        self.do("POST", "/api/v1/namespaces", {"metadata": {"name": "kserve"}})
        self.define_storage(module, kinds)
        config = m.documents((module / "config" / "configmap" / "inferenceservice.yaml").read_text())[0]
        data = config["data"]
        data.pop("_example", None)
        data["deploy"] = json.dumps({**json.loads(data["deploy"]), "defaultDeploymentMode": "Standard"})
        data["ingress"] = json.dumps({**json.loads(data["ingress"]), "enableGatewayApi": False,
                                      "disableIngressCreation": True, "disableIstioVirtualHost": True})
        config["metadata"] = {"name": config["metadata"]["name"], "namespace": "kserve"}
        self.apply([config], kinds, "kserve")
        port, folder = free_port(), self.folder / "k8s-webhook-server" / "serving-certs"  # where its library looks
        folder.mkdir(parents=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=webhook",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "tls.key", "-out",
                        folder / "tls.crt"], check=True, capture_output=True)
        self.start("kserve", ["env", "POD_NAMESPACE=kserve", f"TMPDIR={self.folder}", manager, "-kubeconfig", self.config,
                              "-metrics-addr", f"127.0.0.1:{free_port()}", "-health-probe-addr", f"127.0.0.1:{free_port()}",
                              "-webhook-port", port])
        wait_until(lambda: socket.create_connection(("127.0.0.1", port)).close() is None, "its webhooks listen", 60, self.told)
        self.apply(webhooks(module, port, folder / "tls.crt"), kinds)

    def define_storage(self, module, kinds):
        """What KServe knows of places where models lie; without it no model has one."""
        folder = module / "config" / "crd" / "full" / "clusterstoragecontainer"
        crd = m.documents(next(folder.glob("serving.*.yaml")).read_text())[0]
        crd["metadata"] = {"name": crd["metadata"]["name"]}
        self.apply([crd], kinds)
        wait_until(lambda: self.ask("GET", "/apis/serving.kserve.io/v1alpha1/clusterstoragecontainers")[0] == 200,
                   "storage containers are served", 60, self.told)
        kinds["serving.kserve.io/v1alpha1", "ClusterStorageContainer"] = (
            "/apis/serving.kserve.io/v1alpha1", "clusterstoragecontainers")
        self.apply(m.documents((module / "config" / "storagecontainers" / "default.yaml").read_text()), kinds)

    def told(self):
        """What an engineer would look at first."""
        lines = []
        with contextlib.suppress(Exception):
            for pod in self.get("/api/v1/namespaces/prod/pods")["items"]:
                states = [c["state"] for c in pod["status"].get("containerStatuses", [])]
                lines.append(f'{pod["metadata"]["name"]} {pod["status"]["phase"]} ready={is_ready(pod)} {states}')
        with contextlib.suppress(Exception):
            for o in self.get("/apis/serving.kserve.io/v1beta1/inferenceservices")["items"]:
                lines.append(f'{o["metadata"]["name"]} {o.get("status", {}).get("conditions")} {o.get("status", {}).get("modelStatus")}')
        for path in sorted((self.folder / "logs").glob("prod_*router*.log")):
            lines += [f"--- {path.name}", *path.read_text(errors="replace").splitlines()[-8:]]
        for name in self.processes:
            text = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
            lines += [f"--- {name}", *text[-5:]]
        return "\n" + "\n".join([*lines, "--- agent", *self.agent.process.lines[-40:]])

    def close(self):
        self.agent.process.close()
        super().close()


def webhooks(module, port, certificate):
    """KServe's own configurations; its manager is not behind a Service here."""
    authority = base64.b64encode(certificate.read_bytes()).decode()
    found = m.documents((module / "config" / "webhook" / "manifests.yaml").read_text())
    for o in found:
        o["metadata"] = {"name": o["metadata"]["name"]}
        for hook in o["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": authority}
            hook["admissionReviewVersions"] = ["v1", *hook["admissionReviewVersions"]]
    return found


def is_ready(pod):
    return any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
