#include "common/dialect/forcing.h"

#include <algorithm>
#include <vector>

#include "common/dialect/call_writer.h"
#include "common/json/json.h"
#include "common/status.h"

namespace quire::dialect {
namespace {

constexpr size_t kMaxGrammarBytes = size_t{128} << 10;      // kMaxConstraintBytes of the wire
constexpr size_t kMaxForcedToolsBytes = size_t{512} << 10;  // that a grammar is made of

// The marks in text at which a call may begin.
std::vector<std::string_view> HardMarks(const Dialect& dialect) {
  std::vector<std::string_view> marks;
  for (const Trigger& trigger : dialect.triggers) {
    if (!trigger.soft) marks.push_back(trigger.mark.text);
  }
  for (const Mark& mark : dialect.openers) marks.push_back(mark.text);
  return marks;
}

std::string AnalysisChannel(bool opened, Lark& lark) {
  const std::string_view mark[] = {"<|"};
  const bool special = lark.IsSpecial("<|end|>");
  const std::string text = lark.Free(special ? std::span<const std::string_view>() : mark);
  const std::string open = opened ? "" : lark.Text("<|channel|>analysis<|message|>") + " ";
  const std::string end = lark.Text("<|end|><|start|>assistant");
  return "(" + open + text + " " + end + (opened ? ")" : ")?");
}

class Forcer {
 public:
  Forcer(const Forcing& forcing, std::string_view tools)
      : forcing_(forcing),
        dialect_(*forcing.dialect),
        marks_(HardMarks(dialect_)),
        lark_(SpecialMarks(forcing.dialect, forcing.thoughts), forcing.special),
        writer_(dialect_, marks_, lark_),
        tools_(tools) {}

  absl::StatusOr<std::string> Write() {
    QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> calls, Calls());
    std::string call = lark_.Rule(Joined(calls));
    const bool channels = dialect_.form == Form::kChannels;
    const std::string thought = ThoughtItem(forcing_, lark_);
    std::string answer;
    if (forcing_.count == CallCount::kSome) {
      answer = List(call, Skipped{});
    } else if (channels) {
      const std::string free = lark_.Free({});
      answer = "(" + List(call, Skipped{}) + " | " + lark_.Text("<|channel|>final<|message|>") +
               " " + free + ")";
    } else {
      QUIRE_ASSIGN_OR_RETURN(answer, Mixed());
    }
    std::string grammar = "start: " + (thought.empty() ? "" : thought + " ") + answer + "\n";
    grammar += lark_.rules();
    if (grammar.size() > kMaxGrammarBytes) {
      return InvalidArgument("tools: their grammar has " + std::to_string(grammar.size()) +
                             " bytes; at most " + std::to_string(kMaxGrammarBytes) +
                             " can be enforced: give fewer tools, or smaller schemas");
    }
    return grammar;
  }

 private:
  // How much of the list's beginning is written already.
  struct Skipped {
    std::string_view text = {};
  };

  static std::string Joined(const std::vector<std::string>& options) {
    std::string out;
    for (const std::string& option : options) out += (out.empty() ? "" : "\n  | ") + option;
    return out;
  }

  // What each function's calls look like, behind `skip`.
  absl::StatusOr<std::vector<std::string>> Calls(std::string_view skip = {}) {
    QUIRE_ASSIGN_OR_RETURN(const json::Value root, json::Parse(tools_));
    QUIRE_ASSIGN_OR_RETURN(const json::Array* list, json::AsArray(root, "tools"));
    QUIRE_ASSIGN_OR_RETURN(const ToolTypes types, ToolTypes::FromJson(tools_));
    std::vector<std::string> calls;
    for (size_t i = 0; i < list->size(); ++i) {
      const std::string where = "tools[" + std::to_string(i) + "]";
      QUIRE_ASSIGN_OR_RETURN(const json::Object* tool, json::AsObject((*list)[i], where));
      const json::Value* inner = json::Find(*tool, "function");
      if (inner != nullptr) {
        QUIRE_ASSIGN_OR_RETURN(tool, json::AsObject(*inner, where + ".function"));
      }
      const json::Value* name = json::Find(*tool, "name");
      const bool named = name != nullptr && name->is_string();
      if (!named) return InvalidArgument(where + " needs a name");
      if (!forcing_.named.empty() && json::View(name->get_string()) != forcing_.named) continue;
      QUIRE_ASSIGN_OR_RETURN(std::string call, writer_.Write(*tool, types, skip));
      calls.push_back(std::move(call));
    }
    if (calls.empty()) return InvalidArgument("tools: there is no function to call");
    return calls;
  }

  bool One() const { return forcing_.one || !forcing_.named.empty() || dialect_.list.single; }

  std::string List(const std::string& call, Skipped skipped) {
    const CallList list = writer_.list();
    std::string out;
    const std::string_view open = list.open.substr(std::min(skipped.text.size(), list.open.size()));
    if (!open.empty()) out = lark_.Text(open) + " ";
    out += call;
    if (!One()) {
      const std::string separator = list.separator.empty() ? "" : lark_.Text(list.separator) + " ";
      out += " (" + separator + call + ")*";
    }
    if (!list.close.empty()) out += " " + lark_.Text(list.close);
    return "(" + out + ")";
  }

  // Text with calls in it.
  absl::StatusOr<std::string> Mixed() {
    const std::string begin = std::string(writer_.list().open) + std::string(writer_.begin());
    std::string_view lead;
    for (const std::string_view mark : marks_) {
      if (begin.starts_with(mark) && mark.size() > lead.size()) lead = mark;
    }
    if (BeginsAsText(dialect_) || lead.empty()) {
      return InvalidArgument("tools: calls of dialect " + std::string(dialect_.name) +
                             " begin as other text does, so that strict holds for it only with "
                             "tool_choice required or a named function");
    }
    const CallList list = writer_.list();
    const bool in_open = list.open.starts_with(lead);
    std::string one;
    if (in_open) {
      QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> calls, Calls());
      one = List(lark_.Rule(Joined(calls)), Skipped{lead});
    } else {
      QUIRE_ASSIGN_OR_RETURN(const std::vector<std::string> calls, Calls(lead));
      one = "(" + lark_.Rule(Joined(calls)) + ")";
    }
    const std::string first = lark_.UpTo(lead, marks_);
    const std::string rest = lark_.Free(marks_);
    if (One()) return "(" + first + " " + one + " | " + rest + ")";
    return "(" + first + " " + one + ")* " + rest;
  }

  const Forcing& forcing_;
  const Dialect& dialect_;
  const std::vector<std::string_view> marks_;
  Lark lark_;
  CallWriter writer_;
  const std::string_view tools_;
};

}  // namespace

absl::StatusOr<std::string> ForceCalls(const Forcing& forcing, std::string_view tools) {
  if (tools.size() > kMaxForcedToolsBytes) {
    return InvalidArgument("tools: they have " + std::to_string(tools.size()) + " bytes; at most " +
                           std::to_string(kMaxForcedToolsBytes) +
                           " can be enforced: give fewer tools, or smaller schemas");
  }
  return Forcer(forcing, tools).Write();
}

std::string ThoughtItem(const Forcing& forcing, Lark& lark) {
  const Dialect* dialect = forcing.dialect;
  if (dialect != nullptr && dialect->form == Form::kChannels) {
    return AnalysisChannel(forcing.thought_opened, lark);
  }
  const Thoughts* thoughts = forcing.thoughts;
  if (thoughts == nullptr || thoughts->closes.empty()) return "";
  // The first mark that this model's tokenizer has, or one that is text.
  size_t at = 0;
  while (at + 1 < thoughts->closes.size() && thoughts->closes[at].special &&
         !lark.IsSpecial(thoughts->closes[at].text)) {
    ++at;
  }
  const std::vector<std::string_view> marks =
      dialect != nullptr ? HardMarks(*dialect) : std::vector<std::string_view>();
  const std::string rest =
      lark.UpTo(thoughts->closes[at].text, marks) + " " + lark.Terminal("/\\n{1,2}/") + "?";
  if (forcing.thought_opened || thoughts->opened) return "(" + rest + ")";
  const std::string open = std::string(thoughts->opens[at].text) + std::string(thoughts->label);
  return "(" + lark.Text(open) + " " + rest + ")?";
}

bool BeginsAsText(const Dialect& dialect) {
  return std::any_of(dialect.triggers.begin(), dialect.triggers.end(),
                     [](const Trigger& trigger) { return trigger.soft; });
}

bool AnyStrict(std::string_view tools) {
  const absl::StatusOr<json::Value> root = json::Parse(tools);
  if (!root.ok() || !root->is_array()) return false;
  return std::any_of(root->get_array().begin(), root->get_array().end(), [](const auto& tool) {
    if (!tool.is_object()) return false;
    const json::Value* function = json::Find(tool.get_object(), "function");
    const json::Value& inner = function != nullptr ? *function : tool;
    if (!inner.is_object()) return false;
    const json::Value* strict = json::Find(inner.get_object(), "strict");
    return strict != nullptr && strict->is_bool() && strict->get_bool();
  });
}

}  // namespace quire::dialect
