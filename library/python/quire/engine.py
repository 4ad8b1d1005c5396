"""libquire.so through ctypes: one engine, its events given to whoever asked.

Any thread may use an Engine. One thread polls for all; sinks are called on it.
"""
from __future__ import annotations

import ctypes
import functools
import json
import os
import pathlib
import threading
import weakref

from quire.errors import EngineGone, ModelError, QuireError

OK, INVALID, NO_MODEL, GONE, FULL, FAILED = range(6)
STREAM, RAW = 1, 2
HERE = pathlib.Path(__file__).resolve().parent


def _library_path():
    named = os.environ.get("QUIRE_LIBRARY")
    places = [pathlib.Path(named)] if named else [HERE / "_quire" / "lib" / "quire" / "libquire.so",
                                                  HERE.parents[2] / "build" / "lib" / "libquire.so"]
    for place in places:
        if place.exists():
            return place
    raise QuireError(f"libquire.so is not there: {places[0]}; install the wheel, or name it with QUIRE_LIBRARY")


@functools.lru_cache(maxsize=None)
def _library():
    library = ctypes.CDLL(str(_library_path()))
    handle, text, number = ctypes.c_uint64, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64)
    result = ctypes.POINTER(ctypes.c_void_p)  # freed by quire_free
    for name, arguments in (("create", [text, number]), ("destroy", [handle]), ("info", [handle, result]),
                            ("submit", [handle, text, ctypes.c_uint, number]), ("cancel", [handle, handle]),
                            ("poll", [handle, ctypes.c_int, result]), ("tokenize", [handle, text, result]),
                            ("render", [handle, text, result]),
                            ("detokenize", [handle, ctypes.POINTER(ctypes.c_int32), ctypes.c_uint64, ctypes.c_int, result])):
        function = getattr(library, f"quire_engine_{name}")
        function.argtypes, function.restype = arguments, ctypes.c_int
    library.quire_last_error.restype = library.quire_version.restype = text
    library.quire_free.argtypes, library.quire_free.restype = [ctypes.c_void_p], None
    return library


def _call(name, *arguments):
    """OK or FULL; anything else is raised."""
    library = _library()
    status = getattr(library, f"quire_engine_{name}")(*arguments)
    if status in (OK, FULL):
        return status
    why = library.quire_last_error().decode(errors="replace")
    raise {INVALID: ValueError, NO_MODEL: ModelError, GONE: EngineGone}.get(status, QuireError)(why)


def _text(name, *arguments):
    out = ctypes.c_void_p()
    _call(name, *arguments, ctypes.byref(out))
    try:
        return ctypes.string_at(out).decode()
    finally:
        _library().quire_free(out)


class _Sinks:
    """Who waits for the events of which request; what the polling thread needs of an engine."""

    def __init__(self):
        self.lock = threading.Lock()
        self.ended = threading.Condition(self.lock)
        self.by_number = {}

    def give(self, event):
        number = event["request"]
        with self.lock:  # a submit that is under way has its sink in place before its lock is free
            last = event["event"] in ("done", "error")
            sink = self.by_number.pop(number, None) if last else self.by_number.get(number)
            if last:
                self.ended.notify_all()
        if sink is not None:
            sink(event)

    def end(self, why):
        with self.lock:
            sinks, self.by_number = list(self.by_number.items()), {}
            self.ended.notify_all()
        for number, sink in sinks:
            sink({"request": number, "event": "gone", "error": {"message": why}})


def _poll(handle, sinks):
    try:
        while True:
            for event in json.loads(_text("poll", handle, -1)):
                sinks.give(event)
    except EngineGone as gone:
        sinks.end(str(gone))
    except Exception as problem:  # a thread of its own: whoever waits hears of it
        sinks.end(repr(problem))
        raise


def _destroy(handle, process):
    if os.getpid() == process:  # a child of fork has none of its threads
        _library().quire_engine_destroy(handle)


class Engine:
    """A loaded model. `options` are those of quire.h."""

    def __init__(self, options):
        handle = ctypes.c_uint64()
        _call("create", json.dumps(options).encode(), ctypes.byref(handle))
        self.handle, self.process = handle.value, os.getpid()
        self.info = json.loads(_text("info", self.handle))
        self._sinks = _Sinks()
        self._thread = threading.Thread(target=_poll, args=(self.handle, self._sinks), daemon=True, name="quire-poll")
        self._thread.start()
        # Also when the interpreter exits, while it can still run the polling thread.
        self._close = weakref.finalize(self, _destroy, self.handle, self.process)

    def check(self):
        if os.getpid() != self.process:
            raise EngineGone("this model was loaded before fork, in another process; load one in this process")
        if not self._close.alive:
            raise EngineGone("this model was closed; load another one")

    def submit(self, body, sink, flags=0, wait=True):
        """The request's number; None when there is no room and `wait` is false."""
        number = ctypes.c_uint64()
        while True:
            self.check()
            with self._sinks.lock:
                if _call("submit", self.handle, body, flags, ctypes.byref(number)) == OK:
                    self._sinks.by_number[number.value] = sink
                    return number.value
                if not wait:
                    return None
                self._sinks.ended.wait(timeout=1)

    def cancel(self, number):
        if self._close.alive and os.getpid() == self.process:
            _library().quire_engine_cancel(self.handle, number)

    def tokenize(self, body):
        self.check()
        return json.loads(_text("tokenize", self.handle, body))

    def render(self, body):
        self.check()
        return _text("render", self.handle, body)

    def detokenize(self, ids, skip_special_tokens):
        self.check()
        return _text("detokenize", self.handle, (ctypes.c_int32 * len(ids))(*ids), len(ids), skip_special_tokens)

    def close(self):
        """Ends what is under way. A second call does nothing."""
        self._close()
