// Quantised checkpoints compute what their dequantised weights compute, and stay quantised in
// memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/expand.h"
#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

using kernels::DType;

constexpr double kToleranceOfRow = 1e-5;  // of the largest logit of a row

struct Quantised {
  const char* name;
  DType form;  // of its quantised matrices
  // How many: seven of each layer, less what an ignore list names.
  int matrices = 14;
  int floats = 0;  // those that become float32 where others do not
  DType second = form;
};
// Each fixture of tests/golden/quantised. What no form fits, groups of inputs that are no
// neighbours and rows that are no whole runs of 32, is float32.
constexpr Quantised kQuantisedFixtures[] = {
    {"fp8-blocks", DType::kF8},
    // Seven and the values of four heads; the keys of heads are transposed.
    {"fp8-blocks-latent", DType::kF8, 30, 8},
    {"fp8-static", DType::kF8},
    // An intermediate size of 150 is no whole number of runs of 32.
    {"compressed-fp8-channel", DType::kF8, 13, 2},
    {"compressed-w4a16-g128", DType::kG4_128, 13},
    {"compressed-w4a16-g32-asymmetric", DType::kG4, 13},
    {"compressed-w8a16-channel", DType::kG8, 13},
    {"compressed-w8a8-int8", DType::kG8, 13},
    {"gptq-4bit-g128-v1", DType::kG4_128},
    {"gptq-4bit-g64-sym", DType::kG4},
    {"gptq-4bit-act-order", DType::kG4},
    {"gptq-8bit-v2", DType::kG8},
    {"gptq-3bit", DType::kG4},
    {"gptq-2bit", DType::kG4},
    // A layer of eight bits, and a projection that stays as it is.
    {"gptq-dynamic", DType::kG4, 13, 0, DType::kG8},
    {"awq-g128", DType::kG4_128},
    {"awq-symmetric", DType::kG4, 7},
    {"compressed-nvfp4", DType::kF4_16, 13},
    // Four of attention, and three of each expert.
    {"compressed-mxfp4-experts", DType::kMXFP4, 13},
    {"modelopt-nvfp4", DType::kF4_16},
    // Rows of 96 inputs are no whole number of blocks of 64.
    {"bnb-nf4-double", DType::kNF4, 7, 1},
    {"bnb-fp4", DType::kFP4, 7},
    {"bnb-int8", DType::kG8},
};

std::string QuantisedFolder(const std::string& name) {
  return SourceFolder() + "/tests/golden/quantised/" + name;
}

std::unique_ptr<model::Model> LoadQuantised(const std::string& name, bool writers_only = false) {
  auto model = model::LoadModel(QuantisedFolder(name), {.with_text = false});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return nullptr;
  const absl::Status filled = (*model)->FillWeights(writers_only);
  EXPECT_TRUE(filled.ok()) << filled;
  return filled.ok() ? *std::move(model) : nullptr;
}

class QuantisedTest : public testing::TestWithParam<Quantised> {};

// The prompt in one pass, then one token at a time: every token and the kept rows' logits.
TEST_P(QuantisedTest, LogitsAndTokensOfTheDequantisedWeights) {
  const Golden golden = ReadGolden(QuantisedFolder(GetParam().name) + "/golden.json");
  const std::unique_ptr<model::Model> model =
      LoadQuantised(GetParam().name, /*writers_only=*/true);  // as a worker on a CPU loads them
  ASSERT_NE(model, nullptr);
  std::map<int, Row> first;
  for (const char* isa : {"reference", "avx2", "auto"}) {
    SCOPED_TRACE(isa);
    std::string error;
    const std::unique_ptr<Driver> driver = Driver::Make(*model, {.isa = isa}, error);
    ASSERT_NE(driver, nullptr) << error;
    std::map<int, Row> rows;
    const std::span<const int32_t> tokens(golden.tokens);
    const auto prompt = static_cast<size_t>(golden.prompt_length);
    rows[golden.prompt_length - 1] =
        driver->Feed(tokens.first(prompt), std::vector<int32_t>{golden.prompt_length - 1}).front();
    for (size_t i = prompt; i + 1 < tokens.size(); ++i) {
      rows[static_cast<int>(i)] =
          driver->Feed(tokens.subspan(i, 1), std::vector<int32_t>{0}).front();
    }
    for (const GoldenRow& wanted : golden.rows) {
      const std::vector<float>& got = rows.at(wanted.position).logits;
      ASSERT_EQ(got.size(), wanted.logits.size());
      double error_size = 0.0, size = 0.0;
      for (size_t i = 0; i < got.size(); ++i) {
        const double difference = std::abs(static_cast<double>(got[i]) - wanted.logits[i]);
        error_size = std::isnan(difference) ? HUGE_VAL : std::max(error_size, difference);
        size = std::max(size, std::abs(static_cast<double>(wanted.logits[i])));
      }
      EXPECT_LE(error_size, kToleranceOfRow * size) << "at position " << wanted.position;
    }
    for (const auto& [position, row] : rows) {
      ASSERT_EQ(row.token, golden.tokens[static_cast<size_t>(position) + 1]) << position;
    }
    if (first.empty()) first = rows;
    for (const auto& [position, row] : first) ASSERT_EQ(row.logits, rows.at(position).logits);
  }
}

TEST_P(QuantisedTest, MatricesHaveTheirForm) {
  const std::unique_ptr<model::Model> model = LoadQuantised(GetParam().name);
  ASSERT_NE(model, nullptr);
  const model::WeightMemory::QuantisedCount& count = model->memory->quantised();
  EXPECT_EQ(count.kept + count.as_float32, GetParam().matrices);
  int of_form = 0;
  for (const kernels::Weight& weight : model->program.weights) {
    for (const kernels::WeightSource& part : weight.parts) {
      const bool kept = part.type == GetParam().form || part.type == GetParam().second;
      if (kept && part.rows > 1) ++of_form;
    }
  }
  const int floats = GetParam().form == DType::kF32 ? GetParam().matrices : GetParam().floats;
  EXPECT_EQ(of_form, GetParam().matrices - GetParam().floats);
  EXPECT_EQ(count.as_float32, floats);
}

// Two ranks' parts of a matrix lie side by side as one rank has them, or the cut is refused by
// name.
TEST_P(QuantisedTest, RanksHaveTheirPartsOrANamedRefusal) {
  auto second = model::LoadModel(QuantisedFolder(GetParam().name),
                                 {.with_text = false, .rank = {.rank = 1, .ranks = 2}});
  const int block = kernels::BlockElements(GetParam().form);
  if (block > 32) {  // half of the heads, or of the intermediate size, has less than one
    ASSERT_FALSE(second.ok());
    const std::string said(second.status().message());
    EXPECT_NE(said.find("do not end on a border of blocks of " + std::to_string(block)),
              std::string::npos)
        << said;
    EXPECT_NE(said.find(std::string("is quantised as ") + kernels::DTypeName(GetParam().form)),
              std::string::npos)
        << said;
    EXPECT_NE(second.status().message().find("use --tensor-parallel-size 1"), std::string::npos);
    return;
  }
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE((*second)->FillWeights().ok());
  const std::unique_ptr<model::Model> whole = LoadQuantised(GetParam().name);
  ASSERT_NE(whole, nullptr);
  int compared = 0;
  for (const kernels::Weight& all : whole->program.weights) {
    const auto part = std::ranges::find_if((*second)->program.weights, [&](const auto& own) {
      return own.name == all.name && own.rows == all.rows;
    });
    if (part == (*second)->program.weights.end()) continue;
    if (all.parts.size() != 1 || all.rows == 1 || part->cols == all.cols) continue;
    const kernels::WeightSource& from = all.parts[0];
    const kernels::WeightSource& got = part->parts[0];
    if (from.order != nullptr) {  // a rank's inputs are of many groups: they stay in their order
      ASSERT_EQ(got.type, DType::kF32) << all.name;
      std::vector<float> row(static_cast<size_t>(from.cols));
      for (int64_t i = 0; i < from.rows; ++i) {
        kernels::ExpandRow(from, i, row);
        ASSERT_EQ(std::memcmp(row.data() + from.cols - got.cols, got.Row(i),
                              static_cast<size_t>(got.RowBytes())),
                  0)
            << all.name << " row " << i;
      }
      ++compared;
      continue;
    }
    ASSERT_EQ(from.type, got.type) << all.name;
    const int64_t skipped =
        (from.cols - got.cols) / kernels::BlockElements(from.type) * kernels::BlockBytes(from.type);
    for (int64_t row = 0; row < from.rows; ++row) {
      ASSERT_EQ(
          std::memcmp(from.Row(row) + skipped, got.Row(row), static_cast<size_t>(got.RowBytes())),
          0)
          << all.name << " row " << row;
    }
    ++compared;
  }
  EXPECT_GE(compared, 2 * whole->config.layers);  // o and down
}

// Groups of inputs that are no neighbours keep their codes: 4 bits, not 32.
TEST(QuantisedOrder, CodesStayInTheOrderOfGroupsForEveryClass) {
  const Golden golden = ReadGolden(QuantisedFolder("gptq-4bit-act-order") + "/golden.json");
  const std::unique_ptr<model::Model> model = LoadQuantised("gptq-4bit-act-order", true);
  ASSERT_NE(model, nullptr);
  int ordered = 0;
  for (const kernels::Weight& weight : model->program.weights) {
    for (const kernels::WeightSource& part : weight.parts) ordered += part.order != nullptr ? 1 : 0;
  }
  EXPECT_EQ(ordered, 14);
  const std::span<const int32_t> prompt =
      std::span(golden.tokens).first(static_cast<size_t>(golden.prompt_length));
  const std::vector<int32_t> last = {golden.prompt_length - 1};
  for (const char* dtype : {"float32", "int8"}) {
    std::vector<float> first;
    for (const char* isa : {"reference", "avx2", "auto"}) {
      SCOPED_TRACE(std::string(dtype) + " " + isa);
      std::string error;
      const auto driver = Driver::Make(*model, {.isa = isa, .activation_dtype = dtype}, error);
      ASSERT_NE(driver, nullptr) << error;
      const std::vector<float> logits = driver->Feed(prompt, last).front().logits;
      if (first.empty()) first = logits;
      EXPECT_EQ(logits, first);
    }
    const GoldenRow& wanted = golden.rows.front();
    ASSERT_EQ(wanted.position, golden.prompt_length - 1);
    double error = 0.0, size = 0.0;
    for (size_t i = 0; i < first.size(); ++i) {
      error = std::max(error, std::abs(static_cast<double>(first[i]) - wanted.logits[i]));
      size = std::max(size, std::abs(static_cast<double>(wanted.logits[i])));
    }
    const bool exact = std::string(dtype) == "float32";
    EXPECT_LE(error, (exact ? 1e-5 : 0.05) * size) << dtype;
    if (!exact) {
      EXPECT_GT(error, 1e-5 * size) << "activations are rounded";
    }
  }
  std::string error;
  const auto backend = kernels::MakeCpuBackend({}, error);
  ASSERT_NE(backend, nullptr) << error;
  EXPECT_TRUE(backend->NumericsClass(model->program).ends_with("-float32"));
}

// The experts of gpt-oss and matrices of NVFP4 with a scale more: no memory holds them between file
// and panels.
TEST(QuantisedRows, OneTensorOfAllExpertsIsPackedFromItsFile) {
  for (const std::string name : {"gpt-oss-mxfp4", "gguf-llama-nvfp4"}) {
    SCOPED_TRACE(name);
    const std::string folder = SourceFolder() + "/tests/golden/models/" + name;
    const std::string path = name == "gpt-oss-mxfp4" ? folder : folder + "/model.gguf";
    std::vector<float> first;
    for (const bool writers_only : {false, true}) {
      auto loaded = model::LoadModel(path, {.with_text = false});
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      const std::unique_ptr<model::Model> model = *std::move(loaded);
      ASSERT_TRUE(model->FillWeights(writers_only).ok());
      int written_later = 0;
      for (const kernels::Weight& weight : model->program.weights) {
        for (const kernels::WeightSource& part : weight.parts) {
          if (part.writer == nullptr) continue;
          const std::span bytes(part.data, static_cast<size_t>(part.Bytes()));
          const bool empty =
              std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{}; });
          EXPECT_EQ(empty, writers_only) << weight.name;
          ++written_later;
        }
      }
      EXPECT_GT(written_later, 0);
      std::string error;
      const auto driver = Driver::Make(*model, {}, error);
      ASSERT_NE(driver, nullptr) << error;
      const std::vector<int32_t> prompt = {5, 9, 17, 4, 200, 31}, last = {5};
      const std::vector<float> logits = driver->Feed(prompt, last).front().logits;
      if (first.empty()) first = logits;
      EXPECT_EQ(logits, first);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, QuantisedTest, testing::ValuesIn(kQuantisedFixtures),
                         [](const testing::TestParamInfo<Quantised>& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(QuantisedFixtures, EveryFolderIsTested) {
  std::vector<std::string> named, found;
  for (const Quantised& fixture : kQuantisedFixtures) named.emplace_back(fixture.name);
  for (const auto& entry : std::filesystem::directory_iterator(QuantisedFolder(""))) {
    if (entry.is_directory() && entry.path().filename() != "__pycache__") {
      found.push_back(entry.path().filename());
    }
  }
  std::ranges::sort(named);
  std::ranges::sort(found);
  EXPECT_EQ(named, found);
}

}  // namespace
}  // namespace quire::golden
