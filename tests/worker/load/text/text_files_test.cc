// The vocabulary in a GGUF file's metadata, as the text library is given it.
#include "worker/load/text/text_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "common/status.h"
#include "common/text/tokenizer.h"
#include "tests/worker/load/file_maker.h"

namespace quire::load {
namespace {

absl::StatusOr<text::GgufVocab> Read(const GgufMaker& maker, const SplittingRule& rule = {}) {
  const std::string bytes = maker.Make(0);
  absl::StatusOr<GgufFile> file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
  EXPECT_TRUE(file.ok()) << file.status();
  return ReadGgufVocab(*file, rule);
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

TEST(ReadGgufVocab, AMissingSplittingRuleIsTheFamilys) {
  const auto rule = [](const SplittingRule& family, const std::string& pre, size_t tokens) {
    GgufMaker maker;
    maker.String("tokenizer.ggml.model", "gpt2");
    if (!pre.empty()) maker.String("tokenizer.ggml.pre", pre);
    maker.Strings("tokenizer.ggml.tokens", std::vector<std::string>(tokens, "a"));
    const absl::StatusOr<text::GgufVocab> vocab = Read(maker, family);
    EXPECT_TRUE(vocab.ok()) << vocab.status();
    return vocab.ok() ? vocab->pre : "";
  };
  EXPECT_EQ(rule({"qwen2"}, "", 2), "qwen2");
  EXPECT_EQ(rule({"qwen2"}, "default", 2), "qwen2");
  EXPECT_EQ(rule({"qwen2"}, "gpt-4o", 2), "gpt-4o");
  EXPECT_EQ(rule({"llama-bpe", 3}, "", 3), "llama-bpe");
  EXPECT_EQ(rule({"llama-bpe", 3}, "", 2), "");
  EXPECT_EQ(rule({}, "", 2), "");
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

// The bytes of an array of `count` elements of `type` that are all zero bytes: strings are empty.
std::string Zeros(uint32_t type, uint64_t count, size_t element_bytes) {
  std::string bytes;
  Append<uint32_t>(bytes, type);
  Append<uint64_t>(bytes, count);
  bytes.append(count * element_bytes, '\0');
  return bytes;
}

TEST(ReadGgufVocab, HoldsCountsToTheirLimits) {
  struct Case {
    const char* key;
    uint32_t type;
    size_t element_bytes;
    uint64_t most;
  };
  const Case cases[] = {{"tokenizer.ggml.tokens", 8, 8, text::kMaxVocabSize},
                        {"tokenizer.ggml.merges", 8, 8, kMaxGgufMerges},
                        {"tokenizer.ggml.scores", 6, 4, text::kMaxVocabSize},
                        {"tokenizer.ggml.token_type", 5, 4, text::kMaxVocabSize}};
  for (const Case& one : cases) {
    const auto read = [&one](uint64_t count) {
      return Read(GgufMaker().Pair(one.key, 9, Zeros(one.type, count, one.element_bytes)));
    };
    EXPECT_TRUE(read(one.most).ok()) << one.key;
    const std::string message = StatusMessage(read(one.most + 1).status());
    EXPECT_NE(message.find(one.key), std::string::npos) << message;
    EXPECT_NE(message.find("at most " + std::to_string(one.most)), std::string::npos) << message;
  }
}

TEST(ReadGgufVocab, HoldsTheTextOfTokensToItsLimit) {
  const auto read = [](uint64_t bytes) {
    std::string array;
    Append<uint32_t>(array, 8);
    Append<uint64_t>(array, 3);
    uint64_t rest = bytes;
    for (const uint64_t length : {uint64_t{60} << 20, uint64_t{60} << 20, rest - (120u << 20)}) {
      Append<uint64_t>(array, length - 8);
      array.append(length - 8, 'a');
    }
    return Read(GgufMaker().Pair("tokenizer.ggml.tokens", 9, array));
  };
  EXPECT_TRUE(read(kMaxGgufArrayTextBytes).ok());
  EXPECT_FALSE(read(kMaxGgufArrayTextBytes + 1).ok());
}

// The most that reading took beside the file's bytes, in a process of its own.
long PeakGrowthKib(const std::string& bytes) {
  const pid_t child = fork();
  if (child == 0) {
    struct rusage before {};
    struct rusage after {};
    getrusage(RUSAGE_SELF, &before);
    const absl::StatusOr<GgufFile> file = GgufFile::Parse(AsBytes(bytes), "m.gguf");
    const bool refused = file.ok() && !ReadGgufVocab(*file).ok();
    getrusage(RUSAGE_SELF, &after);
    constexpr long kMaxExitCode = 250;
    const long mib = (after.ru_maxrss - before.ru_maxrss) / 1024;
    _exit(refused ? static_cast<int>(std::min(mib, kMaxExitCode)) : kMaxExitCode);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) * 1024L;
}

TEST(ReadGgufVocab, AFileOfEmptyStringsTakesNoMemory) {
  constexpr uint64_t kCount = uint64_t{1} << 23;  // 64 MiB in the file, six times that in memory
  const std::string bytes =
      GgufMaker().Pair("tokenizer.ggml.tokens", 9, Zeros(8, kCount, 8)).Make(0);
  EXPECT_LT(PeakGrowthKib(bytes), 16 * 1024);
}

}  // namespace
}  // namespace quire::load
