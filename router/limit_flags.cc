#include "router/limit_flags.h"

namespace quire {
namespace {

constexpr double kLongestTimeoutMs = 24.0 * 3600 * 1000;
constexpr double kLongestAgeMs = 30 * 24.0 * 3600 * 1000;
constexpr double kMostBytes = static_cast<double>(int64_t{1} << 40);

void AddRequestLimitFlags(config::Schema& schema, RouterConfig& c) {
  schema.Add(
      {.name = "max-streams-per-connection",
       .help = "Calls that one HTTP/2 connection may have open at once. The router announces the "
               "limit, and clients hold further calls back.",
       .target = &c.grpc.max_concurrent_streams,
       .min = 1,
       .max = 1 << 16});
  schema.Add({.name = "max-requests-per-call",
              .help = "Requests that run at once in one ModelStreamInfer call; those beyond are "
                      "refused in it.",
              .target = &c.grpc.max_requests_per_call,
              .min = 1,
              .max = 1 << 12});
  schema.Add({.name = "max-prompts",
              .help = "Prompts of one completion request.",
              .target = &c.requests.max_prompts,
              .min = 1,
              .max = 1024});
  schema.Add({.name = "max-messages",
              .help = "Messages of one chat.",
              .target = &c.requests.max_messages,
              .min = 1,
              .max = 16'384});
  schema.Add(
      {.name = "max-json-depth",
       .help = "Levels of lists and objects in a body, or in JSON that a gRPC message holds.",
       .target = &c.requests.max_json_depth,
       .min = 4,
       .max = 64});
  schema.Add({.name = "max-json-values",
              .help = "Values of a body, or of JSON that a gRPC message holds: numbers, strings, "
                      "lists, objects.",
              .target = &c.requests.max_json_values,
              .min = 1024,
              .max = 1 << 24});
  schema.Add({.name = "max-prompt-bytes",
              .help = "Size of one prompt's or prediction's text, or a chat's messages and tools.",
              .target = config::InBytes(&c.requests.max_prompt_bytes),
              .also = {config::InBytes(&c.pipeline.limits.max_prompt_bytes)},
              .min = 1,
              .max = 1 << 30});
  schema.Add({.name = "max-choices",
              .help = "Choices (n) that a request may ask for.",
              .target = &c.requests.max_choices,
              .min = 1,
              .max = 128});
  schema.Add({.name = "max-request-choices",
              .help = "Choices of one request: its prompts times n.",
              .target = &c.requests.max_request_choices,
              .min = 1,
              .max = 1 << 17});
  schema.Add({.name = "max-stop-strings",
              .help = "Stop strings of a request.",
              .target = &c.requests.max_stop_strings,
              .also = {&c.pipeline.limits.max_stop_strings},
              .min = 0,
              .max = 16});
  schema.Add({.name = "max-logit-bias",
              .help = "Entries of a request's logit_bias.",
              .target = &c.requests.max_logit_bias,
              .min = 0,
              .max = 300});
  schema.Add({.name = "max-tools",
              .help = "Tools of one chat.",
              .target = &c.requests.max_tools,
              .min = 0,
              .max = 4096});
}

void AddSizeFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Limits");
  schema.Add({.name = "max-connections",
              .help =
                  "Connections that are open at once; at the limit the oldest idle one that has "
                  "shown no key gives way, and where there is none who comes is served probes "
                  "alone.",
              .target = &c.front.max_connections,
              .min = 1,
              .max = 1 << 20});
  schema.Add(
      {.name = "max-connections-per-address",
       .help = "Connections that one address may have, or one /64 of IPv6; the router asks more of "
               "them to come back later. Those of --trusted-proxies do not count.",
       .target = &c.front.max_connections_per_address,
       .min = 0,
       .max = 1 << 20,
       .default_text = "a quarter of --max-connections; any number on loopback"});
  schema.Add({.name = "max-live-requests",
              .help = "Requests that are served at once, queued ones counted; more are refused "
                      "with 503.",
              .target = &c.pipeline.limits.max_live_requests,
              .min = 1,
              .max = 1 << 20});
  schema.Add({.name = "max-header-bytes",
              .help = "Size of a request's headers, also of a call's over HTTP/2.",
              .target = config::InBytes(&c.http.max_header_bytes),
              .also = {config::InBytes(&c.grpc.max_metadata_bytes),
                       config::InBytes(&c.grpc.guard.max_header_block_bytes),
                       config::InBytes(&c.grpc.guard.max_control_frame_bytes)},
              .min = 1024,
              .max = 1 << 20});
  schema.Add({.name = "max-body-bytes",
              .help = "Size of a request's body, or of a gRPC message.",
              .target = config::InBytes(&c.http.max_body_bytes),
              .also = {config::InBytes(&c.grpc.max_receive_bytes)},
              .min = 1024,
              .max = 1 << 30});
  schema.Add({.name = "max-total-body-bytes",
              .help =
                  "Bytes of all requests' bodies until they are parsed, and as many again of all "
                  "prompts until they are tokens; requests beyond are asked to come again.",
              .target = config::InBytes(&c.http.max_total_body_bytes),
              .also = {config::InBytes(&c.pipeline.max_waiting_prompt_bytes)},
              .min = 1024,
              .max = kMostBytes});
  schema.Add({.name = "max-response-bytes",
              .help = "Size of the text of an answer that is not streamed.",
              .target = config::InBytes(&c.pipeline.limits.max_response_bytes),
              .min = 1024,
              .max = 1 << 30});
}

void AddMemoryFlags(config::Schema& schema, RouterConfig& c) {
  schema.Add({.name = "max-client-memory-bytes",
              .help = "Memory that all clients together may make the router hold: bodies, headers, "
                      "parsed requests, prompts, waiting answers; more is refused with 503. 0: a "
                      "quarter of what the router may use.",
              .target = &c.max_client_memory,
              .max = kMostBytes});
  schema.Add({.name = "max-tenant-memory-bytes",
              .help = "Of that, the share that one tenant may hold. 0: a half.",
              .target = &c.max_tenant_memory,
              .max = kMostBytes});
  schema.Add({.name = "max-connection-memory-bytes",
              .help = "Of that, the share that one connection may hold. 0: a quarter.",
              .target = &c.max_connection_memory,
              .max = kMostBytes});
  schema.Add({.name = "responses-store",
              .help =
                  "Of that, the share for kept answers of /v1/responses, which clients continue by "
                  "previous_response_id; the oldest give way. 0: no answer is kept.",
              .target = &c.responses_store,
              .max = kMostBytes});
}

void AddBatchFlags(config::Schema& schema, RouterConfig& c) {
  schema.Group("Batches");
  schema.Add({.name = "batches-dir",
              .help = "Folder for OpenAI's /v1/files and /v1/batches: what clients upload, and the "
                      "results. Routers may share it; it is made where it is not there.",
              .target = &c.batches_dir,
              .value_name = "DIR",
              .default_text = "none: they are not served"});
  schema.Add({.name = "max-batch-files-bytes",
              .help = "Size of that folder, results included. One tenant may have a half, as of "
                      "the files and batches below.",
              .target = config::InBytes(&c.batches.max_file_bytes),
              .min = 1024,
              .max = 1024 * kMostBytes});
  schema.Add({.name = "max-batch-files",
              .help = "Files of all tenants, results included.",
              .target = &c.batches.max_files,
              .min = 2,
              .max = 1 << 20});
  schema.Add({.name = "max-batch-lines",
              .help = "Requests of one batch.",
              .target = &c.batches.max_lines,
              .min = 1,
              .max = 1'000'000});
  schema.Add({.name = "max-open-batches",
              .help = "Batches of all tenants that wait or run.",
              .target = &c.batches.max_open,
              .min = 2,
              .max = 1 << 14});
  schema.Add({.name = "max-running-batches",
              .help = "Batches that this router runs at once.",
              .target = &c.batches.max_running,
              .min = 1,
              .max = 64});
  schema.Add({.name = "max-batch-in-flight",
              .help = "Requests of one batch that are under way at once.",
              .target = &c.batches.max_in_flight,
              .min = 1,
              .max = 1024});
}

void AddTimeFlags(config::Schema& schema, RouterConfig& c) {
  schema.Add({.name = "header-timeout",
              .help = "Time for a request's headers to come.",
              .target = config::InMicros(&c.http.header_timeout),
              .also = {config::InMicros(&c.front.first_bytes_timeout),
                       config::InMicros(&c.front.tls_handshake_timeout)},
              .min = 1,
              .max = kLongestTimeoutMs});
  schema.Add({.name = "body-timeout",
              .help = "Time for a request's body to come, or a message over gRPC once it is begun.",
              .target = config::InMicros(&c.http.body_timeout),
              .also = {config::InMicros(&c.grpc.message_timeout)},
              .min = 1,
              .max = kLongestTimeoutMs});
  schema.Add({.name = "idle-timeout",
              .help = "Time that a connection may stay open without a request.",
              .target = config::InMicros(&c.http.idle_timeout),
              .also = {config::InMicros(&c.grpc.idle_timeout)},
              .min = 1,
              .max = kLongestTimeoutMs});
  schema.Add({.name = "slow-client-timeout",
              .help = "Time after which a client that takes nothing of its answer is given up.",
              .target = config::InMicros(&c.http.write_timeout),
              .also = {config::InMicros(&c.grpc.write_timeout)},
              .min = 100,
              .max = kLongestTimeoutMs});
  schema.Add({.name = "slow-client-rate",
              .help = "Bytes a second that a client must take of an answer that waits for it, on "
                      "average over --slow-client-timeout; one that takes less is given up.",
              .target = config::InBytes(&c.http.min_read_bytes_per_second),
              .min = 1,
              .max = 1 << 30});
  schema.Add({.name = "max-connection-age",
              .help = "Age at which a gRPC connection is left, give or take a tenth: its client "
                      "opens another, perhaps to a router that is new. 0: at none.",
              .target = config::InMicros(&c.grpc.max_connection_age),
              .max = kLongestAgeMs});
  schema.Add({.name = "max-connection-age-grace",
              .help = "Time that its calls then have to end; what still runs is UNAVAILABLE. 0: as "
                      "long as they take.",
              .target = config::InMicros(&c.grpc.max_connection_age_grace),
              .max = kLongestAgeMs});
  schema.Add({.name = "sse-commit-after",
              .help = "Time after which a stream without a token yet gets its status and comments "
                      "that keep it alive.",
              .target = config::InMicros(&c.http.sse_commit_after),
              .min = 1,
              .max = kLongestTimeoutMs});
  schema.Add({.name = "stream-keep-alive",
              .help = "Silence after which the client of a stream gets a comment, over gRPC a "
                      "ping: less than what proxies on the way take for the end of a connection.",
              .target = config::InMicros(&c.http.sse_keep_alive),
              .also = {config::InMicros(&c.grpc.keep_alive)},
              .min = 100,
              .max = kLongestTimeoutMs});
}

}  // namespace

void AddLimitFlags(config::Schema& schema, RouterConfig& config) {
  AddSizeFlags(schema, config);
  AddMemoryFlags(schema, config);
  AddTimeFlags(schema, config);
  AddRequestLimitFlags(schema, config);
  AddBatchFlags(schema, config);
}

}  // namespace quire
