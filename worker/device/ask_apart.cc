#include "worker/device/ask_apart.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "kernels/collectives/futex.h"

namespace quire {
namespace {

using kernels::cuda::DriverDevice;
using kernels::cuda::DriverReport;

// The report in the pipe's format, between two halves of one program.
struct WireDevice {
  int32_t index, major, minor, prohibited, opened;
  int64_t total_bytes, free_bytes;
  char name[128];
  char uuid[40];
  char open_error[128];
};
struct Wire {
  char error[512];
  int32_t version;
  int32_t count;
  WireDevice devices[kernels::cuda::kMaxDriverDevices];
};
static_assert(sizeof(Wire) < 65'536, "more than a pipe holds: the child would wait for its reader");

template <size_t kBytes>
void Put(char (&to)[kBytes], const std::string& text) {
  std::snprintf(to, kBytes, "%s", text.c_str());
}
template <size_t kBytes>
std::string Get(const char (&from)[kBytes]) {
  return {from, strnlen(from, kBytes)};
}

void Encode(const DriverReport& report, Wire& wire) {
  std::memset(&wire, 0, sizeof(wire));
  Put(wire.error, report.error);
  wire.version = report.version;
  for (const DriverDevice& device : report.devices) {
    if (wire.count == kernels::cuda::kMaxDriverDevices) break;
    WireDevice& to = wire.devices[wire.count++];
    to.index = device.index;
    to.major = device.major;
    to.minor = device.minor;
    to.prohibited = device.prohibited ? 1 : 0;
    to.opened = device.opened ? 1 : 0;
    to.total_bytes = device.total_bytes;
    to.free_bytes = device.free_bytes;
    Put(to.name, device.name);
    Put(to.uuid, device.uuid);
    Put(to.open_error, device.open_error);
  }
}

DriverReport Decode(const Wire& wire) {
  DriverReport report;
  report.error = Get(wire.error);
  report.version = wire.version;
  for (int i = 0; i < std::clamp(wire.count, 0, kernels::cuda::kMaxDriverDevices); ++i) {
    const WireDevice& from = wire.devices[i];
    DriverDevice& device = report.devices.emplace_back();
    device.index = from.index;
    device.major = from.major;
    device.minor = from.minor;
    device.prohibited = from.prohibited != 0;
    device.opened = from.opened != 0;
    device.total_bytes = from.total_bytes;
    device.free_bytes = from.free_bytes;
    device.name = Get(from.name);
    device.uuid = Get(from.uuid);
    device.open_error = Get(from.open_error);
  }
  return report;
}

[[noreturn]] void Answer(const DeviceRequest& request, const AskOptions& options, int fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  kernels::cuda::DriverQuestion question;
  question.most = options.ranks;
  question.wanted = [&request](const DriverDevice& device) { return IsWanted(request, device); };
  Wire wire;
  Encode(kernels::cuda::AskDriver(options.library, question), wire);
  const ssize_t wrote = write(fd, &wire, sizeof(wire));
  _exit(wrote == static_cast<ssize_t>(sizeof(wire)) ? 0 : 1);
}

// Whether the whole answer came in time.
bool ReadAnswer(int fd, int64_t end_micros, Wire& wire) {
  size_t have = 0;
  while (have < sizeof(wire)) {
    const int64_t left = end_micros - kernels::FutexNowMicros();
    if (left <= 0) return false;
    pollfd ready = {fd, POLLIN, 0};
    const int count = poll(&ready, 1, static_cast<int>(left / 1000 + 1));
    if (count < 0 && errno != EINTR) return false;
    if (count <= 0) continue;
    const ssize_t got = read(fd, reinterpret_cast<char*>(&wire) + have, sizeof(wire) - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    have += static_cast<size_t>(got);
  }
  return true;
}

// How the child ended, if it does so in time. It has sent its answer, or never will: only the
// driver's release of the device is waited for, which no signal speeds up. A child that needs
// longer for that is reaped in the background, so that it leaves no zombie.
std::string End(pid_t child, int64_t limit_micros) {
  constexpr int64_t kTurnMicros = 5'000;
  kill(child, SIGKILL);
  int status = 0;
  for (int64_t waited = 0; waited < limit_micros; waited += kTurnMicros) {
    if (waitpid(child, &status, WNOHANG) == child) {
      if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
      return "ended with code " + std::to_string(WEXITSTATUS(status));
    }
    usleep(kTurnMicros);
  }
  std::thread([child] {
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }).detach();
  return "does not end";
}

DriverReport Failed(std::string why) {
  DriverReport report;
  report.error = std::move(why);
  return report;
}

}  // namespace

DriverReport AskDriverApart(const DeviceRequest& request, const AskOptions& options) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed(std::string("pipe: ") + std::strerror(errno));
  const int64_t end_micros = kernels::FutexNowMicros() + options.limit_micros;
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    Answer(request, options, ends[1]);
  }
  close(ends[1]);
  if (child < 0) {
    close(ends[0]);
    return Failed(std::string("fork: ") + std::strerror(errno));
  }
  Wire wire;
  const bool answered = ReadAnswer(ends[0], end_micros, wire);
  close(ends[0]);
  const bool late = kernels::FutexNowMicros() >= end_micros;
  const std::string how = End(child, options.end_micros);
  if (answered) return Decode(wire);
  return Failed(late ? "it gave no answer in " + std::to_string(options.limit_micros / 1'000'000) +
                           " s"
                     : "asking it " + how);
}

}  // namespace quire
