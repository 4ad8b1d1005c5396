#include "worker/network_flags.h"

#include "common/config/common_flags.h"

namespace quire {
namespace {

void AddTlsFlags(config::Schema& schema, WorkerConfig& c) {
  config::AddCertificateFlags(schema,
                              "routers, whose subject alternative name is what they ask for "
                              "(--worker-tls-name); with --tls-key-file and --tls-ca-file, all "
                              "read again when they change.",
                              c.tls_cert_file, c.tls_key_file);
  schema.Add({.name = "tls-ca-file",
              .help = "PEM file with the authorities whose certificates routers must show: two "
                      "while one takes over from the other.",
              .target = &c.tls_ca_file,
              .value_name = "FILE"});
  schema.Add(
      {.name = "tls-router-name",
       .help =
           "Subject alternative name, DNS or URI, that a router's certificate has and others of "
           "the same authorities lack; the worker refuses certificates without it.",
       .target = &c.tls_router_names,
       .value_name = "NAME"});
}

}  // namespace

void AddNetworkFlags(config::Schema& schema, WorkerConfig& c) {
  schema.Group("Network");
  schema.Add({.name = "listen",
              .help = "Address for routers; port 0 lets the system choose.",
              .target = &c.listen,
              .value_name = "HOST:PORT"});
  schema.Add({.name = "worker-id",
              .help = "Name under which routers know this worker, unlike any other's and the same "
                      "after a restart, so that its share of prompts stays its own.",
              .target = &c.worker_id,
              .value_name = "NAME",
              .default_text = "the machine's name, in a pod the pod's, and the port"});
  schema.Add({.name = "max-unsent-events",
              .help =
                  "Events of cached blocks that may wait for a router that reads slowly; beyond "
                  "them the router asks for a snapshot.",
              .target = &c.max_unsent_events,
              .min = 64,
              .max = 1 << 24});
  schema.Add({.name = "http-port",
              .help = "Port for probes and metrics on the same host; 0 lets the system choose.",
              .target = &c.http_port,
              .min = 0,
              .max = 65535});
  schema.Add(
      {.name = "insecure",
       .help = "Listen off loopback without TLS: whoever reaches the port can use the model.",
       .target = &c.insecure});
  AddTlsFlags(schema, c);
  schema.Add({.name = "drain-timeout",
              .help = "Time for running requests to end after SIGTERM; then routers carry them on "
                      "at other workers.",
              .target = &c.drain_timeout,
              .min = 0,
              .max = 24 * 3600e3});
  schema.Add({.name = "drain-hard-limit",
              .help = "Time after SIGTERM in which requests that have nowhere to go run on; then "
                      "the worker ends them and asks their clients to come back.",
              .target = &c.drain_hard_limit,
              .min = -1,
              .max = 48 * 3600e3,
              .default_text = "--drain-timeout and 30s"});
  schema.Add({.name = "slow-client-timeout",
              .help = "Time after which a request whose client takes no tokens is ended.",
              .target = config::InMicros(&c.engine.slow_client_timeout_us),
              .min = 100,
              .max = 24 * 3600e3});
  schema.Add({.name = "watchdog-grace",
              .help = "Time for a step over its limit to end after all; then the stacks have been "
                      "logged and the worker exits. 0 lets it stay.",
              .target = config::InMicros(&c.watchdog.grace),
              .min = 0,
              .max = 24 * 3600e3});
  config::AddReadyFlag(schema, c.ready_fd);
  config::AddCoreDumpsFlag(schema, c.core_dumps);
  schema.Group("Log");
  config::AddRequestLogFlag(schema, "attempt that has ended: its tokens, end and phases",
                            c.request_log);
  config::AddTracesFlag(schema, c.otlp_traces_endpoint);
  config::AddLogFlags(schema, c.log_level, c.log_format);
}

}  // namespace quire
