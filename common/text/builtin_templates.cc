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

}  // namespace

const std::vector<BuiltinTemplate>& BuiltinTemplates() {
  static const std::vector<BuiltinTemplate> kTemplates = {
      {"chatml", kChatml, {"<|im_start|>", "<|im_end|>"}},
      {"llama3", kLlama3, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}},
      {"gemma", kGemma, {"<start_of_turn>", "<end_of_turn>"}},
      {"mistral", kMistral, {}},
      {"zephyr", kZephyr, {}},
      {"plain", kPlain, {}},
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
