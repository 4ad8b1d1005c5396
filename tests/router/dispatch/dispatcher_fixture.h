// The dispatcher between played workers and an owner that writes down its events.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "router/dispatch/dispatcher.h"
#include "tests/router/support/fake_worker.h"

namespace quire {

inline constexpr Micros kMilli = kMicrosPerMilli;

class DispatchRecorder {
 public:
  // Drains the events of the dispatcher, as its owner does.
  void Drain(Dispatcher& dispatcher) {
    while (const std::optional<DispatchEvent> event = dispatcher.NextEvent()) {
      std::visit([this](const auto& what) { On(what); }, *event);
    }
  }
  void Over(RequestNumber request, const AttemptReport& report) {
    std::vector<AttemptReport>& reports = attempts[request.value()];
    EXPECT_TRUE(reports.empty() || reports.back().attempt < report.attempt);
    reports.push_back(report);
  }

  std::map<uint64_t, std::vector<TokenId>> ids;
  std::map<uint64_t, std::vector<EndReason>> over;
  std::map<uint64_t, std::vector<ApiError>> failed;
  std::map<uint64_t, std::vector<AttemptReport>> attempts;
  int rooms = 0;
  std::function<void(RequestNumber, const Output&)> on_output;

 private:
  void On(const AttemptAdmitted&) {}
  void On(const AttemptOver& event) { Over(event.request, *event.report); }
  void On(const PromptScored&) {}
  void On(const OutputAccepted& event) {
    const Output& output = *event.output;
    std::vector<TokenId>& list = ids[output.key.request.value()];
    EXPECT_EQ(output.first_index, list.size());
    list.insert(list.end(), output.ids.begin(), output.ids.end());
    if (on_output) on_output(output.key.request, output);
  }
  void On(const ChoiceOver& event) {
    over[event.ended->key.request.value()].push_back(event.ended->reason);
  }
  void On(const RequestFailed& event) { failed[event.request.value()].push_back(*event.error); }
  void On(const FleetChanged&) {}
  void On(const RoomMade&) { ++rooms; }
};

class DispatcherTest : public ::testing::Test {
 protected:
  void Start(int workers, FakeWorkerOptions worker_options = {}) {
    options_.instance = RouterInstance(1);
    options_.policy = &Policies().front();
    dispatcher_ = std::make_unique<Dispatcher>(options_, *dialer_, world_.executor(), world_.rng(),
                                               [this] { listener_.Drain(*dispatcher_); });
    dispatcher_->fleet().TextReady("model-a");
    for (int i = 0; i < workers; ++i) {
      worker_options.worker_id = "worker-" + std::to_string(i);
      worker_options.target = worker_options.worker_id + ":1";
      workers_.push_back(std::make_unique<FakeWorker>(world_, worker_options));
      ASSERT_TRUE(dispatcher_->AddWorker(worker_options.target).ok());
    }
    Run(500 * kMilli);
  }
  void Run(Micros duration) {
    world_.RunUntil(world_.clock().Now() + duration);
    dispatcher_->CheckInvariants();
  }
  void Ask(uint64_t number, int32_t max_tokens = 10, bool router_is_taker = true) {
    dispatcher_->Start(Request(number, max_tokens, router_is_taker));
  }
  void Cancel(uint64_t number) {
    const auto report = dispatcher_->Cancel(RequestNumber(number));
    if (report) listener_.Over(RequestNumber(number), *report);
  }
  static DispatchRequest Request(uint64_t number, int32_t max_tokens = 10,
                                 bool router_is_taker = true) {
    DispatchRequest request;
    request.number = RequestNumber(number);
    request.submit.prompt_ids = {1, 2, static_cast<TokenId>(number)};
    request.submit.choices.resize(1);
    request.submit.sampling.max_tokens = max_tokens;
    request.submit.model_id = "model-a";
    request.model_name = "fake";
    request.router_is_taker = router_is_taker;
    return request;
  }
  std::string TextOf(uint64_t number) {
    std::string text;
    for (const TokenId id : listener_.ids[number]) text.push_back(static_cast<char>(id));
    return text;
  }
  FakeWorker& Running() {
    for (const auto& worker : workers_) {
      if (!worker->attempts.empty()) return *worker;
    }
    ADD_FAILURE() << "no worker runs anything";
    return *workers_[0];
  }
  FakeWorker& Idle() { return &Running() == workers_[0].get() ? *workers_[1] : *workers_[0]; }

  VirtualWorld world_{11};
  std::unique_ptr<Dialer> dialer_ = world_.MakeDialer();
  DispatchRecorder listener_;
  DispatchOptions options_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
  std::unique_ptr<Dispatcher> dispatcher_;
};

}  // namespace quire
