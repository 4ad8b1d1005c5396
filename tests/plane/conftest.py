"""The node agent's tests run in namespaces of their own, with all that they start."""
import pathlib

import plane
import programs
import pytest
import tools

HERE = str(pathlib.Path(__file__).parent)
WHY_NOT = []


def pytest_configure(config):
    # Only a run of this folder alone is begun again inside: others have what they need outside.
    if all(str(pathlib.Path(config.invocation_params.dir, word)).startswith(HERE) for word in config.args):
        WHY_NOT.append(plane.alone())
    else:
        WHY_NOT.append("it runs by itself alone: pytest tests/plane")


@pytest.fixture
def agent_program():
    if WHY_NOT[0]:
        pytest.skip(WHY_NOT[0])
    try:
        programs.agent()
    except tools.Missing as missing:
        pytest.skip(str(missing))
