// Answers as models write them, and what they say: what breaks in the field, dialect by dialect.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire::dialect {

inline constexpr std::string_view kTools =
    R"([{"type": "function", "function": {"name": "f", "parameters": {
  "type": "object", "properties": {
    "s": {"type": "string"}, "i": {"type": "integer"}, "x": {"type": "number"},
    "b": {"type": "boolean"}, "o": {"type": "object"}, "l": {"type": "array"},
    "u": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "v": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/O"}]}},
  "$defs": {"O": {"type": "object"}}}}}])";

struct Case {
  std::string_view dialect;
  std::string_view text;
  std::string_view content;
  std::vector<std::pair<std::string, std::string>> calls;  // name and arguments
  std::string_view reasoning = "";
  bool opened = false;  // the template opened the thought
};

inline const std::vector<Case> kCases = {
    {"apriel",
     "Sure.\n<tool_calls>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", "
     "\"arguments\": {}, \"id\": \"c1\"}]</tool_calls>",
     "Sure.",
     {{"f", "{\"a\": 1}"}, {"g", "{}"}}},
    {"apriel",
     "<tool_calls>[{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_calls>\"}}]</tool_calls>",
     "",
     {{"f", "{\"a\": \"</tool_calls>\"}"}}},
    {"apriel", "<tool_calls>[]</tool_calls>ok", "[]ok", {}},
    {"hermes",
     "Sure.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 108.}}\n</tool_call>",
     "Sure.",
     {{"f", "{\"a\": 108.}"}}},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\"}}</tool_call>",
     "",
     {{"f", "{\"a\": \"</tool_call>\"}"}}},
    {"hermes",
     "<tool_call>{\"arguments\": {\"a\": \"1\"}, \"name\": \"f\"}",
     "",
     {{"f", "{\"a\": \"1\"}"}}},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": "
     "\\\"\\ud83d\\ude00\\\"}\"}</tool_call>",
     "",
     {{"f", "{\"a\": \"😀\"}"}}},
    {"hermes", "<tool_call>{\"name\": \"f\"}</tool_call>", "", {{"f", "{}"}}},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": {a: 1}}</tool_call>",
     "",
     {{"f", "{a: 1}"}}},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}}</tool_call>x",
     "}x",
     {{"f", "{}"}}},
    {"hermes", "<tool_call>\nno call\n</tool_call>", "no call", {}},
    {"hermes",
     "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>",
     "{\"name\": 5, \"arguments\": {}}",
     {}},
    {"hermes",
     "a\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\nb",
     "a\n\nb",
     {{"f", "{}"}}},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": "
     "{}}</tool_call>",
     "",
     {{"f", "{}"}, {"g", "{}"}}},
    {"hermes", "Hello <tool", "Hello <tool", {}},
    {"hermes", "Hello\n", "Hello\n", {}},
    {"hermes", "<think>\nhm\n</think>\n\n  code", "  code", {}, "hm"},
    {"hermes", "<think>\n\n</think>\n\nyes <think> no", "yes <think> no", {}},
    {"hermes", "hm\n</think>\n\nyes", "yes", {}, "hm", true},
    {"hermes", "<think>a <tool_call> b</think>c", "c", {}, "a <tool_call> b"},
    {"hermes",
     "<think>a\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>",
     "",
     {{"f", "{}"}},
     "a"},
    {"hermes", "hm</think>yes", "hmyes", {}},
    {"llama3_json",
     "{\"name\": \"f\", \"parameters\": {\"a\": \"x; {y}\"}}; {\"name\": \"g\", \"parameters\": "
     "{}}",
     "",
     {{"f", "{\"a\": \"x; {y}\"}"}, {"g", "{}"}}},
    {"llama3_json",
     "<|python_tag|>{\"name\": \"f\", \"arguments\": {}}<|eom_id|>",
     "",
     {{"f", "{}"}}},
    {"llama3_json", "{\"name\": \"Bob\", \"age\": 3}", "{\"name\": \"Bob\", \"age\": 3}", {}},
    {"llama3_json", "if (x) { y; }; done{", "if (x) { y; }; done{", {}},
    {"llama3_json", "{\"name\": \"f\", \"parameters\": {}}; and", "; and", {{"f", "{}"}}},
    {"pythonic",
     "[f(a='x\\'y\\n', b=[1, None, True,], c={'k': (1.,)}), g()]",
     "",
     {{"f", "{\"a\": \"x'y\\n\", \"b\": [1, null, true], \"c\": {\"k\": [1.0]}}"}, {"g", "{}"}}},
    {"pythonic", "[1, 2, 3] is a list", "[1, 2, 3] is a list", {}},
    {"pythonic", "[see(this)](there)", "[see(this)](there)", {}},
    {"pythonic",
     "[f(a=-1.5e3, b=\"[)\\\\\", c=x.y(1, 2))]",
     "",
     {{"f", "{\"a\": -1.5e3, \"b\": \"[)\\\\\", \"c\": \"x.y(1, 2)\"}"}}},
    {"llama4_pythonic", "<|python_start|>[f(a=1)]<|python_end|><|eot|>", "", {{"f", "{\"a\": 1}"}}},
    {"llama4_pythonic", "[f(a=false)]", "", {{"f", "{\"a\": false}"}}},
    {"llama4_pythonic", "<|python_start|>print(1)<|python_end|>", "print(1)", {}},
    {"mistral",
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}, {\"arguments\": {\"b\": 2}, \"name\": "
     "\"g\"}] ok",
     " ok",
     {{"f", "{}"}, {"g", "{\"b\": 2}"}}},
    {"mistral",
     "[TOOL_CALLS][TOOL_CALLS] [{\"name\": \"f\", \"arguments\": \"{}\"}]</s>",
     "",
     {{"f", "{}"}}},
    {"mistral",
     "Hi[TOOL_CALLS]f[ARGS]{\"a\": \"[ARGS]\"}[TOOL_CALLS]g{\"b\": 2}ok",
     "Hiok",
     {{"f", "{\"a\": \"[ARGS]\"}"}, {"g", "{\"b\": 2}"}}},
    {"mistral", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{}", "", {{"f", "{}"}}},
    {"mistral", "[TOOL_CALLS]f[ARGS]none", "", {{"f", "none"}}},
    {"mistral", "[THINK]hm[/THINK]yes [1]", "yes [1]", {}, "hm"},
    {"openai",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary<|message|>"
     "First.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
     "<|constrain|>json<|message|>{\"a\": 1.0}<|call|>",
     "First.",
     {{"f", "{\"a\": 1.0}"}},
     "hm"},
    {"openai",
     "<|start|>assistant to=functions.f<|channel|>analysis json<|message|>{}<|call|>",
     "",
     {{"f", "{}"}}},
    {"openai",
     "<|channel|>analysis to=browser.search "
     "code<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>a<b<|return|>",
     "a<b",
     {},
     "{}"},
    {"openai",
     "<|channel|>final<|message|>one<|end|><|start|>assistant<|channel|>final<|message|>two",
     "one\ntwo",
     {}},
    {"deepseek_v3",
     "Hi<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
     "\"```\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}"
     "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "Hi",
     {{"f", "{\"a\": \"```\"}"}, {"g", "{}"}}},
    {"deepseek_v3",
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n{}<｜tool▁call▁end｜>ok",
     "ok",
     {{"f", "{}"}}},
    {"deepseek_v3", "hm</think>yes<｜end▁of▁sentence｜>", "yes", {}, "hm", true},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": "
     "1}<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>no<｜tool▁call▁end｜><"
     "｜tool▁calls▁end｜>",
     "",
     {{"f", "{\"a\": 1}"}, {"g", "no"}}},
    {"deepseek_v31",
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>just words<｜tool▁calls▁end｜>",
     "just words",
     {}},
    {"deepseek_v31", "a<｜b", "a<｜b", {}},
    {"deepseek_v32",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
     "string=\"true\">1\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"l\" "
     "string=\"false\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
     "",
     {{"f", "{\"s\": \"1\\n\", \"l\": [1]}"}}},
    {"deepseek_v32",
     "x\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>\n<｜DSML｜invoke "
     "name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "x",
     {{"f", "{}"}, {"g", "{}"}}},
    {"deepseek_v32",
     "<｜DSML｜invoke name=\"f\"><｜DSML｜parameter name=\"s\" "
     "string=\"false\">no</｜DSML｜parameter>",
     "",
     {{"f", "{\"s\": \"no\"}"}}},
    {"deepseek_v4",
     "x\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" "
     "string=\"true\">1\n</｜DSML｜parameter>\n<｜DSML｜parameter name=\"l\" "
     "string=\"false\">[1]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "x",
     {{"f", "{\"s\": \"1\\n\", \"l\": [1]}"}}},
    {"deepseek_v4",
     "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"f\">\n\n</｜DSML｜invoke>\n<｜DSML｜invoke "
     "name=\"g\">\n\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "",
     {{"f", "{}"}, {"g", "{}"}}},
    {"deepseek_v4",
     "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n</｜DSML｜invoke>",
     "",
     {{"f", "{}"}}},
    {"qwen3_coder",
     "<tool_call>\n<function=f>\n<parameter=s>\n1\n</parameter>\n<parameter=i>\n42\n</"
     "parameter>\n<parameter=u>\nnull\n</parameter>\n<parameter=o>\n{\"a\":1.0}\n</"
     "parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=v>\n{\"a\":1}\n</parameter>\n</"
     "function>\n</tool_call>ok",
     "ok",
     {{"f",
       "{\"s\": \"1\", \"i\": 42, \"u\": null, \"o\": {\"a\":1.0}, \"b\": true, \"v\": "
       "{\"a\":1}}"}}},
    {"qwen3_coder",
     "a<function=f>\n<parameter=s>\n\n <tool_call> &lt;\n\n<parameter=x>\n108.\n</function>",
     "a",
     {{"f", "{\"s\": \"\\n <tool_call> &lt;\\n\", \"x\": \"108.\"}"}}},
    {"qwen3_coder", "<tool_call>\nno call</tool_call>", "no call", {}},
    {"qwen3_coder",
     "<function=g>\n<parameter=z>\n1\n</parameter>\n</function>",
     "",
     {{"g", "{\"z\": \"1\"}"}}},
    {"qwen3_coder",
     "hm\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
     "",
     {{"f", "{}"}},
     "hm",
     true},
    {"qwen3_coder",
     "<tool_call>\n<function=f>\n<parameter=s>\n</parameter>\n</function>\n</"
     "tool_call>\n<tool_call>\n<function=g>",
     "",
     {{"f", "{\"s\": \"\"}"}, {"g", "{}"}}},
    {"seed_oss",
     "<seed:think>hm</seed:think><seed:tool_call>\n<function=f>\n<parameter=i>7</parameter>\n</"
     "function>\n</seed:tool_call>",
     "",
     {{"f", "{\"i\": 7}"}},
     "hm"},
    {"seed_oss", "yes<seed:eos>", "yes", {}},
    {"seed_oss",
     "<function=f><parameter=s>a</function>b</parameter></function>",
     "",
     {{"f", "{\"s\": \"a</function>b\"}"}}},
    {"glm45",
     "<think>hm</think>\n<tool_call>f\n<arg_key>i</arg_key>\n<arg_value>3</arg_value>\n<arg_key>s</"
     "arg_key>\n<arg_value> 3\n</arg_value>\n</tool_call>",
     "",
     {{"f", "{\"i\": 3, \"s\": \" 3\\n\"}"}},
     "hm"},
    {"glm45",
     "<tool_call>f<arg_key>l</arg_key><arg_value>[1]</arg_value></tool_call><tool_call>g</"
     "tool_call>ok",
     "ok",
     {{"f", "{\"l\": [1]}"}, {"g", "{}"}}},
    {"glm45", "<tool_call>several words, no name</tool_call>", "several words, no name", {}},
    {"kimi_k2",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
     "\"a\": "
     "1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_"
     "end|><|tool_calls_section_end|>",
     "",
     {{"f", "{\"a\": 1}"}, {"g", "{}"}}},
    {"kimi_k2",
     "<think>hm "
     "<|tool_calls_section_begin|><|tool_call_begin|>f:0<|tool_call_argument_begin|>{}<|tool_call_"
     "end|><|tool_calls_section_end|></think>ok",
     "ok",
     {{"f", "{}"}},
     "hm "},
    {"kimi_k2",
     "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>no<|tool_call_end|>",
     "",
     {{"f", "no"}}},
    {"minimax_m2",
     "hm\n</think>\n\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter "
     "name=\"s\">none</parameter>\n<parameter name=\"u\">null</parameter>\n<parameter "
     "name=\"i\">nil</parameter>\n</invoke>\n</minimax:tool_call>",
     "",
     {{"f", "{\"s\": \"none\", \"u\": null, \"i\": \"nil\"}"}},
     "hm",
     true},
    {"minimax_m2",
     "<minimax:tool_call><invoke name=\"f\"></invoke><invoke "
     "name=\"g\"></invoke></minimax:tool_call>",
     "",
     {{"f", "{}"}, {"g", "{}"}}},
    {"minimax_m2", "<minimax:tool_call>no</minimax:tool_call>", "no", {}},
    {"minimax_m3",
     "<mm:think>hm</mm:think>Hi]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"f\">"
     "]<]minimax[>[<s>a\"b ]<]minimax[ <]]<]minimax[>[</s>]<]minimax[>[<i>42]<]minimax[>[</i>"
     "]<]minimax[>[<o>]<]minimax[>[<k>true]<]minimax[>[</k>\n]<]minimax[>[<n>]<]minimax[>[<item>x"
     "]<]minimax[>[</item>]<]minimax[>[</n>]<]minimax[>[</o>]<]minimax[>[<l>]<]minimax[>[<item>1"
     "]<]minimax[>[</item>]<]minimax[>[</l>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke "
     "name=\"g\">]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
     "Hi",
     {{"f",
       "{\"s\": \"a\\\"b ]<]minimax[ <]\", \"i\": 42, \"o\": {\"k\": true, \"n\": [\"x\"]}, \"l\": "
       "[1]}"},
      {"g", "{}"}},
     "hm"},
    // Elements that do not match are the text of their parameter, and a call may lack its ends.
    {"minimax_m3",
     "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">]<]minimax[>[<o>]<]minimax[>[<k>1"
     "]<]minimax[>[</n>]<]minimax[>[</o>]<]minimax[>[<l>[1, 2]]<]minimax[>[</invoke>"
     "]<]minimax[>[<invoke name=\"g\">]<]minimax[>[<s>x]<]minimax[>[",
     "",
     {{"f", "{\"o\": \"]<]minimax[>[<k>1]<]minimax[>[</n>\", \"l\": [1, 2]}"},
      {"g", "{\"s\": \"x]<]minimax[>[\"}"}}},
    {"minimax_m3", "a]<]minimax[>[<tool_call>no", "ano", {}},
    {"gemma4",
     "<|channel>thought\nhm\n<channel|>Hi<|tool_call>call:f{s:<|\"|>a\"b{\\<|\"|>,i:42,o:{k:true,n:"
     "null},l:[1,<|\"|>x<|\"|>]}<tool_call|>",
     "Hi",
     {{"f",
       "{\"s\": \"a\\\"b{\\\\\", \"i\": 42, \"o\": {\"k\": true, \"n\": null}, \"l\": [1, "
       "\"x\"]}"}},
     "hm"},
    {"gemma4",
     "<|channel>thousand<channel|>a<|channel>thought\nb<channel|>",
     "a",
     {},
     "thousand\nb"},
    {"gemma4",
     "<|tool_call>call:f{s:42}<tool_call|><|tool_call>call:a-b.c{}<tool_call|>",
     "",
     {{"f", "{\"s\": \"42\"}"}, {"a-b.c", "{}"}}},
    {"gemma4", "<|tool_call>no<tool_call|>", "no", {}},
    {"gemma4", "<|channel>thought\nhm<|tool_call>call:f{}<tool_call|>", "", {{"f", "{}"}}, "hm"},
    {"functiongemma",
     "<start_function_call>call:f{s:<escape>v<escape>}<end_function_call>",
     "",
     {{"f", "{\"s\": \"v\"}"}}},
    {"functiongemma",
     "<start_function_call>call:g{a:{b:[<escape><<escape>]}}<end_function_call><start_function_"
     "response>",
     "",
     {{"g", "{\"a\": {\"b\": [\"<\"]}}"}}},
    {"functiongemma", "plain <escape>", "plain <escape>", {}},
    {"phi4_mini_json",
     "functools[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": "
     "{}}]",
     "",
     {{"f", "{\"a\": 1}"}, {"g", "{}"}}},
    {"phi4_mini_json", "fun, functools and functions", "fun, functools and functions", {}},
    {"phi4_mini_json", "fun", "fun", {}},
    {"granite",
     "<|tool_call|> [{\"arguments\": {\"a\": 1}, \"name\": \"f\"}]<|end_of_text|>",
     "",
     {{"f", "{\"a\": 1}"}}},
    {"granite",
     "<tool_call>[{\"name\": \"f\", \"arguments\": \"{}\"}]</tool_call>",
     "",
     {{"f", "{}"}}},
    {"granite", "Here is my thought process: a b Here is my response: yes", "yes", {}, "a b"},
    {"granite", "Here is my thought process:\nhm\nHere is my response:\nyes", "yes", {}, "hm"},
    {"granite",
     "I said: Here is my thought process: x",
     "I said: Here is my thought process: x",
     {}},
    {"cohere",
     "<|START_THINKING|>hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"f\", \"parameters\": {\"a\": 1}},\n    {\"tool_call_id\": \"1\", "
     "\"tool_name\": \"g\", \"parameters\": {}}\n]<|END_ACTION|>",
     "",
     {{"f", "{\"a\": 1}"}, {"g", "{}"}},
     "hm"},
    {"cohere",
     "<|START_RESPONSE|>It is <co>x</co: 0:[1]>, y</co: 1:[2]>.<|END_RESPONSE|>",
     "It is x, y.",
     {}},
    {"cohere", "<|START_ACTION|>[]<|END_ACTION|>", "[]", {}},
};

}  // namespace quire::dialect
