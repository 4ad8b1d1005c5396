// `quire serve`: finds its sibling programs, reads the settings that they accept, plans,
// supervises.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "cli/manual/descriptions.h"
#include "cli/models/find_model.h"
#include "cli/serve/serve_plan.h"
#include "cli/serve/supervisor.h"
#include "common/config/run_program.h"

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

// Workers keep the tables of their scheduler in huge pages, unless the variable that glibc reads
// for that has another value.
void UseHugePages(std::vector<std::string>& variables) {
  const auto set = [](const std::string& v) { return v.starts_with("GLIBC_TUNABLES="); };
  if (std::ranges::any_of(variables, set)) return;
  variables.push_back("GLIBC_TUNABLES=glibc.malloc.hugetlb=1");
}

// If the router would refuse its settings, or the files that they name, or would find a port taken,
// it reports that before a worker has loaded the model. 0: it would not; the sentence is the
// router's own.
absl::StatusOr<int> CheckRouter(const SupervisorOptions& options) {
  config::Environment environment;
  for (const auto* variables : {&options.host.environment, &options.router_environment}) {
    for (const std::string& variable : *variables) {
      const size_t equals = variable.find('=');
      environment[variable.substr(0, equals)] = variable.substr(equals + 1);
    }
  }
  std::vector<std::string> args = {"--check", "--check-ports", "--serve-fd=0"};
  args.insert(args.end(), options.router_args.begin(), options.router_args.end());
  QUIRE_ASSIGN_OR_RETURN(const config::ProgramOutput output,
                         config::OutputOf(options.router_program, args, environment));
  return output.exit_code;
}

// With the size and age of its weights.
HostedModel Hosted(const ResolvedModel& model) {
  namespace fs = std::filesystem;
  HostedModel hosted{model.served_name, model.path};
  const auto add = [&hosted](const fs::path& file) {
    const std::string extension = file.extension();
    if (extension != ".gguf" && extension != ".safetensors") return;
    struct stat found;
    if (stat(file.c_str(), &found) != 0) return;
    hosted.file_bytes += static_cast<int64_t>(found.st_size);
    hosted.modified = std::max<int64_t>(hosted.modified, found.st_mtime);
  };
  std::error_code error;
  if (!fs::is_directory(model.path, error)) add(model.path);
  for (fs::directory_iterator it(model.path, error), end; !error && it != end;
       it.increment(error)) {
    add(it->path());
  }
  return hosted;
}

void Fill(const config::Environment& environment, const ServePlan& plan,
          SupervisorOptions& options) {
  options.router_args = plan.router_args;
  options.router_environment = plan.router_environment;
  options.host.worker_args = plan.worker_args;
  options.host.workers = plan.workers;
  options.host.worker_listen = plan.worker_listen;
  options.host.environment = ChildEnvironment(environment);
  UseHugePages(options.host.environment);
  options.host.secrets = plan.worker_environment;
  options.load_first = plan.load_first;
  for (const auto& [name, value] : environment) {
    options.quire_environment.push_back(name + "=" + value);
  }
  for (const ResolvedModel& model : plan.models) {
    HostedModel hosted = Hosted(model);
    hosted.required = plan.required && options.models.empty();
    hosted.named_by_flag = plan.names_by_flag;
    options.models.push_back(std::move(hosted));
  }
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "quire serve: %s\n", StatusMessage(status).c_str());
  if (absl::IsNotFound(status)) return 3;
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace

int RunServe(const CommandInputs& inputs) {
  SupervisorOptions options;
  options.router_program = config::SiblingPath("quire-router");
  options.host.worker_program = config::SiblingPath("quire-worker");
  options.quire_program = config::ExecutablePath();
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
  absl::StatusOr<config::Description> worker = DescribeProgram(options.host.worker_program);
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
  Fill(inputs.environment, *plan, options);
  options.find_pulled = [&](const std::string& name) -> std::optional<HostedModel> {
    const absl::StatusOr<ModelFinder> finder = MakeFinder(inputs.environment, {}, "", never);
    if (!finder.ok()) return std::nullopt;
    const absl::StatusOr<ResolvedModel> model = FindHere(*finder, name);
    if (!model.ok()) return std::nullopt;
    return Hosted(*model);
  };
  const absl::StatusOr<int> refused = CheckRouter(options);
  if (!refused.ok()) return Fail(absl::InternalError(refused.status().message()));
  if (*refused != 0) return *refused;
  return Supervisor(options).Run();
}

}  // namespace quire::cli
