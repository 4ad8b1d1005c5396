// Rules of a script: which answer a prompt gets, and how it ends.
#include "bench/mock/script.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "common/status.h"

namespace quire::bench {
namespace {

text::TextBundle Demo() {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/models/demo/tokenizer.json");
  std::ostringstream bytes;
  bytes << file.rdbuf();
  text::TextBundle bundle;
  bundle.tokenizer_json = bytes.str();
  bundle.eos_token_ids = {2};
  return bundle;
}

class ScriptTest : public ::testing::Test {
 protected:
  std::string AnswerTo(std::string_view prompt) const {
    const auto ids = tokenizer_->Encode(prompt, false);
    const auto answer = script_->AnswerTo(*ids);
    if (!answer) return "none";
    EXPECT_EQ(answer->back(), 2);
    return tokenizer_->Decode(std::span(*answer).first(answer->size() - 1), false);
  }

  void Read(std::string_view rules) {
    auto script = Script::Read(rules, Demo());
    ASSERT_TRUE(script.ok()) << script.status();
    script_ = *std::move(script);
  }

  std::unique_ptr<text::Tokenizer> tokenizer_ = *text::Tokenizer::FromJson(Demo().tokenizer_json);
  std::unique_ptr<Script> script_;
};

TEST_F(ScriptTest, TheRuleThatThePromptNamesLastCounts) {
  Read(R"([{"when": "one", "answer": "1"}, {"when": "two", "answer": "2"},
           {"when": "one two", "answer": "12"}])");
  EXPECT_EQ(AnswerTo("one"), "1");
  EXPECT_EQ(AnswerTo("two and one more"), "1");
  EXPECT_EQ(AnswerTo("one two"), "2");
  EXPECT_EQ(AnswerTo("three"), "none");
  Read(R"([{"answer": "else"}, {"when": "one", "answer": "1"}])");
  EXPECT_EQ(AnswerTo("three"), "else");
  EXPECT_EQ(AnswerTo("one"), "1");
}

TEST_F(ScriptTest, AWrongRuleIsNamed) {
  const auto refused = Script::Read(R"([{"answer": "x"}, {"when": "y"}])", Demo());
  EXPECT_EQ(StatusMessage(refused.status()), "rule 1 needs an answer");
}

}  // namespace
}  // namespace quire::bench
