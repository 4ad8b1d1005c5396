// Matrices of NVFP4 in GGUF files under one more scale.
#include "worker/model/nvfp4_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/status.h"
#include "kernels/expand.h"

namespace quire::model {
namespace {

using kernels::DType;
using kernels::WeightSource;

load::Tensor Named(const std::string& name, DType type, std::vector<int64_t> shape) {
  load::Tensor tensor;
  tensor.name = name;
  tensor.type = type;
  tensor.type_name = kernels::DTypeName(type);
  tensor.shape = std::move(shape);
  tensor.file = "w.gguf";
  return tensor;
}

TEST(Nvfp4Rows, AScaleBelongsToTheMatrixOfItsName) {
  load::TensorTable tensors;
  const load::Tensor matrix = Named("blk.0.attn_q.weight", DType::kNVFP4, {2, 64});
  ASSERT_TRUE(tensors.Add(matrix).ok());
  EXPECT_EQ(OuterScaleOf(tensors, matrix), nullptr);
  ASSERT_TRUE(tensors.Add(Named("blk.0.attn_q.scale", DType::kF32, {1})).ok());
  ASSERT_TRUE(tensors.Add(Named("blk.0.attn_k.scale", DType::kF32, {1})).ok());
  EXPECT_EQ(OuterScaleOf(tensors, matrix), tensors.Find("blk.0.attn_q.scale"));
  // Of another type, such a tensor means something else.
  EXPECT_EQ(OuterScaleOf(tensors, Named("blk.0.attn_k.weight", DType::kQ8_0, {2, 64})), nullptr);
}

TEST(Nvfp4Rows, ScalesThatAreWrongAreNamed) {
  const load::Tensor matrix = Named("m.weight", DType::kNVFP4, {2, 64});
  const load::Tensor experts = Named("e.weight", DType::kNVFP4, {3, 2, 64});
  const auto said = [](const load::Tensor& scale, const load::Tensor& of) {
    return StatusMessage(ReadOuterScale(scale, of, 1).status());
  };
  EXPECT_EQ(
      said(Named("m.scale", DType::kF32, {2}), matrix),
      "w.gguf: tensor \"m.scale\" has type F32 and shape [2], the matrix \"m.weight\" demands "
      "F32 and [1]");
  EXPECT_EQ(
      said(Named("e.scale", DType::kF16, {3}), experts),
      "w.gguf: tensor \"e.scale\" has type F16 and shape [3], the matrix \"e.weight\" demands "
      "F32 and [3]");
  std::vector<float> values = {1.0f, INFINITY, 2.0f};
  load::Tensor scale = Named("e.scale", DType::kF32, {3});
  scale.bytes = std::as_bytes(std::span(values));
  EXPECT_EQ(said(scale, experts),
            "w.gguf: tensor \"e.scale\" holds inf, it must be a finite number");
  EXPECT_EQ(*ReadOuterScale(scale, experts, 2), 2.0f);
  EXPECT_EQ(*ReadOuterScale(scale, experts, 0), 1.0f);
}

// The product of both scales is rounded, then that with the number of e2m1.
TEST(Nvfp4Rows, RowsAreThoseOfTheFileTimesTheScale) {
  constexpr float kE2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  constexpr float kScale = 0.0173f;
  std::vector<std::byte> file(3 * 3 * 36);  // rows of 192, of which the last 128 are taken
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<std::byte>(i * 2654435761u >> 11);
  file[36] = std::byte{127};
  const WeightSource from{DType::kNVFP4, 3, 128, file.data() + 36, 3 * 36};
  WeightSource made{DType::kF4_16, 3, 128};
  std::vector<std::byte> bytes(static_cast<size_t>(made.Bytes()));
  WriteScaledNvfp4Rows(from, kScale, 0, 1, bytes.data());
  WriteScaledNvfp4Rows(from, kScale, 1, 2, bytes.data() + made.RowBytes());
  made.data = bytes.data();
  std::vector<float> plain(128), scaled(128);
  for (int64_t row = 0; row < 3; ++row) {
    kernels::ExpandRow(from, row, plain);
    kernels::ExpandRow(made, row, scaled);
    for (size_t i = 0; i < 128; ++i) {
      const auto* block = reinterpret_cast<const uint8_t*>(from.Row(row)) + i / 64 * 36;
      const uint8_t pair = block[4 + i % 64 / 16 * 8 + i % 8];
      const float number = kE2m1[i % 16 < 8 ? pair & 15 : pair >> 4];
      const int code = block[i % 64 / 16];
      const float size =
          code % 128 < 8 ? std::ldexp(static_cast<float>(code & 7), -9)
                         : std::ldexp(static_cast<float>(8 + (code & 7)), (code >> 3 & 15) - 10);
      const float scale = (code == 127 ? 0.0f : size) * kScale;
      ASSERT_EQ(scaled[i], scale * number) << row << " " << i;
      ASSERT_NEAR(scaled[i], plain[i] * kScale, 1e-6f * std::fabs(scaled[i])) << row << " " << i;
    }
  }
}

}  // namespace
}  // namespace quire::model
