"""The unmodified langchain-openai against a running router. Run by conformance_test.py with the pinned package.

usage: langchain_client.py BASE_URL MODEL
"""
import pathlib
import sys

from langchain_openai import ChatOpenAI, OpenAI

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

BASE_URL, MODEL = sys.argv[1] + "/v1", sys.argv[2]
SETTINGS = {"base_url": BASE_URL, "api_key": "unused", "model": MODEL, "temperature": 0, "max_retries": 0, "timeout": 120}


@check
def a_chat_streams_what_it_answers():
    chat = ChatOpenAI(max_tokens=12, stream_usage=True, **SETTINGS)
    whole = chat.invoke([("system", "You tell stories."), ("human", "Tell me one.")])
    assert whole.usage_metadata["output_tokens"] > 0 and whole.response_metadata["finish_reason"], whole
    parts = list(chat.stream([("system", "You tell stories."), ("human", "Tell me one.")]))
    assert "".join(str(p.content) for p in parts) == whole.content
    used = [p.usage_metadata for p in parts if p.usage_metadata]
    assert used and used[-1]["output_tokens"] == whole.usage_metadata["output_tokens"], used


@check
def several_at_once():
    chat = ChatOpenAI(max_tokens=6, **SETTINGS)
    answers = chat.batch(["One.", "Two.", "One."])
    assert answers[0].content == answers[2].content and len(answers) == 3


@check
def a_completion():
    text = OpenAI(max_tokens=6, **SETTINGS).invoke("Once upon a time")
    assert text


run_all("langchain")
