// Golden parity: every family computes what the reference implementation computes, on tiny random
// models.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

using kernels::DType;

// Of the largest logit of a row.
constexpr double kFloat32Tolerance = 1e-5;
// The reference's own two orders, in chunks and token by token, differ by about 1e-5.
constexpr double kRecurrentTolerance = 1e-4;

std::string Folder() { return std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models"; }

// Rows by position of one run over a golden's tokens: the prompt in chunks of `chunk`, then one by
// one. chunk 0: everything in one pass.
std::map<int, Row> RunTokens(Driver& driver, const Golden& golden, int chunk) {
  driver.Reset();
  std::map<int, Row> rows;
  // The last token is predicted, never fed.
  const std::span<const int32_t> tokens(golden.tokens.data(), golden.tokens.size() - 1);
  size_t begin = 0;
  while (begin < tokens.size()) {
    const auto prompt = static_cast<size_t>(golden.prompt_length);
    size_t count = 1;
    if (chunk == 0) {
      count = tokens.size();
    } else if (begin < prompt) {
      count = std::min(static_cast<size_t>(chunk), prompt - begin);
    }
    std::vector<int32_t> wanted;
    for (size_t i = 0; i < count; ++i) {
      if (begin + i + 1 >= prompt) wanted.push_back(static_cast<int32_t>(i));
    }
    const std::vector<Row> results = driver.Feed(tokens.subspan(begin, count), wanted);
    for (size_t i = 0; i < wanted.size(); ++i) {
      rows[static_cast<int>(begin) + wanted[i]] = results[i];
    }
    begin += count;
  }
  return rows;
}

double LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN wins too
  }
  return largest;
}

double LargestSize(const std::vector<float>& a) {
  double largest = 0.0;
  for (float value : a) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return largest;
}

// One fixture: its model and what it must compute.
class Fixture {
 public:
  explicit Fixture(const std::string& name,
                   std::optional<kernels::DType> float_type = std::nullopt) {
    std::string path = Folder() + "/" + name;
    golden_ = ReadGolden(path + "/golden.json");
    if (std::filesystem::exists(path + "/model.gguf")) path += "/model.gguf";
    auto model = model::LoadModel(
        path,
        {.with_text = false, .float_type = float_type, .max_model_len = golden_.max_model_len});
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok() || !(*model)->FillWeights().ok()) return;
    model_ = *std::move(model);
  }
  const model::Model& model() const { return *model_; }
  const Golden& golden() const { return golden_; }

  // Holds logits and greedy tokens of one run against the golden.
  void ExpectFloat32(const std::map<int, Row>& rows) const {
    const bool long_sums =
        model_->config.recurrent.kind == load::RecurrentConfig::Kind::kGatedDelta;
    const double tolerance = long_sums ? kRecurrentTolerance : kFloat32Tolerance;
    for (const GoldenRow& row : golden_.rows) {
      const Row& got = rows.at(row.position);
      ASSERT_EQ(got.logits.size(), row.logits.size());
      EXPECT_LE(LargestDifference(got.logits, row.logits), tolerance * LargestSize(row.logits))
          << "at position " << row.position;
    }
    for (size_t i = static_cast<size_t>(golden_.prompt_length); i < golden_.tokens.size(); ++i) {
      ASSERT_EQ(rows.at(static_cast<int>(i) - 1).token, golden_.tokens[i]) << "at position " << i;
    }
  }

  // The bfloat16 rule: no further from float32 than twice the reference's own bfloat16.
  void ExpectBfloat16(const std::map<int, Row>& rows) const {
    for (const GoldenRow& row : golden_.rows) {
      const Row& got = rows.at(row.position);
      const double bound = 2.0 * row.bfloat16_error;
      EXPECT_LE(LargestDifference(got.logits, row.logits), bound) << "at position " << row.position;
      if (row.gap > 2.0 * bound) {
        EXPECT_EQ(got.token, golden_.tokens[static_cast<size_t>(row.position) + 1])
            << "at position " << row.position;
      }
    }
  }

  bool ok() const { return model_ != nullptr; }

 private:
  Golden golden_;
  std::unique_ptr<model::Model> model_;
};

class ParityTest : public testing::TestWithParam<std::string> {
 protected:
  ParityTest() : fixture_(GetParam()) {}
  void SetUp() override { ASSERT_TRUE(fixture_.ok()); }

  Fixture fixture_;
};

// On every instruction set of the host, which must also agree with each other bit for bit.
TEST_P(ParityTest, Float32LogitsAndTokensAtAnyChunking) {
  std::map<int, Row> first;
  for (const char* isa : {"reference", "avx2", "auto"}) {
    SCOPED_TRACE(isa);
    std::string error;
    const std::unique_ptr<Driver> driver = Driver::Make(fixture_.model(), {.isa = isa}, error);
    ASSERT_NE(driver, nullptr) << error;
    if (first.empty()) {
      first = RunTokens(*driver, fixture_.golden(), 0);
      fixture_.ExpectFloat32(first);
    }
    for (int chunk : {0, 1, 7, 16, 33}) {
      SCOPED_TRACE(chunk);
      const std::map<int, Row> rows = RunTokens(*driver, fixture_.golden(), chunk);
      for (const auto& [position, row] : first) {
        ASSERT_EQ(row.logits, rows.at(position).logits) << "other bits at position " << position;
        ASSERT_EQ(row.token, rows.at(position).token) << "at position " << position;
      }
    }
  }
}

TEST_P(ParityTest, OtherBlockSizesGiveTheSameBits) {
  std::string error;
  std::map<int, Row> first;
  for (int block_size : {16, 32, 64}) {
    SCOPED_TRACE(block_size);
    const std::unique_ptr<Driver> driver =
        Driver::Make(fixture_.model(), {.block_size = block_size, .threads = 1}, error);
    ASSERT_NE(driver, nullptr) << error;
    const std::map<int, Row> rows = RunTokens(*driver, fixture_.golden(), 16);
    if (first.empty()) first = rows;
    for (const auto& [position, row] : first) {
      ASSERT_EQ(row.logits, rows.at(position).logits) << "at position " << position;
    }
  }
}

TEST_P(ParityTest, Bfloat16KeysAndValues) {
  std::string error;
  const std::unique_ptr<Driver> driver =
      Driver::Make(fixture_.model(), {.kv_type = kernels::KvType::kBF16}, error);
  ASSERT_NE(driver, nullptr) << error;
  fixture_.ExpectBfloat16(RunTokens(*driver, fixture_.golden(), 16));
}

TEST(ParityFixtures, Bfloat16Activations) {
  for (const std::string& name : Fixtures()) {
    SCOPED_TRACE(name);
    const Fixture fixture(name);
    ASSERT_TRUE(fixture.ok());
    std::string error;
    const std::unique_ptr<Driver> driver =
        Driver::Make(fixture.model(),
                     {.activation_dtype = "bfloat16", .kv_type = kernels::KvType::kBF16}, error);
    if (driver == nullptr) GTEST_SKIP() << "no bfloat16 activations: " << error;
    fixture.ExpectBfloat16(RunTokens(*driver, fixture.golden(), 16));
  }
}

// Routers keep their type.
std::set<kernels::WeightId> RoutersOf(const kernels::StepProgram& program) {
  std::set<kernels::WeightId> routers;
  for (const kernels::Op& op : program.ops) {
    if (const auto* moe = std::get_if<kernels::MoeOp>(&op)) routers.insert(moe->router);
  }
  return routers;
}

// Weights of another type than the file's: what is wider changes nothing, what is narrower no more
// than the reference's own bfloat16 does.
TEST(ParityFixtures, ConvertedWeights) {
  int converted = 0;
  for (const std::string& name : Fixtures()) {
    for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(name + " in " + kernels::DTypeName(type));
      const Fixture fixture(name, type);
      ASSERT_TRUE(fixture.ok());
      const std::set<kernels::WeightId> routers = RoutersOf(fixture.model().program);
      for (const kernels::Weight& weight : fixture.model().program.weights) {
        if (weight.rows == 1) continue;  // joined vectors are float32, with rounded values
        const auto id = &weight - fixture.model().program.weights.data();
        if (routers.count(static_cast<kernels::WeightId>(id)) > 0) continue;
        for (const kernels::WeightSource& part : weight.parts) {
          EXPECT_TRUE(part.type == type || kernels::BlockElements(part.type) > 1) << weight.name;
        }
      }
      if (fixture.model().memory->converted_to() == type) ++converted;
      std::string error;
      const std::unique_ptr<Driver> driver = Driver::Make(fixture.model(), {}, error);
      ASSERT_NE(driver, nullptr) << error;
      const std::map<int, Row> rows = RunTokens(*driver, fixture.golden(), 16);
      if (type == DType::kF32) {
        fixture.ExpectFloat32(rows);
      } else {
        fixture.ExpectBfloat16(rows);
      }
    }
  }
  EXPECT_GE(converted, 2 * static_cast<int>(Fixtures().size()) - 4);
}

INSTANTIATE_TEST_SUITE_P(Models, ParityTest, testing::ValuesIn(Fixtures()),
                         [](const testing::TestParamInfo<std::string>& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

// Every family has a golden in each format in which it has a name.
TEST(ParityFixtures, EveryFamilyIsTested) {
  std::set<std::string_view> named;
  std::set<std::string_view> named_in_gguf;
  for (const model::Family* family : model::ServedFamilies()) {
    named.insert(family->name);
    if (!family->gguf.architecture.empty()) named_in_gguf.insert(family->name);
  }
  std::set<std::string_view> found;
  std::set<std::string_view> found_in_gguf;
  for (const std::string& name : Fixtures()) {
    const Fixture fixture(name);
    ASSERT_TRUE(fixture.ok());
    const model::Model& model = fixture.model();
    (model.files->is_gguf() ? found_in_gguf : found).insert(model.family->name);
  }
  EXPECT_EQ(found, named);
  EXPECT_EQ(found_in_gguf, named_in_gguf);
}

}  // namespace
}  // namespace quire::golden
