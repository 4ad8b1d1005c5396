// A worker played on the virtual runtime: speaks the wire, writes a fixed text, does what a test
// asks.
//
// Its "model" writes `script`, again and again, whatever the prompt; then the end-of-sequence token
// if asked. So an answer resumed anywhere is the same answer.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/runtime/virtual_runtime.h"
#include "common/wire/values.h"
#include "quire/v1/worker.pb.h"
#include "router/fleet/text_bundles.h"
#include "tests/router/support/fake_text.h"

namespace quire {

namespace pb = ::quire::worker::v1;

inline constexpr char kFakeBundle[] = "bundle of the fake model";

struct FakeWorkerOptions {
  std::string target = "worker-0:9000";
  std::string worker_id = "worker-0";
  std::string model_id = "model-a";
  std::vector<std::string> names = {"fake"};
  std::string bundle = kFakeBundle;
  std::string script = "abcdefghijklmnopqrstuvwxyz";
  int end_at = -1;  // output index of an end-of-sequence token; −1: never
  Micros step = 10 * kMicrosPerMilli;
  int tokens_per_step = 1;
  size_t prompt_chunk = 3;  // prompt positions scored in a step, when asked for
  uint32_t max_model_len = 4096;
  uint32_t max_waiting = 64;
  uint32_t max_choices = 1;
  std::vector<std::string> features = {"resume"};
};

class FakeWorker {
 public:
  // Choice i writes the script from its i-th letter on.
  struct Choice {
    uint64_t index = 0;    // of the next output
    uint64_t granted = 0;  // 0 is unlimited
    bool over = false;
  };
  struct Attempt {
    pb::Submit submit;
    std::vector<TokenId> prompt;
    std::vector<Choice> choices;
    size_t scored = 0;  // prompt positions told
    size_t parts_left = 0;
    bool admitted = false;
  };

  FakeWorker(VirtualWorld& world, FakeWorkerOptions options)
      : world_(world), options_(std::move(options)), alive_(std::make_shared<bool>(true)) {
    Up();
  }
  ~FakeWorker() { Down(); }

  void Up() {
    ++epoch_;
    draining_ = false;
    ListenAgain();
  }
  // The same process, reached again.
  void ListenAgain() {
    up_ = true;
    world_.Listen(options_.target, [this](std::unique_ptr<FrameStream> stream) {
      session_ = std::make_unique<Session>(*this, std::move(stream));
      session_->stream->Start(session_.get());
      ++attaches;
    });
    world_.ServeTextBundle(options_.target, [this](const std::string& id) {
      ++bundle_fetches;
      if (!up_) return absl::StatusOr<std::string>(absl::UnavailableError("down"));
      if (id != options_.model_id) {
        return absl::StatusOr<std::string>(absl::FailedPreconditionError("another model"));
      }
      return absl::StatusOr<std::string>(options_.bundle);
    });
  }
  // As kill -9 does: the connection breaks, all state is gone.
  void Down() {
    up_ = false;
    world_.StopListening(options_.target);
    world_.CutLinks(options_.target);
    session_.reset();
    attempts.clear();
  }

  // What a test reads and sets.
  std::map<uint64_t, Attempt> attempts;  // by request number
  std::vector<pb::RouterFrame> heard;    // everything but heartbeats
  int attaches = 0;
  int heartbeats = 0;
  bool echoes = true;  // tells of heartbeats
  int bundle_fetches = 0;
  bool paused = false;  // sends nothing at all, as a frozen process
  bool deaf = false;    // nothing arrives
  bool frozen = false;  // sends frames, makes no tokens
  uint32_t step_age_ms = 0;
  uint32_t step_limit_ms = 2000;
  uint32_t routers_attached = 1;
  pb::WorkerState state = pb::READY;
  std::function<bool(const pb::Submit&, pb::Refused*)> refuse;
  std::function<void(pb::Step&)> tamper;  // before a frame leaves
  std::function<void(pb::WorkerHello&)> tamper_hello;
  uint64_t frame_seq = 0;

  FakeWorkerOptions& options() { return options_; }
  bool attached() const { return session_ != nullptr; }
  void SendFrame(const pb::WorkerFrame& frame) {
    if (session_ != nullptr) session_->stream->Write(frame.SerializeAsString());
  }
  void SendBytes(std::string bytes) {
    if (session_ != nullptr) session_->stream->Write(std::move(bytes));
  }
  void SendStep(pb::Step step) {
    step.set_frame_seq(++frame_seq);
    step.set_state(draining_ ? pb::DRAIN : state);
    step.set_step_age_ms(step_age_ms);
    if (echoes) step.set_heartbeat_echo_ms(std::exchange(echo_ms_, 0));
    step.set_step_limit_ms(step_limit_ms);
    step.set_routers_attached(routers_attached);
    step.set_last_admitted_submit(last_admitted_submit_);
    step.mutable_load()->set_steps_total(++steps_);
    if (tamper) tamper(step);
    pb::WorkerFrame frame;
    *frame.mutable_step() = std::move(step);
    SendFrame(frame);
  }
  void CloseStream() {
    session_.reset();
    attempts.clear();  // the router is lost
  }
  void SayDraining(uint64_t remaining_ms) {
    draining_ = true;
    pb::WorkerFrame frame;
    frame.mutable_draining()->set_remaining_ms(remaining_ms);
    SendFrame(frame);
  }

 private:
  struct Session final : FrameStream::Receiver {
    Session(FakeWorker& w, std::unique_ptr<FrameStream> s) : worker(w), stream(std::move(s)) {}
    void OnFrame(std::string_view frame) override { worker.OnFrame(frame); }
    void OnClosed(const absl::Status&) override {
      worker.attempts.clear();  // the router is lost
      stream.reset();
      worker.dead_.push_back(std::move(worker.session_));
    }
    FakeWorker& worker;
    std::unique_ptr<FrameStream> stream;
  };

  void OnFrame(std::string_view bytes) {
    pb::RouterFrame frame;
    if (!frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
    if (deaf) return;
    if (frame.has_heartbeat()) {
      ++heartbeats;
      echo_ms_ = frame.heartbeat().sent_at_ms();
      return;
    }
    heard.push_back(frame);
    if (frame.has_hello() && !paused) Greet();
    if (frame.has_submit()) Take(frame.submit());
    if (frame.has_submit_part()) {
      Attempt& attempt = attempts.at(frame.submit_part().request_number());
      for (const TokenId id : frame.submit_part().prompt_ids()) attempt.prompt.push_back(id);
      --attempt.parts_left;
    }
    if (frame.has_cancel()) attempts.erase(frame.cancel().request_number());
    if (frame.has_finish()) {
      const auto it = attempts.find(frame.finish().request_number());
      if (it != attempts.end()) it->second.choices.at(frame.finish().choice()).over = true;
    }
    if (frame.has_grant()) {
      const auto it = attempts.find(frame.grant().request_number());
      if (it != attempts.end()) {
        it->second.choices.at(frame.grant().choice()).granted = frame.grant().up_to_index();
      }
    }
  }

  void Greet() {
    attempts.clear();
    frame_seq = 0;
    last_admitted_submit_ = 0;
    pb::WorkerFrame frame;
    pb::WorkerHello* hello = frame.mutable_hello();
    hello->set_worker_id(options_.worker_id);
    hello->set_epoch(epoch_);
    hello->set_protocol(1);
    for (const std::string& feature : options_.features) hello->add_features(feature);
    hello->set_model_id(options_.model_id);
    hello->set_numerics_id("fake");
    hello->set_block_size(16);
    hello->mutable_limits()->set_max_model_len(options_.max_model_len);
    hello->mutable_limits()->set_max_num_seqs(64);
    hello->mutable_limits()->set_max_waiting_requests(options_.max_waiting);
    hello->mutable_limits()->set_max_choices(options_.max_choices);
    hello->mutable_limits()->set_max_logprobs(20);
    hello->mutable_limits()->set_max_stop_token_ids(128);
    hello->mutable_limits()->set_max_logit_bias(300);
    hello->set_text_bundle_sha256(Sha256(options_.bundle));
    for (const std::string& name : options_.names) hello->add_served_names(name);
    hello->set_vocab_size(kFakeVocab);
    if (tamper_hello) tamper_hello(*hello);
    SendFrame(frame);
    ++generation_;
    Tick(generation_);
  }

  void Take(const pb::Submit& submit) {
    pb::Refused refused;
    refused.set_request_number(submit.request_number());
    refused.set_attempt(submit.attempt());
    if (refuse && refuse(submit, &refused)) {
      pb::Step step;
      *step.add_refused() = refused;
      SendStep(step);
      return;
    }
    Attempt attempt;
    attempt.submit = submit;
    attempt.prompt.assign(submit.prompt_ids().begin(), submit.prompt_ids().end());
    for (const pb::ResumedChoice& resumed : submit.choices()) {
      Choice& choice = attempt.choices.emplace_back();
      choice.index = static_cast<uint64_t>(resumed.outputs_size());
      choice.granted = submit.initial_window() == 0 ? 0 : choice.index + submit.initial_window();
      choice.over = resumed.ended();
    }
    attempt.parts_left = submit.parts();
    attempts[submit.request_number()] = attempt;
  }

  void Tick(uint64_t generation) {
    world_.executor().PostAt(world_.clock().Now() + options_.step,
                             [this, generation, alive = std::weak_ptr(alive_)] {
                               if (alive.expired() || generation != generation_) return;
                               dead_.clear();
                               if (session_ == nullptr) return;
                               if (!paused) SendStep(frozen ? pb::Step() : Advance());
                               Tick(generation);
                             });
  }

  pb::Step Advance() {
    pb::Step step;
    std::vector<uint64_t> over;
    for (auto& [number, attempt] : attempts) {
      if (attempt.parts_left > 0) continue;
      if (!attempt.admitted) {
        attempt.admitted = true;
        last_admitted_submit_ = std::max(last_admitted_submit_, attempt.submit.submit_number());
        pb::Admitted* admitted = step.add_admitted();
        admitted->set_request_number(number);
        admitted->set_attempt(attempt.submit.attempt());
      }
      const bool scores = attempt.submit.sampling().prompt_logprobs() > 0 &&
                          std::all_of(attempt.choices.begin(), attempt.choices.end(),
                                      [](const Choice& choice) { return choice.index == 0; });
      if (scores && attempt.scored + 1 < attempt.prompt.size()) {
        Score(number, attempt, step);
        if (attempt.scored + 1 < attempt.prompt.size()) continue;
      }
      for (uint32_t i = 0; i < attempt.choices.size(); ++i) {
        if (!attempt.choices[i].over) Produce(number, attempt, i, step);
      }
      const bool all = std::all_of(attempt.choices.begin(), attempt.choices.end(),
                                   [](const Choice& choice) { return choice.over; });
      if (all) over.push_back(number);
    }
    for (const uint64_t number : over) attempts.erase(number);
    return step;
  }

  // What position p is told: −p / 4, place p, and the next ids as candidates.
  void Score(uint64_t number, Attempt& attempt, pb::Step& step) {
    const size_t end = std::min(attempt.prompt.size() - 1, attempt.scored + options_.prompt_chunk);
    pb::PromptLogprobs* part = step.add_prompt_logprobs();
    part->set_request_number(number);
    part->set_attempt(attempt.submit.attempt());
    part->set_first_position(static_cast<uint32_t>(attempt.scored + 1));
    for (; attempt.scored < end; ++attempt.scored) {
      const uint32_t position = static_cast<uint32_t>(attempt.scored + 1);
      part->add_logprobs(-0.25f * static_cast<float>(position));
      part->add_ranks(position);
      if (attempt.submit.sampling().prompt_logprobs() < 2) continue;
      pb::TopLogprobs* top = part->add_top();
      for (uint32_t k = 1; k < attempt.submit.sampling().prompt_logprobs(); ++k) {
        top->add_ids(static_cast<int32_t>('a' + k));
        top->add_logprobs(-0.125f * static_cast<float>(k));
      }
    }
  }

  void Produce(uint64_t number, Attempt& attempt, uint32_t which, pb::Step& step) {
    const uint64_t limit = static_cast<uint64_t>(attempt.submit.sampling().max_tokens());
    Choice& choice = attempt.choices[which];
    pb::Output output;
    output.set_request_number(number);
    output.set_attempt(attempt.submit.attempt());
    output.set_choice(which);
    output.set_first_index(choice.index);
    bool eos = false;
    for (int i = 0; i < options_.tokens_per_step && choice.index < limit && !eos; ++i) {
      if (choice.granted != 0 && choice.index >= choice.granted) break;
      eos = options_.end_at >= 0 && choice.index == static_cast<uint64_t>(options_.end_at);
      const char c = options_.script[(choice.index + which) % options_.script.size()];
      output.add_ids(eos ? kFakeEos : static_cast<unsigned char>(c));
      ++choice.index;
    }
    if (output.ids_size() > 0) *step.add_outputs() = output;
    if (!eos && choice.index < limit) return;
    choice.over = true;
    pb::Ended* ended = step.add_ended();
    ended->set_request_number(number);
    ended->set_attempt(attempt.submit.attempt());
    ended->set_choice(which);
    ended->set_reason(eos ? pb::STOP : pb::LENGTH);
    ended->set_by_stop_token(eos);
    ended->set_stop_token_id(eos ? kFakeEos : 0);
    ended->set_last_choice(std::all_of(attempt.choices.begin(), attempt.choices.end(),
                                       [](const Choice& each) { return each.over; }));
  }

  VirtualWorld& world_;
  uint64_t echo_ms_ = 0;  // of the last heartbeat, not told yet
  FakeWorkerOptions options_;
  std::unique_ptr<Session> session_;
  std::vector<std::unique_ptr<Session>> dead_;  // ended inside their own callback
  std::shared_ptr<bool> alive_;
  uint64_t epoch_ = 0;
  uint64_t generation_ = 0;
  uint64_t steps_ = 0;
  uint64_t last_admitted_submit_ = 0;
  bool up_ = false;
  bool draining_ = false;
};

}  // namespace quire
