"""A port that speaks gRPC against h2spec: all of its cases of HTTP/2 (it holds RFC 7540) and HPACK (RFC 7541).

A case that does not pass is named here with the sentence of the RFC that allows what is done instead. h2spec asks for a
page; the port says that it has none (404, without a body) as soon as the request has ended, so that a case that sends more
behind that end meets either the answer or what it waits for, whichever comes first: such cases may pass, the others must not.
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
H2SPEC = ROOT / ".cache" / "go-bin" / "h2spec"
CASES = 146
TIMEOUT_S = 5  # that a case waits for; some end only by it
AT_ONCE = 16

# RFC 9113, 5.1, of what comes for a closed stream: it is read for what it does to the connection, and discarded.
CLOSED = 'An endpoint can perform this minimal processing for all streams that are in the "closed" state.'
# RFC 9113, 3.4. HTTP/1.1 is told, in its own words, that this is not its port, and the connection is closed.
PREFACE = ("A GOAWAY frame (Section 6.8) MAY be omitted in this case, since an invalid preface indicates that the peer is "
           "not using HTTP/2.")
# RFC 9113, 8.1. The stream is closed by then, and what comes for it is discarded.
ANSWERED = ("A server can send a complete response prior to the client sending an entire request if the response does not "
            "depend on any portion of the request that has not been sent and received.")
# RFC 9113, 8.1, of what a message consists of. A case that waits for DATA takes a response without content for a mistake.
NO_CONTENT = "zero or more DATA frames containing the message content (see Section 6.4 of [HTTP])"

NEVER = {
    ("generic/2", "Sends a WINDOW_UPDATE frame on half-closed (remote) stream"): NO_CONTENT,
    ("generic/2", "Sends a PRIORITY frame on half-closed (remote) stream"): NO_CONTENT,
    ("http2/5.1", "closed: Sends a DATA frame after sending RST_STREAM frame"): CLOSED,
    ("http2/5.1", "closed: Sends a HEADERS frame after sending RST_STREAM frame"): CLOSED,
    ("http2/5.1", "closed: Sends a DATA frame"): CLOSED,
    ("http2/5.1", "closed: Sends a HEADERS frame"): CLOSED,
}
PERHAPS = {
    ("http2/3.5", "Sends invalid connection preface"): PREFACE,
    ("http2/5.1", "half closed (remote): Sends a DATA frame"): ANSWERED,
    ("http2/5.1", "half closed (remote): Sends a HEADERS frame"): ANSWERED,
    ("http2/5.1.1", "Sends stream identifier that is numerically smaller than previous"): ANSWERED,
    ("http2/5.1.2", "Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded"): ANSWERED,
    ("http2/8.1", "Sends a second HEADERS frame without the END_STREAM flag"): ANSWERED,
    ("http2/8.1.2.1", "Sends a HEADERS frame that contains a pseudo-header field as trailers"): ANSWERED,
    ("http2/6.1", "Sends a DATA frame on the stream that is not in \"open\" or \"half-closed (local)\" state"): ANSWERED,
}


def known_cases():
    """As h2spec's arguments name them: "http2/5.1/3"."""
    listed = subprocess.run([H2SPEC, "--strict", "--dryrun"], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    suites = {"Generic": "generic", "Hypertext": "http2", "HPACK:": "hpack"}
    names, suite, section = [], None, None
    for line in listed.splitlines():
        if told := re.match(r" +(\d+): ", line):
            names.append(f"{suite}/{section}/{told[1]}")
        elif told := re.match(r" +([\d.]+)\. ", line):
            section = told[1]
        elif line.strip():
            suite = suites.get(line.split()[0], suite)
    return names


def run_case(host, port, name):
    """[((section, title), None, or what was expected and, last, what was seen instead)]"""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        done = subprocess.run([H2SPEC, name, "--host", host, "--port", port, "--timeout", str(TIMEOUT_S), "--strict",
                               "--junit-report", report],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
        assert os.path.exists(report), f"h2spec {name} wrote no report: {done.stdout[-500:]!r}"
        text = pathlib.Path(report).read_text(errors="replace")
    found = []
    for case in xml.etree.ElementTree.fromstring(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "?", text)).iter("testcase"):
        told = case.find("error") if case.find("error") is not None else case.find("failure")
        found.append(((case.get("package"), case.get("classname")), None if told is None else " | ".join(told.text.splitlines())))
    return found


def cases(target):
    """(section, title) → None, or what was seen. Each case is a process of its own: many wait for their time to pass."""
    host, port = target.rsplit(":", 1)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda name: run_case(host, port, name), known_cases()))
    return dict(case for of_one in found for case in of_one)


def h2spec_finds_what_is_allowed(target):
    found = cases(target)
    assert len(found) == CASES, len(found)
    strange = {case: seen for case, seen in found.items() if seen is not None and case not in NEVER and case not in PERHAPS}
    assert not strange, strange
    for case in NEVER:
        assert found[case] is not None, f"{case} passes: it is to be left out of NEVER"
    assert set(PERHAPS) <= set(found), set(PERHAPS) - set(found)
