#include "common/config/describe.h"

#include <gtest/gtest.h>
#include <stdio.h>

#include <fstream>

namespace quire::config {
namespace {

struct Settings {
  int32_t port = 8000;
  std::vector<std::string> names;
  std::string level = "info";
  std::string key;
  std::string length;
  bool caching = true;
  int32_t hidden = 1;
  std::string model;
};

Schema MakeSchema(Settings& s) {
  Schema schema("quire test", "Tests the description.");
  schema.AddPositional({.name = "MODEL", .help = "A model.", .target = &s.model}, true);
  schema.Group("Network");
  schema.Add({.name = "port", .help = "Port.", .target = &s.port, .min = 0, .max = 65535});
  schema.Add({.name = "name", .help = "Name.", .target = &s.names, .value_name = "NAME"});
  schema.Group("Other");
  schema.Add({.name = "level", .help = "L.", .target = &s.level, .choices = {"info", "debug"}});
  schema.Add({.name = "api-key", .help = "K.", .target = &s.key, .secret = true});
  schema.Add({.name = "max-len",
              .help = "\"Longest\" | prompt.",
              .target = &s.length,
              .default_text = "what fits"});
  schema.Add({.name = "caching", .help = "C.", .target = &s.caching});
  schema.Add({.name = "ready-fd", .help = "H.", .target = &s.hidden, .hidden = true});
  return schema;
}

absl::StatusOr<std::string> Answer(const std::vector<std::string>& args, Environment environment) {
  Settings s;
  Schema schema = MakeSchema(s);
  const absl::StatusOr<ParseResult> parsed = schema.Parse(args, environment);
  if (!parsed.ok()) return parsed.status();
  return AnswerText(schema, *parsed).value_or("");
}

TEST(Description, ASiblingReadsBackWhatTheSchemaHas) {
  Settings s;
  const Description made = MakeSchema(s).Describe();
  const absl::StatusOr<Description> read = ParseDescription(DescriptionJson(made));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->program, "quire test");
  EXPECT_EQ(read->summary, "Tests the description.");
  ASSERT_EQ(read->arguments.size(), 1u);
  EXPECT_EQ(read->arguments[0].name, "MODEL");
  EXPECT_TRUE(read->arguments[0].required);
  ASSERT_EQ(read->flags.size(), 7u) << "hidden ones are left out, --config is one of them";
  EXPECT_EQ(read->flags[0].name, "port");
  EXPECT_EQ(read->flags[0].group, "Network");
  EXPECT_EQ(read->flags[0].value_name, "N");
  EXPECT_EQ(read->flags[0].default_text, "8000");
  EXPECT_TRUE(read->flags[1].repeatable);
  EXPECT_EQ(read->flags[2].choices, (std::vector<std::string>{"info", "debug"}));
  EXPECT_TRUE(read->flags[3].secret);
  EXPECT_FALSE(read->flags[4].secret);
  EXPECT_EQ(read->flags[4].help, "\"Longest\" | prompt.");
  EXPECT_EQ(read->flags[5].value_name, "") << "a bool flag";
}

TEST(Description, WhatIsNoDescriptionIsRefused) {
  for (const char* text : {"", "{", "[]", "null", "{}", "{\"program\":7}", "{\"flags\":[]}"}) {
    EXPECT_FALSE(ParseDescription(text).ok()) << text;
  }
  // Parts of another form are passed over, never read as something else.
  const auto read = ParseDescription(
      "{\"program\":\"p\",\"flags\":[7,{\"name\":\"a\",\"choices\":[1,\"x\"],\"repeatable\":\"y\"}]"
      "}");
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->flags.size(), 1u);
  EXPECT_EQ(read->flags[0].choices, std::vector<std::string>{"x"});
  EXPECT_FALSE(read->flags[0].repeatable);
}

TEST(ShowConfig, EachValueIsShownWithItsOrigin) {
  const std::string path = testing::TempDir() + "quire_describe_test.yaml";
  std::ofstream(path) << "level: debug\nport: 1\n";
  const auto table = Answer({"--show-config", "--config", path, "--name=a", "--name=b",
                             "--api-key=hunter2", "--no-caching"},
                            {{"QUIRE_PORT", "9000"}});
  remove(path.c_str());
  ASSERT_TRUE(table.ok()) << table.status();
  const auto has = [&table](const std::string& line) {
    EXPECT_NE(table->find(line), std::string::npos) << line << " in\n" << *table;
  };
  has("port     9000 ");
  has("environment  QUIRE_PORT\n");
  has("name     a,b ");
  has("file         " + path + ":1\n");
  has("max-len  what fits ");
  has("caching  false ");
  has("flag         --caching\n");
  EXPECT_EQ(table->find("hunter2"), std::string::npos) << "a secret is not shown again";
  EXPECT_EQ(table->find("ready-fd"), std::string::npos);
}

TEST(ShowConfig, AnArgumentMayBeMissingButAWrongFlagIsRefused) {
  EXPECT_TRUE(Answer({"--show-config"}, {}).ok());
  EXPECT_FALSE(Answer({}, {}).ok()) << "MODEL is missing";
  const auto wrong = Answer({"--show-config", "--prot=1"}, {});
  EXPECT_EQ(StatusMessage(wrong.status()), "unknown flag --prot; did you mean --port?");
  const auto json = Answer({"--show-config=json", "--name=a"}, {});
  ASSERT_TRUE(json.ok());
  EXPECT_NE(json->find("{\"name\":\"name\",\"value\":[\"a\"],\"default\":\"\",\"origin\":\"flag\","
                       "\"where\":\"--name\"}"),
            std::string::npos)
      << *json;
}

TEST(AnswerText, IsNothingWhereNothingWasAsked) {
  EXPECT_EQ(*Answer({"m"}, {}), "");
  EXPECT_EQ(*Answer({"--version"}, {}), std::string("quire test ") + QUIRE_VERSION + "\n");
  EXPECT_TRUE(Answer({"--help"}, {})->starts_with("Usage: quire test [flags] MODEL\n"));
  EXPECT_TRUE(ParseDescription(*Answer({"--describe"}, {})).ok());
}

}  // namespace
}  // namespace quire::config
