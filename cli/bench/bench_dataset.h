// The requests of a load: prompts and answer lengths, drawn from a seed or read from a file.
//
// Pure, except LoadDataset, which reads its file and gets the ids of some words from the server:
// random prompts are made of ids that its own tokenizer has given, so that both ends count the same
// tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/ask.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::cli {

inline constexpr int64_t kMaxBenchPrompts = 1'000'000;
inline constexpr size_t kMaxDatasetBytes = 64u << 20;

struct DatasetOptions {
  std::string name = "random";  // random, prefix_repetition, sharegpt, custom
  std::string path;             // of the last two
  int64_t num_prompts = 1000;
  int64_t seed = 0;
  int64_t random_input_len = 1024, random_output_len = 128, random_prefix_len = 0;
  double random_range_ratio = 0;  // lengths are in [len·(1 − r), len·(1 + r)]
  int64_t prefix_len = 256, suffix_len = 256, num_prefixes = 10, prefix_output_len = 128;
  int64_t output_len = 0;  // of sharegpt and custom; 0: as the file says, or 256
};

struct BenchPrompt {
  std::string text;          // where the API takes words, and of files
  std::vector<int64_t> ids;  // else
  int64_t output_len = 0;
};

// Words and their ids, from which random prompts are made.
struct Vocabulary {
  std::vector<std::string> words;  // each with the blank before it
  std::vector<int64_t> ids;        // of all words, as the server gave them; empty: it gave none
};

// Pure: the same options and vocabulary give the same prompts. With `as_text` prompts are words,
// one counted as one token.
std::vector<BenchPrompt> RandomPrompts(const DatasetOptions& options, const Vocabulary& vocabulary,
                                       bool as_text);
// Of the text of a file: sharegpt is a JSON array of {"conversations":[{"value"}, {"value"}]},
// custom is one JSON object with "prompt" (and "output_tokens") on each line. INVALID_ARGUMENT
// names the place.
absl::StatusOr<std::vector<BenchPrompt>> FilePrompts(const DatasetOptions& options,
                                                     const std::string& text);

// The words whose ids the server is asked for.
Vocabulary BuiltInWords();

absl::StatusOr<std::vector<BenchPrompt>> LoadDataset(const DatasetOptions& options, bool as_text,
                                                     const AskOptions& server,
                                                     const std::atomic<bool>& cancelled);

// When each request is sent, in seconds from the beginning: gaps are gamma-distributed with shape
// `burstiness` (1: a Poisson process) and mean 1 ÷ rate. rate 0: all at once. With a ramp the rate
// goes from `ramp_start` to `ramp_end` over the run.
struct ArrivalOptions {
  double request_rate = 0;
  double burstiness = 1;
  std::string ramp;  // "", "linear", "exponential"
  double ramp_start = 0, ramp_end = 0;
  int64_t seed = 0;
};
std::vector<double> ArrivalTimes(const ArrivalOptions& options, int64_t count);

}  // namespace quire::cli
