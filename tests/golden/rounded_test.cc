// Checkpoints that ask for rounded activations, whole models in the class w8a8: the rounding moves
// logits as far as the reference implementation's does, and towards the same numbers.
// tests/golden/quantised/make_rounded_goldens.py wrote what that does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/json/json.h"
#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/rank_driver.h"
#include "worker/model/model.h"

namespace quire::golden {
namespace {

constexpr double kMostOfReference = 1.1;  // the median error, as a multiple of the reference's
// The median distance from the reference's rounded logits, as a share of the error itself: where a
// value lies between two codes, two correct computations may take different ones.
constexpr double kMostApart = 0.5;

using Logits = std::vector<std::vector<float>>;  // by position

std::string Folder(const std::string& name) {
  return SourceFolder() + "/tests/golden/quantised/" + name;
}

std::unique_ptr<model::Model> Load(const std::string& name) {
  auto model = model::LoadModel(Folder(name), {.with_text = false});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok() || !(*model)->FillWeights().ok()) return nullptr;
  return *std::move(model);
}

uint64_t Mix(uint64_t i) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

struct Text {
  int sequences = 0;
  int length = 0;
  std::vector<int32_t> tokens;
};

Text ReadText(const json::Object& file) {
  Text text;
  text.sequences = static_cast<int>(file.at("sequences").as_int64());
  text.length = static_cast<int>(file.at("length").as_int64());
  const auto vocab = static_cast<uint64_t>(file.at("vocab").as_int64());
  for (int i = 0; i < text.sequences * text.length; ++i) {
    text.tokens.push_back(static_cast<int32_t>(Mix(static_cast<uint64_t>(i)) % vocab));
  }
  return text;
}

// All logits; at most `step` tokens at a time.
Logits LogitsOf(const model::Model& model, const Text& text, const DriverOptions& options,
                int step) {
  std::string error;
  const std::unique_ptr<Driver> driver = Driver::Make(model, options, error);
  EXPECT_NE(driver, nullptr) << error;
  Logits logits;
  for (int sequence = 0; driver != nullptr && sequence < text.sequences; ++sequence) {
    driver->Reset();
    for (int begin = 0; begin < text.length; begin += step) {
      const int count = std::min(step, text.length - begin);
      std::vector<int32_t> wanted(static_cast<size_t>(count));
      std::iota(wanted.begin(), wanted.end(), 0);
      const std::span<const int32_t> tokens(text.tokens);
      const auto first = static_cast<size_t>(sequence * text.length + begin);
      for (Row& row : driver->Feed(tokens.subspan(first, wanted.size()), wanted)) {
        logits.push_back(std::move(row.logits));
      }
    }
  }
  return logits;
}

// ‖a − b‖ / ‖b‖
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0, size = 0.0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    size += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

class RoundedGolden : public testing::TestWithParam<const char*> {};

TEST_P(RoundedGolden, MovesLogitsAsTheReferenceDoes) {
  const json::Value file = *json::Parse(ReadFile(Folder("rounded.json")));
  const Text text = ReadText(file.as_object());
  ASSERT_GE(text.tokens.size(), 500u);
  const json::Object& wanted =
      file.as_object().at("fixtures").as_object().at(GetParam()).as_object();
  const std::unique_ptr<model::Model> model = Load(GetParam());
  ASSERT_NE(model, nullptr);
  const Logits plain = LogitsOf(*model, text, {}, text.length);
  const Logits rounded = LogitsOf(*model, text, {.activation_dtype = "w8a8"}, text.length);
  ASSERT_EQ(rounded.size(), text.tokens.size());
  std::vector<double> errors;
  for (size_t i = 0; i < plain.size(); ++i) errors.push_back(Distance(rounded[i], plain[i]));
  const double reference = wanted.at("error_quarters").as_array()[1].to_number<double>();
  RecordProperty("median_error", std::to_string(Median(errors)));
  RecordProperty("median_error_of_reference", std::to_string(reference));
  EXPECT_LE(Median(errors), kMostOfReference * reference);
  EXPECT_GE(Median(errors), reference / kMostOfReference);  // it does round
  std::vector<double> apart, moved;
  for (const json::Value& row : wanted.at("rows").as_array()) {
    const json::Object& fields = row.as_object();
    const auto at = static_cast<size_t>(fields.at("sequence").as_int64() * text.length +
                                        fields.at("position").as_int64());
    std::vector<float> logits;
    for (const json::Value& v : fields.at("logits").as_array()) {
      logits.push_back(v.to_number<float>());
    }
    apart.push_back(Distance(rounded[at], logits));
    moved.push_back(Distance(plain[at], logits));
  }
  RecordProperty("median_distance", std::to_string(Median(apart)));
  EXPECT_LE(Median(apart), kMostApart * Median(moved));
}

TEST_P(RoundedGolden, TheSameBitsInPiecesAndOnEveryInstructionSet) {
  const json::Value file = *json::Parse(ReadFile(Folder("rounded.json")));
  Text text = ReadText(file.as_object());
  text.sequences = 1;
  text.length = 60;
  const std::unique_ptr<model::Model> model = Load(GetParam());
  ASSERT_NE(model, nullptr);
  const Logits whole = LogitsOf(*model, text, {.activation_dtype = "w8a8"}, text.length);
  for (const char* isa : {"reference", "avx2", "auto"}) {
    for (const int step : {1, 7}) {
      const DriverOptions options{.isa = isa, .activation_dtype = "w8a8", .threads = step};
      EXPECT_EQ(LogitsOf(*model, text, options, step), whole) << isa << " by " << step;
    }
  }
}

// The scales of a rank are those of its own inputs, so that ranks round otherwise than one does:
// as far, and the same at any chunking.
TEST_P(RoundedGolden, TwoRanksRoundAsFar) {
  const json::Value file = *json::Parse(ReadFile(Folder("rounded.json")));
  Text text = ReadText(file.as_object());
  text.sequences = 1;
  text.length = 64;
  const std::unique_ptr<model::Model> model = Load(GetParam());
  ASSERT_NE(model, nullptr);
  const Logits plain = LogitsOf(*model, text, {}, text.length);
  const Logits one = LogitsOf(*model, text, {.activation_dtype = "w8a8"}, text.length);
  const auto shared = Load(GetParam());
  const auto on_two = [&](int step) {
    RankDriver::Options options;
    options.ranks = 2;
    options.make_backend = [] {
      std::string unused;
      return kernels::MakeCpuBackend({.threads = 1, .activation_dtype = "w8a8"}, unused);
    };
    std::string error;
    const auto driver = RankDriver::Make(*shared, options, error);
    EXPECT_NE(driver, nullptr) << error;
    Logits logits;
    for (int begin = 0; driver != nullptr && begin < text.length; begin += step) {
      const auto count = static_cast<size_t>(std::min(step, text.length - begin));
      const std::span<const int32_t> tokens(text.tokens);
      for (Row& row :
           driver->Step({{0, begin, tokens.subspan(static_cast<size_t>(begin), count)}})) {
        logits.push_back(std::move(row.logits));
      }
    }
    return logits;
  };
  const Logits two = on_two(text.length);
  EXPECT_EQ(on_two(5), two);
  std::vector<double> of_one, of_two;
  for (size_t i = 0; i < plain.size(); ++i) {
    of_one.push_back(Distance(one[i], plain[i]));
    of_two.push_back(Distance(two[i], plain[i]));
  }
  EXPECT_LE(Median(of_two), 1.25 * Median(of_one));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, RoundedGolden,
                         testing::Values("compressed-w8a8-int8", "compressed-fp8-channel",
                                         "fp8-blocks", "fp8-static"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Weights alone, and heads whose matrices are taken apart.
TEST(RoundedModels, ChecksWhatAsksForNothing) {
  std::string error;
  const std::unique_ptr<model::Model> model = Load("gptq-4bit-g64-sym");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(Driver::Make(*model, {.activation_dtype = "w8a8"}, error), nullptr);
  EXPECT_NE(error.find("this one asks for none; use"), std::string::npos) << error;
}

TEST(RoundedModels, LatentAttentionRoundsWhatItMultipliesWhole) {
  const json::Value file = *json::Parse(ReadFile(Folder("rounded.json")));
  Text text = ReadText(file.as_object());
  text.sequences = 1;
  text.length = 40;
  const std::unique_ptr<model::Model> model = Load("fp8-blocks-latent");
  ASSERT_NE(model, nullptr);
  const Logits plain = LogitsOf(*model, text, {}, text.length);
  const Logits rounded = LogitsOf(*model, text, {.activation_dtype = "w8a8"}, text.length);
  EXPECT_EQ(LogitsOf(*model, text, {.activation_dtype = "w8a8"}, 3), rounded);
  std::vector<double> errors;
  for (size_t i = 0; i < plain.size(); ++i) errors.push_back(Distance(rounded[i], plain[i]));
  EXPECT_GT(Median(errors), 0.005);
  EXPECT_LT(Median(errors), 0.3);
}

}  // namespace
}  // namespace quire::golden
