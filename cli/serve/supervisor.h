// Keeps a router and the workers of its models running: starts, restarts and drains them.
//
// One thread, which calls Run from main and blocks in poll.
//  1. The workers of a required model start first; the router starts when each of them has served
//     once. Without one, the router starts at once.
//  2. A child that dies after it was ready is started again on the same port, after a growing wait.
//     The router, or a worker of the required model, that dies with a code for bad configuration,
//     model or device before it was ever ready ends serve with that code.
//  3. SIGTERM or SIGINT drains the router first, then the workers; a second one ends all at once.
//  4. Router and supervisor talk over a socket pair that only they hold: the router orders models
//     loaded, unloaded, pulled and removed, and hears how each of them is.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/serve/child_process.h"
#include "cli/serve/model_host.h"
#include "cli/serve/model_jobs.h"
#include "cli/serve/restart_policy.h"
#include "cli/serve/router_link.h"

namespace quire::cli {

struct SupervisorOptions {
  std::string router_program;
  std::vector<std::string> router_args;
  std::vector<std::string> router_environment;
  HostOptions host;
  std::vector<HostedModel> models;  // the first of them is loaded at the start, if one is named
  bool load_first = false;
  std::string quire_program;  // for pulls and removals
  std::vector<std::string> quire_environment;
  // What a pull has brought: the model of that name, on this machine.
  std::function<std::optional<HostedModel>(const std::string& name)> find_pulled;
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options);
  ~Supervisor();

  // Serves until a signal ends it. Returns the exit code of `quire serve`.
  int Run();

 private:
  void StartRouter();
  void OnRouterReady(const std::string& line);
  void OnRouterDeath(int code);
  void OnSignal(int signal);
  void Obey(const serve::Order& order);
  void Remove(const serve::Order& order);
  void OnJobDone(const serve::Order& job);
  void Shutdown();
  void Wait();
  void Work();
  void PrintReady() const;

  const SupervisorOptions options_;
  RouterLink link_;
  ModelHost host_;
  ModelJobs jobs_;
  std::optional<ChildProcess> router_;
  RestartPolicy router_policy_;
  int64_t router_start_ms_ = -1;
  std::string router_line_;         // as it said when it was ready
  std::vector<std::string> ports_;  // of the first start, kept for the next ones
  int signal_fd_ = -1;
  int signals_seen_ = 0;
  int64_t kill_at_ms_ = -1;
  bool stopping_ = false;
  bool announced_ = false;
  int exit_code_ = -1;  // ≥ 0: Run ends once all children are gone
};

}  // namespace quire::cli
