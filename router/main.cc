// quire-router: takes requests over HTTP and gRPC and has workers answer them.
//
// Exit codes: 0 done, 1 failed at run time, 2 bad arguments or configuration.
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>

#include "router/config.h"
#include "router/router_process.h"

namespace quire {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailed = 1;
constexpr int kExitBadArguments = 2;

int Fail(int exit_code, const std::string& message) {
  std::fprintf(stderr, "quire-router: %s\n", message.c_str());
  return exit_code;
}

LogFormat FormatFromName(const std::string& name) {
  if (name == "text") return LogFormat::kText;
  return name == "json" ? LogFormat::kJson : LogFormat::kAuto;
}

// A connection over HTTP/2 takes three descriptors: the usual soft limit of 1,024 is too few.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

int Main(int argc, char** argv, char** envp) {
  RouterConfig config;
  config::Schema schema = MakeRouterSchema(config);
  const absl::StatusOr<config::ParseResult> parsed =
      schema.Parse(config::ArgumentsFromMain(argc, argv), config::EnvironmentFromMain(envp));
  if (!parsed.ok()) return Fail(kExitBadArguments, StatusMessage(parsed.status()));
  if (parsed->help) {
    std::fputs(schema.HelpText().c_str(), stdout);
    return kExitDone;
  }
  if (parsed->version) {
    std::printf("quire-router %s\n", QUIRE_VERSION);
    return kExitDone;
  }
  if (const absl::Status checked = CheckRouterConfig(config); !checked.ok()) {
    return Fail(kExitBadArguments, StatusMessage(checked));
  }
  signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();
  LoggerOptions options;
  options.level = LogLevelFromName(config.log_level);
  options.format = FormatFromName(config.log_format);
  const std::unique_ptr<Logger> log = MakeLogger(options);
  for (const std::string& warning : parsed->warnings) log->Warning(warning);
  RouterProcess router(config, *log);
  if (const absl::Status started = router.Start(); !started.ok()) {
    const bool bad = absl::IsInvalidArgument(started);
    return Fail(bad ? kExitBadArguments : kExitFailed, StatusMessage(started));
  }
  return router.Run();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv, char** envp) { return quire::Main(argc, argv, envp); }
