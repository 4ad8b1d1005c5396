"""Models of random weights over real tokenizers, which write any token with nearly the same probability: every constrained
answer that ends by itself fits its schema, as the package jsonschema reads it, for random pairs of a schema and a seed."""
import concurrent.futures
import json
import random
import time

import jsonschema
import pytest

import random_model
import record as recording
from harness import Server, expect
from tier import LONG, RECORD

PAIRS = 2000 if LONG else 60  # of a schema and a seed, for each tokenizer
AT_ONCE = 32
NAMES = ("id", "name", "größe", "a value", "x-1", "日付", "type", "flag", "\"quoted\"", "n/m")
FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "ipv6")
PATTERNS = ("^[A-Z]{2}-[0-9]{3}$", "^(ab|cd)*$", "^.{0,4}$", "^[^a-z]{1,3}$", "^[α-ω]+x?$")


def string(draw):
    kind = draw.randrange(3)
    if kind == 0:
        return {"type": "string", "format": draw.choice(FORMATS)}
    if kind == 1:
        return {"type": "string", "pattern": draw.choice(PATTERNS)}
    return {"type": "string", "minLength": draw.randrange(3), "maxLength": draw.randrange(3, 12)}


def number(draw):
    low = draw.randrange(-50, 50)
    limits = {"minimum": low, "maximum": low + draw.randrange(200)}
    if draw.randrange(3) == 0:
        return {"type": "integer", "minimum": 0, "maximum": 500, "multipleOf": draw.choice((2, 5, 10))}
    return {"type": draw.choice(("integer", "number")), **limits}


def array(draw, depth):
    if draw.randrange(3) == 0:
        first = [schema(draw, depth - 1) for _ in range(draw.randrange(1, 3))]
        return {"type": "array", "prefixItems": first, "minItems": len(first), "items": False}
    low = draw.randrange(2)
    return {"type": "array", "items": schema(draw, depth - 1), "minItems": low, "maxItems": low + draw.randrange(1, 3)}


def an_object(draw, depth):
    names = draw.sample(NAMES, draw.randrange(1, 4))
    made = {"type": "object", "properties": {name: schema(draw, depth - 1) for name in names},
            "required": draw.sample(names, draw.randrange(len(names) + 1)), "additionalProperties": False}
    if draw.randrange(4) == 0:
        made["patternProperties"] = {"^k[0-9]$": {"type": "boolean"}}
    return made


def schema(draw, depth):
    simple = (string, number, lambda draw: {"enum": draw.sample([1, "two", None, True, "drei\n", 4.5, ["x"], {"y": 0}], 3)},
              lambda draw: {"type": draw.choice(("boolean", "null"))}, lambda draw: {"const": draw.choice(NAMES)})
    if depth == 0 or draw.randrange(3) == 0:
        return draw.choice(simple)(draw)
    return draw.choice((an_object, array, lambda draw, depth: {
        "anyOf": [schema(draw, depth - 1), {"type": "null"}]}, an_object))(draw, depth)


def body(seed):
    draw = random.Random(seed)
    made = schema(draw, draw.randrange(1, 4))
    return made, {"model": "m", "prompt": f"{seed}:", "max_tokens": 400, "seed": seed, "temperature": draw.choice((0.7, 1.0, 2.0)),
                  "structured_outputs": {"json": made, "disable_any_whitespace": seed % 4 != 0}}


def answered(server, seed):
    """Whether the answer ended by itself; it fits then."""
    made, request = body(seed)
    status, answer = server.post("/v1/completions", request)
    expect(status == 200, f"{json.dumps(made)}: {status} {answer}")
    choice, = answer["choices"]
    if choice["finish_reason"] == "length":
        return False
    expect(choice["finish_reason"] == "stop", choice)
    try:
        jsonschema.validate(json.loads(choice["text"]), made, cls=jsonschema.Draft202012Validator)
    except ValueError as error:
        raise AssertionError(f"seed {seed}, {json.dumps(made)}: {choice['text']!r}") from error
    return True


@pytest.fixture(scope="module")
def ended_of():
    """By tokenizer: how many answers ended by themselves, of how many."""
    run, found = recording.Run(), {}
    yield found
    if RECORD:
        recording.record("random_answers", {"what": "answers of models of random weights that ended by themselves, each of which fits "
                                            "its random schema", "results": found}, run)


@pytest.mark.parametrize("tokenizer", random_model.ENDS)
def test_every_answer_that_ends_fits_its_schema(tokenizer, tmp_path, ended_of):
    if not (random_model.TOKENIZERS / tokenizer / "tokenizer.json").exists():
        pytest.skip(f"{random_model.TOKENIZERS / tokenizer} is not fetched; tests/golden/text/fetch_tokenizers.sh fetches it")
    begin = time.monotonic()
    with Server("--served-model-name=m", "--max-model-len=2048", "--max-num-seqs=32", model=random_model.make(tokenizer, tmp_path)) as server:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            ended = sum(pool.map(lambda seed: answered(server, seed), range(PAIRS)))
    ended_of[tokenizer] = f"{ended} of {PAIRS}"
    print(f"{tokenizer}: {ended} of {PAIRS} answers ended by themselves and fit; {time.monotonic() - begin:.0f} s")
    expect(ended >= 0.9 * PAIRS, f"{ended} of {PAIRS} answers ended by themselves")
