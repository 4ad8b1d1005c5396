#include "bench/client/tally.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "bench/mock/paced_worker.h"
#include "common/json/json.h"

namespace quire::bench {
namespace {

constexpr int64_t kCancelPhases = 8;

json::Object SpreadOf(std::vector<float>& values) {
  json::Object out;
  out["n"] = static_cast<int64_t>(values.size());
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    const auto index = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
    return static_cast<double>(values[index]);
  };
  out["p50"] = at(0.5);
  out["p90"] = at(0.9);
  out["p99"] = at(0.99);
  out["max"] = at(1);
  return out;
}

void Append(const std::vector<float>& from, std::vector<float>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

int64_t SteadyMicros() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

// By splitmix64: a twister would take longer to seed than a call takes.
std::vector<int32_t> PromptOf(const LoadOptions& options, uint64_t seed) {
  std::vector<int32_t> ids(static_cast<size_t>(options.prompt_tokens));
  const auto range = static_cast<uint32_t>(options.vocab) - kFirstMockToken;
  for (int32_t& id : ids) {
    uint64_t bits = seed += 0x9E3779B97F4A7C15ull;
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9ull;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBull;
    id = static_cast<int32_t>(kFirstMockToken + (bits >> 33) % range);
  }
  return ids;
}

int CancelAfter(const LoadOptions& options, int64_t number) {
  // Which calls of a hundred are given up does not depend on which phase that is in.
  const bool given_up = (options.first_seed + number) * 37 % 100 < options.cancel_percent;
  return given_up ? static_cast<int>(number % kCancelPhases) : -1;
}

bool Outcome::Take(const LoadOptions& options, uint64_t seed, const std::vector<int32_t>& ids,
                   int64_t begun_at_us) {
  if (ids.empty()) return false;
  const int64_t now = SteadyMicros();
  const auto vocab = static_cast<uint32_t>(options.vocab);
  const bool first = tokens == 0;
  if (first) {
    first_us = std::max<int64_t>(1, now - begun_at_us);
  } else {
    gaps_ms.push_back(static_cast<float>(now - last_at_us) / 1000);
  }
  last_at_us = now;
  for (const int32_t id : ids) {
    const auto index = static_cast<uint64_t>(tokens++);
    if (options.stamps) {
      ages_ms.push_back(static_cast<float>(AgeOf(id, now, vocab)) / 1000);
    } else if (id != TokenOf(seed, 0, index, vocab)) {
      wrong = true;
    }
  }
  return first;
}

int64_t Tally::Begin() {
  std::lock_guard<std::mutex> lock(mutex_);
  return begun_ == options_.requests ? -1 : begun_++;
}

void Tally::Opened() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (++open_ != options_.requests) return;
  std::printf("{\"open\": %lld}\n", static_cast<long long>(open_));
  std::fflush(stdout);
}

void Tally::Count(const Outcome& outcome) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++ended_;
  tokens_ += outcome.tokens;
  wrong_ += outcome.wrong ? 1 : 0;
  const auto total_ms = static_cast<float>(outcome.total_us) / 1000;
  if (outcome.first_us > 0) first_ms_.push_back(static_cast<float>(outcome.first_us) / 1000);
  Append(outcome.gaps_ms, gap_ms_);
  Append(outcome.ages_ms, age_ms_);
  if (outcome.complete) {
    ++complete_;
    total_ms_.push_back(total_ms);
    completed_at_us_.push_back(outcome.ended_at_us);
  } else if (outcome.cancelled) {
    ++cancelled_;
  } else {
    ++failed_[outcome.status];
    told_when_ += outcome.told_when ? 1 : 0;
    if (outcome.first_us == 0) refusal_ms_.push_back(total_ms);
    error_ = outcome.error;
  }
  if (ended_ == options_.requests) over_.notify_all();
}

void Tally::WaitForAll() {
  std::unique_lock<std::mutex> lock(mutex_);
  over_.wait(lock, [this] { return ended_ == options_.requests; });
}

void Tally::OfferedAll() {
  std::lock_guard<std::mutex> lock(mutex_);
  offered_until_us_ = SteadyMicros();
}

std::string Tally::Json() {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t now = SteadyMicros();
  const double seconds = static_cast<double>(now - from_us_) / 1e6;
  // Of an open loop: what was completed while the load was on.
  const int64_t until = std::min(now, offered_until_us_);
  const auto in_time = std::count_if(completed_at_us_.begin(), completed_at_us_.end(),
                                     [&](int64_t at) { return at <= until; });
  json::Object failed;
  int64_t failures = 0;
  for (const auto& [status, count] : failed_) {
    failed[status] = count;
    failures += count;
  }
  json::Object out;
  out["seconds"] = seconds;
  out["requests"] = begun_;
  out["complete"] = complete_;
  out["cancelled"] = cancelled_;
  out["failed"] = failures;
  out["failed_by_status"] = std::move(failed);
  out["told_when_to_come_back"] = told_when_;
  out["wrong_tokens"] = wrong_;
  out["tokens"] = tokens_;
  out["requests_per_second"] = static_cast<double>(complete_) / seconds;
  out["completed_per_second_under_load"] =
      static_cast<double>(in_time) * 1e6 / static_cast<double>(until - from_us_);
  out["tokens_per_second"] = static_cast<double>(tokens_) / seconds;
  out["first_token_ms"] = SpreadOf(first_ms_);
  out["total_ms"] = SpreadOf(total_ms_);
  out["refusal_ms"] = SpreadOf(refusal_ms_);
  out["gap_ms"] = SpreadOf(gap_ms_);
  out["age_ms"] = SpreadOf(age_ms_);
  out["error"] = error_;
  return json::Serialize(out);
}

}  // namespace quire::bench
