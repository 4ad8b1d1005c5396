#include "cli/check/doctor_checks.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/format.h"
#include "common/client/connection.h"
#include "common/config/run_program.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

constexpr int64_t kEnoughOpenFiles = 8192;  // a connection over HTTP/2 takes three
constexpr int64_t kEnoughSharedMemory = int64_t{64} << 20;
constexpr int64_t kLowMemory = int64_t{1} << 30;

bool Has(const Machine& machine, std::string_view feature) {
  return std::find(machine.features.begin(), machine.features.end(), feature) !=
         machine.features.end();
}

Finding JudgeProcessor(const Machine& machine) {
  Finding finding{"processor", Verdict::kGood, machine.processor, ""};
  const bool avx2 = Has(machine, "avx2") && Has(machine, "fma") && Has(machine, "f16c");
  std::string set = "no AVX2";
  if (avx2) set = "AVX2";
  if (avx2 && Has(machine, "avx512f") && Has(machine, "avx512bw")) set = "AVX-512";
  if (avx2 && Has(machine, "avx512_vnni")) set += ", VNNI";
  if (avx2 && Has(machine, "avx512_bf16")) set += ", BF16";
  if (avx2 && Has(machine, "amx_tile")) set += ", AMX";
  finding.what += ", " + set;
  if (!avx2) {
    finding.verdict = Verdict::kWarning;
    finding.remedy = "without AVX2, FMA and F16C only the reference kernels run, many times slower";
  }
  return finding;
}

Finding JudgeCpus(const Machine& machine) {
  Finding finding{"cpus", Verdict::kGood, std::to_string(machine.affinity_cpus) + " to use", ""};
  if (machine.quota_cpus > 0) {
    finding.what += ", of which the cgroup's quota allows " + NumberText(machine.quota_cpus);
  }
  if (machine.quota_cpus > 0 && machine.quota_cpus < 1) {
    finding.verdict = Verdict::kWarning;
    finding.remedy = "a quota below one CPU stops every step for part of its time: raise it";
  }
  return finding;
}

Finding JudgeMemory(const Machine& machine) {
  Finding finding{"memory", Verdict::kGood,
                  BytesText(static_cast<double>(machine.available_bytes)) + " available of " +
                      BytesText(static_cast<double>(machine.total_bytes)),
                  ""};
  if (machine.available_bytes < kLowMemory) {
    finding.verdict = Verdict::kWarning;
    finding.remedy = "small models only: see quire plan MODEL";
  }
  return finding;
}

Finding JudgeOpenFiles(const Machine& machine) {
  Finding finding{"open files", Verdict::kGood,
                  "limit " + std::to_string(machine.open_files_soft) + ", may be raised to " +
                      std::to_string(machine.open_files_hard),
                  ""};
  if (machine.open_files_hard < kEnoughOpenFiles) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "the router raises it as far as it may and each connection takes up to three: "
        "ulimit -Hn 65536, or LimitNOFILE= of its service";
  }
  return finding;
}

Finding JudgeSharedMemory(const Machine& machine) {
  Finding finding{"shared memory", Verdict::kGood, "", ""};
  finding.what =
      machine.shared_memory_bytes < 0
          ? std::string("/dev/shm is not there")
          : BytesText(static_cast<double>(machine.shared_memory_bytes)) + " free in /dev/shm";
  if (machine.shared_memory_bytes < kEnoughSharedMemory) {
    finding.verdict = Verdict::kWarning;
    finding.remedy =
        "NCCL wants it to join GPUs; ranks on CPUs do not need it: for GPUs mount a tmpfs of 1 GiB";
  }
  return finding;
}

// "HOST:PORT" or "[HOST]:PORT" bound for a moment.
absl::Status TryBind(const std::string& host, int32_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) return InvalidArgument("--host: " + host + ": " + gai_strerror(code));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const bool bound = bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0;
  const int error = errno;
  close(fd);
  return bound ? absl::OkStatus() : absl::ErrnoToStatus(error, AbslView(host));
}

}  // namespace

std::string_view VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kWarning:
      return "warning";
    case Verdict::kBad:
      return "bad";
  }
  return "";
}

std::vector<Finding> JudgeMachine(const Machine& machine) {
  std::vector<Finding> findings = {JudgeProcessor(machine), JudgeCpus(machine),
                                   JudgeMemory(machine), JudgeOpenFiles(machine),
                                   JudgeSharedMemory(machine)};
  if (machine.huge_pages == "never") {
    findings.push_back({"huge pages", Verdict::kWarning, "switched off",
                        "decoding reads all weights each step: echo madvise > "
                        "/sys/kernel/mm/transparent_hugepage/enabled"});
  }
  if (machine.gpus > 0) {
    findings.push_back({"gpus", Verdict::kGood, std::to_string(machine.gpus) + " of NVIDIA", ""});
  }
  return findings;
}

Finding JudgePlan(const std::string& model, const WorkerPlan& plan) {
  Finding finding{"model", Verdict::kGood, "", ""};
  finding.what = model + ": fits, context " + std::to_string(plan.max_model_len) + ", batch " +
                 std::to_string(plan.largest_batch) + ", " +
                 BytesText(static_cast<double>(plan.weight_bytes)) + " of weights" +
                 (plan.quantisation.empty() ? "" : " (" + plan.quantisation + ")") + "; " +
                 plan.device;
  if (plan.max_model_len < plan.context) {
    finding.verdict = Verdict::kWarning;
    finding.remedy = "of the model's context of " + std::to_string(plan.context) +
                     " tokens only a part fits: see quire plan " + model;
  }
  return finding;
}

Finding CheckPrograms() {
  Finding finding{"programs", Verdict::kGood, "", ""};
  for (const std::string name : {"quire-router", "quire-worker"}) {
    const absl::StatusOr<std::string> said =
        config::TextOf(config::SiblingPath(name), {"--version"});
    if (!said.ok()) {
      return {"programs", Verdict::kBad, StatusMessage(said.status()),
              "install quire, quire-router and quire-worker into one folder"};
    }
    if (*said != name + " " + QUIRE_VERSION + "\n") {
      finding.verdict = Verdict::kBad;
      finding.remedy = "install programs of one version";
      finding.what += PlainText(*said, 64) + " ";
    }
  }
  finding.what = finding.verdict == Verdict::kGood ? std::string("quire-router and quire-worker ") +
                                                         QUIRE_VERSION + " beside quire"
                                                   : finding.what + "beside quire " + QUIRE_VERSION;
  return finding;
}

Finding CheckPort(const std::string& host, int32_t port, const std::string& flag) {
  const std::string place = host + ":" + std::to_string(port);
  const absl::Status bound = TryBind(host, port);
  if (bound.ok()) return {"port", Verdict::kGood, place + " is free", ""};
  if (absl::IsInvalidArgument(bound)) {
    return {"port", Verdict::kBad, StatusMessage(bound), "give an address of this machine"};
  }
  const bool forbidden = absl::IsPermissionDenied(bound);
  return {"port", Verdict::kBad, place + (forbidden ? " may not be used" : " is taken"),
          forbidden ? "use a port from 1024 on: " + flag + " 8000"
                    : "stop what listens there (ss -ltnp), or serve elsewhere: " + flag + " " +
                          std::to_string(port < 65000 ? port + 10 : port - 10)};
}

Finding CheckPeer(const std::string& address, const std::atomic<bool>& cancelled) {
  const absl::StatusOr<client::Url> url = client::ParseUrl(address);
  if (!url.ok()) {
    return {"peer", Verdict::kBad, StatusMessage(url.status()), "name it as HOST:PORT"};
  }
  const absl::StatusOr<std::unique_ptr<client::Connection>> connection =
      client::Connection::Open(*url, cancelled);
  if (connection.ok()) return {"peer", Verdict::kGood, address + " can be reached", ""};
  return {"peer", Verdict::kBad, StatusMessage(connection.status()),
          "start it, or open the way: name, port, firewall, network policy"};
}

std::vector<Finding> CheckServer(const AskOptions& server, const std::atomic<bool>& cancelled) {
  absl::StatusOr<client::Url> url = client::ParseUrl(server.url);
  if (!url.ok()) return {{"server", Verdict::kBad, StatusMessage(url.status()), "--url"}};
  url->authorities = server.authorities;
  client::HttpRequest request;
  request.path = "/health";
  const absl::StatusOr<client::HttpAnswer> health =
      client::Exchange(*url, request, cancelled, [](std::string_view) { return true; });
  if (!health.ok()) {
    return {{"server", Verdict::kBad, StatusMessage(health.status()), "quire serve MODEL"}};
  }
  if (health->status != 200) {
    return {{"server", Verdict::kBad,
             server.url + ": no worker can produce a token now (" + std::to_string(health->status) +
                 ")",
             "quire top shows what its workers do"}};
  }
  const absl::StatusOr<std::vector<std::string>> names = ServedModels(server, cancelled);
  if (!names.ok()) {
    return {{"server", Verdict::kWarning,
             server.url + ": healthy, but: " + PlainText(StatusMessage(names.status()), 200),
             "give a key: --api-key, or QUIRE_API_KEY"}};
  }
  std::string list;
  for (const std::string& name : *names) list += " " + PlainText(name, 80);
  return {{"server", Verdict::kGood, server.url + ": healthy, serves" + list, ""}};
}

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& finding : findings) {
    char start[64];
    const char* mark = finding.verdict == Verdict::kGood ? "ok" : "WARN";
    if (finding.verdict == Verdict::kBad) mark = "BAD";
    std::snprintf(start, sizeof(start), "%-5s%-14s ", mark, finding.subject.c_str());
    out += start + finding.what + "\n";
    if (!finding.remedy.empty()) out += std::string(20, ' ') + "-> " + finding.remedy + "\n";
  }
  return out;
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  json::Array lines;
  bool good = true;
  for (const Finding& finding : findings) {
    json::Object line;
    line["subject"] = finding.subject;
    line["verdict"] = std::string(VerdictName(finding.verdict));
    line["what"] = finding.what;
    line["remedy"] = finding.remedy;
    lines.emplace_back(std::move(line));
    good = good && finding.verdict != Verdict::kBad;
  }
  json::Object object;
  object["good"] = good;
  object["findings"] = std::move(lines);
  return json::Serialize(object);
}

}  // namespace quire::cli
