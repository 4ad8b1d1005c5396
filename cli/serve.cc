// `quire serve`: finds its sibling programs, asks them for their flags, plans, supervises.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "cli/serve_plan.h"
#include "cli/supervisor.h"

namespace quire::cli {
namespace {

constexpr size_t kMaxHelpBytes = 1u << 20;

// What `program --help` prints.
absl::StatusOr<std::string> HelpOf(const std::string& program) {
  if (access(program.c_str(), X_OK) != 0) {
    return absl::NotFoundError(AbslView(program +
                                        ": is not there or cannot be run; it is installed "
                                        "in the same folder as quire"));
  }
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(fds[1], STDOUT_FILENO);
    char help[] = "--help";
    char* argv[] = {const_cast<char*>(program.c_str()), help, nullptr};
    char* envp[] = {nullptr};
    execve(program.c_str(), argv, envp);
    _exit(127);
  }
  close(fds[1]);
  std::string text;
  char buffer[4096];
  ssize_t count = 0;
  while (pid > 0 && text.size() < kMaxHelpBytes &&
         (count = read(fds[0], buffer, sizeof(buffer))) > 0) {
    text.append(buffer, count);
  }
  close(fds[0]);
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
    return absl::InternalError(AbslView(program + ": --help failed"));
  }
  return text;
}

// The children are told by flags; what the environment says has been read here already.
std::vector<std::string> ChildEnvironment(const config::Environment& environment) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("QUIRE_")) variables.push_back(name + "=" + value);
  }
  return variables;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "quire serve: %s\n", StatusMessage(status).c_str());
  if (absl::IsNotFound(status)) return 3;
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace

int RunServe(const CommandInputs& inputs) {
  const std::filesystem::path folder = std::filesystem::path(ExecutablePath()).parent_path();
  SupervisorOptions options;
  options.router_program = folder / "quire-router";
  options.worker_program = folder / "quire-worker";
  ServeInputs serve;
  serve.args = inputs.args;
  serve.environment = inputs.environment;
  serve.model_folders = ModelFolders(ExecutablePath());
  absl::StatusOr<std::string> router_help = HelpOf(options.router_program);
  if (!router_help.ok()) return Fail(absl::InternalError(router_help.status().message()));
  absl::StatusOr<std::string> worker_help = HelpOf(options.worker_program);
  if (!worker_help.ok()) return Fail(absl::InternalError(worker_help.status().message()));
  serve.router_help = *router_help;
  serve.worker_help = *worker_help;
  absl::StatusOr<ServePlan> plan = PlanServe(serve);
  if (!plan.ok()) return Fail(plan.status());
  if (plan->help) {
    std::fputs(plan->help_text.c_str(), stdout);
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
  options.served_name = plan->model.served_name;
  return Supervisor(options).Run();
}

}  // namespace quire::cli
