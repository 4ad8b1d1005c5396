"""A tracking server of MLflow on loopback whose faults a test sets. Standard library only; mlflow_test.py holds the shapes of
its answers to a real server's."""
import threading
import urllib.parse

from hub import Handler, Server

ID, RUN = "m-" + "0" * 32, "1" * 32
ROOT = f"0/models/{ID}/artifacts"


class Tracking:
    """One model, "the demo", of one version. What a test sets holds until it sets something else."""

    def __init__(self, files):
        self.files = dict(files)  # path below ROOT → bytes
        self.requests = []
        self.account = None       # the Authorization that is asked for
        self.status = None        # of all answers
        self.file_status = None
        self.uri = f"mlflow-artifacts:/{ROOT}"
        self.answers = {}         # route → what is said in place of the usual
        self.redirect = False     # of files, to the second host
        self.short = 0
        self.servers = {}
        for name in ("hub", "storage"):
            server = Server(("127.0.0.1", 0), Handler)
            server.hub, server.name = self, name
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            self.servers[name] = server

    @property
    def url(self):
        return f"http://127.0.0.1:{self.servers['hub'].server_port}"

    def close(self):
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def api(self, request):
        path, _, query = request.path.partition("?")
        query = {name: values[0] for name, values in urllib.parse.parse_qs(query).items()}
        if self.account and request.headers.get("Authorization") != self.account:
            return request.answer(401, b"You are not authenticated.")
        if self.status:
            return request.answer(self.status, {"error_code": "TEMPORARILY_UNAVAILABLE", "message": "no"})
        route = path.removeprefix("/api/2.0/")
        if route.startswith("mlflow-artifacts/artifacts/"):
            return self.file(request, urllib.parse.unquote(route.removeprefix("mlflow-artifacts/artifacts/")))
        answer = self.answers.get(route)
        if answer is None:
            answer = self.answer(route, query)
        if answer is None:
            return request.answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "not found"})
        return request.answer(200, answer)

    def answer(self, route, query):
        version = {"name": "the demo", "version": "1", "source": f"models:/{ID}", "run_id": RUN, "status": "READY"}
        known = query.get("name") == "the demo"
        if route == "mlflow/registered-models/alias" and known and query["alias"] == "champion":
            return {"model_version": version}
        if route == "mlflow/model-versions/get-download-uri" and known and query["version"] == "1":
            return {"artifact_uri": self.uri}
        if route == "mlflow/model-versions/search" and query == {
                "filter": "name='the demo'", "max_results": "1", "order_by": "version_number DESC"}:
            return {"model_versions": [version]}
        if route == f"mlflow/logged-models/{ID}":
            return {"model": {"info": {"model_id": ID, "name": "chat", "artifact_uri": self.uri}}}
        if route == "mlflow/runs/get" and query.get("run_id") == RUN:
            return {"run": {"info": {"run_id": RUN, "artifact_uri": f"mlflow-artifacts:/0/{RUN}/artifacts"},
                            "outputs": {"model_outputs": [{"model_id": ID, "step": 0}]}}}
        if route == "mlflow-artifacts/artifacts":
            return self.listing(query["path"])
        return None

    def listing(self, path):
        below = [name.removeprefix(f"{path}/"[len(ROOT) + 1:]) for name in self.files if f"{ROOT}/{name}".startswith(f"{path}/")]
        sizes = {name: len(self.files[f"{path}/{name}"[len(ROOT) + 1:]]) for name in below if "/" not in name}
        files = [{"path": name, "is_dir": False, **({"file_size": size} if size else {})} for name, size in sizes.items()]
        return {"files": files + [{"path": name, "is_dir": True} for name in sorted({n.partition("/")[0] for n in below if "/" in n})]}

    def file(self, request, path):
        if self.redirect and request.server.name == "hub":
            where = f"http://127.0.0.1:{self.servers['storage'].server_port}{request.path}"
            return request.answer(302, b"", [("Location", where)])
        if self.file_status:
            return request.answer(self.file_status, b"no", [("Retry-After", "0")])
        data = self.files.get(path.removeprefix(f"{ROOT}/"))
        if data is None or not path.startswith(f"{ROOT}/"):
            return request.answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "No such artifact"})
        request.send_response(200)
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data[:len(data) - self.short])
        request.close_connection = request.close_connection or self.short > 0
        return None

    def storage(self, request):
        return self.file(request, urllib.parse.unquote(request.path).removeprefix("/api/2.0/mlflow-artifacts/artifacts/"))
