"""Constraints over real tokenizers: the JSON-Schema-Test-Suite's instances are taken or refused as it says, and what is
drawn from masks validates."""
import json
import re
import subprocess

import jsonschema
import pytest
import suite
from harness import BIN, ROOT

TOKENIZERS = {  # and what may end a text
    "llama3": ("<|eot_id|>", "<|end_of_text|>"),
    "qwen3": ("<|im_end|>",),
    "gemma3": ("<end_of_turn>", "<eos>"),
    "gptoss": ("<|return|>", "<|call|>"),
    "deepseek_v3": ("<｜end▁of▁sentence｜>",),
}
SEEDS = 12

# Valid instances that the compiled grammar refuses, by the beginning of their name, and why.
SPELLING = "a whole number is written without a fraction: 1, not 1.0"
ORDER = "an object is written in the order of the schema, which here is that of the constant"
ASSERTED = "formats are enforced, where the suite has them as annotations"
EXCEPTIONS = {
    "const: const with object: same object with different property order": ORDER,
    "const: const with 0 does not match other zero-like types: float zero": SPELLING,
    "const: const with 1 does not match true: float one": SPELLING,
    "const: const with -2.0 matches integer and float types: float -2.0": SPELLING,
    "const: float and integers are equal up to 64-bit representation limits: float": SPELLING,
    "enum: enum with 0 does not match false: float zero": SPELLING,
    "enum: enum with [0] does not match [false]: [0.0]": SPELLING,
    "enum: enum with 1 does not match true: float one": SPELLING,
    "enum: enum with [1] does not match [true]: [1.0]": SPELLING,
    "type: integer type matches integers: a float with zero fractional part": SPELLING,
    **{f"format: {name} format: invalid": ASSERTED for name in (
        "email", "ipv4", "ipv6", "hostname", "date", "date-time", "time", "uri", "uuid", "duration")},
}

SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"},
                                      "tags": {"type": "array", "items": {"enum": ["a", "bc", "déf"]}, "maxItems": 3}},
     "required": ["name", "age"], "additionalProperties": False},
    {"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "boolean"}, {"const": "x\n\"y"}]},
     "minItems": 1, "maxItems": 4},
    {"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {"v": {"type": "number", "minimum": 0, "maximum": 99}, "next": {"anyOf": [
            {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": False}}},
    {"type": "object", "properties": {"id": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
                                      "when": {"type": "string", "format": "date"},
                                      "kind": {"const": "event"}}, "required": ["id", "when", "kind"],
     "additionalProperties": False},
    {"type": "object", "patternProperties": {"^k[0-9]$": {"type": "integer", "multipleOf": 5}},
     "additionalProperties": False},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]},
               {"properties": {"a": {"maximum": 20}, "b": {"type": "string", "minLength": 1, "maxLength": 3}},
                "required": ["b"], "additionalProperties": False}]},
    {"type": "array", "prefixItems": [{"type": "string", "maxLength": 5}, {"type": "integer"}], "items": False,
     "minItems": 2},
    {"type": "object", "properties": {"x": {"type": ["integer", "null"], "exclusiveMinimum": -5, "maximum": 5}},
     "required": ["x"], "additionalProperties": {"type": "boolean"}, "maxProperties": 1},
]
TEXTS = [  # kind, source, an expression for what comes out
    (2, "(yes|no|maybe [0-9]{1,3})", r"(yes|no|maybe [0-9]{1,3})"),
    (5, json.dumps(["red", "green", "grün", "re"]), "red|green|grün|re"),
    (3, 'root ::= "<" [a-f]{1,4} ("," root)? ">"', r"[<>,a-f]+"),
    (6, "start: \"id=\" NUMBER\nNUMBER: /[1-9][0-9]{0,5}/", r"id=[1-9][0-9]{0,5}"),
]


def check(tokenizer, lines):
    folder = ROOT / ".cache" / "npm-tokenizers" / tokenizer
    if not (folder / "tokenizer.json").exists():
        pytest.skip(f"{folder} is not fetched")
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([str(BIN / "constraint_check"), str(folder / "tokenizer.json"), *TOKENIZERS[tokenizer]],
                          input=text, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(lines)
    return answers


def ordered(value, schema):
    """The instance with its properties in the order of the schema's, as answers have them."""
    if isinstance(value, list):
        items = schema.get("items", {}) if isinstance(schema, dict) else {}
        first = schema.get("prefixItems", []) if isinstance(schema, dict) else []
        return [ordered(item, first[i] if i < len(first) else items) for i, item in enumerate(value)]
    if not isinstance(value, dict) or not isinstance(schema, dict):
        return value
    names, properties = [], {}
    for part in [schema, *schema.get("allOf", []), *schema.get("anyOf", [])]:
        if isinstance(part, dict):
            names += [*part.get("properties", {}), *part.get("required", [])]
            properties |= part.get("properties", {})
    keys = [key for key in dict.fromkeys(names) if key in value]
    keys += [key for key in value if key not in keys]
    return {key: ordered(value[key], properties.get(key, schema.get("additionalProperties", {}))) for key in keys}


def cases():
    if not suite.TESTS.is_dir():
        pytest.skip(f"{suite.TESTS} is not fetched; python3 tests/common/grammar/suite.py fetches it")
    for file in sorted(suite.TESTS.glob("*.json")):
        for group in json.loads(file.read_text()):
            yield file.stem, group


def test_instances_of_the_suite_are_taken_or_refused_as_it_says():
    groups = list(cases())
    lines = [{"kind": 1, "source": json.dumps(group["schema"]), "walks": [],
              "texts": [json.dumps(ordered(test["data"], group["schema"]), ensure_ascii=False)
                        for test in group["tests"]]} for _, group in groups]
    wrong, compiled, tried = {}, 0, 0
    for (file, group), answer in zip(groups, check("llama3", lines)):
        if "error" in answer:
            continue  # refused, with its reason: never emulated
        compiled += 1
        for test, taken in zip(group["tests"], answer["taken"]):
            tried += 1
            if taken and not test["valid"]:
                wrong[f"{file}: {group['description']}: {test['description']}"] = "taken"
            elif taken != test["valid"]:
                name = f"{file}: {group['description']}: {test['description']}"
                wrong[name] = "refused"
    assert not {name for name, how in wrong.items() if how == "taken"}
    known = {name for name in wrong if any(name.startswith(prefix) for prefix in EXCEPTIONS)}
    assert not {name: how for name, how in wrong.items() if name not in known}
    unused = [prefix for prefix in EXCEPTIONS if not any(name.startswith(prefix) for name in wrong)]
    assert not unused, "these exceptions are none any more"
    assert compiled >= 160 and tried >= 580, (compiled, tried)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_what_is_drawn_from_masks_validates(tokenizer):
    lines = [{"kind": 1, "source": json.dumps(schema), "texts": [], "walks": list(range(SEEDS))} for schema in SCHEMAS]
    lines += [{"kind": kind, "source": source, "texts": [], "walks": list(range(SEEDS))} for kind, source, _ in TEXTS]
    answers = check(tokenizer, lines)
    finished = 0
    for schema, answer in zip(SCHEMAS, answers):
        for text in answer["walks"]:
            assert text is None or not text.startswith("!"), text
            if text is not None:
                finished += 1
                jsonschema.validate(json.loads(text), schema)
    for (_, source, expression), answer in zip(TEXTS, answers[len(SCHEMAS):]):
        for text in answer["walks"]:
            assert text is None or re.fullmatch(expression, text), (source, text)
            finished += text is not None
    assert finished >= 0.9 * SEEDS * len(lines), finished
