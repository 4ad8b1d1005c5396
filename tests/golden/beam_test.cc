// Beam search on real kernels finds what the reference's finds: make_beam_goldens.py wrote it down.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/json/json.h"
#include "kernels/backend.h"
#include "tests/golden/golden_file.h"
#include "worker/engine/engine.h"
#include "worker/model/model.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"

namespace quire::golden {
namespace {

constexpr int32_t kRows = 32;
constexpr int32_t kStepTokens = 64;
constexpr int32_t kBlockSize = 16;
constexpr int64_t kPages = 400;
constexpr int32_t kMaxModelLen = 128;

struct Case {
  std::string model;
  std::vector<TokenId> ends;
  Submit submit;
  std::vector<std::vector<TokenId>> answers;
};

std::vector<TokenId> Ids(const json::Value& value) {
  std::vector<TokenId> ids;
  for (const json::Value& id : value.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

EarlyStopping StoppingOf(std::string_view name) {
  if (name == "when_full") return EarlyStopping::kWhenFull;
  return name == "never" ? EarlyStopping::kNever : EarlyStopping::kHeuristic;
}

std::vector<Case> ReadCases(const std::string& folder) {
  const auto value = json::Parse(ReadFile(folder + "/beam_search.json"));
  QUIRE_CHECK(value.ok());
  std::vector<Case> cases;
  for (const json::Value& entry : value->as_array()) {
    const json::Object& fields = entry.as_object();
    Case& one = cases.emplace_back();
    one.model = json::View(fields.at("model").as_string());
    one.ends = Ids(fields.at("ends"));
    one.submit.prompt_ids = Ids(fields.at("prompt"));
    SamplingParams& sampling = one.submit.sampling;
    sampling.beam_width = static_cast<int32_t>(fields.at("width").as_int64());
    sampling.max_tokens = static_cast<int32_t>(fields.at("max_tokens").as_int64());
    sampling.min_tokens = static_cast<int32_t>(fields.at("min_tokens").as_int64());
    sampling.length_penalty = fields.at("length_penalty").to_number<float>();
    sampling.early_stopping = StoppingOf(json::View(fields.at("early_stopping").as_string()));
    sampling.stop_token_ids = one.ends;
    for (const json::Value& answer : fields.at("answers").as_array()) {
      one.answers.push_back(Ids(answer.as_object().at("tokens")));
    }
    one.submit.choices.resize(one.answers.size());
  }
  return cases;
}

// A model with an engine over it that serves all its cases at once.
class Server {
 public:
  explicit Server(const std::string& path) {
    auto loaded = model::LoadModel(path, {.with_text = false});
    QUIRE_CHECK(loaded.ok());
    model_ = *std::move(loaded);
    std::string error;
    backend_ = kernels::MakeCpuBackend({.threads = 2}, error);
    const kernels::StepProgram& program = model_->program;
    kernels::ProgramOptions load;
    load.kv = kernels::DealLayers(program.layer_windows,
                                  {kBlockSize, program.kv_heads, program.head_dim});
    load.page_count = kPages;
    load.max_tokens = MaxStepTokens(kRows, kStepTokens, kBlockSize);
    load.max_rows = kRows;
    load.max_samples = kRows;
    program_ = backend_->Load(program, load);
    EngineOptions options;
    options.max_model_len = kMaxModelLen;
    options.max_num_seqs = kRows;
    options.max_num_batched_tokens = kStepTokens;
    options.max_choices = kMaxBeamWidth;
    options.block_size = kBlockSize;
    options.page_count = kPages;
    options.cache_kinds = CacheKindsOf(load.kv);
    options.vocab_size = program.vocab_size;
    options.on_page_freed = [this](int32_t page) { program_->PoisonPage(page); };
    CpuRunnerOptions runner;
    runner.limits = {.max_rows = kRows,
                     .max_tokens = load.max_tokens,
                     .max_model_len = kMaxModelLen,
                     .block_size = kBlockSize,
                     .groups = static_cast<int32_t>(load.kv.groups.size()),
                     .page_count = kPages,
                     .vocab_size = program.vocab_size};
    runner.now_us = [] { return int64_t{0}; };
    runner_ = std::make_unique<CpuRunner>(*program_, runner);
    engine_ = std::make_unique<Engine>(options, *runner_, progress_);
  }

  void Send(uint64_t number, Submit submit) {
    submit.key = {RequestNumber(number), Attempt(1)};
    engine_->Apply(SubmitCommand{RouterInstance(1), std::move(submit), kNeverMicros}, 1);
  }

  // Tokens by request and choice.
  std::map<uint64_t, std::map<uint32_t, std::vector<TokenId>>> Run() {
    std::map<uint64_t, std::map<uint32_t, std::vector<TokenId>>> answers;
    for (int round = 0; round < 20000; ++round) {
      const EngineOutput output = engine_->RunOnce(1);
      engine_->CheckInvariants();
      for (const RouterOutput& router : output.routers) {
        EXPECT_TRUE(router.refused.empty()) << router.refused[0].message;
        for (const Output& part : router.outputs) {
          std::vector<TokenId>& ids = answers[part.key.request.value()][part.choice];
          ids.insert(ids.end(), part.ids.begin(), part.ids.end());
        }
      }
      if (output.next_wakeup_us > 1) return answers;
    }
    ADD_FAILURE() << "the engine never comes to rest";
    return answers;
  }

 private:
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<kernels::Backend> backend_;
  std::unique_ptr<kernels::LoadedProgram> program_;
  StepProgress progress_;
  std::unique_ptr<CpuRunner> runner_;
  std::unique_ptr<Engine> engine_;
};

TEST(BeamSearchGolden, FindsWhatTheReferenceFinds) {
  const std::string folder = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models";
  const std::vector<Case> cases = ReadCases(folder);
  ASSERT_GE(cases.size(), 20u);
  std::map<std::string, std::unique_ptr<Server>> servers;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::unique_ptr<Server>& server = servers[cases[i].model];
    if (server == nullptr) server = std::make_unique<Server>(folder + "/" + cases[i].model);
    server->Send(i, cases[i].submit);
  }
  size_t answered = 0;
  for (auto& [name, server] : servers) {
    for (auto& [number, answers] : server->Run()) {
      const Case& one = cases[number];
      answered += answers.size() == one.answers.size();
      SCOPED_TRACE("case " + std::to_string(number) + " of " + name);
      for (uint32_t i = 0; i < one.answers.size(); ++i) EXPECT_EQ(answers[i], one.answers[i]) << i;
    }
  }
  EXPECT_EQ(answered, cases.size());
}

}  // namespace
}  // namespace quire::golden
