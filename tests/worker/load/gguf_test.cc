// What a GGUF file may claim, and that every lie is refused by name.
#include "worker/load/gguf.h"

#include <gtest/gtest.h>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"

namespace quire::load {
namespace {

absl::StatusOr<GgufFile> Parse(const std::string& bytes) {
  return GgufFile::Parse(AsBytes(bytes), "m.gguf");
}

void ExpectRefused(const std::string& bytes, std::string_view saying) {
  const absl::StatusOr<GgufFile> file = Parse(bytes);
  ASSERT_FALSE(file.ok()) << saying;
  EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(StatusMessage(file.status()).find(saying), std::string::npos) << file.status();
  EXPECT_NE(StatusMessage(file.status()).find("m.gguf"), std::string::npos) << file.status();
}

TEST(Gguf, ReadsEveryKindOfMetadata) {
  GgufMaker maker;
  maker.Pair("u8", 0, "\xff").Pair("i8", 1, "\xff");
  maker.Pair("u16", 2, "\xff\xff").Pair("i16", 3, "\xff\xff");
  maker.Uint32("u32", 4'000'000'000).Pair("i32", 5, "\xff\xff\xff\xff").Float32("f32", 1.5f);
  maker.Pair("yes", 7, "\x01").String("text", "hello");
  std::string wide;
  Append<uint64_t>(wide, UINT64_MAX);
  maker.Pair("u64", 10, wide).Pair("i64", 11, wide);
  std::string real;
  Append(real, -2.25);
  maker.Pair("f64", 12, real).Strings("list", {"a", "", "bc"});
  const std::string bytes = maker.Make(0);
  const absl::StatusOr<GgufFile> file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->Integer("u8"), 255);
  EXPECT_EQ(*file->Integer("i8"), -1);
  EXPECT_EQ(*file->Integer("u16"), 65'535);
  EXPECT_EQ(*file->Integer("i16"), -1);
  EXPECT_EQ(*file->Integer("u32"), 4'000'000'000);
  EXPECT_EQ(*file->Integer("i32"), -1);
  EXPECT_EQ(*file->Integer("i64"), -1);
  EXPECT_FALSE(file->Integer("u64").ok());
  EXPECT_EQ(*file->Number("f32"), 1.5);
  EXPECT_EQ(*file->Number("f64"), -2.25);
  EXPECT_EQ(*file->Number("u8"), 255.0);
  EXPECT_TRUE(*file->Bool("yes"));
  EXPECT_EQ(*file->String("text"), "hello");
  EXPECT_EQ(*file->Array("list")->Strings(10), (std::vector<std::string_view>{"a", "", "bc"}));
  EXPECT_FALSE(file->Array("list")->Integers(10).ok());
  EXPECT_EQ(file->Integer("none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(file->Integer("text").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Gguf, ReadsArraysOfNumbersAndNestedOnes) {
  std::string floats;
  Append<uint32_t>(floats, 6);
  Append<uint64_t>(floats, 2);
  Append(floats, 0.5f);
  Append(floats, -1.0f);
  std::string integers;
  Append<uint32_t>(integers, 5);
  Append<uint64_t>(integers, 2);
  Append<int32_t>(integers, 3);
  Append<int32_t>(integers, -4);
  std::string nested;
  Append<uint32_t>(nested, 9);
  Append<uint64_t>(nested, 2);
  nested += floats + integers;
  const std::string bytes =
      GgufMaker().Pair("f", 9, floats).Pair("i", 9, integers).Pair("n", 9, nested).Make(0);
  const absl::StatusOr<GgufFile> file = Parse(bytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->Array("f")->Numbers(10), (std::vector<double>{0.5, -1.0}));
  EXPECT_EQ(*file->Array("i")->Integers(10), (std::vector<int64_t>{3, -4}));
  EXPECT_EQ(*file->Array("i")->Numbers(10), (std::vector<double>{3.0, -4.0}));
  EXPECT_FALSE(file->Array("n")->Numbers(10).ok());
}

TEST(Gguf, PlacesTensorsOutermostDimensionFirst) {
  for (uint32_t version : {2u, 3u}) {
    GgufMaker maker;
    maker.version = version;
    maker.Tensor("w", {64, 3}, 8, 0).Tensor("v", {5}, 0, 224);
    const std::string bytes = maker.Make(224 + 20);
    const absl::StatusOr<GgufFile> file = Parse(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const Tensor* w = file->tensors().Find("w");
    ASSERT_NE(w, nullptr);
    EXPECT_EQ(w->shape, (std::vector<int64_t>{3, 64}));
    EXPECT_EQ(w->type, kernels::DType::kQ8_0);
    EXPECT_EQ(w->bytes.size(), 3u * 2 * 34);
    EXPECT_EQ(file->tensors().Find("v")->bytes.data() + 20, AsBytes(bytes).data() + bytes.size());
  }
}

TEST(Gguf, HonoursTheAlignmentOfTheFile) {
  const std::string bytes =
      GgufMaker().Uint32("general.alignment", 64).Tensor("v", {4}, 0, 64).Make(80, 64);
  EXPECT_TRUE(Parse(bytes).ok()) << Parse(bytes).status();
  ExpectRefused(GgufMaker().Uint32("general.alignment", 64).Tensor("v", {4}, 0, 32).Make(80, 64),
                "no multiple of the alignment 64");
  ExpectRefused(GgufMaker().Uint32("general.alignment", 0).Make(0), "general.alignment is 0");
  ExpectRefused(GgufMaker().Uint32("general.alignment", 1u << 30).Make(0), "general.alignment");
}

TEST(Gguf, RefusesOtherFilesAndVersions) {
  ExpectRefused("", "not a GGUF file");
  ExpectRefused("GGML....", "not a GGUF file");
  GgufMaker maker;
  maker.version = 1;
  ExpectRefused(maker.Make(0), "GGUF version 1 is not served");
  maker.version = 4;
  ExpectRefused(maker.Make(0), "GGUF version 4 is not served");
  maker.version = 0x03000000;
  ExpectRefused(maker.Make(0), "big-endian");
}

TEST(Gguf, RefusesCountsThatLie) {
  GgufMaker maker;
  maker.tensor_count = UINT64_MAX;
  ExpectRefused(maker.Make(0), "tensors, at most");
  maker.tensor_count = 0;
  maker.pair_count = UINT64_MAX;
  ExpectRefused(maker.Make(0), "metadata entries, at most");
  maker.pair_count = 3;
  ExpectRefused(maker.Make(0), "the file ends inside");
}

TEST(Gguf, RefusesLengthsThatLie) {
  std::string length;
  Append<uint64_t>(length, UINT64_MAX);
  ExpectRefused(GgufMaker().Pair("s", 8, length).Make(64), "metadata \"s\"");
  std::string array;
  Append<uint32_t>(array, 12);
  Append<uint64_t>(array, UINT64_MAX / 4);
  ExpectRefused(GgufMaker().Pair("a", 9, array).Make(64), "\"a\" has");
  std::string strings;
  Append<uint32_t>(strings, 8);
  Append<uint64_t>(strings, 1'000'000);
  ExpectRefused(GgufMaker().Pair("a", 9, strings).Make(64), "the file ends inside metadata \"a\"");
  std::string unknown;
  Append<uint32_t>(unknown, 77);
  Append<uint64_t>(unknown, 0);
  ExpectRefused(GgufMaker().Pair("a", 9, unknown).Make(0), "unknown type 77");
  ExpectRefused(GgufMaker().Pair("a", 99, "").Make(0), "unknown type 99");
}

TEST(Gguf, RefusesArraysThatNestTooDeep) {
  std::string nested;
  for (int i = 0; i < 20; ++i) {
    Append<uint32_t>(nested, 9);
    Append<uint64_t>(nested, 1);
  }
  ExpectRefused(GgufMaker().Pair("deep", 9, nested).Make(64), "nests arrays deeper");
}

TEST(Gguf, RefusesTensorsThatLie) {
  ExpectRefused(GgufMaker().Tensor("w", {32, 4}, 8, 0).Make(100), "it is truncated");
  ExpectRefused(GgufMaker().Tensor("w", {4}, 0, 1ull << 40).Make(100), "it is truncated");
  ExpectRefused(GgufMaker().Tensor("w", {4}, 0, UINT64_MAX - 31).Make(100), "tensor \"w\"");
  ExpectRefused(GgufMaker().Tensor("w", {4}, 0, 3).Make(100), "no multiple of the alignment");
  ExpectRefused(GgufMaker().Tensor("w", {1ull << 31, 1ull << 31, 1ull << 31}, 0, 0).Make(100),
                "overflows");
  ExpectRefused(GgufMaker().Tensor("w", {UINT64_MAX, 2}, 0, 0).Make(100), "dimension");
  ExpectRefused(GgufMaker().Tensor("w", {33}, 8, 0).Make(100), "a multiple of 32");
  ExpectRefused(GgufMaker().Tensor("w", {1, 1, 1, 1, 1}, 0, 0).Make(100), "5 dimensions");
  ExpectRefused(GgufMaker().Tensor("a", {16}, 0, 0).Tensor("b", {16}, 0, 32).Make(128), "overlaps");
  ExpectRefused(GgufMaker().Tensor("a", {4}, 0, 0).Tensor("a", {4}, 0, 32).Make(128), "twice");
}

TEST(Gguf, RefusesTensorTypesByName) {
  ExpectRefused(GgufMaker().Tensor("blk.0.w", {256}, 9, 0).Make(256),
                "tensor \"blk.0.w\" has type Q8_1; served are F32");
  ExpectRefused(GgufMaker().Tensor("w", {256}, 15, 0).Make(512), "Q8_K");
  ExpectRefused(GgufMaker().Tensor("w", {256}, 4242, 0).Make(256), "number 4242");
}

// Types of one to four bits: the bytes of a block, no byte less, and whole blocks only.
TEST(Gguf, ReadsTheTypesOfFewBits) {
  using kernels::DType;
  struct Case {
    uint32_t number;
    DType type;
    uint64_t block_bytes;
  };
  for (const Case& c :
       {Case{19, DType::kIQ1_S, 50}, Case{29, DType::kIQ1_M, 56}, Case{16, DType::kIQ2_XXS, 66},
        Case{17, DType::kIQ2_XS, 74}, Case{22, DType::kIQ2_S, 82}, Case{18, DType::kIQ3_XXS, 98},
        Case{21, DType::kIQ3_S, 110}, Case{34, DType::kTQ1_0, 54}, Case{35, DType::kTQ2_0, 66},
        Case{41, DType::kQ1_0, 18}, Case{42, DType::kQ2_0, 18}, Case{40, DType::kNVFP4, 36}}) {
    const auto elements = static_cast<uint64_t>(kernels::BlockElements(c.type));
    const std::string bytes =
        GgufMaker().Tensor("w", {2 * elements, 3}, c.number, 0).Make(6 * c.block_bytes);
    const auto file = Parse(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    const Tensor* w = file->tensors().Find("w");
    ASSERT_NE(w, nullptr);
    EXPECT_EQ(w->type, c.type);
    EXPECT_EQ(w->type_name, kernels::DTypeName(c.type));
    EXPECT_EQ(w->bytes.size(), 6 * c.block_bytes);
    ExpectRefused(
        GgufMaker().Tensor("w", {2 * elements, 3}, c.number, 0).Make(6 * c.block_bytes - 1),
        "it is truncated");
    for (const uint64_t cols : {uint64_t{32}, elements - 1, elements + 32}) {
      ExpectRefused(GgufMaker().Tensor("w", {cols, 2}, c.number, 0).Make(1024),
                    "a multiple of " + std::to_string(elements));
    }
  }
}

TEST(Gguf, RefusesSplitFilesAndDoubleKeys) {
  std::string two;
  Append<uint16_t>(two, 2);
  ExpectRefused(GgufMaker().Pair("split.count", 2, two).Make(0), "one of 2 parts");
  ExpectRefused(GgufMaker().String("k", "a").String("k", "b").Make(0), "\"k\" is there twice");
}

// Every prefix of a good file is refused, never read past its end.
TEST(Gguf, RefusesEveryTruncation) {
  GgufMaker maker;
  maker.String("name", "x").Strings("list", {"a", "b"}).Tensor("w", {32, 2}, 8, 0);
  const std::string bytes = maker.Make(68);
  ASSERT_TRUE(Parse(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(Parse(bytes.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace quire::load
