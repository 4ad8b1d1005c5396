// Dialects whose calls look like those of a programming language, and harmony.
#include "common/dialect/table.h"

namespace quire::dialect {
namespace {

constexpr Trigger kPythonicTriggers[] = {
    {.mark = {"["}, .soft = true, .kept = true, .where = Where::kLineStart}};
constexpr Trigger kLlama4Triggers[] = {
    {{"<|python_start|>", true}},
    {.mark = {"["}, .soft = true, .kept = true, .where = Where::kLineStart}};
constexpr Mark kLlama4Closers[] = {{"<|python_end|>", true}};
constexpr Mark kLlama3Dropped[] = {{"<|eom_id|>", true}, {"<|eot_id|>", true}};
constexpr Mark kLlama4Dropped[] = {{"<|eom|>", true}, {"<|eot|>", true}};
constexpr std::string_view kLlama4Signs[] = {"<|python_start|>"};
constexpr std::string_view kPythonicSigns[] = {"[func_name1(params_name1"};

constexpr Trigger kGemmaTriggers[] = {{{"<|tool_call>", true}}};
constexpr Mark kGemmaClosers[] = {{"<tool_call|>", true}};
constexpr Mark kGemmaDropped[] = {{"<turn|>", true}, {"<end_of_turn>", true}, {"<eos>", true}};
constexpr std::string_view kGemmaSigns[] = {"<|tool_call>"};

constexpr Trigger kFunctionGemmaTriggers[] = {{{"<start_function_call>", true}}};
constexpr Mark kFunctionGemmaClosers[] = {{"<end_function_call>", true}};
constexpr Mark kFunctionGemmaDropped[] = {
    {"<start_function_response>", true}, {"<end_of_turn>", true}, {"<eos>", true}};
constexpr std::string_view kFunctionGemmaSigns[] = {"<start_function_call>"};

constexpr std::string_view kHarmonySigns[] = {"<|channel|>"};

}  // namespace

const Dialect kPythonic = {
    .name = "pythonic",
    .families = "Llama 3.2, Gemma 3, OLMo 3, ToolACE",
    .example = "[f(a=1), g(b='x')]",
    .thoughts = "none",
    .form = Form::kPythonic,
    .triggers = kPythonicTriggers,
    .dropped = kLlama3Dropped,
    .list = {.open = "[", .separator = ", ", .close = "]"},
    .signs = kPythonicSigns,
};

const Dialect kLlama4Pythonic = {
    .name = "llama4_pythonic",
    .families = "Llama 4",
    .example = "<|python_start|>[f(a=1), g(b='x')]<|python_end|>",
    .thoughts = "none",
    .form = Form::kPythonic,
    .triggers = kLlama4Triggers,
    .closers = kLlama4Closers,
    .dropped = kLlama4Dropped,
    .list = {.open = "<|python_start|>[", .separator = ", ", .close = "]<|python_end|>"},
    .signs = kLlama4Signs,
};

const Dialect kGemma4 = {
    .name = "gemma4",
    .families = "Gemma 4",
    .example = "<|tool_call>call:f{a:1,b:<|\"|>x<|\"|>}<tool_call|>",
    .thoughts = "gemma4",
    .form = Form::kBraced,
    .triggers = kGemmaTriggers,
    .closers = kGemmaClosers,
    .dropped = kGemmaDropped,
    .quote = {"<|\"|>", true},
    .signs = kGemmaSigns,
};

const Dialect kFunctionGemma = {
    .name = "functiongemma",
    .families = "FunctionGemma",
    .example = "<start_function_call>call:f{a:1,b:<escape>x<escape>}<end_function_call>",
    .thoughts = "none",
    .form = Form::kBraced,
    .triggers = kFunctionGemmaTriggers,
    .closers = kFunctionGemmaClosers,
    .dropped = kFunctionGemmaDropped,
    .quote = {"<escape>", true},
    .signs = kFunctionGemmaSigns,
};

const Dialect kOpenAi = {
    .name = "openai",
    .families = "gpt-oss (harmony)",
    .example =
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
    .thoughts = "openai",
    .form = Form::kChannels,
    .list = {.single = true},
    .signs = kHarmonySigns,
};

}  // namespace quire::dialect
