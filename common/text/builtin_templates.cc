#include "common/text/builtin_templates.h"

namespace quire::text {
namespace {

constexpr std::string_view kChatml =
    R"({% for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

constexpr std::string_view kLlama3 =
    R"({{ bos_token }}
{%- for message in messages -%}
{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
{{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif -%})";

// A system message opens the first question.
constexpr std::string_view kGemma =
    R"({{ bos_token }}
{%- set told = namespace(system='') -%}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{%- set told.system = message['content'] | trim + '\n\n' -%}
{%- else -%}
{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' }}
{{- told.system + message['content'] | trim + '<end_of_turn>\n' }}
{%- set told.system = '' -%}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})";

constexpr std::string_view kMistral =
    R"({{ bos_token }}
{%- set told = namespace(system='') -%}
{%- for message in messages -%}
{%- if message['role'] == 'system' -%}
{%- set told.system = message['content'] + '\n\n' -%}
{%- elif message['role'] == 'user' -%}
{{ '[INST] ' + told.system + message['content'] + ' [/INST]' }}
{%- set told.system = '' -%}
{%- else -%}
{{ ' ' + message['content'] | trim + eos_token }}
{%- endif -%}
{%- endfor -%})";

constexpr std::string_view kZephyr =
    R"({% for message in messages -%}
{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})";

constexpr std::string_view kPlain =
    R"({% for message in messages -%}
{{ message['role'] | capitalize + ': ' + message['content'] + '\n\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif %})";

// A call as DeepSeek's models from V3.2 on write it.
constexpr std::string_view kDsmlCall =
    R"({%- macro invoke(function) -%}
{{ '<｜DSML｜invoke name="' + function.name + '">\n' }}
{%- for key, value in function.arguments | items -%}
{{ '<｜DSML｜parameter name="' + key + '" string="' }}
{{- ('true' if value is string else 'false') + '">' }}
{{- (value if value is string else value | tojson) + '</｜DSML｜parameter>\n' }}
{%- else %}{{ '\n' }}{% endfor -%}
{{ '</｜DSML｜invoke>' }}
{%- endmacro -%}
)";

// DeepSeek V3.2 comes with a program that writes its prompts (encoding_dsv32.py, MIT) in place of a
// template. Its words about tools are what the model was trained with.
constexpr std::string_view kDeepSeekV32 =
    R"({%- set thinks = thinking | default(false) or enable_thinking | default(false) -%}
{%- set told = namespace(last=-1, calls=0, results=0) -%}
{%- for message in messages -%}
{%- if message.role in ['user', 'developer'] %}{% set told.last = loop.index0 %}{% endif -%}
{%- endfor -%}
{{ '<｜begin▁of▁sentence｜>' }}
{%- if tools -%}
{{ '\n\n## Tools\n' }}
{{- "You have access to a set of tools you can use to answer the user's question.\n" }}
{{- 'You can invoke functions by writing a "<｜DSML｜function_calls>" block like the following as ' }}
{{- 'part of your reply to the user:\n<｜DSML｜function_calls>\n' }}
{{- '<｜DSML｜invoke name="$FUNCTION_NAME">\n<｜DSML｜parameter name="$PARAMETER_NAME" ' }}
{{- 'string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>\n...\n</｜DSML｜invoke>\n' }}
{{- '<｜DSML｜invoke name="$FUNCTION_NAME2">\n...\n</｜DSML｜invoke>\n</｜DSML｜function_calls>\n' }}
{{- 'String and scalar parameters should be specified as is without any escaping or quotes, ' }}
{{- 'while lists and objects should use JSON format. The "string" attribute should be set to ' }}
{{- '"true" for string type parameters and "false" for other types (numbers, booleans, arrays, ' }}
{{- 'objects).\nIf the thinking_mode is enabled, then after function results you should ' }}
{{- 'strongly consider outputting a thinking block. Here is an example:\n' }}
{{- '<｜DSML｜function_calls>\n...\n' }}
{{- '</｜DSML｜function_calls>\n<function_results>\n...\n</function_results>\n' }}
{{- '<think>...thinking about results</think>\n' }}
{{- 'Here are the functions available in JSONSchema format:\n<functions>\n' }}
{%- for tool in tools %}{{ tool.function | tojson + '\n' }}{% endfor -%}
{{ '</functions>\n' }}
{%- endif -%}
{%- for message in messages -%}
{%- set opens = '<think>' if thinks and loop.index0 >= told.last else '</think>' -%}
{%- set told.results = told.results + 1 if message.role == 'tool' else 0 -%}
{%- if message.role == 'system' -%}
{{ message.content }}
{%- elif message.role == 'user' -%}
{{ '<｜User｜>' + message.content + '<｜Assistant｜>' + opens }}
{%- elif message.role == 'developer' -%}
{{ "<｜User｜>\n\n# The user's message is: " + message.content + '<｜Assistant｜>' + opens }}
{%- elif message.role == 'tool' -%}
{%- if told.results > told.calls -%}
{{ raise_exception('a tool answers that was not called') }}
{%- endif -%}
{%- if told.results == 1 %}{{ '\n\n<function_results>' }}{% endif -%}
{{ '\n<result>' + message.content + '</result>' }}
{%- if told.results == told.calls %}{{ '\n</function_results>\n\n' + opens }}{% endif -%}
{%- elif message.role == 'assistant' -%}
{%- set told.calls = message.tool_calls | length -%}
{%- if thinks and loop.index0 > told.last -%}
{%- if not message.reasoning_content and not told.calls -%}
{{ raise_exception('an answer after the last question lacks its thought') }}
{%- endif -%}
{{ (message.reasoning_content or '') + '</think>' }}
{%- endif -%}
{{ message.content }}
{%- for call in message.tool_calls -%}
{{ ('\n\n<｜DSML｜function_calls>' if loop.first else '') + '\n' + invoke(call.function) }}
{%- if loop.last %}{{ '\n</｜DSML｜function_calls>' }}{% endif -%}
{%- endfor -%}
{{ '<｜end▁of▁sentence｜>' }}
{%- else -%}
{{ raise_exception('unknown role: ' + message.role) }}
{%- endif -%}
{%- endfor -%})";

// The same for DeepSeek V4 (encoding_dsv4.py, MIT): results of tools are part of the user's turn.
constexpr std::string_view kDeepSeekV4 =
    R"({%- set thinks = thinking | default(enable_thinking | default(false)) -%}
{%- set told = namespace(system='', rules=0, last=-1, tools=false, asks=false) -%}
{%- for message in messages -%}
{%- if message.role == 'system' -%}
{%- set told.system = told.system + ('\n\n' if told.rules else '') + (message.content or '') -%}
{%- set told.rules = told.rules + 1 -%}
{%- elif message.role != 'assistant' -%}
{%- set told.last = loop.index0 -%}
{%- set told.tools = told.tools or message.role == 'tool' -%}
{%- endif -%}
{%- endfor -%}
{{ '<｜begin▁of▁sentence｜>' }}
{%- if thinks and reasoning_effort | default('') == 'max' -%}
{{ 'Reasoning Effort: Absolute maximum with no shortcuts permitted.\nYou MUST be very thorough ' }}
{{- 'in your thinking and comprehensively decompose the problem to resolve the root cause, ' }}
{{- 'rigorously stress-testing your logic against all potential paths, edge cases, and ' }}
{{- 'adversarial scenarios.\nExplicitly write out your entire deliberation process, documenting ' }}
{{- 'every intermediate step, considered alternative, and rejected hypothesis to ensure ' }}
{{- 'absolutely no assumption is left unchecked.\n\n' }}
{%- endif -%}
{{ told.system }}
{%- if tools -%}
{{ ('\n\n' if told.system else '') + '## Tools\n\n' }}
{{- 'You have access to a set of tools to help answer the user\'s question. You can invoke ' }}
{{- 'tools by writing a "<｜DSML｜tool_calls>" block like the ' }}
{{- 'following:\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="$TOOL_NAME">\n' }}
{{- '<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE' }}
{{- '</｜DSML｜parameter>\n...\n</｜DSML｜invoke>\n<｜DSML｜invoke name="$TOOL_NAME2">\n...\n' }}
{{- '</｜DSML｜invoke>\n</｜DSML｜tool_calls>\n\nString parameters should be specified as is and ' }}
{{- 'set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the ' }}
{{- 'value in JSON format and set `string="false"`.\n\nIf thinking_mode is enabled ' }}
{{- '(triggered by ' }}
{{- '<think>), you MUST output your complete reasoning inside <think>...</think> BEFORE ' }}
{{- 'any tool ' }}
{{- 'calls or final response.\n\nOtherwise, output directly after </think> with tool calls or ' }}
{{- 'final response.\n\n### Available Tool Schemas\n\n' }}
{%- for tool in tools %}{{ tool.function | tojson + '\n' }}{% endfor -%}
{{ '\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke ' }}
{{- 'tool calls.\n' }}
{%- endif -%}
{%- for message in messages -%}
{%- if message.role in ['user', 'developer', 'tool'] -%}
{{ '\n\n' if told.asks else '<｜User｜>' }}
{%- set told.asks = true -%}
{%- set text = message.content or '' -%}
{{ '<tool_result>' + text + '</tool_result>' if message.role == 'tool' else text }}
{%- elif message.role == 'assistant' -%}
{%- set told.asks = false -%}
{{ '<｜Assistant｜>' }}
{%- if thinks and (tools or told.tools or loop.index0 > told.last) -%}
{{ '<think>' + (message.reasoning_content or '') }}
{%- endif -%}
{{ '</think>' + (message.content or '') }}
{%- for call in message.tool_calls -%}
{{ ('\n\n<｜DSML｜tool_calls>' if loop.first else '') + '\n' + invoke(call.function) }}
{%- if loop.last %}{{ '\n</｜DSML｜tool_calls>' }}{% endif -%}
{%- endfor -%}
{{ '<｜end▁of▁sentence｜>' }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<｜Assistant｜>' + ('<think>' if thinks else '</think>') }}
{%- endif -%})";

}  // namespace

const std::vector<BuiltinTemplate>& BuiltinTemplates() {
  static const std::string v32 = std::string(kDsmlCall) + std::string(kDeepSeekV32);
  static const std::string v4 = std::string(kDsmlCall) + std::string(kDeepSeekV4);
  static const std::vector<BuiltinTemplate> kTemplates = {
      {"chatml", kChatml, {"<|im_start|>", "<|im_end|>"}},
      {"llama3", kLlama3, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
      {"gemma", kGemma, {"<start_of_turn>", "<end_of_turn>"}},
      {"mistral", kMistral, {}},
      {"zephyr", kZephyr, {}},
      {"plain", kPlain, {}},
      {"deepseek_v32", v32, {"<｜User｜>", "<｜Assistant｜>", "｜DSML｜"}},
      {"deepseek_v4", v4, {"<｜User｜>", "<｜Assistant｜>", "｜DSML｜"}},
  };
  return kTemplates;
}

const BuiltinTemplate* FindBuiltinTemplate(std::string_view name) {
  for (const BuiltinTemplate& one : BuiltinTemplates()) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

std::string BuiltinTemplateNames() {
  std::string names;
  for (const BuiltinTemplate& one : BuiltinTemplates()) {
    names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  return names;
}

}  // namespace quire::text
