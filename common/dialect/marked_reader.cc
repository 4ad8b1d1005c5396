// Answers whose thoughts and calls are between marks: all dialects but harmony.
#include <array>
#include <vector>

#include "common/dialect/body.h"
#include "common/dialect/reader.h"
#include "common/dialect/scan.h"

namespace quire::dialect {
namespace {

const Dialect kNoCalls;
const Thoughts kNoThoughts;

class MarkedReader : public Reader {
 public:
  explicit MarkedReader(const ParserOptions& options)
      : Reader(options),
        dialect_(options.dialect != nullptr ? *options.dialect : kNoCalls),
        thoughts_(options.thoughts != nullptr ? *options.thoughts : kNoThoughts) {
    if (options.calls) {
      for (const Trigger& trigger : dialect_.triggers)
        AddMark(trigger.mark, Kind::kTrigger, &trigger);
      for (const Mark& mark : dialect_.openers) AddMark(mark, Kind::kOpener);
    }
    for (const Mark& mark : dialect_.closers) AddMark(mark, Kind::kCloser);
    for (const Mark& mark : dialect_.dropped) AddMark(mark, Kind::kDropped);
    for (const Mark& mark : thoughts_.opens) AddMark(mark, Kind::kThoughtOpen);
    for (const Mark& mark : thoughts_.closes) AddMark(mark, Kind::kThoughtClose);
    if (!dialect_.tail.empty()) AddMark({dialect_.tail}, Kind::kTail);
    if (thoughts_.closes.empty()) return;
    if (options.thought_opened || thoughts_.opened) BeginThought();
  }

  bool InThought() const override {
    if (mode_ == Mode::kThought) return true;
    const bool tries = mode_ == Mode::kAttempt || mode_ == Mode::kBody;
    return tries && from_thought_ && !out_.in_call();
  }

 protected:
  void Take(std::string_view& text, bool more) override {
    while (!text.empty()) {
      switch (mode_) {
        case Mode::kContent:
        case Mode::kThought:
          if (!Plain(text, more)) return;
          break;
        case Mode::kAttempt:
          if (!Attempt(text, more)) return;
          break;
        case Mode::kBody:
          if (!InBody(text, more)) return;
          break;
        case Mode::kTail:
          if (text.front() == '>') mode_ = Mode::kContent;
          text.remove_prefix(1);
          break;
      }
    }
  }

  void TakeSpecial(std::string_view token) override {
    if (mode_ == Mode::kBody) {
      if (body_->TakeSpecial(token)) return;
      EndBody();
    }
    const Found* found = nullptr;
    for (const Found& mark : marks_) {
      if (mark.text == token && Counts(mark)) found = &mark;
    }
    if (mode_ == Mode::kAttempt) {
      if (found != nullptr && (found->kind == Kind::kTrigger || found->kind == Kind::kOpener)) {
        Lead(*found);
        return;
      }
      Fail();
      TakeSpecial(token);
      return;
    }
    if (found != nullptr) At(*found);
  }

  void End() override {
    if (mode_ == Mode::kBody) EndBody();
    if (mode_ == Mode::kAttempt) Fail();
  }

 private:
  enum class Mode : uint8_t { kContent, kThought, kAttempt, kBody, kTail };
  enum class Kind : uint8_t {
    kTrigger,
    kOpener,
    kCloser,
    kDropped,
    kThoughtOpen,
    kThoughtClose,
    kTail,
  };
  struct Found {
    std::string_view text;
    Kind kind;
    bool in_text;  // may be in text, not only as a special token
    const Trigger* trigger;
  };

  void AddMark(const Mark& mark, Kind kind, const Trigger* trigger = nullptr) {
    const bool in_text = !(options_.tokens && mark.special);
    marks_.push_back({mark.text, kind, in_text, trigger});
    if (in_text) begins_[static_cast<unsigned char>(mark.text.front())] = true;
  }

  // Whether the mark means something where the reader is.
  bool Counts(const Found& mark) const {
    const bool thought = mode_ == Mode::kThought;
    switch (mark.kind) {
      case Kind::kTrigger:
        if (mark.trigger->soft && (thought || mode_ == Mode::kAttempt)) return false;
        if (mark.trigger->where == Where::kWordStart) return IsBlank(last_);
        return mark.trigger->where == Where::kAnywhere || last_ == '\n';
      case Kind::kCloser:
        return touched_ && !thought;
      case Kind::kTail:
        return !thought;
      case Kind::kThoughtOpen:
        if (thought) return thought_empty_;
        if (thoughts_.at_start && (out_.has_content() || out_.calls() > 0)) return false;
        return thoughts_.repeats || !thought_seen_;
      case Kind::kThoughtClose:
        return thought || !thought_closed_;
      case Kind::kOpener:
      case Kind::kDropped:
        return true;
    }
    return false;
  }

  // Of the marks at the beginning of `text`. Null: none; `waits`: one may.
  const Found* Find(std::string_view text, bool more, bool& waits) const {
    waits = false;
    for (const Found& mark : marks_) {
      if (!mark.in_text) continue;
      const bool whole = text.starts_with(mark.text);
      const bool begins = more && !whole && mark.text.starts_with(text);
      if ((!whole && !begins) || !Counts(mark)) continue;
      if (whole) return &mark;
      waits = true;
    }
    return nullptr;
  }

  void Put(std::string_view text) {
    if (text.empty()) return;
    const bool blank = text.find_first_not_of(" \t\r\n") == std::string_view::npos;
    if (mode_ == Mode::kThought) {
      out_.Reasoning(text);
      thought_empty_ = thought_empty_ && blank;
    } else {
      out_.Content(text);
      if (last_ == '\n' && blank && !out_.has_content()) return;  // still at the beginning
    }
    last_ = text.back() == '\r' ? '\n' : text.back();
  }

  // Content or a thought up to the next mark. False: further text decides.
  bool Plain(std::string_view& text, bool more) {
    if (label_ && mode_ == Mode::kThought && !Label(text, more)) return false;
    size_t at = 0;
    while (at < text.size() && !begins_[static_cast<unsigned char>(text[at])]) ++at;
    Put(text.substr(0, at));
    text.remove_prefix(at);
    if (text.empty()) return true;
    bool waits = false;
    const Found* found = Find(text, more, waits);
    if (found != nullptr) {
      if (found->trigger == nullptr || !found->trigger->kept) {
        text.remove_prefix(found->text.size());
      }
      At(*found);
      return true;
    }
    if (waits) return false;
    Put(text.substr(0, 1));
    text.remove_prefix(1);
    return true;
  }

  // Drops the label of a thought. False: further text decides.
  bool Label(std::string_view& text, bool more) {
    const std::string_view label = thoughts_.label;
    if (more && text.size() < label.size() && label.starts_with(text)) return false;
    label_ = false;
    if (text.starts_with(label)) {
      text.remove_prefix(label.size());
    } else if (label.substr(0, label.size() - 1) == text) {
      text = {};
    }
    return true;
  }

  void BeginThought() {
    mode_ = Mode::kThought;
    thought_seen_ = thought_empty_ = true;
    label_ = !thoughts_.label.empty();
    out_.BeginThought(thoughts_.words);
  }

  // A mark that counts.
  void At(const Found& mark) {
    switch (mark.kind) {
      case Kind::kTrigger:
      case Kind::kOpener:
        return Lead(mark);
      case Kind::kThoughtOpen:
        return BeginThought();
      case Kind::kThoughtClose:
        thought_closed_ = thought_seen_ = true;
        label_ = false;
        out_.EndThought();
        mode_ = Mode::kContent;
        last_ = '\n';
        return;
      case Kind::kTail:
        mode_ = Mode::kTail;
        return;
      case Kind::kCloser:
      case Kind::kDropped:
        out_.MarkSeen();
        last_ = '\n';
        return;
    }
  }

  // A trigger or what comes before one.
  void Lead(const Found& mark) {
    if (mode_ != Mode::kAttempt) {
      from_thought_ = mode_ == Mode::kThought;
      armed_ = false;
      lead_raw_.clear();
      lead_text_.clear();
      if (!from_thought_ && (mark.trigger == nullptr || !mark.trigger->soft)) out_.MarkSeen();
      mode_ = Mode::kAttempt;
    }
    touched_ = touched_ || !from_thought_;
    if (mark.kind == Kind::kTrigger) armed_ = true;
    if (mark.kind == Kind::kTrigger && mark.trigger->kept) {
      MakeBody(mark.text.front());
      return;
    }
    lead_raw_ += mark.text;
    if (mark.kind == Kind::kTrigger && mark.trigger->soft) lead_text_ += mark.text;
  }

  // Between a trigger and its call. False: further text decides.
  bool Attempt(std::string_view& text, bool more) {
    const char c = text.front();
    if (lead_raw_.size() > out_.limits().max_head_bytes) {
      Fail();
      return true;
    }
    if (IsBlank(c)) {
      lead_raw_ += c;
      lead_text_ += c;
      text.remove_prefix(1);
      return true;
    }
    bool waits = false;
    const Found* found = Find(text, more, waits);
    if (waits && found == nullptr) return false;
    if (found != nullptr && (found->kind == Kind::kTrigger || found->kind == Kind::kOpener)) {
      text.remove_prefix(found->text.size());
      Lead(*found);
      return true;
    }
    if (found != nullptr || !armed_) {
      Fail();
      return true;
    }
    MakeBody(c);
    return true;
  }

  void MakeBody(char first) {
    const BodySetting setting{dialect_, types(), out_, options_.tokens};
    const bool json = first == '[' || first == '{';
    switch (dialect_.form) {
      case Form::kJson:
        body_ = MakeJsonCalls(setting);
        break;
      case Form::kEitherJson:
        body_ = json ? MakeJsonCalls(setting) : MakeNamedCall(setting);
        break;
      case Form::kNamedJson:
        body_ = MakeNamedCall(setting);
        break;
      case Form::kTagged:
        body_ = MakeTaggedCall(setting);
        break;
      case Form::kNested:
        body_ = MakeNestedCall(setting);
        break;
      case Form::kPythonic:
        body_ = MakePythonicCalls(setting);
        break;
      case Form::kBraced:
        body_ = MakeBracedCall(setting);
        break;
      case Form::kNone:
      case Form::kChannels:
        return;
    }
    mode_ = Mode::kBody;
  }

  // False: further text decides.
  bool InBody(std::string_view& text, bool more) {
    const Verdict verdict = body_->Take(text, more);
    if (verdict == Verdict::kMore) return false;
    if (verdict == Verdict::kFailed) {
      Fail();
    } else {
      Leave();
    }
    return true;
  }

  void Leave() {
    body_.reset();
    mode_ = Mode::kContent;
    touched_ = true;
    last_ = ' ';
  }

  void EndBody() {
    body_->End();
    if (body_->begun() && body_->seen().empty()) {
      Leave();
    } else {
      Fail();
    }
  }

  // No call came of it: what was held back is text.
  void Fail() {
    const bool begun = body_ != nullptr && body_->begun();  // an earlier call of a list
    const bool thought = from_thought_ && !begun;
    std::string text = begun ? "" : thought ? lead_raw_ : lead_text_;
    if (body_ != nullptr) text += body_->seen();
    body_.reset();
    mode_ = thought ? Mode::kThought : Mode::kContent;
    touched_ = touched_ || begun;
    Put(text);
  }

  const Dialect& dialect_;
  const Thoughts& thoughts_;
  std::vector<Found> marks_;
  std::array<bool, 256> begins_{};
  Mode mode_ = Mode::kContent;
  char last_ = '\n';             // the last character
  bool touched_ = false;         // a call was tried, so that its end marks may come
  bool thought_seen_ = false;    // a thought has begun
  bool thought_closed_ = false;  // a thought has ended by its mark
  bool thought_empty_ = true;
  bool label_ = false;                // the thought's label may come
  bool from_thought_ = false;         // the call under way began in a thought
  bool armed_ = false;                // a trigger was seen
  std::string lead_raw_, lead_text_;  // since the first mark: with marks, and without
  std::unique_ptr<Body> body_;
};

}  // namespace

std::unique_ptr<Reader> MakeMarkedReader(const ParserOptions& options) {
  return std::make_unique<MarkedReader>(options);
}

}  // namespace quire::dialect
