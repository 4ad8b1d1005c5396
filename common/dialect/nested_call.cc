// A call as a name and elements, whose values are text, further elements or <item>s.
#include <algorithm>
#include <optional>
#include <utility>

#include "common/ascii.h"
#include "common/dialect/scan.h"
#include "common/dialect/tag_body.h"

namespace quire::dialect {
namespace {

constexpr std::string_view kItem = "item";

// A bare text without a schema: numbers and truth values are themselves.
std::string Guessed(std::string_view text) {
  const bool literal = text == "true" || text == "false" || text == "null";
  const bool digit = !text.empty() && (text[0] == '-' || (text[0] >= '0' && text[0] <= '9'));
  return literal || (digit && IsJson(text)) ? std::string(text) : Quoted(text);
}

// Reads what is inside one element, as JSON. One pass over the text.
class Elements {
 public:
  Elements(std::string_view text, const TaggedKeys& form, size_t max_depth)
      : text_(text), form_(form), max_depth_(max_depth) {}

  // Nothing: tags do not match, or nest too deep.
  std::optional<std::string> Read(const ValueTypes* types) {
    std::optional<std::string> value = Value(types, 0);
    return value && at_ == text_.size() ? value : std::nullopt;
  }

 private:
  std::string_view Rest() const { return text_.substr(at_); }

  // Up to the end of the text, or to an end tag, which stays.
  std::optional<std::string> Value(const ValueTypes* types, size_t depth) {
    if (depth > max_depth_) return std::nullopt;
    const size_t tag = std::min(Rest().find(form_.key_open), Rest().size());
    const std::string_view text = Rest().substr(0, tag);
    const bool inner = tag < Rest().size() && !Rest().substr(tag).starts_with(form_.value_end);
    if (!inner) {
      at_ += tag;
      return Text(text, types);
    }
    if (!Trim(text, " \t\r\n").empty()) return std::nullopt;
    return Children(types, depth);
  }

  static std::string Text(std::string_view text, const ValueTypes* types) {
    if (types == nullptr || types->types == 0) return Guessed(text);
    const bool string = (types->types & kString) != 0;
    if (text.empty() && !string && (types->types & kArray) != 0) return "[]";
    if (text.empty() && !string && (types->types & kObject) != 0) return "{}";
    return ValueByTypes(text, types->types);
  }

  std::optional<std::string> Children(const ValueTypes* types, size_t depth) {
    std::vector<std::pair<std::string_view, std::string>> children;
    while (true) {
      at_ += Rest().size() - std::string_view(TrimLeft(Rest())).size();
      if (Rest().empty() || Rest().starts_with(form_.value_end)) break;
      if (!Rest().starts_with(form_.key_open)) return std::nullopt;
      at_ += form_.key_open.size();
      const size_t end = Rest().find(form_.key_end);
      if (end == std::string_view::npos) return std::nullopt;
      const std::string_view key = Rest().substr(0, end);
      at_ += end + form_.key_end.size();
      std::optional<std::string> value = Value(Inside(types, key), depth + 1);
      if (!value || !TakeEnd(key)) return std::nullopt;
      children.emplace_back(key, *std::move(value));
    }
    return Joined(children, types);
  }

  static std::string_view TrimLeft(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  }

  bool TakeEnd(std::string_view key) {
    const std::string end =
        std::string(form_.value_end) + std::string(key) + std::string(form_.key_end);
    if (!Rest().starts_with(end)) return false;
    at_ += end.size();
    return true;
  }

  static const ValueTypes* Inside(const ValueTypes* types, std::string_view key) {
    if (types == nullptr) return nullptr;
    const auto member = types->members.find(key);
    if (member != types->members.end()) return &member->second;
    return key == kItem && !types->items.empty() ? &types->items.front() : nullptr;
  }

  static std::string Joined(const std::vector<std::pair<std::string_view, std::string>>& children,
                            const ValueTypes* types) {
    const bool items = std::all_of(children.begin(), children.end(),
                                   [](const auto& child) { return child.first == kItem; });
    const bool object = types != nullptr && (types->types & kObject) != 0 &&
                        ((types->types & kArray) == 0 || types->members.contains(kItem));
    const bool array = items && !object;
    std::string out(1, array ? '[' : '{');
    for (const auto& [key, value] : children) {
      if (out.size() > 1) out += ", ";
      if (!array) out += Quoted(key) + ": ";
      out += value;
    }
    return out + (array ? ']' : '}');
  }

  const std::string_view text_;
  const TaggedKeys& form_;
  const size_t max_depth_;
  size_t at_ = 0;
};

class NestedCall : public TagBody {
 public:
  explicit NestedCall(const BodySetting& setting)
      : TagBody(setting), form_(setting.dialect.tagged), name_end_{form_.name_end} {
    for (const Mark& mark : dialect_.closers) closers_.push_back(mark.text);
  }

  bool TakeSpecial(std::string_view) override { return false; }

  void End() override {
    if (state_ == State::kName) BeginNamed();
    if (!out_.in_call()) return;
    if (state_ == State::kTag) Put(std::string(form_.key_open) + tag_);
    if (state_ == State::kValue || state_ == State::kTag) EndValue();
    out_.Arguments(any_ ? "}" : "{}");
    out_.EndCall(true);
    state_ = State::kDone;
  }

 private:
  enum class State : uint8_t { kName, kBetween, kKey, kValue, kTag, kDone };

  bool done() const override { return state_ == State::kDone; }

  Verdict Part(std::string_view& text, bool more) override {
    switch (state_) {
      case State::kName:
        return Name(text, more);
      case State::kBetween:
        return Between(text, more);
      case State::kKey:
        return Key(text);
      case State::kValue:
        return Value(text, more);
      case State::kTag:
        return Tag(text);
      case State::kDone:
        break;
    }
    return Verdict::kMore;
  }

  Verdict Name(std::string_view& text, bool more) {
    const Match end = MatchAt(text, name_end_, more);
    waits_ = end.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (end.kind == Match::Kind::kMark) {
      if (!BeginNamed()) return Verdict::kFailed;
      state_ = State::kBetween;
      text.remove_prefix(form_.name_end.size());
      return Verdict::kMore;
    }
    if (name_.size() >= out_.limits().max_head_bytes) return Verdict::kFailed;
    name_ += text.front();
    seen_ += text.front();
    text.remove_prefix(1);
    return Verdict::kMore;
  }

  Verdict Between(std::string_view& text, bool more) {
    if (IsBlank(text.front())) {
      text.remove_prefix(1);
      return Verdict::kMore;
    }
    const Match closer = MatchAt(text, closers_, more);
    waits_ = closer.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (closer.kind == Match::Kind::kMark) {
      End();
    } else if (text.starts_with(form_.key_open)) {
      text.remove_prefix(form_.key_open.size());
      key_.clear();
      state_ = State::kKey;
    } else {  // nothing of a call's: text
      out_.Content(text.substr(0, 1));
      text.remove_prefix(1);
    }
    return Verdict::kMore;
  }

  Verdict Key(std::string_view& text) {
    const char c = text.front();
    text.remove_prefix(1);
    const bool ends = form_.key_end.front() == c;
    if (!ends) key_ += c;
    if (!ends && key_.size() < out_.limits().max_head_bytes) return Verdict::kMore;
    if (key_.starts_with('/')) {  // the end of nothing
      state_ = State::kBetween;
    } else {
      BeginValue();
    }
    return Verdict::kMore;
  }

  void BeginValue() {
    types_here_ = types_.Find(name(), key_);
    BeginValueOf(key_, types_here_ != nullptr && types_here_->types == kString);
    depth_ = 0;
    state_ = State::kValue;
  }

  Verdict Value(std::string_view& text, bool more) {
    const std::string_view tags[] = {form_.key_open};
    const Match tag = MatchAt(text, tags, more);
    waits_ = tag.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (tag.kind == Match::Kind::kMark) {
      text.remove_prefix(form_.key_open.size());
      tag_.clear();
      state_ = State::kTag;
      return Verdict::kMore;
    }
    const size_t next = std::min(text.find(form_.key_open.front(), 1), text.size());
    Put(text.substr(0, next));
    text.remove_prefix(next);
    return Verdict::kMore;
  }

  // Inside a value, behind the beginning of a tag.
  Verdict Tag(std::string_view& text) {
    const char c = text.front();
    text.remove_prefix(1);
    tag_ += c;
    const bool ends = form_.key_end.front() == c;
    if (!ends && tag_.size() < out_.limits().max_head_bytes) return Verdict::kMore;
    const std::string whole = std::string(form_.key_open) + tag_;
    state_ = State::kValue;
    if (std::find(closers_.begin(), closers_.end(), whole) != closers_.end()) {
      End();
      return Verdict::kMore;
    }
    const bool closes = tag_.starts_with('/');
    if (ends && closes && depth_ == 0) {
      EndValue();
      return Verdict::kMore;
    }
    if (ends) depth_ += closes ? -1 : 1;
    Put(whole);
    return Verdict::kMore;
  }

  void EndValue() {
    state_ = State::kBetween;
    if (streams_) return out_.Arguments("\"");
    const size_t depth = out_.limits().max_nesting;
    out_.Arguments(Elements(value_, form_, depth).Read(types_here_).value_or(Quoted(value_)));
  }

  const TaggedKeys& form_;
  State state_ = State::kName;
  int64_t depth_ = 0;  // of elements inside the value
  const ValueTypes* types_here_ = nullptr;
  std::string key_, tag_;
  const std::string_view name_end_[1];
  std::vector<std::string_view> closers_;
};

}  // namespace

std::unique_ptr<Body> MakeNestedCall(const BodySetting& setting) {
  return std::make_unique<NestedCall>(setting);
}

}  // namespace quire::dialect
