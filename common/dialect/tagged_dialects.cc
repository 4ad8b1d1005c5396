// Dialects whose calls are tags around a name, keys and values.
#include "common/dialect/table.h"

namespace quire::dialect {
namespace {

constexpr Trigger kFunctionTriggers[] = {{{"<function="}}};
constexpr Mark kQwenOpeners[] = {{"<tool_call>"}};
constexpr Mark kQwenClosers[] = {{"</function>"}, {"</tool_call>"}};
constexpr Mark kQwenDropped[] = {{"<|im_end|>", true}, {"<|endoftext|>", true}};
constexpr std::string_view kQwenSigns[] = {"<function=", "<parameter="};
constexpr TaggedKeys kQwenKeys = {.name_end = ">",
                                  .key_open = "<parameter=",
                                  .key_end = ">",
                                  .value_end = "</parameter>",
                                  .newlines = true};

// As Qwen's, but newlines are the value's own.
constexpr TaggedKeys kSeedKeys = {
    .name_end = ">", .key_open = "<parameter=", .key_end = ">", .value_end = "</parameter>"};
constexpr Mark kSeedOpeners[] = {{"<seed:tool_call>"}};
constexpr Mark kSeedClosers[] = {{"</function>"}, {"</seed:tool_call>"}};
constexpr Mark kSeedDropped[] = {{"<seed:eos>", true}};
constexpr std::string_view kSeedSigns[] = {"<seed:tool_call>"};

constexpr Trigger kInvokeTriggers[] = {{{"<invoke name=\""}}};
constexpr Mark kMiniMaxOpeners[] = {{"<minimax:tool_call>"}};
constexpr Mark kMiniMaxClosers[] = {{"</invoke>"}, {"</minimax:tool_call>"}};
constexpr Mark kMiniMaxDropped[] = {{"[e~[", true}};
constexpr std::string_view kMiniMaxSigns[] = {"<minimax:tool_call>"};

constexpr Trigger kNestedTriggers[] = {{{"]<]minimax[>[<invoke name=\""}}};
constexpr Mark kNestedOpeners[] = {{"]<]minimax[>[<tool_call>"}};
constexpr Mark kNestedClosers[] = {{"]<]minimax[>[</invoke>"}, {"]<]minimax[>[</tool_call>"}};
constexpr std::string_view kNestedSigns[] = {"]<]minimax[>[", "<mm:think>"};

constexpr Trigger kDsmlTriggers[] = {{{"<｜DSML｜invoke name=\""}}};
constexpr Mark kDsmlOpeners[] = {{"<｜DSML｜function_calls>"}, {"<｜DSML｜tool_calls>"}};
constexpr Mark kDsmlClosers[] = {
    {"</｜DSML｜invoke>"}, {"</｜DSML｜function_calls>"}, {"</｜DSML｜tool_calls>"}};
constexpr Mark kDsmlDropped[] = {{"<｜end▁of▁sentence｜>", true}};
constexpr std::string_view kDsmlSigns[] = {"｜DSML｜"};
constexpr std::string_view kNewerDsmlSigns[] = {"｜DSML｜", "tool_calls>"};
constexpr TaggedKeys kDsmlKeys = {.name_end = "\">",
                                  .key_open = "<｜DSML｜parameter name=\"",
                                  .key_end = "\"",
                                  .value_end = "</｜DSML｜parameter>",
                                  .typed = true};

constexpr Trigger kGlmTriggers[] = {{{"<tool_call>"}}};
constexpr Mark kGlmClosers[] = {{"</tool_call>"}};
constexpr Mark kGlmDropped[] = {
    {"<|user|>", true}, {"<|observation|>", true}, {"<|endoftext|>", true}};
constexpr std::string_view kGlmSigns[] = {"<arg_key>"};

}  // namespace

const Dialect kQwen3Coder = {
    .name = "qwen3_coder",
    .families = "Qwen3-Coder, Qwen3.5 and later, Nemotron 3",
    .example =
        "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n"
        "</tool_call>",
    .thoughts = "qwen3",
    .form = Form::kTagged,
    .triggers = kFunctionTriggers,
    .openers = kQwenOpeners,
    .closers = kQwenClosers,
    .dropped = kQwenDropped,
    .tagged = kQwenKeys,
    .list = {.separator = "\n"},
    .signs = kQwenSigns,
};

const Dialect kSeedOss = {
    .name = "seed_oss",
    .families = "Seed-OSS",
    .example =
        "<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n"
        "</seed:tool_call>",
    .thoughts = "seed_oss",
    .form = Form::kTagged,
    .triggers = kFunctionTriggers,
    .openers = kSeedOpeners,
    .closers = kSeedClosers,
    .dropped = kSeedDropped,
    .tagged = kSeedKeys,
    .list = {.separator = "\n"},
    .signs = kSeedSigns,
};

const Dialect kMiniMaxM2 = {
    .name = "minimax_m2",
    .families = "MiniMax M2",
    .example =
        "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"a\">1</parameter>\n"
        "</invoke>\n</minimax:tool_call>",
    .thoughts = "think",
    .form = Form::kTagged,
    .triggers = kInvokeTriggers,
    .openers = kMiniMaxOpeners,
    .closers = kMiniMaxClosers,
    .dropped = kMiniMaxDropped,
    .tagged = {.name_end = "\">",
               .key_open = "<parameter name=\"",
               .key_end = "\">",
               .value_end = "</parameter>"},
    .list = {.open = "<minimax:tool_call>\n", .separator = "\n", .close = "\n</minimax:tool_call>"},
    .signs = kMiniMaxSigns,
};

const Dialect kMiniMaxM3 = {
    .name = "minimax_m3",
    .families = "MiniMax M3",
    .example =
        "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<a>1"
        "]<]minimax[>[</a>]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    .thoughts = "minimax_m3",
    .form = Form::kNested,
    .triggers = kNestedTriggers,
    .openers = kNestedOpeners,
    .closers = kNestedClosers,
    .dropped = kMiniMaxDropped,
    .tagged = {.name_end = "\">",
               .key_open = "]<]minimax[>[<",
               .key_end = ">",
               .value_end = "]<]minimax[>[</"},
    .part = "]<]minimax[>[",
    .list = {.open = "]<]minimax[>[<tool_call>\n",
             .separator = "\n",
             .close = "\n]<]minimax[>[</tool_call>"},
    .signs = kNestedSigns,
};

const Dialect kDeepSeekV32 = {
    .name = "deepseek_v32",
    .families = "DeepSeek V3.2",
    .example =
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
        "string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
        "</｜DSML｜function_calls>",
    .thoughts = "think",
    .form = Form::kTagged,
    .triggers = kDsmlTriggers,
    .openers = kDsmlOpeners,
    .closers = kDsmlClosers,
    .dropped = kDsmlDropped,
    .tagged = kDsmlKeys,
    .part = "｜DSML｜",
    .list = {.open = "<｜DSML｜function_calls>\n",
             .separator = "\n",
             .close = "\n</｜DSML｜function_calls>"},
    .signs = kDsmlSigns,
};

const Dialect kDeepSeekV4 = {
    .name = "deepseek_v4",
    .families = "DeepSeek V4",
    .example =
        "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"a\" "
        "string=\"false\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n"
        "</｜DSML｜tool_calls>",
    .thoughts = "think",
    .form = Form::kTagged,
    .triggers = kDsmlTriggers,
    .openers = kDsmlOpeners,
    .closers = kDsmlClosers,
    .dropped = kDsmlDropped,
    .tagged = kDsmlKeys,
    .part = "｜DSML｜",
    .list = {.open = "<｜DSML｜tool_calls>\n",
             .separator = "\n",
             .close = "\n</｜DSML｜tool_calls>"},
    .signs = kNewerDsmlSigns,
};

const Dialect kGlm45 = {
    .name = "glm45",
    .families = "GLM 4.5 to 5",
    .example = "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
    .thoughts = "think",
    .form = Form::kTagged,
    .triggers = kGlmTriggers,
    .closers = kGlmClosers,
    .dropped = kGlmDropped,
    .tagged = {.key_open = "<arg_key>",
               .key_end = "</arg_key>",
               .value_open = "<arg_value>",
               .value_end = "</arg_value>"},
    .list = {.separator = "\n"},
    .signs = kGlmSigns,
};

}  // namespace quire::dialect
