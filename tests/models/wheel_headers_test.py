"""The headers of a wheel by ranges, from an index of our own: what comes whole, and what is refused."""
import base64
import hashlib
import http.server
import io
import os
import pathlib
import tempfile
import threading
import unittest
import zipfile

import wheel_headers

HEADER = b"int x;\n"
WHEEL = "some_thing-1.0-py3-none-manylinux_2_27_x86_64.whl"


def wheel(listed=HEADER):
    """With the header, a library, and the header's digest as that of `listed`; None: no list."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("a/lib/libx.so", bytes(1 << 20))
        made.writestr("a/include/x.h", HEADER)
        if listed is not None:
            digest = base64.urlsafe_b64encode(hashlib.sha256(listed).digest()).rstrip(b"=").decode()
            made.writestr("some_thing-1.0.dist-info/RECORD", f"a/include/x.h,sha256={digest},7\nodd\n")
    return archive.getvalue()


class Index(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, with_body):
        said, asked = self.server.said, self.headers.get("Range")
        body = f'<a href="../../files/{WHEEL}#sha256=0">it</a>'.encode()
        if not self.path.endswith("/some-thing/"):
            body = said["wheel"]
        if asked and said.get("ranges", True):
            first, last = asked.removeprefix("bytes=").split("-")
            body = body[int(first):int(last) + 1]
            self.send_response(206)
        else:
            self.send_response(200)
        if said.get("length", True):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.server.sent += len(body)
            self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # a client that leaves in the middle of a library


class WheelHeadersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.server = Server(("127.0.0.1", 0), Index)
        self.server.sent = 0
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        before = os.environ.get("PIP_INDEX_URL")
        self.addCleanup(lambda: os.environ.pop("PIP_INDEX_URL") if before is None else os.environ.update(PIP_INDEX_URL=before))
        os.environ["PIP_INDEX_URL"] = f"http://127.0.0.1:{self.server.server_port}/simple/"

    def fetch(self, version="1.0", **said):
        self.server.said = said
        wheel_headers.fetch("some-thing", version, self.folder)

    def refused(self, version="1.0", **said):
        with self.assertRaises((OSError, zipfile.BadZipFile)):
            self.fetch(version, **said)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_headers_come_and_the_library_stays(self):
        self.fetch(wheel=wheel())
        self.assertEqual([p.name for p in self.folder.iterdir()], ["x.h"])
        self.assertEqual((self.folder / "x.h").read_bytes(), HEADER)
        self.assertLess(self.server.sent, 3 * wheel_headers.READ_AHEAD)

    def test_what_is_not_as_the_wheel_lists_it_is_refused(self):
        self.refused(wheel=wheel(listed=b"int y;\n"))
        self.refused(wheel=wheel(listed=None))

    def test_a_server_that_cannot_is_told_from_one_that_has_not(self):
        self.refused(wheel=wheel(), ranges=False)
        self.refused(wheel=wheel(), length=False)
        self.refused(wheel=b"x" * 500)
        self.refused(version="2.0", wheel=wheel())
