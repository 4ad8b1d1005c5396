#include "common/dialect/detect.h"

#include <algorithm>
#include <string>

#include "common/ascii.h"

namespace quire::dialect {
namespace {

bool Writes(const Thoughts& thoughts, std::string_view text) {
  return std::any_of(thoughts.closes.begin(), thoughts.closes.end(), [&](const Mark& mark) {
    return text.find(mark.text) != std::string_view::npos;
  });
}

}  // namespace

Detected Detect(std::string_view chat_template, std::span<const std::string_view> added_tokens) {
  std::string tokens;
  if (chat_template.empty()) {
    for (const std::string_view token : added_tokens) tokens += std::string(token) + "\n";
    chat_template = tokens;
  }
  Detected found;
  for (const Dialect* dialect : Dialects()) {
    const bool speaks =
        !dialect->signs.empty() &&
        std::all_of(dialect->signs.begin(), dialect->signs.end(), [&](std::string_view sign) {
          return chat_template.find(sign) != std::string_view::npos;
        });
    if (!speaks) continue;
    found.dialect = dialect;
    break;
  }
  if (found.dialect != nullptr) {
    const Thoughts* family = FindThoughts(found.dialect->thoughts);
    const bool channels = found.dialect->form == Form::kChannels;
    if (channels || Writes(*family, chat_template)) found.thoughts = family;
  }
  for (const Thoughts& thoughts : AllThoughts()) {
    if (found.thoughts == nullptr && Writes(thoughts, chat_template)) found.thoughts = &thoughts;
  }
  return found;
}

bool EndsInThought(const Thoughts& thoughts, std::string_view prompt) {
  constexpr std::string_view kBlanks = " \t\r\n";
  std::string_view end = Trim(prompt, kBlanks);
  const std::string_view label = Trim(thoughts.label, kBlanks);
  if (!label.empty() && end.ends_with(label)) {
    end = Trim(end.substr(0, end.size() - label.size()), kBlanks);
  }
  return std::any_of(thoughts.opens.begin(), thoughts.opens.end(),
                     [&](const Mark& mark) { return end.ends_with(mark.text); });
}

}  // namespace quire::dialect
