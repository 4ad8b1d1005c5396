"""An API server that says what a real one said (recorded_kubernetes/), over TLS and with a token: lists and
watches of EndpointSlices, dropped and refused watches included. Addresses of the record are put on loopback."""
import http.server
import pathlib
import ssl
import subprocess
import threading
import urllib.parse

RECORDED = pathlib.Path(__file__).parent / "recorded_kubernetes"


def recorded(name):
    return (RECORDED / name).read_text()


def make_certificate(folder):
    """A certificate authority of one, for 127.0.0.1; returns (certificate, key)."""
    certificate, key = folder / "ca.crt", folder / "server.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-days", "2", "-subj", "/CN=kubernetes", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


class ReplayingApi:
    """`plan(query)` gives for each request (status, [pieces]); a piece is bytes to send, or an Event to wait for.
    None as the last piece drops the connection in the middle of the answer."""

    def __init__(self, folder, workers):
        self.workers = workers  # address of the record → (host, port)
        self.token = "first-token"
        self.plan = lambda query: (200, [recorded("list.json").encode()])
        self.queries = []
        self.closing = threading.Event()
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                api.answer(self)

        certificate, key = make_certificate(folder)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def moved(self, text):
        """The record with its addresses and ports on loopback."""
        for address, (host, port) in self.workers.items():
            text = text.replace(f'"{address}"', f'"{host}"')
            text = text.replace('"port": 9000', f'"port": {port}').replace('"port":9000', f'"port":{port}')
        return text

    def answer(self, request):
        path, _, query = request.path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        self.queries.append((path, query))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            status, pieces = 401, [recorded("unauthorized.json").encode()]
        else:
            status, pieces = self.plan(query)
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        for piece in pieces:
            if piece is None:
                request.wfile.flush()
                request.connection.close()
                return
            if isinstance(piece, threading.Event):
                while not piece.wait(0.05) and not self.closing.is_set():
                    pass
                continue
            request.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            request.wfile.flush()
        request.wfile.write(b"0\r\n\r\n")
        request.close_connection = True

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
