// What the callers of a load saw, added up and printed as one line of JSON.
//
// Owner: main. Any thread may count; the line is made once all calls have ended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace quire::bench {

struct LoadOptions {
  std::string target = "127.0.0.1:8001";
  std::string model = "mock";
  double rate = 0;  // calls/s; 0: a closed loop
  int32_t concurrency = 16;
  int64_t requests = 1000;
  int32_t channels = 8;  // connections, of gRPC
  int32_t prompt_tokens = 16;
  int32_t max_tokens = 16;
  int32_t vocab = 2048;
  int64_t first_seed = 1;
  int32_t timeout_s = 120;
  int32_t keepalive_ms = 0;  // gRPC: a ping after so long without data; 0: none
  int32_t cancel_percent = 0;
  bool unary = false;   // gRPC: Tokenize instead of Generate; HTTP: an answer in one piece
  bool stamps = false;  // tokens say when they were written
  bool http = false;
  bool http2 = false;  // gRPC without its library, whose streams cost callers more than a router
};

int64_t SteadyMicros();

// The prompt of the call with this seed.
std::vector<int32_t> PromptOf(const LoadOptions& options, uint64_t seed);
// After how many tokens this call is given up; −1: never.
int CancelAfter(const LoadOptions& options, int64_t number);

// The result of one call.
struct Outcome {
  std::string status = {};  // "" when it is complete; else a gRPC code or an HTTP status
  std::string error = {};
  bool cancelled = false;
  bool told_when = false;  // a refusal that says when to come back
  bool complete = false;   // all tokens, each as it has to be, and an orderly end
  bool wrong = false;      // a token that is not the one of its index
  int64_t tokens = 0;
  int64_t first_us = 0;  // after its begin; 0: none
  int64_t total_us = 0;
  int64_t ended_at_us = 0;
  int64_t last_at_us = 0;
  std::vector<float> gaps_ms = {};
  std::vector<float> ages_ms = {};

  // A piece of the answer with these ids; `first` is the index of the first one. True: the first
  // piece.
  bool Take(const LoadOptions& options, uint64_t seed, const std::vector<int32_t>& ids,
            int64_t begun_at_us);
};

class Tally {
 public:
  explicit Tally(const LoadOptions& options) : options_(options) {}

  // The number of the next call, from 0; −1: all have begun.
  int64_t Begin();
  // A call has its first token; once all have, a line says so.
  void Opened();
  void Count(const Outcome& outcome);
  void WaitForAll();
  // The open loop has begun its last call.
  void OfferedAll();
  std::string Json();

 private:
  const LoadOptions& options_;
  const int64_t from_us_ = SteadyMicros();
  std::mutex mutex_;  // guards all below
  std::condition_variable over_;
  int64_t offered_until_us_ = INT64_MAX;
  int64_t begun_ = 0;
  int64_t ended_ = 0;
  int64_t open_ = 0;
  int64_t complete_ = 0;
  int64_t cancelled_ = 0;
  int64_t told_when_ = 0;
  int64_t wrong_ = 0;
  int64_t tokens_ = 0;
  std::map<std::string, int64_t> failed_;  // by status
  std::string error_;
  std::vector<int64_t> completed_at_us_;
  std::vector<float> first_ms_, total_ms_, refusal_ms_, gap_ms_, age_ms_;
};

}  // namespace quire::bench
