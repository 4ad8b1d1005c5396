// Opening a model's files: directories with one file or shards, GGUF files, and what is missing.
#include "worker/load/model_files.h"

#include <gtest/gtest.h>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"

namespace quire::load {
namespace {

constexpr const char* kShardA = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
constexpr const char* kShardB = R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
constexpr const char* kIndex =
    R"({"metadata":{"total_size":12},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})";

void ExpectRefused(const std::string& path, std::string_view saying) {
  const absl::StatusOr<std::unique_ptr<ModelFiles>> files = ModelFiles::Open(path);
  ASSERT_FALSE(files.ok()) << saying;
  EXPECT_NE(StatusMessage(files.status()).find(saying), std::string::npos) << files.status();
  EXPECT_EQ(StatusMessage(files.status()).find('\n'), std::string::npos);
}

TEST(ModelFiles, OpensASingleFile) {
  const TempFolder folder;
  folder.Write("config.json", R"({"x":1})");
  folder.Write("model.safetensors", Safetensors(kShardA, 4));
  const auto files = ModelFiles::Open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_FALSE((*files)->is_gguf());
  EXPECT_NE((*files)->tensors().Find("a"), nullptr);
  EXPECT_EQ((*files)->config().at("x").as_int64(), 1);
}

TEST(ModelFiles, OpensShards) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model.safetensors.index.json", kIndex);
  folder.Write("m-1.safetensors", Safetensors(kShardA, 4));
  folder.Write("m-2.safetensors", Safetensors(kShardB, 8));
  const auto files = ModelFiles::Open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ((*files)->tensors().size(), 2u);
}

TEST(ModelFiles, RefusesMissingAndTruncatedShards) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model.safetensors.index.json", kIndex);
  folder.Write("m-1.safetensors", Safetensors(kShardA, 4));
  ExpectRefused(folder.path(), "m-2.safetensors: the shard is missing");
  folder.Write("m-2.safetensors", Safetensors(kShardB, 6));
  ExpectRefused(folder.path(), "m-2.safetensors: tensor \"b\" ends at 8, the file has 6");
  folder.Write("m-2.safetensors", "");
  ExpectRefused(folder.path(), "m-2.safetensors: the file is empty");
  folder.Write("m-2.safetensors", Safetensors("{}", 0));
  ExpectRefused(folder.path(), "m-2.safetensors: tensor \"b\" is missing");
  folder.Write("m-2.safetensors", Safetensors(kShardA, 4));
  ExpectRefused(folder.path(), "tensor \"a\" is there twice");
}

// What a clone without Git LFS leaves behind.
TEST(ModelFiles, PointersOfGitLfsAreNamed) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:aa\nsize 123\n";
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model.safetensors", pointer);
  ExpectRefused(folder.path(), "model.safetensors: is a pointer of Git LFS");
  folder.Write("model.safetensors", Safetensors(kShardA, 4));
  folder.Write("tokenizer.json", pointer);
  const auto files = ModelFiles::Open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_NE(
      StatusMessage((*files)->ReadText("tokenizer.json", 1000).status()).find("pointer of Git LFS"),
      std::string::npos);
  folder.Write("m.gguf", pointer);
  ExpectRefused(folder.path() + "/m.gguf", "m.gguf: is a pointer of Git LFS");
}

TEST(ModelFiles, SaysWhatToDoWithPickledWeights) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("pytorch_model.bin", "x");
  ExpectRefused(folder.path(), "must be saved as safetensors first");
}

TEST(ModelFiles, RefusesIndexesThatLeaveTheFolder) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  for (const char* name : {"../x.safetensors", "/etc/passwd", "..", ""}) {
    folder.Write("model.safetensors.index.json",
                 std::string(R"({"weight_map":{"a":")") + name + R"("}})");
    ExpectRefused(folder.path(), "no plain file name");
  }
  folder.Write("model.safetensors.index.json", R"({"weight_map":{"a":3}})");
  ExpectRefused(folder.path(), "model.safetensors.index.json");
  folder.Write("model.safetensors.index.json", R"({"weight_map":[]})");
  ExpectRefused(folder.path(), "weight_map");
}

TEST(ModelFiles, RefusesWhatIsNotThere) {
  const TempFolder folder;
  ExpectRefused(folder.path() + "/nowhere", "no such model; give a Hugging Face directory");
  ExpectRefused(folder.path(), "has no config.json");
  folder.Write("config.json", "{}");
  ExpectRefused(folder.path(), "has neither model.safetensors nor");
  folder.Write("config.json", "{");
  ExpectRefused(folder.path(), "config.json");
  folder.Write("config.json", "[]");
  ExpectRefused(folder.path(), "must hold a JSON object");
}

TEST(ModelFiles, OpensGguf) {
  const TempFolder folder;
  const std::string path = folder.Write("m.gguf", GgufMaker().Tensor("a", {4}, 0, 0).Make(16));
  const auto files = ModelFiles::Open(path);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE((*files)->is_gguf());
  EXPECT_NE((*files)->tensors().Find("a"), nullptr);
  ExpectRefused(folder.Write("n.gguf", "no"), "n.gguf: not a GGUF file");
}

TEST(ModelFiles, OpensAFolderWithOneGguf) {
  const TempFolder folder;
  const std::string file = folder.Write("m.gguf", GgufMaker().Tensor("a", {4}, 0, 0).Make(16));
  folder.Write("NOTICE.md", "x");
  const auto files = ModelFiles::Open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_TRUE((*files)->is_gguf());
  EXPECT_EQ((*files)->path(), file);
  folder.Write("n.gguf", "another: which is meant cannot be told");
  ExpectRefused(folder.path(), "not one GGUF file alone");
  folder.Write("config.json", "{}");
  ExpectRefused(folder.path(), "model.safetensors");
}

TEST(ModelFiles, ReadsTextsWithinTheirLimit) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  folder.Write("model.safetensors", Safetensors(kShardA, 4));
  folder.Write("text", "12345");
  const auto files = ModelFiles::Open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(*(*files)->ReadText("text", 5), "12345");
  EXPECT_EQ((*files)->ReadText("text", 4).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE((*files)->ReadText("none", 5)->has_value());
}

TEST(ModelFiles, ReleaseKeepsTheBytes) {
  const TempFolder folder;
  folder.Write("config.json", "{}");
  std::string bytes =
      Safetensors(R"({"a":{"dtype":"F32","shape":[8192],"data_offsets":[0,32768]}})", 32'768);
  bytes.back() = 'x';
  folder.Write("model.safetensors", bytes);
  const auto files = ModelFiles::Open(folder.path());
  ASSERT_TRUE(files.ok()) << files.status();
  const Tensor* a = (*files)->tensors().Find("a");
  (*files)->Release(a->bytes.data(), 32'768);
  EXPECT_EQ(a->bytes.back(), std::byte{'x'});
  int elsewhere = 7;
  (*files)->Release(&elsewhere, sizeof(elsewhere));
  EXPECT_EQ(elsewhere, 7);
}

}  // namespace
}  // namespace quire::load
