// Chat templates by name, for models whose files have none.
//
// Pure functions, any thread. Each has the format of the model family in its name; a model answers
// well only in the format of its training.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::text {

struct BuiltinTemplate {
  std::string_view name;
  std::string_view source;                 // Jinja
  std::vector<std::string_view> required;  // tokens that the tokenizer has to have
};
const std::vector<BuiltinTemplate>& BuiltinTemplates();

// nullptr: there is none of that name.
const BuiltinTemplate* FindBuiltinTemplate(std::string_view name);
// "chatml, llama3, …".
std::string BuiltinTemplateNames();

}  // namespace quire::text
