"""Attacks by kept files: what the disk holds and no limit counts."""
import contextlib
import json
import os
import socket

from http_batches_test import ask, create, upload, wait_for_end
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


def test_long_answers_of_batches_hold_a_few_times_their_size(tmp_path):
    """Choices times tokens times logprobs in one line of a batch, whose answer goes to the disk."""
    body = {"model": "demo", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1000, "ignore_eos": True, "n": 6,
            "logprobs": True, "top_logprobs": 20}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body})
    with Target(f"--batches-dir={tmp_path}") as target:
        status, file = upload(target.port, line)
        assert status == 200, file
        with target.router.growth(64 * MIB, "an answer of 8 MB"):
            status, batch = create(target.port, file["id"], endpoint="/v1/chat/completions")
            assert status == 200, batch
            batch = wait_for_end(target.port, batch["id"])
        status, text = ask(target.port, "GET", f"/v1/files/{batch['output_file_id']}/content")
        assert status == 200 and len(text) > 7 * MIB, (status, len(text))
        answer = json.loads(text)["response"]["body"]
        assert [len(choice["logprobs"]["content"]) for choice in answer["choices"]] == [1000] * 6
        target.still_serves()
