// Every kernel on every device that is served: no launch wants more shared memory than a block has
// there, and where kernels differ by it their results have the same bits.
#include <algorithm>
#include <fstream>
#include <set>

#include "kernels/communicator.h"
#include "kernels/cuda/emulate/emulated_runtime.h"
#include "kernels/cuda/ops/attention/attention.h"
#include "kernels/cuda/ops/attention/rope_append.h"
#include "kernels/cuda/ops/embedding/embedding.h"
#include "kernels/cuda/ops/gemm/gemm.h"
#include "kernels/cuda/ops/latent/head_linear.h"
#include "kernels/cuda/ops/latent/latent_append.h"
#include "kernels/cuda/ops/latent/latent_attention.h"
#include "kernels/cuda/ops/lora/adapter_product.h"
#include "kernels/cuda/ops/moe/combine.h"
#include "kernels/cuda/ops/moe/grouped_product.h"
#include "kernels/cuda/ops/moe/route.h"
#include "kernels/cuda/ops/norm/head_squares.h"
#include "kernels/cuda/ops/norm/layer_norm.h"
#include "kernels/cuda/ops/norm/rms_norm.h"
#include "kernels/cuda/ops/recurrent/causal_conv.h"
#include "kernels/cuda/ops/recurrent/gated_norm.h"
#include "kernels/cuda/ops/recurrent/recurrence.h"
#include "kernels/cuda/ops/recurrent/sigmoid_gate.h"
#include "kernels/cuda/ops/rows/activation.h"
#include "kernels/cuda/ops/rows/copy_rows.h"
#include "kernels/cuda/ops/rows/encode_rows.h"
#include "kernels/cuda/ops/rows/rank_sum.h"
#include "kernels/cuda/ops/rows/round_rows.h"
#include "kernels/cuda/ops/rows/step_state.h"
#include "kernels/cuda/ops/sample/sample.h"
#include "kernels/cuda/ops/sample/sample_slice.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

// Shared memory that CUDA lets a block have, by compute capability.
struct DeviceClass {
  const char* name;
  uint32_t shared_bytes;
};
constexpr DeviceClass kDevices[] = {{"sm_80", 163u << 10},  {"sm_86", 99u << 10},
                                    {"sm_89", 99u << 10},   {"sm_90", 227u << 10},
                                    {"sm_100", 227u << 10}, {"sm_120", 99u << 10}};

// Refuses as the emulated device does, and runs nothing: launches are looked at, not made.
class CensusRuntime : public emulate::EmulatedRuntime {
 public:
  explicit CensusRuntime(uint32_t shared_bytes) : EmulatedRuntime(1) {
    LimitShared(shared_bytes);
    EXPECT_EQ(CreateStream(&stream), "");
  }
  Error Launch(StreamId to, const runtime::KernelHandle& kernel,
               const runtime::LaunchShape& shape) override {
    Error error = EmulatedRuntime::Launch(to, kernel, shape);
    if (error.empty()) kernels.insert(kernel.name);
    return error;
  }
  StreamId stream{};
  std::set<std::string> kernels;  // that were launched
};

constexpr KvType kPageTypes[] = {KvType::kBF16, KvType::kF16, KvType::kFp8};

void LaunchProducts(CensusRuntime& device) {
  const DType types[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0, DType::kQ5_1,
                         DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,   DType::kG4,   DType::kG8,
                         DType::kF8,   DType::kQ2_K, DType::kIQ4_XS, DType::kNF4};
  const unsigned char some = 0;
  for (const int rows : {1, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 2048}) {
    GemmParams params;
    params.m = rows;
    params.n = 512;
    params.k = 512;
    EXPECT_EQ(LaunchGemm(device, device.stream, params), "") << rows;
    for (const DType type : types) {
      params.quantised = QuantisedLayout(type, params.k);
      params.quantised.data = &some;
      EXPECT_EQ(LaunchGemm(device, device.stream, params), "") << rows;
      if (!CanLookUp(params.quantised.form)) continue;
      EmbeddingParams table;
      table.quantised = params.quantised;
      table.rows = rows;
      table.width = params.k;
      EXPECT_EQ(LaunchEmbedding(device, device.stream, table), "");
    }
  }
}

void LaunchProductsOfCodes(CensusRuntime& device) {
  const unsigned char some = 0;
  for (const int rows : {1, 9, 33, 2048}) {
    for (const DType type : {DType::kG8, DType::kF8}) {
      GemmParams params;
      params.m = rows;
      params.n = 512;
      params.k = 512;
      params.quantised = LayoutByCodes(type, params.k, true);
      params.quantised.data = &some;
      EXPECT_EQ(LaunchGemm(device, device.stream, params), "") << rows;
    }
    for (const int width : {512, kMostEncoded}) {
      EncodeRowsParams codes;
      codes.rows = rows;
      codes.width = width;
      EXPECT_EQ(LaunchEncodeRows(device, device.stream, codes), "") << rows;
    }
  }
}

void LaunchAttentions(CensusRuntime& device) {
  for (const KvType type : kPageTypes) {
    for (int head_dim = 8; head_dim <= 512; head_dim += 8) {
      const int stride = (head_dim + 15) / 16 * 16;
      RopeAppendParams rope;
      rope.type = type;
      rope.tokens = rope.heads = rope.kv_heads = 1;
      rope.token_stride = stride;
      EXPECT_EQ(LaunchRopeAppend(device, device.stream, head_dim, rope), "");
      for (const int rows_per_tile : {16, 64}) {
        for (const int spans : {1, 256}) {
          AttentionPlan plan;
          plan.tile_count = 1;
          plan.max_spans = spans;
          plan.rows_per_tile = rows_per_tile;
          AttentionParams params;
          params.type = type;
          params.token_stride = stride;
          params.heads = 8;
          params.kv_heads = 1;
          EXPECT_EQ(LaunchAttention(device, device.stream, head_dim, plan, params), "")
              << head_dim << " " << rows_per_tile;
        }
      }
    }
  }
}

void LaunchLatents(CensusRuntime& device) {
  for (const KvType type : kPageTypes) {
    LatentAppendParams append;
    append.type = type;
    append.tokens = append.heads = 1;
    append.query_dim = append.rank = append.rope_dim = 64;
    append.token_stride = 128;
    EXPECT_EQ(LaunchLatentAppend(device, device.stream, append), "");
    for (const int rank : {64, 72, 512}) {
      for (const int heads : {16, 128}) {
        LatentPlan plan;
        plan.tile_count = 1;
        LatentAttentionParams params;
        params.type = type;
        params.heads = heads;
        params.rank = rank;
        params.head_dim = rank + 64;
        params.token_stride = rank + 72;
        params.token_stride -= params.token_stride % 16;
        EXPECT_EQ(LaunchLatentAttention(device, device.stream, plan, params), "") << rank;
      }
    }
  }
  for (const int tokens : {1, 9, 33, 2048}) {
    HeadLinearParams params;
    params.tokens = tokens;
    params.heads = params.n = params.k = params.in_dim = 8;
    EXPECT_EQ(LaunchHeadLinear(device, device.stream, params), "") << tokens;
  }
}

void LaunchSamples(CensusRuntime& device) {
  for (const int vocabulary : {1, 32'000, 49'152, 128'256, 262'144}) {
    for (const bool plain : {false, true}) {
      SampleParams params;
      params.rows = 1;
      params.vocabulary = vocabulary;
      params.stride = (vocabulary + 3) / 4 * 4;
      params.plain = plain;
      EXPECT_EQ(LaunchSample(device, device.stream, params), "") << vocabulary;
    }
  }
  for (const int ranks : {2, kMaxRanks}) {
    SliceRounds rounds;
    rounds.count = 1;
    rounds.of[0].rows = 1;
    SampleSliceParams params;
    params.ranks = ranks;
    params.count = params.vocabulary = 4096;
    params.stride = 4096;
    for (const int round : {0, 1}) {
      EXPECT_EQ(LaunchSampleSlice(device, device.stream, params, rounds, round), "") << ranks;
    }
  }
}

void LaunchRowOps(CensusRuntime& device) {
  for (const int width : {64, 1024, 1032, 6144, 6152, 16384}) {
    RmsNormParams rms;
    rms.rows = 1;
    rms.width = width;
    EXPECT_EQ(LaunchRmsNorm(device, device.stream, rms), "");
    LayerNormParams layer;
    const float some = 0.0f;
    layer.rows = 1;
    layer.width = width;
    for (const float* bias : {static_cast<const float*>(nullptr), &some}) {
      layer.bias = bias;
      EXPECT_EQ(LaunchLayerNorm(device, device.stream, layer), "");
    }
    for (const Activation kind :
         {Activation::kSiluGated, Activation::kGeluTanhGated, Activation::kRelu,
          Activation::kClampedGated, Activation::kReluSquared}) {
      EXPECT_EQ(LaunchActivation(device, device.stream, {nullptr, nullptr, 1, width, kind}), "");
    }
    EXPECT_EQ(LaunchActivation(device, device.stream,
                               {nullptr, nullptr, 1, width, Activation::kReluSquared, &some}),
              "");
    EXPECT_EQ(LaunchSliceGate(device, device.stream, {nullptr, nullptr, nullptr, width, 1, width}),
              "");
    EmbeddingParams table;
    table.rows = 1;
    table.width = width;
    EXPECT_EQ(LaunchEmbedding(device, device.stream, table), "");
    CopyRowsParams copy;
    copy.rows = 1;
    copy.row_bytes = 2 * width;
    EXPECT_EQ(LaunchCopyRows(device, device.stream, copy), "");
    EXPECT_EQ(LaunchRoundRows(device, device.stream, {nullptr, nullptr, width}), "");
    for (const int64_t count : {width, width + 1}) {
      EXPECT_EQ(LaunchRankSum(device, device.stream, {nullptr, nullptr, 8, count}), "");
    }
  }
  HeadSquaresParams squares;
  squares.tokens = 1;
  EXPECT_EQ(LaunchHeadSquares(device, device.stream, squares), "");
  StepBeginParams begin;
  begin.token_count = 1;
  EXPECT_EQ(LaunchStepBegin(device, device.stream, begin), "");
  StepEndParams end;
  end.count = 1;
  EXPECT_EQ(LaunchStepEnd(device, device.stream, end), "");
}

void LaunchExperts(CensusRuntime& device) {
  for (const int experts : {1, 8, 128, kMaxExperts}) {
    RouteParams route;
    route.tokens = 1;
    route.width = 4096;
    route.experts = experts;
    route.tile_rows = 8;
    EXPECT_EQ(LaunchRoute(device, device.stream, route), "") << experts;
  }
  CombineParams combine;
  combine.tokens = combine.chosen = 1;
  combine.width = 4096;
  EXPECT_EQ(LaunchCombine(device, device.stream, combine), "");
  const DType types[] = {DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ5_K,  DType::kQ6_K,
                         DType::kG4,   DType::kG8,   DType::kF8,   DType::kMXFP4, DType::kNF4};
  const unsigned char some = 0;
  for (const DType type : types) {
    for (const int tile_rows : {8, 32, 128}) {
      GroupedParams params;
      params.product.n = params.product.k = 512;
      if (type != DType::kBF16) {
        params.product.quantised = QuantisedLayout(type, params.product.k);
        params.product.quantised.data = &some;
      }
      EXPECT_EQ(LaunchGroupedProduct(device, device.stream, params, tile_rows, 1), "");
    }
  }
}

void LaunchAdapters(CensusRuntime& device) {
  for (const int tile_rows : {8, 32, 128}) {
    AdapterProductParams params;
    params.product.n = params.product.k = params.product.out_stride = params.x_stride = 512;
    EXPECT_EQ(LaunchAdapterProduct(device, device.stream, params, tile_rows, 1), "");
  }
}

void LaunchRecurrent(CensusRuntime& device) {
  for (const int taps : {2, 4, 5, 8}) {
    CausalConvParams conv;
    conv.channels = 1032;
    conv.taps = taps;
    conv.runs.count = 1;
    EXPECT_EQ(LaunchCausalConv(device, device.stream, conv), "") << taps;
  }
  for (const auto kind : {RecurrenceOp::Kind::kGatedDelta, RecurrenceOp::Kind::kMamba2}) {
    for (const int keys : {8, 128, 132, 256}) {
      RecurrenceParams heads;
      heads.kind = kind;
      heads.key_heads = heads.value_heads = 1;
      heads.key_dim = keys;
      heads.value_dim = 128;
      heads.runs.rows = 1;
      EXPECT_EQ(LaunchRecurrence(device, device.stream, heads), "") << keys;
    }
  }
  for (const int group : {8, 256, 257, kMostGatedNormGroup}) {
    GatedNormParams norm;
    norm.rows = 1;
    norm.width = norm.group = group;
    EXPECT_EQ(LaunchGatedNorm(device, device.stream, norm), "") << group;
  }
  SigmoidGateParams gate;
  gate.count = 64;
  EXPECT_EQ(LaunchSigmoidGate(device, device.stream, gate), "");
}

// The kernels that there are: each has a row.
std::set<std::string> BudgetedKernels() {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/kernels/cuda/budget.csv");
  std::set<std::string> names;
  std::string line;
  std::getline(file, line);  // of columns
  while (std::getline(file, line)) names.insert(line.substr(0, line.find(',')));
  return names;
}

TEST(CudaSharedMemory, EveryKernelFitsEveryDeviceThatIsServed) {
  std::set<std::string> launched;
  for (const DeviceClass& kind : kDevices) {
    SCOPED_TRACE(kind.name);
    ASSERT_GE(kind.shared_bytes, runtime::kLeastSharedBytes);
    CensusRuntime device(kind.shared_bytes);
    LaunchProducts(device);
    LaunchProductsOfCodes(device);
    LaunchAttentions(device);
    LaunchLatents(device);
    LaunchSamples(device);
    LaunchRowOps(device);
    LaunchExperts(device);
    LaunchAdapters(device);
    LaunchRecurrent(device);
    launched.merge(device.kernels);
  }
  EXPECT_EQ(launched, BudgetedKernels()) << "a kernel that this census does not launch";
}

TEST(CudaSharedMemory, ALaunchThatWantsMoreThanTheDeviceHasIsRefused) {
  CensusRuntime device(runtime::kLeastSharedBytes);
  const runtime::KernelHandle kernel{"wide", nullptr, 32};
  const int params = 0;
  EXPECT_EQ(device.Launch(device.stream, kernel,
                          runtime::ShapeOf(1, 1, runtime::kLeastSharedBytes, params)),
            "");
  EXPECT_EQ(device.Launch(device.stream, kernel,
                          runtime::ShapeOf(1, 1, runtime::kLeastSharedBytes + 1, params)),
            "wide: a block wants 101377 bytes of shared memory, this device has 101376");
}

}  // namespace
}  // namespace quire::kernels::cuda::test
