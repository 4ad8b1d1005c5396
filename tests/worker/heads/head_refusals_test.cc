// Heads that do not fit their target, or are not what their configuration says: one line with the
// file or tensor, what was found and what was expected.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/status.h"
#include "tests/worker/heads/head_world.h"

namespace quire::test {
namespace {

class HeadRefusalsTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // What opening says of the fixture after `change`; "" where it opens.
  std::string Say(const std::string& name, const std::function<void(HeadGolden&)>& change,
                  const std::string& count = "4") {
    std::filesystem::remove_all(folder_);
    HeadGolden golden = ReadGolden(name);
    if (change) change(golden);
    WriteFolder(folder_ + "/target", golden.target_config, golden.target);
    if (!golden.head_config.empty())
      WriteFolder(folder_ + "/head", golden.head_config, golden.head);
    HeadWorldOptions options;
    options.target = folder_ + "/target";
    options.speculation =
        R"({"method": ")" + golden.method + R"(", "num_speculative_tokens": )" + count +
        (golden.head_config.empty() ? "}" : R"(, "model": ")" + folder_ + R"(/head"})");
    const auto world = HeadWorld::Open(options);
    const std::string said = world.ok() ? "" : StatusMessage(world.status());
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
    return said;
  }
  static NamedTensor& Of(std::vector<NamedTensor>& tensors, const std::string& name) {
    const auto found = std::ranges::find(tensors, name, &NamedTensor::name);
    EXPECT_NE(found, tensors.end()) << name;
    return *found;
  }
  static void Replace(std::string& text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << text;
    text.replace(at, from.size(), to);
  }
  static void ExpectAll(const std::string& said, const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      EXPECT_NE(said.find(part), std::string::npos) << "\"" << part << "\" is not in: " << said;
    }
  }

  const std::string folder_ = testing::TempDir() + "/head_refusals";
};

TEST_F(HeadRefusalsTest, FixturesOpenAsTheyAre) {
  for (const char* name :
       {"medusa", "medusa-vllm", "eagle3", "eagle3-speculators", "mtp-deepseek", "mtp-glm4-moe"}) {
    EXPECT_EQ(Say(name, nullptr), "");
  }
}

TEST_F(HeadRefusalsTest, MoreDraftsThanHeads) {
  ExpectAll(Say("medusa", nullptr, "5"),
            {"config.json", "has 4 heads", "num_speculative_tokens is 5", "use at most 4"});
  EXPECT_EQ(Say("eagle3", nullptr, "32"), "") << "a layer is applied again";
}

TEST_F(HeadRefusalsTest, ATensorIsMissing) {
  const auto drop = [](const char* name, bool of_target) {
    return [name, of_target](HeadGolden& golden) {
      std::vector<NamedTensor>& tensors = of_target ? golden.target : golden.head;
      std::erase_if(tensors, [name](const NamedTensor& tensor) { return tensor.name == name; });
    };
  };
  ExpectAll(Say("medusa", drop("2.1.linear.weight", false)), {"\"2.1.linear.weight\" is missing"});
  ExpectAll(Say("medusa-vllm", drop("lm_heads.3.weight", false)),
            {"\"lm_heads.3.weight\" is missing"});
  ExpectAll(Say("eagle3", drop("fc.weight", false)), {"\"fc.weight\" is missing"});
  ExpectAll(Say("eagle3", drop("d2t", false)), {"\"d2t\" is missing"});
  ExpectAll(Say("eagle3-speculators", drop("layers.0.hidden_norm.weight", false)),
            {"\"layers.0.hidden_norm.weight\" is missing"});
  ExpectAll(Say("mtp-deepseek", drop("model.layers.2.enorm.weight", true)),
            {"\"model.layers.2.enorm.weight\" is missing"});
  ExpectAll(Say("mtp-glm4-moe", drop("model.layers.2.eh_proj.weight", true)),
            {"\"model.layers.2.eh_proj.weight\" is missing", "no layer that predicts"});
}

TEST_F(HeadRefusalsTest, ATensorIsUnknown) {
  const NamedTensor extra{"further.weight", {2}, {1, 2}};
  for (const char* name : {"medusa", "medusa-vllm", "eagle3"}) {
    ExpectAll(Say(name, [&](HeadGolden& golden) { golden.head.push_back(extra); }),
              {"\"further.weight\"", "[2]", "belongs to no part"});
  }
  NamedTensor further = extra;
  further.name = "model.layers.2.further.weight";
  ExpectAll(Say("mtp-deepseek", [&](HeadGolden& golden) { golden.target.push_back(further); }),
            {"\"model.layers.2.further.weight\"", "belongs to no part"});
}

TEST_F(HeadRefusalsTest, AShapeOrATypeIsAnother) {
  const auto reshape = [](const char* name) {
    return [name](HeadGolden& golden) {
      NamedTensor& tensor = Of(golden.head, name);
      tensor.shape.back() -= 1;
      size_t count = 1;
      for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
      tensor.values.resize(count);
    };
  };
  ExpectAll(Say("medusa", reshape("1.2.weight")), {"\"1.2.weight\"", "[128, 31]", "[128, 32]"});
  ExpectAll(Say("eagle3", reshape("midlayer.self_attn.k_proj.weight")),
            {"\"midlayer.self_attn.k_proj.weight\"", "[16, 63]", "[16, 64]"});
  const auto retype = [](const char* name) {
    return [name](HeadGolden& golden) { Of(golden.head, name).type = "I32"; };
  };
  ExpectAll(Say("medusa", retype("1.2.weight")), {"\"1.2.weight\"", "I32", "F32, F16 and BF16"});
  ExpectAll(Say("eagle3", retype("norm.weight")), {"\"norm.weight\"", "I32", "F32, F16 and BF16"});
  ExpectAll(Say("eagle3", [](HeadGolden& golden) { Of(golden.head, "d2t").type = "F64"; }),
            {"\"d2t\"", "F64", "I64 or I32"});
}

TEST_F(HeadRefusalsTest, AnIdIsBeyondTheVocabulary) {
  ExpectAll(Say("eagle3", [](HeadGolden& golden) { Of(golden.head, "d2t").ids[95] = 33; }),
            {"\"d2t\" adds 33 to the id 95", "128 tokens"});
  ExpectAll(Say("eagle3", [](HeadGolden& golden) { Of(golden.head, "d2t").ids[3] = -4; }),
            {"\"d2t\" adds -4 to the id 3"});
  EXPECT_EQ(Say("eagle3", [](HeadGolden& golden) { Of(golden.head, "d2t").ids[95] = 32; }), "");
  ExpectAll(
      Say("medusa-vllm", [](HeadGolden& golden) { Of(golden.head, "token_map").ids[0] = 128; }),
      {"\"token_map\" holds 128", "128 tokens"});
}

TEST_F(HeadRefusalsTest, AHeadOfAnotherModel) {
  const auto config = [](const char* from, const char* to) {
    return [from, to](HeadGolden& golden) { Replace(golden.head_config, from, to); };
  };
  ExpectAll(Say("medusa-vllm", config("\"hidden_size\":32", "\"hidden_size\":64")),
            {"hidden_size is 64", "the model's is 32"});
  ExpectAll(Say("medusa-vllm", config("\"vocab_size\":128", "\"vocab_size\":130")),
            {"vocab_size is 130", "the model's is 128"});
  ExpectAll(Say("eagle3", config("\"hidden_size\":32", "\"hidden_size\":64")),
            {"hidden_size is 64", "the model's is 32"});
  ExpectAll(Say("eagle3", config("\"vocab_size\":128", "\"vocab_size\":130")),
            {"vocab_size is 130", "the model's is 128"});
  ExpectAll(Say("eagle3-speculators", config("[1,3,6]", "[1,3,9]")),
            {"before layer 9", "layers 0 to 7"});
  ExpectAll(Say("eagle3", config("\"num_hidden_layers\":1", "\"num_hidden_layers\":2")),
            {"num_hidden_layers is 2", "have 1"});
  ExpectAll(
      Say("eagle3-speculators", config("\"norm_before_residual\":true", "\"norm_before_fc\":true")),
      {"norm_before_fc", "not served"});
  ExpectAll(Say("eagle3-speculators", config("[1,3,6]", "[1,3,3]")), {"different layers"});
  const auto scale = [](HeadGolden& golden) {
    Replace(golden.target_config, "LlamaForCausalLM", "GraniteForCausalLM");
    Replace(golden.target_config, "\"llama\"", "\"granite\"");
    Replace(golden.target_config, "{", R"({"embedding_multiplier":2.0,)");
  };
  ExpectAll(Say("eagle3", scale), {"\"embed_tokens.weight\" is missing", "granite"});
  EXPECT_EQ(Say("eagle3-speculators", scale), "") << "it has its own";
}

TEST_F(HeadRefusalsTest, PicklesAndOtherFormatsAreNamed) {
  EXPECT_EQ(Say("medusa", nullptr), "");
  std::filesystem::remove(folder_ + "/head/model.safetensors");
  std::ofstream(folder_ + "/head/medusa_lm_head.pt") << "a pickle";
  HeadWorldOptions options;
  options.target = folder_ + "/target";
  options.speculation =
      R"({"method": "medusa", "num_speculative_tokens": 2, "model": ")" + folder_ + R"(/head"})";
  ExpectAll(StatusMessage(HeadWorld::Open(options).status()),
            {"medusa_lm_head.pt", "is a pickle", "safetensors"});
  std::filesystem::remove(folder_ + "/head/medusa_lm_head.pt");
  ExpectAll(StatusMessage(HeadWorld::Open(options).status()), {"model.safetensors"});
  ExpectAll(Say("eagle3",
                [](HeadGolden& golden) {
                  Replace(golden.head_config, "{",
                          R"({"quantization_config":{"quant_method":"fp8"},)");
                }),
            {"quantised"});
}

TEST_F(HeadRefusalsTest, AFurtherLayerOfAGgufFileIsNotRead) {
  HeadWorldOptions options;
  options.target = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/gguf-glm4moe";
  options.speculation = R"({"method": "mtp", "num_speculative_tokens": 1})";
  ExpectAll(StatusMessage(HeadWorld::Open(options).status()),
            {"this is a GGUF file", "use method draft_model or ngram"});
}

// A family that writes its own program shows no hidden states; ranks and states refuse a head.
TEST_F(HeadRefusalsTest, OtherFamiliesAndSeveralRanksAreNamed) {
  EXPECT_EQ(Say("medusa", nullptr), "");
  HeadWorldOptions options;
  options.target = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/models/opt-untied";
  options.speculation =
      R"({"method": "medusa", "num_speculative_tokens": 2, "model": ")" + folder_ + R"(/head"})";
  ExpectAll(StatusMessage(HeadWorld::Open(options).status()),
            {"family opt", "do not show their hidden states"});
  WorkerConfig config;
  config.tensor_parallel_size = 2;
  const auto speculation = ParseSpeculation(options.speculation);
  ASSERT_TRUE(speculation.ok());
  ExpectAll(StatusMessage(DraftHeadSetup::Open(config, *speculation).status()),
            {"method medusa", "one rank", "use method draft_model or ngram"});
}

// A window over all layers forgets keys that the head's layer needs; states cannot step back.
TEST_F(HeadRefusalsTest, ATargetThatDoesNotSuitIsNamed) {
  ExpectAll(Say("eagle3",
                [](HeadGolden& golden) {
                  Replace(golden.target_config, "LlamaForCausalLM", "MistralForCausalLM");
                  Replace(golden.target_config, "\"llama\"", "\"mistral\"");
                  Replace(golden.target_config, "{", R"({"sliding_window":20,)");
                }),
            {"forget keys behind a window", "use method medusa, draft_model or ngram"});
}

}  // namespace
}  // namespace quire::test
