// quire-router: accepts requests over HTTP and gRPC and has workers answer them.
//
// Exit codes: 0 done, 1 failed at run time, 2 bad arguments or configuration.
#include <signal.h>

#include <string_view>

#include "common/config/program.h"
#include "common/log/flags.h"
#include "common/runtime/core_dumps.h"
#include "common/runtime/descriptors.h"
#include "router/config.h"
#include "router/router_process.h"

namespace quire {
namespace {

constexpr std::string_view kProgram = "quire-router";
constexpr int kExitFailed = 1;

int Main(const config::CommandLine& command) {
  RouterConfig settings;
  config::Schema schema = MakeRouterSchema(settings);
  const config::ProgramStart start =
      config::StartProgram(kProgram, schema, command, [&] { return CheckRouterConfig(settings); });
  if (start.exit_code) return *start.exit_code;
  if (!settings.core_dumps) ForbidCoreDumps();
  signal(SIGPIPE, SIG_IGN);
  RaiseDescriptorLimit();  // a connection with TLS takes three
  if (settings.check) settings.log_level = "off";
  const std::unique_ptr<Logger> log =
      MakeLogger(LoggerOptionsFromFlags(settings.log_level, settings.log_format));
  for (const std::string& warning : start.warnings) log->Warning(warning);
  const trace::TraceSettings tracing =
      trace::TraceSettingsOf(config::EnvironmentFromMain(command.envp), std::string(kProgram),
                             settings.otlp_traces_endpoint);
  for (const std::string& warning : tracing.warnings) log->Warning(warning);
  RouterProcess router(settings, tracing, *log);
  const absl::Status started = settings.check ? router.Check() : router.Start();
  if (!started.ok()) {
    const bool bad = absl::IsInvalidArgument(started);
    return config::Fail(kProgram, bad ? config::kExitBadArguments : kExitFailed,
                        StatusMessage(started));
  }
  return settings.check ? config::kExitDone : router.Run();
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv, char** envp) { return quire::Main({argc, argv, envp}); }
