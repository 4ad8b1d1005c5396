#include "tests/worker/heads/head_world.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "worker/rank_programs.h"
#include "worker/scheduler/scheduler.h"

namespace quire::test {
namespace {

constexpr int32_t kMaxModelLen = 200;
constexpr int kMostRounds = 20'000;

// Drafting must not depend on time here.
class StillClock final : public Clock {
 public:
  Micros Now() const override { return 1; }
  int64_t UnixSeconds() const override { return 1; }
};

const StillClock& TheClock() {
  static const StillClock clock;
  return clock;
}

uint64_t NameSeed(const std::string& name) {
  uint64_t seed = 0xcbf29ce484222325;
  for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return seed;
}

std::vector<TokenId> Ids(const json::Value& list) {
  std::vector<TokenId> ids;
  for (const json::Value& id : list.as_array()) ids.push_back(static_cast<TokenId>(id.as_int64()));
  return ids;
}

std::vector<NamedTensor> Tensors(const json::Value& list) {
  std::vector<NamedTensor> tensors;
  if (!list.is_array()) return tensors;
  for (const json::Value& entry : list.as_array()) {
    NamedTensor& tensor = tensors.emplace_back();
    tensor.name = std::string(json::View(entry.as_array()[0].as_string()));
    int64_t count = 1;
    for (const json::Value& size : entry.as_array()[1].as_array()) {
      tensor.shape.push_back(size.as_int64());
      count *= size.as_int64();
    }
    if (entry.as_array()[2].is_string()) {
      for (const json::Value& id : entry.as_array()[3].as_array()) {
        tensor.ids.push_back(id.as_int64());
      }
    } else {
      tensor.values = HashedValues(tensor.name, count, entry.as_array()[2].to_number<double>(),
                                   entry.as_array()[3].to_number<double>());
    }
  }
  return tensors;
}

}  // namespace

std::vector<float> HashedValues(const std::string& name, int64_t count, double scale,
                                double offset) {
  std::vector<float> values;
  const uint64_t seed = NameSeed(name);
  for (int64_t i = 1; i <= count; ++i) {
    uint64_t z = seed + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    const double unit = static_cast<double>(z >> 40) / 8388608.0 - 1.0;
    values.push_back(static_cast<float>(offset + scale * unit));
  }
  return values;
}

void WriteFolder(const std::string& folder, const std::string& config,
                 const std::vector<NamedTensor>& tensors, const std::string& file) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/config.json") << config;
  std::string header = "{", data;
  for (const NamedTensor& tensor : tensors) {
    const size_t begin = data.size();
    if (!tensor.ids.empty()) {
      data.append(reinterpret_cast<const char*>(tensor.ids.data()), 8 * tensor.ids.size());
    } else {
      data.append(reinterpret_cast<const char*>(tensor.values.data()), 4 * tensor.values.size());
    }
    std::string shape;
    for (const int64_t size : tensor.shape) {
      shape += (shape.empty() ? "" : ",") + std::to_string(size);
    }
    const std::string type = !tensor.type.empty() ? tensor.type
                             : tensor.ids.empty() ? "F32"
                                                  : "I64";
    header += (header.size() == 1 ? "\"" : ",\"") + tensor.name + R"(":{"dtype":")" + type +
              R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
              std::to_string(data.size()) + "]}";
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t size = header.size();
  std::ofstream out(folder + "/" + file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), 8);
  out << header << data;
}

HeadGolden ReadGolden(const std::string& name) {
  std::ifstream stream(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/heads/" + name + ".json");
  EXPECT_TRUE(stream.good()) << name;
  const auto value = json::Parse(std::string(std::istreambuf_iterator<char>(stream), {}));
  EXPECT_TRUE(value.ok());
  const json::Object& object = value->as_object();
  HeadGolden golden;
  golden.method = std::string(json::View(object.at("method").as_string()));
  golden.target_config = json::Serialize(object.at("target"));
  golden.target = Tensors(object.at("target_tensors"));
  if (object.at("head").is_object()) golden.head_config = json::Serialize(object.at("head"));
  golden.head = Tensors(object.at("head_tensors"));
  golden.prompt = Ids(object.at("prompt"));
  golden.tokens = Ids(object.at("tokens"));
  for (const json::Value& drafts : object.at("drafts").as_array()) {
    golden.drafts.push_back(Ids(drafts));
  }
  return golden;
}

Submit GreedySubmit(uint64_t request, std::vector<TokenId> prompt, int32_t max_tokens) {
  Submit submit;
  submit.key = {RequestNumber(request), Attempt(1)};
  submit.choices.resize(1);
  submit.prompt_ids = std::move(prompt);
  submit.sampling.max_tokens = max_tokens;
  submit.sampling.temperature = 0;
  submit.sampling.seed = request;
  return submit;
}

std::vector<TokenId> OftenRight(const DraftRow& row, const std::vector<TokenId>& answer) {
  std::vector<TokenId> tokens;
  const auto outputs =
      static_cast<size_t>(row.tokens.size()) - static_cast<size_t>(row.prompt_length);
  for (size_t i = outputs; i < answer.size() && tokens.size() < kMaxDraftTokens; ++i) {
    const bool wrong = NameSeed(std::to_string(row.sampling->seed * 1000 + i)) % 3 == 0;
    tokens.push_back(wrong ? (answer[i] + 1) % 100 : answer[i]);
  }
  return tokens;
}

// Asks the drafter for as many drafts as it may make, and passes on those that were wanted.
class HeadWorld::Recorder final : public Drafter {
 public:
  Recorder(Drafter& inner, int32_t most, HeadAnswers& answers, const Instead& instead)
      : inner_(inner), most_(most), answers_(answers), instead_(instead) {}

  void Propose(std::span<const DraftRow> rows) override {
    std::vector<std::vector<TokenId>> drafts(rows.size());
    std::vector<DraftRow> all(rows.begin(), rows.end());
    for (size_t i = 0; i < rows.size(); ++i) {
      all[i].wanted = most_;
      all[i].drafts = &drafts[i];
    }
    inner_.Propose(all);
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t outputs = static_cast<int64_t>(rows[i].tokens.size()) - rows[i].prompt_length;
      HeadAnswer& answer = answers_[{rows[i].sampling->seed, rows[i].choice}];
      const auto [at, fresh] = answer.drafts.emplace(outputs, drafts[i]);
      EXPECT_TRUE(fresh || at->second == drafts[i]) << "a proposal depends on one before it";
      if (instead_) drafts[i] = instead_(rows[i]);
      const auto wanted = static_cast<size_t>(rows[i].wanted);
      if (drafts[i].size() > wanted) drafts[i].resize(wanted);
      *rows[i].drafts = drafts[i];
    }
  }
  void Forget(uint64_t sequence) override { inner_.Forget(sequence); }
  bool ReadsSteps() const override { return inner_.ReadsSteps(); }
  bool GuessesForFree() const override { return inner_.GuessesForFree(); }

 private:
  Drafter& inner_;
  const int32_t most_;
  HeadAnswers& answers_;
  const Instead& instead_;
};

HeadWorld::~HeadWorld() = default;

absl::StatusOr<std::unique_ptr<HeadWorld>> HeadWorld::Open(const HeadWorldOptions& options) {
  std::unique_ptr<HeadWorld> world(new HeadWorld());
  const absl::Status status = world->Load(options);
  if (!status.ok()) return status;
  return world;
}

absl::Status HeadWorld::Load(const HeadWorldOptions& options) {
  config_.model = options.target;
  config_.speculative_config = options.speculation;
  config_.engine.max_num_seqs = options.max_rows;
  config_.engine.max_num_batched_tokens = options.step_tokens;
  config_.block_size = options.block_size;
  config_.kv_cache_dtype = options.kv_cache_dtype;
  config_.cpu.activation_dtype = "float32";
  config_.cpu.threads = 2;
  pages_ = options.pages;
  QUIRE_ASSIGN_OR_RETURN(speculation_, ParseSpeculation(options.speculation));
  QUIRE_ASSIGN_OR_RETURN(backend_, OpenBackend(config_, 2));
  model::LoadOptions load;
  load.with_text = false;
  if (speculation_.HasHead()) {
    QUIRE_ASSIGN_OR_RETURN(head_, DraftHeadSetup::Open(config_, speculation_));
    load.features = [this](const load::ModelConfig& config) { return head_->Features(config); };
  }
  QUIRE_ASSIGN_OR_RETURN(model_, model::LoadModel(options.target, load));
  program_options_ = RankProgramOptions(config_, model_->program, *backend_);
  program_options_.page_count = pages_;
  if (head_ != nullptr) {
    QUIRE_RETURN_IF_ERROR(head_->Attach(*model_, *backend_));
    QUIRE_RETURN_IF_ERROR(head_->Follow(program_options_.kv));
  }
  QUIRE_RETURN_IF_ERROR(model_->FillWeights());
  if (head_ != nullptr) QUIRE_RETURN_IF_ERROR(head_->Load(pages_));
  program_ = backend_->Load(model_->program, program_options_);
  return absl::OkStatus();
}

HeadAnswers HeadWorld::Serve(const std::vector<Submit>& submits) { return Run(submits, false); }

HeadAnswers HeadWorld::ServeInTurn(const std::vector<Submit>& submits) {
  return Run(submits, true);
}

HeadAnswers HeadWorld::Run(const std::vector<Submit>& submits, bool in_turn) {
  HeadAnswers answers;
  Metrics metrics;
  std::unique_ptr<HeadDrafter> drafter;
  std::unique_ptr<Recorder> recorder;
  if (head_ != nullptr) {
    drafter = head_->MakeDrafter(*program_, kMaxModelLen, TheClock(), metrics);
    recorder = std::make_unique<Recorder>(*drafter, speculation_.num_speculative_tokens, answers,
                                          instead_);
  }
  EngineOptions options = config_.engine;
  options.drafter = recorder.get();
  options.max_drafts = speculation_.num_speculative_tokens;
  options.max_model_len = kMaxModelLen;
  options.block_size = config_.block_size;
  options.page_count = pages_;
  options.cache_kinds = CacheKindsOf(program_options_.kv);
  options.vocab_size = model_->program.vocab_size;
  options.on_page_freed = [this](int32_t page) {
    program_->PoisonPage(page);
    if (head_ != nullptr) head_->PoisonPage(page);
  };
  CpuRunnerOptions runner_options;
  runner_options.limits.max_rows = options.max_num_seqs;
  runner_options.limits.max_tokens = program_options_.max_tokens;
  runner_options.limits.max_model_len = kMaxModelLen;
  runner_options.limits.block_size = options.block_size;
  runner_options.limits.groups = static_cast<int32_t>(program_options_.kv.groups.size());
  runner_options.limits.page_count = pages_;
  runner_options.limits.vocab_size = options.vocab_size;
  runner_options.now_us = [] { return int64_t{1}; };
  runner_options.observer = drafter.get();
  CpuRunner runner(*program_, std::move(runner_options));
  StepProgress progress;
  Engine engine(options, runner, progress);
  size_t next = 0;
  const auto submit = [&](size_t end) {
    for (; next < end; ++next) {
      engine.Apply(SubmitCommand{RouterInstance(1), submits[next], kNeverMicros}, 1);
    }
  };
  submit(in_turn ? 1 : submits.size());
  for (int round = 0; round < kMostRounds; ++round) {
    const EngineOutput output = engine.RunOnce(1);
    engine.CheckInvariants();
    for (const RouterOutput& router : output.routers) {
      EXPECT_TRUE(router.refused.empty());
      for (const Output& one : router.outputs) {
        HeadAnswer& answer = answers[{one.key.request.value(), one.choice}];
        answer.tokens.insert(answer.tokens.end(), one.ids.begin(), one.ids.end());
      }
    }
    for (const RouterOutput& router : output.routers) {
      for (const Ended& ended : router.ended) {
        HeadAnswer& answer = answers[{ended.key.request.value(), ended.choice}];
        answer.cached = ended.usage.cached_tokens;
        answer.recomputed = ended.usage.recomputed_tokens;
      }
    }
    if (output.next_wakeup_us <= 1) continue;
    if (next == submits.size()) {
      totals_ = engine.totals();
      return answers;
    }
    submit(next + 1);
  }
  ADD_FAILURE() << "the engine never comes to rest";
  return answers;
}

}  // namespace quire::test
