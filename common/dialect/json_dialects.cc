// Dialects whose calls are JSON, with the name inside or before it.
#include "common/dialect/table.h"

namespace quire::dialect {
namespace {

constexpr Trigger kHermesTriggers[] = {{{"<tool_call>"}}};
constexpr Mark kHermesClosers[] = {{"</tool_call>"}};
constexpr Mark kHermesDropped[] = {{"<|im_end|>", true}, {"<|endoftext|>", true}};
constexpr std::string_view kHermesSigns[] = {"<tool_call>"};

constexpr Trigger kAprielTriggers[] = {{{"<tool_calls>"}}};
constexpr Mark kAprielClosers[] = {{"</tool_calls>"}};
constexpr Mark kAprielDropped[] = {{"<|end|>", true}};
constexpr std::string_view kAprielSigns[] = {"<tool_calls>["};

constexpr Trigger kLlamaTriggers[] = {
    {{"<|python_tag|>", true}},
    {.mark = {"{"}, .soft = true, .kept = true, .where = Where::kWordStart}};
constexpr Mark kLlamaDropped[] = {
    {"<|eom_id|>", true}, {"<|eot_id|>", true}, {"<|end_of_text|>", true}};
constexpr std::string_view kLlamaSigns[] = {"\"parameters\": dictionary of argument name"};

constexpr Trigger kGraniteTriggers[] = {{{"<|tool_call|>", true}}, {{"<tool_call>"}}};
constexpr Mark kGraniteClosers[] = {{"</tool_call>"}, {"</|tool_call|>"}};
constexpr Mark kGraniteDropped[] = {{"<|end_of_text|>", true}};
constexpr std::string_view kGraniteSigns[] = {"<|tool_call|>"};

constexpr Trigger kPhiTriggers[] = {
    {.mark = {"functools"}, .soft = true, .where = Where::kWordStart},
    {.mark = {"<|tool_call|>", true}}};
constexpr Mark kPhiClosers[] = {{"<|/tool_call|>", true}};
constexpr Mark kPhiDropped[] = {{"<|end|>", true}, {"<|endoftext|>", true}};
constexpr std::string_view kPhiSigns[] = {"<|/tool|>"};

constexpr Trigger kCohereTriggers[] = {{{"<|START_ACTION|>", true}}};
constexpr Mark kCohereClosers[] = {{"<|END_ACTION|>", true}};
constexpr Mark kCohereDropped[] = {
    {"<|START_RESPONSE|>", true},
    {"<|END_RESPONSE|>", true},
    {"<|START_TEXT|>", true},
    {"<|END_TEXT|>", true},
    {"<co>"},
    {"<|CHATBOT_TOKEN|>", true},
    {"<|END_OF_TURN_TOKEN|>", true},
};
constexpr std::string_view kCohereSigns[] = {"<|START_ACTION|>"};

constexpr Trigger kMistralTriggers[] = {{{"[TOOL_CALLS]", true}}};
constexpr Mark kMistralDropped[] = {{"</s>", true}};
constexpr std::string_view kMistralSigns[] = {"[TOOL_CALLS]"};

constexpr Trigger kDeepSeekTriggers[] = {{{"<｜tool▁call▁begin｜>", true}}};
constexpr Mark kDeepSeekOpeners[] = {{"<｜tool▁calls▁begin｜>", true}};
constexpr Mark kDeepSeekClosers[] = {{"<｜tool▁call▁end｜>", true}, {"<｜tool▁calls▁end｜>", true}};
constexpr Mark kDeepSeekDropped[] = {{"<｜end▁of▁sentence｜>", true}};
constexpr std::string_view kDeepSeek3Signs[] = {"<｜tool▁calls▁begin｜>", "```json"};
constexpr std::string_view kDeepSeek31Signs[] = {"<｜tool▁calls▁begin｜>"};

constexpr Trigger kKimiTriggers[] = {{{"<|tool_call_begin|>", true}}};
constexpr Mark kKimiOpeners[] = {{"<|tool_calls_section_begin|>", true}};
constexpr Mark kKimiClosers[] = {{"<|tool_call_end|>", true}, {"<|tool_calls_section_end|>", true}};
constexpr Mark kKimiDropped[] = {{"<|im_end|>", true}};
constexpr std::string_view kKimiSigns[] = {"<|tool_calls_section_begin|>"};

}  // namespace

const Dialect kHermes = {
    .name = "hermes",
    .families = "Hermes 2 Pro and later, Qwen 2.5, Qwen3, Granite 4",
    .example = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
    .thoughts = "qwen3",
    .form = Form::kJson,
    .triggers = kHermesTriggers,
    .closers = kHermesClosers,
    .dropped = kHermesDropped,
    .list = {.separator = "\n"},
    .signs = kHermesSigns,
};

const Dialect kApriel = {
    .name = "apriel",
    .families = "Apriel 1.5, 1.6",
    .example = "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]</tool_calls>",
    .thoughts = "none",
    .form = Form::kJson,
    .triggers = kAprielTriggers,
    .closers = kAprielClosers,
    .dropped = kAprielDropped,
    .json = {.id = "id"},
    .list = {.open = "<tool_calls>[", .separator = ", ", .close = "]</tool_calls>"},
    .signs = kAprielSigns,
};

const Dialect kLlama3Json = {
    .name = "llama3_json",
    .families = "Llama 3.1, 3.2, 3.3",
    .example = "<|python_tag|>{\"name\": \"f\", \"parameters\": {\"a\": 1}}",
    .thoughts = "none",
    .form = Form::kJson,
    .triggers = kLlamaTriggers,
    .dropped = kLlamaDropped,
    .json = {.needs_arguments = true},
    .list = {.open = "<|python_tag|>", .separator = "; "},
    .signs = kLlamaSigns,
};

const Dialect kGranite = {
    .name = "granite",
    .families = "Granite 3",
    .example = "<|tool_call|>[{\"arguments\": {\"a\": 1}, \"name\": \"f\"}]",
    .thoughts = "granite",
    .form = Form::kJson,
    .triggers = kGraniteTriggers,
    .closers = kGraniteClosers,
    .dropped = kGraniteDropped,
    .list = {.open = "<|tool_call|>[", .separator = ", ", .close = "]"},
    .signs = kGraniteSigns,
};

const Dialect kPhi4MiniJson = {
    .name = "phi4_mini_json",
    .families = "Phi-4-mini",
    .example = "functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]",
    .thoughts = "none",
    .form = Form::kJson,
    .triggers = kPhiTriggers,
    .closers = kPhiClosers,
    .dropped = kPhiDropped,
    .list = {.open = "functools[", .separator = ", ", .close = "]"},
    .signs = kPhiSigns,
};

const Dialect kCohere = {
    .name = "cohere",
    .families = "Command R7B, Command A",
    .example =
        "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
        "{\"a\": 1}}]<|END_ACTION|>",
    .thoughts = "cohere",
    .form = Form::kJson,
    .triggers = kCohereTriggers,
    .closers = kCohereClosers,
    .dropped = kCohereDropped,
    .json = {.name = "tool_name", .arguments = {"parameters", "arguments"}, .id = "tool_call_id"},
    .tail = "</co: ",
    .list = {.open = "<|START_ACTION|>[", .separator = ", ", .close = "]<|END_ACTION|>"},
    .signs = kCohereSigns,
};

const Dialect kMistral = {
    .name = "mistral",
    .families = "Mistral, Mixtral, Magistral, Devstral, Ministral; all versions",
    .example = "[TOOL_CALLS]f[ARGS]{\"a\": 1}",
    .thoughts = "mistral",
    .form = Form::kEitherJson,
    .triggers = kMistralTriggers,
    .dropped = kMistralDropped,
    .json = {.id = "id"},
    .named = {.separator = {"[ARGS]", true}, .id = {"[CALL_ID]", true}, .bare_object = true},
    .ids = CallIds::kNine,
    .signs = kMistralSigns,
};

const Dialect kDeepSeekV3 = {
    .name = "deepseek_v3",
    .families = "DeepSeek V3, R1",
    .example =
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        "{\"a\": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    .thoughts = "think",
    .form = Form::kNamedJson,
    .triggers = kDeepSeekTriggers,
    .openers = kDeepSeekOpeners,
    .closers = kDeepSeekClosers,
    .dropped = kDeepSeekDropped,
    .named = {.separator = {"<｜tool▁sep｜>", true}, .typed = true},
    .list = {.open = "<｜tool▁calls▁begin｜>", .separator = "\n", .close = "<｜tool▁calls▁end｜>"},
    .signs = kDeepSeek3Signs,
};

const Dialect kDeepSeekV31 = {
    .name = "deepseek_v31",
    .families = "DeepSeek V3.1",
    .example =
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    .thoughts = "think",
    .form = Form::kNamedJson,
    .triggers = kDeepSeekTriggers,
    .openers = kDeepSeekOpeners,
    .closers = kDeepSeekClosers,
    .dropped = kDeepSeekDropped,
    .named = {.separator = {"<｜tool▁sep｜>", true}},
    .list = {.open = "<｜tool▁calls▁begin｜>", .separator = "\n", .close = "<｜tool▁calls▁end｜>"},
    .signs = kDeepSeek31Signs,
};

const Dialect kKimiK2 = {
    .name = "kimi_k2",
    .families = "Kimi K2",
    .example =
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
        "<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_calls_section_end|>",
    .thoughts = "think",
    .form = Form::kNamedJson,
    .triggers = kKimiTriggers,
    .openers = kKimiOpeners,
    .closers = kKimiClosers,
    .dropped = kKimiDropped,
    .named = {.separator = {"<|tool_call_argument_begin|>", true},
              .prefix = "functions.",
              .numbered = true},
    .ids = CallIds::kFunctions,
    .list = {.open = "<|tool_calls_section_begin|>", .close = "<|tool_calls_section_end|>"},
    .signs = kKimiSigns,
};

}  // namespace quire::dialect
