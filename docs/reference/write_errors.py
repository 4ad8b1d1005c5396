#!/usr/bin/env python3
"""Writes docs/reference/errors.md from the code that answers: codes with their HTTP and gRPC status, what the router refuses at a
limit, what a worker refuses, exit codes. `--check` ends with 1 where the file is not what it would write."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "reference" / "errors.md"

# What no code says: what it means, what to do. One that is missing here, or that no code sends any more, is an error.
CODES = {
    "invalid_request": ("the request as a whole cannot be read or contradicts itself", "mend it"),
    "invalid_value": ("the field named in `param` is wrong, or asks for what is not served", "mend that field"),
    "context_length_exceeded": ("prompt or chat has more tokens than the model's context holds with an answer; the message has the numbers",
                                "send less, or set `truncate_prompt_tokens`"),
    "previous_response_not_found": ("`previous_response_id` names a response that this router does not keep: it was never kept, was deleted, or gave way to newer ones", "send the whole conversation as `input`, or raise `--responses-store`"),
    "bad_request": ("not HTTP as it should be: version, framing, Host, the target", "mend the client"),
    "invalid_api_key": ("no key, or one that the router does not know", "give a key"),
    "permission_denied": ("the key may not do that (another tenant's name)", "use another key"),
    "operators_only": ("`GET /fleet`, or an order about adapters, on a router that has keys or listens off loopback, or `GET /metrics` off loopback, and there is no admin "
                       "token", "start it with `--admin-port` and `--admin-token-file`, or ask `--metrics-port` for metrics"),
    "host_not_allowed": ("on loopback without keys: the Host is no IP address, no localhost and not in `--allowed-hosts`",
                         "use localhost, or allow the name"),
    "origin_not_allowed": ("on loopback without keys: a page of another site asks", "let it with `--cors-allow-origin`"),
    "model_not_found": ("no such model, or none that this key may use", "see `/v1/models`"),
    "not_found": ("no such route or thing", "see [api.md](api.md)"),
    "method_not_allowed": ("the route wants another method; `Allow` names it", "use that one"),
    "request_timeout": ("headers or body came too slowly (`--header-timeout`, `--body-timeout`)", "send faster"),
    "conflict": ("what was asked for does not fit what is there now, such as an answer to resume of a model that has gone, an adapter while all slots are in use, a file that a batch still uses, or a batch that has ended",
                 "begin again, or wait for the batch's end"),
    "payload_too_large": ("body, message or prompt above its limit, which the message names", "send less"),
    "headers_too_large": ("headers above `--max-header-bytes`", "send less"),
    "unsupported_media_type": ("the route does not read bodies of this Content-Type; the message names those that it does",
                               "send one of them"),
    "too_many_connections": ("`--max-connections` are open and none gives way, so that probes alone are served", "wait for Retry-After"),
    "unsupported": ("well-formed, and not served here", "leave it out"),
    "rate_limit_exceeded": ("the tenant is over a limit of its own, files or batches are (`--max-batch-files`, `--max-batch-files-bytes`, `--max-open-batches`), or too many wrong keys came from the address", "wait for Retry-After"),
    "cancelled": ("the client left, or took no output for too long", "ask again"),
    "internal_error": ("a bug, or a model whose results are not numbers", "report it"),
    "request_suspect": ("workers died under this prompt `--max-worker-deaths` times; it is refused for 10 minutes",
                        "do not repeat it"),
    "unavailable": ("it cannot be served now: no worker, draining, a limit of the router, a full disk of `--batches-dir`", "wait for Retry-After, or ask another router"),
    "deadline_exceeded": ("the time that the client gave is over (`x-request-timeout-ms`, a gRPC deadline), or its message came too slowly over gRPC "
                          "(`--body-timeout`)", "give it more"),
}
CAUSES = {
    "draining": "the router is about to end",
    "live_requests": "`--max-live-requests` run",
    "queue_full": "`--max-queued-requests` wait, and none of them gives way",
    "tenant_queue_full": "`--max-queued-per-tenant` of this tenant wait",
    "journal_full": "`--max-journal-bytes` of running answers are kept",
    "tenants": "4,096 tenants have requests, or quotas in use: the most that a router keeps count of",
    "prompt_bytes": "prompts of `--max-total-body-bytes` wait to become tokens",
    "client_memory": "all clients, or those without a key, hold what `--max-client-memory-bytes` or `--max-tenant-memory-bytes` allow",
    "requests_per_minute": "the tenant's `requests_per_minute`",
    "tokens_per_minute": "the tenant's `tokens_per_minute`",
    "concurrent": "the tenant's `max_concurrent`",
    "tenant_memory": "the tenant holds `--max-tenant-memory-bytes`",
}
REFUSALS = {
    "Invalid": "a field is wrong",
    "QueueFull": "`--max-waiting-requests` wait, or `--max-queued-constraints`",
    "NotReady": "its device was lost and is being restarted",
    "Draining": "it is leaving",
    "TooLarge": "prompt and `max_tokens` never fit its cache",
    "Unsupported": "it asks for a feature that this worker does not list",
    "StaleAttempt": "a newer attempt of the request is known",
    "Duplicate": "this attempt is known already",
    "WrongModel": "it is for another model",
    "DeadlinePassed": "its deadline has passed",
}
EXITS = {0: "done", 1: "failed at run time", 2: "wrong arguments or configuration", 3: "the model cannot be used",
         4: "the device cannot be used", 130: "interrupted by Ctrl-C"}
UNSPECIFIED = "Unspecified"  # what no code sends


def text_of(path):
    return (ROOT / path).read_text()


def body(path, opening):
    """Of the function of `path` that opens so."""
    return text_of(path).split(opening, 1)[1].split("\n}\n", 1)[0]


def cases(text, enum):
    """{value: what is said behind it}: of a switch whose cases return; those without a return of their own take the next."""
    found, waiting = {}, []
    for label, rest in re.findall(rf"case {enum}::k(\w+):(.*?)(?=case {enum}::|default:|\Z)", text, re.S):
        waiting.append(label)
        rest = rest.split("\n  }\n")[0]  # not what stands behind the switch
        if re.search(r"return|break;", rest):
            found.update(dict.fromkeys(waiting, rest))
            waiting = []
    return found


def with_words(found, told, what):
    """`told` for each of `found`; both must hold the same."""
    if set(found) != set(told):
        sys.exit(f"write_errors.py: {what}: not described: {sorted(set(found) - set(told))}, described and not found: "
                 f"{sorted(set(told) - set(found))}")
    return told


def http_statuses():
    return {k: int(re.search(r"return (\d+)", v)[1]) for k, v in cases(body("router/http/errors.cc", "int HttpStatusOf("), "ApiCode").items()}


def grpc_statuses():
    opening = "absl::StatusCode CodeOf(ApiCode code) {"
    return {k: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.search(r"StatusCode::k(\w+)", v)[1]).upper()
            for k, v in cases(body("router/grpc/messages.cc", opening), "ApiCode").items()}


def codes_of_kinds():
    """ApiCode → the codes that it is sent as."""
    found = cases(body("router/http/errors.cc", "std::string_view CodeOf("), "ApiCode")
    names = {k: [n for n in re.findall(r'"(\w+)"', v) if n != "model"] for k, v in found.items()}
    # Reasons of their own, where the code says too little.
    text = text_of("router/core/result.h") + text_of("router/dispatch/refusal.cc") + text_of("router/chat/sampling.cc")
    text += text_of("router/responses/request.cc")
    for constant, name in re.findall(r'constexpr std::string_view (k\w+) = "(\w+)";', text):
        for kind in set(re.findall(rf"ApiCode::k(\w+),[^;]*?\b{constant}\}}", text, re.S)):
            names[kind].append(name)
    return names


def code_table():
    statuses, calls = http_statuses(), grpc_statuses()
    rows = {}  # code → (HTTP statuses, gRPC statuses)
    for kind, names in codes_of_kinds().items():
        for name in names:
            row = rows.setdefault(name, (set(), set()))
            row[0].add(statuses[kind])
            row[1].add(calls[kind])
    for path in sorted((ROOT / "router").rglob("*.cc")):
        for status, name in re.findall(r'\b(?:Refuse|ErrorResponse)\(\s*(\d+),[^;]*?"([a-z_]+)"\s*\)', path.read_text()):
            rows.setdefault(name, (set(), set()))[0].add(int(status))
    words = with_words(rows, CODES, "codes")
    out = ["| code | status | gRPC | what it means | what to do |", "|---|---|---|---|---|"]
    for name, (http, grpc) in sorted(rows.items(), key=lambda row: (min(row[1][0]), row[0])):
        means, do = words[name]
        out.append(f"| `{name}` | {', '.join(map(str, sorted(http)))} | {', '.join(sorted(grpc)) or '–'} | {means} | {do} |")
    return out


def cause_table():
    names = cases(body("router/admission/admission.cc", "std::string_view RefusalCauseName("), "RefusalCause")
    names = {k: re.search(r'"(\w+)"', v)[1] for k, v in names.items()}
    words = with_words(names.values(), CAUSES, "causes")
    order = re.findall(r"^  k(\w+),", text_of("router/admission/admission.h").split("enum class RefusalCause")[1].split("};")[0], re.M)
    first_quota, yes, no = re.search(r"quota = cause >= RefusalCause::k(\w+);.*?quota \? ApiCode::k(\w+) : ApiCode::k(\w+)",
                                     text_of("router/admission/admission.cc"), re.S).groups()
    kinds, statuses = codes_of_kinds(), http_statuses()
    out = ["| cause | status | code | when |", "|---|---|---|---|"]
    for at, cause in enumerate(order):
        kind = yes if at >= order.index(first_quota) else no
        out.append(f"| `{names[cause]}` | {statuses[kind]} | `{kinds[kind][0]}` | {words[names[cause]]} |")
    return out


def bodies_line():
    """Of the one limit whose refusals are counted by themselves."""
    kind = re.search(r"ApiCode::k(\w+)", body("router/core/result.h", "inline ApiError TooManyLargeRequests() {"))[1]
    return (f"Bodies that would take those not read yet past `--max-total-body-bytes` (one gRPC connection's past its share) are answered "
            f"{http_statuses()[kind]}, `{codes_of_kinds()[kind][0]}`, and counted in `quire_router_bodies_refused_total`.")


def refusal_table():
    again = cases(body("router/dispatch/refusal.cc", "bool WorthAnotherWorker("), "RefusalCode")
    become = cases(body("router/dispatch/refusal.cc", "ApiError ErrorOfRefusal("), "RefusalCode")
    become[UNSPECIFIED] = ""
    again.pop(UNSPECIFIED)
    words = with_words(again, REFUSALS, "refusals")
    names = re.search(r"kRefusalNames = \{(.*?)\};", text_of("worker/core/refusal_names.h"), re.S)[1]
    names = re.findall(r'"(\w+)"', names)
    order = re.findall(r"k(\w+)", text_of("common/wire/outputs.h").split("enum class RefusalCode : uint8_t {")[1].split("};")[0])
    kinds = codes_of_kinds()
    out = ["| code | goes to another worker | else its client gets | when |", "|---|---|---|---|"]
    for name, code in zip(names, order, strict=True):
        if code == UNSPECIFIED:
            continue
        kind = re.search(r"ApiCode::k(\w+)", become.get(code, ""))
        sent = kinds[kind[1]] if kind else kinds["Internal"]
        sent = "invalid_value" if "invalid_value" in sent else sent[0]  # it names the field
        out.append(f"| `{name}` | {'yes' if 'true' in again[code] else 'no'} | `{sent}` | {words[code]} |")
    return out


def exit_table():
    found = set()
    for path in ("common/config/program.h", "worker/loaded_worker.h", "router/main.cc"):
        found |= {int(n) for n in re.findall(r"constexpr int kExit\w+ = (\d+);", text_of(path))}
    found |= {int(n) for n in re.findall(r"IsCancelled\(status\) \? (\d+)", text_of("cli/commands.cc"))}
    words = with_words(found, EXITS, "exit codes")
    return ["| exit code | meaning |", "|---|---|", *(f"| {code} | {words[code]} |" for code in sorted(found))]


def document():
    lines = [
        "# Errors", "",
        "Written by `python3 docs/reference/write_errors.py` from the code that answers.", "", "## HTTP and gRPC",
        "Every refusal over HTTP is one JSON object, in OpenAI's shape:", "", "```json",
        '{"error": {"message": "max_tokens: must be at least 1; try 16", "type": "invalid_request_error", "param": "max_tokens", '
        '"code": "invalid_value"}}', "```", "",
        "`message` says what is wrong, where, and a value that works; `param` is the field in the client's spelling, where there is one; `code` is "
        "for programs.", "Under `/v2` the object is the Open Inference Protocol's, `{\"error\": \"message\"}`, with the same status.",
        "Under `/v1/messages` it is Anthropic's, `{\"type\": \"error\", \"error\": {\"type\", \"message\"}, \"request_id\"}`, and a 503 is a "
        "529, `overloaded_error`.", "Under `/api` it is Ollama's, `{\"error\": \"message\"}`, with the same status.", "",
        *code_table(), "",
        "A stream that has begun cannot change its status: it ends in an event with the same `error` object and without `[DONE]`; where the answer "
        "can be resumed at another", "router, that event holds what is needed for it (`router/README.md`).",
        "A stream of `/v1/responses` ends in `response.failed`, whose `response.error` has the code, and one of `/v1/messages` in the event `error`.",
        "A stream of `/api/generate` or `/api/chat` ends in the line `{\"error\": \"message\"}`.", "",
        "## What a router refuses at a limit", "By cause in `quire_router_refused_requests_total`.", "", *cause_table(), "", bodies_line(), "",
        "## What a worker refuses",
        "By code in `quire_worker_refused_total`. A client sees it only where no other worker may be asked, or none would do better.", "",
        *refusal_table(), "", "## Programs", *exit_table(), "",
        "A program that ends with another code than 0 says why in its last line.", ""]
    return "\n".join(lines)


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: write_errors.py [--check]")
    text = document()
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != text:
            sys.exit("docs/reference/errors.md is not what the code says: python3 docs/reference/write_errors.py")
        return
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
