"""Constraints from end to end: a real router and worker, every spelling, streamed and not, over HTTP and the command line; each answer
that ends by itself is checked by other programs: Python's json and re, and the package jsonschema.
"""
import json
import pathlib
import re
import subprocess
import tempfile

import jsonschema
import pytest

from harness import BIN, Server, expect

# The demo model would fill every place for white space, so that answers would be long.
COMPACT = {"x-guidance": {"whitespace_flexible": False}}
PET = {**COMPACT, "type": "object", "additionalProperties": False, "required": ["kind", "name", "age"],
       "properties": {"kind": {"enum": ["cat", "dog"]}, "name": {"type": "string", "maxLength": 8},
                      "age": {"type": "integer", "minimum": 0, "maximum": 20},
                      "colours": {"type": "array", "maxItems": 2, "items": {"enum": ["red", "white"]}}}}
TREE = {**COMPACT, "$defs": {"node": {"type": "object", "additionalProperties": False, "required": ["v"],
                           "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9},
                                          "next": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]}}},
                  "leaf": {"type": "array", "maxItems": 2, "items": {"type": "boolean"}}},
        "$ref": "#/$defs/node"}
GBNF = 'root ::= move (" " move){0,3}\nmove ::= [a-h] [1-8]'
LARK = '%llguidance {}\nstart: "go" (" " /[0-9]{1,2}/)?'
TAG = {"format": {"type": "sequence", "elements": [
    {"type": "const_string", "value": "<pet>"}, {"type": "json_schema", "json_schema": PET},
    {"type": "const_string", "value": "</pet>"}]}}
MOVES = "[a-h][1-8]( [a-h][1-8]){0,3}"


def fits(schema):
    return lambda text: jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def matches(expression):
    return lambda text: expect(re.fullmatch(expression, text), f"{text!r} does not match {expression}")


def tagged(text):
    expect(text.startswith("<pet>") and text.endswith("</pet>"), text)
    fits(PET)(text[5:-6])


def nested(schema):
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


SPELLINGS = [  # fields of a body, and what holds its answer to them
    ({"response_format": nested(PET)}, fits(PET)),
    ({"response_format": nested(TREE)}, fits(TREE)),
    ({"response_format": {"type": "json_object", "schema": PET}}, fits(PET)),
    ({"response_format": {"type": "json", "value": PET}}, fits(PET)),
    ({"response_format": {"type": "structural_tag", **TAG}}, tagged),
    ({"structured_outputs": {"json": PET, "disable_any_whitespace": True}},
     lambda text: (fits(PET)(text), expect(text == json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False), text))),
    ({"structured_outputs": {"json": {"type": "object", "required": ["a"], "properties": {"a": {"enum": [1, 2]}}},
                             "disable_additional_properties": True}},
     lambda text: expect(json.loads(text) in ({"a": 1}, {"a": 2}), text)),
    ({"structured_outputs": {"regex": "[0-9]{3}-[a-f]{2,4}"}}, matches("[0-9]{3}-[a-f]{2,4}")),
    ({"structured_outputs": {"choice": ["yes", "no", "perhaps"]}}, matches("yes|no|perhaps")),
    ({"structured_outputs": {"grammar": GBNF}}, matches(MOVES)),
    ({"structured_outputs": {"structural_tag": json.dumps(TAG)}}, tagged),
    ({"guided_json": json.dumps(PET), "guided_whitespace_pattern": " ?"}, fits(PET)),
    ({"guided_regex": "(ab|cd){2}"}, matches("(ab|cd){2}")),
    ({"guided_choice": ["é", "日本", "🙂"]}, matches("é|日本|🙂")),
    ({"grammar": GBNF}, matches(MOVES)),
    ({"grammar": LARK}, matches("go( [0-9]{1,2})?")),
    ({"json_schema": PET}, fits(PET)),
]


@pytest.fixture(scope="module")
def server():
    with Server("--served-model-name=demo") as running:
        yield running


def body(route, seed, **fields):
    prompt = {"prompt": "Once upon a time"} if route == "/v1/completions" else {
        "messages": [{"role": "user", "content": "Tell me something."}]}
    return {"model": "demo", "max_tokens": 300, "temperature": 1.0, "seed": seed, **prompt, **fields}


def text_of(choice):
    return choice["text"] if "text" in choice else (choice.get("message") or choice["delta"]).get("content") or ""


def asked(server, route, request):
    """(text, finish_reason) of each choice."""
    status, answer = server.post(route, request)
    expect(status == 200, f"{request}: {status} {answer}")
    return [(text_of(choice), choice["finish_reason"]) for choice in answer["choices"]]


def streamed(server, route, request):
    texts, reasons = {}, {}
    for data in server.stream(route, request):
        if data == "[DONE]":
            break
        event = json.loads(data)
        expect("error" not in event, event)
        for choice in event["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + text_of(choice)
            reasons[choice["index"]] = choice["finish_reason"] or reasons.get(choice["index"])
    return [(texts[i], reasons[i]) for i in sorted(texts)]


@pytest.mark.parametrize("route", ["/v1/completions", "/v1/chat/completions"])
def test_every_spelling_is_kept_streamed_and_not(server, route):
    for number, (fields, check) in enumerate(SPELLINGS):
        request = body(route, number, **fields)
        whole = asked(server, route, request)
        expect(streamed(server, route, request) == whole, f"{fields}: the stream differs from {whole}")
        (text, reason), = whole
        expect(reason == "stop", f"{fields}: ended by {reason}: {text!r}")
        check(text)


def test_white_space_is_bounded(server):
    schema = {**PET, "x-guidance": {}}
    (text, reason), = asked(server, "/v1/completions", body("/v1/completions", 1, guided_json=schema, max_tokens=1600))
    expect(reason == "stop", text)
    fits(PET)(text)
    expect(max(map(len, re.findall(r"\s+", text))) <= 64, text)


def test_any_object_is_an_object(server):
    found = 0
    for seed in range(4):
        (text, reason), = asked(server, "/v1/completions", body("/v1/completions", seed, max_tokens=150,
                                                                response_format={"type": "json_object"}))
        expect(text.lstrip().startswith("{"), text)
        if reason == "stop":
            found += 1
            expect(isinstance(json.loads(text), dict), text)
    print(f"{found} of 4 objects were whole")


def test_choices_penalties_and_logprobs_go_with_it(server):
    request = body("/v1/completions", 3, response_format=nested(PET), n=3, logprobs=2, frequency_penalty=0.5,
                   repetition_penalty=1.1, return_token_ids=True)
    status, answer = server.post("/v1/completions", request)
    expect(status == 200, answer)
    expect(len({choice["text"] for choice in answer["choices"]}) > 1, "three choices are the same")
    for choice in answer["choices"]:
        fits(PET)(choice["text"])
        expect(len(choice["logprobs"]["token_logprobs"]) == len(choice["token_ids"]), choice)
    # Each of them is the same when it is asked again, among others and from the cache.
    expect(server.post("/v1/completions", request)[1]["choices"] == answer["choices"], "it came out differently")


def test_properties_come_in_the_schemas_order(server):
    for names in (["zebra", "apple", "mouse"], ["apple", "mouse", "zebra"]):
        schema = {**COMPACT, "type": "object", "properties": {name: {"enum": [1]} for name in names}, "required": names,
                  "additionalProperties": False}
        (text, _), = asked(server, "/v1/completions", body("/v1/completions", 1, guided_json=schema))
        expect(list(json.loads(text)) == names, text)


def test_cuts_say_so_and_ends_are_ends(server):
    long = {**COMPACT, "type": "array", "minItems": 200, "items": {"type": "integer"}}
    (text, reason), = asked(server, "/v1/completions", body("/v1/completions", 1, guided_json=long, max_tokens=20))
    expect(reason == "length" and text, (text, reason))
    (text, reason), = asked(server, "/v1/completions", body("/v1/completions", 1, guided_regex="abcdef", stop=["cd"]))
    expect((text, reason) == ("ab", "stop"), (text, reason))
    for more in ({"ignore_eos": True}, {"min_tokens": 50}, {"ignore_eos": True, "min_tokens": 50, "skip_special_tokens": False}):
        found = asked(server, "/v1/completions", body("/v1/completions", 1, guided_choice=["yes"], **more))
        expect(found == [("yes", "stop")], (more, found))


def sentence(answer):
    return answer["error"]["message"], answer["error"]["param"]


REFUSED = [  # fields, the field that is blamed, words of the message
    ({"guided_json": {"properties": {"a": {"not": {"type": "string"}}}}}, "guided_json", ["guided_json: /properties/a", "not"]),
    ({"response_format": nested({"properties": {"a": {"format": "byte"}}})}, "response_format.json_schema.schema", ["/properties/a", "byte"]),
    ({"guided_json": {"$ref": "https://example.com/schema.json"}}, "guided_json", ["never fetched", "#/$defs"]),
    ({"guided_json": False}, "guided_json", ["schema"]),
    ({"guided_regex": "(a"}, "guided_regex", []),
    ({"guided_regex": "(?=a)b"}, "guided_regex", ["look-around"]),
    ({"guided_regex": "[0-9]{1000000}"}, "guided_regex", ["65536"]),
    ({"grammar": 'root ::= "a" missing'}, "grammar", ["missing"]),
    ({"grammar": "start: start"}, "grammar", []),
    ({"structural_tag": {"format": {"type": "nothing"}}}, "structural_tag", ["/format"]),
    ({"guided_json": {}, "guided_choice": ["a"]}, "guided_choice", ["guided_json"]),
    ({"guided_json": {"type": "string"}, "use_beam_search": True}, "guided_json", ["use_beam_search"]),
]


def test_what_cannot_be_compiled_is_refused_by_its_path_before_a_token(server):
    for fields, param, words in REFUSED:
        for stream in (False, True):
            status, answer = server.post("/v1/completions", body("/v1/completions", 1, stream=stream, **fields))
            expect(status == 400, f"{fields}: {status} {answer}")
            message, blamed = sentence(answer)
            expect(blamed == param and message.startswith(param + ": "), f"{fields}: {answer}")
            expect(all(word in message for word in words) and len(message) < 900, f"{fields}: {message}")


def test_hostile_constraints_end_and_hurt_nobody(server):
    deep = {"type": "string"}
    for _ in range(25):
        deep = {"type": "array", "items": deep}
    rules = "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40)) + '\nr40 ::= "a"'
    bombs = [
        {"guided_regex": "(" * 90 + "a" + "+)+" * 90},
        {"guided_regex": "(.*a){30}.{200}"},
        {"guided_json": {"enum": [f"{i:06d}" for i in range(20_000)]}},
        {"grammar": "root ::= r0\n" + rules},
        {"guided_json": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}},
        {"guided_json": {"allOf": [{"anyOf": [{"properties": {f"p{i}{k}": {}}} for k in range(8)]} for i in range(8)]}},
        {"guided_json": deep},
        {"guided_json": {"enum": [f"{i:01000d}" for i in range(10_000)]}},  # 10 MB
    ]
    for bomb in bombs:
        status, answer = server.post("/v1/completions", body("/v1/completions", 1, max_tokens=3, **bomb))
        expect(status in (200, 400), f"{str(bomb)[:80]}: {status} {answer}")
        if status == 400:
            expect(answer["error"]["param"] in bomb, answer)
    (text, _), = asked(server, "/v1/completions", body("/v1/completions", 1, guided_choice=["yes"]))
    expect(text == "yes", "others are served")


def quire(server, *arguments, folder=None):
    done = subprocess.run([str(BIN / "quire"), *arguments, f"--url=http://127.0.0.1:{server.port}", "--seed=4"],
                          capture_output=True, text=True, timeout=120, cwd=folder)
    return done.returncode, done.stdout.rstrip("\n"), done.stderr


def test_the_command_line_takes_schemas_expressions_and_grammars(server):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.joinpath("pet.json").write_text(json.dumps(PET))
        folder.joinpath("moves.gbnf").write_text(GBNF)
        folder.joinpath("empty").write_text("")
        folder.joinpath("large").write_text("a" * (128 * 1024 + 1))

        def complete(*flags):
            return quire(server, "complete", "Once upon a time", "--max-tokens=300", *flags, folder=folder)
        for flags, check in [(["--json-schema=pet.json"], fits(PET)), ([f"--json-schema={json.dumps(PET)}"], fits(PET)),
                             (["--regex=[0-9]{4}"], matches("[0-9]{4}")), (["--grammar=moves.gbnf"], matches(MOVES))]:
            code, out, err = complete(*flags)
            expect(code == 0, (flags, err))
            check(out)
        for flags, says in [(["--json-schema=nowhere.json"], "--json-schema: nowhere.json"),
                            (["--json-schema={"], "--json-schema: "), (["--grammar=empty"], "--grammar: empty is empty"),
                            (["--grammar=large"], "--grammar: large has more than 131072 bytes"),
                            (["--regex=a", "--grammar=moves.gbnf"], "--grammar: --regex already"),
                            (['--json-schema={"not": {}}'], "response_format.json_schema.schema: ")]:
            code, out, err = complete(*flags)
            expect(code == 2 and says in err and err.count("\n") == 1, (flags, code, err))
        done = subprocess.run([str(BIN / "quire"), "chat", "--json-schema=pet.json", f"--url=http://127.0.0.1:{server.port}"],
                              input="A pet.\n", capture_output=True, text=True, timeout=120, cwd=folder)
        expect(done.returncode == 0, done.stderr)
        fits(PET)(done.stdout)
