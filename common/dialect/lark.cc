#include "common/dialect/lark.h"

#include <algorithm>

#include "common/dialect/scan.h"

namespace quire::dialect {
namespace {

// One of these texts, inside a terminal.
std::string AnyOf(std::span<const std::string_view> texts) {
  std::string out = "(";
  for (const std::string_view text : texts) {
    if (text.empty()) continue;
    if (out.size() > 1) out += " | ";
    out += LarkString(text);
  }
  return out + ")";
}

}  // namespace

// A string of Lark has JSON's escapes.
std::string LarkString(std::string_view text) { return Quoted(text); }

Lark::Lark(std::vector<std::string_view> marks, const SpecialToken& special) {
  for (const std::string_view mark : marks) {
    const std::optional<TokenId> id = special ? special(mark) : std::nullopt;
    if (id) specials_.push_back({mark, *id});
  }
}

bool Lark::IsSpecial(std::string_view mark) const {
  return std::any_of(specials_.begin(), specials_.end(),
                     [&](const Special& special) { return special.mark == mark; });
}

std::string Lark::Text(std::string_view text) const {
  std::string items, plain;
  const auto add = [&](const std::string& item) {
    if (!items.empty()) items += ' ';
    items += item;
  };
  const auto flush = [&] {
    if (!plain.empty()) add(LarkString(plain));
    plain.clear();
  };
  while (!text.empty()) {
    const auto found = std::find_if(specials_.begin(), specials_.end(), [&](const Special& each) {
      return text.starts_with(each.mark);
    });
    if (found == specials_.end()) {
      plain += text.front();
      text.remove_prefix(1);
      continue;
    }
    flush();
    add("<[" + std::to_string(found->id) + "]>");
    text.remove_prefix(found->mark.size());
  }
  flush();
  return items.empty() ? "\"\"" : items;
}

std::string Lark::Name(char first, std::string_view body) {
  std::string name = first + std::to_string(++count_);
  rules_ += name + ": " + std::string(body) + "\n";
  return name;
}

std::string Lark::Rule(std::string_view body) { return Name('r', body); }
std::string Lark::Terminal(std::string_view body) { return Name('T', body); }

std::string Lark::Free(std::span<const std::string_view> marks) {
  std::string body = "/(?s:.+)/";
  if (!marks.empty()) body += " & ~(/(?s:.*)/ " + AnyOf(marks) + " /(?s:.*)/)";
  return Terminal(body) + "?";
}

std::string Lark::UpTo(std::string_view mark, std::span<const std::string_view> marks) {
  std::vector<std::string_view> all(marks.begin(), marks.end());
  all.push_back(mark);
  size_t plain = mark.size();  // of the mark, before its first special token
  for (const Special& special : specials_) plain = std::min(plain, mark.find(special.mark));
  if (plain == 0) return Free(all) + " " + Text(mark);
  const std::string_view end[] = {mark.substr(0, plain)};
  const std::string text = "(/(?s:.*)/ " + AnyOf(end) + ") & ~(/(?s:.*)/ " + AnyOf(all);
  if (plain == mark.size()) return Terminal(text + " /(?s:.+)/)");
  // The text's own end is a part of the mark: with a text behind it one lexeme would take both.
  return Terminal(text + " /(?s:.*)/)") + " " + Text(mark.substr(plain));
}

}  // namespace quire::dialect
