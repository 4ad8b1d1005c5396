// A fleet of 64 workers in virtual time with 1, 2 and 8 routers that do not speak to each other:
// how much of what a perfect cache would have is found, and how evenly work is spread. Prints one
// line of JSON. The routers' code is the real one; bench/fleet/ says what the rest stands for.
//
//   fleet_bench --routers=8 --policy=prefix-aware
#include <cstdio>
#include <string>
#include <vector>

#include "bench/flags.h"
#include "bench/fleet/fleet_model.h"
#include "common/json/json.h"
#include "router/routing/policy.h"

int main(int argc, char** argv) {
  quire::bench::FleetModelOptions options;
  int64_t seed = 1;
  const std::vector<std::string> args(argv + 1, argv + argc);
  const bool parsed = quire::bench::ParseFlags("fleet_bench", args,
                                               {{"policy", &options.policy},
                                                {"workers", &options.workers},
                                                {"routers", &options.routers},
                                                {"groups", &options.groups},
                                                {"skew", &options.skew},
                                                {"prefix", &options.prefix},
                                                {"requests", &options.requests},
                                                {"warm-up", &options.warm_up},
                                                {"per-second", &options.per_second},
                                                {"cache-blocks", &options.cache_blocks},
                                                {"frame-delay-us", &options.frame_delay},
                                                {"seed", &seed}});
  const bool sane = options.workers > 0 && options.routers > 0 && options.groups > 0 &&
                    options.prefix > 0 && options.warm_up >= 0 &&
                    options.warm_up < options.requests && options.per_second > 0 &&
                    options.cache_blocks > (options.prefix + options.question) / 16 &&
                    options.frame_delay >= 0 && quire::FindPolicy(options.policy) != nullptr;
  if (!parsed || !sane) return 2;
  options.seed = static_cast<uint64_t>(seed);
  const quire::bench::FleetModelResult result = quire::bench::RunFleetModel(options);
  quire::json::Object line;
  line["routers"] = options.routers;
  line["policy"] = options.policy;
  line["hit_rate"] = result.hit_rate;
  line["hit_rate_over_oracle"] = result.hit_rate_over_oracle;
  line["load_spread"] = result.load_spread;
  line["first_token_ms_mean"] = result.first_token_ms_mean;
  line["first_token_ms_p99"] = result.first_token_ms_p99;
  line["virtual_seconds"] = result.seconds;
  line["predictions_exact"] = result.predictions_exact;
  line["predictions_raced"] = result.predictions_raced;
  line["predictions_wrong"] = result.predictions_wrong;
  std::printf("%s\n", quire::json::Serialize(line).c_str());
  return 0;
}
