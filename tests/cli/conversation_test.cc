#include "cli/talk/conversation.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <string>

namespace quire::cli {
namespace {

std::string Said(Conversation& conversation, const std::string& line) {
  const absl::StatusOr<std::string> said = conversation.Obey(line);
  return said.ok() ? *said : "refused: " + StatusMessage(said.status());
}

TEST(Conversation, CommandsChangeWhatIsAsked) {
  Conversation conversation(AskOptions{}, "Be brief.");
  conversation.Add("user", "hello");
  EXPECT_EQ(json::Serialize(conversation.Messages()),
            R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hello"}])");
  EXPECT_EQ(Said(conversation, "/system"), "Be brief.\n");
  EXPECT_EQ(Said(conversation, "/system  Rhyme. "), "");
  EXPECT_EQ(Said(conversation, "/system"), "Rhyme.\n");
  EXPECT_EQ(Said(conversation, "/system -"), "");
  EXPECT_EQ(Said(conversation, "/clear"), "");
  EXPECT_EQ(json::Serialize(conversation.Messages()), "[]");
  EXPECT_EQ(Said(conversation, "/set temperature 0.5"), "");
  EXPECT_EQ(Said(conversation, "/set max_tokens 7"), "");
  EXPECT_EQ(Said(conversation, "/set seed 3"), "");
  EXPECT_EQ(Said(conversation, "/set model m"), "");
  EXPECT_EQ(conversation.options().temperature, 0.5);
  EXPECT_EQ(conversation.options().max_tokens, 7);
  EXPECT_EQ(conversation.options().seed, 3);
  EXPECT_NE(Said(conversation, "/set").find("max_tokens   7\n"), std::string::npos);
  EXPECT_NE(Said(conversation, "/help").find("/save FILE"), std::string::npos);
}

TEST(Conversation, WrongCommandsSayWhatIsRight) {
  Conversation conversation(AskOptions{}, "");
  const struct {
    const char *line, *mention;
  } kCases[] = {
      {"/hepl", "/help lists them"},
      {"/set heat 1", "there are temperature, top_p"},
      {"/set temperature hot", "/set temperature: must be"},
      {"/set temperature -1", "0 or more"},
      {"/set seed", "give a value"},
      {"/save", "name a file"},
      {"/save /nowhere/at/all", "cannot be written"},
      {"/load /nowhere", "cannot be read"},
  };
  for (const auto& c : kCases) {
    const std::string said = Said(conversation, c.line);
    EXPECT_TRUE(said.starts_with("refused: ") && said.find(c.mention) != std::string::npos)
        << c.line << ": " << said;
  }
}

TEST(Conversation, ComesBackFromItsFile) {
  char path[] = "/tmp/quire-talk-XXXXXX";
  close(mkstemp(path));
  Conversation first(AskOptions{}, "Be brief.");
  first.Add("user", "hello \"you\"");
  first.Add("assistant", "hi");
  EXPECT_EQ(Said(first, std::string("/save ") + path), "2 messages saved\n");
  Conversation second(AskOptions{}, "");
  EXPECT_EQ(Said(second, std::string("/load ") + path), "2 messages loaded\n");
  EXPECT_EQ(json::Serialize(second.Messages()), json::Serialize(first.Messages()));
  for (const char* wrong : {"[", "[]", R"({"messages": 1})", R"({"messages": [{"role": "user"}]})",
                            R"({"messages": [{"role": "user", "content": []}]})"}) {
    std::ofstream(path) << wrong;
    EXPECT_TRUE(Said(second, std::string("/load ") + path).starts_with("refused: ")) << wrong;
  }
  const auto file_of = [&](size_t count) {
    std::string text = R"({"messages": [{"role": "user", "content": "x"})";
    for (size_t i = 1; i < count; ++i) text += R"(,{"role": "user", "content": "x"})";
    std::ofstream(path) << text + "]}";
  };
  file_of(kMaxMessages + 1);
  EXPECT_NE(Said(second, std::string("/load ") + path).find("at most 10,000"), std::string::npos);
  EXPECT_EQ(second.size(), 2u) << "what was there stays";
  file_of(kMaxMessages);
  EXPECT_EQ(Said(second, std::string("/load ") + path), "10000 messages loaded\n");
  unlink(path);
}

}  // namespace
}  // namespace quire::cli
