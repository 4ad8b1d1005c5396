"""The unmodified OpenAI client and files and batches. Run by conformance_test.py with the pinned package.

usage: openai_batches_client.py BASE_URL MODEL
"""
import json
import pathlib
import sys
import time

import openai

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

BASE_URL, MODEL = sys.argv[1], sys.argv[2]
client = openai.OpenAI(base_url=BASE_URL + "/v1", api_key="unused", max_retries=0, timeout=120)


def lines(count, url="/v1/chat/completions", **body):
    if url == "/v1/chat/completions":
        body = {"messages": [{"role": "user", "content": "Hello"}], **body}
    return "\n".join(json.dumps({"custom_id": f"r{i}", "method": "POST", "url": url, "body": {"model": MODEL, **body}})
                     for i in range(count)).encode()


def uploaded(data):
    return client.files.create(file=("requests.jsonl", data), purpose="batch")


def ended(batch):
    for _ in range(1200):
        batch = client.batches.retrieve(batch.id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        time.sleep(0.05)
    raise AssertionError(f"is still {batch.status}")


@check
def files_are_kept_listed_read_and_deleted():
    made = [uploaded(f"line {i}\n".encode()) for i in range(5)]
    assert made[0].purpose == "batch" and made[0].bytes == 7 and made[0].filename == "requests.jsonl", made[0]
    assert client.files.retrieve(made[1].id).model_dump() == made[1].model_dump()
    assert client.files.content(made[2].id).text == "line 2\n"
    ids = [file.id for file in client.files.list(limit=2, purpose="batch")]  # follows its pages
    assert [one.id for one in reversed(made)] == ids[:5], ids
    for file in made:
        assert client.files.delete(file.id).deleted
    try:
        client.files.retrieve(made[0].id)
    except openai.NotFoundError:
        return
    raise AssertionError("a deleted file is there")


@check
def a_batch_of_chats():
    file = uploaded(lines(6, max_tokens=4))
    batch = client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h",
                                  metadata={"run": "one"})
    assert batch.object == "batch" and batch.metadata == {"run": "one"} and batch.input_file_id == file.id, batch
    batch = ended(batch)
    assert batch.status == "completed" and batch.error_file_id is None, batch
    assert (batch.request_counts.total, batch.request_counts.completed, batch.request_counts.failed) == (6, 6, 0), batch
    assert batch.created_at <= batch.in_progress_at <= batch.finalizing_at <= batch.completed_at < batch.expires_at
    found = [json.loads(line) for line in client.files.content(batch.output_file_id).text.splitlines()]
    assert sorted(one["custom_id"] for one in found) == [f"r{i}" for i in range(6)], found
    for one in found:
        openai.types.chat.ChatCompletion.model_validate(one["response"]["body"])
        assert one["response"]["status_code"] == 200 and one["error"] is None, one
    output = client.files.retrieve(batch.output_file_id)
    assert output.purpose == "batch_output" and output.filename.endswith("_output.jsonl"), output


@check
def a_batch_of_responses_and_one_with_failures():
    file = uploaded(lines(2, "/v1/responses", input="Hello", max_output_tokens=4))
    batch = ended(client.batches.create(input_file_id=file.id, endpoint="/v1/responses", completion_window="24h"))
    assert batch.status == "completed" and batch.request_counts.completed == 2, batch
    file = uploaded(lines(2, max_tokens=-1))
    batch = ended(client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"))
    assert batch.status == "completed" and batch.output_file_id is None and batch.request_counts.failed == 2, batch
    assert client.files.content(batch.error_file_id).text.count('"status_code":400') == 2


@check
def a_broken_file_fails_with_its_lines():
    file = uploaded(lines(1) + b"\n{broken\n" + lines(1))
    batch = ended(client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"))
    assert batch.status == "failed" and batch.failed_at and batch.errors.object == "list", batch
    assert [(one.code, one.line) for one in batch.errors.data] == [("invalid_json", 2), ("duplicate_custom_id", 3)], batch


@check
def batches_are_cancelled_and_listed():
    file = uploaded(lines(200, max_tokens=400, ignore_eos=True))
    made = [client.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
            for _ in range(3)]
    for batch in made:
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    for batch in made:
        batch = ended(batch)
        assert batch.status == "cancelled" and batch.cancelled_at >= batch.cancelling_at, batch
    ids = [batch.id for batch in client.batches.list(limit=2)]
    assert ids[:3] == [batch.id for batch in reversed(made)], ids


@check
def what_is_not_served_is_said():
    file = uploaded(lines(1))
    for more, word in (({"endpoint": "/v1/embeddings"}, "endpoint"), ({"completion_window": "48h"}, "completion_window")):
        try:
            client.batches.create(**{"input_file_id": file.id, "endpoint": "/v1/completions", "completion_window": "24h", **more})
        except openai.BadRequestError as error:
            assert error.param == word, error
            continue
        raise AssertionError(f"{more} was served")
    try:
        client.files.create(file=b"x", purpose="fine-tune")
    except openai.BadRequestError as error:
        assert error.param == "purpose", error
        return
    raise AssertionError("a purpose that is not served was taken")


run_all("openai batches")
