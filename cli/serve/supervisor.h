// Keeps a router and its workers running: starts, restarts and drains them.
//
// One thread, which calls Run from main and blocks in poll.
//  1. Workers start first; the router starts when each of them has served once.
//  2. A child that dies after it was ready is started again on the same port, after a growing wait;
//  a child
//     that dies with a code for bad configuration, model or device before it was ever ready ends
//     serve with that code.
//  3. SIGTERM or SIGINT drains the router first, then the workers; a second one ends all at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/serve/child_process.h"
#include "cli/serve/restart_policy.h"

namespace quire::cli {

struct SupervisorOptions {
  std::string router_program;
  std::string worker_program;
  std::vector<std::string> router_args;
  std::vector<std::string> worker_args;
  int workers = 1;
  std::string worker_listen = "127.0.0.1:0";    // with more than one worker: port 0
  std::vector<std::string> environment;         // of the children
  std::vector<std::string> router_environment;  // of the router besides
  std::vector<std::string> worker_environment;  // of workers besides
  std::string served_name;                      // for the ready line
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options);
  ~Supervisor();

  // Serves until a signal ends it. Returns the exit code of `quire serve`.
  int Run();

 private:
  struct Child;

  bool StartChild(Child& child);
  std::vector<std::string> Arguments(const Child& child) const;
  void OnReady(Child& child, const std::string& line);
  void OnDeath(Child& child, int code);
  void OnSignal(int signal);
  void StartDue(int64_t now_ms);
  void Shutdown();
  void Wait(int64_t now_ms);
  bool WorkersReadyOnce() const;
  void PrintReady() const;

  SupervisorOptions options_;
  std::vector<std::unique_ptr<Child>> children_;  // workers, then the router
  int signal_fd_ = -1;
  int signals_seen_ = 0;
  int64_t kill_at_ms_ = -1;
  bool stopping_ = false;
  bool announced_ = false;
  int exit_code_ = -1;  // ≥ 0: Run ends once all children are gone
};

}  // namespace quire::cli
