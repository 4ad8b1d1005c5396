// The router's parts put together, from listening to leaving.
//
// Owner: main, on whose thread the event loop runs. Threads: the loop; two for tokenising,
// templates, large bodies and messages; two for the signatures of clients' TLS handshakes; those
// of parts that are asked for (router/README.md).
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
  // the ports and lets go of them; UNAVAILABLE for one that is taken.
  absl::Status Check();
  // That, then listens and dials the workers. The message names the flag; UNAVAILABLE for a port
  // that is taken, INVALID_ARGUMENT for settings that do not fit together.
  absl::Status Start();
  // Serves until SIGTERM or SIGINT and the drain after it. The exit code.
  int Run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
