// What a worker would do with a model, reported before anything is loaded: memory, contexts and
// batches that fit, and the decode speed that memory permits.
//
// Pure functions, except MeasureReadBandwidth, which starts threads and joins them. For
// `quire-worker --plan`, whose one line of JSON `quire plan` reads.
#pragma once

#include <cstdint>
#include <string>

#include "common/runtime/runtime.h"
#include "kernels/backend.h"
#include "kernels/step_program.h"
#include "worker/load/memory_plan.h"

namespace quire {

// Packed bytes of weights that a decode step reads.
struct StepWeights {
  int64_t always = 0;         // whatever its rows are
  int64_t experts = 0;        // of all experts
  double chosen_share = 0.0;  // of the experts' bytes, those that one row chooses

  // With rows that choose independently, evenly among all experts.
  int64_t Of(int64_t rows) const;
};

// The whole report; sizes in bytes.
struct PlanReport {
  std::string path;
  std::string model_id;
  std::string family;
  std::string device;    // for people: instruction set, threads
  std::string numerics;  // the class
  int64_t context = 0;   // the model's own
  load::MemoryRequest request;
  load::MemoryPlan plan;
  std::string quantisation;           // of the checkpoint or GGUF, for people; empty: it is not
  kernels::WeightForms weights;       // of a device that may keep or expand quantised weights
  int64_t head_bytes_per_token = 0;   // what HeadBytesOfToken says
  StepWeights step_weights;           // that one decode step reads
  double read_bytes_per_second = 0;   // of memory, by all threads together; 0: unknown
  bool bandwidth_is_measured = true;  // false: it was set by a flag
};

// Everything except an embedding table that is not also the head; a step reads one row of that.
StepWeights WeightsOfStep(const kernels::StepProgram& program, int64_t weight_bytes);

// What a token of context takes in the pages of all full layers, of one rank: all of it in a model
// without windows.
int64_t CacheBytesOfToken(const kernels::KvLayout& kv);

// Where pages hold latents: what keys and values of all heads would take in their place, of all
// ranks. Otherwise 0.
int64_t HeadBytesOfToken(const kernels::StepProgram& program, kernels::KvType type);

// Fills in what follows from the program, once request and plan are there.
void DescribeProgram(const kernels::StepProgram& program, PlanReport& report);

// The longest sequence whose pages fit into `pages`, at most `longest`.
int64_t LongestContext(const load::MemoryRequest& request, int64_t pages, int64_t longest);

// Tokens a second of `rows` sequences together when each has `tokens` of context and memory is the
// only limit: rows ÷ (time to read the weights once and each row's keys and values). An upper
// bound, close for few rows and large models (Williams et al., Roofline, 2009).
double DecodeTokensPerSecond(const PlanReport& report, int64_t rows, int64_t tokens);

// One line without its end.
std::string PlanJson(const PlanReport& report);

// Bytes a second that `threads` read from memory together: the best of a few passes over a buffer
// larger than caches, of at most `most_bytes`. Takes a fraction of a second.
double MeasureReadBandwidth(const Clock& clock, int threads, int64_t most_bytes);

}  // namespace quire
