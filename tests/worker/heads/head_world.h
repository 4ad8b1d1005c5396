// Targets and draft heads of a few kilobytes, written to a folder from names and shapes, and an
// engine that serves a target with its head.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "worker/engine/engine.h"
#include "worker/head_setup.h"
#include "worker/runner/cpu_runner.h"

namespace quire::test {

// A tensor of float32, or of int64 where `ids` holds something.
struct NamedTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values = {};
  std::vector<int64_t> ids = {};
  std::string type = {};  // another one than the values' own; its bytes are zero
};

// Writes config.json and the tensors, as one file of that name, to a folder that must not exist.
void WriteFolder(const std::string& folder, const std::string& config,
                 const std::vector<NamedTensor>& tensors,
                 const std::string& file = "model.safetensors");

// As tests/golden/heads/make_head_goldens.py makes them: offset + scale · u, u in [−1, 1).
std::vector<float> HashedValues(const std::string& name, int64_t count, double scale,
                                double offset);

// A fixture of tests/golden/heads.
struct HeadGolden {
  std::string method;
  std::string target_config;
  std::vector<NamedTensor> target;
  std::string head_config;  // empty: the target's checkpoint holds the head
  std::vector<NamedTensor> head;
  std::vector<TokenId> prompt;
  std::vector<TokenId> tokens;
  std::vector<std::vector<TokenId>> drafts;  // behind each of the tokens but the last
};
HeadGolden ReadGolden(const std::string& name);

// An answer, and what was drafted behind each of its tokens: as many as the drafter may, whatever
// was asked of it.
struct HeadAnswer {
  std::vector<TokenId> tokens;
  std::map<int64_t, std::vector<TokenId>> drafts;  // by the number of outputs before them
  uint64_t cached = 0;                             // tokens of the prompt
  uint64_t recomputed = 0;
};
using HeadAnswers = std::map<std::pair<uint64_t, uint32_t>, HeadAnswer>;  // by request and choice

struct HeadWorldOptions {
  std::string target;       // folder
  std::string speculation;  // JSON; empty: nothing is drafted
  int32_t step_tokens = 256;
  int32_t max_rows = 4;
  int64_t pages = 64;
  int32_t block_size = 16;
  std::string kv_cache_dtype = "auto";
};

class HeadWorld {
 public:
  // INVALID_ARGUMENT as DraftHeadSetup and model::LoadModel.
  static absl::StatusOr<std::unique_ptr<HeadWorld>> Open(const HeadWorldOptions& options);
  ~HeadWorld();

  // Serves all of them at once, on an engine of their own; answers by request and choice.
  HeadAnswers Serve(const std::vector<Submit>& submits);
  // The same one after another on one engine, whose prefix cache stays.
  HeadAnswers ServeInTurn(const std::vector<Submit>& submits);
  // What the target verifies in the place of the head's drafts, so that some are right.
  using Instead = std::function<std::vector<TokenId>(const DraftRow& row)>;
  void VerifyInstead(Instead instead) { instead_ = std::move(instead); }

  const DraftHeadSetup* head() const { return head_.get(); }
  const EngineTotals& totals() const { return totals_; }

 private:
  class Recorder;
  HeadWorld() = default;
  absl::Status Load(const HeadWorldOptions& options);
  HeadAnswers Run(const std::vector<Submit>& submits, bool in_turn);

  WorkerConfig config_;
  Speculation speculation_;
  int64_t pages_ = 0;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<DraftHeadSetup> head_;
  kernels::ProgramOptions program_options_;
  std::unique_ptr<kernels::LoadedProgram> program_;
  EngineTotals totals_;
  Instead instead_;
};

// Of a row whose answer is known: its next tokens, one in three of them wrong.
std::vector<TokenId> OftenRight(const DraftRow& row, const std::vector<TokenId>& answer);

// A request for greedy tokens.
Submit GreedySubmit(uint64_t request, std::vector<TokenId> prompt, int32_t max_tokens);

}  // namespace quire::test
