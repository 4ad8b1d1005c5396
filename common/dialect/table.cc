// The tables of dialects and of thoughts: one line for each.
#include "common/dialect/table.h"

#include <algorithm>
#include <vector>

namespace quire::dialect {
namespace {

// In the order in which a template is asked for their signs: what is more particular comes first.
constexpr const Dialect* kDialects[] = {
    &kOpenAi,        &kDeepSeekV4,     &kDeepSeekV32, &kDeepSeekV3,   &kDeepSeekV31, &kKimiK2,
    &kMiniMaxM2,     &kMiniMaxM3,      &kSeedOss,     &kGlm45,        &kQwen3Coder,  &kGemma4,
    &kFunctionGemma, &kCohere,         &kMistral,     &kPhi4MiniJson, &kGranite,     &kApriel,
    &kHermes,        &kLlama4Pythonic, &kPythonic,    &kLlama3Json,
};

constexpr Mark kThink[] = {{"<think>"}};
constexpr Mark kThinkEnd[] = {{"</think>"}};
constexpr Mark kBrackets[] = {{"[THINK]", true}, {"<think>"}};
constexpr Mark kBracketsEnd[] = {{"[/THINK]", true}, {"</think>"}};
constexpr Mark kThinking[] = {{"<|START_THINKING|>", true}};
constexpr Mark kThinkingEnd[] = {{"<|END_THINKING|>", true}};
constexpr Mark kProcess[] = {{"Here is my thought process:"}, {"Here's my thought process:"}};
constexpr Mark kResponse[] = {{"Here is my response:"}, {"Here's my response:"}};
constexpr Mark kChannelOpen[] = {{"<|channel>", true}};
constexpr Mark kChannelEnd[] = {{"<channel|>", true}};
constexpr Mark kMiniMaxThink[] = {{"<mm:think>"}};
constexpr Mark kMiniMaxThinkEnd[] = {{"</mm:think>"}};
constexpr Mark kSeedThink[] = {{"<seed:think>"}};
constexpr Mark kSeedThinkEnd[] = {{"</seed:think>"}};

constexpr Thoughts kThoughts[] = {
    {.name = "none", .about = "thoughts are not looked for"},
    {.name = "think",
     .about = "`<think>` … `</think>`",
     .opens = kThink,
     .closes = kThinkEnd,
     .lines = true},
    {.name = "deepseek_r1",
     .about = "`</think>` ends the thought that the template opened; without it all is thought",
     .opens = kThink,
     .closes = kThinkEnd,
     .opened = true,
     .lines = true},
    {.name = "qwen3", .about = "as `think`", .opens = kThink, .closes = kThinkEnd, .lines = true},
    {.name = "mistral",
     .about = "`[THINK]` … `[/THINK]`, or `<think>` … `</think>`",
     .opens = kBrackets,
     .closes = kBracketsEnd},
    {.name = "openai", .about = "the analysis channel of harmony"},
    {.name = "cohere",
     .about = "`<|START_THINKING|>` … `<|END_THINKING|>`",
     .opens = kThinking,
     .closes = kThinkingEnd},
    {.name = "granite",
     .about = "“Here is my thought process:” at the beginning, up to “Here is my response:”",
     .opens = kProcess,
     .closes = kResponse,
     .words = true,
     .at_start = true},
    {.name = "gemma4",
     .about = "`<|channel>thought` … `<channel|>`, once or several times",
     .opens = kChannelOpen,
     .closes = kChannelEnd,
     .label = "thought\n",
     .repeats = true},
    {.name = "minimax_m3",
     .about = "`<mm:think>` … `</mm:think>`",
     .opens = kMiniMaxThink,
     .closes = kMiniMaxThinkEnd},
    {.name = "seed_oss",
     .about = "`<seed:think>` … `</seed:think>`",
     .opens = kSeedThink,
     .closes = kSeedThinkEnd},
};

// Other names of vLLM's for these.
struct Alias {
  std::string_view name, means;
};
constexpr Alias kDialectAliases[] = {
    {"qwen3_xml", "qwen3_coder"},   {"glm47", "glm45"},    {"gpt_oss", "openai"},
    {"command", "cohere"},          {"cohere2", "cohere"}, {"granite4", "hermes"},
    {"llama4_json", "llama3_json"}, {"olmo3", "pythonic"}, {"seed", "seed_oss"},
};
constexpr Alias kThoughtsAliases[] = {
    {"openai_gptoss", "openai"}, {"seed", "seed_oss"},     {"glm45", "think"},
    {"kimi_k2", "think"},        {"minimax_m2", "think"},  {"deepseek_v3", "think"},
    {"hunyuan_a13b", "think"},   {"qwen3_coder", "qwen3"}, {"command", "cohere"},
};

template <size_t n>
std::string_view Meant(const Alias (&aliases)[n], std::string_view name) {
  for (const Alias& alias : aliases) {
    if (alias.name == name) return alias.means;
  }
  return name;
}

std::string Joined(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  std::string out;
  for (const std::string_view name : names) {
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

}  // namespace

std::span<const Dialect* const> Dialects() { return kDialects; }
std::span<const Thoughts> AllThoughts() { return kThoughts; }

const Dialect* FindDialect(std::string_view name) {
  const std::string_view meant = Meant(kDialectAliases, name);
  for (const Dialect* dialect : kDialects) {
    if (dialect->name == meant) return dialect;
  }
  return nullptr;
}

const Thoughts* FindThoughts(std::string_view name) {
  const std::string_view meant = Meant(kThoughtsAliases, name);
  for (const Thoughts& thoughts : kThoughts) {
    if (thoughts.name == meant) return &thoughts;
  }
  return nullptr;
}

std::vector<std::string_view> SpecialMarks(const Dialect* dialect, const Thoughts* thoughts) {
  std::vector<std::string_view> marks;
  const auto add = [&](const Mark& mark) {
    if (mark.special) marks.push_back(mark.text);
  };
  const auto add_all = [&](std::span<const Mark> list) {
    for (const Mark& mark : list) add(mark);
  };
  if (thoughts != nullptr) {
    add_all(thoughts->opens);
    add_all(thoughts->closes);
  }
  if (dialect == nullptr) return marks;
  if (dialect->form == Form::kChannels) {
    marks.insert(marks.end(), std::begin(kHarmonyMarks), std::end(kHarmonyMarks));
  }
  for (const Trigger& trigger : dialect->triggers) add(trigger.mark);
  add_all(dialect->openers);
  add_all(dialect->closers);
  add_all(dialect->dropped);
  for (const Mark* mark : {&dialect->named.separator, &dialect->named.id, &dialect->quote}) {
    add(*mark);
  }
  if (!dialect->part.empty()) marks.push_back(dialect->part);
  return marks;
}

std::string DialectNames() {
  std::vector<std::string_view> names;
  for (const Dialect* dialect : kDialects) names.push_back(dialect->name);
  return Joined(std::move(names));
}

std::string ThoughtsNames() {
  std::vector<std::string_view> names;
  for (const Thoughts& thoughts : kThoughts) names.push_back(thoughts.name);
  return Joined(std::move(names));
}

}  // namespace quire::dialect
