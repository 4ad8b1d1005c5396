"""Attacks by kept files: what the disk holds and no limit counts."""
import contextlib
import json
import os
import socket

from http_batches_test import ask, upload
from target import MIB, Target, wait_until


def deleted_bytes(pid):
    """On the disk, of files that have no name any more and that the process has open."""
    held = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            path = f"/proc/{pid}/fd/{name}"
            if os.readlink(path).endswith(" (deleted)"):
                held += os.stat(path).st_blocks * 512
    return held


def test_files_that_are_deleted_while_they_are_read_take_no_room(tmp_path):
    """Readers who take a few bytes, each of a file that is deleted then: its bytes count no longer."""
    text = "\n".join([json.dumps({"a": "x" * 1000})] * 4096)
    with Target(f"--batches-dir={tmp_path}", "--max-batch-files-bytes=16MiB") as target, contextlib.ExitStack() as stack:
        readers = []
        for _ in range(6):
            status, file = upload(target.port, text)
            assert status == 200, file
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.settimeout(60)
            reader.connect(("127.0.0.1", target.port))
            reader.sendall(f"GET /v1/files/{file['id']}/content HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert reader.recv(1024).startswith(b"HTTP/1.1 200 ")
            readers.append(reader)
            status, answer = ask(target.port, "DELETE", f"/v1/files/{file['id']}")
            assert status == 200, answer
        held = deleted_bytes(target.router.pid)
        print(f"{held / MIB:.1f} MiB of deleted files on the disk")
        assert held <= MIB
        for reader in readers:  # and no answer looks whole that is not
            taken, end = 0, b""
            with contextlib.suppress(ConnectionResetError):
                while piece := reader.recv(1 << 16):
                    taken, end = taken + len(piece), (end + piece)[-8:]
            assert taken < len(text) and not end.endswith(b"0\r\n\r\n"), (taken, end)
        wait_until(lambda: "(deleted)" not in str([os.readlink(f"/proc/{target.router.pid}/fd/{n}") for n in
                                                    os.listdir(f"/proc/{target.router.pid}/fd")]), "their end", 30)
        target.still_serves()
