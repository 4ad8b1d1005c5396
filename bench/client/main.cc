// router_client: a load of calls with token-id prompts on a router (or on the bare server beside
// it), and what its callers saw, as one line of JSON.
//
//   router_client --target=127.0.0.1:8001 --rate=200 --requests=2000 --max-tokens=16
//   router_client --target=… --http --concurrency=64 --requests=20000 --unary
//
// With --rate calls begin at random times of that mean rate, whatever has become of those before
// (an open loop); without it --concurrency calls run at once. Tokens are held to what the mock
// workers' rule says, or, with --stamps, say when they were written. `--cancel-percent` of the
// calls are given up, in turn before the first token and after each of the first seven. Once every
// call has its first token, a line {"open": N} is printed. Times are milliseconds; a first token's
// counts from the moment in which its call began.
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "bench/client/load.h"
#include "bench/flags.h"

namespace quire::bench {
namespace {

void Offer(const LoadOptions& options, Load& load, Tally& tally) {
  if (options.rate == 0) {
    for (int32_t i = 0; i < options.concurrency; ++i) load.Next();
    return;
  }
  std::mt19937_64 random(static_cast<uint64_t>(options.first_seed));
  std::exponential_distribution<double> gap(options.rate);
  auto due = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < options.requests; ++i) {
    std::this_thread::sleep_until(due);
    load.Next();
    due += std::chrono::microseconds(static_cast<int64_t>(gap(random) * 1e6));
  }
  tally.OfferedAll();
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
  quire::bench::LoadOptions options;
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
                                 {"keepalive-ms", &options.keepalive_ms},
                                 {"cancel-percent", &options.cancel_percent},
                                 {"unary", &options.unary},
                                 {"stamps", &options.stamps},
                                 {"http", &options.http},
                                 {"http2", &options.http2}}))
    return 2;
  signal(SIGPIPE, SIG_IGN);
  quire::bench::AllowManyFiles();
  quire::bench::Tally tally(options);
  const auto load = options.http    ? quire::bench::MakeHttpLoad(options, tally)
                    : options.http2 ? quire::bench::MakeHttp2Load(options, tally)
                                    : quire::bench::MakeGrpcLoad(options, tally);
  quire::bench::Offer(options, *load, tally);
  tally.WaitForAll();
  std::printf("%s\n", tally.Json().c_str());
  std::fflush(stdout);
  std::_Exit(0);  // gRPC's threads may still be leaving the last call
}
