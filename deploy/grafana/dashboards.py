#!/usr/bin/env python3
"""Writes the Grafana dashboards of this folder: `dashboards.py` writes them, `dashboards.py --check` says
whether they are what it would write. Each panel is one line here; everything else is the same for all."""
import json
import pathlib
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
WIDTH = 24
RATE = "[$__rate_interval]"


def rate(metric, by="", match=""):
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{{{match}}}{RATE}))"


def quantile(q, metric, by="", match=""):
    grouped = f"le, {by}" if by else "le"
    # Where nothing was observed a quantile is not a number, and is left out.
    return f"histogram_quantile({q}, sum by ({grouped}) (rate({metric}_bucket{{{match}}}{RATE}))) >= 0"


def share(part, whole):
    return f"({part}) / clamp_min({whole}, 1e-9)"


# What the alerts hold you to; buckets of the histograms.
FIRST_TOKEN_S, GAP_S = 2, 0.5


def within(what, bound, by="", match=""):
    """Share of first tokens or gaps that are within a bound."""
    separator = "," if match else ""
    return share(rate(f"quire_router_{what}_seconds_bucket", by, f'{match}{separator}le="{bound}"'), rate(f"quire_router_{what}_seconds_count", by, match))


def heat(metric, match=""):
    return f"sum by (le) (increase({metric}_bucket{{{match}}}{RATE}))"


MODEL = 'model=~"$model"'
WORKER = 'worker=~"$worker"'
VLLM = 'model_name=~"$model"'

# title, unit, height, [(query, legend)], what to think of it
FLEET = [
    ("At a glance", [
        ("Ready workers", "short", "stat", [('sum by (phase) (quire_router_workers{phase=~"ready|draining|stuck|silent"})', "{{phase}}")],
         "Workers as the routers see them. Each router counts for itself: with several routers divide by their number."),
        ("Requests/s", "reqps", "stat", [(rate("quire_router_requests_total"), "all")], "Requests that ended, of all outcomes."),
        ("Output tokens/s", "short", "stat", [(rate("quire_router_generation_tokens_total"), "tokens/s")], "Tokens that clients received."),
        ("Errors", "percentunit", "stat",
         [(share(rate("quire_router_requests_total", match='outcome="failed"'), rate("quire_router_requests_total")), "failed")],
         "Requests that failed; those refused with 429 or 503 are not among them."),
        ("First token, p99", "s", "stat", [(quantile(0.99, "quire_router_time_to_first_token_seconds"), "p99")], "99 of 100 requests had their first output within this time."),
        ("Gap between tokens, p99", "s", "stat", [(quantile(0.99, "quire_router_inter_token_gap_seconds"), "p99")], "99 of 100 gaps in streams were shorter."),
        ("First tokens in time", "percentunit", "stat", [(within("time_to_first_token", FIRST_TOKEN_S), "within")],
         f"Share within {FIRST_TOKEN_S} s, what the alerts hold you to (deploy/prometheus/rules.yaml)."),
        ("Not to be scraped", "short", "stat", [('count(up{job=~".*quire.*"} == 0) or vector(0)', "targets")], "Routers and workers that Prometheus cannot reach."),
    ]),
    ("By model", [
        ("Models", "short", "table", [
            (rate("quire_router_requests_total", "model"), "requests/s"),
            (share(rate("quire_router_requests_total", "model", 'outcome="failed"') + " or 0 * " + rate("quire_router_requests_total", "model"),
                   rate("quire_router_requests_total", "model")), "failed"),
            ("max by (model) (quire_router_model_ready_workers)", "ready workers"),
            ("sum by (model) (quire_router_queued_requests)", "waiting"),
            (quantile(0.99, "quire_router_time_to_first_token_seconds", "model"), "first token p99, s"),
            (quantile(0.99, "quire_router_inter_token_gap_seconds", "model"), "gap p99, s")],
         "A model's name leads to its dashboard."),
    ]),
    ("What clients get", [
        ("Requests by outcome", "reqps", "graph", [(rate("quire_router_requests_total", "outcome"), "{{outcome}}")],
         "`rejected` are refusals by admission."),
        ("Time to the first token", "s", "graph",
         [(quantile(q, "quire_router_time_to_first_token_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99)],
         "From a request's arrival at the router to the first output that it hands on."),
        ("Gap between tokens", "s", "graph",
         [(quantile(q, "quire_router_inter_token_gap_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.9, 0.99)],
         "What a reader of a stream feels. A prefill that stalls decodes shows here first."),
        ("Tokens/s", "short", "graph",
         [(rate("quire_router_prompt_tokens_total"), "prompt"), (rate("quire_router_cached_tokens_total"), "of these cached"),
          (rate("quire_router_generation_tokens_total"), "output")], "What was asked, what of it the caches had, and what was answered."),
    ]),
    ("What it costs", [
        ("Queue", "short", "graph", [("sum by (priority) (quire_router_queued_requests)", "{{priority}}")],
         "Requests that wait for a worker in the routers. Workers' own queues are on the engine dashboard."),
        ("Open files", "short", "graph", [("process_open_fds{job=~\".*quire.*\"}", "{{job}} {{instance}}")], "Connections are files."),
        ("Cache held by requests", "percentunit", "graph", [("max(quire_router_worker_kv_held_ratio)", "fullest"),
                                                            ("avg(quire_router_worker_kv_held_ratio)", "mean")], "Share of the pages that running requests hold. Near 100 % workers preempt rows."),
        ("Resident memory", "bytes", "graph", [("max by (job, instance) (process_resident_memory_bytes)", "{{job}} {{instance}}")], "Of each router and worker."),
        ("Processor", "short", "graph", [("rate(process_cpu_seconds_total" + RATE + ")", "{{job}} {{instance}}")], "Cores in use."),
    ]),
]

MODELS = [
    ("Model $model", [
        ("Requests by outcome", "reqps", "graph", [(rate("quire_router_requests_total", "model, outcome", MODEL), "{{model}} {{outcome}}")], "Of each model; `failed` and `rejected` are apart."),
        ("Broken streams", "reqps", "graph", [(rate("quire_router_stream_failures_total", "model", MODEL), "{{model}}")],
         "Requests that failed after their answer had begun: the worst kind, for the client has half of it."),
        ("Waiting", "short", "graph", [("sum by (model, priority) (quire_router_queued_requests{" + MODEL + "})", "{{model}} {{priority}}")],
         "Also counted while no worker is there at all, so that an autoscaler can start the first."),
        ("Ready workers", "short", "graph", [("max by (model) (quire_router_model_ready_workers{" + MODEL + "})", "{{model}}")],
         "As the router sees it that sees the most. `unknown`: no worker has ever had its model."),
        ("Wait in the router's queue", "s", "graph", [(quantile(q, "quire_router_queue_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.99)],
         "Over all models."),
    ]),
    ("Promises", [
        ("First tokens in time", "percentunit", "graph", [(within("time_to_first_token", FIRST_TOKEN_S, "model", MODEL), "{{model}}")], f"Share within {FIRST_TOKEN_S} s."),
        ("Gaps in time", "percentunit", "graph", [(within("inter_token_gap", GAP_S, "model", MODEL), "{{model}}")], f"Share within {GAP_S} s."),
        ("First token, spread", "s", "heatmap", [(heat("quire_router_time_to_first_token_seconds", MODEL), "{{le}}")], "Two bands are two kinds of requests, such as hits and misses."),
        ("Gap, spread", "s", "heatmap", [(heat("quire_router_inter_token_gap_seconds", MODEL), "{{le}}")], "A second, slower band is prefill or preemption between tokens."),
    ]),
    ("By length of prompt", [
        ("First token, p50", "s", "graph", [(quantile(0.5, "quire_router_time_to_first_token_seconds", "prompt_tokens", MODEL), "{{prompt_tokens}}")],
         "Bands of prompt tokens: a rise in one band alone is long prefills, a rise in all is load."),
        ("First token, p99", "s", "graph", [(quantile(0.99, "quire_router_time_to_first_token_seconds", "prompt_tokens", MODEL), "{{prompt_tokens}}")], "The slow end, by band of prompt tokens."),
        ("Gap, p50", "s", "graph", [(quantile(0.5, "quire_router_inter_token_gap_seconds", "prompt_tokens", MODEL), "{{prompt_tokens}}")], "By band of prompt tokens: longer contexts read more cache for each token."),
        ("Gap, p99", "s", "graph", [(quantile(0.99, "quire_router_inter_token_gap_seconds", "prompt_tokens", MODEL), "{{prompt_tokens}}")], "The slow end, by band of prompt tokens."),
    ]),
    ("In the workers", [
        ("Prompt sizes", "short", "graph", [(quantile(q, "vllm:request_prompt_tokens", "", VLLM), f"p{round(q * 100)}") for q in (0.5, 0.99)], "Tokens of prompts, as the workers saw them."),
        ("Output sizes", "short", "graph", [(quantile(q, "vllm:request_generation_tokens", "", VLLM), f"p{round(q * 100)}") for q in (0.5, 0.99)], "Tokens of answers, as the workers made them."),
        ("Phases of a request, mean", "s", "graph",
         [(share(rate(f"vllm:request_{p}_time_seconds_sum", "", VLLM), rate(f"vllm:request_{p}_time_seconds_count", "", VLLM)), p)
          for p in ("queue", "prefill", "decode")], "Where its time went: waiting at the worker, prefill, decode."),
        ("Ends", "reqps", "graph", [(rate("vllm:request_success_total", "finished_reason", VLLM), "{{finished_reason}}")], "Why answers ended: stop, length, abort."),
        ("Prompt tokens/s by source", "short", "graph", [(rate("vllm:prompt_tokens_by_source_total", "source", VLLM), "{{source}}")], "Computed, or taken from the cache."),
        ("Waiting, by what for", "short", "graph", [("sum by (reason) (vllm:num_requests_waiting_by_reason{" + VLLM + "})", "{{reason}}")], "Requests at workers that wait for pages, or for their turn."),
    ]),
]

ENGINE = [
    ("Batch", [
        ("Rows", "short", "graph", [("quire_worker_running_rows", "{{instance}} running"), ("quire_worker_waiting_requests", "{{instance}} waiting")], "Rows that are in the batch, and requests that wait for a place in it."),
        ("Steps/s", "short", "graph", [("rate(quire_worker_steps_total" + RATE + ")", "{{instance}}")], "How often the engine runs its batch."),
        ("Tokens/s", "short", "graph", [("rate(quire_worker_generated_tokens_total" + RATE + ")", "{{instance}} sampled"),
                                        ("rate(quire_worker_computed_tokens_total" + RATE + ")", "{{instance}} prefill")], "Sampled tokens, and prompt tokens computed."),
        ("Time of a step", "s", "graph", [(quantile(0.5, "quire_worker_step_seconds", "phase"), "{{phase}} p50"), (quantile(0.99, "quire_worker_step_seconds", "phase"), "{{phase}} p99")],
         "decode and prefill are the runner's time, host is what the engine takes around it."),
        ("Tokens of a step", "short", "graph", [(quantile(q, "vllm:iteration_tokens_total"), f"p{round(q * 100)}") for q in (0.5, 0.99)], "Decode rows and prefill together."),
        ("Age of the running step", "s", "graph", [("quire_worker_step_age_seconds", "{{instance}}"), ("quire_worker_step_limit_seconds", "{{instance}} limit")],
         "Above its limit a step counts as stuck: the routers move the streams away and the watchdog ends the process."),
    ]),
    ("Cache", [
        ("Pages", "short", "graph", [("quire_worker_pages_held", "{{instance}} held"), ("quire_worker_pages_evictable", "{{instance}} cached, free to take"),
                                     ("quire_worker_pages_free", "{{instance}} free")], "Pages that requests hold, pages with cached blocks that may be taken, and unused ones."),
        ("Hits", "percentunit", "graph", [(share(rate("quire_worker_prefix_cache_hits_total", "instance"), rate("quire_worker_prefix_cache_queries_total", "instance")),
                                           "{{instance}}")], "Share of looked-up tokens that the prefix cache held."),
        ("Blocks stored and evicted", "short", "graph", [("rate(quire_worker_prefix_cache_stored_blocks_total" + RATE + ")", "{{instance}} stored"),
                                                         ("rate(quire_worker_prefix_cache_evicted_blocks_total" + RATE + ")", "{{instance}} evicted")], "As many evictions as stores: the cache is full."),
        ("Preemptions and recompute", "short", "graph", [("rate(quire_worker_preemptions_total" + RATE + ")", "{{instance}} preemptions"),
                                                         ("rate(quire_worker_recomputed_tokens_total" + RATE + ")", "{{instance}} tokens done again")],
         "More than a trickle: too many rows for the cache."),
    ]),
    ("Constraints", [
        ("Constrained answers", "short", "graph", [("quire_worker_constrained_texts", "{{instance}} answers"),
                                                   ("rate(quire_worker_constrained_rows_total" + RATE + ")", "{{instance}} tokens/s")], "Answers under a grammar."),
        ("Time for masks", "percentunit", "graph", [(rate("quire_worker_step_mask_seconds_sum", "phase"), "{{phase}}"), (rate("quire_worker_constraint_compile_seconds_sum", ""), "compiling")],
         "Share of one core; `wait` is what steps waited for their masks."),
        ("Grammars", "short", "graph", [("rate(quire_worker_constraint_cache_hits_total" + RATE + ")", "{{instance}} found"),
                                        ("rate(quire_worker_constraint_cache_misses_total" + RATE + ")", "{{instance}} compiled")], "Constraints that the cache had, and those that were compiled."),
        ("Refused constraints", "reqps", "graph", [(rate("quire_worker_constraints_refused_total", "cause"), "{{cause}}")], "By cause: what the client asked for could not be compiled, or is too large."),
    ]),
    ("Tensor-parallel ranks", [
        ("Ranks", "short", "graph", [("quire_worker_ranks", "{{instance}}"), ("quire_worker_rank_ready", "{{instance}} ready")],
         "None is ready while they are started again: the routers have carried the streams on."),
        ("Ranks lost", "short", "graph", [("increase(quire_worker_rank_failures_total" + RATE + ")", "{{instance}} {{why}}"),
                                          ("increase(quire_worker_rank_restarts_total" + RATE + ")", "{{instance}} restarts")], "A lost rank ends its group, which starts again."),
    ]),
    ("Work that no client received", [
        ("Discarded tokens", "short", "graph", [("rate(quire_worker_discarded_tokens_total" + RATE + ")", "{{instance}}")], "Sampled behind the end of their choice."),
        ("Paused rows", "short", "graph", [("rate(quire_worker_windows_used_up_total" + RATE + ")", "{{instance}}")], "Choices that waited for a slow client."),
        ("Refusals", "reqps", "graph", [(rate("quire_worker_refused_total", "code"), "{{code}}"), (rate("quire_worker_rpc_refusals_total", "code"), "{{code}} (wire)")], "Requests that a worker refused, by code, and those refused on the wire."),
        ("Ends", "reqps", "graph", [(rate("quire_worker_choices_ended_total", "reason"), "{{reason}}")], "Choices that ended, by reason."),
        ("Failures by cause", "reqps", "graph", [(rate("quire_worker_failed_attempts_total", "cause"), "{{cause}}")], "`device_lost` is carried on elsewhere; the others reach their clients."),
    ]),
    ("Settings", [
        ("Caches", "short", "table", [("vllm:cache_config_info", "")],
         "Block size, pages and settings of each worker's cache."),
        ("Builds", "short", "table", [("quire_build_info", "")], "A rolling update shows two versions here."),
    ]),
    ("Wire", [
        ("Routers attached", "short", "graph", [("quire_worker_routers_attached", "{{instance}}")], "Each worker counts the routers that have a stream to it."),
        ("Bytes/s to routers", "Bps", "graph", [("rate(quire_worker_rpc_bytes_sent_total" + RATE + ")", "{{instance}}")], "Tokens, cache events and load reports."),
        ("Frames/s", "short", "graph", [("rate(quire_worker_rpc_frames_sent_total" + RATE + ")", "{{instance}} out"),
                                        ("rate(quire_worker_rpc_frames_received_total" + RATE + ")", "{{instance}} in")], "A busy worker sends one frame for each step."),
        ("Wrong words", "short", "graph", [("rate(quire_worker_rpc_protocol_errors_total" + RATE + ")", "{{instance}} protocol errors"),
                                           ("rate(quire_worker_rpc_events_dropped_total" + RATE + ")", "{{instance}} cache events dropped")], "Never in health: a peer broke the protocol, or cache events came faster than they left."),
    ]),
]

ROUTER = [
    ("Choosing", [
        ("Decisions by reason", "reqps", "graph", [(rate("quire_router_routing_decisions_total", "policy, reason"), "{{policy}}: {{reason}}")], "Why the policy took the worker that it took."),
        ("Cached share of prompts", "percentunit", "graph", [(share(rate("quire_router_cached_tokens_total"), rate("quire_router_prompt_tokens_total")), "cached")],
         "What prefix-aware routing is for."),
        ("Predictions", "reqps", "graph", [(rate("quire_router_cache_predictions_total", "verdict"), "{{verdict}}")],
         "`raced`: a cache event lay between. `wrong` is a bug: keep the worker's log."),
        ("Index of the caches", "short", "graph", [("sum by (state) (quire_router_cache_index_workers)", "{{state}}")], "Only `exact` workers score by what they hold."),
    ]),
    ("Balance", [
        ("Attempts by worker", "short", "graph", [("sum by (worker) (quire_router_worker_attempts{" + WORKER + "})", "{{worker}}")], "Attempts of this router that are under way."),
        ("Rows by worker", "short", "graph", [("max by (worker) (quire_router_worker_running_rows{" + WORKER + "})", "{{worker}}")], "Rows that each worker runs, of all routers."),
        ("Prefill work by worker", "short", "graph", [("max by (worker) (quire_router_worker_prefill_tokens{" + WORKER + "})", "{{worker}}")], "Prompt tokens that wait at each worker."),
        ("Cache held by worker", "percentunit", "graph", [("max by (worker) (quire_router_worker_kv_held_ratio{" + WORKER + "})", "{{worker}}")], "Share of its pages that requests hold."),
    ]),
    ("Relay", [
        ("Frames/s from workers", "short", "graph", [("rate(quire_router_relayed_frames_total" + RATE + ")", "{{instance}}")], "What the event loop takes in."),
        ("Cost of a frame", "s", "graph", [("rate(quire_router_relay_seconds_total" + RATE + ") / clamp_min(rate(quire_router_relayed_frames_total" + RATE + "), 1e-9)", "{{instance}}")],
         "Event-loop time per frame, from the worker's words to the clients' writes."),
        ("Memory of index and journals", "bytes", "graph", [("quire_router_cache_index_bytes", "{{instance}} index"), ("quire_router_journal_bytes", "{{instance}} journals")], "What routers know of caches, and the accepted tokens of running answers."),
        ("Snapshots", "short", "graph", [("rate(quire_router_cache_index_snapshots_total" + RATE + ")", "{{instance}} asked for"),
                                         ("rate(quire_router_cache_index_stale_total" + RATE + ")", "{{instance}} gaps in events")], "Gaps in a worker's events make a router ask for its whole index."),
    ]),
    ("Edge", [
        ("Open connections", "short", "graph", [("quire_router_connections_open", "{{instance}}")], "Of clients, over HTTP and gRPC."),
        ("Answers by class", "reqps", "graph", [(rate("quire_router_http_responses_total", "class"), "{{class}}"), (rate("quire_router_grpc_requests_total"), "gRPC")], "HTTP answers by class of status, and gRPC calls."),
        ("Clients that left", "reqps", "graph", [(rate("quire_router_client_disconnects_total"), "HTTP"), (rate("quire_router_grpc_cancelled_total"), "gRPC")], "Clients that went away before their answer ended; their requests were cancelled."),
        ("Limits hit", "reqps", "graph", [(rate("quire_router_limit_refusals_total", "limit"), "{{limit}}"),
                                          (rate("quire_router_connections_refused_total"), "connections"),
                                          (rate("quire_router_http_headers_too_large_total"), "header bytes"),
                                          (rate("quire_router_http_bodies_too_large_total"), "body bytes"),
                                          (rate("quire_router_bodies_refused_total"), "bytes of all bodies"),
                                          (rate("quire_router_http2_streams_over_limit_total"), "streams of a connection"),
                                          (rate("quire_router_http2_guard_closed_total"), "HTTP/2 rates")], "Requests and connections that met a limit, by limit. Flags set them."),
    ]),
]

FAILURES = [
    ("Streams that moved", [
        ("Carry-ons", "reqps", "graph", [(rate("quire_router_carry_ons_total"), "carried on"), (rate("quire_router_inexact_carry_ons_total"), "under other numerics"),
                                         (rate("quire_router_paced_carry_ons_total"), "paced")], "Answers that another worker continued. Under other numerics, later tokens may differ from an undisturbed run."),
        ("Gap that clients saw, p99", "s", "graph", [(quantile(0.99, "quire_router_failover_gap_seconds", "cause"), "{{cause}}")], "By what ended the attempt before."),
        ("Failovers by cause", "reqps", "graph", [(rate("quire_router_failover_gap_seconds_count", "cause"), "{{cause}}")], "What ended the attempts that were continued."),
        ("Placement retries", "reqps", "graph", [(rate("quire_router_placement_retries_total"), "retried"), (rate("quire_router_placement_retries_denied_total"), "denied by the budget")], "Requests that a worker refused before any output, tried elsewhere; the budget bounds them."),
    ]),
    ("Workers", [
        ("Phases", "short", "graph", [("sum by (phase) (quire_router_workers)", "{{phase}}")], "Workers by state, as the routers see them."),
        ("Deaths", "short", "graph", [("increase(quire_router_worker_deaths_total" + RATE + ")", "{{instance}} deaths"),
                                      ("increase(quire_router_silent_workers_total" + RATE + ")", "{{instance}} silences"),
                                      ("increase(quire_router_lost_links_total" + RATE + ")", "{{instance}} links lost")], "Workers that died or fell silent, and links that broke."),
        ("Deaths held against each", "short", "graph", [("max by (worker) (quire_router_worker_deaths{" + WORKER + "})", "{{worker}}")], "After the second one a worker is left out for a while that grows."),
        ("Suspect requests", "short", "graph", [("increase(quire_router_suspect_requests_total" + RATE + ")", "{{instance}} ended"),
                                                ("increase(quire_router_suspect_prompts_refused_total" + RATE + ")", "{{instance}} refused")],
         "Requests under which workers kept dying."),
    ]),
    ("Nothing lost", [
        ("Streams that broke off", "reqps", "graph", [(rate("quire_router_stream_failures_total", "model"), "{{model}}")], "Answers that failed after they had begun."),
        ("Outputs dropped by the fence", "short", "graph", [(rate("quire_router_stale_outputs_total"), "stale attempt"), (rate("quire_router_duplicate_outputs_total"), "repeated"),
                                                            (rate("quire_router_late_outputs_total"), "after the end")], "Dropping them is what keeps a stream exact."),
        ("Broken attempts", "short", "graph", [(rate("quire_router_broken_attempts_total"), "gap or overrun")], "Never in health: a worker sent too much or too little."),
        ("Draining", "short", "graph", [('sum(quire_router_workers{phase="draining"})', "workers")], "Workers that take no new work before they end."),
    ]),
]

TENANTS = [
    ("Tenants", [
        ("Requests", "reqps", "graph", [(rate("quire_router_tenant_requests_total", "tenant"), "{{tenant}}")], "The tenants of the key file, at most 100; the rest is `other`."),
        ("Over their quota", "reqps", "graph", [(rate("quire_router_quota_refusals_total", "tenant"), "{{tenant}}")], "Answered with 429."),
        ("Refused by us", "reqps", "graph", [(rate("quire_router_refused_requests_total", "cause"), "{{cause}}")], "Answered with 503 where it is not a quota."),
        ("Not let in", "reqps", "graph", [(rate("quire_router_auth_refusals_total", "reason"), "{{reason}}")], "Requests without a key, or with a wrong one."),
    ]),
]

VARIABLES = {
    "model": "label_values(quire_router_requests_total, model)",
    "worker": "label_values(quire_router_worker_ready, worker)",
}

DASHBOARDS = {
    "fleet": ("Quire: fleet", FLEET, []),
    "model": ("Quire: models", MODELS, ["model"]),
    "engine": ("Quire: workers and engines", ENGINE, []),
    "router": ("Quire: routers and caches", ROUTER, ["worker"]),
    "failures": ("Quire: failures and drains", FAILURES, ["worker"]),
    "tenants": ("Quire: tenants", TENANTS, []),
}


TYPES = {"stat": "stat", "graph": "timeseries", "heatmap": "heatmap", "table": "table"}


def table_of(shown, queries):
    """One row for a model, or a worker, with a column for each query."""
    for target in shown["targets"]:
        target |= {"instant": True, "range": False, "format": "table"}
    hidden = ["Time", "__name__", *(f"Time {i + 1}" for i in range(len(queries)))]
    organized = {"id": "organize", "options": {"excludeByName": dict.fromkeys(hidden, True), "renameByName": {}}}
    shown["transformations"] = [organized]
    if len(queries) > 1:
        shown["transformations"].insert(0, {"id": "joinByField", "options": {"byField": "model", "mode": "outer"}})
        organized["options"]["renameByName"] = {f"Value #{chr(ord('A') + i)}": name for i, (_, name) in enumerate(queries)}
        link = {"title": "This model", "url": "/d/quire-model?var-model=${__value.raw}"}
        shown["fieldConfig"]["overrides"] = [{"matcher": {"id": "byName", "options": "model"}, "properties": [{"id": "links", "value": [link]}]}]
    else:
        organized["options"]["excludeByName"]["Value"] = True
    shown["options"] = {"showHeader": True}


def panel(number, place, spec):
    title, unit, kind, queries, help_text = spec
    shown = {
        "id": number,
        "title": title,
        "description": help_text,
        "type": TYPES[kind],
        "gridPos": place,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [{"refId": chr(ord("A") + i), "expr": query, "legendFormat": legend,
                     "datasource": {"type": "prometheus", "uid": "${datasource}"}}
                    for i, (query, legend) in enumerate(queries)],
    }
    if kind == "stat":
        shown["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto", "colorMode": "none"}
    elif kind == "table":
        table_of(shown, queries)
    elif kind == "heatmap":
        shown["targets"][0]["format"] = "heatmap"
        shown["options"] = {"calculate": False, "yAxis": {"unit": unit}, "color": {"mode": "scheme", "scheme": "Blues"}}
    else:
        shown["options"] = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
        shown["fieldConfig"]["defaults"]["custom"] = {"fillOpacity": 8, "lineWidth": 1, "showPoints": "never"}
    return shown


def dashboard(name):
    title, rows, variables = DASHBOARDS[name]
    panels = []
    top = 0
    for row_title, specs in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row_title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": top, "w": WIDTH, "h": 1}})
        top += 1
        small = specs[0][2] == "stat"
        width, height = (WIDTH // len(specs), 4) if small else (WIDTH // min(2, len(specs)), 8)
        for i, spec in enumerate(specs):
            per_row = WIDTH // width
            place = {"x": i % per_row * width, "y": top + i // per_row * height, "w": width, "h": height}
            panels.append(panel(len(panels) + 1, place, spec))
        top += height * -(-len(specs) // (WIDTH // width))
    templates = [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}]
    templates += [{"name": v, "type": "query", "query": VARIABLES[v], "definition": VARIABLES[v], "refresh": 2, "multi": True,
                   "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"},
                   "datasource": {"type": "prometheus", "uid": "${datasource}"}} for v in variables]
    links = [{"title": other, "type": "link", "url": f"/d/quire-{key}", "keepTime": True}
             for key, (other, _, _) in DASHBOARDS.items() if key != name]
    return {"uid": f"quire-{name}", "title": title, "tags": ["quire"], "schemaVersion": 39, "version": 1, "editable": True,
            "refresh": "10s", "time": {"from": "now-30m", "to": "now"}, "timezone": "", "graphTooltip": 1,
            "templating": {"list": templates}, "links": links, "annotations": {"list": []}, "panels": panels}


def main(arguments):
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    stale = []
    for name in DASHBOARDS:
        path = FOLDER / f"{name}.json"
        text = json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"
        if arguments and (not path.exists() or path.read_text() != text):
            stale.append(path.name)
        if not arguments:
            path.write_text(text)
    if stale:
        print(f"not what dashboards.py writes: {', '.join(stale)}; run it without arguments", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
