// Random calls, written as each dialect's models write them, parse back to themselves; and random
// rubbish made of marks gives the same result at every cutting.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <optional>

#include "common/dialect/detect.h"
#include "common/dialect/parser.h"
#include "common/dialect/scan.h"
#include "common/json/json.h"
#include "common/text/chat_template.h"
#include "tests/common/dialect/support.h"

namespace quire::dialect {
namespace {

using Random = std::mt19937_64;

// One call: its arguments in order, each a JSON value.
struct Call {
  std::string name;
  std::vector<std::pair<std::string, json::Value>> arguments;
};

std::string Pick(Random& random, const std::vector<std::string>& from) {
  return from[random() % from.size()];
}

std::string RandomWord(Random& random) {
  return Pick(random, {"a", "get_weather", "city", "key_2", "unit", "path", "f9"});
}

std::string RandomText(Random& random, std::string_view never) {
  std::string out;
  for (size_t n = random() % 8; n > 0; --n) {
    out += Pick(random, {"x", " ",           "\n",   "\"",   "'",  "\\",  "{",  "}",
                         "[", "]",           "é",    "😀",    "\t", ",",   ":",  "<",
                         ">", "<tool_call>", "108.", "None", "</", "```", "; ", "("});
  }
  if (!never.empty() && out.find(never) != std::string::npos) out = "x";
  return out;
}

json::Value RandomValue(Random& random, int depth) {
  switch (random() % (depth > 2 ? 5 : 7)) {
    case 0:
      return static_cast<int64_t>(random() % 2000) - 1000;
    case 1:
      return static_cast<double>(random() % 1000) / 8 + 0.0625;
    case 2:
      return random() % 2 == 0;
    case 3:
      return nullptr;
    case 4:
      return json::Value(RandomText(random, ""));
    case 5: {
      json::Array array;
      for (size_t n = random() % 3; n > 0; --n) array.push_back(RandomValue(random, depth + 1));
      return array;
    }
    default: {
      json::Object object;
      for (size_t n = random() % 3; n > 0; --n) {
        object[RandomWord(random)] = RandomValue(random, depth + 1);
      }
      return object;
    }
  }
}

Call RandomCall(Random& random) {
  Call call{RandomWord(random), {}};
  std::map<std::string, bool> seen;
  for (size_t n = random() % 4; n > 0; --n) {
    const std::string key = RandomWord(random);
    if (!seen.emplace(key, true).second) continue;
    call.arguments.emplace_back(key, RandomValue(random, 0));
  }
  return call;
}

json::Value ArgumentsOf(const Call& call) {
  json::Object object;
  for (const auto& [key, value] : call.arguments) object[key] = value;
  return object;
}

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

// Schemas that say of each argument what it is, where text alone does not: a request's tools.
std::string ToolsOf(const std::vector<Call>& calls) {
  json::Array tools;
  for (const Call& call : calls) {
    json::Object properties;
    for (const auto& [key, value] : call.arguments) {
      const char* type = value.is_string()   ? "string"
                         : value.is_bool()   ? "boolean"
                         : value.is_null()   ? "null"
                         : value.is_array()  ? "array"
                         : value.is_object() ? "object"
                                             : "number";
      properties[key] = json::Object{{"type", type}};
    }
    json::Object function{
        {"name", call.name},
        {"description", "Does it."},
        {"parameters", json::Object{{"type", "object"}, {"properties", std::move(properties)}}}};
    tools.push_back(json::Object{{"type", "function"}, {"function", std::move(function)}});
  }
  return json::Serialize(tools);
}

ToolTypes TypesOf(const std::vector<Call>& calls) { return *ToolTypes::FromJson(ToolsOf(calls)); }

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kRounds = 1000, kTemplateRounds = 100;
#else
constexpr size_t kRounds = 10'000, kTemplateRounds = 10'000;
#endif

// Sorted keys, so that the order in an object does not matter.
std::string Canonical(const json::Value& value) {
  if (value.is_object()) {
    std::map<std::string, std::string> sorted;
    for (const auto& [key, one] : value.get_object()) sorted[std::string(key)] = Canonical(one);
    std::string out = "{";
    for (const auto& [key, one] : sorted) out += Quoted(key) + ":" + one + ",";
    return out + "}";
  }
  if (!value.is_array()) return json::Serialize(value);
  std::string out = "[";
  for (const json::Value& one : value.get_array()) out += Canonical(one) + ",";
  return out + "]";
}

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
        calls.push_back(std::move(call));
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

// What the templates of many families, as llama.cpp keeps them, write of an assistant's calls.
class TemplateCalls {
 public:
  static std::optional<TemplateCalls> Of(const std::filesystem::path& path) {
    std::ifstream file(path);
    const std::string source{std::istreambuf_iterator<char>(file),
                             std::istreambuf_iterator<char>()};
    TemplateCalls one;
    one.found = Detect(source, {});
    auto compiled = text::ChatTemplate::Compile(source);
    if (one.found.dialect == nullptr || !compiled.ok()) return std::nullopt;
    one.chat_template_ = *std::move(compiled);
    return one;
  }

  // The assistant's turn with these calls; an error where the template refuses them.
  absl::StatusOr<std::string> Write(const std::vector<Call>& calls) const {
    json::Array made;
    for (const Call& call : calls) {
      json::Object function{{"name", call.name}, {"arguments", ArgumentsOf(call)}};
      made.push_back(json::Object{{"id", "call0000" + std::to_string(made.size())},
                                  {"type", "function"},
                                  {"function", std::move(function)}});
    }
    json::Array messages{json::Object{{"role", "user"}, {"content", "Do it."}}};
    text::RenderOptions options;
    options.add_generation_prompt = false;
    options.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    const std::string tools = ToolsOf(calls);
    auto before = chat_template_->Render(json::Serialize(messages), tools, options);
    if (!before.ok()) return before;
    messages.push_back(
        json::Object{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", std::move(made)}});
    auto whole = chat_template_->Render(json::Serialize(messages), tools, options);
    if (!whole.ok()) return whole;
    if (!whole->starts_with(*before)) return absl::InternalError("the question has changed");
    return whole->substr(before->size());
  }

  Detected found;

 private:
  std::unique_ptr<text::ChatTemplate> chat_template_;
};

// The templates that write calls.
struct Family {
  const char* name;
  size_t most_calls = 3;
  bool lists = true;  // as JSON; false: in Python's spelling, which nothing reads
};
constexpr Family kFamilies[] = {
    {"Bielik-11B-v3.0-Instruct"},
    {"ByteDance-Seed-OSS", 3, false},
    {"Cohere2MoE"},
    {"CohereForAI-c4ai-command-r7b-12-2024-tool_use"},
    {"GLM-4.6"},
    {"GLM-4.7-Flash"},
    {"MiMo-VL"},
    {"MiniMax-M2"},
    {"Mistral-Small-3.2-24B-Instruct-2506"},
    {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"},
    {"Qwen-QwQ-32B"},
    {"Qwen-Qwen2.5-7B-Instruct"},
    {"Qwen-Qwen3-0.6B"},
    {"Qwen3-Coder"},
    {"Qwen3.5-4B"},
    {"Reka-Edge"},
    {"StepFun3.5-Flash"},
    {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B"},
    {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"},
    {"deepseek-ai-DeepSeek-V3.1"},
    {"deepseek-ai-DeepSeek-V3.2"},
    {"deepseek-ai-DeepSeek-V4"},
    {"google-gemma-4-31B-it"},
    {"ibm-granite-granite-4.0"},
    {"meta-llama-Llama-3.1-8B-Instruct", 1},
    {"meta-llama-Llama-3.3-70B-Instruct", 1},
    {"mistralai-Ministral-3-14B-Reasoning-2512"},
    {"mistralai-Mistral-Nemo-Instruct-2407"},
    {"moonshotai-Kimi-K2"},
    {"openai-gpt-oss-120b", 1},
    {"unsloth-Apriel-1.5"},
    {"Apriel-1.6-15b-Thinker-fixed"},
};

TEST(DialectRoundTrip, CallsThatATemplateWritesParseBackToThemselves) {
  const std::string folder = QUIRE_SOURCE_DIR "/.cache/chat-templates/";
  if (!std::filesystem::exists(folder + "version")) {
    GTEST_SKIP() << "not fetched: tests/golden/text/fetch_templates.py";
  }
  std::map<std::string_view, size_t> done;  // of each dialect
  for (const Family& family : kFamilies) {
    SCOPED_TRACE(family.name);
    const auto chat = TemplateCalls::Of(folder + family.name + ".jinja");
    ASSERT_TRUE(chat.has_value());
    Random random(7);
    const size_t rounds = done[chat->found.dialect->name]++ == 0 ? kTemplateRounds : 500;
    for (size_t round = 0; round < rounds; ++round) {
      std::vector<Call> calls;
      for (size_t n = 1 + random() % family.most_calls; n > 0; --n) {
        Call call = RandomCall(random);
        call.name += std::to_string(calls.size());
        if (!family.lists) {
          std::erase_if(call.arguments, [](const auto& argument) {
            return argument.second.is_array() || argument.second.is_object();
          });
        }
        calls.push_back(std::move(call));
      }
      const auto text = chat->Write(calls);
      ASSERT_TRUE(text.ok()) << text.status();
      ParserOptions options = OptionsOf(chat->found.dialect->name);
      options.types = std::make_shared<const ToolTypes>(TypesOf(calls));
      const Answer answer = ParseWhole(options, *text);
      ASSERT_EQ(answer.calls.size(), calls.size()) << *text;
      for (size_t i = 0; i < calls.size(); ++i) {
        ASSERT_EQ(answer.calls[i].name, calls[i].name) << *text;
        const auto arguments = json::Parse(answer.calls[i].arguments);
        ASSERT_TRUE(arguments.ok()) << answer.calls[i].arguments;
        ASSERT_EQ(Canonical(*arguments), Canonical(ArgumentsOf(calls[i]))) << *text;
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
