// `quire serve`: finds its sibling programs, reads the settings that they accept, plans,
// supervises.
#include <atomic>
#include <cstdio>

#include "cli/commands.h"
#include "cli/manual/descriptions.h"
#include "cli/models/find_model.h"
#include "cli/run_program.h"
#include "cli/serve/serve_plan.h"
#include "cli/serve/supervisor.h"

namespace quire::cli {
namespace {

// The children get flags, except for secrets; the environment has been read here already.
std::vector<std::string> ChildEnvironment(const config::Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("QUIRE_")) variables.push_back(name + "=" + value);
  }
  return variables;
}

// If the router would refuse its settings, or the files that they name, or would find a port taken,
// it reports that before a worker has loaded the model. 0: it would not; the sentence is the
// router's own.
absl::StatusOr<int> CheckRouter(const SupervisorOptions& options) {
  config::Environment environment;
  for (const auto* variables : {&options.environment, &options.router_environment}) {
    for (const std::string& variable : *variables) {
      const size_t equals = variable.find('=');
      environment[variable.substr(0, equals)] = variable.substr(equals + 1);
    }
  }
  std::vector<std::string> args = {"--check", "--check-ports", "--worker=127.0.0.1:1"};
  args.insert(args.end(), options.router_args.begin(), options.router_args.end());
  QUIRE_ASSIGN_OR_RETURN(const ProgramOutput output,
                         OutputOf(options.router_program, args, environment));
  return output.exit_code;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "quire serve: %s\n", StatusMessage(status).c_str());
  if (absl::IsNotFound(status)) return 3;
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace

int RunServe(const CommandInputs& inputs) {
  SupervisorOptions options;
  options.router_program = SiblingPath("quire-router");
  options.worker_program = SiblingPath("quire-worker");
  ServeInputs serve;
  serve.args = inputs.args;
  serve.environment = inputs.environment;
  const std::atomic<bool> never = false;  // Ctrl-C ends the program
  serve.find_model = [&](const std::string& name,
                         const std::vector<std::string>& folders) -> absl::StatusOr<ResolvedModel> {
    QUIRE_ASSIGN_OR_RETURN(ModelFinder finder, MakeFinder(inputs.environment, folders, "", never));
    return FindOrPull(finder, name);
  };
  absl::StatusOr<config::Description> router = DescribeProgram(options.router_program);
  if (!router.ok()) return Fail(absl::InternalError(router.status().message()));
  absl::StatusOr<config::Description> worker = DescribeProgram(options.worker_program);
  if (!worker.ok()) return Fail(absl::InternalError(worker.status().message()));
  serve.router = *std::move(router);
  serve.worker = *std::move(worker);
  absl::StatusOr<ServePlan> plan = PlanServe(serve);
  if (!plan.ok()) return Fail(plan.status());
  if (plan->answer) {
    std::fputs(plan->answer->c_str(), stdout);
    return 0;
  }
  for (const std::string& warning : plan->warnings) {
    std::fprintf(stderr, "quire serve: %s\n", warning.c_str());
  }
  options.router_args = plan->router_args;
  options.worker_args = plan->worker_args;
  options.workers = plan->workers;
  options.worker_listen = plan->worker_listen;
  options.environment = ChildEnvironment(inputs.environment);
  options.router_environment = plan->router_environment;
  options.worker_environment = plan->worker_environment;
  options.served_name = plan->model.served_name;
  const absl::StatusOr<int> refused = CheckRouter(options);
  if (!refused.ok()) return Fail(absl::InternalError(refused.status().message()));
  if (*refused != 0) return *refused;
  return Supervisor(options).Run();
}

}  // namespace quire::cli
