// Random calls, written as each dialect's models write them, parse back to themselves; and random
// rubbish made of marks gives the same result at every cutting.
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "common/dialect/parser.h"
#include "common/dialect/scan.h"
#include "common/json/json.h"
#include "tests/common/dialect/random_calls.h"
#include "tests/common/dialect/support.h"

namespace quire::dialect {
namespace {

std::string NameAndArguments(const Call& call, std::string_view name, std::string_view arguments) {
  return "{\"" + std::string(name) + "\": \"" + call.name + "\", \"" + std::string(arguments) +
         "\": " + json::Serialize(ArgumentsOf(call)) + "}";
}

std::string PythonOf(const json::Value& value) {
  if (value.is_null()) return "None";
  if (value.is_bool()) return value.get_bool() ? "True" : "False";
  if (value.is_string()) {
    std::string out = "'";
    for (const char c : json::View(value.get_string())) {
      if (c == '\n') {
        out += "\\n";
      } else {
        if (c == '\'' || c == '\\') out += '\\';
        out += c;
      }
    }
    return out + "'";
  }
  std::string out;
  if (value.is_array()) {
    for (const json::Value& one : value.get_array()) out += PythonOf(one) + ", ";
    return "[" + out + "]";
  }
  if (!value.is_object()) return json::Serialize(value);
  for (const auto& [key, one] : value.get_object()) {
    out += (out.empty() ? "'" : ", '") + std::string(key) + "': " + PythonOf(one);
  }
  return "{" + out + "}";
}

std::string BracedOf(const json::Value& value, const std::string& quote) {
  if (value.is_string()) return quote + std::string(json::View(value.get_string())) + quote;
  std::string out;
  if (value.is_array()) {
    for (const json::Value& one : value.get_array()) {
      out += (out.empty() ? "" : ",") + BracedOf(one, quote);
    }
    return "[" + out + "]";
  }
  if (!value.is_object()) return json::Serialize(value);
  for (const auto& [key, one] : value.get_object()) {
    out += (out.empty() ? "" : ",") + std::string(key) + ":" + BracedOf(one, quote);
  }
  return "{" + out + "}";
}

// A value as tags hold it: strings bare, all else as JSON.
std::string Bare(const json::Value& value) {
  return value.is_string() ? std::string(json::View(value.get_string())) : json::Serialize(value);
}

std::string Tagged(const Call& call, const Dialect& dialect, std::string_view around) {
  const TaggedKeys& form = dialect.tagged;
  std::string out(dialect.triggers[0].mark.text);
  out += call.name + std::string(form.name_end) + "\n";
  for (const auto& [key, value] : call.arguments) {
    out += std::string(form.key_open) + key + std::string(form.key_end);
    if (form.typed) out += value.is_string() ? " string=\"true\">" : " string=\"false\">";
    if (!form.value_open.empty()) out += "\n" + std::string(form.value_open);
    out += std::string(around) + Bare(value) + std::string(around) + std::string(form.value_end) +
           "\n";
  }
  return out + std::string(dialect.closers[0].text) + "\n";
}

using Writer = std::function<std::string(const std::vector<Call>&)>;

Writer Each(std::function<std::string(const Call&)> one, std::string before = "",
            std::string between = "", std::string after = "") {
  return [=](const std::vector<Call>& calls) {
    std::string out = before;
    for (size_t i = 0; i < calls.size(); ++i) out += (i == 0 ? "" : between) + one(calls[i]);
    return out + after;
  };
}

// As elements behind MiniMax's token.
std::string Elements(const json::Value& value, const Dialect& dialect) {
  if (!value.is_array() && !value.is_object()) return Bare(value);
  std::string out;
  const auto element = [&](const std::string& key, const json::Value& one) {
    out += std::string(dialect.tagged.key_open) + key + ">" + Elements(one, dialect) +
           std::string(dialect.tagged.value_end) + key + ">";
  };
  if (value.is_array()) {
    for (const json::Value& one : value.get_array()) element("item", one);
  } else {
    for (const auto& [key, one] : value.get_object()) element(std::string(key), one);
  }
  return out;
}

std::string Nested(const Call& call) {
  const Dialect& dialect = *FindDialect("minimax_m3");
  const std::string end(dialect.closers[0].text);
  return std::string(dialect.triggers[0].mark.text) + call.name + "\">" +
         Elements(ArgumentsOf(call), dialect) + end + "\n";
}

std::string Pythonic(const Call& call) {
  std::string out;
  for (const auto& [key, value] : call.arguments) {
    out += (out.empty() ? "" : ", ") + key + "=" + PythonOf(value);
  }
  return call.name + "(" + out + ")";
}

Writer BracedWriter(const std::string& before, const std::string& quote, const std::string& after) {
  return Each([=](const Call& c) {
    return before + "call:" + c.name + BracedOf(ArgumentsOf(c), quote) + after;
  });
}

std::map<std::string, Writer> JsonWriters() {
  const auto plain = [](const Call& c) { return NameAndArguments(c, "name", "arguments"); };
  std::map<std::string, Writer> out;
  out["hermes"] = Each(plain, "<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>");
  out["apriel"] = Each(plain, "<tool_calls>[", ", ", "]</tool_calls>");
  out["llama3_json"] =
      Each([](const Call& c) { return NameAndArguments(c, "name", "parameters"); }, "", "; ");
  out["granite"] = Each(plain, "<|tool_call|>[", ", ", "]");
  out["phi4_mini_json"] = Each(plain, "functools[", ", ", "]");
  out["cohere"] = Each([](const Call& c) { return NameAndArguments(c, "tool_name", "parameters"); },
                       "<|START_ACTION|>[\n", ",\n", "\n]<|END_ACTION|>");
  const auto named = [](std::string before, std::string separator, std::string after) {
    return [=](const Call& c) {
      return before + c.name + separator + json::Serialize(ArgumentsOf(c)) + after;
    };
  };
  out["mistral"] = Each(named("[TOOL_CALLS]", "[ARGS]", ""));
  out["deepseek_v3"] = Each(named("<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n",
                                  "\n```<｜tool▁call▁end｜>"),
                            "<｜tool▁calls▁begin｜>", "\n", "<｜tool▁calls▁end｜>");
  out["deepseek_v31"] =
      Each(named("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
           "<｜tool▁calls▁begin｜>", "", "<｜tool▁calls▁end｜>");
  out["kimi_k2"] = Each(
      named("<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>"),
      "<|tool_calls_section_begin|>", "", "<|tool_calls_section_end|>");
  out["openai"] = Each(named("<|start|>assistant<|channel|>commentary to=functions.",
                             " <|constrain|>json<|message|>", "<|call|>"));
  return out;
}

std::map<std::string, Writer> Writers() {
  std::map<std::string, Writer> out = JsonWriters();
  const auto tagged = [](const char* name, std::string before, std::string after,
                         const char* edge) {
    const Dialect& dialect = *FindDialect(name);
    return Each([=, &dialect](const Call& c) { return Tagged(c, dialect, edge); }, before,
                after + before, after);
  };
  out["qwen3_coder"] = tagged("qwen3_coder", "<tool_call>\n", "</tool_call>\n", "\n");
  out["seed_oss"] = tagged("seed_oss", "<seed:tool_call>\n", "</seed:tool_call>\n", "");
  out["minimax_m2"] = tagged("minimax_m2", "<minimax:tool_call>\n", "</minimax:tool_call>\n", "");
  const CallList& list = FindDialect("minimax_m3")->list;
  out["minimax_m3"] = Each(Nested, std::string(list.open), "", std::string(list.close.substr(1)));
  out["deepseek_v32"] =
      tagged("deepseek_v32", "<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>\n", "");
  out["deepseek_v4"] =
      tagged("deepseek_v4", "<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>\n", "");
  out["glm45"] = tagged("glm45", "", "", "");
  out["pythonic"] = Each(Pythonic, "[", ", ", "]");
  out["llama4_pythonic"] = Each(Pythonic, "<|python_start|>[", ", ", "]<|python_end|>");
  out["gemma4"] = BracedWriter("<|tool_call>", "<|\"|>", "<tool_call|>");
  out["functiongemma"] = BracedWriter("<start_function_call>", "<escape>", "<end_function_call>");
  return out;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kRounds = 1000;
#else
constexpr size_t kRounds = 10'000;
#endif

TEST(DialectRoundTrip, EveryDialectHasAWriter) {
  const auto writers = Writers();
  for (const Dialect* dialect : Dialects()) {
    EXPECT_TRUE(writers.contains(std::string(dialect->name))) << dialect->name;
  }
}

TEST(DialectRoundTrip, RandomCallsParseBackToThemselves) {
  for (const auto& [name, writer] : Writers()) {
    Random random(7);
    for (size_t round = 0; round < kRounds; ++round) {
      std::vector<Call> calls;
      for (size_t n = 1 + random() % 3; n > 0; --n) {
        Call call = RandomCall(random);
        call.name += std::to_string(calls.size());
        calls.push_back(name == "minimax_m3" ? Pruned(call) : std::move(call));
      }
      ParserOptions options = OptionsOf(name);
      options.types = std::make_shared<const ToolTypes>(TypesOf(calls));
      const std::string text = writer(calls);
      const Answer answer = ParseWhole(options, text);
      ASSERT_EQ(answer.content, "") << name << ": " << text;
      ASSERT_EQ(answer.calls.size(), calls.size()) << name << ": " << text;
      for (size_t i = 0; i < calls.size(); ++i) {
        ASSERT_EQ(answer.calls[i].name, calls[i].name) << name << ": " << text;
        const auto arguments = json::Parse(answer.calls[i].arguments);
        ASSERT_TRUE(arguments.ok()) << name << ": " << answer.calls[i].arguments;
        ASSERT_EQ(Canonical(*arguments), Canonical(ArgumentsOf(calls[i]))) << name << ": " << text;
      }
      if (round % 100 == 0) {
        ASSERT_EQ(DiffersAt(options, text), "") << name;
      }
    }
  }
}

// Marks, their halves and the characters that decide, in any order.
TEST(DialectRubbish, GivesTheSameAtEveryCutting) {
  for (const Dialect* dialect : Dialects()) {
    std::vector<std::string> pieces = {"{",
                                       "}",
                                       "[",
                                       "]",
                                       "\"",
                                       ":",
                                       ",",
                                       "\n",
                                       " ",
                                       "f",
                                       "name",
                                       "{\"name\": \"f\", ",
                                       "\"arguments\": {",
                                       "call:f{",
                                       "f(a=",
                                       "\\",
                                       "'",
                                       "<",
                                       ">",
                                       "(",
                                       ")",
                                       "functions.f:0",
                                       "1",
                                       "```"};
    const Thoughts& thoughts = *FindThoughts(dialect->thoughts);
    for (const auto& list :
         {dialect->openers, dialect->closers, dialect->dropped, thoughts.opens, thoughts.closes}) {
      for (const Mark& mark : list) pieces.emplace_back(mark.text);
    }
    for (const Trigger& trigger : dialect->triggers) {
      for (int n = 0; n < 4; ++n) pieces.emplace_back(trigger.mark.text);
    }
    const TaggedKeys& tagged = dialect->tagged;
    for (const std::string_view mark :
         {dialect->named.separator.text, dialect->quote.text, tagged.key_open, tagged.key_end,
          tagged.value_open, tagged.value_end, dialect->tail}) {
      if (!mark.empty()) pieces.emplace_back(mark);
    }
    if (dialect->form == Form::kChannels) {
      for (const char* mark : {"<|start|>", "<|channel|>", "<|message|>", "<|call|>", "analysis",
                               " to=functions.f ", "<|end|>"}) {
        pieces.emplace_back(mark);
      }
    }
    Random random(11);
    for (size_t round = 0; round < kRounds / 5; ++round) {
      std::string text;
      for (size_t n = 2 + random() % 14; n > 0; --n) text += Pick(random, pieces);
      ParserOptions options = OptionsOf(dialect->name);
      options.thought_opened = random() % 4 == 0;
      options.limits = {
          .max_calls = 2, .max_argument_bytes = 24, .max_nesting = 2, .max_head_bytes = 8};
      ASSERT_EQ(DiffersAt(options, text), "") << dialect->name;
    }
  }
}

}  // namespace
}  // namespace quire::dialect
