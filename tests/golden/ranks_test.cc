// Tensor-parallel ranks: every family cut among 2, 4 and 8 of them computes what one rank does,
// with the same bits in every batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "kernels/sampling/sampler.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/rank_driver.h"

namespace quire::golden {
namespace {

// Of the largest logit of a row. One rank and several are each within half of it from the exact
// result (parity_test.cc), on different sides at worst.
constexpr double kTolerance = 2e-5;
constexpr double kRecurrentTolerance = 2e-4;  // with the gated delta rule

std::string PathOf(const std::string& name) {
  const std::string path = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/" + name;
  return std::filesystem::exists(path + "/model.gguf") ? path + "/model.gguf" : path;
}

std::unique_ptr<model::Model> Open(const std::string& name) {
  auto model = model::LoadModel(PathOf(name), {.with_text = false});
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::vector<int32_t> TokensOf(const std::string& name) {
  return ReadGolden(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/" + name + "/golden.json")
      .tokens;
}

std::unique_ptr<RankDriver> Drive(model::Model& model, const RankDriver::Options& options) {
  std::string error;
  std::unique_ptr<RankDriver> driver = RankDriver::Make(model, options, error);
  EXPECT_NE(driver, nullptr) << error;
  return driver;
}

void ExpectSameBits(const std::vector<Row>& got, const std::vector<Row>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].logits, wanted[i].logits) << "other bits at position " << i;
    ASSERT_EQ(got[i].token, wanted[i].token) << "at position " << i;
  }
}

double Gap(const std::vector<float>& logits) {
  std::vector<float> best(2);
  std::partial_sort_copy(logits.begin(), logits.end(), best.begin(), best.end(),
                         std::greater<float>());
  return static_cast<double>(best[0]) - best[1];
}

// Logits within the tolerance; tokens equal wherever the gap is clear, which it nearly always is.
void ExpectParity(const std::vector<Row>& got, const std::vector<Row>& one, double tolerance) {
  ASSERT_EQ(got.size(), one.size());
  double error = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    double size = 0.0;
    double own = 0.0;
    ASSERT_EQ(got[i].logits.size(), one[i].logits.size());
    for (size_t id = 0; id < one[i].logits.size(); ++id) {
      size = std::max(size, std::abs(static_cast<double>(one[i].logits[id])));
      const double difference =
          std::abs(static_cast<double>(got[i].logits[id]) - one[i].logits[id]);
      own = difference <= own ? own : difference;  // NaN wins too
    }
    EXPECT_LE(own, tolerance * size) << "at position " << i;
    error = own <= error ? error : own;
  }
  size_t clear = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (Gap(one[i].logits) <= 10.0 * error) continue;
    ++clear;
    EXPECT_EQ(got[i].token, one[i].token) << "at position " << i;
  }
  EXPECT_GE(clear * 100, got.size() * 95);
}

struct Cut {
  int ranks = 1;
  bool whole_experts = false;
};

// All by which the model can be cut.
std::vector<Cut> CutsOf(model::Model& model) {
  std::vector<Cut> cuts;
  for (const int ranks : {2, 4, 8}) {
    if (ranks > model.config.heads) continue;
    for (const bool whole_experts : {false, true}) {
      if (whole_experts && model.config.experts.count < ranks) continue;
      // Blocks of quantised weights may be in the way: ShapesThatDoNotDivideAreNamed.
      // So may key heads of recurrent layers be.
      const bool may_not = model.files->is_gguf() || model.config.recurrent.Exists();
      const model::Rank first{0, ranks, false, whole_experts};
      if (may_not && !model.BuildRank(first).ok()) continue;
      cuts.push_back({ranks, whole_experts});
    }
  }
  return cuts;
}

class RanksTest : public testing::TestWithParam<std::string> {};

TEST_P(RanksTest, ComputeWhatOneDoesInAnyBatch) {
  const std::unique_ptr<model::Model> model = Open(GetParam());
  ASSERT_NE(model, nullptr);
  const std::vector<int32_t> tokens = TokensOf(GetParam());
  const int count = static_cast<int>(tokens.size());
  const std::vector<int32_t> others(tokens.rbegin(), tokens.rend());
  const auto one = Drive(*model, {});
  ASSERT_NE(one, nullptr);
  const std::vector<Row> wanted = one->Step({{0, 0, tokens}});
  for (const auto& [ranks, whole_experts] : CutsOf(*model)) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, whole experts " << whole_experts);
    RankDriver::Options options{.ranks = ranks, .threads = 2, .sequences = 2};
    options.whole_experts = whole_experts;
    const auto driver = Drive(*model, options);
    ASSERT_NE(driver, nullptr);
    const std::vector<Row> whole = driver->Step({{0, 0, tokens}});
    const bool long_sums = model->config.recurrent.kind == load::RecurrentConfig::Kind::kGatedDelta;
    ExpectParity(whole, wanted, long_sums ? kRecurrentTolerance : kTolerance);
    // In chunks, beside another sequence that stands before it in every step.
    std::vector<Row> chunked;
    for (int begin = 0; begin < count; begin += 9) {
      const auto size = static_cast<size_t>(std::min(9, count - begin));
      const auto from = static_cast<size_t>(begin);
      const std::vector<Row> rows =
          driver->Step({{1, begin, std::span(others).subspan(from, size)},
                        {0, begin, std::span(tokens).subspan(from, size)}});
      chunked.insert(chunked.end(), rows.begin() + static_cast<int64_t>(size), rows.end());
    }
    ExpectSameBits(chunked, whole);
    // Another run, the end token by token, with another number of threads.
    options.threads = options.sequences = 1;
    const auto again = Drive(*model, options);
    const size_t prompt = tokens.size() - 6;
    std::vector<Row> decoded = again->Step({{0, 0, std::span(tokens).first(prompt)}});
    for (size_t i = prompt; i < tokens.size(); ++i) {
      decoded.push_back(
          again->Step({{0, static_cast<int>(i), std::span(tokens).subspan(i, 1)}}).front());
    }
    ExpectSameBits(decoded, whole);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RanksTest, testing::ValuesIn(Fixtures()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Ranks, CutQuantisedModelsBetweenBlocks) {
  for (const char* name : {"gguf-qwen2", "gguf-qwen3", "gguf-gemma3"}) {
    const std::unique_ptr<model::Model> model = Open(name);
    ASSERT_NE(model, nullptr);
    EXPECT_TRUE(model->BuildRank({1, 2}).ok()) << name;
  }
}

// A block of 32 is all the width that an expert has, or it does not divide into blocks.
TEST(Ranks, DivideExpertsWhoseWidthTheyCannotDivide) {
  const std::unique_ptr<model::Model> model = Open("gguf-gemma4-moe");
  ASSERT_NE(model, nullptr);
  const auto cut = model->BuildRank({0, 2});
  ASSERT_FALSE(cut.ok());
  EXPECT_NE(StatusMessage(cut.status()).find(", or --enable-expert-parallel"), std::string::npos)
      << cut.status();
  // Five of them: the first rank has three.
  for (const int rank : {0, 1}) {
    const auto program = model->BuildRank({rank, 2, false, true});
    ASSERT_TRUE(program.ok()) << program.status();
    for (const kernels::Op& op : program->ops) {
      const auto* moe = std::get_if<kernels::MoeOp>(&op);
      if (moe == nullptr) continue;
      EXPECT_EQ(moe->experts.size(), rank == 0 ? 3u : 2u);
      EXPECT_EQ(moe->first_expert, rank == 0 ? 0 : 3);
      EXPECT_EQ(moe->ExpertCount(), 5);
    }
  }
}

TEST(Ranks, WholeExpertsThatDoNotSufficeAreNamed) {
  const auto moe = Open("gemma4-moe");
  const auto dense = Open("llama-tied-mha");
  ASSERT_TRUE(moe != nullptr && dense != nullptr);
  const auto none = dense->BuildRank({0, 2, false, true});
  EXPECT_NE(StatusMessage(none.status())
                .find("has no experts for ranks to divide; leave out "
                      "--enable-expert-parallel"),
            std::string::npos)
      << none.status();
  moe->config.experts.count = 3;
  const auto many = moe->BuildRank({0, 4, false, true});
  EXPECT_NE(StatusMessage(many.status())
                .find("3 experts do not suffice for 4 ranks; use --tensor-parallel-size 1 or 2"),
            std::string::npos)
      << many.status();
}

// What cannot be cut is refused in one line with what was found and what works.
TEST(Ranks, ShapesThatDoNotDivideAreNamed) {
  const struct {
    const char* name;
    int ranks;
    const char* saying;
  } kRefused[] = {
      {"gemma3-layer-types", 4, "2 attention heads do not divide among 4 ranks"},
      {"llama-tied-mha", 3, "4 attention heads do not divide among 3 ranks"},
      {"gguf-qwen2", 4,
       "heads of 16, 1 for each of 4 ranks, do not end on a border of blocks of 32"},
      {"gguf-qwen3", 4, "an intermediate size of 96 has 3 blocks of 32 for 4 ranks, "},
      {"gguf-llama-all-types", 2, "\"blk.1.ffn_down.weight\" is Q5_K"},
      {"qwen3-next", 4, "2 key heads of recurrent layers do not divide among 4 ranks"},
      {"llama-tied-mha", 65, "65 are too many ranks"},
  };
  for (const auto& refused : kRefused) {
    SCOPED_TRACE(refused.name);
    const std::unique_ptr<model::Model> model = Open(refused.name);
    ASSERT_NE(model, nullptr);
    const auto program = model->BuildRank({0, refused.ranks});
    ASSERT_FALSE(program.ok());
    EXPECT_EQ(program.status().code(), absl::StatusCode::kInvalidArgument);
    const std::string message = StatusMessage(program.status());
    EXPECT_NE(message.find(refused.saying), std::string::npos) << message;
    EXPECT_NE(message.find("; use --tensor-parallel-size 1"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
    // The same for a rank that loads the model itself.
    const auto loaded = model::LoadModel(
        PathOf(refused.name), {.with_text = false, .rank = {refused.ranks - 1, refused.ranks}});
    EXPECT_EQ(loaded.status(), program.status());
  }
}

TEST(Ranks, IdentityIsThatOfTheModel) {
  const auto whole = model::LoadModel(PathOf("llama-tied-mha"), {.with_text = false});
  const auto part =
      model::LoadModel(PathOf("llama-tied-mha"), {.with_text = false, .rank = {1, 2}});
  ASSERT_TRUE(whole.ok() && part.ok());
  EXPECT_EQ((*whole)->model_id, (*part)->model_id);
  EXPECT_EQ((*part)->program.rank, 1);
  EXPECT_EQ((*part)->program.vocab_size, (*whole)->program.vocab_size);
}

TEST(Ranks, EachNeedsLessMemoryTheMoreThereAre) {
  for (const char* name : {"mistral-full", "gemma3-pattern", "qwen3-tied-gqa8"}) {
    SCOPED_TRACE(name);
    const std::unique_ptr<model::Model> model = Open(name);
    ASSERT_NE(model, nullptr);
    const auto one = Drive(*model, {});
    const bool few_kv_heads = model->config.kv_heads < 4;
    for (const int ranks : {2, 4}) {
      const auto driver = Drive(*model, {.ranks = ranks});
      for (int rank = 0; rank < ranks; ++rank) {
        // Norms are no smaller, nor are heads that several hold, and 16 rows are the least kept.
        EXPECT_LE(driver->program(rank).WeightBytes() * ranks,
                  one->program(0).WeightBytes() * 3 / 2)
            << rank << " of " << ranks;
        // Who plans memory for the first rank plans for all.
        EXPECT_LE(driver->program(rank).WeightBytes(), driver->program(0).WeightBytes());
        if (few_kv_heads) continue;
        EXPECT_EQ(driver->program(rank).PoolBytes() * ranks, one->program(0).PoolBytes());
      }
    }
  }
}

// A group that was aborted ends every step at once, and says so.
TEST(Ranks, AFailedCollectiveEndsTheStep) {
  const std::unique_ptr<model::Model> model = Open("gemma3-pattern");
  ASSERT_NE(model, nullptr);
  const std::vector<int32_t> tokens = TokensOf("gemma3-pattern");
  const auto driver = Drive(*model, {.ranks = 2});
  driver->Step({{0, 0, tokens}});
  driver->Abort();
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(driver->StepOfFailedGroup(tokens), kernels::CommFailure::kAborted);
    for (const kernels::SampleOutput& output : driver->outputs()) EXPECT_EQ(output.token, -1);
  }
}

// The exchange of the ranks against the sampler that sees the logits of all.
TEST(Ranks, SampleAsOneWouldFromTheLogitsOfAll) {
  const std::unique_ptr<model::Model> model = Open("qwen2-untied");
  ASSERT_NE(model, nullptr);
  const std::vector<int32_t> tokens = TokensOf("qwen2-untied");
  const auto driver = Drive(*model, {.ranks = 4});
  std::vector<kernels::SampleRow> hows(5);
  hows[1].top_k = 20;
  hows[2].top_p = 0.8f;
  hows[3].typical_p = 0.7f;
  hows[4].min_p = 0.02f;
  hows[4].top_p = 0.95f;
  const std::vector<kernels::TokenCount> counts = {{3, 2}, {70, 0}, {200, 1}};
  const std::vector<kernels::TokenBias> bias = {{5, 2.0f}, {130, -4.0f}};
  for (kernels::SampleRow& how : hows) {
    how.temperature = 1.4f;
    how.seed = 77;
    how.logprobs = 1 + 20;
    how.repetition_penalty = 1.2f;
    how.presence_penalty = 0.5f;
    how.token_counts = counts;
    how.logit_bias = bias;
    const std::vector<Row> rows = driver->Step({{0, 0, tokens}}, &how);
    kernels::sampling::Sampler sampler;
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<float> logits = rows[i].logits;
      how.output_index = i;
      kernels::SampleOutput wanted;
      sampler.Sample(logits, how, wanted);
      const kernels::SampleOutput& got = driver->outputs()[i];
      EXPECT_EQ(got.token, wanted.token);
      EXPECT_EQ(std::bit_cast<uint32_t>(got.logprob), std::bit_cast<uint32_t>(wanted.logprob));
      ASSERT_EQ(got.top_count, 20);
      for (int k = 0; k < 20; ++k) {
        EXPECT_EQ(got.top_ids[k], wanted.top_ids[k]);
        EXPECT_EQ(got.top_logprobs[k], wanted.top_logprobs[k]);
      }
    }
  }
}

}  // namespace
}  // namespace quire::golden
