"""The unmodified langchain-openai against a running router. Run by conformance_test.py with the pinned package.

usage: langchain_client.py BASE_URL MODEL
"""
import pathlib
import sys
import typing

from langchain_openai import ChatOpenAI, OpenAI
from pydantic import BaseModel, Field

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


class Pet(BaseModel):
    """What is known of a pet."""
    kind: typing.Literal["cat", "dog", "owl"]
    age: int = Field(ge=0, le=20)


@check
def structured_output_is_an_object():
    chat = ChatOpenAI(max_tokens=1900, **{**SETTINGS, "temperature": 1.0, "seed": 3})
    assert isinstance(chat.with_structured_output(Pet).invoke("A pet."), Pet)
    assert isinstance(chat.with_structured_output(Pet, method="json_schema", strict=True).invoke("A pet."), Pet)
    both = chat.with_structured_output(Pet, include_raw=True).invoke("A pet.")
    assert both["parsing_error"] is None and both["raw"].response_metadata["finish_reason"] == "stop", both
    last = list(chat.with_structured_output(Pet).stream("A pet."))[-1]
    assert isinstance(last, Pet), last


run_all("langchain")
