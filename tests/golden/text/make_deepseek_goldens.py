#!/usr/bin/env python3
"""Writes chats_deepseek_v32.json: conversations, and the prompts that DeepSeek V3.2's own program makes of them.

    python3 tests/golden/text/make_deepseek_goldens.py FOLDER

FOLDER holds encoding_dsv32.py, which the model's repository on the hub has under encoding/. It is called as vLLM calls it:
tools are those of a system message in front, and thoughts of earlier turns are dropped when a question comes last.
"""
import json
import pathlib
import sys

from make_text_goldens import TOOLS, make_chats

HERE = pathlib.Path(__file__).resolve().parent


def more():
    """What the common conversations lack: several results, thoughts between calls, a developer's question."""
    user = lambda text: {"role": "user", "content": text}
    tool = lambda text, id: {"role": "tool", "tool_call_id": id, "content": text}
    call = lambda name, args, id: {"id": id, "type": "function", "function": {"name": name, "arguments": args}}
    two = {"role": "assistant", "content": "Let me see.", "reasoning_content": "Both at once.",
           "tool_calls": [call("add", {"a": 1, "b": [2, {"c": None}]}, "c1"), call("get_weather", {"city": "Bern"}, "c2")]}
    none = {"role": "assistant", "content": "", "tool_calls": [call("add", {}, "c3")]}
    last = {"role": "assistant", "content": "Sunny.", "reasoning_content": "Done."}
    yield [user("go"), two, tool("3", "c1")]
    yield [user("go"), two, tool("3", "c1"), tool("sunny", "c2")]
    yield [user("go"), two, tool("3", "c1"), tool("sunny", "c2"), none, tool("0", "c3")]
    yield [user("go"), two, tool("3", "c1"), tool("sunny", "c2"), last]
    yield [user("go"), two, tool("3", "c1"), tool("sunny", "c2"), last, user("and now?")]
    yield [user("a"), last, user("b")]
    yield [user("a"), last, {"role": "developer", "content": "d"}]
    yield [user("go"), two, tool("3", "c1"), tool("sunny", "c2"), tool("more", "c3")]
    yield [user("go"), tool("3", "c1")]


def encode(encoding, messages, tools, thinks):
    """The prompt, or None where the program refuses."""
    told = [{k: v for k, v in message.items() if v is not None} for message in messages]
    for message in told:
        for made in message.get("tool_calls", []):
            if not isinstance(made["function"]["arguments"], str):
                made["function"] = {**made["function"], "arguments": json.dumps(made["function"]["arguments"])}
    front = [{"role": "system", "tools": tools}] if tools else []
    try:
        return encoding.encode_messages(front + told, thinking_mode="thinking" if thinks else "chat",
                                        drop_thinking=messages[-1]["role"] == "user")
    except (AssertionError, NotImplementedError):
        return None


def main():
    sys.path.insert(0, sys.argv[1])
    import encoding_dsv32
    plain = lambda chat: all(isinstance(m["content"], str) for m in chat["messages"]) and not chat.get("continue_final_message")
    seen, cases = set(), []
    chats = [(chat["messages"], chat["tools"]) for chat in make_chats() if plain(chat)]
    for messages, tools in chats + [(messages, TOOLS) for messages in more()]:
        key = json.dumps([messages, tools])
        if key in seen:
            continue
        seen.add(key)
        parsed = json.loads(json.dumps(messages))
        asks = [m["role"] for m in messages if m["role"] in ("user", "developer")]
        # The program stumbles over a developer's message that it drops itself.
        for thinks in (False, True)[:1 if "developer" in asks[:-1] else 2]:
            cases.append({"messages": json.dumps(messages, ensure_ascii=False), "thinks": thinks,
                          "tools": json.dumps(tools, ensure_ascii=False) if tools else "",
                          "text": encode(encoding_dsv32, json.loads(json.dumps(parsed)), tools, thinks)})
    (HERE / "chats_deepseek_v32.json").write_text(json.dumps(cases, ensure_ascii=False, indent=0) + "\n")
    print(f"{len(cases)} prompts, {sum(case['text'] is None for case in cases)} refused")


if __name__ == "__main__":
    main()
