#include "cli/bench/bench_run.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>

namespace quire::cli {
namespace {

constexpr auto kSlice = std::chrono::milliseconds(20);  // how long Ctrl-C may take

std::string BodyOf(const BenchRequests& requests, const BenchPrompt& prompt) {
  json::Object body;
  body["model"] = requests.server.model;
  if (requests.chat) {
    json::Object message;
    message["role"] = "user";
    message["content"] = prompt.text;
    body["messages"] = json::Array{message};
    body["max_completion_tokens"] = prompt.output_len;
  } else {
    if (prompt.ids.empty()) {
      body["prompt"] = prompt.text;
    } else {
      json::Array ids;
      for (const int64_t id : prompt.ids) ids.emplace_back(id);
      body["prompt"] = std::move(ids);
    }
    body["max_tokens"] = prompt.output_len;
  }
  body["stream"] = true;
  json::Object options;
  options["include_usage"] = true;
  body["stream_options"] = std::move(options);
  if (requests.ignore_eos) body["ignore_eos"] = true;
  if (requests.server.temperature >= 0) body["temperature"] = requests.server.temperature;
  if (requests.server.top_p >= 0) body["top_p"] = requests.server.top_p;
  for (const auto& member : requests.extra) body[member.key()] = member.value();
  return json::Serialize(body);
}

int64_t UsageOf(const json::Object& usage, std::string_view name) {
  const json::Value* value = json::Find(usage, name);
  return value == nullptr ? 0 : json::AsInt(*value, name).value_or(0);
}

// Text of a chunk: choices[0].delta.content or choices[0].text; false when it has no choice.
bool TextOfChunk(const json::Object& chunk, std::string& text) {
  const json::Value* choices = json::Find(chunk, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return false;
  const json::Object* choice = choices->get_array().front().if_object();
  if (choice == nullptr) return false;
  const json::Value* found = json::Find(*choice, "text");
  const json::Value* delta = json::Find(*choice, "delta");
  if (delta != nullptr && delta->is_object()) found = json::Find(delta->get_object(), "content");
  const json::String* string = found == nullptr ? nullptr : found->if_string();
  if (string != nullptr) text = std::string(json::View(*string));
  return true;
}

// Reads the events of one answer.
class AnswerReader {
 public:
  AnswerReader(double begin, double sent, BenchResult& result)
      : begin_(begin), sent_(sent), last_(sent), result_(result) {}

  bool Take(std::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
      return false;
    }
    const absl::StatusOr<json::Value> value = json::Parse(data);
    const json::Object* chunk = value.ok() ? value->if_object() : nullptr;
    if (chunk == nullptr) return true;
    if (json::Find(*chunk, "error") != nullptr) {
      result_.error = ErrorOf(std::string(data), 200);
      return false;
    }
    const json::Value* usage = json::Find(*chunk, "usage");
    if (usage != nullptr && usage->is_object()) {
      result_.prompt_tokens = UsageOf(usage->get_object(), "prompt_tokens");
      result_.output_tokens = UsageOf(usage->get_object(), "completion_tokens");
    }
    std::string text;
    if (!TextOfChunk(*chunk, text) || text.empty()) return true;
    const double now = SteadySeconds();
    if (result_.first_token == 0) {
      result_.first_token = now - sent_;
    } else {
      result_.gaps.push_back(now - last_);
    }
    last_ = now;
    result_.chunk_times.push_back(now - begin_);
    result_.text += text;
    return true;
  }
  bool done() const { return done_; }
  double last() const { return last_; }

 private:
  const double begin_, sent_;
  double last_;
  bool done_ = false;
  BenchResult& result_;
};

// The usage at the end, divided among the chunks: no chunk states how many tokens it holds.
void DealTokens(BenchResult& result) {
  const size_t chunks = result.chunk_times.size();
  result.chunk_tokens.assign(chunks, 1);
  if (result.output_tokens == 0) result.output_tokens = static_cast<int64_t>(chunks);
  if (chunks == 0) return;
  const auto count = static_cast<int64_t>(chunks);
  for (int64_t i = 0; i < count; ++i) {
    result.chunk_tokens[static_cast<size_t>(i)] =
        result.output_tokens * (i + 1) / count - result.output_tokens * i / count;
  }
}

bool WaitUntil(double seconds, const std::atomic<bool>& cancelled) {
  while (!cancelled) {
    const double left = seconds - SteadySeconds();
    if (left <= 0) return true;
    const auto nap = std::chrono::duration<double>(left);
    std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(nap, kSlice));
  }
  return false;
}

}  // namespace

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

BenchResult SendOne(const BenchRequests& requests, const BenchPrompt& prompt, double begin_seconds,
                    const std::atomic<bool>& cancelled) {
  BenchResult result;
  const client::HttpRequest request{"POST", requests.endpoint, BodyOf(requests, prompt),
                                    requests.server.api_key};
  const double sent = SteadySeconds();
  result.start = sent - begin_seconds;
  AnswerReader reader(begin_seconds, sent, result);
  const absl::StatusOr<client::Url> url = ServerOf(requests.server);
  const absl::StatusOr<client::HttpAnswer> answer =
      !url.ok() ? absl::StatusOr<client::HttpAnswer>(url.status())
                : client::Exchange(*url, request, cancelled,
                                   [&reader](std::string_view data) { return reader.Take(data); });
  if (!answer.ok()) {
    result.error = StatusMessage(answer.status());
  } else if (answer->status != 200) {
    result.error = ErrorOf(answer->body, answer->status);
  } else if (!reader.done() && result.error.empty()) {
    result.error = "the answer ended without its last word";
  } else if (result.first_token == 0 && result.error.empty()) {
    result.error = "the answer held no token";
  }
  result.success = result.error.empty();
  // To the last token, as vLLM counts; a failure to its end.
  result.latency = (result.success ? reader.last() : SteadySeconds()) - sent;
  DealTokens(result);
  return result;
}

std::vector<BenchResult> SendAll(const BenchRequests& requests,
                                 const std::vector<BenchPrompt>& prompts,
                                 const std::vector<double>& arrivals,
                                 const std::atomic<bool>& cancelled,
                                 const std::function<void(size_t)>& done) {
  std::vector<BenchResult> results(prompts.size());
  std::vector<char> sent(prompts.size(), 0);
  std::atomic<size_t> next = 0, ended = 0;
  std::mutex telling;
  const double begin = SteadySeconds();
  const auto work = [&] {
    for (size_t i; (i = next++) < prompts.size();) {
      if (!WaitUntil(begin + arrivals[i], cancelled)) return;
      results[i] = SendOne(requests, prompts[i], begin, cancelled);
      sent[i] = 1;
      const size_t count = ++ended;
      const std::lock_guard<std::mutex> lock(telling);
      done(count);
    }
  };
  int64_t streams = std::min(static_cast<int64_t>(prompts.size()), kMaxBenchStreams);
  if (requests.max_concurrency > 0) streams = std::min(streams, requests.max_concurrency);
  std::vector<std::thread> threads;
  try {  // the system may refuse more threads: then the existing ones do all the work
    while (static_cast<int64_t>(threads.size()) < streams) threads.emplace_back(work);
  } catch (const std::system_error&) {
    if (threads.empty()) work();
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<BenchResult> all;
  for (size_t i = 0; i < results.size(); ++i) {
    if (sent[i] != 0) all.push_back(std::move(results[i]));
  }
  return all;
}

}  // namespace quire::cli
