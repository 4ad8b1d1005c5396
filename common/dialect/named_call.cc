// A call as its name, a mark and its arguments as JSON.
#include "common/ascii.h"
#include "common/dialect/body.h"
#include "common/dialect/scan.h"

namespace quire::dialect {
namespace {

class NamedCall : public Body {
 public:
  explicit NamedCall(const BodySetting& setting) : Body(setting) {
    marks_ = {InText(dialect_.named.separator), InText(dialect_.named.id)};
    for (const Mark& mark : dialect_.closers) ends_.push_back(InText(mark));
    for (const Trigger& trigger : dialect_.triggers) {
      if (!trigger.soft) ends_.push_back(InText(trigger.mark));
    }
  }

  Verdict Take(std::string_view& text, bool more) override {
    while (!text.empty() && state_ != State::kDone) {
      const Verdict verdict = Part(text, more);
      if (verdict == Verdict::kFailed) return Fail();
      if (waits_) return Verdict::kMore;
    }
    return state_ == State::kDone ? Verdict::kDone : Verdict::kMore;
  }

  bool TakeSpecial(std::string_view token) override {
    if (state_ != State::kHead) return false;
    if (token == dialect_.named.separator.text) return Separator();
    in_id_ = in_id_ || token == dialect_.named.id.text;
    return token == dialect_.named.id.text;
  }

  void End() override {
    if (out_.in_call()) out_.EndCall(false);
  }

 private:
  enum class State : uint8_t { kHead, kName, kFence, kBlank, kJson, kText, kBehind, kDone };

  Verdict Fail() {
    const bool in_call = out_.in_call();
    End();
    return in_call ? Verdict::kDone : Verdict::kFailed;
  }

  Verdict Part(std::string_view& text, bool more) {
    waits_ = false;
    switch (state_) {
      case State::kHead:
        return Head(text, more);
      case State::kName:
        return NameLine(text);
      case State::kFence:
        return Fence(text, more);
      case State::kBlank:
        return Blank(text);
      case State::kJson:
        return Json(text);
      case State::kText:
        return Text(text, more);
      case State::kBehind:
        return Behind(text, more);
      case State::kDone:
        break;
    }
    return Verdict::kMore;
  }

  Verdict Head(std::string_view& text, bool more) {
    const Match mark = MatchAt(text, marks_, more);
    if (mark.kind == Match::Kind::kMark) {
      text.remove_prefix(marks_[mark.index].size());
      if (mark.index == 0) return Separator() ? Verdict::kMore : Verdict::kFailed;
      in_id_ = true;
      return Verdict::kMore;
    }
    const Match end = MatchAt(text, ends_, more);
    if (mark.kind == Match::Kind::kMaybe || end.kind == Match::Kind::kMaybe) {
      waits_ = true;
      return Verdict::kMore;
    }
    if (end.kind == Match::Kind::kMark) return Verdict::kFailed;
    const char c = text.front();
    if (dialect_.named.bare_object && c == '{') {
      return Separator() ? Verdict::kMore : Verdict::kFailed;
    }
    return Collect(text, in_id_ ? id_ : name_);
  }

  Verdict Collect(std::string_view& text, std::string& into) {
    if (into.size() >= out_.limits().max_head_bytes) return Verdict::kFailed;
    into += text.front();
    seen_ += text.front();
    text.remove_prefix(1);
    return Verdict::kMore;
  }

  bool Separator() {
    if (dialect_.named.typed) {
      name_.clear();
      state_ = State::kName;
      return true;
    }
    return BeginNamed();
  }

  Verdict NameLine(std::string_view& text) {
    if (text.front() == '\n' && !Trim(name_, " \t\r\n").empty()) {
      return BeginNamed() ? Verdict::kMore : Verdict::kFailed;
    }
    return Collect(text, name_);
  }

  bool BeginNamed() {
    std::string_view name = Trim(name_, " \t\r\n");
    std::string id(Trim(id_, " \t\r\n"));
    const size_t colon = name.rfind(':');
    if (dialect_.named.numbered && colon != std::string_view::npos) {
      id = name;
      name = name.substr(0, colon);
    }
    if (name.starts_with(dialect_.named.prefix)) name.remove_prefix(dialect_.named.prefix.size());
    if (name.find_first_of(" \t\r\n") != std::string_view::npos) return false;  // words, no name
    state_ = dialect_.named.typed ? State::kFence : State::kBlank;
    return Begin(name, id);
  }

  // Arguments may be in a fenced block.
  Verdict Fence(std::string_view& text, bool more) {
    static constexpr std::string_view kFences[] = {"```json", "```"};
    if (IsBlank(text.front())) {
      text.remove_prefix(1);
      return Verdict::kMore;
    }
    const bool waits = more && (std::string_view("```json").starts_with(text));
    if (waits) {
      waits_ = true;
      return Verdict::kMore;
    }
    for (const std::string_view fence : kFences) {
      if (!text.starts_with(fence)) continue;
      text.remove_prefix(fence.size());
      break;
    }
    state_ = State::kBlank;
    return Verdict::kMore;
  }

  Verdict Blank(std::string_view& text) {
    if (IsBlank(text.front())) {
      text.remove_prefix(1);
      return Verdict::kMore;
    }
    scan_ = JsonScan(out_.limits().max_nesting);
    state_ = text.front() == '{' || text.front() == '[' ? State::kJson : State::kText;
    return Verdict::kMore;
  }

  Verdict Json(std::string_view& text) {
    const size_t taken = scan_.Take(text);
    out_.Arguments(text.substr(0, taken));
    text.remove_prefix(taken);
    if (scan_.too_deep()) out_.Overflow("max_nesting");
    if (scan_.done()) EndArguments();
    return Verdict::kMore;
  }

  void EndArguments() {
    out_.EndCall(true);
    state_ = dialect_.named.typed ? State::kBehind : State::kDone;
  }

  // Arguments that are no JSON: all up to the call's end.
  Verdict Text(std::string_view& text, bool more) {
    const Match end = MatchAt(text, ends_, more);
    waits_ = end.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (end.kind == Match::Kind::kMark) {
      EndArguments();
      return Verdict::kMore;
    }
    size_t next = 1;
    while (next < text.size() && !StartsAnEnd(text[next])) ++next;
    out_.Arguments(text.substr(0, next));
    text.remove_prefix(next);
    return Verdict::kMore;
  }

  bool StartsAnEnd(char c) const {
    for (const std::string_view end : ends_) {
      if (!end.empty() && end.front() == c) return true;
    }
    return false;
  }

  // The end of a fenced block.
  Verdict Behind(std::string_view& text, bool more) {
    static constexpr std::string_view kFence[] = {"```"};
    if (IsBlank(text.front())) {
      text.remove_prefix(1);
      return Verdict::kMore;
    }
    const Match fence = MatchAt(text, kFence, more);
    waits_ = fence.kind == Match::Kind::kMaybe;
    if (waits_) return Verdict::kMore;
    if (fence.kind == Match::Kind::kMark) text.remove_prefix(kFence[0].size());
    state_ = State::kDone;
    return Verdict::kMore;
  }

  State state_ = State::kHead;
  bool waits_ = false;
  bool in_id_ = false;
  std::string name_, id_;
  JsonScan scan_;
  std::vector<std::string_view> marks_;  // separator and id
  std::vector<std::string_view> ends_;
};

}  // namespace

std::unique_ptr<Body> MakeNamedCall(const BodySetting& setting) {
  return std::make_unique<NamedCall>(setting);
}

}  // namespace quire::dialect
