// What a safetensors header may claim, and that every lie is refused by the name of file and
// tensor.
#include "worker/load/safetensors.h"

#include <gtest/gtest.h>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"

namespace quire::load {
namespace {

absl::Status Read(const std::string& bytes) {
  TensorTable table;
  return ReadSafetensors(AsBytes(bytes), "m.safetensors", table);
}

void ExpectRefused(std::string_view header, size_t data_bytes, std::string_view saying) {
  const absl::Status status = Read(Safetensors(header, data_bytes));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << header;
  EXPECT_NE(StatusMessage(status).find(saying), std::string::npos) << status;
  EXPECT_NE(StatusMessage(status).find("m.safetensors"), std::string::npos) << status;
  EXPECT_EQ(StatusMessage(status).find('\n'), std::string::npos) << status;
}

TEST(Safetensors, ReadsTensorsAndSkipsMetadata) {
  const std::string bytes = Safetensors(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
      20);
  TensorTable table;
  ASSERT_TRUE(ReadSafetensors(AsBytes(bytes), "m", table).ok());
  ASSERT_EQ(table.size(), 2u);
  const Tensor* b = table.Find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->type, kernels::DType::kBF16);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b->bytes.size(), 12u);
  EXPECT_EQ(b->bytes.data() + 12, AsBytes(bytes).data() + bytes.size());
}

TEST(Safetensors, KeepsTypesThatCannotBeComputedWithByName) {
  const std::string bytes =
      Safetensors(R"({"ids":{"dtype":"I64","shape":[3],"data_offsets":[0,24]}})", 24);
  TensorTable table;
  ASSERT_TRUE(ReadSafetensors(AsBytes(bytes), "m", table).ok());
  EXPECT_FALSE(table.Find("ids")->type.has_value());
  EXPECT_EQ(table.Find("ids")->type_name, "I64");
}

TEST(Safetensors, ReadsScalarsAndEmptyTensors) {
  const std::string bytes = Safetensors(
      R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]}})",
      4);
  EXPECT_TRUE(Read(bytes).ok()) << Read(bytes);
}

TEST(Safetensors, RefusesAHeaderThatLiesAboutItsLength) {
  std::string bytes = Safetensors("{}", 0);
  bytes[0] = 100;
  EXPECT_NE(StatusMessage(Read(bytes)).find("the header claims 100 bytes"), std::string::npos);
  std::string huge(16, '\xff');
  EXPECT_EQ(Read(huge).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(StatusMessage(Read("abc")).find("not a safetensors file"), std::string::npos);
}

TEST(Safetensors, RefusesOverflowingShapes) {
  ExpectRefused(
      R"({"w":{"dtype":"F32","shape":[2147483648,2147483648,2147483648],"data_offsets":[0,4]}})", 4,
      "\"w\" has a shape whose size overflows");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[2147483648,2147483648,1],"data_offsets":[0,4]}})",
                4, "\"w\"");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4]}})", 4,
                "overflows");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[1e30],"data_offsets":[0,4]}})", 4, "overflows");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "dimension of -1");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", 4,
                "9 dimensions");
}

TEST(Safetensors, RefusesOffsetsThatDisagree) {
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4, "need 8");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "impossible");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}})", 4, "impossible");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4, "data_offsets");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "leaving a gap");
  ExpectRefused(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
      12, "overlapping");
}

TEST(Safetensors, RefusesTruncatedAndTrailingData) {
  const char* header = R"({"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  ExpectRefused(header, 12, "truncated");
  ExpectRefused(header, 20, "4 bytes after the last tensor");
}

TEST(Safetensors, RefusesMalformedHeaders) {
  ExpectRefused("[]", 0, "the safetensors header");
  ExpectRefused("{\"w\":", 0, "the safetensors header");
  ExpectRefused(R"({"w":3})", 0, "\"w\"");
  ExpectRefused(R"({"w":{"shape":[1],"data_offsets":[0,4]}})", 4, "no \"dtype\"");
  ExpectRefused(R"({"w":{"dtype":"F32","data_offsets":[0,4]}})", 4, "no \"shape\"");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":[1]}})", 4, "no \"data_offsets\"");
  ExpectRefused(R"({"w":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", 4,
                "unknown type \"F4\"");
  ExpectRefused(R"({"w":{"dtype":"F32","shape":["1"],"data_offsets":[0,4]}})", 4, "shape");
}

}  // namespace
}  // namespace quire::load
