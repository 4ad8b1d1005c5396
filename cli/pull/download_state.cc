#include "cli/pull/download_state.h"

#include <algorithm>

namespace quire::pull {
namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;

constexpr std::chrono::milliseconds kTick{100};
constexpr double kBurstSeconds = 0.25;

}  // namespace

absl::Status DownloadState::Open(const std::vector<FileJob>& jobs) {
  files_.resize(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    FileState& file = files_[i];
    file.job = &jobs[i];
    total_bytes_ += jobs[i].size;
    QUIRE_ASSIGN_OR_RETURN(file.part,
                           PartFile::Open(jobs[i].part_path, jobs[i].size, jobs[i].identity));
    for (int chunk = 0; chunk < file.part->chunks(); ++chunk) {
      const int64_t size = file.part->End(chunk) - file.part->Begin(chunk);
      if (file.part->Done(chunk) < size) file.open_chunks.push_back(chunk);
    }
  }
  return absl::OkStatus();
}

int64_t DownloadState::BytesToCome() const {
  int64_t bytes = total_bytes_;
  for (const FileState& file : files_) bytes -= file.part->BytesDone();
  return bytes;
}

bool DownloadState::AllFinished() const {
  return std::all_of(files_.begin(), files_.end(),
                     [](const FileState& file) { return file.finished; });
}

std::optional<Claim> DownloadState::Next() {
  Lock lock(mutex_.native());
  while (status_.ok() && !AllFinished()) {
    if (Cancelled()) return std::nullopt;
    for (FileState& file : files_) {
      if (file.open_chunks.empty()) continue;
      if (file.serving == FileState::Serving::kAsked || file.serving == FileState::Serving::kWhole)
        continue;
      if (file.serving == FileState::Serving::kUnknown) {
        file.serving = FileState::Serving::kAsked;
      }
      const Claim claim{&file, file.open_chunks.front()};
      file.open_chunks.pop_front();
      return claim;
    }
    changed_.wait_for(lock, kTick);
  }
  return std::nullopt;
}

void DownloadState::Complete(const Claim&) { changed_.notify_all(); }

void DownloadState::PutBack(const Claim& claim) {
  const Lock lock(mutex_.native());
  FileState& file = *claim.file;
  if (file.serving == FileState::Serving::kWhole) {
    file.open_chunks.clear();
    for (int chunk = 0; chunk < file.part->chunks(); ++chunk) file.open_chunks.push_back(chunk);
  } else {
    file.open_chunks.push_front(claim.chunk);
  }
  if (file.serving != FileState::Serving::kRanges) file.serving = FileState::Serving::kUnknown;
  changed_.notify_all();
}

void DownloadState::SetServing(FileState& file, FileState::Serving serving) {
  const Lock lock(mutex_.native());
  file.serving = serving;
  if (serving == FileState::Serving::kWhole) {
    file.open_chunks.clear();
    file.part->Restart();
  }
  changed_.notify_all();
}

std::optional<Address> DownloadState::LeadsTo(FileState& file) {
  const Lock lock(mutex_.native());
  return file.leads_to;
}

void DownloadState::SetLeadsTo(FileState& file, std::optional<Address> address) {
  const Lock lock(mutex_.native());
  file.leads_to = std::move(address);
}

void DownloadState::Arrived(int64_t bytes) {
  Clock::time_point due = {};
  {
    const Lock lock(mutex_.native());
    totals_.fetched_bytes += bytes;
    if (options_.bytes_per_second > 0) {
      const std::chrono::duration<double> cost(static_cast<double>(bytes) /
                                               options_.bytes_per_second);
      const std::chrono::duration<double> burst(kBurstSeconds);
      free_at_ =
          std::max(free_at_, Clock::now()) + std::chrono::duration_cast<Clock::duration>(cost);
      due = free_at_ - std::chrono::duration_cast<Clock::duration>(burst);
    }
  }
  changed_.notify_all();
  while (due > Clock::now()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now());
    if (!Sleep(left.count() + 1)) return;
  }
}

void DownloadState::CountRetry() {
  const Lock lock(mutex_.native());
  ++totals_.retries;
}

bool DownloadState::AwaitMore(const FileState& file, int64_t hashed, int generation) {
  Lock lock(mutex_.native());
  while (status_.ok() && !Cancelled()) {
    if (file.part->generation() != generation || file.part->Prefix() > hashed) return true;
    changed_.wait_for(lock, kTick);
  }
  return false;
}

void DownloadState::Finish(FileState& file) {
  const Lock lock(mutex_.native());
  file.finished = true;
  changed_.notify_all();
}

void DownloadState::Fail(const absl::Status& status) {
  const Lock lock(mutex_.native());
  if (status_.ok()) status_ = status;
  changed_.notify_all();
}

bool DownloadState::Sleep(int64_t milliseconds) {
  Lock lock(mutex_.native());
  const auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
  while (status_.ok() && !Cancelled()) {
    const auto now = Clock::now();
    if (now >= end) return true;
    changed_.wait_until(lock, std::min(end, now + Clock::duration(kTick)));
  }
  return false;
}

void DownloadState::Watch() {
  while (true) {
    int64_t here = 0;
    for (const FileState& file : files_) here += file.part->BytesDone();
    if (options_.on_progress) options_.on_progress(here, total_bytes_);
    Lock lock(mutex_.native());
    if (!status_.ok() || AllFinished()) return;
    if (Cancelled()) {
      status_ = absl::CancelledError("stopped");
      return;
    }
    changed_.wait_for(lock, kTick);
    const auto due = Clock::now() + kTick;
    while (status_.ok() && !AllFinished() && !Cancelled() && Clock::now() < due) {
      changed_.wait_until(lock, due);
    }
  }
}

absl::Status DownloadState::status() {
  const Lock lock(mutex_.native());
  return status_;
}

FetchTotals DownloadState::totals() {
  const Lock lock(mutex_.native());
  return totals_;
}

}  // namespace quire::pull
