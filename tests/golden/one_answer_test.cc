// One answer on the real kernels: for every family, a hundred random requests give the same tokens
// and the same logprob bits alone and together, in any order, with little memory, odd chunks, one
// and two threads, one and two steps in flight, found in the prefix cache wholly, partly or not at
// all, paused, and resumed from every position. On the CPU, and with fewer requests on the
// emulated CUDA device: one_answer_setup.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <map>
#include <memory>
#include <random>

#include "kernels/backend.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/one_answer_setup.h"
#include "worker/engine/engine.h"
#include "worker/model/model.h"
#include "worker/runner/cpu_runner.h"
#include "worker/scheduler/scheduler.h"

namespace quire::golden {
namespace {

constexpr int32_t kMaxModelLen = 96;
constexpr int32_t kBlockSize = 16;
constexpr int32_t kMaxRows = 64;
constexpr int32_t kMaxStepTokens = 128;
constexpr int64_t kManyPages = 600;

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> logprob_bits;
  std::vector<Ended> ended;
};
using Answers = std::map<std::pair<uint64_t, uint32_t>, Answer>;  // by request and choice

struct Way {
  int32_t rows = 1;
  int32_t step_tokens = 96;
  int64_t pages = kManyPages;
  int max_in_flight = 1;
  uint32_t window = 0;  // granted again whenever it is used up
};

// A loaded program and what it takes to serve it.
class Device {
 public:
  Device(const model::Model& model, int threads) : model_(model) {
    backend_ = MakeOneAnswerBackend(threads);
    const kernels::StepProgram& program = model.program;
    layout_ = kernels::DealLayers(program.layer_windows, backend_->PageShape(program, kBlockSize),
                                  program.states);
    kernels::ProgramOptions options;
    options.kv = layout_;
    options.page_count = kManyPages;
    options.max_tokens = kMaxStepTokens;
    options.max_rows = kMaxRows;
    options.max_samples = kMaxRows;
    program_ = backend_->Load(program, options);
  }

  EngineOptions OptionsFor(const Way& way) const {
    EngineOptions options;
    options.max_model_len = kMaxModelLen;
    options.max_num_seqs = way.rows;
    options.max_num_batched_tokens = way.step_tokens;
    options.block_size = kBlockSize;
    options.page_count = way.pages;
    options.cache_kinds = CacheKindsOf(layout_);
    options.vocab_size = model_.program.vocab_size;
    options.max_choices = 2;
    options.max_waiting_requests = 10'000;
    options.on_page_freed = [this](int32_t page) { program_->PoisonPage(page); };
    return options;
  }

  // Fewest pages with which the longest request fits.
  int64_t FewPages() const {
    const KvCache measure({kBlockSize, 1 << 20, CacheKindsOf(layout_)}, nullptr);
    return measure.PeakPages(kMaxModelLen, kBlockSize);
  }

  Answers Serve(const std::vector<Submit>& submits, const Way& way) {
    const EngineOptions options = OptionsFor(way);
    CpuRunnerOptions runner_options;
    runner_options.limits = {.max_rows = way.rows,
                             .max_tokens = MaxStepTokens(way.rows, way.step_tokens, kBlockSize),
                             .max_model_len = kMaxModelLen,
                             .block_size = kBlockSize,
                             .groups = static_cast<int32_t>(layout_.groups.size()),
                             .page_count = way.pages,
                             .vocab_size = options.vocab_size};
    runner_options.max_in_flight = way.max_in_flight;
    runner_options.now_us = [] { return int64_t{0}; };
    CpuRunner runner(*program_, runner_options);
    StepProgress progress;
    Engine engine(options, runner, progress);
    Answers answers;
    for (Submit submit : submits) {
      for (uint32_t c = 0; c < submit.choices.size(); ++c) {
        answers[{submit.key.request.value(), c}].tokens = submit.choices[c].outputs;
      }
      submit.initial_window = way.window;
      engine.Apply(SubmitCommand{RouterInstance(1), std::move(submit), kNeverMicros}, 1);
    }
    size_t open = answers.size();
    for (int round = 0; open > 0; ++round) {
      if (round > 100'000) {
        ADD_FAILURE() << "requests wait for ever";
        break;
      }
      const EngineOutput output = engine.RunOnce(1);
      for (const RouterOutput& router : output.routers) open -= Take(router, answers);
      if (way.window == 0 || output.next_wakeup_us <= 1) continue;
      for (const auto& [key, answer] : answers) {  // all wait for their takers
        const AttemptKey attempt{RequestNumber(key.first), Attempt(1)};
        engine.Apply(GrantCommand{RouterInstance(1),
                                  {attempt, key.second, answer.tokens.size() + way.window}},
                     1);
      }
    }
    engine.CheckInvariants();
    preemptions += engine.totals().scheduler.preemptions;
    for (const Submit& submit : submits) {
      for (uint32_t c = 0; c < submit.choices.size(); ++c) {
        const Answer& answer = answers[{submit.key.request.value(), c}];
        if (!answer.ended.empty() && answer.ended[0].last_choice) Count(submit, answer.ended[0]);
      }
    }
    return answers;
  }

  uint64_t preemptions = 0;
  // Requests by what the prefix cache had of their prompt, which a hit could have helped.
  struct Found {
    int all = 0;
    int some = 0;
    int nothing = 0;
  };
  Found found;

 private:
  void Count(const Submit& submit, const Ended& last) {
    const size_t most = (submit.prompt_ids.size() - 1) / kBlockSize * kBlockSize;
    const size_t cached = last.usage.cached_tokens;
    if (most == 0 || !submit.choices[last.choice].outputs.empty()) return;
    EXPECT_LE(cached, most);
    ++(cached == most ? found.all : cached > 0 ? found.some : found.nothing);
  }

  // How many choices have ended.
  static size_t Take(const RouterOutput& router, Answers& answers) {
    for (const Output& output : router.outputs) {
      Answer& answer = answers[{output.key.request.value(), output.choice}];
      EXPECT_EQ(output.first_index, answer.tokens.size());
      answer.tokens.insert(answer.tokens.end(), output.ids.begin(), output.ids.end());
      for (const float logprob : output.logprobs) {
        answer.logprob_bits.push_back(std::bit_cast<uint32_t>(logprob));
      }
    }
    for (const Ended& ended : router.ended) {
      answers[{ended.key.request.value(), ended.choice}].ended.push_back(ended);
    }
    EXPECT_TRUE(router.refused.empty());
    return router.ended.size() + router.refused.size();
  }

  const model::Model& model_;
  std::unique_ptr<kernels::Backend> backend_;
  kernels::KvLayout layout_;
  std::unique_ptr<kernels::LoadedProgram> program_;
};

// Many begin alike, for as long as a few blocks and windows, and some are wholly alike.
std::vector<TokenId> RandomPrompt(std::mt19937_64& rng, int32_t vocab,
                                  const std::vector<Submit>& before) {
  const auto random_id = [&] { return static_cast<TokenId>(rng() % static_cast<uint64_t>(vocab)); };
  if (!before.empty() && rng() % 5 == 0) {
    const SharedTokens& same = before[rng() % before.size()].prompt_ids;
    return {same.begin(), same.end()};
  }
  std::vector<TokenId> prompt(1 + rng() % (rng() % 2 == 0 ? 74 : 20));
  const uint64_t opening = rng() % 3;
  const size_t alike = rng() % 3 == 0 ? 0 : rng() % (prompt.size() + 1);
  for (size_t i = 0; i < prompt.size(); ++i) {
    prompt[i] = i < alike ? static_cast<TokenId>((opening * 101 + i * 7) % 60) : random_id();
  }
  return prompt;
}

std::vector<Submit> RandomRequests(std::mt19937_64& rng, int32_t vocab) {
  std::vector<Submit> submits;
  for (uint64_t request = 1; request <= MakeOneAnswerSetup().requests; ++request) {
    const auto one_in = [&rng](uint64_t n) { return rng() % n == 0; };
    std::vector<TokenId> prompt = RandomPrompt(rng, vocab, submits);
    Submit& submit = submits.emplace_back();
    submit.key = {RequestNumber(request), Attempt(1)};
    submit.choices.resize(one_in(5) ? 2 : 1);
    submit.prompt_ids = std::move(prompt);
    SamplingParams& sampling = submit.sampling;
    sampling.max_tokens = static_cast<int32_t>(2 + rng() % 18);
    sampling.temperature = one_in(3) ? 0.0f : 0.9f;
    sampling.top_k = one_in(2) ? 40 : 0;
    sampling.top_p = one_in(4) ? 0.9f : 1.0f;
    sampling.repetition_penalty = one_in(4) ? 1.2f : 1.0f;
    sampling.frequency_penalty = one_in(4) ? 0.8f : 0.0f;
    sampling.seed = rng();
    sampling.logprobs = 1;
  }
  return submits;
}

// The same requests carried on, each from every position of its answer or from one of them, under
// numbers of their own; `expected` are their answers.
std::vector<Submit> Resumed(const std::vector<Submit>& submits, const Answers& whole,
                            bool everywhere, std::mt19937_64& rng, Answers& expected) {
  std::vector<Submit> resumed;
  for (const Submit& submit : submits) {
    size_t longest = 0;
    for (uint32_t c = 0; c < submit.choices.size(); ++c) {
      longest = std::max(longest, whole.at({submit.key.request.value(), c}).tokens.size());
    }
    const size_t from = everywhere ? 1 : rng() % longest;
    for (size_t index = from; index < (everywhere ? longest : from + 1); ++index) {
      Submit& next = resumed.emplace_back(submit);
      next.key.request = RequestNumber(resumed.size());
      for (uint32_t c = 0; c < next.choices.size(); ++c) {
        const Answer& answer = whole.at({submit.key.request.value(), c});
        const size_t had = std::min(index, answer.tokens.size());
        next.choices[c].outputs.assign(answer.tokens.begin(),
                                       answer.tokens.begin() + static_cast<ptrdiff_t>(had));
        expected[{resumed.size(), c}] = answer;
      }
    }
  }
  return resumed;
}

void ExpectSame(const Answers& got, const Answers& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [key, answer] : expected) {
    SCOPED_TRACE(testing::Message() << "request " << key.first << " choice " << key.second);
    const Answer& other = got.at(key);
    ASSERT_EQ(other.tokens, answer.tokens);
    ASSERT_LE(other.logprob_bits.size(), answer.logprob_bits.size());
    // A resumed answer has the logprobs of what was sampled here: the last ones.
    ASSERT_TRUE(std::equal(other.logprob_bits.rbegin(), other.logprob_bits.rend(),
                           answer.logprob_bits.rbegin()));
    ASSERT_EQ(other.ended.size(), 1u);
    EXPECT_EQ(other.ended[0].reason, answer.ended[0].reason);
  }
}

class OneAnswerTest : public testing::TestWithParam<std::string> {};

TEST_P(OneAnswerTest, HowEverTheWorkIsCut) {
  std::string path = SourceFolder() + "/tests/golden/models/" + GetParam();
  if (std::filesystem::exists(path + "/model.gguf")) path += "/model.gguf";
  const auto model = model::LoadModel(path, {.with_text = false});
  ASSERT_TRUE(model.ok()) << model.status();
  const OneAnswerSetup setup = MakeOneAnswerSetup();
  Device two(**model, 2);
  Device one(**model, 1);
  std::mt19937_64 rng(setup.seed);
  std::vector<Submit> submits = RandomRequests(rng, (*model)->program.vocab_size);
  Answers alone;
  for (const Submit& submit : submits) alone.merge(two.Serve({submit}, {}));
  EXPECT_EQ(two.found.all + two.found.some, 0) << "alone, nothing can be found";
  const int64_t few = two.FewPages();
  const Way ways[] = {{64, 112, kManyPages, 1, 0},
                      {6, 60, kManyPages, 2, 0},
                      {8, 7, 2 * few, 2, 0},
                      {5, 33, few + few / 2, 1, 3}};
  for (const Way& way : ways) {
    SCOPED_TRACE(testing::Message() << way.rows << " rows, steps of " << way.step_tokens);
    std::shuffle(submits.begin(), submits.end(), rng);
    Device& device = way.max_in_flight == 2 ? one : two;
    ExpectSame(device.Serve(submits, way), alone);
    if (HasFatalFailure()) return;
  }
  for (const Device* device : {&one, &two}) {
    EXPECT_GE(device->found.all, setup.least_found);
    EXPECT_GE(device->found.some, setup.least_found);
    EXPECT_GE(device->found.nothing, setup.least_found);
  }
  EXPECT_GT(one.preemptions + two.preemptions, 0u) << "memory was meant to run out";
  SCOPED_TRACE("resumed");
  Answers carried_on;
  const std::vector<Submit> resumed =
      Resumed(submits, alone, setup.resume_everywhere, rng, carried_on);
  ExpectSame(one.Serve(resumed, ways[0]), carried_on);
}

INSTANTIATE_TEST_SUITE_P(Families, OneAnswerTest, testing::ValuesIn(MakeOneAnswerSetup().families),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::golden
