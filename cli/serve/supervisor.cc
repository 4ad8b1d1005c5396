#include "cli/serve/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "common/check.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

constexpr int64_t kKillAfterMs = 3000;  // after a second signal
constexpr int64_t kIdleWaitMs = 60'000;

int64_t NowMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

// A string member of a ready line, empty when absent.
std::string Member(const std::string& line, std::string_view key) {
  const auto value = json::Parse(line);
  if (!value.ok() || !value->is_object()) return "";
  const json::Value* member = json::Find(value->get_object(), key);
  if (member == nullptr || !member->is_string()) return "";
  return std::string(json::View(member->get_string()));
}

std::string PortOf(const std::string& address) { return address.substr(address.rfind(':') + 1); }

// Gives flag `name` another value.
void Replace(const std::string& name, const std::string& value, std::vector<std::string>& args) {
  std::erase_if(args, [&](const std::string& arg) { return arg.starts_with(name + "="); });
  args.push_back(name + "=" + value);
}

bool IsConfigurationCode(int code) { return code >= 2 && code <= 4; }

}  // namespace

struct Supervisor::Child {
  bool is_router = false;
  int index = 0;  // of a worker
  std::string name;
  std::optional<ChildProcess> process;
  RestartPolicy policy;
  int64_t start_at_ms = 0;  // when to start it; −1: not now
  bool ready_once = false;
  bool given_up = false;
  std::string listen;  // of the first start, kept for the next ones
  std::string http;
  std::string grpc;
  std::string ready_line;
};

Supervisor::Supervisor(const SupervisorOptions& options) : options_(options) {
  for (int i = 0; i < options.workers; ++i) {
    auto child = std::make_unique<Child>();
    child->index = i;
    child->name = options.workers == 1 ? "worker" : "worker " + std::to_string(i);
    children_.push_back(std::move(child));
  }
  auto router = std::make_unique<Child>();
  router->is_router = true;
  router->name = "router";
  router->start_at_ms = -1;
  children_.push_back(std::move(router));
}

Supervisor::~Supervisor() {
  if (signal_fd_ >= 0) close(signal_fd_);
}

std::vector<std::string> Supervisor::Arguments(const Child& child) const {
  std::vector<std::string> args = child.is_router ? options_.router_args : options_.worker_args;
  if (child.is_router) {
    // Once it has served, its ports are kept, including those that the system chose.
    if (!child.listen.empty()) Replace("--port", PortOf(child.listen), args);
    if (!child.grpc.empty()) Replace("--grpc-port", PortOf(child.grpc), args);
    for (const auto& other : children_) {
      if (other->is_router || other->listen.empty()) continue;
      args.push_back("--worker=" + other->listen);
      args.push_back("--worker-metrics=" + other->http);
    }
    return args;
  }
  args.push_back("--listen=" + (child.listen.empty() ? options_.worker_listen : child.listen));
  args.push_back("--http-port=" + (child.http.empty() ? "0" : PortOf(child.http)));
  return args;
}

bool Supervisor::StartChild(Child& child) {
  child.start_at_ms = -1;
  std::vector<std::string> environment = options_.environment;
  const std::vector<std::string>& own =
      child.is_router ? options_.router_environment : options_.worker_environment;
  environment.insert(environment.end(), own.begin(), own.end());
  auto process =
      ChildProcess::Start(child.is_router ? options_.router_program : options_.worker_program,
                          Arguments(child), environment);
  if (!process.ok()) {
    std::fprintf(stderr, "quire serve: %s\n", StatusMessage(process.status()).c_str());
    exit_code_ = 1;
    Shutdown();
    return false;
  }
  child.process.emplace(std::move(*process));
  return true;
}

bool Supervisor::WorkersReadyOnce() const {
  return std::all_of(children_.begin(), children_.end(), [](const auto& child) {
    return child->is_router || child->ready_once || child->given_up;
  });
}

void Supervisor::OnReady(Child& child, const std::string& line) {
  if (line.empty()) return;  // the child is ending; OnDeath follows
  child.ready_once = true;
  child.ready_line = line;
  child.listen = Member(line, "listen");
  child.http = Member(line, "http");
  child.grpc = Member(line, "grpc");
  Child& router = *children_.back();
  if (!child.is_router && !router.process && !router.ready_once && WorkersReadyOnce() &&
      !stopping_) {
    router.start_at_ms = NowMs();
  }
  if (child.is_router && !announced_) {
    announced_ = true;
    PrintReady();
  }
}

void Supervisor::PrintReady() const {
  const std::string scheme = Member(children_.back()->ready_line, "scheme");
  const std::string url = (scheme.empty() ? "http" : scheme) + "://" + children_.back()->listen;
  std::string plan;
  for (const auto& child : children_) {
    if (!child->is_router && plan.empty()) plan = Member(child->ready_line, "memory");
  }
  std::printf("ready: %s serves %s%s%s\n", url.c_str(), options_.served_name.c_str(),
              plan.empty() ? "" : " · ", plan.c_str());
  std::printf(
      "  curl %s/v1/completions -H 'Content-Type: application/json' "
      "-d '{\"model\": \"%s\", \"prompt\": \"Once upon a time\", \"max_tokens\": 40}'\n",
      url.c_str(), options_.served_name.c_str());
  std::fflush(stdout);
}

void Supervisor::OnDeath(Child& child, int code) {
  child.process.reset();
  if (stopping_) {
    if (child.is_router) Shutdown();  // now the workers' turn
    return;
  }
  if (!child.ready_once && IsConfigurationCode(code)) {
    exit_code_ = code;  // the child has reported the reason
    Shutdown();
    return;
  }
  const int64_t wait_ms = child.policy.OnDeath(NowMs());
  if (wait_ms >= 0) {
    std::fprintf(stderr, "quire serve: the %s ended with code %d; it starts again in %.1f s\n",
                 child.name.c_str(), code, wait_ms / 1000.0);
    child.start_at_ms = NowMs() + wait_ms;
    return;
  }
  child.given_up = true;
  std::fprintf(stderr,
               "quire serve: the %s ended with code %d and is given up: %d failures in %d s\n",
               child.name.c_str(), code, kMaxFailures, static_cast<int>(kFailureWindowMs / 1000));
  const bool workers_gone = std::all_of(children_.begin(), children_.end(),
                                        [](const auto& c) { return c->is_router || c->given_up; });
  if (child.is_router || workers_gone) {
    exit_code_ = 1;
    Shutdown();
  } else if (!children_.back()->process && !children_.back()->ready_once && WorkersReadyOnce()) {
    children_.back()->start_at_ms = NowMs();
  }
}

// Drains the router while it runs, then the workers.
void Supervisor::Shutdown() {
  stopping_ = true;
  if (exit_code_ < 0) exit_code_ = 0;
  for (const auto& child : children_) child->start_at_ms = -1;
  if (children_.back()->process) {
    children_.back()->process->Signal(SIGTERM);
    return;
  }
  for (const auto& child : children_) {
    if (child->process) child->process->Signal(SIGTERM);
  }
}

void Supervisor::OnSignal(int signal) {
  ++signals_seen_;
  if (signals_seen_ == 1) {
    std::fprintf(stderr, "quire serve: %s: draining; once more ends at once\n",
                 signal == SIGINT ? "interrupted" : "terminated");
    Shutdown();
    return;
  }
  if (kill_at_ms_ < 0) kill_at_ms_ = NowMs() + kKillAfterMs;
  // A child that drains already ends at its second signal; one that does not yet gets both.
  for (const auto& child : children_) {
    if (!child->process) continue;
    child->process->Signal(SIGTERM);
    child->process->Signal(SIGINT);
  }
}

void Supervisor::StartDue(int64_t now_ms) {
  for (const auto& child : children_) {
    if (!stopping_ && child->start_at_ms >= 0 && child->start_at_ms <= now_ms && !child->process) {
      if (!StartChild(*child)) return;
    }
  }
}

// Waits for a signal, a ready line or the next start, and handles what came.
void Supervisor::Wait(int64_t now_ms) {
  int64_t wait_ms = kIdleWaitMs;
  std::vector<pollfd> fds = {{signal_fd_, POLLIN, 0}};
  std::vector<Child*> owners = {nullptr};
  for (const auto& child : children_) {
    if (child->start_at_ms >= 0) wait_ms = std::min(wait_ms, child->start_at_ms - now_ms);
    if (child->process && child->process->ready_fd() >= 0) {
      fds.push_back({child->process->ready_fd(), POLLIN, 0});
      owners.push_back(child.get());
    }
  }
  if (kill_at_ms_ >= 0) wait_ms = std::min(wait_ms, kill_at_ms_ - now_ms);
  poll(fds.data(), fds.size(), static_cast<int>(std::max<int64_t>(wait_ms, 0)));
  for (size_t i = 1; i < fds.size(); ++i) {
    if (fds[i].revents == 0) continue;
    if (auto line = owners[i]->process->ReadReadyLine()) OnReady(*owners[i], *line);
  }
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) OnSignal(static_cast<int>(info.ssi_signo));
  }
}

int Supervisor::Run() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  QUIRE_CHECK_MSG(signal_fd_ >= 0, "signalfd failed");
  while (true) {
    const int64_t now_ms = NowMs();
    StartDue(now_ms);
    const bool any = std::any_of(children_.begin(), children_.end(),
                                 [](const auto& child) { return child->process.has_value(); });
    if (stopping_ && !any) return exit_code_;
    Wait(now_ms);
    for (const auto& child : children_) {
      if (!child->process) continue;
      if (auto code = child->process->TryReap()) OnDeath(*child, *code);
    }
    if (kill_at_ms_ >= 0 && NowMs() >= kill_at_ms_) {
      for (const auto& child : children_) child->process.reset();
    }
  }
}

}  // namespace quire::cli
