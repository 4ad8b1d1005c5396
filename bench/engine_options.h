// The flags of engine_bench.
//
// Read once, by main.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/flags.h"

namespace quire::bench {

struct EngineBenchOptions {
  std::string model;
  std::string mode = "decode";
  std::string isa = "auto";
  std::string activation_dtype = "auto";
  std::string kv_cache_dtype = "auto";
  int32_t threads = 2;
  int32_t batch = 1;
  int32_t context = 16;
  int32_t tokens = 64;
  int32_t requests = 0;
  int32_t mixed = 0;
  int32_t show = 0;
  int32_t copied = 0;
  int32_t constrained = 0;
  int32_t schemas = 1;
  int32_t mask_threads = 1;
  int32_t times = 0;           // 1: also prints where steps spend their time
  int32_t state_interval = 0;  // blocks between kept states; 0: the default
  int32_t budget_ms = 0;       // of a step's time; 0: no limit
  int32_t seconds = 60;
  int32_t repeats = 3;
  int32_t warmups = 1;
};

inline bool ReadFlags(const std::vector<std::string>& args, EngineBenchOptions& options) {
  return ParseFlags("engine_bench", args,
                    {{"model", &options.model},
                     {"mode", &options.mode},
                     {"cpu-isa", &options.isa},
                     {"activation-dtype", &options.activation_dtype},
                     {"kv-cache-dtype", &options.kv_cache_dtype},
                     {"threads", &options.threads},
                     {"batch", &options.batch},
                     {"context", &options.context},
                     {"tokens", &options.tokens},
                     {"requests", &options.requests},
                     {"mixed", &options.mixed},
                     {"show", &options.show},
                     {"copied", &options.copied},
                     {"constrained", &options.constrained},
                     {"schemas", &options.schemas},
                     {"mask-threads", &options.mask_threads},
                     {"times", &options.times},
                     {"state-interval", &options.state_interval},
                     {"budget-ms", &options.budget_ms},
                     {"seconds", &options.seconds},
                     {"repeats", &options.repeats},
                     {"warmups", &options.warmups}});
}

}  // namespace quire::bench
