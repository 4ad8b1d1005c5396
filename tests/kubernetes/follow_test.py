"""A real router follows the EndpointSlices of a real kube-apiserver: rights, changes, a forgotten version, a restart."""
from cluster import ROUTER
from harness import RouterUnderTest, expect

SLICES = "/apis/discovery.k8s.io/v1/namespaces/prod/endpointslices"
RIGHTS = "/apis/rbac.authorization.k8s.io/v1/namespaces/prod/"
FOUND = 'quire_router_discovered_workers{source="worker-k8s"}'


def endpoint_slice(name, addresses, terminating=()):
    return {"metadata": {"name": name, "labels": {"kubernetes.io/service-name": "quire-workers"}},
            "addressType": "IPv4", "ports": [{"name": "wire", "port": 9000}, {"name": "http", "port": 9001}],
            "endpoints": [{"addresses": [a], "conditions": {"ready": a not in terminating, "serving": True,
                                                            "terminating": a in terminating}} for a in addresses]}


def done(answer, *statuses):
    expect(answer[0] in statuses, answer)
    return answer[1]


def follow(cluster, folder):
    done(cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "prod"}}), 201)
    done(cluster.ask("POST", SLICES, endpoint_slice("a", ["10.1.0.1", "10.1.0.2"])), 201)
    account = folder / "account"
    account.mkdir()
    (account / "token").write_text(ROUTER)
    (account / "namespace").write_text("prod")
    (account / "ca.crt").write_bytes((folder / "certs" / "apiserver.crt").read_bytes())
    with RouterUnderTest("--worker-k8s=quire-workers", "--k8s-service-account", account,
                         f"--k8s-api-server=https://127.0.0.1:{cluster.port}") as router:
        def finds(count, why):
            router.wait_until(lambda: router.metric(FOUND) == count, f"{count} workers: {why}")

        router.process.wait_for_line("needs list and watch on endpointslices")
        done(cluster.ask("POST", RIGHTS + "roles", {"metadata": {"name": "quire"}, "rules": [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]}), 201)
        done(cluster.ask("POST", RIGHTS + "rolebindings", {
            "metadata": {"name": "quire"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
                                                       "name": "quire"},
            "subjects": [{"kind": "User", "name": "system:serviceaccount:prod:quire"}]}), 201)
        finds(2, "once it has the rights")
        done(cluster.ask("POST", SLICES, endpoint_slice("b", ["10.1.0.3"])), 201)
        finds(3, "another slice")
        done(cluster.ask("PUT", SLICES + "/a", endpoint_slice("a", ["10.1.0.1", "10.1.0.2"], ["10.1.0.2"])), 200)
        finds(2, "one terminates")
        done(cluster.ask("POST", SLICES, {**endpoint_slice("c", ["10.1.0.9"]), "metadata": {
            "name": "c", "labels": {"kubernetes.io/service-name": "other"}}}), 201)
        # More slices than a page holds, told while nobody is there to hear it; the version is forgotten meanwhile.
        cluster.stop_api()
        router.process.wait_for_line("the last list holds")
        expect(router.metric(FOUND) == 2, "without an API server")
        cluster.start_api()
        for i in range(300):
            done(cluster.ask("POST", SLICES, endpoint_slice(f"more-{i}", [f"10.2.{i // 250}.{i % 250 + 1}"])), 201)
        finds(302, "after a restart")
        cluster.stop_api()
        cluster.start_api()
        cluster.compact()
        done(cluster.ask("DELETE", SLICES + "?labelSelector=kubernetes.io%2Fservice-name%3Dquire-workers"), 200)
        finds(0, "all are gone")
        done(cluster.ask("POST", SLICES, endpoint_slice("d", ["10.1.0.4"])), 201)
        finds(1, "and one comes")
        expect(router.stop() == 0, router.process.output())


def test_a_router_follows_a_real_api_server(cluster, tmp_path):
    follow(cluster, tmp_path)
