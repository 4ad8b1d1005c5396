"""The unmodified langchain: an agent that calls tools until its model answers. Run by agents_test.py with the pinned packages.

usage: langchain_agent_client.py BASE_URL MODEL
"""
import pathlib
import sys

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_openai import ChatOpenAI

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

SETTINGS = {"base_url": sys.argv[1] + "/v1", "api_key": "unused", "model": sys.argv[2], "max_retries": 0, "timeout": 120, "max_tokens": 200}
CALLED = []


def get_weather(city: str, days: list[int]) -> str:
    """The weather of a city."""
    CALLED.append((city, days))
    return "12 degrees"


def get_time() -> str:
    """The time."""
    CALLED.append(())
    return "noon"


def agent(**settings):
    CALLED.clear()
    return create_agent(ChatOpenAI(**SETTINGS, **settings), [get_weather, get_time])


QUESTION = {"messages": [{"role": "user", "content": "What is the weather in Paris?"}]}


def holds(messages):
    assert CALLED == [("Paris", [1, 2]), ()] or sorted(map(len, CALLED)) == [0, 2], CALLED
    assert sum(isinstance(message, ToolMessage) for message in messages) == 2, messages
    last = messages[-1]
    assert isinstance(last, AIMessage) and last.content == "It is 12 degrees in Paris." and not last.tool_calls, last


@check
def an_agent_calls_its_tools_and_answers():
    holds(agent().invoke(QUESTION)["messages"])


@check
def an_agent_streams():
    steps = list(agent(streaming=True).stream(QUESTION, stream_mode="values"))
    holds(steps[-1]["messages"])
    pieces = [piece for piece, _ in agent(streaming=True).stream(QUESTION, stream_mode="messages")]
    assert "".join(str(p.content) for p in pieces if type(p).__name__ == "AIMessageChunk").endswith("It is 12 degrees in Paris."), pieces


run_all("langchain agent")
