// A call as a name and pairs of key and value between tags; its JSON is made here.
#include <algorithm>

#include "common/ascii.h"
#include "common/dialect/scan.h"
#include "common/dialect/tag_body.h"

namespace quire::dialect {
namespace {

class TaggedCall : public TagBody {
 public:
  explicit TaggedCall(const BodySetting& setting)
      : TagBody(setting), form_(setting.dialect.tagged) {
    name_ends_ = {form_.name_end.empty() ? "\n" : form_.name_end, form_.key_open};
    for (const Mark& mark : dialect_.closers) name_ends_.push_back(mark.text);
    between_ = {form_.key_open};
    for (const Mark& mark : dialect_.closers) between_.push_back(mark.text);
    value_ends_ = {form_.value_end};
    if (form_.newlines) value_ends_.insert(value_ends_.end(), between_.begin(), between_.end());
  }

  // A tag may be a special token of this tokenizer.
  bool TakeSpecial(std::string_view token) override {
    const auto among = [&](const std::vector<std::string_view>& tags) {
      return std::find(tags.begin(), tags.end(), token) != tags.end();
    };
    const bool ours = state_ == State::kName ? among(name_ends_)
                      : state_ == State::kValue
                          ? among(value_ends_)
                          : among(between_) || token == form_.value_open || token == form_.key_end;
    std::string_view text = token;
    return ours && Take(text, false) == Verdict::kMore && text.empty();
  }

  void End() override {
    if (state_ == State::kName) {
      BeginNamed();
    }
    if (!out_.in_call()) return;
    if (state_ == State::kValue) EndValue();
    out_.Arguments(any_ ? "}" : "{}");
    out_.EndCall(true);
    state_ = State::kDone;
  }

 private:
  enum class State : uint8_t { kName, kBetween, kKey, kAttribute, kValueOpen, kValue, kDone };

  bool done() const override { return state_ == State::kDone; }

  Verdict Part(std::string_view& text, bool more) override {
    switch (state_) {
      case State::kName:
        return Name(text, more);
      case State::kBetween:
        return Between(text, more);
      case State::kKey:
        return Key(text, more);
      case State::kAttribute:
        return Attribute(text);
      case State::kValueOpen:
        return ValueOpen(text, more);
      case State::kValue:
        return Value(text, more);
      case State::kDone:
        break;
    }
    return Verdict::kMore;
  }

  Verdict Name(std::string_view& text, bool more) {
    const Match end = MatchAt(text, name_ends_, more);
    waits_ = end.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    const bool blank_line = end.index == 0 && form_.name_end.empty() && Trim(name_, " \n").empty();
    if (end.kind == Match::Kind::kMark && !blank_line) {
      if (!BeginNamed()) return Verdict::kFailed;
      state_ = State::kBetween;
      if (end.index == 0) text.remove_prefix(name_ends_[0].size());
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
    const Match tag = MatchAt(text, between_, more);
    waits_ = tag.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (tag.kind == Match::Kind::kNone) {  // nothing of a call's: text
      out_.Content(text.substr(0, 1));
      text.remove_prefix(1);
      return Verdict::kMore;
    }
    if (tag.index == 0) {
      text.remove_prefix(between_[0].size());
      key_.clear();
      attribute_.clear();
      state_ = State::kKey;
      return Verdict::kMore;
    }
    End();
    return Verdict::kMore;
  }

  Verdict Key(std::string_view& text, bool more) {
    const std::string_view ends[] = {form_.key_end};
    const Match end = MatchAt(text, ends, more);
    waits_ = end.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (end.kind == Match::Kind::kMark || key_.size() >= out_.limits().max_head_bytes) {
      if (end.kind == Match::Kind::kMark) text.remove_prefix(form_.key_end.size());
      state_ = form_.typed ? State::kAttribute : State::kValueOpen;
      if (!form_.typed && form_.value_open.empty()) BeginValue();
      return Verdict::kMore;
    }
    key_ += text.front();
    text.remove_prefix(1);
    return Verdict::kMore;
  }

  Verdict Attribute(std::string_view& text) {
    if (text.front() == '>' || attribute_.size() >= out_.limits().max_head_bytes) {
      BeginValue();
    } else {
      attribute_ += text.front();
    }
    text.remove_prefix(1);
    return Verdict::kMore;
  }

  Verdict ValueOpen(std::string_view& text, bool more) {
    const std::string_view marks[] = {form_.value_open};
    if (IsBlank(text.front())) {
      text.remove_prefix(1);
      return Verdict::kMore;
    }
    const Match open = MatchAt(text, marks, more);
    waits_ = open.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (open.kind == Match::Kind::kMark) text.remove_prefix(form_.value_open.size());
    BeginValue();
    return Verdict::kMore;
  }

  void BeginValue() {
    const std::string_view key = Trim(key_, " \t\r\n");
    types_here_ = types_.Of(name(), key);
    raw_ = form_.typed && attribute_.find("\"false\"") != std::string::npos;
    BeginValueOf(key, !raw_ && (types_here_ == 0 || types_here_ == kString ||
                                (form_.typed && attribute_.find("\"true\"") != std::string::npos)));
    at_start_ = true;
    newline_ = false;
    state_ = State::kValue;
  }

  Verdict Value(std::string_view& text, bool more) {
    const char c = text.front();
    if (form_.newlines && c == '\n') {
      text.remove_prefix(1);
      if (newline_) Put("\n");
      newline_ = !at_start_;
      if (at_start_) line_start_ = true;
      at_start_ = false;
      return Verdict::kMore;
    }
    const Match end = c == '<' ? MatchAt(text, Ends(), more) : Match{};
    waits_ = end.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (end.kind == Match::Kind::kMark) {
      if (end.index == 0) text.remove_prefix(form_.value_end.size());
      EndValue();
      return Verdict::kMore;
    }
    if (newline_) Put("\n");
    newline_ = at_start_ = line_start_ = false;
    size_t next = 1;
    while (next < text.size() && text[next] != '<' && !(form_.newlines && text[next] == '\n')) {
      ++next;
    }
    Put(text.substr(0, next));
    text.remove_prefix(next);
    return Verdict::kMore;
  }

  // Without its end a value ends where the next tag begins a line.
  std::span<const std::string_view> Ends() const {
    const std::span<const std::string_view> all(value_ends_);
    return newline_ || at_start_ || line_start_ ? all : all.first(1);
  }

  void EndValue() {
    state_ = State::kBetween;
    if (streams_) {
      out_.Arguments("\"");
    } else if (raw_) {
      const std::string_view plain = Trim(value_, " \t\r\n");
      out_.Arguments(IsJson(plain) ? std::string(plain) : Quoted(value_));
    } else {
      out_.Arguments(ValueByTypes(value_, types_here_));
    }
  }

  const TaggedKeys& form_;
  State state_ = State::kName;
  bool raw_ = false;         // the value says that it is JSON
  bool at_start_ = false;    // of the value
  bool line_start_ = false;  // behind the value's first newline
  bool newline_ = false;     // held back: it may belong to the end mark
  TypeSet types_here_ = 0;
  std::string key_, attribute_;
  std::vector<std::string_view> name_ends_, between_, value_ends_;
};

}  // namespace

std::unique_ptr<Body> MakeTaggedCall(const BodySetting& setting) {
  return std::make_unique<TaggedCall>(setting);
}

}  // namespace quire::dialect
