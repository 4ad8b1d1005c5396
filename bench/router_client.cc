// A load of gRPC calls with token-id prompts on a router (or on the bare server beside it), and
// what its callers saw, as one line of JSON.
//
//   router_client --target=127.0.0.1:8001 --rate=200 --requests=2000 --max-tokens=16
//   router_client --target=… --concurrency=64 --requests=20000 --unary
//
// With --rate calls begin at random times of that mean rate, whatever has become of those before
// (an open loop); without it --concurrency calls run at once. Tokens are held to what the mock
// workers' rule says, or, with --stamps, say when they were written. `--cancel-percent` of the
// calls are given up, in turn before the first token and after each of the first seven. Once every
// call has its first token, a line {"open": N} is printed. Times are milliseconds; a first token's
// counts from the moment in which its call began.
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/flags.h"
#include "bench/mock/paced_worker.h"
#include "common/json/json.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire::bench {
namespace {

constexpr int kCancelPhases = 8;

struct Options {
  std::string target = "127.0.0.1:8001";
  std::string model = "mock";
  double rate = 0;  // calls/s; 0: a closed loop
  int32_t concurrency = 16;
  int64_t requests = 1000;
  int32_t channels = 8;
  int32_t prompt_tokens = 16;
  int32_t max_tokens = 16;
  int32_t vocab = 2048;
  int64_t first_seed = 1;
  int32_t timeout_s = 120;
  int32_t cancel_percent = 0;
  bool unary = false;
  bool stamps = false;
};

int64_t NowMicros() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(since).count();
}

// What one call came to.
struct Outcome {
  grpc::Status status;
  bool cancelled = false;
  bool told_when = false;  // a refusal that says when to come back
  bool complete = false;   // all tokens, each as it has to be, and an orderly end
  bool wrong = false;      // a token that is not the one of its index
  int64_t tokens = 0;
  int64_t first_us = 0;  // after its begin; 0: none
  int64_t total_us = 0;
  int64_t ended_at_us = 0;
  std::vector<float> gaps_ms;
  std::vector<float> ages_ms;
};

struct Tally {
  std::mutex mutex;  // guards all below
  std::condition_variable over;
  int64_t begun = 0;
  int64_t ended = 0;
  int64_t open = 0;  // have had their first token
  int64_t complete = 0;
  int64_t cancelled = 0;
  int64_t told_when = 0;
  int64_t wrong = 0;
  int64_t tokens = 0;
  std::map<int, int64_t> failed;  // by status
  std::string error;
  std::vector<int64_t> completed_at_us;
  std::vector<float> first_ms, total_ms, refusal_ms, gap_ms, age_ms;
};

void Append(const std::vector<float>& from, std::vector<float>& to) {
  to.insert(to.end(), from.begin(), from.end());
}

void Count(const Options& options, const Outcome& outcome, Tally& tally) {
  std::lock_guard<std::mutex> lock(tally.mutex);
  ++tally.ended;
  tally.tokens += outcome.tokens;
  tally.wrong += outcome.wrong ? 1 : 0;
  const auto total_ms = static_cast<float>(outcome.total_us) / 1000;
  if (outcome.first_us > 0) tally.first_ms.push_back(static_cast<float>(outcome.first_us) / 1000);
  Append(outcome.gaps_ms, tally.gap_ms);
  Append(outcome.ages_ms, tally.age_ms);
  if (outcome.cancelled) {
    ++tally.cancelled;
  } else if (outcome.complete) {
    ++tally.complete;
    tally.total_ms.push_back(total_ms);
    tally.completed_at_us.push_back(outcome.ended_at_us);
  } else {
    ++tally.failed[static_cast<int>(outcome.status.error_code())];
    tally.told_when += outcome.told_when ? 1 : 0;
    if (outcome.first_us == 0) tally.refusal_ms.push_back(total_ms);
    tally.error = outcome.status.error_message();
  }
  if (tally.ended == options.requests) tally.over.notify_all();
}

class Load;

// One streamed call; deletes itself.
class StreamCall final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  StreamCall(Load& load, int64_t number) : load_(load), number_(number) {}
  void Begin(v1::Inference::Stub& stub);
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void TakeTokens(const v1::Delta& delta);
  void CancelAt(int64_t tokens);

  Load& load_;
  const int64_t number_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse message_;
  Outcome outcome_;
  int64_t begun_at_ = 0;
  int64_t last_at_ = 0;
  int cancel_after_ = -1;  // tokens; −1: never
  bool usage_seen_ = false;
};

class Load {
 public:
  explicit Load(const Options& options) : options(options) {
    for (int32_t i = 0; i < options.channels; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
      arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
      arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
      stubs_.push_back(v1::Inference::NewStub(grpc::CreateCustomChannel(
          options.target, grpc::InsecureChannelCredentials(), arguments)));
    }
  }

  // Begins the next call, if one is left.
  void Next() {
    int64_t number = 0;
    {
      std::lock_guard<std::mutex> lock(tally.mutex);
      if (tally.begun == options.requests) return;
      number = tally.begun++;
    }
    v1::Inference::Stub& stub = *stubs_[static_cast<size_t>(number) % stubs_.size()];
    if (options.unary) {
      Unary(stub);
    } else {
      (new StreamCall(*this, number))->Begin(stub);
    }
  }

  void Ended(const Outcome& outcome) {
    if (options.rate == 0) Next();
    Count(options, outcome, tally);
  }

  // The first token of a call.
  void Opened() {
    std::lock_guard<std::mutex> lock(tally.mutex);
    if (++tally.open != options.requests) return;
    std::printf("{\"open\": %lld}\n", static_cast<long long>(tally.open));
    std::fflush(stdout);
  }

  void Run() {
    offered_from_us = NowMicros();
    if (options.rate == 0) {
      for (int32_t i = 0; i < options.concurrency; ++i) Next();
    } else {
      std::mt19937_64 random(static_cast<uint64_t>(options.first_seed));
      std::exponential_distribution<double> gap(options.rate);
      auto due = std::chrono::steady_clock::now();
      for (int64_t i = 0; i < options.requests; ++i) {
        std::this_thread::sleep_until(due);
        Next();
        due += std::chrono::microseconds(static_cast<int64_t>(gap(random) * 1e6));
      }
      offered_until_us = NowMicros();
    }
    std::unique_lock<std::mutex> lock(tally.mutex);
    tally.over.wait(lock, [this] { return tally.ended == options.requests; });
  }

  const Options options;
  Tally tally;
  int64_t offered_from_us = 0;
  int64_t offered_until_us = INT64_MAX;  // the begin of the last call of an open loop

 private:
  struct UnaryCall {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    v1::TokenizeResponse response;
    int64_t begun_at = 0;
  };

  void Unary(v1::Inference::Stub& stub) {
    auto* call = new UnaryCall;
    call->context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::seconds(options.timeout_s));
    call->request.set_model(options.model);
    call->request.set_text(std::string(static_cast<size_t>(2 * options.prompt_tokens), 'a'));
    call->begun_at = NowMicros();
    stub.async()->Tokenize(&call->context, &call->request, &call->response,
                           [this, call](const grpc::Status& status) {
                             Outcome outcome;
                             outcome.status = status;
                             outcome.complete = status.ok();
                             outcome.ended_at_us = NowMicros();
                             outcome.total_us = outcome.ended_at_us - call->begun_at;
                             outcome.first_us = outcome.total_us;
                             outcome.tokens = call->response.token_ids_size();
                             delete call;
                             Ended(outcome);
                           });
  }

  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
};

void StreamCall::Begin(v1::Inference::Stub& stub) {
  const Options& options = load_.options;
  const auto seed = static_cast<uint64_t>(options.first_seed + number_);
  std::mt19937 random(static_cast<uint32_t>(seed));
  request_.set_model(options.model);
  for (int32_t i = 0; i < options.prompt_tokens; ++i) {
    request_.mutable_token_ids()->add_ids(
        static_cast<int32_t>(kFirstMockToken + random() % (options.vocab - kFirstMockToken)));
  }
  request_.mutable_sampling()->set_seed(seed);
  request_.mutable_sampling()->set_max_tokens(options.max_tokens);
  request_.mutable_sampling()->set_ignore_eos(true);
  request_.set_omit_text(true);
  // Which calls of a hundred are given up does not depend on which phase that is in.
  if (static_cast<int64_t>(seed * 37 % 100) < options.cancel_percent) {
    cancel_after_ = static_cast<int>(number_ % kCancelPhases);
  }
  context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(options.timeout_s));
  begun_at_ = NowMicros();
  stub.async()->Generate(&context_, &request_, this);
  AddHold();  // the call may end, and with it this object, before the next line
  StartRead(&message_);
  StartCall();
  CancelAt(0);
  RemoveHold();
}

void StreamCall::CancelAt(int64_t tokens) {
  if (cancel_after_ < 0 || tokens < cancel_after_) return;
  outcome_.cancelled = true;
  context_.TryCancel();
}

void StreamCall::TakeTokens(const v1::Delta& delta) {
  const int64_t now = NowMicros();
  const auto vocab = static_cast<uint32_t>(load_.options.vocab);
  if (outcome_.tokens == 0 && delta.token_ids_size() > 0) {
    outcome_.first_us = std::max<int64_t>(1, now - begun_at_);
    load_.Opened();
  } else {
    outcome_.gaps_ms.push_back(static_cast<float>(now - last_at_) / 1000);
  }
  last_at_ = now;
  const auto seed = static_cast<uint64_t>(load_.options.first_seed + number_);
  if (delta.first_index() != static_cast<uint64_t>(outcome_.tokens)) outcome_.wrong = true;
  for (const int32_t id : delta.token_ids()) {
    const auto index = static_cast<uint64_t>(outcome_.tokens++);
    if (load_.options.stamps) {
      outcome_.ages_ms.push_back(static_cast<float>(AgeOf(id, now, vocab)) / 1000);
    } else if (id != TokenOf(seed, 0, index, vocab)) {
      outcome_.wrong = true;
    }
  }
}

void StreamCall::OnReadDone(bool ok) {
  if (!ok) return;
  if (message_.has_delta()) {
    TakeTokens(message_.delta());
    if (!outcome_.cancelled) CancelAt(outcome_.tokens);
  }
  usage_seen_ = usage_seen_ || message_.has_usage();
  StartRead(&message_);
}

void StreamCall::OnDone(const grpc::Status& status) {
  outcome_.status = status;
  outcome_.ended_at_us = NowMicros();
  outcome_.total_us = outcome_.ended_at_us - begun_at_;
  outcome_.complete =
      status.ok() && usage_seen_ && !outcome_.wrong && outcome_.tokens == load_.options.max_tokens;
  outcome_.told_when = context_.GetServerTrailingMetadata().count("retry-after") > 0;
  if (outcome_.cancelled && outcome_.complete) outcome_.cancelled = false;  // it came too late
  Load& load = load_;
  const Outcome outcome = std::move(outcome_);
  delete this;
  load.Ended(outcome);
}

json::Object Spread(std::vector<float>& values) {
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

void Print(Load& load) {
  Tally& tally = load.tally;
  const int64_t now = NowMicros();
  const double seconds = static_cast<double>(now - load.offered_from_us) / 1e6;
  // Of an open loop: what was completed while the load was on.
  const int64_t until = std::min(now, load.offered_until_us);
  const auto in_time = std::count_if(tally.completed_at_us.begin(), tally.completed_at_us.end(),
                                     [&](int64_t at) { return at <= until; });
  json::Object failed;
  int64_t failures = 0;
  for (const auto& [status, count] : tally.failed) {
    failed[std::to_string(status)] = count;
    failures += count;
  }
  json::Object out;
  out["seconds"] = seconds;
  out["requests"] = tally.begun;
  out["complete"] = tally.complete;
  out["cancelled"] = tally.cancelled;
  out["failed"] = failures;
  out["failed_by_status"] = std::move(failed);
  out["told_when_to_come_back"] = tally.told_when;
  out["wrong_tokens"] = tally.wrong;
  out["tokens"] = tally.tokens;
  out["requests_per_second"] = static_cast<double>(tally.complete) / seconds;
  out["completed_per_second_under_load"] =
      static_cast<double>(in_time) * 1e6 / static_cast<double>(until - load.offered_from_us);
  out["tokens_per_second"] = static_cast<double>(tally.tokens) / seconds;
  out["first_token_ms"] = Spread(tally.first_ms);
  out["total_ms"] = Spread(tally.total_ms);
  out["refusal_ms"] = Spread(tally.refusal_ms);
  out["gap_ms"] = Spread(tally.gap_ms);
  out["age_ms"] = Spread(tally.age_ms);
  out["error"] = tally.error;
  std::printf("%s\n", json::Serialize(out).c_str());
  std::fflush(stdout);
}

void AllowManyFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  if (!quire::bench::ParseFlags("router_client", quire::config::ArgumentsFromMain(argc, argv),
                                {{"target", &options.target},
                                 {"model", &options.model},
                                 {"rate", &options.rate},
                                 {"concurrency", &options.concurrency},
                                 {"requests", &options.requests},
                                 {"channels", &options.channels},
                                 {"prompt-tokens", &options.prompt_tokens},
                                 {"max-tokens", &options.max_tokens},
                                 {"vocab", &options.vocab},
                                 {"first-seed", &options.first_seed},
                                 {"timeout-s", &options.timeout_s},
                                 {"cancel-percent", &options.cancel_percent},
                                 {"unary", &options.unary},
                                 {"stamps", &options.stamps}}))
    return 2;
  signal(SIGPIPE, SIG_IGN);
  quire::bench::AllowManyFiles();
  quire::bench::Load load(options);
  load.Run();
  quire::bench::Print(load);
  std::_Exit(0);  // gRPC's threads may still be leaving the last call
}
