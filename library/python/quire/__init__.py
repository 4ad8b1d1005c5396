"""Quire as a Python package: models in this process, the programs, and the command `quire`.

    from quire import LLM, SamplingParams

    llm = LLM(model="demo")
    for output in llm.generate(["Once upon a time"], SamplingParams(max_tokens=40)):
        print(output.outputs[0].text)
"""
import os
import pathlib
import sys

from quire.errors import EngineGone, ModelError, QuireError
from quire.llm import LLM, AsyncLLM
from quire.outputs import CompletionOutput, Logprob, RequestOutput
from quire.sampling import SamplingParams, StructuredOutputsParams

try:
    from quire._version import __version__
except ImportError:  # a source tree
    __version__ = "0"

HOME = pathlib.Path(__file__).resolve().parent / "_quire"

__all__ = ["LLM", "AsyncLLM", "CompletionOutput", "EngineGone", "Logprob", "ModelError", "QuireError", "RequestOutput",
           "SamplingParams", "StructuredOutputsParams", "main", "program"]


def program(name="quire"):
    """The path of a program: quire, quire-router or quire-worker."""
    return str(HOME / "bin" / name)


def main():
    """Becomes the command `quire`."""
    os.execv(program(), ["quire", *sys.argv[1:]])
