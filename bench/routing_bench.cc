// One routing decision alone, on one thread: a prompt's overlap with every worker's cache and the
// policy's choice, among many workers and many cached blocks. Prints one line of JSON.
//
//   routing_bench --workers=64 --blocks=1000000 --prompt=4096 --rounds=20000
//
// Prompts in families: `share` of each is the family's beginning. Each family is cached by a few
// workers, drawn at random; every decision is for a family drawn at random, so that little of its
// table slots is in the processor's caches. Workers report a chain's blocks in order, as real ones
// do, or, with `--told=scattered`, in random order. `hash` is making the block hashes; `decide` all
// else that placing an attempt does. Bytes are the index's own count.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "bench/flags.h"
#include "bench/measure.h"
#include "common/block_hash.h"
#include "common/json/json.h"
#include "common/runtime/virtual_runtime.h"
#include "router/dispatch/placement.h"

namespace quire {
namespace {

struct Options {
  int32_t workers = 64;
  int64_t blocks = 1'000'000;
  int32_t block_size = 16;
  int32_t prompt = 4096;
  int32_t holders = 2;  // workers that have a family
  int32_t rounds = 20'000;
  std::string policy = "prefix-aware";
  std::string told = "in-chains";  // or scattered: snapshots in random order, the worst case
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options), rng_(1), placement_(*FindPolicy(options.policy), limits_, rng_) {
    families_ = std::max<int64_t>(1, options.blocks / (options.prompt / options.block_size));
    hello_.features = {"snapshot"};
    hello_.prefix_caching = true;
    hello_.hash_scheme = std::string(kHashScheme);
    hello_.block_size = static_cast<uint32_t>(options.block_size);
    hello_.model_id = "model";
    hello_.numerics_id = "numerics";
    hello_.cache_groups.emplace_back();
    Fill();
  }

  int Run() {
    std::vector<double> hash, decide;
    std::mt19937_64 draw(3);
    uint64_t cached = 0;
    FleetView view;
    for (int32_t round = 0; round < options_.rounds; ++round) {
      Submit submit = SubmitOf(static_cast<int64_t>(draw() % static_cast<uint64_t>(families_)));
      const Journal journal({ResumedChoice()}, 16);
      const Placement::Request request{submit, journal, {}, {}, {}, {}, false, nullptr};
      PlacementTicket ticket;
      const double begin = bench::NowMicros();
      ticket.chains = std::make_unique<PromptChains>(submit.model_id, submit.adapter, submit.salt,
                                                     submit.prompt_ids, std::span<const TokenId>());
      ticket.chains->For("numerics", hello_.block_size);
      const double hashed = bench::NowMicros();
      view = view_;
      const Placement::Placed placed = placement_.Choose(view, request, ticket);
      decide.push_back(bench::NowMicros() - hashed);
      hash.push_back(hashed - begin);
      if (placed.outcome != PlaceOutcome::kPlaced) return 1;
      cached += placed.choice.cached_tokens;
    }
    json::Object line;
    line["workers"] = options_.workers;
    line["distinct_blocks"] = families_ * (options_.prompt / options_.block_size);
    line["prompt_tokens"] = options_.prompt;
    line["hash_us"] = bench::Spread(hash);
    line["decide_us"] = bench::Spread(decide);
    line["cached_tokens_mean"] = static_cast<double>(cached) / options_.rounds;
    line["index_bytes_per_block"] =
        static_cast<double>(placement_.index().Bytes()) /
        static_cast<double>(families_ * (options_.prompt / options_.block_size));
    std::printf("%s\n", json::Serialize(line).c_str());
    return 0;
  }

 private:
  Submit SubmitOf(int64_t family) const {
    Submit submit;
    submit.model_id = "model";
    std::vector<TokenId> prompt =
        bench::NumberedPrompt(static_cast<uint64_t>(family), options_.prompt);
    prompt.back() = static_cast<TokenId>(rng_state_++ % 1000);  // a question of its own
    submit.prompt_ids = std::move(prompt);
    return submit;
  }

  // Every worker reports its families in one snapshot and is EXACT then.
  void Fill() {
    std::vector<std::vector<uint64_t>> told(static_cast<size_t>(options_.workers));
    std::mt19937_64 draw(2);
    for (int64_t family = 0; family < families_; ++family) {
      const Submit submit = SubmitOf(family);
      PromptChains chains("model", "", "", submit.prompt_ids, {});
      const std::vector<uint64_t>& hashes = chains.For("numerics", hello_.block_size);
      for (int32_t i = 0; i < options_.holders; ++i) {
        std::vector<uint64_t>& list = told[draw() % told.size()];
        list.insert(list.end(), hashes.begin(), hashes.end());
      }
    }
    for (int32_t i = 0; i < options_.workers; ++i) {
      const WorkerIndex worker(static_cast<uint32_t>(i));
      ids_.push_back("worker-" + std::to_string(i));
      placement_.index().Greeted(worker, hello_, 0);
    }
    if (options_.told == "scattered") {
      for (std::vector<uint64_t>& list : told) std::shuffle(list.begin(), list.end(), draw);
    }
    int32_t exact = 0;
    for (Micros now = kMicrosPerSecond; exact < options_.workers; now += kMicrosPerSecond) {
      while (const auto ask = placement_.index().NextAsk(now)) {
        const std::vector<uint64_t>& hashes = told[ask->worker.value()];
        placement_.index().Snapshot(ask->worker, {ask->number, 0, hashes, true}, now);
        exact += placement_.index().state(ask->worker) == CacheState::kExact ? 1 : 0;
      }
    }
    for (int32_t i = 0; i < options_.workers; ++i) {
      WorkerView worker;
      worker.worker = WorkerIndex(static_cast<uint32_t>(i));
      worker.worker_id = ids_[static_cast<size_t>(i)];
      worker.numerics_id = hello_.numerics_id;
      worker.features = hello_.features;
      worker.max_waiting_requests = 64;
      worker.load.running_rows = static_cast<uint32_t>(draw() % 64);
      view_.workers.push_back(worker);
    }
  }

  const Options options_;
  const RouterLimits limits_;
  VirtualRng rng_;
  Placement placement_;
  WorkerHello hello_;
  int64_t families_ = 0;
  mutable uint64_t rng_state_ = 0;
  std::vector<std::string> ids_;
  FleetView view_;
};

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  quire::Options options;
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool parsed = quire::bench::ParseFlags("routing_bench", args,
                                               {{"workers", &options.workers},
                                                {"blocks", &options.blocks},
                                                {"block-size", &options.block_size},
                                                {"prompt", &options.prompt},
                                                {"holders", &options.holders},
                                                {"rounds", &options.rounds},
                                                {"policy", &options.policy},
                                                {"told", &options.told}});
  const bool sane = options.workers > 0 && options.block_size > 0 && options.rounds > 0 &&
                    options.prompt >= options.block_size && options.holders > 0 &&
                    quire::FindPolicy(options.policy) != nullptr &&
                    (options.told == "in-chains" || options.told == "scattered");
  if (!parsed || !sane) return 2;
  return quire::Bench(options).Run();
}
