// Numbers of 16 and 8 bits as kernels round and widen them, for all of them.
#include <cmath>

#include "kernels/cuda/ops/fp8.h"
#include "kernels/kv_fp8.h"
#include "tests/kernels/cuda/device_bed.h"

namespace quire::kernels::cuda::test {
namespace {

TEST(CudaNumbers, QueriesBeyondFloat16AreItsLargest) {
  EXPECT_EQ(SaturatedF16(1e30f), 65504.0f);
  EXPECT_EQ(SaturatedF16(-1e30f), -65504.0f);
  EXPECT_TRUE(std::isnan(SaturatedF16(std::nanf(""))));
}

TEST(CudaNumbers, CodesOfFp8AreWidenedExactly) {
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7fu) == 0x7fu) continue;  // never written
    uint32_t low = 0;
    uint32_t high = 0;
    WidenFp8(code | (code ^ 0x80u) << 8 | 0x38u << 16 | code << 24, low, high);
    const float exact = FromFp8(static_cast<uint8_t>(code));
    EXPECT_EQ(device::LowBf16(low), exact) << code;
    EXPECT_EQ(device::HighBf16(low), -exact) << code;
    EXPECT_EQ(device::LowBf16(high), 1.0f) << code;
    EXPECT_EQ(device::HighBf16(high), exact) << code;
  }
}

TEST(CudaNumbers, Float16IsRoundedToTheNearestEven) {
  for (uint32_t bits = 0; bits < 0x7c00u; ++bits) {
    const float here = device::ToFloat(device::F16{static_cast<uint16_t>(bits)});
    const float next = bits + 1 == 0x7c00u
                           ? 65536.0f
                           : device::ToFloat(device::F16{static_cast<uint16_t>(bits + 1)});
    const float middle = here + (next - here) / 2;
    ASSERT_EQ(device::F16Bits(here), bits);
    ASSERT_EQ(device::F16Bits(-here), bits | 0x8000u);
    ASSERT_EQ(device::F16Bits(middle), bits + bits % 2) << bits;
    ASSERT_EQ(device::F16Bits(std::nextafterf(middle, 0.0f)), bits) << bits;
    ASSERT_EQ(device::F16Bits(std::nextafterf(middle, 1e9f)), bits + 1) << bits;
  }
  EXPECT_EQ(device::F16Bits(1e30f), 0x7c00u);
  EXPECT_EQ(device::F16Bits(std::nanf("")) & 0x7fffu, 0x7fffu);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
