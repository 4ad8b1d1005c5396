#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "cli/models/output_folder.h"
#include "cli/models/weight_files.h"
#include "cli/models/weight_gguf.h"
#include "cli/models/weight_layouts.h"
#include "common/json/json.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

class Weights : public testing::Test {
 protected:
  Weights() {
    char path[] = "/tmp/quire_weights_XXXXXX";
    root_ = mkdtemp(path);
    options_.shape = FindShape("tiny-llama");
    options_.layers = options_.shape->layers;
    options_.folder = root_ + "/model";
  }
  ~Weights() override { fs::remove_all(root_); }

  std::string Read(const std::string& name) const {
    std::ifstream file(options_.folder + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The bytes of one tensor of a *.safetensors, found by its head.
  std::string Tensor(const std::string& file, const std::string& name) const {
    const std::string text = Read(file);
    uint64_t head = 0;
    std::memcpy(&head, text.data(), 8);
    const auto parsed = json::Parse(std::string_view(text).substr(8, head));
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    const json::Value* entry = json::Find(parsed->as_object(), name);
    if (entry == nullptr) return "";
    const json::Array& offsets = entry->as_object().at("data_offsets").as_array();
    const size_t begin = static_cast<size_t>(offsets[0].as_int64());
    return text.substr(8 + head + begin, static_cast<size_t>(offsets[1].as_int64()) - begin);
  }

  std::string root_;
  WeightFilesOptions options_;
};

float FloatFromHalf(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const float fraction = static_cast<float>(half & 0x3ff);
  const float magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024.0f, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(WeightValues, HalvesRoundToNearestTiesToEven) {
  for (uint32_t half = 0; half < 0x7c00; ++half) {
    const uint16_t bits = static_cast<uint16_t>(half);
    const float value = FloatFromHalf(bits);
    ASSERT_EQ(HalfFromFloat(value), bits);
    ASSERT_EQ(HalfFromFloat(-value), bits | 0x8000);
    if (half == 0x7bff) continue;
    const float next = FloatFromHalf(static_cast<uint16_t>(half + 1));
    const float middle = (value + next) / 2;  // exact in a float
    ASSERT_EQ(HalfFromFloat(middle), half + (half & 1)) << half;
    ASSERT_EQ(HalfFromFloat(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(HalfFromFloat(std::nextafter(middle, 1e9f)), half + 1);
  }
  EXPECT_EQ(HalfFromFloat(65'520.0f), 0x7c00);
  EXPECT_EQ(HalfFromFloat(1e9f), 0x7c00);
  EXPECT_EQ(HalfFromFloat(-1e-20f), 0x8000);
}

TEST(WeightValues, BrainFloatsRoundToNearestTiesToEven) {
  EXPECT_EQ(BrainFromFloat(1.0f), 0x3f80);
  EXPECT_EQ(BrainFromFloat(std::bit_cast<float>(0x3f808000u)), 0x3f80);
  EXPECT_EQ(BrainFromFloat(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(BrainFromFloat(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(BrainFromFloat(std::bit_cast<float>(0xbf80ffffu)), 0xbf81);
}

TEST(WeightValues, HaveTheSpreadThatIsAskedFor) {
  constexpr size_t kCount = 200'000;
  std::vector<float> values(kCount);
  FillWeights(TensorKey(7, "a"), 0, {0.5f, 0.25f}, WeightType::kF32,
              std::as_writable_bytes(std::span(values)));
  double sum = 0, squares = 0, largest = 0;
  for (const float value : values) {
    const double centred = static_cast<double>(value) - 0.5;
    sum += centred;
    squares += centred * centred;
    largest = std::max(largest, std::abs(centred));
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.003);
  EXPECT_NEAR(std::sqrt(squares / kCount), 0.25, 0.002);
  EXPECT_LT(largest, 0.25 * 3.47);  // four uniform words reach no further
  EXPECT_GT(largest, 0.25 * 3.0);
}

TEST(WeightValues, FollowFromSeedNameAndPlaceAlone) {
  std::vector<std::byte> whole(2000), part(500), other(2000);
  const uint64_t key = TensorKey(0, "model.norm.weight");
  FillWeights(key, 0, {1.0f, 0.05f}, WeightType::kBf16, whole);
  FillWeights(key, 250, {1.0f, 0.05f}, WeightType::kBf16, part);
  EXPECT_EQ(std::memcmp(whole.data() + 500, part.data(), part.size()), 0);
  for (const uint64_t another :
       {TensorKey(1, "model.norm.weight"), TensorKey(0, "model.norm.weighs")}) {
    FillWeights(another, 0, {1.0f, 0.05f}, WeightType::kBf16, other);
    EXPECT_NE(whole, other);
  }
  // Recorded: these bits are the contract of equal seeds, on every machine.
  std::vector<float> first(4);
  FillWeights(TensorKey(42, "lm_head.weight"), 0, {0.0f, 1.0f}, WeightType::kF32,
              std::as_writable_bytes(std::span(first)));
  const std::vector<uint32_t> bits = {
      std::bit_cast<uint32_t>(first[0]), std::bit_cast<uint32_t>(first[1]),
      std::bit_cast<uint32_t>(first[2]), std::bit_cast<uint32_t>(first[3])};
  EXPECT_EQ(bits, (std::vector<uint32_t>{0x3f5e5d95, 0xbe86aabd, 0x3ec11fa8, 0x3f7e00a6}));
}

// What GGUF's blocks of these bytes mean, in float64.
std::vector<double> MeaningOf(WeightType type, std::span<const std::byte> bytes) {
  std::vector<double> values;
  const auto byte = [&](size_t at) { return static_cast<int>(bytes[at]); };
  const auto half = [&](size_t at) {
    return static_cast<double>(FloatFromHalf(static_cast<uint16_t>(byte(at) | byte(at + 1) << 8)));
  };
  const auto block = static_cast<size_t>(BlockOf(type).bytes);
  for (size_t at = 0; at < bytes.size(); at += block) {
    if (type == WeightType::kQ40) {
      for (int i = 0; i < 32; ++i) {
        const int pair = byte(at + 2 + static_cast<size_t>(i % 16));
        values.push_back(half(at) * ((i < 16 ? pair & 15 : pair >> 4) - 8));
      }
      continue;
    }
    for (size_t i = 0; i < 256; ++i) {
      const size_t part = i / 32;
      int scale = byte(at + 4 + part) & 63, least = byte(at + 8 + part) & 63;
      if (part >= 4) {
        scale = (byte(at + 8 + part) & 15) | byte(at + part) >> 6 << 4;
        least = byte(at + 8 + part) >> 4 | byte(at + 4 + part) >> 6 << 4;
      }
      const int pair = byte(at + 16 + part / 2 * 32 + i % 32);
      const int quant = part % 2 == 0 ? pair & 15 : pair >> 4;
      values.push_back(half(at) * scale * quant - half(at + 2) * least);
    }
  }
  return values;
}

TEST(WeightValues, BlocksHaveTheSpreadThatIsAskedForAndFollowFromTheirPlace) {
  for (const WeightType type : {WeightType::kQ4K, WeightType::kQ40}) {
    const WeightBlock block = BlockOf(type);
    constexpr int64_t kBlocks = 1000;
    std::vector<std::byte> whole(static_cast<size_t>(kBlocks * block.bytes));
    FillWeights(TensorKey(7, "a"), 0, {0.0f, 0.02f}, type, whole);
    const std::vector<double> values = MeaningOf(type, whole);
    ASSERT_EQ(values.size(), static_cast<size_t>(kBlocks * block.values));
    double sum = 0, squares = 0;
    for (const double value : values) {
      sum += value;
      squares += value * value;
    }
    const auto count = static_cast<double>(values.size());
    // Q4_0's sixteen values lie around half a step below zero.
    EXPECT_NEAR(sum / count, type == WeightType::kQ40 ? -0.5 * 0.02 / 4.61 : 0.0, 3e-4);
    EXPECT_NEAR(std::sqrt(squares / count - sum / count * sum / count), 0.02, 2e-4);
    std::vector<std::byte> part(static_cast<size_t>(3 * block.bytes));
    FillWeights(TensorKey(7, "a"), static_cast<uint64_t>(5 * block.values), {0.0f, 0.02f}, type,
                part);
    EXPECT_EQ(std::memcmp(whole.data() + 5 * block.bytes, part.data(), part.size()), 0);
  }
}

int64_t ParametersOf(const ModelShape& shape) {
  int64_t sum = 0;
  for (const ShapeTensor& tensor :
       OnlyGguf(shape) ? GgufTensorsOf(shape, shape.layers) : TensorsOf(shape, shape.layers)) {
    sum += tensor.count();
  }
  return sum;
}

TEST(WeightShapes, AGgufFileHasEveryTensorOnItsPlace) {
  for (const ModelShape& shape : ModelShapes()) {
    const WeightShard file = LayOutGguf(shape, shape.layers, WeightType::kQ4K);
    ASSERT_EQ(file.head.substr(0, 4), "GGUF");
    EXPECT_EQ(file.head.size() % 32, 0u);
    ASSERT_EQ(file.offsets.size(), file.tensors.size() + 1);
    int64_t values = 0;
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      const ShapeTensor& tensor = file.tensors[i];
      EXPECT_EQ(file.offsets[i] % 32, 0) << tensor.name;
      EXPECT_GE(file.offsets[i + 1] - file.offsets[i], TensorBytes(file.types[i], tensor.count()));
      const bool floats = tensor.shape.size() == 1 || tensor.floats;
      EXPECT_EQ(file.types[i] == WeightType::kF32, floats) << tensor.name;
      EXPECT_EQ(tensor.name.find("model."), std::string::npos) << tensor.name;
      values += tensor.count();
    }
    EXPECT_EQ(values, ParametersOf(shape)) << shape.name;
  }
  // 4.5 bits for each of Llama 3.1 8B's weights, but for its norms.
  const WeightShard large = LayOutGguf(*FindShape("Llama-3.1-8B"), 32, WeightType::kQ4K);
  EXPECT_NEAR(static_cast<double>(large.offsets.back()), 8'030'261'248 * 4.5 / 8, 2e6);
}

TEST(WeightShapes, AreTheTrueOnes) {
  const auto parameters = [](std::string_view name) { return ParametersOf(*FindShape(name)); };
  // As the checkpoints' own cards count them.
  EXPECT_EQ(parameters("Llama-3.2-1B"), 1'235'814'400);
  EXPECT_EQ(parameters("Llama-3.1-8B"), 8'030'261'248);
  EXPECT_EQ(parameters("Qwen2.5-0.5B"), 494'032'768);
  EXPECT_EQ(parameters("Qwen3-30B-A3B"), 30'532'122'624);
  EXPECT_EQ(parameters("DeepSeek-V2-Lite"), 15'706'484'224);
  EXPECT_EQ(FindShape("Llama-3.1-9B"), nullptr);
}

TEST(WeightShapes, ACutVocabularyEndsWithTheSpecialTokens) {
  const ModelShape& whole = *FindShape("Qwen3-30B-A3B");
  std::vector<SpecialToken> specials;
  const ModelShape cut = WithVocabulary(whole, LeastVocabulary(whole), specials);
  EXPECT_EQ(cut.vocabulary, 259);
  EXPECT_EQ(cut.begin, 256);
  EXPECT_EQ(cut.end, 258);
  for (const ShapeTensor& tensor : GgufTensorsOf(cut, 1)) {
    EXPECT_TRUE(tensor.name != "token_embd.weight" || tensor.shape[0] == 259);
  }
  for (const SpecialToken& special : whole.specials) {
    EXPECT_EQ(TokenText(whole, special.id), TokenText(cut, special.id - whole.begin + 256));
  }
  EXPECT_EQ(TokenText(cut, 255), TokenText(whole, 255));
}

TEST(WeightShapes, EveryIdHasATextOfItsOwn) {
  for (const ModelShape& shape : ModelShapes()) {
    const auto parsed = json::Parse(TokenizerText(shape));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    const json::Object& model = parsed->as_object().at("model").as_object();
    EXPECT_EQ(model.at("vocab").as_object().size(), static_cast<size_t>(shape.vocabulary));
  }
}

TEST_F(Weights, AreTheSameWithAnyThreadsAndShards) {
  ASSERT_TRUE(WriteModelFolder(options_).ok());
  const std::string embedding = Tensor("model.safetensors", "model.embed_tokens.weight");
  const std::string last = Tensor("model.safetensors", "model.layers.1.mlp.down_proj.weight");
  ASSERT_EQ(embedding.size(), 512u * 128 * 2);
  ASSERT_EQ(last.size(), 128u * 256 * 2);
  EXPECT_NE(Read("config.json"), "");
  EXPECT_FALSE(fs::exists(options_.folder + "/config.json.part"));

  options_.folder = root_ + "/shards";
  options_.threads = 4;
  options_.shard_bytes = 200'000;
  ASSERT_TRUE(WriteModelFolder(options_).ok());
  EXPECT_EQ(Tensor("model-00001-of-00006.safetensors", "model.embed_tokens.weight"), embedding);
  EXPECT_EQ(Tensor("model-00005-of-00006.safetensors", "model.layers.1.mlp.down_proj.weight"),
            last);
  const auto index = json::Parse(Read("model.safetensors.index.json"));
  ASSERT_TRUE(index.ok());
  EXPECT_EQ(index->as_object().at("weight_map").as_object().size(), 2u * 9 + 3);

  options_.folder = root_ + "/cut";
  options_.layers = 1;
  options_.shard_bytes = int64_t{1} << 30;
  ASSERT_TRUE(WriteModelFolder(options_).ok());
  EXPECT_EQ(Tensor("model.safetensors", "model.embed_tokens.weight"), embedding);
  EXPECT_EQ(Tensor("model.safetensors", "model.layers.1.mlp.down_proj.weight"), "");
}

TEST_F(Weights, OfAGgufFileAreTheSameWithAnyThreads) {
  options_.type = WeightType::kQ4K;
  options_.gguf = true;
  ASSERT_TRUE(WriteModelFolder(options_).ok());
  const std::string one = Read("model.gguf");
  EXPECT_EQ(static_cast<int64_t>(one.size()),
            LayOutGguf(*options_.shape, 2, WeightType::kQ4K).bytes());
  EXPECT_FALSE(fs::exists(options_.folder + "/config.json"));
  EXPECT_FALSE(fs::exists(options_.folder + "/model.gguf.part"));
  options_.folder = root_ + "/threads";
  options_.threads = 4;
  ASSERT_TRUE(WriteModelFolder(options_).ok());
  EXPECT_EQ(Read("model.gguf"), one);
  std::atomic<bool> interrupted = true;
  options_.interrupted = &interrupted;
  options_.folder = root_ + "/interrupted";
  EXPECT_TRUE(absl::IsCancelled(WriteModelFolder(options_).status()));
  EXPECT_FALSE(fs::exists(options_.folder));
}

TEST_F(Weights, LeaveAFolderAloneThatHoldsSomething) {
  fs::create_directories(options_.folder);
  ASSERT_TRUE(WriteModelFolder(options_).ok()) << "an empty one is taken";
  const auto again = WriteModelFolder(options_);
  EXPECT_TRUE(absl::IsInvalidArgument(again.status())) << again.status();
  EXPECT_NE(StatusMessage(again.status()).find("give a new folder"), std::string::npos);
  EXPECT_NE(Read("config.json"), "");
  options_.folder += "/config.json/below";
  EXPECT_TRUE(absl::IsInvalidArgument(WriteModelFolder(options_).status()));
}

TEST_F(Weights, LeaveNothingWhenInterrupted) {
  std::atomic<bool> interrupted = true;
  options_.interrupted = &interrupted;
  options_.threads = 3;
  EXPECT_TRUE(absl::IsCancelled(WriteModelFolder(options_).status()));
  EXPECT_FALSE(fs::exists(options_.folder));
  fs::create_directories(options_.folder);
  EXPECT_TRUE(absl::IsCancelled(WriteModelFolder(options_).status()));
  EXPECT_TRUE(fs::exists(options_.folder)) << "it was the user's";
  EXPECT_TRUE(fs::is_empty(options_.folder));
}

TEST_F(Weights, AFullDiskNamesTheBytesAndLeavesNothing) {
  const absl::Status room = CheckRoom("/there", 16'060'522'496, 1 << 30);
  EXPECT_TRUE(absl::IsResourceExhausted(room));
  for (const char* part : {"/there", "16060522496", "1 GiB", "make room"}) {
    EXPECT_NE(StatusMessage(room).find(part), std::string::npos) << room;
  }
  EXPECT_TRUE(CheckRoom("/there", 5, 5).ok());
  // A disk that fills up on the way, as a limit on the size of files gives it.
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 100'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto written = WriteModelFolder(options_);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(absl::IsResourceExhausted(written.status())) << written.status();
  EXPECT_NE(StatusMessage(written.status()).find("the model takes"), std::string::npos);
  EXPECT_FALSE(fs::exists(options_.folder));
}

}  // namespace
}  // namespace quire::cli
