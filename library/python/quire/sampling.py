"""How an answer is drawn: vLLM's SamplingParams, checked by name here and by range in the library."""
from __future__ import annotations

import difflib
import json

# Each field with its neutral value. None is left to the model, or is off.
FIELDS = {
    "n": 1, "presence_penalty": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "temperature": 1.0, "top_p": 1.0,
    "top_k": 0, "min_p": 0.0, "typical_p": None, "seed": None, "stop": None, "stop_token_ids": None, "bad_words": None,
    "include_stop_str_in_output": False, "ignore_eos": False, "max_tokens": 16, "min_tokens": 0, "logprobs": None,
    "prompt_logprobs": None, "skip_special_tokens": True, "spaces_between_special_tokens": True,
    "truncate_prompt_tokens": None, "structured_outputs": None, "logit_bias": None, "allowed_token_ids": None,
}
# Fields of vLLM that are taken at their neutral value only.
ONLY = {"best_of": (None, 1), "detokenize": (True,), "output_kind": (None, 0), "logits_processors": (None, []),
        "extra_args": (None, {}), "flat_logprobs": (None, False), "skip_clone": (False,)}
CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
CONSTRAINT_OPTIONS = ("disable_any_whitespace", "disable_additional_properties", "whitespace_pattern")


def _unknown(name, known, of):
    near = difflib.get_close_matches(name, known, 1)
    return TypeError(f"{of} has no field {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


class StructuredOutputsParams:
    """What the text of an answer must be: one of json, regex, choice, grammar, json_object and structural_tag."""

    def __init__(self, **fields):
        for name in fields:
            if name not in CONSTRAINTS + CONSTRAINT_OPTIONS:
                raise _unknown(name, CONSTRAINTS + CONSTRAINT_OPTIONS, "StructuredOutputsParams")
        for name in CONSTRAINTS + CONSTRAINT_OPTIONS:
            setattr(self, name, fields.get(name))
        given = [name for name in CONSTRAINTS if fields.get(name)]
        if len(given) != 1:
            raise ValueError(f"StructuredOutputsParams takes exactly one of {', '.join(CONSTRAINTS)}; "
                             f"it has {', '.join(given) or 'none'}")

    def to_json(self):
        fields = {name: getattr(self, name) for name in CONSTRAINTS + CONSTRAINT_OPTIONS}
        return {name: value for name, value in fields.items() if value not in (None, False)}

    def __repr__(self):
        return f"StructuredOutputsParams({', '.join(f'{name}={value!r}' for name, value in self.to_json().items())})"


class SamplingParams:
    """vLLM's fields under vLLM's names and defaults. A name that is none of them is refused."""

    def __init__(self, **fields):
        for name, value in list(fields.items()):
            if name in ONLY:
                if value not in ONLY[name]:
                    raise ValueError(f"{name} is not served; leave it out")
                del fields[name]
            elif name == "guided_decoding":  # its name in older releases
                fields["structured_outputs"] = fields.pop(name)
            elif name not in FIELDS:
                raise _unknown(name, [*FIELDS, *ONLY], "SamplingParams")
        for name, neutral in FIELDS.items():
            setattr(self, name, fields.get(name, neutral))
        if isinstance(self.structured_outputs, dict):
            self.structured_outputs = StructuredOutputsParams(**self.structured_outputs)

    def clone(self):
        copy = SamplingParams()
        copy.__dict__.update(self.__dict__)
        return copy

    def body(self, chat=False):
        """The fields of a request."""
        fields = {name: getattr(self, name) for name in FIELDS}
        body = {name: value for name, value in fields.items() if value is not None}
        if self.structured_outputs is not None:
            body["structured_outputs"] = self.structured_outputs.to_json()
        if self.logit_bias is not None:
            body["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        if self.max_tokens is None and not chat:
            body["max_tokens"] = None  # the rest of the context: settled by whoever knows the prompt
        if chat and self.logprobs is not None:
            body["logprobs"], body["top_logprobs"] = True, self.logprobs
        return body

    def __repr__(self):
        shown = [f"{name}={getattr(self, name)!r}" for name, neutral in FIELDS.items() if getattr(self, name) != neutral]
        return f"SamplingParams({', '.join(shown)})"


def dumps(body):
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
