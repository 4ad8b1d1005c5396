"""The gRPC port against h2spec, all of its cases of HTTP/2 (RFC 9113) and HPACK (RFC 7541)."""
import os
import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
H2SPEC = ROOT / ".cache" / "go-bin" / "h2spec"

# h2spec asks for a page, which this port answers at once with 415 and no body: a case that waits for a body, or that
# has more to send on its request, may meet the whole answer instead, or the end of a request that was still open.
ANSWERED = re.compile(r"(HEADERS Frame \(length:\d+, flags:0x05|RST_STREAM Frame \(length:4, flags:0x00), stream_id:\d+\)$")
# RFC 9113, 5.1: what comes for a stream that is closed may be discarded; nghttp2 does that.
DISCARDED = "discarded"
KNOWN = {
    ("http2/3.5", "Sends invalid connection preface"): "HTTP/1.1 is told, in its own words, that this is not its port",
    ("http2/5.1", "closed: Sends a DATA frame after sending RST_STREAM frame"): DISCARDED,
    ("http2/5.1", "closed: Sends a HEADERS frame after sending RST_STREAM frame"): DISCARDED,
    ("http2/5.1", "closed: Sends a DATA frame"): DISCARDED,
    ("http2/5.1", "closed: Sends a HEADERS frame"): DISCARDED,
    ("http2/7", "Sends a GOAWAY frame with unknown error code"): "a connection without streams ends where its peer says so",
}
CASES, PASSED_AT_LEAST = 146, 120
# What a case waits for. Some end only by it; in a machine that stands still for a moment, so do others.
TIMEOUT_S, PATIENT_TIMEOUT_S = 1, 10
MOST_TRIED_AGAIN = 8  # with more, it is not the machine


def cases(target, timeout_s=TIMEOUT_S, sections=()):
    """(section, title) → None, or what was expected and, last, what was seen instead."""
    host, port = target.rsplit(":", 1)
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        done = subprocess.run([H2SPEC, "--host", host, "--port", port, "--timeout", str(timeout_s), "--strict",
                               "--junit-report", report, *sections],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        if not os.path.exists(report):
            raise AssertionError(f"h2spec wrote no report: {done.stdout[-500:]!r}")
        text = pathlib.Path(report).read_text(errors="replace")
    found = {}
    for case in xml.etree.ElementTree.fromstring(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "?", text)).iter("testcase"):
        told = case.find("error") if case.find("error") is not None else case.find("failure")
        found[case.get("package"), case.get("classname")] = None if told is None else " | ".join(told.text.splitlines())
    return found


def unknown(found):
    return {case: seen for case, seen in found.items()
            if seen is not None and case not in KNOWN and not ANSWERED.search(seen)}


def h2spec_finds_what_is_known(http, grpc):
    found = cases(grpc)
    strange = unknown(found)
    if len(strange) <= MOST_TRIED_AGAIN:  # only what is so with patience, too, is so
        for section in sorted({section for section, _ in strange}):  # of several, it leaves some out
            again = cases(grpc, PATIENT_TIMEOUT_S, [section])
            found.update({case: again.get(case, seen) for case, seen in strange.items() if case[0] == section})
        strange = unknown(found)
    if strange:
        raise AssertionError(f"h2spec: {strange}")
    passed = sum(seen is None for seen in found.values())
    if len(found) < CASES or passed < PASSED_AT_LEAST or not set(KNOWN) <= set(found):
        raise AssertionError(f"h2spec ran {len(found)} cases of {CASES}, of which {passed} passed")
