// The prefix cache alone, on one thread: look-up and insert among many cached blocks. Prints one
// line of JSON.
//
//   prefix_cache_bench --blocks=1000000 --prompt=4096 --rounds=2000
//
// One full kind, one page a block; with --sliding=N also a window of 512 of N pages a block.
// `insert`: a prompt that is not cached is looked up (hashes included), its blocks are taken
// (evicting old ones, since the cache is full), published and given back. `hit`: a cached prompt is
// looked up, taken and given back. Each round picks its prompt at random, so that nothing of it is
// in the processor's caches.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "bench/flags.h"
#include "bench/measure.h"
#include "common/json/json.h"
#include "worker/kv/kv_cache.h"

namespace quire {
namespace {

struct Options {
  int64_t blocks = 1'000'000;
  int32_t block_size = 16;
  int32_t prompt = 4096;
  int32_t rounds = 2000;
  int32_t sliding = 0;
};

CacheShape ShapeOf(const Options& options) {
  CacheShape shape{.block_size = options.block_size,
                   .page_count = options.blocks * (1 + options.sliding),
                   .kinds = {{0, 1}}};
  if (options.sliding > 0) shape.kinds.push_back({512, options.sliding});
  return shape;
}

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        cache_({.shape = ShapeOf(options), .prefix_caching = true, .on_page_freed = nullptr}) {
    const int64_t per_prompt = options.prompt / options.block_size;
    for (; (newest_ + 1) * per_prompt <= options.blocks; ++newest_) Insert(newest_);
  }

  struct Times {
    double lookup_us = 0;  // with its hashes, and taking what was found
    double insert_us = 0;  // publication
    double pages_us = 0;   // evicting, taking and giving back pages
  };

  Times Insert(int64_t prompt) {
    const std::vector<TokenId> tokens =
        bench::NumberedPrompt(static_cast<uint64_t>(prompt), options_.prompt);
    PrefixChain chain;
    chain.hashes.reserve(tokens.size() / static_cast<size_t>(options_.block_size) + 1);
    cache_.Open(chain, identity_);
    SequenceBlocks blocks;
    Times times;
    const double start = bench::NowMicros();
    const CacheHit hit = cache_.Lookup(chain, tokens);
    cache_.Adopt(chain, hit, blocks);
    const double looked_up = bench::NowMicros();
    if (!cache_.Extend(blocks, options_.prompt)) std::abort();
    const double extended = bench::NowMicros();
    cache_.Publish(chain, blocks, tokens, options_.prompt);
    const double published = bench::NowMicros();
    cache_.Release(blocks);
    const double released = bench::NowMicros();
    cache_.Close(chain);
    cache_.events().Forget();
    hit_tokens = hit.length;
    times.lookup_us = looked_up - start;
    times.insert_us = published - extended;
    times.pages_us = (extended - looked_up) + (released - published);
    return times;
  }
  int64_t newest() const { return newest_; }
  void Advance() { ++newest_; }

  int64_t hit_tokens = 0;

 private:
  Options options_;
  KvCache cache_;
  CacheIdentity identity_{"", {1, 2}};
  int64_t newest_ = 0;
};

int Main(const std::vector<std::string>& args) {
  Options options;
  if (!bench::ParseFlags("prefix_cache_bench", args,
                         {{"blocks", &options.blocks},
                          {"block-size", &options.block_size},
                          {"prompt", &options.prompt},
                          {"rounds", &options.rounds},
                          {"sliding", &options.sliding}}))
    return 2;
  Bench bench(options);
  std::mt19937_64 random(1);
  const int64_t held = bench.newest();
  std::vector<double> miss, miss_pages, hit, hit_pages;
  int64_t hits = 0;
  for (int round = 0; round < options.rounds; ++round) {
    const Bench::Times fresh = bench.Insert(bench.newest());
    bench.Advance();
    miss.push_back(fresh.lookup_us + fresh.insert_us);
    miss_pages.push_back(fresh.pages_us);
    // One of the newer half: what is used again does not become the oldest meanwhile.
    const int64_t back = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(held / 2));
    const Bench::Times again = bench.Insert(bench.newest() - back);
    hits += bench.hit_tokens;
    hit.push_back(again.lookup_us + again.insert_us);
    hit_pages.push_back(again.pages_us);
  }
  json::Object out;
  out["cached_blocks"] = options.blocks;
  out["prompt_tokens"] = options.prompt;
  out["rounds"] = options.rounds;
  out["lookup_and_insert_us"] = bench::Spread(miss);
  out["eviction_and_release_us"] = bench::Spread(miss_pages);
  out["lookup_of_a_hit_us"] = bench::Spread(hit);
  out["release_of_a_hit_us"] = bench::Spread(hit_pages);
  out["mean_hit_tokens"] = static_cast<double>(hits) / options.rounds;
  out["state_bytes_per_block"] = KvCache::StateBytesPerBlock(ShapeOf(options));
  std::printf("%s\n", json::Serialize(out).c_str());
  return 0;
}

}  // namespace
}  // namespace quire

int main(int argc, char** argv) {
  return quire::Main(quire::config::ArgumentsFromMain(argc, argv));
}
