// The vocabulary in a GGUF file's metadata, as the text library is given it.
#include "worker/load/text_files.h"

#include <gtest/gtest.h>

#include "common/status.h"
#include "tests/worker/load/file_maker.h"

namespace quire::load {
namespace {

absl::StatusOr<text::GgufVocab> Read(const GgufMaker& maker) {
  const std::string bytes = maker.Make(0);
  absl::StatusOr<GgufFile> file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  return ReadGgufVocab(*file);
}

std::string Array(uint32_t type, const std::vector<std::string>& elements) {
  std::string bytes;
  Append<uint32_t>(bytes, type);
  Append<uint64_t>(bytes, elements.size());
  for (const std::string& element : elements) bytes += element;
  return bytes;
}

TEST(ReadGgufVocab, ReadsEveryKey) {
  std::string half;
  Append(half, 0.5f);
  std::string three;
  Append<int32_t>(three, 3);
  const absl::StatusOr<text::GgufVocab> vocab =
      Read(GgufMaker()
               .String("tokenizer.ggml.model", "llama")
               .String("tokenizer.ggml.pre", "default")
               .Strings("tokenizer.ggml.tokens", {"<s>", "a"})
               .Strings("tokenizer.ggml.merges", {"a b"})
               .Pair("tokenizer.ggml.scores", 9, Array(6, {half, half}))
               .Pair("tokenizer.ggml.token_type", 9, Array(5, {three, three}))
               .Uint32("tokenizer.ggml.bos_token_id", 0)
               .Uint32("tokenizer.ggml.eos_token_id", UINT32_MAX)
               .Pair("tokenizer.ggml.add_bos_token", 7, "\x01")
               .String("tokenizer.chat_template", "{{ x }}")
               .String("tokenizer.chat_template.tool_use", "{{ y }}"));
  ASSERT_TRUE(vocab.ok()) << vocab.status();
  EXPECT_EQ(vocab->model, "llama");
  EXPECT_EQ(vocab->tokens, (std::vector<std::string>{"<s>", "a"}));
  EXPECT_EQ(vocab->merges, (std::vector<std::string>{"a b"}));
  EXPECT_EQ(vocab->scores, (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(vocab->token_types, (std::vector<int32_t>{3, 3}));
  EXPECT_EQ(vocab->bos_id, 0);
  EXPECT_FALSE(vocab->eos_id.has_value());
  EXPECT_EQ(vocab->add_bos, true);
  EXPECT_FALSE(vocab->add_eos.has_value());
  EXPECT_EQ(vocab->chat_template, "{{ x }}");
  EXPECT_EQ(vocab->tool_template, "{{ y }}");
}

TEST(ReadGgufVocab, AMissingSplittingRuleFollowsFromTheModel) {
  const auto rule = [](const std::string& architecture, const std::string& pre, size_t tokens) {
    GgufMaker maker;
    maker.String("general.architecture", architecture).String("tokenizer.ggml.model", "gpt2");
    if (!pre.empty()) maker.String("tokenizer.ggml.pre", pre);
    maker.Strings("tokenizer.ggml.tokens", std::vector<std::string>(tokens, "a"));
    const absl::StatusOr<text::GgufVocab> vocab = Read(maker);
    EXPECT_TRUE(vocab.ok()) << vocab.status();
    return vocab.ok() ? vocab->pre : "";
  };
  EXPECT_EQ(rule("qwen2", "", 2), "qwen2");
  EXPECT_EQ(rule("qwen3", "default", 2), "qwen2");
  EXPECT_EQ(rule("qwen2", "gpt-4o", 2), "gpt-4o");
  EXPECT_EQ(rule("llama", "", 128'256), "llama-bpe");
  EXPECT_EQ(rule("llama", "", 2), "");
}

TEST(ReadGgufVocab, RefusesWrongTypesByKey) {
  for (const GgufMaker& maker : {GgufMaker().Uint32("tokenizer.ggml.tokens", 3),
                                 GgufMaker().Uint32("tokenizer.ggml.model", 3),
                                 GgufMaker().Strings("tokenizer.ggml.scores", {"a"}),
                                 GgufMaker().Strings("tokenizer.ggml.token_type", {"a"}),
                                 GgufMaker().String("tokenizer.ggml.bos_token_id", "a"),
                                 GgufMaker().Uint32("tokenizer.ggml.bos_token_id", 0xfffffff0),
                                 GgufMaker().Uint32("tokenizer.ggml.add_bos_token", 1)}) {
    const absl::StatusOr<text::GgufVocab> vocab = Read(maker);
    ASSERT_FALSE(vocab.ok());
    EXPECT_NE(StatusMessage(vocab.status()).find("tokenizer.ggml."), std::string::npos)
        << vocab.status();
  }
}

}  // namespace
}  // namespace quire::load
