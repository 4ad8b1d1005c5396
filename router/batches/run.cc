#include "router/batches/run.h"

#include <algorithm>
#include <utility>

namespace quire::batches {
namespace {

constexpr Micros kReadyPause = kMicrosPerSecond / 2;  // between looks whether the fleet serves
// Of an answer while it is written: itself, its line, and that one as it grows.
constexpr size_t kResultCopies = 3;
constexpr Micros kDiskPause = 2 * kMicrosPerSecond;  // before a write is tried again

}  // namespace

BatchRun::BatchRun(RunWorld& world, OpenBatch open, std::function<void(bool)> ended)
    : world_(world),
      id_(open.id),
      ended_(std::move(ended)),
      files_(std::make_shared<RunFiles>(world.store, open, RunFiles::Options{world.lines},
                                        world.metrics.refused_lines)),
      cancelled_(open.cancelled) {}

BatchRun::~BatchRun() { Stop(); }

// Calls `done` on the loop once `work` has run, unless the run was stopped.
void BatchRun::OnDisk(std::function<void(RunFiles&)> work, std::function<void()> done) {
  ++jobs_;
  const bool taken = world_.disk.Run([files = files_, work] { work(*files); },
                                     [weak = weak_from_this(), done] {
                                       const auto self = weak.lock();
                                       if (self == nullptr || self->stopped_) return;
                                       --self->jobs_;
                                       done();
                                       if (!self->stopped_) self->FinishWhenIdle();
                                     });
  if (taken) return;
  // The queue has room for all lines that may be under way; it is full where the disk stands still.
  world_.executor.PostAt(world_.executor.clock().Now() + kDiskPause,
                         [weak = weak_from_this(), work = std::move(work), done] {
                           const auto self = weak.lock();
                           if (self == nullptr || self->stopped_) return;
                           --self->jobs_;
                           self->OnDisk(work, done);
                         });
}

void BatchRun::Begin() {
  const auto ready = std::make_shared<RunFiles::Ready>();
  OnDisk([ready](RunFiles& files) { *ready = files.Lock(); }, [this, ready] { Locked(*ready); });
}

void BatchRun::Locked(RunFiles::Ready ready) {
  if (ready != RunFiles::Ready::kRun) return Leave(false);
  const auto tenant = world_.sender.TenantNow(files_->batch().creator);
  tenant_ = tenant.value_or(nullptr);
  const auto prepared = std::make_shared<RunFiles::Ready>();
  OnDisk([prepared, memory = world_.sender.MemoryOf(tenant_.get())](
             RunFiles& files) { *prepared = files.Prepare(memory); },
         [this, prepared] { Prepared(*prepared); });
}

void BatchRun::Prepared(RunFiles::Ready ready) {
  if (ready == RunFiles::Ready::kLater || ready == RunFiles::Ready::kNo) return Leave(false);
  counts_ = files_->counts();
  prepared_ = true;
  if (ready == RunFiles::Ready::kEnds) return End(files_->ends_as());
  world_.log.Info(
      "a batch runs",
      {{"batch", id_}, {"requests", counts_.total}, {"done", counts_.completed + counts_.failed}});
  Tick();
  Fill();
}

void BatchRun::Tick() {
  if (ending_) return;
  if (cancelled_) return End(Status::kCancelled);
  if (world_.store.Now() >= files_->batch().expires_at) return End(Status::kExpired);
  tick_timer_.SetIn(world_.store.limits().save_every, [this] { Tick(); });
  if (std::exchange(saving_, true)) return;
  OnDisk([counts = counts_](RunFiles& files) { files.Save(counts); }, [this] { saving_ = false; });
}

void BatchRun::Cancel() {
  cancelled_ = true;
  if (prepared_) End(Status::kCancelled);
}

void BatchRun::ShowInFlight() {
  const size_t now = active_.size();
  world_.metrics.in_flight.Add(static_cast<double>(now) - static_cast<double>(shown_in_flight_));
  shown_in_flight_ = now;
}

void BatchRun::Fill() {
  if (ending_ || stopped_) return;
  const auto& todo = files_->todo();
  while (active_.size() < world_.store.limits().max_in_flight && next_ < todo.size()) {
    if (!world_.sender.Ready()) {
      fill_timer_.SetIn(kReadyPause, [this] { Fill(); });
      break;
    }
    const batch::BatchLine* line = todo[next_++];
    active_[line->number].line = line;
    ReadLine(line->number);
  }
  ShowInFlight();
  if (next_ == todo.size() && active_.empty()) End(Status::kCompleted);
}

void BatchRun::ReadLine(size_t number) {
  struct Body {
    explicit Body(std::shared_ptr<MemoryAccount> memory)
        : hold(std::make_shared<MemoryHold>(std::move(memory))) {}
    absl::StatusOr<std::string> text;
    std::shared_ptr<MemoryHold> hold;
  };
  const auto body = std::make_shared<Body>(world_.sender.MemoryOf(tenant_.get()));
  OnDisk(
      [body, line = active_[number].line](RunFiles& files) {
        body->text = files.ReadBody(*line, *body->hold);
      },
      [this, body, number] {
        if (!active_.contains(number)) return;
        if (body->text.ok()) return SendLine(number, *std::move(body->text), body->hold);
        if (absl::IsUnavailable(body->text.status())) return Again(number, 0);
        files_->more_errors.push_back(
            {"input_file_unreadable", StatusMessage(body->text.status()), "input_file_id", number});
        End(Status::kFailed);
      });
}

void BatchRun::SendLine(size_t number, std::string body, std::shared_ptr<MemoryHold> hold) {
  const auto tenant = world_.sender.TenantNow(files_->batch().creator);
  if (!tenant) {
    files_->more_errors.push_back(
        {"tenant_unknown", "the tenant that made the batch has no key any more", "", std::nullopt});
    return End(Status::kFailed);
  }
  tenant_ = *tenant;
  LineRequest request;
  request.path = files_->batch().endpoint;
  request.body = std::move(body);
  request.request_id = std::string(batch::kBatchResultPrefix) + std::to_string(number) + "-" +
                       id_.substr(id_.size() - 12);
  request.tenant = tenant_;
  request.hold = std::move(hold);
  active_[number].sent = world_.sender.Send(std::move(request), [this, number](LineAnswer answer) {
    OnAnswer(number, std::move(answer));
  });
}

void BatchRun::OnAnswer(size_t number, LineAnswer answer) {
  Line& line = active_.at(number);
  line.sent.reset();
  batch::Treatment treatment = batch::TreatmentOf(answer.status);
  // A router that has not found its workers yet does not know their models either.
  if (answer.status == 404 && !world_.sender.Ready()) treatment = batch::Treatment::kAgain;
  if (treatment == batch::Treatment::kServerFailure &&
      ++line.server_failures >= batch::kMaxServerFailures) {
    treatment = batch::Treatment::kResult;
  }
  if (treatment != batch::Treatment::kResult) return Again(number, answer.retry_after);
  line.failed = answer.status < 200 || answer.status > 299;
  const std::string request_id = std::string(batch::kBatchResultPrefix) + std::to_string(number) +
                                 "-" + id_.substr(id_.size() - 12);
  line.result = std::make_shared<batch::BatchAnswer>(
      batch::BatchAnswer{answer.status, request_id, std::move(answer.body), true});
  line.hold = std::make_unique<MemoryHold>(world_.sender.MemoryOf(tenant_.get()));
  line.hold->Resize(kResultCopies * line.result->body.size());
  Write(number);
}

Micros BatchRun::PauseOf(int tries) {
  const Micros most = std::min(kLongestPause, kFirstPause << std::min(tries, 8));
  return most / 2 + static_cast<Micros>(world_.rng.Next() % static_cast<uint64_t>(most / 2 + 1));
}

void BatchRun::Again(size_t number, Micros retry_after) {
  Line& line = active_.at(number);
  world_.metrics.lines_again.Add();
  const Micros pause = std::max(PauseOf(line.tries++), std::min(retry_after, kLongestRetryAfter));
  line.pause = std::make_unique<Timer>(world_.executor);
  line.pause->SetIn(pause, [this, number] { ReadLine(number); });
}

void BatchRun::Write(size_t number) {
  Line& line = active_.at(number);
  const auto status = std::make_shared<absl::Status>();
  // The line stays where it is until it is written. It may be long: the loop doesn't make it.
  OnDisk(
      [status, number, custom_id = line.line->custom_id, answer = line.result,
       failed = line.failed](RunFiles& files) {
        *status = files.Append(batch::AnswerLine(number, custom_id, *answer), failed);
      },
      [this, status, number] { Written(number, *status); });
}

void BatchRun::Written(size_t number, const absl::Status& status) {
  const auto found = active_.find(number);
  if (found == active_.end()) return;
  if (!status.ok() && !ending_) {
    world_.metrics.disk_errors.Add();
    world_.log.Warning("a result cannot be written; it is tried again",
                       {{"batch", id_}, {"error", StatusMessage(status)}});
    found->second.pause = std::make_unique<Timer>(world_.executor);
    found->second.pause->SetIn(kDiskPause, [this, number] { Write(number); });
    return;
  }
  if (status.ok()) {
    (found->second.failed ? counts_.failed : counts_.completed) += 1;
    (found->second.failed ? world_.metrics.lines_failed : world_.metrics.lines_ok).Add();
  } else if (ends_as_ == Status::kExpired) {
    left_.push_back(found->second.line);
  }
  active_.erase(found);
  ShowInFlight();
  Fill();
}

void BatchRun::End(Status status) {
  if (ending_ || stopped_) return;
  ending_ = true;
  ends_as_ = status;
  fill_timer_.Stop();
  tick_timer_.Stop();
  for (auto it = active_.begin(); it != active_.end();) {
    const Line& line = it->second;
    const bool waits = line.pause != nullptr && line.pause->running();
    const bool writes = line.result != nullptr && !waits;
    if (writes) {
      ++it;
      continue;
    }
    if (status == Status::kExpired) left_.push_back(it->second.line);
    it = active_.erase(it);
  }
  ShowInFlight();
  if (status == Status::kExpired) {
    const auto& todo = files_->todo();
    left_.insert(left_.end(), todo.begin() + static_cast<ptrdiff_t>(next_), todo.end());
  }
  FinishWhenIdle();
}

void BatchRun::FinishWhenIdle() {
  if (!ending_ || finishing_ || stopped_ || jobs_ > 0 || !active_.empty()) return;
  finishing_ = true;
  const auto status = std::make_shared<absl::Status>();
  OnDisk([status, ends_as = ends_as_, counts = counts_, left = std::move(left_)](
             RunFiles& files) { *status = files.Finish(ends_as, counts, left); },
         [this, status] {
           left_.clear();
           if (status->ok()) return Leave(true);
           world_.metrics.disk_errors.Add();
           world_.log.Warning("a batch cannot be ended; it is tried again",
                              {{"batch", id_}, {"error", StatusMessage(*status)}});
           retry_timer_.SetIn(kDiskPause, [this] {
             finishing_ = false;
             FinishWhenIdle();
           });
         });
}

void BatchRun::Leave(bool ended_here) {
  if (ended_here) {
    BatchMetrics& metrics = world_.metrics;
    const Status status = files_->batch().status;
    Counter& ended = status == Status::kCompleted ? metrics.ended_completed
                     : status == Status::kFailed  ? metrics.ended_failed
                     : status == Status::kExpired ? metrics.ended_expired
                                                  : metrics.ended_cancelled;
    ended.Add();
  }
  Stop();
  if (ended_) std::exchange(ended_, nullptr)(ended_here);
}

void BatchRun::Stop() {
  if (std::exchange(stopped_, true)) return;
  files_->stopped = true;
  fill_timer_.Stop();
  tick_timer_.Stop();
  retry_timer_.Stop();
  active_.clear();
  ShowInFlight();
  // What it knows of many lines is freed elsewhere, and its lock with it.
  world_.disk.Run([files = std::move(files_)] {}, [] {});
}

}  // namespace quire::batches
