#include "router/pipeline/behind_thought.h"

#include <string>
#include <utility>

#include "common/dialect/lark.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire {
namespace {

using dialect::Forcing;
using json::Object;
using json::Value;

absl::Status Unfit() {
  return InvalidArgument(
      "a constraint of this kind cannot begin behind the thoughts of this model; use a JSON "
      "schema, "
      "or turn thoughts off with reasoning_effort none");
}

// Without the marks of a text's beginning and end, which an expression of a part has not.
std::string_view Unanchored(std::string_view expression) {
  if (expression.starts_with('^')) expression.remove_prefix(1);
  if (!expression.ends_with('$')) return expression;
  size_t slashes = 0;
  while (slashes + 1 < expression.size() && expression[expression.size() - 2 - slashes] == '\\') {
    ++slashes;
  }
  if (slashes % 2 == 0) expression.remove_suffix(1);
  return expression;
}

Object FormatOf(std::string_view type) {
  Object format;
  format["type"] = json::BoostView(type);
  return format;
}

Object Constant(std::string_view text) {
  Object format = FormatOf("const_string");
  format["value"] = json::BoostView(text);
  return format;
}

Object List(std::string_view type, json::Array elements) {
  Object format = FormatOf(type);
  format["elements"] = std::move(elements);
  return format;
}

// The constraint as a format of a structural tag.
absl::StatusOr<Object> Tagged(const Constraint& constraint) {
  switch (constraint.kind) {
    case ConstraintKind::kJsonSchema:
    case ConstraintKind::kJsonObject: {
      const bool any = constraint.kind == ConstraintKind::kJsonObject;
      Object format = FormatOf("json_schema");
      QUIRE_ASSIGN_OR_RETURN(format["json_schema"],
                             json::Parse(any ? R"({"type":"object"})" : constraint.source));
      return format;
    }
    case ConstraintKind::kRegex: {
      Object format = FormatOf("regex");
      format["pattern"] = json::BoostView(Unanchored(constraint.source));
      return format;
    }
    case ConstraintKind::kChoice: {
      QUIRE_ASSIGN_OR_RETURN(const Value list, json::Parse(constraint.source));
      json::Array options;
      for (const Value& one : list.get_array()) {
        options.push_back(Constant(json::View(one.get_string())));
      }
      return List("or", std::move(options));
    }
    case ConstraintKind::kGrammar: {
      if (constraint.source.find("::=") == std::string::npos) return Unfit();  // Lark
      Object format = FormatOf("grammar");
      format["grammar"] = constraint.source;
      return format;
    }
    case ConstraintKind::kStructuralTag: {
      QUIRE_ASSIGN_OR_RETURN(const Value tag, json::Parse(constraint.source));
      const Value* format = tag.is_object() ? json::Find(tag.get_object(), "format") : nullptr;
      if (format == nullptr || !format->is_object()) return Unfit();
      return format->get_object();
    }
    case ConstraintKind::kNone:
    case ConstraintKind::kLark:
      break;
  }
  return Unfit();
}

// Thoughts between marks of text.
absl::StatusOr<std::string> TagBehind(const Forcing& forcing, const Constraint& constraint) {
  QUIRE_ASSIGN_OR_RETURN(Object inner, Tagged(constraint));
  const dialect::Thoughts& thoughts = *forcing.thoughts;
  Object blank = FormatOf("regex");
  blank["pattern"] = "\\n{1,2}";
  Object maybe_blank = FormatOf("optional");
  maybe_blank["content"] = std::move(blank);
  const bool opened = forcing.thought_opened || thoughts.opened;
  json::Array thought;
  if (!opened) thought.push_back(Constant(thoughts.opens[0].text));
  thought.push_back(FormatOf("any_text"));
  thought.push_back(Constant(thoughts.closes[0].text));
  thought.push_back(std::move(maybe_blank));
  json::Array all;
  if (opened) {
    all = std::move(thought);
  } else {
    Object optional = FormatOf("optional");
    optional["content"] = List("sequence", std::move(thought));
    all.push_back(std::move(optional));
  }
  all.push_back(std::move(inner));
  Object tag;
  tag["format"] = List("sequence", std::move(all));
  return json::Serialize(Value(std::move(tag)));
}

// The constraint as an item of Lark.
absl::StatusOr<std::string> Item(const Constraint& constraint, dialect::Lark& lark) {
  const bool any = constraint.kind == ConstraintKind::kJsonObject;
  if ((any || constraint.kind == ConstraintKind::kJsonSchema) && !constraint.closed) {
    QUIRE_ASSIGN_OR_RETURN(Value schema,
                           json::Parse(any ? R"({"type":"object"})" : constraint.source));
    if (!schema.is_object()) return Unfit();
    Object options;
    if (const Value* given = json::Find(schema.get_object(), "x-guidance");
        given != nullptr && given->is_object()) {
      options = given->get_object();
    }
    if (constraint.compact) options["whitespace_flexible"] = false;
    if (!constraint.whitespace_pattern.empty()) {
      options["whitespace_pattern"] = constraint.whitespace_pattern;
    }
    if (!options.empty()) schema.get_object()["x-guidance"] = std::move(options);
    return lark.Rule("%json " + json::Serialize(schema));
  }
  if (constraint.kind != ConstraintKind::kChoice) return Unfit();
  QUIRE_ASSIGN_OR_RETURN(const Value list, json::Parse(constraint.source));
  std::string options;
  for (const Value& one : list.get_array()) {
    options += (options.empty() ? "" : " | ") + dialect::LarkString(json::View(one.get_string()));
  }
  return lark.Rule(options);
}

}  // namespace

absl::StatusOr<std::optional<Constraint>> BehindThought(const Forcing& forcing,
                                                        const Constraint& constraint) {
  const bool channels =
      forcing.dialect != nullptr && forcing.dialect->form == dialect::Form::kChannels;
  const bool thinks = forcing.thoughts != nullptr && !forcing.thoughts->closes.empty();
  if (!channels && !thinks) return std::optional<Constraint>();
  Constraint behind = constraint;
  dialect::Lark lark(dialect::SpecialMarks(forcing.dialect, forcing.thoughts), forcing.special);
  const bool special = channels || lark.IsSpecial(forcing.thoughts->closes[0].text);
  if (!special) {
    behind.kind = ConstraintKind::kStructuralTag;
    QUIRE_ASSIGN_OR_RETURN(behind.source, TagBehind(forcing, constraint));
    return std::optional(std::move(behind));
  }
  const std::string thought = dialect::ThoughtItem(forcing, lark);
  const std::string channel = channels ? lark.Text("<|channel|>final<|message|>") + " " : "";
  QUIRE_ASSIGN_OR_RETURN(const std::string item, Item(constraint, lark));
  behind = Constraint();
  behind.kind = ConstraintKind::kLark;
  behind.source = "start: " + thought + " " + channel + item + "\n" + lark.rules();
  return std::optional(std::move(behind));
}

}  // namespace quire
