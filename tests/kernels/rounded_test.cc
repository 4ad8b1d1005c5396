// The class w8a8: rounded rows and sums, bit for bit, against a model of the rule and against what
// compressed-tensors and torch compute. Outputs and scratch start as NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "kernels/backend.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/round_rows.h"
#include "kernels/grouped_blocks.h"
#include "tests/kernels/harness.h"
#include "tests/kernels/product.h"
#include "tests/kernels/rounded_model.h"

namespace quire::kernels::cpu {
namespace {

using Code = ActivationRounding::Code;
using test::Pack;
using test::Product;
using test::RoundedFault;
using test::RoundedModel;
using test::SameBits;
using test::WeightStore;

std::vector<const KernelTable*> HostRoundedKernels() {
  std::vector<const KernelTable*> tables = {&ReferenceRoundedKernels(), &Avx2RoundedKernels()};
  if (HostHas(Isa::kAvx512Vnni)) tables.push_back(&Avx512VnniRoundedKernels());
  return tables;
}

// One scheme, as checkpoints ask for it.
struct Scheme {
  const char* name;
  DType type;
  ActivationRounding rule;
  std::vector<RoundedFault> faults;  // that can show
};

std::vector<Scheme> Schemes() {
  using F = RoundedFault;
  const std::vector<F> int8 = {F::kScaleBeforeWeight, F::kInverse, F::kOf127};
  const std::vector<F> codes = {F::kScaleBeforeWeight, F::kInverse, F::kOneChain};
  const std::vector<F> chunks = {F::kInverse, F::kOneChain, F::kSeparateRounding};
  return {
      {"int8", DType::kG8, {.code = Code::kInt8}, int8},
      {"int8Zero", DType::kG8, {.code = Code::kInt8, .symmetric = false}, {F::kScaleBeforeWeight}},
      {"int8Static", DType::kG8, {.code = Code::kInt8, .scale = 0.03f}, {F::kScaleBeforeWeight}},
      {"int8StaticZero",
       DType::kG8,
       {.code = Code::kInt8, .symmetric = false, .scale = 0.03f, .zero = -7},
       {F::kScaleBeforeWeight}},
      {"int8Groups", DType::kG8, {.code = Code::kInt8, .weight_group = 32}, {F::kOneChain}},
      {"int8OnNibbles", DType::kG4_128, {.code = Code::kInt8, .weight_group = 128}, {F::kOneChain}},
      {"int8OnFloats", DType::kF32, {.code = Code::kInt8}, {F::kOneChain}},
      {"e4m3", DType::kF8, {.code = Code::kE4m3}, codes},
      {"e4m3Static", DType::kF8, {.code = Code::kE4m3, .scale = 0.004f}, {F::kScaleBeforeWeight}},
      {"e4m3Blocks", DType::kF8, {.code = Code::kE4m3, .group = 128, .weight_group = 128}, chunks},
      {"e4m3RowsAndGroups", DType::kF8, {.code = Code::kE4m3, .group = 128}, chunks},
      {"e4m3TokensAndBlocks", DType::kF8, {.code = Code::kE4m3, .weight_group = 128}, chunks},
      {"e4m3OddBlocks",
       DType::kF8,
       {.code = Code::kE4m3, .group = 128, .weight_group = 32},
       chunks},
      {"e4m3OnFloats", DType::kF32, {.code = Code::kE4m3}, {F::kOneChain}},
  };
}

// A source whose blocks share scales (and zeros) as its rule says.
WeightSource Source(WeightStore& store, const Scheme& scheme, int64_t rows, int64_t cols) {
  WeightSource source = store.Random(scheme.type, rows, cols, 0.1f);
  source.rounding = scheme.rule;
  if (!grouped::IsGrouped(scheme.type)) return source;
  const int64_t elements = BlockElements(scheme.type);
  const int64_t bytes = BlockBytes(scheme.type);
  const int64_t group = scheme.rule.weight_group == 0 ? cols : scheme.rule.weight_group;
  for (int64_t row = 0; row < rows; ++row) {
    auto* blocks = const_cast<std::byte*>(source.Row(row));
    for (int64_t block = 0; block < cols / elements; ++block) {
      const int64_t first = block * elements / group * group / elements;
      std::memcpy(blocks + block * bytes, blocks + first * bytes,
                  static_cast<size_t>(grouped::HeadBytes(scheme.type)));
    }
    // The lowest code, whose magnitude no other has.
    if (scheme.type == DType::kG8) blocks[grouped::HeadBytes(scheme.type)] = std::byte{0x80};
  }
  return source;
}

Weight OneSource(const WeightSource& source) { return {"w", {source}, source.rows, source.cols}; }

std::vector<float> RowsWithOutliers(int64_t count, std::mt19937& random) {
  std::vector<float> x = test::RandomRows(count, random);
  for (float& v : x) {
    if (random() % 50 == 0) v *= 40.0f;
  }
  return x;
}

class EveryRounding : public ::testing::TestWithParam<Scheme> {};

// 72 rows in two parts leave a partial panel; K = 640 makes five chunks, two and a half of words.
TEST_P(EveryRounding, FollowsTheRuleAtEveryRowCount) {
  WeightStore store(17);
  constexpr int64_t kColumns = 640;
  constexpr int kMostRows = 530;  // beyond one pass over the rows
  constexpr int kModelled = 20;
  Weight weight;
  weight.cols = kColumns;
  weight.parts = {Source(store, GetParam(), 40, kColumns), Source(store, GetParam(), 32, kColumns)};
  weight.rows = 72;
  Product product;
  product.matrix = Pack(weight, false);
  ASSERT_EQ(product.matrix.roundings.inputs.size(), 1u);
  const std::vector<float> x = RowsWithOutliers(kMostRows * kColumns, store.random());
  const RoundedModel model(weight);
  std::vector<float> wanted;
  for (int row = 0; row < kModelled; ++row) {
    const std::vector<float> y = model.Run({x.data() + row * kColumns, kColumns});
    wanted.insert(wanted.end(), y.begin(), y.end());
  }
  const std::vector<float> whole = product.Run(*HostRoundedKernels().back(), x, kMostRows);
  ASSERT_TRUE(SameBits({whole.begin(), whole.begin() + kModelled * weight.rows}, wanted));
  std::vector<int> counts = {31, 32, 33, 64, kMostRows};
  for (int rows = 1; rows <= 25; ++rows) counts.push_back(rows);
  for (const KernelTable* kernels : HostRoundedKernels()) {
    for (const int rows : counts) {
      if (kernels == &ReferenceRoundedKernels() && rows > 9) continue;
      const std::vector<float> part = product.Run(*kernels, x, rows);
      ASSERT_TRUE(SameBits(part, {whole.begin(), whole.begin() + rows * weight.rows}))
          << kernels->name << " with " << rows << " rows";
    }
  }
}

// A test that would pass with another rule proves nothing: each fault must show.
TEST_P(EveryRounding, OtherRulesHaveOtherBits) {
  WeightStore store(21);
  const Weight weight = OneSource(Source(store, GetParam(), 64, 640));
  const RoundedModel model(weight);
  // Whole numbers, of which many lie between two codes, and others.
  std::vector<std::vector<float>> rows = {RowsWithOutliers(640, store.random())};
  for (int most = 40; most < 70; ++most) {
    rows.emplace_back(640, static_cast<float>(most));
    for (float& v : rows.back()) {
      v = static_cast<float>(static_cast<int>(store.random()() % (2 * most + 1)) - most);
    }
  }
  for (const RoundedFault fault : GetParam().faults) {
    const bool shows = std::ranges::any_of(
        rows, [&](const auto& x) { return !SameBits(model.Run(x, fault), model.Run(x)); });
    EXPECT_TRUE(shows) << static_cast<int>(fault);
  }
}

// Rows of zeros, of the smallest and of the largest numbers, and remainders of K.
TEST_P(EveryRounding, ZerosExtremesAndRemainders) {
  for (const int64_t columns : {128, 160, 224, 288}) {
    if (columns % BlockElements(GetParam().type) != 0) continue;
    WeightStore store(23);
    const Weight weight = OneSource(Source(store, GetParam(), 37, columns));
    Product product;
    product.matrix = Pack(weight, false);
    const RoundedModel model(weight);
    std::vector<float> x(20 * columns, 0.0f);
    const float sizes[] = {1e-45f, 1.4e-36f, 1.6e-36f, 1e-20f, 1.0f, 1e20f, 1e30f};
    for (int row = 1; row < 20; ++row) {
      for (int64_t k = 0; k < columns; ++k) {
        const float sign = store.random()() % 2 == 0 ? 1.0f : -1.0f;
        x[row * columns + k] = store.random()() % 3 == 0 ? 0.0f : sign * sizes[row % 7];
      }
    }
    for (const KernelTable* kernels : HostRoundedKernels()) {
      for (const int rows : {1, 3, 20}) {
        const std::vector<float> y = product.Run(*kernels, x, rows);
        for (int row = 0; row < rows; ++row) {
          const std::vector<float> wanted =
              model.Run({x.data() + row * columns, static_cast<size_t>(columns)});
          EXPECT_TRUE(SameBits({y.begin() + row * 37, y.begin() + row * 37 + 37}, wanted))
              << kernels->name << " row " << row << " of " << rows << ", K = " << columns;
        }
      }
    }
  }
}

// What is not finite makes its own row NaN and no other.
TEST_P(EveryRounding, InfinitiesAndNaNStayInTheirRow) {
  WeightStore store(25);
  constexpr int64_t kColumns = 256;
  const Weight weight = OneSource(Source(store, GetParam(), 20, kColumns));
  Product product;
  product.matrix = Pack(weight, false);
  for (const int rows : {1, 2, 4, 7, 20}) {
    std::vector<float> x = test::RandomRows(rows * kColumns, store.random());
    const std::vector<float> clean = product.Run(*HostRoundedKernels().back(), x, rows);
    const int bad = rows / 2;
    for (const float value : {HUGE_VALF, -HUGE_VALF, std::nanf(""), -std::nanf("")}) {
      std::vector<float> spoilt = x;
      spoilt[bad * kColumns + 77] = value;
      for (const KernelTable* kernels : HostRoundedKernels()) {
        const std::vector<float> y = product.Run(*kernels, spoilt, rows);
        for (int i = 0; i < rows * 20; ++i) {
          if (i / 20 == bad) {
            EXPECT_TRUE(std::isnan(y[i])) << kernels->name << " " << value;
          } else {
            EXPECT_EQ(y[i], clean[i]) << kernels->name << " " << value;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rounded, EveryRounding, ::testing::ValuesIn(Schemes()),
                         [](const auto& info) { return std::string(info.param.name); });

// q under one static scale, k under another, v in floats, as an ignore list leaves it: each part is
// multiplied in its own way, the last as in the float32 class.
TEST(Rounded, PartsOfAMatrixHaveRulesOfTheirOwn) {
  WeightStore store(29);
  const std::vector<Scheme> schemes = Schemes();
  Weight weight;
  weight.cols = 256;
  weight.parts = {Source(store, schemes[0], 24, 256), Source(store, schemes[2], 40, 256),
                  store.Random(DType::kBF16, 16, 256, 0.4f), Source(store, schemes[9], 16, 256)};
  weight.rows = 96;
  Product product;
  product.matrix = Pack(weight, false);
  const RoundedModel model(weight);
  const std::vector<float> x = RowsWithOutliers(40 * 256, store.random());
  for (const int rows : {1, 4, 16, 40}) {
    const std::vector<float> plain = product.Run(ReferenceKernels(), x, rows);
    for (const KernelTable* kernels : HostRoundedKernels()) {
      const std::vector<float> y = product.Run(*kernels, x, rows);
      const std::vector<float> wanted = model.Run({x.data() + (rows - 1) * 256, 256});
      EXPECT_TRUE(SameBits({y.end() - 96, y.end()}, wanted)) << kernels->name << " " << rows;
      EXPECT_TRUE(SameBits({y.end() - 32, y.end() - 16}, {plain.end() - 32, plain.end() - 16}));
    }
  }
}

// Gates and values are partners.
TEST(Rounded, GatedPairs) {
  WeightStore store(31);
  Weight weight;
  weight.cols = 128;
  const Scheme scheme = Schemes().front();
  weight.parts = {Source(store, scheme, 48, 128), Source(store, scheme, 48, 128)};
  weight.rows = 96;
  Product product;
  product.matrix = Pack(weight, true);
  product.activation = LinearOp::Activation::kSiluGated;
  const std::vector<float> x = test::RandomRows(20 * 128, store.random());
  const std::vector<float> whole = product.Run(ReferenceRoundedKernels(), x, 20);
  for (const KernelTable* kernels : HostRoundedKernels()) {
    for (const int rows : {1, 3, 20}) {
      EXPECT_TRUE(
          SameBits(product.Run(*kernels, x, rows), {whole.begin(), whole.begin() + rows * 48}));
    }
  }
}

uint64_t Mix(uint64_t i) {
  uint64_t z = (i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

std::string Digest(const std::vector<float>& values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += std::bit_cast<uint32_t>(values[i]) * Mix(i);
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(sum));
  return text;
}

std::map<std::string, std::pair<std::string, std::string>> Digests() {
  std::ifstream file(QUIRE_SOURCE_DIR "/tests/kernels/fixtures/rounded_rows.txt");
  std::map<std::string, std::pair<std::string, std::string>> digests;
  std::string name, codes, scales;
  while (file >> name >> codes) {
    if (name != "casts") file >> scales;
    digests[name] = {codes, scales};
  }
  return digests;
}

// Codes and scales of x as `kernels` round them, in the order of rows.
std::pair<std::vector<float>, std::vector<float>> RoundAll(const KernelTable& kernels,
                                                           const RoundingOfInput& input, int rows,
                                                           int64_t k, const std::vector<float>& x) {
  std::vector<float> memory(static_cast<size_t>(2 * rows * k), std::nanf(""));
  std::vector<float> scales(static_cast<size_t>(3 * rows), std::nanf(""));
  PackedMatrix matrix;
  matrix.k = k;
  LinearJob job;
  job.weight = &matrix;
  job.x = x.data();
  job.x_stride = k;
  job.rows = rows;
  const RoundedInput out{reinterpret_cast<int32_t*>(memory.data()), memory.data(), scales.data()};
  const RowTiles tiles(rows, kernels.rounded_tile_rows);
  for (int tile = tiles.count - 1; tile >= 0; --tile) {
    kernels.round(job, input, {tile, tile + 1}, out);
  }
  std::vector<float> codes;
  for (int tile = 0; tile < tiles.count; ++tile) {
    const int first = tiles.Begin(tile), count = tiles.Begin(tile + 1) - first;
    for (int row = first; row < first + count; ++row) {
      for (int64_t i = 0; i < k; ++i) {
        const int64_t begin = i / kWordChunk * kWordChunk;
        const int64_t end = std::min(k, begin + kWordChunk);
        const int32_t* chunk = out.words + WordPlace(begin, end, rows, first);
        const int64_t word = (i - begin) / 4 * 2 + i % 2;
        if (input.words) {
          const int32_t pair = chunk[word * count + row - first];
          codes.push_back(static_cast<int16_t>(i % 4 < 2 ? pair : pair >> 16));
        } else {
          codes.push_back(out.floats[first * k + i * count + row - first] + 0.0f);  // no −0
        }
      }
    }
  }
  std::vector<float> by_row;
  for (int row = 0; row < rows; ++row) {
    for (int64_t group = 0; group < (input.rule.group == 0 ? 1 : k / kScaleGroup); ++group) {
      by_row.push_back(scales[static_cast<size_t>(group * rows + row)]);
    }
  }
  return {codes, by_row};
}

// make_rounded_rows.py says what the digests are of.
TEST(Rounded, RowsAreThoseOfCompressedTensors) {
  constexpr int kRows = 64;
  constexpr int64_t kWidth = 384;
  std::vector<float> x;
  for (uint64_t i = 0; i < kRows * kWidth; ++i) {
    const uint64_t mixed = Mix(i);
    const float v = (static_cast<float>(mixed >> 40) - 0x1p23f) * 0x1p-20f;
    x.push_back(mixed % 50 == 0 ? v * 64.0f : v);
  }
  const auto digests = Digests();
  const std::pair<const char*, RoundingOfInput> cases[] = {
      {"int8", {{.code = Code::kInt8}, true}},
      {"int8", {{.code = Code::kInt8}, false}},
      {"int8-zero", {{.code = Code::kInt8, .symmetric = false}, true}},
      {"int8-zero", {{.code = Code::kInt8, .symmetric = false}, false}},
      {"e4m3", {{.code = Code::kE4m3}, false}},
      {"e4m3-128", {{.code = Code::kE4m3, .group = 128}, false}},
  };
  for (const KernelTable* kernels : HostRoundedKernels()) {
    for (const auto& [name, input] : cases) {
      const auto [codes, scales] = RoundAll(*kernels, input, kRows, kWidth, x);
      EXPECT_EQ(Digest(codes), digests.at(name).first) << kernels->name << " " << name;
      EXPECT_EQ(Digest(scales), digests.at(name).second) << kernels->name << " " << name;
    }
  }
}

TEST(Rounded, CastsAreThoseOfTorch) {
  std::vector<float> casts;
  for (uint64_t i = 0; i < 1 << 20; ++i) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(Mix(i)));
    if (std::isfinite(v)) casts.push_back(RoundToE4m3(std::clamp(v, -448.0f, 448.0f)));
  }
  EXPECT_EQ(Digest(casts), Digests().at("casts").first);
  for (uint64_t i = 0; i < 20'000; ++i) {
    const float v = (static_cast<float>(Mix(i) >> 40) - 0x1p23f) * 0x1p-14f;
    if (std::fabs(v) > 448.0f) continue;
    EXPECT_EQ(RoundToE4m3(v), test::NearestE4m3(v)) << v;
  }
}

}  // namespace

// Two roundings of x in one matrix count twice.
TEST(Rounded, TheEstimateIsWhatIsReserved) {
  WeightStore store(35);
  test::ModelShape shape;
  shape.type = DType::kG8;
  StepProgram program = test::MakeProgram(shape, store);
  float scale = 0.01f;
  for (Weight& weight : program.weights) {
    for (WeightSource& part : weight.parts) {
      if (part.type == DType::kG8) part.rounding = {.code = Code::kInt8, .scale = scale += 0.01f};
    }
  }
  std::string error;
  const auto backend = MakeCpuBackend({.threads = 2, .activation_dtype = "w8a8"}, error);
  ProgramOptions options;
  options.kv = DealLayers(program.layer_windows, backend->PageShape(program, 16));
  options.page_count = 4;
  const auto loaded = backend->Load(program, options);
  EXPECT_EQ(loaded->WorkspaceBytes(), backend->EstimateWorkspaceBytes(program, options));
  EXPECT_EQ(options.kv.type, KvType::kF16);
}

// The whole backend: what it says of a program, and what it refuses in one line.
TEST(Rounded, BackendNamesAndRefuses) {
  WeightStore store(33);
  test::ModelShape shape;
  shape.type = DType::kG8;
  StepProgram program = test::MakeProgram(shape, store);
  std::string error;
  const auto backend = MakeCpuBackend({.threads = 1, .activation_dtype = "w8a8"}, error);
  ASSERT_NE(backend, nullptr) << error;
  EXPECT_NE(backend->Refusal(program, {}).find("this one asks for none; use"), std::string::npos);
  EXPECT_EQ(MakeCpuBackend({.threads = 1}, error)->Refusal(program, {}), "");
  WeightSource& part = program.weights[1].parts[0];
  part.rounding.code = Code::kInt8;
  EXPECT_EQ(backend->Refusal(program, {}), "");
  EXPECT_EQ(backend->RoundedActivations(program), "int8 per token");
  EXPECT_EQ(MakeCpuBackend({.threads = 1}, error)->RoundedActivations(program), "");
  EXPECT_NE(backend->NumericsClass(program).find("w8a8"), std::string::npos);
  part.rounding = {.unserved = "another number of bits than 8"};
  EXPECT_NE(backend->Refusal(program, {}).find("asks for activations with another number of bits"),
            std::string::npos);
  part.rounding = {.code = Code::kInt8};
  part.type = DType::kG8;
  part.cols = 1 << 20;
  EXPECT_NE(backend->Refusal(program, {}).find("has 1048576 inputs"), std::string::npos);
}

}  // namespace quire::kernels::cpu
