"""What all suites in Python share. `pytest tests/process -k NAME` runs cases against the programs of build/, or of the
build that QUIRE_TEST_BUILD names."""
import signal

import isolation
import pytest
import tier
import tools


def pytest_addoption(parser):
    parser.addoption("--long", action="store_true", help="the forms of cases that the long tier runs")
    parser.addoption("--record", action="store_true", help="writes what was measured to bench/results/")
    parser.addoption("--write-reference", action="store_true", help="writes the pages that a test holds to the programs")


def pytest_configure(config):
    tier.take(config.option)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has it ignored, for children too


@pytest.fixture
def folder(tmp_path):
    """A folder of the case's own."""
    return tmp_path


@pytest.fixture(scope="session")
def own_network():
    """Ports that nobody else has. It stays for the rest of the run."""
    if why_not := isolation.enter():
        pytest.skip(why_not)


@pytest.fixture(scope="session")
def deploy_tools():
    """helm and the others of tests/deploy/tools.py."""
    try:
        tools.ensure()
    except tools.Missing as missing:
        pytest.skip(str(missing))
