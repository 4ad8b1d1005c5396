"""Open WebUI's own code that checks a connection and asks a provider for its models, against a running router. Run by conformance_test.py.

Its package needs some gigabytes of others, so that only those of its files are run, unmodified, that speak to a provider
(routers/openai.py and what of its utils that calls); its settings, users and database are stand-ins.

usage: open_webui_client.py BASE_URL MODEL
"""
import asyncio
import importlib.abc
import importlib.util
import pathlib
import sys
import types
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from checks import check, run_all  # noqa: E402

URL, MODEL = sys.argv[1], sys.argv[2]
SOURCE = pathlib.Path(__file__).resolve().parents[2] / ".cache" / "open-webui"
REAL = {"open_webui.routers.openai", "open_webui.utils.anthropic", "open_webui.utils.headers", "open_webui.utils.json_codec"}
SETTINGS = {"AIOHTTP_CLIENT_SESSION_SSL": True, "AIOHTTP_CLIENT_TIMEOUT_MODEL_LIST": 10, "ENABLE_ORJSON": False,
            "ENABLE_FORWARD_USER_INFO_HEADERS": False, "FORWARD_USER_INFO_HEADER_JWT_SECRET": "", "MODELS_CACHE_TTL": 1,
            "REDIS_KEY_PREFIX": "test", "BYPASS_MODEL_ACCESS_CONTROL": True, "ENABLE_OPENAI_API_PASSTHROUGH": False}


class StandIn(types.ModuleType):
    """A module of which every name is something that can be called."""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in SETTINGS:
            return SETTINGS[name]
        return type(name, (), {}) if name == "UserModel" else mock.MagicMock(name=name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] != "open_webui":
            return None
        if name in REAL:
            return importlib.util.spec_from_file_location(name, SOURCE / (name.replace(".", "/") + ".py"))
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Finder())
provider = importlib.import_module("open_webui.routers.openai")


def verify(url=URL, key="a-key", config=None):
    form = provider.ConnectionVerificationForm(url=url, key=key, config=config)
    return asyncio.run(provider.verify_connection(mock.MagicMock(), form, user=None))


@check
def its_code_is_run():
    for function in (provider.verify_connection, provider.send_get_request, provider.is_anthropic_url,
                     provider.include_user_info_headers, provider.get_headers_and_cookies):
        code = getattr(function, "__wrapped__", function).__code__
        assert code.co_filename.startswith(str(SOURCE)), code.co_filename


@check
def the_connection_is_verified():
    for key, config in (("a-key", None), ("", {"auth_type": "none"})):
        listed = verify(key=key, config=config)
        assert isinstance(listed, dict) and [m["id"] for m in listed["data"]] == [MODEL], listed


@check
def its_list_of_models_is_read():
    listed = asyncio.run(provider.send_get_request(url=f"{URL}/models", key="a-key"))
    assert [m["id"] for m in listed["data"]] == [MODEL] and listed["object"] == "list", listed


@check
def a_wrong_address_is_told():
    answer = verify(url=URL + "/nowhere")
    assert answer.status_code == 404, answer


run_all("open-webui")
