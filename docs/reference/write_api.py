#!/usr/bin/env python3
"""Writes docs/reference/api.md from the tables that the programs are compiled from: routes, fields of bodies, and the
services of the protos. `--check` ends with 1 where the file is not what it would write."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = ROOT / "docs" / "reference" / "api.md"

# What no table says; one that is missing here, or that nothing serves any more, is an error.
ROUTES = {
    "/v1/chat/completions": "OpenAI's chat completions, whole or as a stream of events",
    "/v1/completions": "OpenAI's completions, of one prompt or several, of text or token ids",
    "/v1/responses": "OpenAI's responses, whole or as a stream of events ([agents](../how-to/agents.md))",
    "/v1/responses/input_tokens": "how many tokens the body's prompt has",
    "/v1/responses/": "a kept response: `GET …/ID` and `…/ID/input_items` read it, oldest item first, `DELETE …/ID` deletes it; `POST …/ID/cancel` is refused, because no answer runs in the background. 404 without `--responses-store`",
    "/v1/messages": "Anthropic's messages, whole or as a stream of events ([agents](../how-to/agents.md))",
    "/v1/messages/count_tokens": "how many tokens the body's prompt has",
    "/api/generate": "Ollama's generation, as a stream of lines or whole ([Ollama's API](../how-to/ollama.md))",
    "/api/chat": "Ollama's chat, as a stream of lines or whole",
    "/api/tags": "the served models that the key may use",
    "/api/ps": "those of them that are loaded",
    "/api/show": "what a model can do",
    "/api/version": "the version",
    "/api/pull": "under `quire serve` alone: fetches a model, with its progress as lines",
    "/api/delete": "under `quire serve` alone: takes a model that was pulled off the machine",
    "/api/create": "501, with what to do instead",
    "/api/copy": "501, with what to do instead",
    "/api/push": "501",
    "/api/blobs/": "501",
    "/api/embed": "501: embeddings are not served",
    "/api/embeddings": "501: embeddings are not served",
    "/v2/repository/index": "under `quire serve` alone: models and their states "
                            "([several models](../how-to/several-models.md))",
    "/v2/repository/models/": "under `quire serve` alone: `…/load` and `…/unload`",
    "/sleep": "under `quire serve` alone: unloads every model",
    "/wake_up": "under `quire serve` alone: loads again what `/sleep` unloaded",
    "/is_sleeping": "under `quire serve` alone: whether nothing has been loaded since",
    "/v1/load_lora_adapter": "loads a LoRA adapter at all workers of a model: `lora_name`, `lora_path` on the workers' machines, `load_inplace`, `base_model_name` ([adapters](../how-to/adapters.md))",
    "/v1/unload_lora_adapter": "takes the name of an adapter away: `lora_name`, `base_model_name`; running answers go on to their ends",
    "/v1/files": "with `--batches-dir`: POST (`multipart/form-data`: `purpose=batch`, `file`) keeps a file of requests; GET lists files: `limit`, `after`, `order`, `purpose` ([batches](../how-to/batches.md))",
    "/v1/files/": "`GET …/ID` describes a file, `GET …/ID/content` is what it holds, `DELETE …/ID` deletes it (409 while a batch uses it)",
    "/v1/batches": "with `--batches-dir`: POST (`input_file_id`, `endpoint`, `completion_window`, `metadata`) begins a batch; GET lists batches: `limit`, `after`",
    "/v1/batches/": "`GET …/ID` describes a batch, `POST …/ID/cancel` ends it and keeps what is done",
    "/v1/models": "the served models that the key may use",
    "/v1/models/": "one of them",
    "/tokenize": "token ids (and texts of them) of a prompt or a chat",
    "/detokenize": "the text of token ids",
    "/tokenizer_info": "the only model's special tokens and chat template, as `tokenizer_config.json` has them",
    "/tokenizer_info/": "those of the model that is named",
    "/v2": "name, version and extensions of the server ([Open Inference Protocol](open-inference.md))",
    "/v2/health/live": "`{\"live\": true}`",
    "/v2/health/ready": "`{\"ready\": true}`, or 503: a request would be served now",
    "/v2/models": "the served names",
    "/v2/models/": "GET: a model's tensors, `…/ready`; POST: `…/infer`, `…/generate`, `…/generate_stream`",
    "/livez": "the process lives",
    "/readyz": "it listens, has found its workers and does not leave",
    "/health": "a token could be produced now",
    "/version": "the version",
    "/metrics": "[metrics](metrics.md) for Prometheus; closed by `--no-metrics`",
    "/": "the page: chat and the fleet live",
    "/page.css": "its style",
    "/page.js": "its script",
    "/chat.js": "its chat",
    "/markdown.js": "what shows an answer's Markdown",
    "/fleet": "workers, their caches, which stream runs where; no text, no tenant",
    "/admin/workers": "workers with phase, load and the state of what is known of their caches",
    "/admin/log-level": "GET shows it, PUT sets it: `{\"level\": \"debug\"}`",
    "/admin/drain": "leaves as on SIGTERM",
    "/admin/requests": "requests that run, and the last that have ended",
    "/admin/requests/": "one of them by its `x-request-id`: its times, and each attempt with its worker and end",
}
FIELDS = {
    "model": "a served name; may be left out where there is one only",
    "prompt": "a text, token ids, or a list of either",
    "messages": "the conversation, rendered by the model's template",
    "max_completion_tokens": "the same as `max_tokens`",
    "logprobs": "chat: whether; completions: how many of the best, 0 to 20",
    "top_logprobs": "how many of the best beside the chosen one, 0 to 20",
    "stream": "events instead of one answer",
    "stream_options": "`include_usage`: a last chunk with the usage; `continuous_usage_stats`: one in each",
    "return_token_ids": "the prompt's and each chunk's token ids",
    "return_tokens_as_token_ids": "tokens of logprobs as `token_id:N`",
    "echo": "the answer begins with the prompt",
    "truncate_prompt_tokens": "keeps the last so many tokens of the prompt; −1: as many as fit",
    "priority": "the lower number first, within what the tenant may",
    "cache_salt": "shares the prefix cache only with requests of the same salt",
    "request_id": "in place of the header `x-request-id`",
    "resume": "an answer that is gone on with: `seed`, `created`, `model_id` of its first chunk, `outputs` with `token_ids` of each choice; a choice that is whole gets its end again, and the text before it that was held back",
    "add_special_tokens": "whether the tokenizer adds its own to a prompt",
    "add_generation_prompt": "whether the template opens the assistant's turn",
    "continue_final_message": "goes on with the last message instead of answering it",
    "chat_template_kwargs": "an object for the template",
    "tools": "functions that the model may call ([tool calls](../how-to/tool-calls.md))",
    "tool_choice": "`none`, `auto`, `required`, or an object that names a function",
    "parallel_tool_calls": "false: at most one call",
    "functions": "the older form of `tools`",
    "function_call": "the older form of `tool_choice`: `none`, `auto` or `{\"name\": …}`",
    "reasoning_effort": "`none` to `max`, for the template; `none` turns thoughts off",
    "thinking_token_budget": "how many tokens thoughts may have before they are ended ([thoughts](../how-to/tool-calls.md))",
    "thinking_budget": "Qwen's name of `thinking_token_budget`",
    "prediction": "the text that the answer is expected to be: `{\"type\": \"content\", \"content\": …}` ([speculative decoding](../how-to/speculative-decoding.md))",
    "include_reasoning": "false: thoughts are left out of the answer",
}
AGENT_FIELDS = {
    "responses": {
        "model": "a served name; may be left out where there is one only",
        "input": "a text, or items: messages, function and custom tool calls with their outputs, reasoning",
        "instructions": "a system message in front of the input",
        "tools": "functions, custom tools, and namespaces of them; built-in tools are left out of the prompt and counted (`quire_router_tools_left_out_total`)",
        "tool_choice": "`auto`, `none`, `required`, a function or custom tool, or `allowed_tools`; a built-in tool is refused",
        "parallel_tool_calls": "false: at most one call in an answer",
        "text": "`format`: `text`, `json_object` or `json_schema`",
        "reasoning": "`effort`; there are no summaries, the thoughts themselves are in the answer",
        "thinking_token_budget": "how many tokens thoughts may have before they are ended",
        "include": "`reasoning.encrypted_content`: thoughts also as a text to send back unread (base64, not secret); `message.output_text.logprobs`",
        "max_output_tokens": "at most so many, and at most what the context has room for",
        "top_logprobs": "how many of the best beside the chosen token, 0 to 20",
        "stream": "events instead of one answer",
        "priority": "the lower number first, within what the tenant may",
        "prompt_cache_key": "names the session, like the header `x-session-id`",
        "previous_response_id": "continues a kept response (`--responses-store`): its conversation comes before `input`, its `instructions` do not; where it is not kept, the code is `previous_response_not_found`",
        "store": "false: the response is not kept; without `--responses-store` none is",
        "truncation": "taken; a prompt that is too long is refused, and nothing is cut away",
    },
    "messages": {
        "model": "a served name",
        "messages": "turns of blocks: text, thinking, tool_use and tool_result; images and documents are refused",
        "max_tokens": "at most so many, and at most what the context has room for",
        "system": "a text or text blocks; Claude Code's billing header, which differs in each request, is left out",
        "tools": "tools with an `input_schema`; Anthropic's own are left out of the prompt and counted (`quire_router_tools_left_out_total`), and so are deferred ones until a result refers to them",
        "tool_choice": "`auto`, `any`, `tool` or `none`, with `disable_parallel_tool_use`",
        "stop_sequences": "texts that end the answer",
        "stream": "events instead of one answer",
        "thinking": "`enabled` with `budget_tokens`, `disabled` or `adaptive`; `display: omitted` puts the thoughts into the signature (base64, not secret)",
        "output_config": "`effort`; `format` with a JSON schema",
        "metadata": "`user_id` names the session, like the header `x-session-id`",
    },
}
OLLAMA_FIELDS = {
    "model": "a served name, with or without `:latest`",
    "prompt": "rendered by the model's template as a user's turn; without one the model is loaded, or unloaded by a `keep_alive` of 0",
    "system": "the system message in front of it",
    "raw": "true: the prompt goes to the model as it is",
    "messages": "the conversation, with `tool_calls`, `tool_name` and `thinking`; an empty list is as no prompt",
    "tools": "functions that the model may call; calls come whole, their arguments as objects",
    "stream": "lines of JSON, unless it is false",
    "format": "`json`, or a JSON schema that the answer has to follow",
    "options": "sampling, as below",
    "think": "true, false, `low`, `medium` or `high`",
    "keep_alive": "how long the model stays loaded when it is idle: a duration or seconds, negative for ever; under `quire serve` on loopback without keys, elsewhere without effect",
    "logprobs": "logprobs of the answer's tokens",
    "top_logprobs": "how many of the best beside the chosen token, 0 to 20",
}
OLLAMA_OPTIONS = {
    "seed": "drawn where none comes, and for -1",
    "num_predict": "the most tokens of the answer; -1, -2 and 0 for as many as the context holds",
    "repeat_last_n": "-1: penalties are about the whole context; 0 turns them off; another value beside a penalty is refused",
    "tfs_z": "1 alone",
    "mirostat": "0 alone",
    "penalize_newline": "true alone",
}
SAMPLING = {
    "seed": "drawn where none comes; the first chunk has it",
    "min_tokens": "[0, max_tokens]",
    "stop_token_ids": "end an answer as the end-of-sequence token does",
    "include_stop_str_in_output": "the stop string stays in the text",
    "ignore_eos": "goes on behind the end-of-sequence token",
    "n": "choices, 1 to `--max-choices` of router and worker",
    "logit_bias": "token id to a bias in [−100, 100]",
    "allowed_token_ids": "no others are chosen",
    "bad_words": "texts that are not written",
    "spaces_between_special_tokens": "taken, without effect: no served tokenizer puts spaces there",
    "use_beam_search": "the n best answers of a search with n beams, sent at its end",
    "early_stopping": "true, false or `never`: when a beam search gives up the beams that still run",
}
CONSTRAINTS = {
    "response_format": "OpenAI's: `text`, `json_object`, `json_schema` (`strict` changes nothing: every schema is enforced); llama.cpp's `json_object` or `json_schema` with `schema`; vLLM's `structural_tag`; TGI's `json` and `regex` with `value`",
    "structured_outputs": "vLLM's: one of `json`, `regex`, `choice`, `grammar`, `json_object`, `structural_tag`; beside it `disable_any_whitespace`, `disable_additional_properties`, `whitespace_pattern`",
    "guided_decoding": "the same in older releases of vLLM",
    "guided_json": "vLLM's older field: a JSON schema, as an object or as a text",
    "guided_regex": "the same for an expression that matches the whole text",
    "guided_choice": "the same for a list of texts",
    "guided_grammar": "the same for GBNF or Lark",
    "guided_whitespace_pattern": "an expression for white space in JSON",
    "guided_decoding_backend": "taken, without effect: there is one",
    "grammar": "llama.cpp's GBNF, or Lark behind `%llguidance`; TGI's object with `type` and `value`",
    "json_schema": "llama.cpp's and SGLang's: a JSON schema, as an object or as a text",
    "regex": "SGLang's",
    "ebnf": "SGLang's: GBNF",
    "structural_tag": "SGLang's, as vLLM has it",
}
HEADERS = [
    ("`Authorization: Bearer KEY`, `x-api-key: KEY`", "request", "an API key, where the router has some"),
    ("`x-request-id`", "both", "names the request in logs, records and `quire trace`; made up where none comes"),
    ("`traceparent`", "request", "W3C trace context, gone on with ([tracing](../tracing.md))"),
    ("`tracestate`", "request", "beside it, handed on as it came, up to 512 bytes"),
    ("`traceresponse`", "answer", "the trace, and the router's span in it"),
    ("`x-session-id`", "request", "a session stays with its model's version and, by policy, its worker"),
    ("`x-request-timeout-ms`, `x-quire-timeout`", "request", "the time that the client gives it"),
    ("`x-quire-tenant`", "request", "the tenant, from a key that may name one"),
    ("`X-Quire-Worker`", "answer", "the worker that began it"),
    ("`request-id`", "answer", "of `/v1/messages`: the same as `x-request-id`"),
    ("`Retry-After`", "answer", "seconds until it makes sense to come back, with 429 and 503"),
    ("`Inference-Header-Content-Length`", "both", "of `/v2/…/infer`: how many bytes of the body are JSON"),
]
WHO = {"kKey": "a key", "kOpen": "anyone", "kOperator": "an operator",
       "kMetrics": "anyone on loopback or on `--metrics-port`, else an operator"}
WHERE = {"kInBoth": "both", "kInChat": "chat", "kInCompletion": "completions"}
ONLY = {"OnlyOne": "1", "OnlyFalse": "false", "OnlyEmpty": "nothing", "OnlyTextModality": '`["text"]`'}


def routes(path):
    text = (ROOT / path).read_text()
    names = dict(re.findall(r'constexpr std::string_view (k\w+) = "([^"]+)";', text))
    for who, method, quoted, name in re.findall(r'\{Access::(\w+), "(\w+)", (?:"([^"]+)"|(k\w+)), \w+(?:,\s*"[^"]*")?\}', text):
        yield WHO[who], method, quoted or names[name]


def route_table(path, described):
    out = ["| method | path | who may | what it is |", "|---|---|---|---|"]
    for who, method, at in dict.fromkeys(routes(path)):  # those of --metrics-port are listed once more
        described.discard(at)
        shown = at + "NAME" if at.endswith("/") and len(at) > 1 else at
        out.append(f"| {method} | `{shown}` | {who} | {ROUTES[at]} |")
    return out


def fields():
    text = (ROOT / "router/http/api_fields.cc").read_text().split("constexpr ApiField kFields[] = {")[1].split("\n};")[0]
    return re.findall(r'\{"(\w+)", (kIn\w+),\s*(\w*)', text)


def constraint_table():
    text = (ROOT / "router/chat/constraint_fields.cc").read_text().split("constexpr ConstraintField kConstraintFields[] = {")[1].split("\n};")[0]
    names = re.findall(r'^    \{"(\w+)",', text, re.M)
    if set(names) != set(CONSTRAINTS):
        sys.exit(f"write_api.py: described or served, not both: {sorted(set(names) ^ set(CONSTRAINTS))}")
    return ["### What an answer must be", "", "In completions and chat, in gRPC as `response_format`, and among the sampling keys of the Open Inference "
            "Protocol; one in a request. [structured-output.md](../how-to/structured-output.md) says more.", "", "| field | what it is |", "|---|---|",
            *[f"| `{name}` | {CONSTRAINTS[name]} |" for name in names], ""]


def agent_tables(api):
    """The fields of /v1/responses or /v1/messages."""
    text = (ROOT / f"router/{api}/request.cc").read_text().split("constexpr Field kFields[] = {")[1].split("\n};")[0]
    words, served, sampling, harmless, refused = dict(AGENT_FIELDS[api]), [], [], [], []
    for name, reader in re.findall(r'\{"(\w+)",\s*(\w*)', text):
        if reader in ONLY:
            refused.append(f"`{name}`")
        elif reader == "Ignore":
            harmless.append(f"`{name}`")
        elif reader == "ReadSamplingField":
            sampling.append(f"`{name}`")
        else:
            served.append(f"| `{name}` | {words.pop(name)} |")
    if words:
        sys.exit(f"write_api.py: described and not served in {api}: {sorted(words)}")
    return ["| field | what it is |", "|---|---|", *served, "",
            f"Sampling, as above: {', '.join(sampling)}. Taken and without effect: {', '.join(harmless)}. "
            f"Refused unless false or empty: {', '.join(refused)}."]


def ollama_tables():
    text = (ROOT / "router/ollama/request.cc").read_text()
    table = text.split("constexpr Field kFields[] = {")[1].split("\n};")[0]
    words, served, harmless, refused = dict(OLLAMA_FIELDS), [], [], []
    for name, where, reader in re.findall(r'\{"(\w+)",\s*(kIn\w+),\s*(\w*)', table):
        if reader in ("OnlyEmpty", "OnlyModelsTemplate", "NoImages"):
            refused.append(f"`{name}`")
        elif reader == "Ignore":
            harmless.append(f"`{name}`")
        else:
            at = {"kInBoth": "both", "kInChat": "chat", "kInGenerate": "generate"}[where]
            served.append(f"| `{name}` | {at} | {words.pop(name)} |")
    table = text.split("constexpr Option kOptions[] = {")[1].split("\n};")[0]
    more, options, idle = dict(OLLAMA_OPTIONS), [], []
    for name, sampling, reader in re.findall(r'\{"(\w+)", "(\w*)"(?:, (\w+))?\}', table):
        if reader == "NoEffect":
            idle.append(f"`{name}`")
        else:
            options.append(f"| `{name}` | {f'`{sampling}`' if sampling else more.pop(name)} |")
    if words or more:
        sys.exit(f"write_api.py: described and not served in ollama: {sorted(words | more)}")
    return ["| field | in | what it is |", "|---|---|---|", *served, "",
            f"Taken and without effect: {', '.join(harmless)}. Refused unless empty: {', '.join(refused)}.", "",
            "| option | sampling parameter, as above, or what is served |", "|---|---|", *options, "",
            f"Taken, without effect, and counted as unknown fields: {', '.join(idle)}. Any other option is refused by name."]


def sampling_comments():
    """What the proto says of a sampling wish, in its own words."""
    text = (ROOT / "proto/quire/v1/inference.proto").read_text().split("message SamplingOptions {")[1].split("\n}")[0]
    return dict(re.findall(r"^  [^/\n]*?(\w+) = \d+[^;]*;[ ]*(?://[ ]*(.*))?$", text, re.M))


def field_tables():
    served, harmless, refused = [], [], []
    described = set(FIELDS)
    for name, where, reader in fields():
        if reader in ONLY:
            refused.append(f"| `{name}` | {WHERE[where]} | {ONLY[reader]} |")
        elif reader == "Ignore":
            harmless.append(f"`{name}`")
        else:
            described.discard(name)
            served.append(f"| `{name}` | {WHERE[where]} | {FIELDS[name]} |")
    if described:
        sys.exit(f"write_api.py: described and not served: {sorted(described)}")
    rows = re.findall(r"^  (?:NUMBER|LIST)\((\w+), ", (ROOT / "common/wire/sampling.h").read_text(), re.M)
    text = (ROOT / "router/chat/sampling_fields.cc").read_text().split("constexpr SamplingField kFields[] = {")[1]
    comments = sampling_comments()
    sampling = [f"| `{name}` | {comments.get(name) or SAMPLING[name]} |"
                for name in rows + re.findall(r'^    \{"(\w+)",', text, re.M)]
    return ["### Fields", "", "| field | in | what it is |", "|---|---|---|", *served, "",
            "### Sampling", "", "Also in gRPC's `SamplingOptions`, in `sampling_parameters` of the Open Inference Protocol, and from there in "
            "`generate`.", "", "| field | range |", "|---|---|", *sampling, "",
            *constraint_table(),
            "### Taken and without effect", "", ", ".join(harmless), "",
            "### Refused by name", "", "Known from other servers and not served: they are refused unless they say what this server does anyway. "
            "Unknown fields are ignored, counted (`quire_router_http_unknown_fields_total`) and named in the log at `debug`.", "",
            "| field | in | taken only as |", "|---|---|---|", *refused]


def services(path):
    """Of a proto: (package.Service, [(rpc, asks, answers, comment)])."""
    text = (ROOT / path).read_text()
    package = re.search(r"^package ([\w.]+);", text, re.M)[1]
    for name, body in re.findall(r"^service (\w+) \{\n(.*?)^\}", text, re.M | re.S):
        rpcs, comment = [], []
        for line in body.splitlines():
            if said := re.match(r"\s*// (.*)", line):
                comment.append(said[1])
            elif rpc := re.match(r"\s*rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\)", line):
                rpcs.append((rpc[1], (rpc[2] or "") + rpc[3], (rpc[4] or "") + rpc[5], " ".join(comment)))
                comment = []
        yield f"{package}.{name}", rpcs


def service_tables():
    out = []
    for path in ("proto/quire/v1/inference.proto", "proto/inference/open_inference.proto"):
        for name, rpcs in services(path):
            out += ["", f"### `{name}`", "", f"`{path}`", "", "| call | asks | answers | |", "|---|---|---|---|"]
            out += [f"| `{rpc}` | {asks} | {answers} | {comment} |" for rpc, asks, answers, comment in rpcs]
    return out


def document():
    described = set(ROUTES)
    public = route_table("router/http/routes.cc", described)
    admin = route_table("router/admin/admin_routes.cc", described)
    if described:
        sys.exit(f"write_api.py: described and not served: {sorted(described)}")
    lines = ["# APIs", "",
             "Written by `python3 docs/reference/write_api.py` from the tables that the router is compiled from. Errors have their own page: "
             "[errors.md](errors.md).", "", "## HTTP", "",
             "On `--port` and on `--grpc-port`. `HEAD` goes where `GET` goes; where keys are not configured a key is not asked for. "
             "What is below `/v1/` is below `/openai/v1/` too, where runtimes of KServe have it.", "", *public,
             "", "### Headers", "", "| header | of | what it is |", "|---|---|---|", *[f"| {a} | {b} | {c} |" for a, b, c in HEADERS],
             "", "## Bodies of completions and chat", "", *field_tables(),
             "", "## Bodies of /v1/responses", "", *agent_tables("responses"),
             "", "## Bodies of /v1/messages", "", *agent_tables("messages"),
             "", "## Bodies of /api/generate and /api/chat", "", *ollama_tables(),
             "", "## Operators", "", "On `--admin-port`, 127.0.0.1 only, with the token of `--admin-token-file` as Bearer.", "", *admin,
             "", "## gRPC", "",
             "On the same two ports, with reflection and `grpc.health.v1.Health`. A key travels as metadata `authorization: Bearer KEY`, "
             "`x-request-id` and `traceparent` as over HTTP; `traceresponse` and, of `quire.v1`, `x-quire-worker` are in the answer's initial metadata. "
             "A message of `Generate` and `Chat` has one event; with `joined_events: true` those that are ready together come in one: read `event`, then each of `more`, in order.", *service_tables(), ""]
    return "\n".join(lines)


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit("usage: write_api.py [--check]")
    text = document()
    if sys.argv[1:] == ["--check"]:
        if not TARGET.exists() or TARGET.read_text() != text:
            sys.exit("docs/reference/api.md is not what the code says: python3 docs/reference/write_api.py")
        return
    TARGET.write_text(text)


if __name__ == "__main__":
    main()
