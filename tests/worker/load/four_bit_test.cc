// Checkpoints of NVFP4, MXFP4 and bitsandbytes: the weights that their tensors mean, and what is
// refused with one line that names it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/expand.h"
#include "kernels/grouped_blocks.h"
#include "tests/worker/load/fake_module.h"
#include "worker/load/quantisation.h"

namespace quire::load {
namespace {

using kernels::DType;

constexpr const char* kNvfp4 =
    R"({"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized","config_groups":)"
    R"({"group_0":{"weights":{"num_bits":4,"type":"float","group_size":16,"strategy":)"
    R"("tensor_group"},"input_activations":{"num_bits":4,"type":"float","dynamic":"local"}}}})";
constexpr const char* kMxfp4 =
    R"({"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized","config_groups":)"
    R"({"group_0":{"weights":{"num_bits":4,"type":"float","group_size":32}}}})";
constexpr const char* kModelOpt = R"({"quant_method":"modelopt","quant_algo":"NVFP4"})";
constexpr const char* kFourBits =
    R"({"quant_method":"bitsandbytes","load_in_4bit":true,"bnb_4bit_quant_type":"nf4"})";
constexpr const char* kEightBits = R"({"quant_method":"bitsandbytes","load_in_8bit":true})";

constexpr float kE2m1[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// Numbers that look like no pattern.
uint8_t Byte(size_t i) { return static_cast<uint8_t>(i * 2654435761u >> 13); }
std::vector<uint8_t> Bytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = Byte(i);
  return bytes;
}
std::vector<uint8_t> TextBytes(const std::string& text) { return {text.begin(), text.end()}; }

// The float32 weights of [rows, cols], once as Write makes the whole, then from the floats.
void ExpectWeights(const std::string& config, const FakeModule& module, DType form, int64_t rows,
                   int64_t cols, const std::function<float(int64_t row, int64_t col)>& wanted) {
  const absl::StatusOr<Quantisation> read = ReadConfig(config);
  ASSERT_TRUE(read.ok()) << read.status();
  const auto found = read->Find(module.table(), "m", rows, cols);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->has_value());
  const QuantisedMatrix& matrix = **found;
  ASSERT_EQ(matrix.Form(), form);
  kernels::WeightSource source{form, rows, cols};
  std::vector<std::byte> out(static_cast<size_t>(source.Bytes()));
  ASSERT_TRUE(matrix.Check({0, rows, 0, cols}).ok());
  matrix.Write({0, rows, 0, cols}, out.data());
  source.data = out.data();
  std::vector<float> columns(static_cast<size_t>(rows * cols));
  matrix.WriteTransposed({0, rows, 0, cols}, columns.data());
  std::vector<float> values(static_cast<size_t>(cols));
  for (int64_t row = 0; row < rows; ++row) {
    kernels::ExpandRow(source, row, values);
    for (int64_t col = 0; col < cols; ++col) {
      const float value = wanted(row, col);
      ASSERT_EQ(values[static_cast<size_t>(col)], value) << row << " " << col;
      ASSERT_EQ(columns[static_cast<size_t>(col * rows + row)], value) << row << " " << col;
    }
  }
}

uint8_t LowFirst(const std::vector<uint8_t>& bytes, int64_t i) {
  const uint8_t pair = bytes[static_cast<size_t>(i / 2)];
  return i % 2 == 0 ? pair & 15 : pair >> 4;
}
uint8_t HighFirst(const std::vector<uint8_t>& bytes, int64_t i) {
  const uint8_t pair = bytes[static_cast<size_t>(i / 2)];
  return i % 2 == 0 ? pair >> 4 : pair & 15;
}

// Finite codes of e4m3.
std::vector<uint8_t> E4m3Codes(size_t count) {
  std::vector<uint8_t> codes = Bytes(count);
  for (uint8_t& code : codes) code = (code & 127) == 127 ? 3 : code;
  return codes;
}

TEST(FourBits, DescriptionsNameNumbersAndActivations) {
  EXPECT_EQ(ReadConfig(kNvfp4)->Description(""),
            "compressed-tensors, e2m1 in groups of 16, weights only (dynamic fp4 activations are "
            "not applied)");
  EXPECT_EQ(ReadConfig(kMxfp4)->Description(""), "compressed-tensors, e2m1 in groups of 32");
  EXPECT_EQ(ReadConfig(kModelOpt)->Description(""),
            "modelopt, e2m1 in groups of 16, weights only (dynamic fp4 activations are not "
            "applied)");
  EXPECT_EQ(ReadConfig(kFourBits)->Description(""), "bitsandbytes, nf4");
  EXPECT_EQ(ReadConfig(kEightBits)->Description(""),
            "bitsandbytes, 8 bits by row, weights only (dynamic int8 activations are not applied)");
}

// The scale is divided, or multiplied, and rounded before the code is multiplied.
TEST(Nvfp4, WeightsAreCodesTimesARoundedScale) {
  for (const int64_t cols : {96, 48}) {  // whole runs of 32, and not
    const std::vector<uint8_t> codes = Bytes(static_cast<size_t>(3 * cols / 2));
    const std::vector<uint8_t> scales = E4m3Codes(static_cast<size_t>(3 * cols / 16));
    const DType form = cols % 32 == 0 ? DType::kF4_16 : DType::kF32;
    const auto scale_at = [&](int64_t row, int64_t col) {
      return kernels::grouped::E4m3(scales[static_cast<size_t>((row * cols + col) / 16)]);
    };
    const auto code_at = [&](int64_t row, int64_t col) {
      return kE2m1[LowFirst(codes, row * cols + col)];
    };
    FakeModule compressed;
    compressed.Add("weight_packed", "U8", {3, cols / 2}, codes);
    compressed.Add("weight_scale", "F8_E4M3", {3, cols / 16}, scales);
    compressed.Add("weight_global_scale", "F32", {1}, std::vector<float>{7.3f});
    ExpectWeights(kNvfp4, compressed, form, 3, cols, [&](int64_t row, int64_t col) {
      const float scale = scale_at(row, col) / 7.3f;
      return code_at(row, col) * scale;
    });
    FakeModule modelopt;
    modelopt.Add("weight", "U8", {3, cols / 2}, codes);
    modelopt.Add("weight_scale", "F8_E4M3", {3, cols / 16}, scales);
    modelopt.Add("weight_scale_2", "F32", {}, std::vector<float>{0.0123f});
    modelopt.Add("input_scale", "F32", {}, std::vector<float>{0.5f});
    ExpectWeights(kModelOpt, modelopt, form, 3, cols, [&](int64_t row, int64_t col) {
      const float scale = scale_at(row, col) * 0.0123f;
      return code_at(row, col) * scale;
    });
  }
}

TEST(Mxfp4, WeightsAreCodesTimesAPowerOfTwo) {
  const std::vector<uint8_t> codes = Bytes(2 * 48);
  const std::vector<uint8_t> exponents = {127, 100, 1, 254, 130, 120};
  FakeModule module;
  module.Add("weight_packed", "U8", {2, 48}, codes);
  module.Add("weight_scale", "U8", {2, 3}, exponents);
  ExpectWeights(kMxfp4, module, DType::kMXFP4, 2, 96, [&](int64_t row, int64_t col) {
    const uint8_t exponent = exponents[static_cast<size_t>((row * 96 + col) / 32)];
    return std::ldexp(kE2m1[LowFirst(codes, row * 96 + col)], exponent - 127);
  });
}

FakeModule Nvfp4Module(float outer, uint8_t first_scale = 0x38) {
  std::vector<uint8_t> scales(4, 0x38);
  scales[3] = first_scale;
  FakeModule module;
  module.Add("weight_packed", "U8", {2, 16}, Bytes(32));
  module.Add("weight_scale", "F8_E4M3", {2, 2}, scales);
  module.Add("weight_global_scale", "F32", {1}, std::vector<float>{outer});
  return module;
}

TEST(Nvfp4, TensorsThatAreWrong) {
  EXPECT_EQ(RefusalOf(kNvfp4, Nvfp4Module(1.0f), 2, 32), "");
  EXPECT_EQ(RefusalOf(kNvfp4, Nvfp4Module(1.0f), 2, 24),
            "w: tensor \"m.weight_packed\" packs 24 inputs, expected a multiple of 16");
  EXPECT_EQ(RefusalOf(kNvfp4, Nvfp4Module(1.0f), 2, 48),
            "w: tensor \"m.weight_packed\" has shape [2, 16], expected [2, 24]");
  for (const auto& [outer, text] : std::vector<std::pair<float, std::string>>{
           {0.0f, "0"}, {-2.0f, "-2"}, {INFINITY, "inf"}, {NAN, "nan"}}) {
    EXPECT_EQ(
        RefusalOf(kNvfp4, Nvfp4Module(outer), 2, 32),
        "w: tensor \"m.weight_global_scale\" holds " + text + ", expected a finite number above 0");
  }
  EXPECT_EQ(RefusalOf(kNvfp4, Nvfp4Module(1.0f, 0x7f), 2, 32),
            "w: tensor \"m.weight_scale\" holds nan as the scale of row 1, group 1; every scale "
            "must be a finite number");
  EXPECT_EQ(RefusalOf(kNvfp4, Nvfp4Module(1e-38f, 0x7e), 2, 32),
            "w: tensor \"m.weight_scale\" holds inf as the scale of row 1, group 1; every scale "
            "must be a finite number");
  FakeModule alone = FakeModule().Add("weight_packed", "U8", {2, 16}, Bytes(32));
  EXPECT_EQ(RefusalOf(kNvfp4, alone, 2, 32),
            "tensor \"m.weight_scale\" is missing, the quantised weight of \"m\" demands it");
  FakeModule type = alone;
  type.Add("weight_scale", "U8", {2, 2}, Bytes(4));
  EXPECT_EQ(RefusalOf(kNvfp4, type, 2, 32),
            "w: tensor \"m.weight_scale\" has type U8, expected F8_E4M3");
  alone.Add("weight_scale", "F8_E4M3", {2, 2}, E4m3Codes(4));
  EXPECT_EQ(RefusalOf(kNvfp4, alone, 2, 32),
            "tensor \"m.weight_global_scale\" is missing, the quantised weight of \"m\" demands "
            "it");
  EXPECT_EQ(RefusalOf(R"({"quant_method":"compressed-tensors","format":"pack-quantized",)"
                      R"("config_groups":{"g":{"weights":{"num_bits":4}}}})",
                      Nvfp4Module(1.0f), 2, 32),
            "w: tensor \"m.weight_packed\" is of e2m1, the configuration names none");
}

TEST(Nvfp4, ModelOptTensorsThatAreWrong) {
  FakeModule module = FakeModule().Add("weight", "U8", {2, 16}, Bytes(32));
  EXPECT_EQ(RefusalOf(R"({"quant_method":"modelopt","quant_algo":"FP8"})", module, 2, 32),
            "w: tensor \"m.weight\" is of e2m1, the configuration names e4m3");
  module.Add("weight_scale", "F8_E4M3", {2, 2}, E4m3Codes(4));
  EXPECT_EQ(RefusalOf(kModelOpt, module, 2, 32),
            "tensor \"m.weight_scale_2\" is missing, the quantised weight of \"m\" demands it");
  module.Add("weight_scale_2", "F32", {2}, std::vector<float>(2, 1.0f));
  EXPECT_EQ(RefusalOf(kModelOpt, module, 2, 32),
            "w: tensor \"m.weight_scale_2\" has shape [2], expected [1]");
  module.Add("pre_quant_scale", "F32", {32}, std::vector<float>(32, 1.0f));
  EXPECT_EQ(RefusalOf(kModelOpt, module, 2, 32),
            "w: tensor \"m.pre_quant_scale\" scales the inputs of a product, which is not served");
  EXPECT_EQ(RefusalOf(kModelOpt,
                      FakeModule().Add("weight", "BF16", {1, 1}, std::vector<uint16_t>(1)), 1, 1),
            "plain");
}

TEST(Mxfp4, TensorsThatAreWrong) {
  FakeModule module = FakeModule().Add("weight_packed", "U8", {2, 16}, Bytes(32));
  FakeModule type = module;
  type.Add("weight_scale", "F32", {2, 1}, std::vector<float>(2));
  EXPECT_EQ(RefusalOf(kMxfp4, type, 2, 32),
            "w: tensor \"m.weight_scale\" has type F32, expected U8 or F8_E8M0");
  module.Add("weight_scale", "U8", {2, 1}, std::vector<uint8_t>{127, 255});
  EXPECT_EQ(RefusalOf(kMxfp4, module, 2, 32),
            "w: tensor \"m.weight_scale\" holds nan as the scale of row 1, group 0; every scale "
            "must be a finite number");
}

// What a module of bitsandbytes holds; a test changes a part.
struct FourBits {
  int64_t rows = 3;
  int64_t cols = 128;
  int64_t block = 64;
  std::string type = "nf4";
  bool nested = true;
  std::string state = "";  // empty: a right one
  float map_error = 0.0f;
  float absmax_error = 0.0f;  // NaN: the last scale of floats is none

  int64_t Blocks() const { return (rows * cols + block - 1) / block; }
  std::string State() const {
    std::string text = R"({"quant_type": ")" + type + R"(", "blocksize": )" +
                       std::to_string(block) + R"(, "dtype": "bfloat16", "shape": [)" +
                       std::to_string(rows) + ", " + std::to_string(cols) + "]";
    if (nested) {
      text += R"(, "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": 0.037)";
    }
    return text + "}";
  }
  std::vector<uint8_t> Codes() const { return Bytes(static_cast<size_t>((rows * cols + 1) / 2)); }
  std::vector<float> Floats() const {
    std::vector<float> scales(static_cast<size_t>(Blocks()));
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01f * static_cast<float>(Byte(i));
    scales.back() += absmax_error;
    return scales;
  }
  static std::vector<float> Codebook() {
    std::vector<float> book(256);
    for (size_t i = 0; i < 256; ++i) book[i] = (static_cast<float>(i) - 127.5f) / 127.0f;
    return book;
  }

  FakeModule Module() const {
    FakeModule module;
    const std::vector<uint8_t> codes = Codes();
    module.Add("weight", "U8", {std::ssize(codes), 1}, codes);
    std::vector<float> map(
        type == "fp4" ? kernels::grouped::kFp4Values : kernels::grouped::kNf4Values,
        (type == "fp4" ? kernels::grouped::kFp4Values : kernels::grouped::kNf4Values) + 16);
    map[5] += map_error;
    module.Add("weight.quant_map", "F32", {16}, map);
    if (nested) {
      const int64_t outers = (Blocks() + 255) / 256;
      module.Add("weight.absmax", "U8", {Blocks()}, Bytes(static_cast<size_t>(Blocks())));
      module.Add("weight.nested_absmax", "F32", {outers},
                 std::vector<float>(static_cast<size_t>(outers), 0.73f));
      module.Add("weight.nested_quant_map", "F32", {256}, Codebook());
    } else {
      module.Add("weight.absmax", "F32", {Blocks()}, Floats());
    }
    const std::vector<uint8_t> text = TextBytes(state.empty() ? State() : state);
    module.Add("weight.quant_state.bitsandbytes__" + type, "U8", {std::ssize(text)}, text);
    return module;
  }
};

TEST(BitsAndBytes, WeightsAreNumbersOfATableTimesTheScaleOfTheirBlock) {
  for (const std::string type : {"nf4", "fp4"}) {
    for (const bool nested : {false, true}) {
      // Blocks within rows, of more than 64, across rows, and an odd number of weights.
      for (const auto& [cols, block] : std::vector<std::pair<int64_t, int64_t>>{
               {128, 64}, {192, 128}, {96, 64}, {64, 32}, {33, 64}}) {
        SCOPED_TRACE(type + " " + std::to_string(cols) + " " + std::to_string(block));
        const FourBits parts{.cols = cols, .block = block, .type = type, .nested = nested};
        const bool whole = cols % 64 == 0 && block % 64 == 0;
        const DType form = !whole ? DType::kF32 : type == "nf4" ? DType::kNF4 : DType::kFP4;
        const std::vector<uint8_t> codes = parts.Codes();
        const std::vector<float> scales = parts.Floats();
        const std::vector<float> book = FourBits::Codebook();
        const float* table =
            type == "nf4" ? kernels::grouped::kNf4Values : kernels::grouped::kFp4Values;
        ExpectWeights(kFourBits, parts.Module(), form, parts.rows, cols,
                      [&, block = block, cols = cols](int64_t row, int64_t col) {
                        const auto at = static_cast<size_t>((row * cols + col) / block);
                        float scale = scales[at];
                        if (nested) {
                          scale = book[Byte(at)] * 0.73f;
                          scale = scale + 0.037f;
                        }
                        return table[HighFirst(codes, row * cols + col)] * scale;
                      });
      }
    }
  }
}

TEST(BitsAndBytes, EightBitsAreIntegersTimesTheScaleOfTheirRow) {
  const std::vector<uint8_t> codes = Bytes(3 * 64);
  const std::vector<float> scales = {1.7f, 0.0f, 33.1f};
  FakeModule module;
  module.Add("weight", "I8", {3, 64}, codes).Add("SCB", "F32", {3}, scales);
  module.Add("weight_format", "U8", {}, std::vector<uint8_t>{0});
  ExpectWeights(kEightBits, module, DType::kG8, 3, 64, [&](int64_t row, int64_t col) {
    const float scale = scales[static_cast<size_t>(row)] / 127.0f;
    return static_cast<float>(static_cast<int8_t>(codes[static_cast<size_t>(row * 64 + col)])) *
           scale;
  });
}

TEST(BitsAndBytes, EightBitTensorsThatAreWrong) {
  FakeModule module = FakeModule().Add("weight", "I8", {2, 32}, Bytes(64));
  EXPECT_EQ(RefusalOf(kEightBits, module, 2, 32),
            "tensor \"m.SCB\" is missing, the quantised weight of \"m\" demands it");
  FakeModule shape = module;
  shape.Add("SCB", "F32", {1}, std::vector<float>(1));
  EXPECT_EQ(RefusalOf(kEightBits, shape, 2, 32), "w: tensor \"m.SCB\" has shape [1], expected [2]");
  module.Add("SCB", "F32", {2}, std::vector<float>{1.0f, NAN});
  EXPECT_EQ(RefusalOf(kEightBits, module, 2, 32),
            "w: tensor \"m.SCB\" holds nan as the scale of row 1, group 0; every scale must be a "
            "finite number");
  module.Add("weight_format", "U8", {}, std::vector<uint8_t>{2});
  EXPECT_EQ(RefusalOf(kEightBits, module, 2, 32),
            "w: tensor \"m.weight_format\" holds 2, expected 0 (rows)");
}

TEST(BitsAndBytes, StatesThatAreWrong) {
  const std::string where =
      "w: tensor \"m.weight.quant_state.bitsandbytes__nf4\" is no state that is served: ";
  const auto said = [](const std::string& state, bool nested) {
    const FourBits parts{.nested = nested, .state = state};
    return RefusalOf(kFourBits, parts.Module(), parts.rows, parts.cols);
  };
  const std::string shape = R"("shape":[3,128])";
  const std::string right = R"({"quant_type":"nf4","blocksize":64,)" + shape;
  EXPECT_EQ(said(right + "}", false), "");
  EXPECT_EQ(said(R"({"quant_type":"fp4","blocksize":64,)" + shape + "}", false),
            where + "quant_type is \"fp4\", expected \"nf4\"");
  for (const std::string block : {"0", "-64", "63", "16", "8192", "9223372036854775807"}) {
    EXPECT_EQ(said(R"({"quant_type":"nf4","blocksize":)" + block + "," + shape + "}", false),
              where + "blocksize is " + block + ", expected a power of two from 32 to 4096");
  }
  EXPECT_EQ(said(R"({"quant_type":"nf4","blocksize":64})", false), where + "has no \"shape\"");
  for (const std::string bad : {"[3]", "[128,3]", "[]", "[3,128,1]"}) {
    EXPECT_EQ(said(R"({"quant_type":"nf4","blocksize":64,"shape":)" + bad + "}", false),
              where + "shape is " + bad + ", expected [3,128]");
  }
  EXPECT_EQ(said(right + "}", true),
            where + "nested_blocksize is 0, expected a power of two from 32 to 4096");
  EXPECT_EQ(said(right + R"(,"nested_blocksize":256})", true), where + "has no nested_offset");
  EXPECT_EQ(said(right + R"(,"nested_blocksize":256,"nested_offset":1e300})", true),
            where + "nested_offset is 1e+300, expected a number of float32");
  EXPECT_EQ(said(right + R"(,"nested_offset":0.5})", false),
            where + "has a nested_offset, and the weight has no nested_absmax");
  // Anything else that a file may hold there: one line, and no deep recursion.
  for (const std::string& hostile :
       {std::string("{"), std::string("[]"), std::string("\0\xff", 2), std::string("null"),
        std::string(60000, '['), std::string(R"({"quant_type":"a\nb"})"),
        right + R"(,"nested_offset":NaN})",
        R"({"quant_type":7,"blocksize":64})" + std::string(1 << 17, ' ')}) {
    const std::string message = said(hostile, false);
    EXPECT_TRUE(message.starts_with(where)) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST(BitsAndBytes, FourBitTensorsThatAreWrong) {
  const auto said = [](const FourBits& parts, int64_t rows = 3, int64_t cols = 128) {
    return RefusalOf(kFourBits, parts.Module(), rows, cols);
  };
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({.type = "af4"}),
            "w: tensor \"m.weight.quant_state.bitsandbytes__af4\" names a type that is not served; "
            "nf4 and fp4 are");
  EXPECT_EQ(said({.map_error = 0.5f}),
            "w: tensor \"m.weight.quant_map\" holds 0.315227 at 5, expected -0.184773");
  EXPECT_EQ(said({.nested = false, .absmax_error = NAN}),
            "w: tensor \"m.weight.absmax\" holds nan as the scale of row 2, group 5; every scale "
            "must be a finite number");
  const FakeModule codes = FakeModule().Add("weight", "U8", {192, 1}, Bytes(192));
  EXPECT_EQ(RefusalOf(kFourBits, codes, 3, 128),
            "tensor \"m.weight.quant_state.bitsandbytes__nf4\" is missing, the quantised weight of "
            "\"m\" demands it");
  // A tensor is missing, or has another shape than state and matrix demand.
  const std::string state = FourBits{.nested = false}.State();
  const auto with_state = [&](const std::string& text) {
    return FakeModule().Add("weight.quant_state.bitsandbytes__nf4", "U8", {std::ssize(text)},
                            TextBytes(text));
  };
  FakeModule module = with_state(state);
  FakeModule stored = module;
  stored.Add("weight", "BF16", {96, 1}, std::vector<uint16_t>(96));
  EXPECT_EQ(RefusalOf(kFourBits, stored, 3, 128),
            "w: tensor \"m.weight\" has type BF16, expected U8");
  module.Add("weight", "U8", {192, 1}, Bytes(192));
  EXPECT_EQ(RefusalOf(kFourBits, module, 3, 128),
            "tensor \"m.weight.quant_map\" is missing, the quantised weight of \"m\" demands it");
  module.Add("weight.quant_map", "F32", {16},
             std::vector<float>(kernels::grouped::kNf4Values, kernels::grouped::kNf4Values + 16));
  EXPECT_EQ(RefusalOf(kFourBits, module, 3, 128),
            "tensor \"m.weight.absmax\" is missing, the quantised weight of \"m\" demands it");
  module.Add("weight.absmax", "F32", {5}, std::vector<float>(5));
  EXPECT_EQ(RefusalOf(kFourBits, module, 3, 128),
            "w: tensor \"m.weight.absmax\" has shape [5], expected [6]");
  EXPECT_EQ(RefusalOf(kFourBits,
                      FakeModule().Add("weight", "BF16", {1, 1}, std::vector<uint16_t>(1)), 1, 1),
            "plain");
}

}  // namespace
}  // namespace quire::load
