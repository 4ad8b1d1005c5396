#include "cli/serve/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/serve/ready_line.h"
#include "common/check.h"

namespace quire::cli {
namespace {

constexpr int64_t kKillAfterMs = 3000;  // after a second signal
constexpr int64_t kIdleWaitMs = 60'000;

}  // namespace

Supervisor::Supervisor(const SupervisorOptions& options)
    : options_(options),
      host_(options.host,
            [this](const serve::ModelNews& news) { link_.Send(serve::LineOf(news)); }),
      jobs_(
          options.quire_program, options.quire_environment,
          [this](const serve::JobNews& news) { link_.Send(serve::LineOf(news)); },
          [this](const serve::Order& job) { OnJobDone(job); }) {}

Supervisor::~Supervisor() {
  if (signal_fd_ >= 0) close(signal_fd_);
}

void Supervisor::StartRouter() {
  router_start_ms_ = -1;
  std::vector<std::string> args = options_.router_args;
  for (const std::string& port : ports_) {  // those that the system chose, too
    const std::string flag = port.substr(0, port.find('=') + 1);
    std::erase_if(args, [&](const std::string& arg) { return arg.starts_with(flag); });
    args.push_back(port);
  }
  args.push_back("--serve-fd=" + std::to_string(link_.Open()));
  std::vector<std::string> environment = options_.host.environment;
  environment.insert(environment.end(), options_.router_environment.begin(),
                     options_.router_environment.end());
  auto process = ChildProcess::Start(options_.router_program, args, environment);
  link_.CloseChildsEnd();
  if (!process.ok()) {
    std::fprintf(stderr, "quire serve: %s\n", StatusMessage(process.status()).c_str());
    exit_code_ = 1;
    return Shutdown();
  }
  router_.emplace(*std::move(process));
  host_.TellAll();
}

void Supervisor::OnRouterReady(const std::string& line) {
  if (line.empty()) return;  // the child is ending; its death follows
  router_line_ = line;
  ports_ = {"--port=" + PortOf(Member(line, "listen")),
            "--grpc-port=" + PortOf(Member(line, "grpc"))};
  if (!std::exchange(announced_, true)) PrintReady();
}

void Supervisor::PrintReady() const {
  const std::string scheme = Member(router_line_, "scheme");
  const std::string url =
      (scheme.empty() ? "http" : scheme) + "://" + Member(router_line_, "listen");
  const std::string plan = host_.memory_line();
  std::string names;
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < options_.models.size() && i < kShown; ++i) {
    names += (i > 0 ? ", " : "") + options_.models[i].name;
  }
  if (options_.models.size() > kShown) {
    names += " and " + std::to_string(options_.models.size() - kShown) + " more";
  }
  const bool on_demand = options_.models.size() > 1;
  std::printf("ready: %s serves %s%s%s%s\n", url.c_str(), names.c_str(),
              on_demand ? ", each loaded when it is asked for" : "", plan.empty() ? "" : " · ",
              plan.c_str());
  const std::string first = options_.models.empty() ? "" : options_.models.front().name;
  std::printf(
      "  curl %s/v1/completions -H 'Content-Type: application/json' "
      "-d '{\"model\": \"%s\", \"prompt\": \"Once upon a time\", \"max_tokens\": 40}'\n",
      url.c_str(), first.c_str());
  std::fflush(stdout);
}

void Supervisor::OnRouterDeath(int code) {
  router_.reset();
  link_.Close();
  jobs_.CancelAll();
  if (stopping_) return Shutdown();  // now the workers' turn
  if (router_line_.empty() && IsConfigurationCode(code)) {
    exit_code_ = code;  // the router has reported the reason
    return Shutdown();
  }
  const int64_t wait_ms = router_policy_.OnDeath(NowMs());
  if (wait_ms >= 0) {
    std::fprintf(stderr, "quire serve: the router ended with code %d; it starts again in %.1f s\n",
                 code, static_cast<double>(wait_ms) / 1000.0);
    router_start_ms_ = NowMs() + wait_ms;
    return;
  }
  std::fprintf(stderr,
               "quire serve: the router ended with code %d and is given up: %d failures in %d s\n",
               code, kMaxFailures, static_cast<int>(kFailureWindowMs / 1000));
  exit_code_ = 1;
  Shutdown();
}

// Drains the router while it runs, then the workers.
void Supervisor::Shutdown() {
  stopping_ = true;
  if (exit_code_ < 0) exit_code_ = 0;
  router_start_ms_ = -1;
  jobs_.CancelAll();
  if (router_) return router_->Signal(SIGTERM);
  host_.Stop();
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
  for (const int each : {SIGTERM, SIGINT}) {
    if (router_) router_->Signal(each);
    host_.SignalAll(each);
  }
}

void Supervisor::Obey(const serve::Order& order) {
  switch (order.kind) {
    case serve::OrderKind::kLoad:
      return host_.Load(order.model);
    case serve::OrderKind::kUnload:
      return host_.Unload(order.model);
    case serve::OrderKind::kPull:
      return jobs_.Start(order);
    case serve::OrderKind::kRemove:
      return Remove(order);
    case serve::OrderKind::kCancel:
      return jobs_.Cancel(order.job);
  }
}

void Supervisor::Remove(const serve::Order& order) {
  const HostedModel* const model = host_.Find(order.model);
  if (model == nullptr || options_.find_pulled(order.model)) return jobs_.Start(order);
  jobs_.Refuse(order,
               "model '" + order.model + "' was not pulled: its files are at " + model->path +
                   ", and quire deletes none of them",
               static_cast<int>(absl::StatusCode::kInvalidArgument));
}

void Supervisor::OnJobDone(const serve::Order& job) {
  if (job.kind == serve::OrderKind::kRemove) return host_.Forget(job.model);
  if (const std::optional<HostedModel> model = options_.find_pulled(job.model)) host_.Add(*model);
}

// Waits for a signal, a line of a child or the next start.
void Supervisor::Wait() {
  std::vector<int> readable = {signal_fd_};
  host_.AddDescriptors(readable);
  jobs_.AddDescriptors(readable);
  if (router_ && router_->ready_fd() >= 0) readable.push_back(router_->ready_fd());
  std::vector<pollfd> fds;
  for (const int fd : readable) fds.push_back({fd, POLLIN, 0});
  if (link_.descriptor() >= 0) {
    const int events = POLLIN | (link_.has_unsent() ? POLLOUT : 0);
    fds.push_back({link_.descriptor(), static_cast<int16_t>(events), 0});
  }
  const int64_t now_ms = NowMs();
  int64_t wait_ms = kIdleWaitMs;
  for (const int64_t due : {host_.NextStartMs(), router_start_ms_, kill_at_ms_}) {
    if (due >= 0) wait_ms = std::min(wait_ms, due - now_ms);
  }
  poll(fds.data(), fds.size(), static_cast<int>(std::max<int64_t>(wait_ms, 0)));
  signalfd_siginfo info;
  while (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGCHLD) OnSignal(static_cast<int>(info.ssi_signo));
  }
}

void Supervisor::Work() {
  const int64_t now_ms = NowMs();
  host_.Work(now_ms);
  jobs_.Work();
  link_.Flush();
  for (const serve::Order& order : link_.Read()) Obey(order);
  if (router_ && router_->ready_fd() >= 0) {
    if (const auto line = router_->ReadReadyLine()) OnRouterReady(*line);
  }
  if (router_) {
    if (const auto code = router_->TryReap()) OnRouterDeath(*code);
  }
  if (!stopping_ && host_.failure()) {
    exit_code_ = *host_.failure();
    Shutdown();
  }
  if (stopping_) return;
  const bool first = !router_ && router_line_.empty() && router_start_ms_ < 0 && host_.settled();
  if (first || (router_start_ms_ >= 0 && router_start_ms_ <= now_ms)) StartRouter();
}

int Supervisor::Run() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGCHLD}) sigaddset(&signals, signal);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  QUIRE_CHECK_MSG(signal_fd_ >= 0, "signalfd failed");
  for (const HostedModel& model : options_.models) host_.Add(model);
  if (options_.load_first) host_.Load(options_.models.front().name);
  while (true) {
    Work();
    if (stopping_ && !router_ && !host_.any_running()) return exit_code_;
    Wait();
    if (kill_at_ms_ >= 0 && NowMs() >= kill_at_ms_) {
      router_.reset();
      host_.KillAll();
    }
  }
}

}  // namespace quire::cli
