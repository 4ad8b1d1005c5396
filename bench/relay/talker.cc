#include "bench/relay/talker.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/wire/values.h"
#include "router/fleet/text_bundles.h"

namespace quire::bench {

double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

class Talker::Stream final : public FrameStream {
 public:
  explicit Stream(Talker& talker) : talker_(talker) { talker_.stream_ = this; }
  ~Stream() override { talker_.stream_ = nullptr; }
  void Start(Receiver* receiver) override { talker_.receiver_ = receiver; }
  bool Write(std::string frame) override {
    const double begin = ThreadSeconds();
    talker_.Hear(frame);
    talker_.own_seconds_ += ThreadSeconds() - begin;
    return true;
  }
  size_t PendingBytes() const override { return 0; }
  void Close() override {}

 private:
  Talker& talker_;
};

std::unique_ptr<FrameStream> Talker::Dial(const std::string&) {
  return std::make_unique<Stream>(*this);
}

void Talker::FetchTextBundle(const std::string&, const std::string&, size_t,
                             std::function<void(absl::StatusOr<std::string>)> done) {
  executor_.Post([done = std::move(done), bundle = options_.bundle] { done(bundle); });
}

void Talker::Hear(const std::string& bytes) {
  worker::v1::RouterFrame frame;
  QUIRE_CHECK(frame.ParseFromString(bytes));
  if (frame.has_hello()) executor_.Post([this] { Greet(); });
  if (frame.has_submit()) Take(frame.submit());
  if (frame.has_grant()) {
    const auto row = rows_.find(frame.grant().request_number());
    if (row != rows_.end()) row->second.granted = frame.grant().up_to_index();
  }
  if (frame.has_cancel()) rows_.erase(frame.cancel().request_number());
  if (begun_) Wake();
}

void Talker::Take(const worker::v1::Submit& submit) {
  Row& row = rows_[submit.request_number()];
  row.attempt = submit.attempt();
  row.granted = submit.initial_window() == 0 ? UINT64_MAX : submit.initial_window();
  row.limit = static_cast<uint64_t>(submit.sampling().max_tokens());
  last_submit_ = std::max<uint64_t>(last_submit_, submit.submit_number());
  worker::v1::Admitted* admitted = next_.add_admitted();
  admitted->set_request_number(submit.request_number());
  admitted->set_attempt(submit.attempt());
  Wake();
}

void Talker::Greet() {
  worker::v1::WorkerFrame frame;
  worker::v1::WorkerHello* hello = frame.mutable_hello();
  hello->set_worker_id("talker");
  hello->set_epoch(1);
  hello->set_protocol(1);
  hello->add_features("resume");
  hello->set_model_id("model");
  hello->set_numerics_id("numerics");
  hello->set_block_size(16);
  hello->mutable_limits()->set_max_model_len(1u << 20);
  hello->mutable_limits()->set_max_num_seqs(options_.rows);
  hello->mutable_limits()->set_max_waiting_requests(options_.rows);
  hello->mutable_limits()->set_max_choices(1);
  hello->set_text_bundle_sha256(Sha256(options_.bundle));
  hello->add_served_names("bench");
  hello->set_vocab_size(options_.vocab_size);
  receiver_->OnFrame(frame.SerializeAsString());
  Beat();
}

// A worker is heard every 200 ms, whatever it does.
void Talker::Beat() {
  Send(worker::v1::Step());
  executor_.PostAt(executor_.clock().Now() + 100 * kMicrosPerMilli, [this] {
    if (stream_ != nullptr) Beat();
  });
}

void Talker::Wake() {
  if (awake_) return;
  awake_ = true;
  executor_.Post([this] {
    awake_ = false;
    if (stream_ != nullptr) Turn();
  });
}

void Talker::Turn() {
  if (!begun_ && rows_.size() == options_.rows) {
    begun_ = true;
    on_begin();
  }
  const double begin = ThreadSeconds();
  worker::v1::Step step;
  step.Swap(&next_);
  if (begun_) Fill(step);
  own_seconds_ += ThreadSeconds() - begin;
  const bool says = step.admitted_size() + step.outputs_size() + step.ended_size() > 0;
  if (!says) return;
  Send(std::move(step));
  if (!begun_) return;
  if (rows_.empty()) {
    on_end();
  } else {
    Wake();
  }
}

void Talker::Fill(worker::v1::Step& step) {
  for (auto it = rows_.begin(); it != rows_.end();) {
    auto& [number, row] = *it;
    if (row.index < std::min(row.granted, row.limit)) {
      worker::v1::Output* output = step.add_outputs();
      output->set_request_number(number);
      output->set_attempt(row.attempt);
      output->set_first_index(row.index);
      // Words of the vocabulary; its beginning is taken by special tokens and bytes.
      output->add_ids(
          static_cast<int32_t>(512 + (row.index * 7 + number * 131) % (options_.vocab_size - 512)));
      ++row.index;
      ++tokens_;
    }
    if (row.index < row.limit) {
      ++it;
      continue;
    }
    worker::v1::Ended* ended = step.add_ended();
    ended->set_request_number(number);
    ended->set_attempt(row.attempt);
    ended->set_reason(worker::v1::LENGTH);
    ended->set_last_choice(true);
    it = rows_.erase(it);
  }
}

void Talker::Send(worker::v1::Step step) {
  const double begin = ThreadSeconds();
  const std::string bytes = Encode(std::move(step));
  own_seconds_ += ThreadSeconds() - begin;
  receiver_->OnFrame(bytes);
}

// All that making a frame takes is done when it returns, giving the messages back included.
std::string Talker::Encode(worker::v1::Step from) {
  worker::v1::WorkerFrame frame;
  worker::v1::Step& step = *frame.mutable_step();
  step.Swap(&from);
  step.set_frame_seq(++frames_);
  step.set_state(worker::v1::READY);
  step.set_routers_attached(1);
  step.set_step_limit_ms(2000);
  step.set_last_admitted_submit(last_submit_);
  step.mutable_load()->set_steps_total(frames_);
  step.mutable_load()->set_running_rows(static_cast<uint32_t>(rows_.size()));
  std::string bytes = frame.SerializeAsString();
  frame_bytes_ += bytes.size();
  return bytes;
}

}  // namespace quire::bench
