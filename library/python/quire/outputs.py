"""Answers in vLLM's shapes."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Union


@dataclass
class Logprob:
    logprob: float
    rank: Optional[int] = None  # None where it is not known
    decoded_token: Optional[str] = None


@dataclass
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: List[int] = field(default_factory=list)
    cumulative_logprob: Optional[float] = None
    logprobs: Optional[List[Dict[int, Logprob]]] = None
    finish_reason: Optional[str] = None
    stop_reason: Union[int, str, None] = None
    lora_request: Any = None

    def finished(self):
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    request_id: str
    prompt: Optional[str]
    prompt_token_ids: List[int]
    prompt_logprobs: Optional[List[Optional[Dict[int, Logprob]]]]
    outputs: List[CompletionOutput]
    finished: bool
    num_cached_tokens: Optional[int] = None
    metrics: Any = None
    lora_request: Any = None


def _value(logprob):
    return -math.inf if logprob is None else logprob


def _position(entry):
    """The candidates of one position by id, best first, and the token itself."""
    if entry is None:
        return None
    found = {one["id"]: Logprob(_value(one["logprob"]), rank, one["token"]) for rank, one in enumerate(entry["top"], 1)}
    if entry["id"] not in found:
        found[entry["id"]] = Logprob(_value(entry["logprob"]), entry["rank"] or None, entry["token"])
    return found


class Assembler:
    """Makes a RequestOutput of a request's events."""

    def __init__(self, request_id, prompt, logprobs):
        self.logprobs = logprobs
        self.output = RequestOutput(request_id, prompt, [], None, [], False)

    def take(self, event):
        """True once something of the answer has changed."""
        output = self.output
        if "prompt_token_ids" in event:
            output.prompt_token_ids = event["prompt_token_ids"]
        if "prompt_logprobs" in event:
            output.prompt_logprobs = [_position(entry) for entry in event["prompt_logprobs"]]
        for part in event.get("outputs", [event] if "index" in event else []):
            self._add(part)
        if event["event"] == "done":
            output.num_cached_tokens = event["usage"]["cached_tokens"]
            output.finished = True
        return event["event"] != "start"

    def _add(self, part):
        outputs = self.output.outputs
        while len(outputs) <= part["index"]:
            outputs.append(CompletionOutput(len(outputs), logprobs=[] if self.logprobs else None,
                                            cumulative_logprob=0.0 if self.logprobs else None))
        choice = outputs[part["index"]]
        choice.text += part.get("text", "")
        choice.token_ids.extend(part.get("token_ids", ()))
        if self.logprobs:
            for entry in part.get("logprobs", ()):
                choice.logprobs.append(_position(entry))
                choice.cumulative_logprob += _value(entry["logprob"])
        if "finish_reason" in part:
            choice.finish_reason, choice.stop_reason = part["finish_reason"], part["stop_reason"]
