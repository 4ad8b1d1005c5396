#include "cli/batch/batch_run.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <optional>
#include <random>
#include <system_error>
#include <thread>
#include <vector>

#include "common/batch/treatment.h"

namespace quire::cli {
namespace {

using batch::AnswerLine;
using batch::BatchAnswer;
using batch::BatchInput;
using batch::BatchLine;
using batch::BatchOutput;
using batch::BatchRequest;
using batch::FaultLine;
using batch::kBatchResultPrefix;

constexpr int64_t kFirstPauseMs = 500;
constexpr int64_t kLongestPauseMs = 8000;
constexpr auto kStopSlice = std::chrono::milliseconds(20);  // how long a stop may take
constexpr auto kShowEvery = std::chrono::milliseconds(250);
constexpr auto kSyncEvery = std::chrono::seconds(1);

int64_t NowMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

class Run {
 public:
  Run(const BatchInput& input, BatchOutput& output, const BatchOptions& options,
      BatchCounts& counts)
      : input_(input), output_(output), options_(options), counts_(counts) {
    last_answer_ms_ = NowMs();
    run_ = std::random_device{}();
  }
  ~Run() {
    if (stop_fd_ >= 0) close(stop_fd_);
  }

  // Requests without a line in the output; those with a fault get theirs here.
  absl::Status Begin();
  void Work();
  void Stop(const absl::Status& why);
  absl::Status End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failed_;
  }
  BatchCounts Counts() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return counts_;
  }
  size_t waiting() const { return todo_.size(); }
  bool stopped() const { return stop_; }

 private:
  absl::Status WriteLine(std::string line, bool failed);
  std::string RequestIdOf(const BatchLine& line) const {
    return std::string(kBatchResultPrefix) + std::to_string(line.number) + "-" +
           std::to_string(run_);
  }
  client::HttpRequest MakeRequest(const BatchLine& line, BatchRequest request) const;
  // nullopt: the run was stopped first.
  std::optional<BatchAnswer> Answer(const client::Url& url, const client::HttpRequest& request);
  // Waits before the next attempt; false: the run is stopped.
  bool Pause(int failures, int64_t first_failure_ms, const std::string& why);

  const BatchInput& input_;
  BatchOutput& output_;
  const BatchOptions& options_;
  std::vector<const BatchLine*> todo_;
  uint32_t run_ = 0;  // keeps the request ids of two runs apart
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  const int stop_fd_ = eventfd(0, EFD_CLOEXEC);  // readable after stop_; −1: there is none
  std::atomic<int64_t> last_answer_ms_ = 0;
  std::mutex mutex_;
  BatchCounts& counts_;  // under mutex_
  absl::Status failed_;  // under mutex_
};

absl::Status Run::Begin() {
  counts_ = {};
  counts_.total = input_.lines().size();
  size_t known = 0;
  for (const BatchLine& line : input_.lines()) {
    const auto done = output_.done().find(line.number);
    if (done == output_.done().end()) {
      if (line.fault == nullptr) todo_.push_back(&line);
      continue;
    }
    if (done->second.custom_id != line.custom_id) break;
    ++known;
    ++counts_.written;
    if (done->second.failed) ++counts_.failed;
  }
  if (known != output_.done().size()) {
    return InvalidArgument(
        "-o: holds results of another input; give a new file, or the input that "
        "it was begun with");
  }
  for (const BatchLine& line : input_.lines()) {
    if (line.fault == nullptr || output_.done().contains(line.number)) continue;
    QUIRE_RETURN_IF_ERROR(WriteLine(
        FaultLine(line.number, line.custom_id, line.fault->code, line.fault->message), true));
  }
  return absl::OkStatus();
}

absl::Status Run::WriteLine(std::string line, bool failed) {
  QUIRE_RETURN_IF_ERROR(output_.Append(std::move(line)));
  const std::lock_guard<std::mutex> lock(mutex_);
  ++counts_.written;
  if (failed) ++counts_.failed;
  return absl::OkStatus();
}

void Run::Stop(const absl::Status& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failed_.ok()) failed_ = why;
  stop_ = true;
  if (stop_fd_ >= 0) eventfd_write(stop_fd_, 1);
}

client::HttpRequest Run::MakeRequest(const BatchLine& line, BatchRequest request) const {
  json::Object& body = request.body;
  if (!options_.server.model.empty() && json::Find(body, "model") == nullptr) {
    body["model"] = options_.server.model;
  }
  if (options_.priority != 0 && json::Find(body, "priority") == nullptr) {
    body["priority"] = options_.priority;
  }
  client::HttpRequest out;
  out.method = "POST";
  out.path = std::move(request.path);
  out.body = json::Serialize(body);
  out.api_key = options_.server.api_key;
  out.headers = {{"x-request-id", RequestIdOf(line)}};
  return out;
}

bool Run::Pause(int failures, int64_t first_failure_ms, const std::string& why) {
  const int64_t now = NowMs();
  if (now - std::max(last_answer_ms_.load(), first_failure_ms) > options_.patience_ms) {
    Stop(absl::UnavailableError(AbslView(why)));
    return false;
  }
  thread_local std::minstd_rand random(std::random_device{}());
  const int64_t most = std::min(kLongestPauseMs, kFirstPauseMs << std::min(failures - 1, 10));
  const int64_t until = now + std::uniform_int_distribution<int64_t>(most / 2, most)(random);
  while (!stop_ && NowMs() < until) std::this_thread::sleep_for(kStopSlice);
  return !stop_;
}

std::optional<BatchAnswer> Run::Answer(const client::Url& url, const client::HttpRequest& request) {
  int64_t first_failure_ms = 0;
  int server_failures = 0;
  for (int failures = 1; !stop_; ++failures) {
    absl::StatusOr<client::HttpAnswer> answer =
        client::Exchange(url, request, stop_, [](std::string_view) { return true; });
    std::string why;
    if (!answer.ok()) {
      if (absl::IsCancelled(answer.status())) return std::nullopt;
      why = StatusMessage(answer.status());
    } else {
      const batch::Treatment treatment = batch::TreatmentOf(answer->status);
      if (answer->status == 401) {
        Stop(absl::PermissionDeniedError(AbslView(ErrorOf(answer->body, answer->status))));
        return std::nullopt;
      }
      if (treatment == batch::Treatment::kResult ||
          (treatment == batch::Treatment::kServerFailure &&
           ++server_failures == batch::kMaxServerFailures)) {
        last_answer_ms_ = NowMs();
        return BatchAnswer{answer->status, request.headers.front().second, std::move(answer->body)};
      }
      why = ErrorOf(answer->body, answer->status);
    }
    if (first_failure_ms == 0) first_failure_ms = NowMs();
    if (!Pause(failures, first_failure_ms, why)) return std::nullopt;
  }
  return std::nullopt;
}

void Run::Work() {
  absl::StatusOr<client::Url> url = ServerOf(options_.server);
  if (!url.ok()) return Stop(url.status());
  url->stop_fd = stop_fd_;
  for (size_t i; !stop_ && (i = next_++) < todo_.size();) {
    const BatchLine& line = *todo_[i];
    absl::StatusOr<BatchRequest> read = input_.Read(line);
    if (!read.ok()) return Stop(read.status());
    const std::optional<BatchAnswer> answer = Answer(*url, MakeRequest(line, *std::move(read)));
    if (!answer) return;
    const bool failed = answer->status < 200 || answer->status > 299;
    const absl::Status written =
        WriteLine(AnswerLine(line.number, line.custom_id, *answer), failed);
    if (!written.ok()) return Stop(written);
  }
}

}  // namespace

absl::Status RunBatch(const batch::BatchInput& input, batch::BatchOutput& output,
                      const BatchOptions& options, const std::atomic<bool>& cancelled,
                      BatchCounts& counts) {
  Run run(input, output, options, counts);
  QUIRE_RETURN_IF_ERROR(run.Begin());
  std::atomic<size_t> working = 0;
  const auto work = [&] {
    run.Work();
    --working;
  };
  const size_t most = std::min(run.waiting(), static_cast<size_t>(options.max_in_flight));
  std::vector<std::thread> threads;
  while (threads.size() < most) {
    ++working;
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {  // the existing ones do all the work
      --working;
      if (threads.empty()) return absl::ResourceExhaustedError("the system refuses a thread");
      break;
    }
  }
  auto shown = std::chrono::steady_clock::now(), synced = shown;
  while (working > 0) {
    if (cancelled && !run.stopped()) run.Stop(absl::CancelledError("stopped"));
    std::this_thread::sleep_for(kStopSlice);
    const auto now = std::chrono::steady_clock::now();
    if (now - shown >= kShowEvery) {
      options.show(run.Counts());
      shown = now;
    }
    if (now - synced >= kSyncEvery) {
      if (const absl::Status kept = output.Sync(); !kept.ok()) run.Stop(kept);
      synced = now;
    }
  }
  for (std::thread& thread : threads) thread.join();
  QUIRE_RETURN_IF_ERROR(output.Sync());
  return run.End();
}

}  // namespace quire::cli
