// `quire top`: a live table of a server's workers, queues, batches, caches and tokens.
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/watch/admin_client.h"
#include "cli/watch/top_view.h"

namespace quire::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kSlice = std::chrono::milliseconds(50);  // how long Ctrl-C may take

struct TopArguments {
  AskOptions server;
  AdminOptions admin;
  config::Duration interval{2000};
  int32_t count = 0;
};

struct Look {
  MetricsText metrics;
  Clock::time_point at;
};

absl::StatusOr<std::unique_ptr<Look>> LookAt(const AskOptions& server,
                                             const std::atomic<bool>& interrupted) {
  QUIRE_ASSIGN_OR_RETURN(client::Url url, client::ParseUrl(server.url));
  url.authorities = server.authorities;
  client::HttpRequest request;
  request.path = "/metrics";
  request.api_key = server.api_key;
  QUIRE_ASSIGN_OR_RETURN(
      const client::HttpAnswer answer,
      client::Exchange(url, request, interrupted, [](std::string_view) { return true; }));
  if (answer.status != 200) {
    return InvalidArgument(server.url + "/metrics: answered with status " +
                           std::to_string(answer.status) + "; is it closed (--no-metrics)?");
  }
  auto look = std::make_unique<Look>(Look{MetricsText(answer.body), Clock::now()});
  if (!look->metrics.Has("quire_router_live_requests")) {
    return InvalidArgument(server.url +
                           "/metrics: is no router's; name the port that serves "
                           "clients");
  }
  return look;
}

// Of the terminal; elsewhere lines are as long as they need to be.
size_t Columns() {
  winsize size = {};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : TopInput::kWide;
}

// False when interrupted.
bool Sleep(int64_t milliseconds, const std::atomic<bool>& interrupted) {
  const Clock::time_point until = Clock::now() + std::chrono::milliseconds(milliseconds);
  while (Clock::now() < until && !interrupted) std::this_thread::sleep_for(kSlice);
  return !interrupted;
}

// The terminal's alternate screen, which is left in every case.
class Screen {
 public:
  explicit Screen(bool on) : on_(on) { Write("\x1b[?1049h\x1b[?25l"); }
  ~Screen() { Write("\x1b[?25h\x1b[?1049l"); }
  Screen(const Screen&) = delete;
  void Show(const std::string& text) const {
    Write("\x1b[H\x1b[J");
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

 private:
  void Write(const char* codes) const {
    if (!on_) return;
    std::fputs(codes, stdout);
    std::fflush(stdout);
  }
  const bool on_;
};

absl::StatusOr<std::string> Picture(const TopArguments& top, const Look& before, const Look& after,
                                    const std::atomic<bool>& interrupted) {
  const std::chrono::duration<double> seconds = after.at - before.at;
  TopInput input{top.server.url, before.metrics, after.metrics, std::max(seconds.count(), 1e-3), {},
                 Columns()};
  if (!top.admin.url.empty()) {
    QUIRE_ASSIGN_OR_RETURN(const std::string body,
                           AskAdmin(top.admin, "/admin/workers", interrupted));
    QUIRE_ASSIGN_OR_RETURN(input.details, ParseWorkerDetails(body));
  }
  return TopText(input);
}

absl::Status Watch(const TopArguments& top, bool terminal, const std::atomic<bool>& interrupted) {
  absl::StatusOr<std::unique_ptr<Look>> before = LookAt(top.server, interrupted);
  QUIRE_RETURN_IF_ERROR(before.status());
  // An error at the start is printed where it stays readable, not on the alternate screen.
  if (!top.admin.url.empty()) {
    QUIRE_RETURN_IF_ERROR(AskAdmin(top.admin, "/admin/workers", interrupted).status());
  }
  const Screen screen(terminal);
  for (int32_t shown = 0; top.count == 0 || shown < top.count; ++shown) {
    if (!Sleep(top.interval.milliseconds, interrupted)) return absl::OkStatus();
    absl::StatusOr<std::unique_ptr<Look>> after = LookAt(top.server, interrupted);
    absl::StatusOr<std::string> picture =
        after.ok() ? Picture(top, **before, **after, interrupted) : after.status();
    if (interrupted) return absl::OkStatus();
    if (picture.ok()) {
      screen.Show(terminal ? *picture + "\nCtrl-C leaves\n" : *picture);
    } else if (terminal) {
      screen.Show(StatusMessage(picture.status()) + "\ntrying again; Ctrl-C leaves\n");
    } else {
      return picture.status();
    }
    if (after.ok()) before = std::move(after);
  }
  return absl::OkStatus();
}

}  // namespace

int RunTop(const CommandInputs& inputs) {
  TopArguments top;
  config::Schema schema("quire top",
                        "Shows what a server does: its workers, queues, batches, caches and "
                        "tokens, again and again on a terminal, once elsewhere.");
  schema.Group("Server");
  AddServerFlags(top.server, schema, "http://127.0.0.1:8000");
  AddAdminFlags(top.admin, schema, "none: phases and cached shares are left out");
  schema.Group("View");
  schema.Add({.name = "interval",
              .help = "Time from one picture to the next, over which rates are taken.",
              .target = &top.interval,
              .min = 100,
              .max = 3600e3});
  schema.Add({.name = "count",
              .help = "Pictures that are shown; 0: until Ctrl-C on a terminal, one elsewhere.",
              .target = &top.count,
              .min = 0,
              .max = 1 << 20});
  if (const std::optional<int> code = Begin(inputs, schema, "top")) return *code;
  TakeKey(inputs.environment, top.server);
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  if (!terminal && top.count == 0) top.count = 1;
  const absl::Status watched = Watch(top, terminal, *inputs.interrupted);
  if (*inputs.interrupted) return terminal ? 0 : 130;
  return watched.ok() ? 0 : Failed("top", watched);
}

}  // namespace quire::cli
