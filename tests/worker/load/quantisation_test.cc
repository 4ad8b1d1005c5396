// What quantised checkpoints may say, and what is refused with one line that names it.
#include "worker/load/quantisation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "common/json/json.h"
#include "common/status.h"
#include "kernels/expand.h"
#include "kernels/grouped_blocks.h"
#include "tests/worker/load/fake_module.h"

namespace quire::load {
namespace {

using kernels::DType;

void ExpectUnserved(const std::string& config, const std::string& said) {
  const absl::StatusOr<Quantisation> read = ReadConfig(config);
  ASSERT_FALSE(read.ok()) << config;
  const std::string message = StatusMessage(read.status());
  EXPECT_NE(message.find(said), std::string::npos) << message;
  EXPECT_TRUE(message.starts_with("config.json: quantization_config: ")) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

constexpr const char* kFp8 = R"({"quant_method":"fp8"})";
constexpr const char* kGptq =
    R"({"quant_method":"gptq","bits":4,"group_size":32,"sym":false,"desc_act":true})";
constexpr const char* kAwq = R"({"quant_method":"awq","bits":4,"group_size":32,"version":"gemm"})";

std::string Compressed(const std::string& format, const std::string& weights) {
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","config_groups":{"group_0":{"targets":["Linear"],"weights":{)" + weights + "}}}}";
}

TEST(Quantisation, ConfigurationsThatAreNotServed) {
  ExpectUnserved(R"({})",
                 "quant_method \"\" is not served; served are fp8, modelopt, "
                 "compressed-tensors, gptq, awq, mxfp4, bitsandbytes, and GGUF files");
  ExpectUnserved(R"({"quant_method":"hqq"})", "quant_method \"hqq\" is not served");
  ExpectUnserved(R"({"quant_method":7})", "quant_method: must be a string");
  ExpectUnserved(R"({"quant_method":"fp8","fmt":"e5m2"})", "fmt \"e5m2\" is not served");
  ExpectUnserved(R"({"quant_method":"fp8","activation_scheme":"none"})",
                 "activation_scheme \"none\"");
  ExpectUnserved(R"({"quant_method":"fp8","weight_block_size":[128]})", "must have two numbers");
  ExpectUnserved(R"({"quant_method":"fp8","weight_block_size":[128,0]})", "above 0");
  ExpectUnserved(R"({"quant_method":"fp8","weight_block_size":[128,9223372036854775807]})",
                 "larger than any tensor");
  ExpectUnserved(R"({"quant_method":"modelopt","quant_algo":"NVFP4_AWQ"})",
                 "quant_algo \"NVFP4_AWQ\" is not served; \"FP8\", \"NVFP4\" and");
  ExpectUnserved(R"({"quant_method":"modelopt","quant_algo":"NVFP4","group_size":32})",
                 "group_size is 32, served is 16");
  ExpectUnserved(R"({"quant_method":"bitsandbytes"})",
                 "one of load_in_4bit and load_in_8bit must be true");
  ExpectUnserved(R"({"quant_method":"bitsandbytes","load_in_4bit":true,"load_in_8bit":true})",
                 "one of load_in_4bit and load_in_8bit must be true");
  ExpectUnserved(
      R"({"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"af4"})",
      "bnb_4bit_quant_type \"af4\" is not served; \"nf4\" and \"fp4\" are");
  ExpectUnserved(R"({"quant_method":"gptq","bits":5})", "bits is 5, served are 2, 3, 4 and 8");
  ExpectUnserved(R"({"quant_method":"gptq","group_size":0})", "group_size is 0");
  ExpectUnserved(R"({"quant_method":"gptq","checkpoint_format":"marlin"})",
                 "checkpoint_format \"marlin\" is not served; \"gptq\" and \"gptq_v2\" are");
  ExpectUnserved(R"({"quant_method":"gptq","is_marlin_format":true})", "\"marlin\" is not served");
  ExpectUnserved(R"({"quant_method":"gptq","sym":true,"dynamic":{"+:.*q":{"sym":false}}})",
                 "another sym for some modules");
  ExpectUnserved(R"({"quant_method":"awq","version":"gemv"})", "version \"gemv\" is not served");
  ExpectUnserved(R"({"quant_method":"awq","bits":8})", "bits is 8, served is 4");
  ExpectUnserved(R"({"quant_method":"compressed-tensors"})", "config_groups is missing");
  ExpectUnserved(R"({"quant_method":"compressed-tensors","config_groups":{}})", "names no weights");
  ExpectUnserved(Compressed("mxfp8-quantized", ""), "format \"mxfp8-quantized\" is not served");
  ExpectUnserved(Compressed("pack-quantized", R"("num_bits":9)"), "group_0: weights of 9 bits");
  ExpectUnserved(Compressed("float-quantized", R"("num_bits":6,"type":"float")"),
                 "weights of 6 bits of type \"float\"");
  ExpectUnserved(
      Compressed("nvfp4-pack-quantized", R"("num_bits":4,"type":"float","group_size":64)"),
      "weights of 4 bits of type \"float\" in groups of 64 are not served; symmetric ones in "
      "groups of 16 (NVFP4) or 32 (MXFP4) are");
  ExpectUnserved(
      Compressed("nvfp4-pack-quantized", R"("num_bits":4,"type":"float","symmetric":false)"),
      "in groups of 16 with zeros are not served");
  ExpectUnserved(Compressed("pack-quantized", R"("num_bits":4,"strategy":"tensor_group")"),
                 "strategy \"tensor_group\" is not served");
}

TEST(Quantisation, DescriptionsNameFormatAndActivations) {
  EXPECT_EQ(
      ReadConfig(R"({"quant_method":"fp8","weight_block_size":[128,128]})")->Description(""),
      "fp8, e4m3 in blocks of 128 × 128, weights only (dynamic fp8 activations are not applied)");
  EXPECT_EQ(ReadConfig(kGptq)->Description(""), "gptq, 4 bits in groups of 32");
  EXPECT_EQ(ReadConfig(Compressed("pack-quantized", R"("num_bits":8,"strategy":"channel")"))
                ->Description(""),
            "compressed-tensors, 8 bits by row");
  const json::Value file = *json::Parse(
      R"({"producer":{},"quantization":{"quant_algo":"FP8","kv_cache_quant_algo":null}})");
  EXPECT_EQ(Quantisation::ReadModelOpt(file.as_object(), "hf_quant_config.json")->Description(""),
            "modelopt, e4m3 by tensor, weights only (static fp8 activations are not applied)");
}

std::string WithInputs(const std::string& weights, const std::string& inputs) {
  return R"({"quant_method":"compressed-tensors","config_groups":{"group_0":{"weights":{)" +
         weights + R"(},"input_activations":{)" + inputs + "}}}}";
}

kernels::ActivationRounding RoundingIn(const std::string& config, const FakeModule& module) {
  const absl::StatusOr<Quantisation> read = ReadConfig(config);
  EXPECT_TRUE(read.ok()) << config << ": " << read.status();
  if (!read.ok()) return {};
  const auto found = read->Find(module.table(), "m", 2, 256);
  EXPECT_TRUE(found.ok() && found->has_value()) << found.status();
  return found.ok() && found->has_value() ? (*found)->RoundingFrom(0)
                                          : kernels::ActivationRounding();
}

TEST(Quantisation, RoundedInputsAreReadAsTheConfigurationAsks) {
  using Code = kernels::ActivationRounding::Code;
  constexpr const char* kInt8 = R"("num_bits":8,"type":"int","strategy":"channel")";
  const FakeModule int8 = FakeModule()
                              .Add("weight", "I8", {2, 256}, std::vector<int8_t>(512, 3))
                              .Add("weight_scale", "F32", {2, 1}, std::vector<float>{1.0f, 2.0f});
  const auto of_int8 = [&](const std::string& inputs) {
    return RoundingIn(WithInputs(kInt8, inputs), int8);
  };
  EXPECT_EQ(of_int8(R"("dynamic":true,"strategy":"token")"),
            (kernels::ActivationRounding{.code = Code::kInt8}));
  EXPECT_EQ(of_int8(R"("dynamic":true,"strategy":"token","symmetric":false)"),
            (kernels::ActivationRounding{.code = Code::kInt8, .symmetric = false}));
  EXPECT_EQ(RoundingIn(Compressed("int-quantized", kInt8), int8), kernels::ActivationRounding());
  const std::pair<const char*, const char*> unserved[] = {
      {R"("dynamic":true,"num_bits":4)", "another number of bits than 8"},
      {R"("dynamic":true,"strategy":"channel")", "a strategy that is not served"},
      {R"("dynamic":true,"strategy":"group","group_size":128)", "a strategy that is not served"},
      {R"("dynamic":false)", "a static scale, without an input_scale of one number"},
  };
  for (const auto& [inputs, what] : unserved) {
    const kernels::ActivationRounding rounding = of_int8(inputs);
    EXPECT_EQ(rounding.code, Code::kNone) << inputs;
    ASSERT_NE(rounding.unserved, nullptr) << inputs;
    EXPECT_STREQ(rounding.unserved, what);
  }
  const auto of_static = [&](float scale, int8_t zero) {
    FakeModule module = int8;
    module.Add("input_scale", "F32", {1}, std::vector<float>{scale});
    module.Add("input_zero_point", "I8", {1}, std::vector<int8_t>{zero});
    return RoundingIn(WithInputs(kInt8, R"("dynamic":false,"symmetric":false)"), module);
  };
  const kernels::ActivationRounding fixed = of_static(0.5f, -7);
  EXPECT_EQ(fixed.scale, 0.5f);
  EXPECT_EQ(fixed.zero, -7);
  for (const float scale : {0.0f, -1.0f, 1e-40f, std::nanf(""), HUGE_VALF}) {
    EXPECT_STREQ(of_static(scale, 0).unserved, "an input_scale that is no finite number above 0");
  }
}

TEST(Quantisation, RoundedInputsOfFp8) {
  using Code = kernels::ActivationRounding::Code;
  const std::vector<uint8_t> codes(512, 0x38);
  const FakeModule blocks = FakeModule()
                                .Add("weight", "F8_E4M3", {2, 256}, codes)
                                .Add("weight_scale_inv", "F32", {1, 2}, std::vector<float>{1, 2});
  const kernels::ActivationRounding by_group =
      RoundingIn(R"({"quant_method":"fp8","weight_block_size":[128,128]})", blocks);
  EXPECT_EQ(by_group,
            (kernels::ActivationRounding{.code = Code::kE4m3, .group = 128, .weight_group = 128}));
  const FakeModule four = FakeModule()
                              .Add("weight", "F8_E4M3", {2, 256}, codes)
                              .Add("weight_scale_inv", "F32", {1, 4}, std::vector<float>(4, 1.0f));
  EXPECT_STREQ(RoundingIn(R"({"quant_method":"fp8","weight_block_size":[128,64]})", four).unserved,
               "a scale for another number of inputs than 128");
  FakeModule whole = FakeModule()
                         .Add("weight", "F8_E4M3", {2, 256}, codes)
                         .Add("weight_scale", "F32", {}, std::vector<float>{1});
  EXPECT_EQ(RoundingIn(kFp8, whole), (kernels::ActivationRounding{.code = Code::kE4m3}));
  whole.Add("activation_scale", "BF16", {}, std::vector<uint16_t>{0x3d80});
  EXPECT_EQ(RoundingIn(R"({"quant_method":"fp8","activation_scheme":"static"})", whole).scale,
            0.0625f);
}

TEST(Quantisation, Fp8TensorsThatAreWrong) {
  const std::vector<uint8_t> codes(64, 0x38);
  const std::vector<float> one = {1.0f};
  EXPECT_EQ(RefusalOf(kFp8, FakeModule().Add("weight", "F8_E4M3", {2, 32}, codes), 2, 32),
            "tensor \"m.weight_scale\" is missing, the quantised weight of \"m\" demands it");
  EXPECT_EQ(RefusalOf(kFp8, FakeModule().Add("weight", "F8_E5M2", {2, 32}, codes), 2, 32),
            "w: tensor \"m.weight\" has type F8_E5M2, expected F8_E4M3");
  EXPECT_EQ(RefusalOf(kFp8, FakeModule().Add("weight", "F8_E4M3", {1, 64}, codes), 2, 32),
            "w: tensor \"m.weight\" has shape [1, 64], expected [2, 32]");
  FakeModule scales = FakeModule().Add("weight", "F8_E4M3", {2, 32}, codes);
  EXPECT_EQ(RefusalOf(kFp8, scales.Add("weight_scale", "F32", {3}, std::vector<float>(3)), 2, 32),
            "w: tensor \"m.weight_scale\" has shape [3], expected [2, 1]");
  FakeModule type = FakeModule().Add("weight", "F8_E4M3", {2, 32}, codes);
  EXPECT_EQ(RefusalOf(kFp8, type.Add("weight_scale", "I32", {}, std::vector<int32_t>(1)), 2, 32),
            "w: tensor \"m.weight_scale\" has type I32, expected F32 or BF16 or F16");
  for (const float bad : {NAN, INFINITY}) {
    FakeModule finite = FakeModule().Add("weight", "F8_E4M3", {2, 32}, codes);
    finite.Add("weight_scale", "F32", {2, 1}, std::vector<float>{1.0f, bad});
    const std::string message = RefusalOf(kFp8, finite, 2, 32);
    EXPECT_NE(message.find("as the scale of row 1, group 0; every scale must be a finite number"),
              std::string::npos)
        << message;
  }
  for (const int64_t cols : {32, 16}) {  // in the normal form and as float32
    std::vector<uint8_t> nan = codes;
    nan[static_cast<size_t>(64 / cols - 1) * static_cast<size_t>(cols) + 5] = 0xff;
    FakeModule number = FakeModule().Add("weight", "F8_E4M3", {64 / cols, cols}, nan);
    number.Add("weight_scale", "F32", {}, one);
    EXPECT_EQ(RefusalOf(kFp8, number, 64 / cols, cols), "w: tensor \"m.weight\" holds NaN at [" +
                                                            std::to_string(64 / cols - 1) +
                                                            ", 5]; every weight must be a number");
  }
  EXPECT_EQ(
      RefusalOf(kFp8, FakeModule().Add("weight", "BF16", {1, 1}, std::vector<uint16_t>(1)), 1, 1),
      "plain");
}

// [64 inputs, 8 outputs] in groups of 32.
FakeModule Gptq(int32_t last_group = 1) {
  std::vector<int32_t> order(64);
  for (size_t i = 0; i < 64; ++i) order[i] = i < 32 ? 0 : 1;
  order[63] = last_group;
  FakeModule module;
  module.Add("qweight", "I32", {8, 8}, std::vector<int32_t>(64));
  module.Add("scales", "F16", {2, 8}, std::vector<uint16_t>(16, 0x3c00));
  module.Add("g_idx", "I32", {64}, order);
  return module;
}

TEST(Quantisation, GptqTensorsThatAreWrong) {
  EXPECT_EQ(RefusalOf(kGptq, Gptq(), 8, 64),
            "tensor \"m.qzeros\" is missing, the quantised weight of \"m\" demands it");
  EXPECT_EQ(RefusalOf(kGptq, Gptq().Add("qzeros", "I32", {2, 2}, std::vector<int32_t>(4)), 8, 64),
            "w: tensor \"m.qzeros\" has shape [2, 2], expected [2, 1]");
  for (const int32_t bad : {2, -1}) {
    FakeModule module = Gptq(bad);
    EXPECT_EQ(RefusalOf(kGptq, module.Add("qzeros", "I32", {2, 1}, std::vector<int32_t>(2)), 8, 64),
              "w: tensor \"m.g_idx\" holds " + std::to_string(bad) +
                  " at 63, expected a group of 0 to 1");
  }
  EXPECT_EQ(RefusalOf(kGptq, Gptq().Add("qzeros", "I32", {2, 1}, std::vector<int32_t>(2)), 8, 32),
            "w: tensor \"m.qweight\" has shape [8, 8], expected [4, 8]");
  EXPECT_EQ(RefusalOf(kGptq, Gptq().Add("qzeros", "I32", {2, 1}, std::vector<int32_t>(2)), 8, 64),
            "");
}

// Columns are in the order of groups where each group has as many inputs as it should.
TEST(Quantisation, ColumnsInTheOrderOfTheirGroups) {
  std::vector<int32_t> order(64), words(64);
  for (int32_t i = 0; i < 64; ++i) order[static_cast<size_t>(i)] = 1 - i % 2;
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<int32_t>(0x76543210u + 99u * i);
  FakeModule module;
  module.Add("qweight", "I32", {8, 8}, words);
  std::vector<uint16_t> scales(16, 0x3c00);  // 1 and, of the second group, 2
  std::fill(scales.begin() + 8, scales.end(), uint16_t{0x4000});
  module.Add("scales", "F16", {2, 8}, scales);
  module.Add("qzeros", "I32", {2, 1}, std::vector<int32_t>{0x11111111, 0x33333333});
  module.Add("g_idx", "I32", {64}, order);
  const auto read = ReadConfig(kGptq);
  ASSERT_TRUE(read.ok()) << read.status();
  const auto found = read->Find(module.table(), "m", 8, 64);
  ASSERT_TRUE(found.ok()) << found.status();
  QuantisedMatrix matrix = **found;
  ASSERT_EQ(matrix.Form(), DType::kF32);
  std::vector<float> in_file(8 * 64);
  matrix.Write({0, 8, 0, 64}, reinterpret_cast<std::byte*>(in_file.data()));
  matrix.OrderByGroups();
  ASSERT_EQ(matrix.Form(), DType::kG4);
  ASSERT_TRUE(matrix.Check({0, 8, 0, 64}).ok());
  kernels::WeightSource source{DType::kG4, 8, 64};
  std::vector<std::byte> blocks(static_cast<size_t>(source.Bytes()));
  matrix.Write({0, 8, 0, 64}, blocks.data());
  source.data = blocks.data();
  std::vector<float> values(64);
  for (int64_t row = 0; row < 8; ++row) {
    kernels::ExpandRow(source, row, values);
    for (size_t j = 0; j < 64; ++j) {
      const size_t input = j < 32 ? 2 * j + 1 : 2 * (j - 32);
      ASSERT_EQ(matrix.order[j], static_cast<int32_t>(input));
      ASSERT_EQ(values[j], in_file[static_cast<size_t>(row) * 64 + input]) << row << " " << j;
    }
    source.order = matrix.order.data();
    kernels::ExpandRow(source, row, values);
    for (size_t i = 0; i < 64; ++i)
      ASSERT_EQ(values[i], in_file[static_cast<size_t>(row) * 64 + i]);
    source.order = nullptr;
  }
  FakeModule uneven = Gptq(0);
  uneven.Add("qzeros", "I32", {2, 1}, std::vector<int32_t>(2));
  const auto other = read->Find(uneven.table(), "m", 8, 64);
  ASSERT_TRUE(other.ok()) << other.status();
  QuantisedMatrix kept = **other;
  kept.OrderByGroups();
  EXPECT_TRUE(kept.order.empty());
  EXPECT_EQ(kept.Form(), DType::kF32) << "33 inputs of a group of 32";
}

// Kernels multiply scales by 2^120.
TEST(Quantisation, LargeScalesOfE4m3BecomeFloats) {
  for (const auto& [scale, form] :
       {std::pair(255.9f, DType::kF8), std::pair(-256.0f, DType::kF32)}) {
    FakeModule module;
    module.Add("weight", "F8_E4M3", {2, 32}, std::vector<uint8_t>(64, 0x38));
    module.Add("weight_scale", "F32", {2, 1}, std::vector<float>{1.0f, scale});
    const auto read = ReadConfig(kFp8);
    ASSERT_TRUE(read.ok()) << read.status();
    const auto found = read->Find(module.table(), "m", 2, 32);
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ((*found)->Form(), form) << scale;
    kernels::WeightSource source{form, 2, 32};
    std::vector<std::byte> rows(static_cast<size_t>(source.Bytes()));
    (*found)->Write({0, 2, 0, 32}, rows.data());
    source.data = rows.data();
    std::vector<float> values(32);
    kernels::ExpandRow(source, 1, values);
    EXPECT_EQ(values[7], scale) << "a code of one";
  }
}

TEST(Quantisation, AwqTensorsThatAreWrong) {
  FakeModule module;
  module.Add("qweight", "I32", {32, 1}, std::vector<int32_t>(32));
  EXPECT_EQ(RefusalOf(kAwq, module, 9, 32),
            "w: tensor \"m.qweight\" packs 9 outputs, expected a multiple of 8");
  EXPECT_EQ(RefusalOf(kAwq, module, 8, 32),
            "tensor \"m.scales\" is missing, the quantised weight of \"m\" demands it");
  module.Add("scales", "F16", {1, 8}, std::vector<uint16_t>(8));
  EXPECT_EQ(RefusalOf(kAwq, module, 8, 32),
            "tensor \"m.qzeros\" is missing, the quantised weight of \"m\" demands it");
}

TEST(Quantisation, CompressedTensorsThatAreWrong) {
  const std::string config =
      Compressed("pack-quantized", R"("num_bits":4,"group_size":32,"symmetric":false)");
  const auto packed = [] {
    return FakeModule().Add("weight_packed", "I32", {2, 8}, std::vector<int32_t>(16));
  };
  FakeModule shape = packed().Add("weight_shape", "I64", {2}, std::vector<int64_t>{2, 63});
  EXPECT_EQ(RefusalOf(config, shape, 2, 64),
            "w: tensor \"m.weight_shape\" holds [2, 63], expected [2, 64]");
  EXPECT_EQ(RefusalOf(config, packed(), 2, 64),
            "tensor \"m.weight_scale\" is missing, the quantised weight of \"m\" demands it");
  FakeModule scale = packed().Add("weight_scale", "F32", {2, 1}, std::vector<float>(2));
  EXPECT_EQ(RefusalOf(config, scale, 2, 64),
            "w: tensor \"m.weight_scale\" has shape [2, 1], expected [2, 2]");
  FakeModule bits = packed().Add("weight_scale", "F32", {2, 1}, std::vector<float>(2));
  EXPECT_EQ(RefusalOf(config, bits, 2, 32),
            "w: tensor \"m.weight_packed\" has shape [2, 8], expected [2, 4]");
  FakeModule zeros = packed().Add("weight_scale", "F32", {2, 2}, std::vector<float>(4));
  EXPECT_EQ(RefusalOf(config, zeros, 2, 64),
            "tensor \"m.weight_zero_point\" is missing, the quantised weight of \"m\" demands it");
  zeros.Add("weight_zero_point", "I32", {1, 2}, std::vector<int32_t>(2));
  EXPECT_EQ(RefusalOf(config, zeros, 2, 64), "");
  zeros.Add("weight_g_idx", "I32", {64}, std::vector<int32_t>(64, -1));
  EXPECT_EQ(RefusalOf(config, zeros, 2, 64), "");  // an order that was never filled in
  EXPECT_EQ(
      RefusalOf(Compressed("float-quantized", R"("num_bits":8,"type":"float")"), zeros, 2, 64),
      "w: tensor \"m.weight_packed\" is of integers, the configuration names none");
}

// Integers with a zero for each row and group, and a part of the inputs alone.
TEST(Quantisation, ASliceIsTheSameBlocks) {
  std::vector<int8_t> codes(3 * 96);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int8_t>(37 * i);
  const std::vector<float> scales = {0.5f, 2.0f, 1.0f, 0.25f, 4.0f, 8.0f, 1.0f, 3.0f, 1.5f};
  const std::vector<int8_t> zeros = {0, -128, 127, 1, 2, 3, -4, -5, -6};
  FakeModule module;
  module.Add("weight", "I8", {3, 96}, codes).Add("weight_scale", "F32", {3, 3}, scales);
  module.Add("weight_zero_point", "I8", {3, 3}, zeros);
  const auto read =
      ReadConfig(Compressed("int-quantized", R"("num_bits":8,"group_size":32,"symmetric":false)"));
  ASSERT_TRUE(read.ok()) << read.status();
  const auto found = read->Find(module.table(), "m", 3, 96);
  ASSERT_TRUE(found.ok()) << found.status();
  const QuantisedMatrix& matrix = **found;
  ASSERT_EQ(matrix.Form(), DType::kG8);
  std::vector<std::byte> block(kernels::BlockBytes(DType::kG8));
  for (int64_t row = 0; row < 3; ++row) {
    for (int64_t group = 0; group < 3; ++group) {
      ASSERT_TRUE(matrix.Check({row, 1, 32 * group, 32}).ok());
      matrix.Write({row, 1, 32 * group, 32}, block.data());
      float values[32];
      kernels::grouped::Expand(DType::kG8, block.data(), values);
      for (int64_t k = 0; k < 32; ++k) {
        const int integer = codes[static_cast<size_t>(row * 96 + group * 32 + k)] -
                            zeros[static_cast<size_t>(row * 3 + group)];
        ASSERT_EQ(values[k],
                  scales[static_cast<size_t>(row * 3 + group)] * static_cast<float>(integer));
      }
    }
  }
}

}  // namespace
}  // namespace quire::load
