"""The unmodified instructor and outlines against a running router: answers that are objects of Python. Run by conformance_test.py with
the pinned packages.

usage: structured_client.py BASE_URL MODEL
"""
import pathlib
import re
import sys
import typing

import instructor
import openai
import outlines
from pydantic import BaseModel, ConfigDict, Field

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

BASE_URL, MODEL = sys.argv[1] + "/v1", sys.argv[2]
SETTINGS = {"max_tokens": 1900, "temperature": 1.0, "seed": 11}
# The demo model writes white space wherever it may: larger objects do without.
COMPACT = {"extra_body": {"structured_outputs": {"disable_any_whitespace": True}}}


class Closed(BaseModel):
    """The demo model would write further properties for ever."""
    model_config = ConfigDict(extra="forbid")


class Pet(Closed):
    kind: typing.Literal["cat", "dog", "owl"]
    name: str = Field(max_length=12)
    age: int = Field(ge=0, le=20)
    colours: list[typing.Literal["red", "black", "white"]] = Field(max_length=3)


class Sound(Closed):
    of: typing.Literal["cat", "dog"]
    loud: bool


class Shelter(Closed):
    """Nested, with a definition that is referred to."""
    town: typing.Literal["Ulm", "Bern"]
    first: Pet
    second: typing.Optional[Pet]


def client():
    return openai.OpenAI(base_url=BASE_URL, api_key="unused", max_retries=0, timeout=120)


def asked(mode, of, **more):
    patched = instructor.from_openai(client(), mode=mode)
    return patched.chat.completions.create(model=MODEL, response_model=of, max_retries=0, **SETTINGS, **more,
                                           messages=[{"role": "user", "content": "Tell me of a pet."}])


@check
def instructor_gets_a_model_by_its_schema():
    assert isinstance(asked(instructor.Mode.JSON_SCHEMA, Sound), Sound)
    assert isinstance(asked(instructor.Mode.JSON_SCHEMA, Shelter, **COMPACT).first, Pet)


@check
def instructor_streams_partial_models():
    patched = instructor.from_openai(client(), mode=instructor.Mode.JSON_SCHEMA)
    parts = list(patched.chat.completions.create_partial(model=MODEL, response_model=Pet, max_retries=0, **SETTINGS, **COMPACT,
                                                         messages=[{"role": "user", "content": "A pet."}]))
    assert len(parts) > 3 and Pet.model_validate(parts[-1].model_dump()), parts[-1]


@check
def outlines_gets_a_model_from_openais_field():
    model = outlines.from_openai(client(), MODEL)
    Sound.model_validate_json(model("A pet.", Sound, **SETTINGS))
    Shelter.model_validate_json("".join(model.stream("A pet.", Shelter, **SETTINGS, **COMPACT)))


@check
def outlines_gets_every_type_from_vllms_field():
    model = outlines.from_vllm(client(), MODEL)
    Sound.model_validate_json(model("A pet.", Sound, **SETTINGS))
    assert model("Cat or dog?", typing.Literal["cat", "dog"], **SETTINGS) in ("cat", "dog")
    assert re.fullmatch("-?[0-9]{1,3}", model("How many?", outlines.types.Regex("-?[0-9]{1,3}"), **SETTINGS))
    answer = model("Go!", outlines.types.CFG('start: "go" " go"?'), **SETTINGS)
    assert answer in ("go", "go go"), answer
    assert model("Is it?", bool, **SETTINGS) in ("True", "False")


run_all("structured")
