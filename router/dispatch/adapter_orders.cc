#include "router/dispatch/adapter_orders.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/utf8.h"

namespace quire {
namespace {

constexpr size_t kMaxReasonBytes = 600;  // of one worker
constexpr size_t kMaxReasons = 4;        // different ones that an answer names

ApiCode CodeOf(AdapterVerdict verdict) {
  switch (verdict) {
    case AdapterVerdict::kInvalid:
    case AdapterVerdict::kAlready:
      return ApiCode::kInvalidArgument;
    case AdapterVerdict::kNotFound:
      return ApiCode::kNotFound;
    case AdapterVerdict::kNoSlot:
      return ApiCode::kConflict;
    case AdapterVerdict::kQueueFull:
      return ApiCode::kUnavailable;
    case AdapterVerdict::kDone:
    case AdapterVerdict::kFailed:
      break;
  }
  return ApiCode::kInternal;
}

AdapterResult NotAnswered(std::string why) {
  AdapterResult result;
  result.verdict = AdapterVerdict::kQueueFull;  // it may be asked again
  result.message = std::move(why);
  result.retry_after_ms = 1000;
  return result;
}

}  // namespace

AdapterOrders::~AdapterOrders() {
  for (auto& [number, live] : live_) executor_.Cancel(live.timer);
}

uint64_t AdapterOrders::Begin(AdapterOrder order, const std::vector<Target>& targets,
                              AdapterOrderDone done) {
  QUIRE_CHECK(!targets.empty() && done != nullptr);
  if (live_.size() >= kMaxAdapterOrders) {
    ++counters_.adapter_orders_refused;
    return 0;
  }
  ++counters_.adapter_orders;
  const uint64_t number = ++last_number_;
  order.number = number;
  Live& live = live_[number];
  live.order = std::move(order);
  live.done = std::move(done);
  bool asked = false;
  for (const Target& target : targets) {
    Answer& answer = live.answers.emplace_back(Answer{target.worker, target.name, std::nullopt});
    if (target.cannot.empty()) {
      asked = true;
      continue;
    }
    answer.result = AdapterResult{};
    answer.result->verdict = AdapterVerdict::kInvalid;
    answer.result->message = target.cannot;
  }
  // Where no worker is asked it ends in the next turn.
  const Micros due = executor_.clock().Now() + (asked ? kAdapterOrderTimeout : 0);
  live.timer = executor_.PostAt(due, [this, number] {
    for (Answer& answer : live_.at(number).answers) {
      if (!answer.result) answer.result = NotAnswered("it did not answer in time");
    }
    live_.at(number).timer = 0;
    End(number);
  });
  for (const Target& target : targets) {
    if (target.cannot.empty()) send_(target.worker, live.order);
  }
  return number;
}

void AdapterOrders::Forget(uint64_t number) {
  const auto found = live_.find(number);
  if (found == live_.end()) return;
  executor_.Cancel(found->second.timer);
  live_.erase(found);
}

void AdapterOrders::Answered(WorkerIndex worker, const AdapterResult& result) {
  const auto found = live_.find(result.number);
  if (found == live_.end()) return;
  for (Answer& answer : found->second.answers) {
    if (answer.worker != worker || answer.result) continue;
    answer.result = result;
    answer.result->message = OnOneLine(result.message, kMaxReasonBytes);
  }
  EndIfComplete(result.number);
}

void AdapterOrders::Lost(WorkerIndex worker) {
  std::vector<uint64_t> numbers;
  for (auto& [number, live] : live_) {
    for (Answer& answer : live.answers) {
      if (answer.worker != worker || answer.result) continue;
      answer.result = NotAnswered("it was lost before it answered");
      numbers.push_back(number);
    }
  }
  for (const uint64_t number : numbers) EndIfComplete(number);
}

void AdapterOrders::EndIfComplete(uint64_t number) {
  const auto found = live_.find(number);
  if (found == live_.end()) return;
  const bool complete = std::ranges::all_of(
      found->second.answers, [](const Answer& answer) { return answer.result.has_value(); });
  if (complete) End(number);
}

void AdapterOrders::End(uint64_t number) {
  auto node = live_.extract(number);
  QUIRE_CHECK(!node.empty());
  const Live& live = node.mapped();
  if (live.timer != 0) executor_.Cancel(live.timer);
  live.done(Outcome(live));
}

std::optional<ApiError> AdapterOrders::Outcome(const Live& live) {
  const bool load = live.order.kind == AdapterOrder::Kind::kLoad;
  const auto count = [&](AdapterVerdict verdict) {
    return static_cast<size_t>(std::ranges::count_if(
        live.answers, [&](const Answer& each) { return each.result->verdict == verdict; }));
  };
  const std::string name = live.order.name;
  const size_t done = count(AdapterVerdict::kDone);
  const size_t already = count(AdapterVerdict::kAlready);
  if (done == 0 && already == live.answers.size()) {
    return ApiError{ApiCode::kInvalidArgument,
                    "The lora adapter '" + name +
                        "' has already been loaded. If you want to load the adapter in place, set "
                        "'load_inplace' to True.",
                    "lora_name", 0};
  }
  std::string digest;  // of those that have it now
  for (const Answer& each : live.answers) {
    if (each.result->verdict == AdapterVerdict::kDone) digest = each.result->digest;
  }
  // By reason, the workers that gave it.
  std::vector<std::pair<std::string, std::string>> reasons;
  ApiError error{ApiCode::kInternal, "", load ? "lora_path" : "lora_name", 0};
  size_t failed = 0;
  for (const Answer& each : live.answers) {
    const AdapterResult& result = *each.result;
    std::string reason = result.message.empty() ? "it failed" : result.message;
    if (result.verdict == AdapterVerdict::kDone) continue;
    if (result.verdict == AdapterVerdict::kAlready) {
      if (result.digest == digest) continue;
      reason = "it has other content under this name; 'load_inplace' replaces it";
    }
    if (!load && result.verdict == AdapterVerdict::kNotFound && done > 0) continue;
    if (failed++ == 0) error.code = CodeOf(result.verdict);
    error.retry_after_ms = std::max(error.retry_after_ms, result.retry_after_ms);
    const auto known =
        std::ranges::find(reasons, reason, &std::pair<std::string, std::string>::first);
    if (known != reasons.end()) {
      known->second += ", " + each.name;
    } else if (reasons.size() < kMaxReasons) {
      reasons.emplace_back(reason, each.name);
    }
  }
  if (failed == 0) return std::nullopt;
  if (!load && done == 0 && count(AdapterVerdict::kNotFound) == live.answers.size()) {
    return ApiError{ApiCode::kNotFound, "The lora adapter '" + name + "' cannot be found.",
                    "lora_name", 0};
  }
  if (error.code != ApiCode::kUnavailable) error.retry_after_ms = 0;
  error.message = std::string(load ? "Loading" : "Unloading") + " lora adapter '" + name +
                  "' failed at " + std::to_string(failed) + " of " +
                  std::to_string(live.answers.size()) + " workers: ";
  for (size_t i = 0; i < reasons.size(); ++i) {
    error.message += (i == 0 ? "" : "; ") + reasons[i].first + " (" +
                     reasons[i].second.substr(0, kMaxReasonBytes) + ")";
  }
  return error;
}

}  // namespace quire
