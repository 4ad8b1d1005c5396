// What the pool of masks counts and times; a part of mask_pool.cc.
#pragma once

#include <vector>

#include "common/metrics/metrics.h"
#include "worker/constrain/mask_pool.h"

namespace quire {

// Seconds: a mask takes some microseconds as a rule, and some milliseconds at the limits.
inline std::vector<double> MaskBuckets() {
  return {0.000005, 0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001,
          0.002,    0.005,   0.01,    0.02,    0.05,   0.1,    0.2,    0.5};
}

struct MaskPool::Series {
  explicit Series(Metrics& metrics)
      : mask(metrics.AddHistogram({"quire_worker_mask_seconds",
                                   "Time to compute which tokens may follow in one constrained "
                                   "row."},
                                  MaskBuckets())),
        step(metrics.AddHistogram({"quire_worker_step_mask_seconds",
                                   "The same for all constrained rows of a step, by phase: work "
                                   "(on all threads together), wait (of the step for its masks).",
                                   {{"phase", "work"}}},
                                  MaskBuckets())),
        wait(metrics.AddHistogram({"quire_worker_step_mask_seconds", "", {{"phase", "wait"}}},
                                  MaskBuckets())),
        texts(metrics.AddGauge(
            {"quire_worker_constrained_texts", "Answers that are being written under a grammar."})),
        bytes(metrics.AddGauge(
            {"quire_worker_constraint_state_bytes", "Memory of the states of these answers."})),
        full(metrics.AddCounter({"quire_worker_constraint_state_full_total",
                                 "Answers that failed because the states of all held the memory "
                                 "that there is for them."})),
        thoughts(metrics.AddCounter(
            {"quire_worker_thoughts_ended_total",
             "Thoughts that were ended because the request's budget for them was used up."})) {}

  Histogram& mask;
  Histogram& step;
  Histogram& wait;
  Gauge& texts;
  Gauge& bytes;
  Counter& full;
  Counter& thoughts;
};

}  // namespace quire
