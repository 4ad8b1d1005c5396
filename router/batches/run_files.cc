#include "router/batches/run_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/check.h"

namespace quire::batches {
namespace {

using batch::BatchLine;
using batch::FaultLine;

// Of a line in memory: its fault, its result's state, nodes of maps. Its custom_id comes with the
// line, and once more with its result.
constexpr size_t kBytesPerLine = 512;
constexpr size_t kCustomIds = 2;

// A line that cannot be sent although its batch can: it has its own line of result.
bool IsOfOneLine(const batch::BatchFault& fault) {
  return fault.code == "invalid_body" || fault.code == "request_too_large";
}

std::string ParamOf(const batch::BatchFault& fault) {
  const size_t colon = fault.message.find(':');
  const bool is_field = fault.message.starts_with("custom_id:") ||
                        fault.message.starts_with("method:") || fault.message.starts_with("url:");
  return is_field ? fault.message.substr(0, colon) : std::string();
}

}  // namespace

RunFiles::Ready RunFiles::Fails(std::string code, std::string message, std::string param) {
  lease_->batch.errors.push_back(
      {std::move(code), std::move(message), std::move(param), std::nullopt});
  ends_as_ = Status::kFailed;
  return Ready::kEnds;
}

RunFiles::Ready RunFiles::Lock() {
  absl::StatusOr<std::unique_ptr<Lease>> lease = store_.Take(open_);
  if (!lease.ok()) return Ready::kLater;
  if (*lease == nullptr) return Ready::kNo;
  lease_ = *std::move(lease);
  counts_ = saved_ = lease_->batch.counts;
  return Ready::kRun;
}

RunFiles::Ready RunFiles::Prepare(const std::shared_ptr<MemoryAccount>& memory) {
  BatchObject& batch = lease_->batch;
  if (batch.status == Status::kFinalizing) {
    ends_as_ = batch.ends_as;
    return Ready::kEnds;
  }
  const Ready opened = OpenInput(memory);
  if (opened != Ready::kRun) return opened;
  if (!FindErrors()) {
    ends_as_ = Status::kFailed;
    return Ready::kEnds;
  }
  if (const Ready ready = OpenOutputs(); ready != Ready::kRun) return ready;
  counts_.total = input_->lines().size();
  if (batch.status == Status::kValidating) {
    batch.status = Status::kInProgress;
    batch.in_progress_at = store_.Now();
  }
  if (!WriteFaults()) return Ready::kLater;
  batch.counts = saved_ = counts_;
  return store_.Save(*lease_).ok() ? Ready::kRun : Ready::kLater;
}

RunFiles::Ready RunFiles::OpenInput(const std::shared_ptr<MemoryAccount>& memory) {
  const BatchObject& batch = lease_->batch;
  const std::string path = lease_->folder + "/" + batch.input_file_id;
  struct stat info = {};
  const size_t bytes = lstat(path.c_str(), &info) == 0 ? static_cast<size_t>(info.st_size) : 0;
  // A line has two bytes at least.
  const size_t lines = std::min(bytes / 2, store_.limits().max_lines) + 1;
  hold_ = std::make_unique<MemoryHold>(memory);
  if (!hold_->TryResize(lines * kBytesPerLine +
                        kCustomIds * std::min(bytes, lines * batch::kMaxCustomIdBytes))) {
    return Ready::kLater;
  }
  MemoryHold tree(memory);
  batch::BatchLimits limits = options_.lines;
  limits.max_lines = store_.limits().max_lines;
  limits.only_path = batch.endpoint;
  limits.json.hold = &tree;
  auto input = batch::BatchInput::Open({path, batch.input_file_id, false}, limits, stopped);
  if (absl::IsUnavailable(input.status()) || absl::IsCancelled(input.status())) {
    return Ready::kLater;
  }
  if (!input.ok()) {
    const bool many = absl::IsInvalidArgument(input.status());
    if (many) refused_lines_.Add();
    return Fails(many ? "too_many_requests" : "input_file_unreadable",
                 StatusMessage(input.status()), "input_file_id");
  }
  input_ = *std::move(input);
  if (input_->lines().empty()) {
    return Fails("empty_file", "the file has no requests", "input_file_id");
  }
  return Ready::kRun;
}

// False: the batch fails by what its lines are.
bool RunFiles::FindErrors() {
  std::vector<BatchError>& errors = lease_->batch.errors;
  errors.clear();
  for (const BatchLine& line : input_->lines()) {
    if (line.fault == nullptr || IsOfOneLine(*line.fault)) continue;
    if (errors.size() == kMaxShownFaults) break;
    errors.push_back({line.fault->code, line.fault->message, ParamOf(*line.fault), line.number});
  }
  return errors.empty();
}

RunFiles::Ready RunFiles::OpenOutputs() {
  auto answers = batch::BatchOutput::Open({lease_->PathOf(".out"), "results", false}, stopped);
  auto failures = batch::BatchOutput::Open({lease_->PathOf(".err"), "failures", false}, stopped);
  if (!answers.ok() || !failures.ok()) return Ready::kLater;
  answers_ = *std::move(answers);
  failures_ = *std::move(failures);
  counts_.completed = answers_->done().size();
  counts_.failed = failures_->done().size();
  for (const BatchLine& line : input_->lines()) {
    const bool is_done =
        answers_->done().contains(line.number) || failures_->done().contains(line.number);
    if (!is_done && line.fault == nullptr) todo_.push_back(&line);
  }
  return Ready::kRun;
}

bool RunFiles::WriteFaults() {
  for (const BatchLine& line : input_->lines()) {
    if (line.fault == nullptr || failures_->done().contains(line.number)) continue;
    const absl::Status written =
        Append(FaultLine(line.number, line.custom_id, line.fault->code, line.fault->message), true);
    if (!written.ok()) return false;
    ++counts_.failed;
  }
  return true;
}

absl::StatusOr<std::string> RunFiles::ReadBody(const BatchLine& line, MemoryHold& hold) {
  QUIRE_ASSIGN_OR_RETURN(batch::BatchRequest request, input_->Read(line, &hold));
  // A batch goes last, unless its author gave it a priority.
  if (json::Find(request.body, "priority") == nullptr) {
    request.body["priority"] = std::numeric_limits<int32_t>::max();
  }
  std::string body = json::Serialize(request.body);
  request = {};
  hold.Resize(body.size());
  return body;
}

absl::Status RunFiles::Append(std::string line, bool failed) {
  QUIRE_RETURN_IF_ERROR(store_.Reserve(*lease_, line.size() + 1));
  return (failed ? *failures_ : *answers_).Append(std::move(line));
}

void RunFiles::Save(const Counts& counts) {
  if (counts.completed == saved_.completed && counts.failed == saved_.failed) return;
  if (!answers_->Sync().ok() || !failures_->Sync().ok()) return;
  lease_->batch.counts = counts;
  if (store_.Save(*lease_).ok()) saved_ = counts;
}

absl::Status RunFiles::Finish(Status ends_as, const Counts& counts,
                              const std::vector<const BatchLine*>& left) {
  BatchObject& batch = lease_->batch;
  batch.errors.insert(batch.errors.end(), more_errors.begin(), more_errors.end());
  more_errors.clear();
  if (batch.status != Status::kFinalizing && !HasEnded(batch.status)) batch.counts = counts;
  if (answers_ != nullptr) {
    for (const BatchLine* line : left) {
      const absl::Status written =
          Append(FaultLine(line->number, line->custom_id, "batch_expired",
                           "the batch's window ended before this request was answered"),
                 true);
      if (!written.ok()) break;
      ++batch.counts.failed;
    }
    QUIRE_RETURN_IF_ERROR(answers_->Sync());
    QUIRE_RETURN_IF_ERROR(failures_->Sync());
    answers_.reset();
    failures_.reset();
  }
  return store_.Finish(*lease_, ends_as);
}

}  // namespace quire::batches
