// Loads a server with a fixed number of concurrent streams and says what came back, as one line of
// JSON.
//
//   load_generator --url=http://127.0.0.1:8000 --model=demo --streams=16 --requests=64
//   --max-tokens=128
//
// Each stream sends its requests one after the other: POST /v1/completions with token ids as the
// prompt, so that both ends agree on the count. A server that sends no token ids with its chunks is
// counted by its usage, and each of its chunks is taken for one token's arrival.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "bench/flags.h"
#include "common/client/http_client_asio.h"
#include "common/json/json.h"

namespace {

using quire::client::Exchange;
using quire::client::HttpRequest;

struct Options {
  std::string url = "http://127.0.0.1:8000";
  std::string model = "demo";
  int32_t streams = 16;
  int32_t requests = 64;
  int32_t prompt_tokens = 32;
  int32_t max_tokens = 128;
  int32_t vocab = 2048;
  int32_t first_seed = 0;  // of the prompts: runs with other seeds share none
};

struct Tally {
  std::mutex mutex;  // guards all below
  int64_t tokens = 0;
  int64_t failed = 0;
  std::vector<double> first_token_ms;
  std::vector<double> gap_ms;
  std::string error;
};

double NowMs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(since).count();
}

std::string Body(const Options& options, uint32_t seed) {
  std::mt19937 random(seed);
  quire::json::Array prompt;
  for (int i = 0; i < options.prompt_tokens; ++i)
    prompt.push_back(10 + random() % (options.vocab - 10));
  quire::json::Object body;
  body["model"] = options.model;
  body["prompt"] = prompt;
  body["max_tokens"] = options.max_tokens;
  body["ignore_eos"] = true;
  body["temperature"] = 0;
  body["stream"] = true;
  body["return_token_ids"] = true;
  body["stream_options"] = quire::json::Object{{"include_usage", true}};
  return quire::json::Serialize(body);
}

// What one chunk says.
struct Chunk {
  int64_t tokens = 0;  // that came with it
  int64_t total = 0;   // of the whole answer, in the usage at its end; else 0
};

Chunk Read(std::string_view data) {
  Chunk chunk;
  const auto value = quire::json::Parse(data);
  if (!value.ok() || !value->is_object()) return chunk;
  const auto& object = value->get_object();
  const auto* usage = quire::json::Find(object, "usage");
  if (usage != nullptr && usage->is_object()) {
    const auto* total = quire::json::Find(usage->get_object(), "completion_tokens");
    if (total != nullptr && total->is_int64()) chunk.total = total->get_int64();
  }
  const auto* choices = quire::json::Find(object, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return chunk;
  const auto& choice = choices->get_array()[0].get_object();
  const auto* ids = quire::json::Find(choice, "token_ids");
  const auto* text = quire::json::Find(choice, "text");
  if (ids != nullptr && ids->is_array()) {
    chunk.tokens = static_cast<int64_t>(ids->get_array().size());
  } else if (text != nullptr && text->is_string() && !text->get_string().empty()) {
    chunk.tokens = 1;
  }
  return chunk;
}

void OneRequest(const Options& options, uint32_t seed, Tally& tally) {
  const std::atomic<bool> cancelled = false;
  HttpRequest request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.body = Body(options, seed);
  const double begin = NowMs();
  double last = 0, first = 0;
  int64_t tokens = 0, total = 0;
  std::vector<double> gaps;
  const auto answer = Exchange(*quire::client::ParseUrl(options.url), request, cancelled,
                               [&](std::string_view data) {
                                 if (data == "[DONE]") return false;
                                 const Chunk chunk = Read(data);
                                 total = std::max(total, chunk.total);
                                 if (chunk.tokens == 0) return true;
                                 const double now = NowMs();
                                 if (tokens == 0) first = now - begin;
                                 if (tokens > 0) gaps.push_back(now - last);
                                 last = now;
                                 tokens += chunk.tokens;
                                 return true;
                               });
  std::lock_guard<std::mutex> lock(tally.mutex);
  tally.tokens += total;
  tally.first_token_ms.push_back(first);
  tally.gap_ms.insert(tally.gap_ms.end(), gaps.begin(), gaps.end());
  if (!answer.ok() || answer->status != 200 || total != options.max_tokens) {
    ++tally.failed;
    tally.error = answer.ok() ? answer->body : quire::StatusMessage(answer.status());
  }
}

double Percentile(std::vector<double>& values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(p * static_cast<double>(values.size() - 1))];
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!quire::bench::ParseFlags("load_generator", quire::config::ArgumentsFromMain(argc, argv),
                                {{"url", &options.url},
                                 {"model", &options.model},
                                 {"streams", &options.streams},
                                 {"requests", &options.requests},
                                 {"prompt-tokens", &options.prompt_tokens},
                                 {"max-tokens", &options.max_tokens},
                                 {"vocab", &options.vocab},
                                 {"first-seed", &options.first_seed}}))
    return 2;
  Tally tally;
  std::atomic<int32_t> next = 0;
  const double begin = NowMs();
  std::vector<std::thread> threads;
  for (int i = 0; i < options.streams; ++i) {
    threads.emplace_back([&] {
      for (int32_t r; (r = next++) < options.requests;)
        OneRequest(options, options.first_seed + r, tally);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = (NowMs() - begin) / 1000;
  quire::json::Object out;
  out["streams"] = options.streams;
  out["requests"] = options.requests;
  out["failed"] = tally.failed;
  out["error"] = tally.error;
  out["tokens"] = tally.tokens;
  out["seconds"] = seconds;
  out["tokens_per_second"] = static_cast<double>(tally.tokens) / seconds;
  out["first_token_ms_p50"] = Percentile(tally.first_token_ms, 0.5);
  out["first_token_ms_p99"] = Percentile(tally.first_token_ms, 0.99);
  out["gap_ms_p50"] = Percentile(tally.gap_ms, 0.5);
  out["gap_ms_p99"] = Percentile(tally.gap_ms, 0.99);
  std::printf("%s\n", quire::json::Serialize(out).c_str());
  return tally.failed > 0 ? 1 : 0;
}
