// Assembles the router's parts, from listening to leaving.
//
// Owner: main, whose thread runs the event loop. Threads: the loop; two for tokenising, templates,
// large bodies and messages; two for the signatures of clients' TLS handshakes; those of optional
// parts (router/README.md).
#pragma once

#include <memory>

#include "common/log/log.h"
#include "common/trace/settings.h"
#include "router/config.h"

namespace quire {

class RouterProcess {
 public:
  RouterProcess(const RouterConfig& config, const trace::TraceSettings& tracing, Logger& log);
  ~RouterProcess();

  // Reads keys and certificates; INVALID_ARGUMENT names flag and file. With --check-ports it binds
  // the ports and releases them; UNAVAILABLE for one that is taken.
  absl::Status Check();
  // Does the same, then listens and dials the workers. The message names the flag; UNAVAILABLE for
  // a port that is taken, INVALID_ARGUMENT for settings that do not fit together.
  absl::Status Start();
  // Serves until SIGTERM or SIGINT and the drain after it. Returns the exit code.
  int Run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
