// Tokens per second of one core of the router, from a worker's frames on. Prints one line of JSON.
//
//   relay_bench --mode=link   frame → fence → journal → a sink in the process
//   relay_bench --mode=sse    frame → journal → text → JSON → server-sent events on TCP sockets,
//                             and beside it bare write()s of the same bytes on the same sockets
//
// 256 streams, each with one token in every frame of the worker (bench/relay/), whose
// prompts are token ids. Time is processor time of the router's one thread, kernel included, less
// what the played worker used of it: what one core would carry, however busy the machine is.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/flags.h"
#include "bench/relay/talker.h"
#include "common/json/json.h"
#include "common/log/log.h"
#include "common/runtime/asio_executor.h"
#include "common/text/text_bundle.h"
#include "router/chat/bundle_text.h"
#include "router/dispatch/dispatcher.h"
#include "router/http/http_server.h"
#include "router/pipeline/make_pipeline.h"

namespace quire::bench {
namespace {

struct Options {
  std::string mode = "link";
  std::string model = "models/demo";
  int32_t streams = 256;
  int32_t tokens = 512;  // of each stream
  int32_t prompt = 64;
};

// ------------------------------------------------------------------------------------------ link

// Counts what a dispatcher reports.
struct Tally {
  void Drain(Dispatcher& dispatcher) {
    while (const std::optional<DispatchEvent> event = dispatcher.NextEvent()) {
      if (const auto* accepted = std::get_if<OutputAccepted>(&*event)) {
        tokens += accepted->output->ids.size();
      } else if (std::holds_alternative<RequestFailed>(*event)) {
        ++failed;
      } else if (const auto* changed = std::get_if<FleetChanged>(&*event)) {
        const bool ready = dispatcher.fleet().worker(changed->worker).phase == WorkerPhase::kReady;
        if (on_ready && ready) std::exchange(on_ready, nullptr)();
      }
    }
  }
  uint64_t tokens = 0;
  uint64_t failed = 0;
  std::function<void()> on_ready;
};

int RunLink(const Options& options) {
  AsioExecutor executor;
  RealRng rng;
  Talker talker(executor, {.rows = static_cast<uint32_t>(options.streams)});
  Tally tally;
  DispatchOptions dispatch;
  dispatch.instance = RouterInstance(1);
  dispatch.policy = &Policies().front();
  Dispatcher dispatcher(dispatch, talker, executor, rng,
                        [&tally, &dispatcher] { tally.Drain(dispatcher); });
  dispatcher.fleet().TextReady("model");
  tally.on_ready = [&] {
    executor.Post([&] {
      for (int32_t i = 0; i < options.streams; ++i) {
        DispatchRequest request;
        request.number = RequestNumber(static_cast<uint64_t>(i) + 1);
        request.submit.prompt_ids =
            std::vector<TokenId>(static_cast<size_t>(options.prompt), static_cast<TokenId>(i + 1));
        request.submit.choices.resize(1);
        request.submit.sampling.max_tokens = options.tokens;
        request.submit.model_id = "model";
        request.model_name = "bench";
        request.router_is_taker = true;
        dispatcher.Start(std::move(request));
      }
    });
  };
  double begin = 0, own_begin = 0, seconds = 0;
  talker.on_begin = [&] {
    own_begin = talker.own_seconds();
    begin = ThreadSeconds();
  };
  talker.on_end = [&] {
    seconds = ThreadSeconds() - begin - (talker.own_seconds() - own_begin);
    executor.Stop();
  };
  if (!dispatcher.AddWorker("talker:1").ok()) return 1;
  executor.Run();
  const auto wanted =
      static_cast<uint64_t>(options.streams) * static_cast<uint64_t>(options.tokens);
  if (tally.tokens != wanted || tally.failed != 0) return 1;
  json::Object line;
  line["mode"] = "link";
  line["streams"] = options.streams;
  line["tokens"] = tally.tokens;
  line["seconds"] = seconds;
  line["tokens_per_second"] = static_cast<double>(tally.tokens) / seconds;
  line["frame_bytes_per_token"] =
      static_cast<double>(talker.frame_bytes()) / static_cast<double>(tally.tokens);
  std::printf("%s\n", json::Serialize(line).c_str());
  return 0;
}

// ------------------------------------------------------------------------------------------- sse

absl::StatusOr<std::string> BundleOf(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "config.json",
                           "generation_config.json", "chat_template.jinja"}) {
    std::ifstream file(folder + "/" + name, std::ios::binary);
    if (!file) continue;
    std::ostringstream text;
    text << file.rdbuf();
    files[name] = text.str();
  }
  QUIRE_ASSIGN_OR_RETURN(text::TextBundle bundle, text::TextBundleFromFiles(files));
  return text::SerializeTextBundle(bundle);
}

// Connected pairs over the loopback device.
struct Sockets {
  std::vector<int> clients;
  std::vector<int> servers;

  explicit Sockets(int32_t count) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    bool good = bind(listener, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                listen(listener, count) == 0 &&
                getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    for (int32_t i = 0; good && i < count; ++i) {
      clients.push_back(socket(AF_INET, SOCK_STREAM, 0));
      good = connect(clients.back(), reinterpret_cast<sockaddr*>(&address), size) == 0;
      servers.push_back(accept(listener, nullptr, nullptr));
      const int on = 1;
      setsockopt(servers.back(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    close(listener);
    if (!good) std::abort();
  }
  ~Sockets() {
    for (const int fd : clients) close(fd);
    for (const int fd : servers) close(fd);
  }
};

// Reads all clients' sockets on a thread of its own and keeps what came.
class Readers {
 public:
  explicit Readers(const std::vector<int>& clients)
      : clients_(clients), received_(clients.size()), thread_([this] { Run(); }) {}
  ~Readers() {
    stop_ = true;
    thread_.join();
  }
  uint64_t bytes() const { return bytes_.load(); }
  // Waits until nothing comes any more; from then on nothing is kept.
  const std::vector<std::string>& AwaitQuiet() {
    const uint64_t since = quiet_;
    while (quiet_ < since + 2) std::this_thread::yield();
    keep_ = false;
    return received_;
  }

 private:
  void Run() {
    const int poller = epoll_create1(0);
    for (size_t i = 0; i < clients_.size(); ++i) {
      epoll_event event{.events = EPOLLIN, .data = {.u64 = i}};
      epoll_ctl(poller, EPOLL_CTL_ADD, clients_[i], &event);
    }
    std::vector<epoll_event> events(clients_.size());
    std::vector<char> buffer(256u << 10);
    while (!stop_) {
      const int count = epoll_wait(poller, events.data(), static_cast<int>(events.size()), 50);
      quiet_ += count == 0 ? 1 : 0;
      for (int i = 0; i < count; ++i) {
        const size_t which = events[static_cast<size_t>(i)].data.u64;
        const ssize_t got = recv(clients_[which], buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got <= 0) continue;
        if (keep_) received_[which].append(buffer.data(), static_cast<size_t>(got));
        bytes_ += static_cast<uint64_t>(got);
      }
    }
    close(poller);
  }

  const std::vector<int> clients_;
  std::vector<std::string> received_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> quiet_{0};  // times that nothing came for a while
  std::atomic<bool> keep_{true};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string RequestText(const Options& options, int32_t which) {
  std::string body = R"({"model":"bench","stream":true,"ignore_eos":true,"max_tokens":)" +
                     std::to_string(options.tokens) + R"(,"prompt":[)";
  for (int32_t i = 0; i < options.prompt; ++i) {
    body += (i > 0 ? "," : "") + std::to_string(512 + (which + i) % 1000);
  }
  body += "]}";
  return "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

// Processor seconds of sending what the streams received once more, in as many writes as tokens.
double BareSends(const std::vector<int>& servers, const std::vector<std::string>& received,
                 int32_t tokens) {
  const double begin = ThreadSeconds();
  for (int32_t token = 0; token < tokens; ++token) {
    for (size_t i = 0; i < servers.size(); ++i) {
      const std::string& all = received[i];
      const size_t from = all.size() * static_cast<size_t>(token) / static_cast<size_t>(tokens);
      const size_t to = all.size() * static_cast<size_t>(token + 1) / static_cast<size_t>(tokens);
      for (size_t at = from; at < to;) {
        const ssize_t sent = send(servers[i], all.data() + at, to - at, MSG_NOSIGNAL);
        if (sent > 0) {
          at += static_cast<size_t>(sent);
          continue;
        }
        pollfd full{.fd = servers[i], .events = POLLOUT, .revents = 0};
        poll(&full, 1, 1000);
      }
    }
  }
  return ThreadSeconds() - begin;
}

struct Router {
  Router(Talker& talker, AsioExecutor& loop, uint32_t streams)
      : executor(loop), background(executor, 1, 4096) {
    PipelineOptions options;
    options.workers = {"talker:1"};
    options.limits.max_live_requests = 2 * streams;
    options.text_factory = MakeBundleText;
    const PipelineRuntime runtime{executor, background, talker, rng, log, metrics};
    pipeline = std::move(MakePipeline(std::move(options), runtime).value());
    services = std::make_unique<HttpServices>(
        EdgeServices{executor, *pipeline, background, rng, counters, log, "0.0.0-bench"},
        HttpLimits());
    http = std::make_unique<HttpServer>(*services);
  }
  AsioExecutor& executor;
  RealRng rng;
  NullLogger log;
  Metrics metrics;
  EdgeMetrics counters{metrics};
  ThreadBackground background;
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<HttpServices> services;
  std::unique_ptr<HttpServer> http;
};

int RunSse(const Options& options) {
  auto bundle = BundleOf(options.model);
  if (!bundle.ok()) {
    std::fprintf(stderr, "%s: %s\n", options.model.c_str(), StatusMessage(bundle.status()).c_str());
    return 1;
  }
  AsioExecutor executor;
  Talker talker(executor, {.bundle = *bundle, .rows = static_cast<uint32_t>(options.streams)});
  Router router(talker, executor, static_cast<uint32_t>(options.streams));
  Sockets sockets(options.streams);
  std::vector<int> bare;  // the same sockets, once the router has given them back
  for (const int fd : sockets.servers) bare.push_back(dup(fd));
  Readers readers(sockets.clients);
  double begin = 0, own_begin = 0, seconds = 0;
  talker.on_begin = [&] {
    own_begin = talker.own_seconds();
    begin = ThreadSeconds();
  };
  std::function<void()> ask = [&] {
    if (!router.pipeline->Ready()) {
      executor.PostAt(executor.clock().Now() + 1000, ask);
      return;
    }
    for (int32_t i = 0; i < options.streams; ++i) {
      const int server = std::exchange(sockets.servers[static_cast<size_t>(i)], -1);
      router.http->Adopt(EdgeStream(executor.context(), server), RequestText(options, i), nullptr);
    }
  };
  std::function<void()> await_end = [&] {
    if (router.pipeline->LiveRequests() > 0 || talker.tokens() == 0) {
      executor.PostAt(executor.clock().Now() + 1000, await_end);
      return;
    }
    executor.Stop();
  };
  talker.on_end = [&] {
    // The last frame's bytes leave in the turns that follow.
    executor.PostAt(executor.clock().Now() + 20'000, [&] {
      seconds = ThreadSeconds() - begin - (talker.own_seconds() - own_begin);
      await_end();
    });
  };
  executor.Post(ask);
  executor.Run();
  const std::vector<std::string>& received = readers.AwaitQuiet();
  const uint64_t bytes = readers.bytes();
  const double bare_seconds = BareSends(bare, received, options.tokens);
  for (const int fd : bare) close(fd);
  const auto wanted =
      static_cast<uint64_t>(options.streams) * static_cast<uint64_t>(options.tokens);
  size_t whole = 0;
  for (const std::string& text : received) whole += text.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n");
  if (talker.tokens() != wanted || whole != received.size()) return 1;
  json::Object line;
  line["mode"] = "sse";
  line["streams"] = options.streams;
  line["tokens"] = wanted;
  line["seconds"] = seconds;
  line["tokens_per_second"] = static_cast<double>(wanted) / seconds;
  line["bare_sends_per_second"] = static_cast<double>(wanted) / bare_seconds;
  line["ratio_to_bare_sends"] = bare_seconds / seconds;
  line["bytes_per_token"] = static_cast<double>(bytes) / static_cast<double>(wanted);
  std::printf("%s\n", json::Serialize(line).c_str());
  return 0;
}

}  // namespace
}  // namespace quire::bench

int main(int argc, char** argv) {
  quire::bench::Options options;
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool parsed = quire::bench::ParseFlags("relay_bench", args,
                                               {{"mode", &options.mode},
                                                {"model", &options.model},
                                                {"streams", &options.streams},
                                                {"tokens", &options.tokens},
                                                {"prompt", &options.prompt}});
  const bool sane = options.streams > 0 && options.tokens > 1 && options.prompt > 0 &&
                    (options.mode == "link" || options.mode == "sse");
  if (!parsed || !sane) return 2;
  return options.mode == "link" ? quire::bench::RunLink(options) : quire::bench::RunSse(options);
}
