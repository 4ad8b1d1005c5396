// Calls in Python's spelling, [f(a='x'), g()], and in that of Gemma, call:f{k:v}; their JSON is
// made here.
#include <optional>

#include "common/ascii.h"
#include "common/dialect/body.h"
#include "common/dialect/literal.h"
#include "common/dialect/scan.h"

namespace quire::dialect {
namespace {

constexpr bool IsName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

// What both share: arguments that one literal after another makes.
class LiteralCalls : public Body {
 public:
  using Body::Body;

  bool TakeSpecial(std::string_view) override { return false; }
  void End() override {
    if (!out_.in_call()) return;
    if (value_) {
      std::string json;
      value_->End(json);
      out_.Arguments(json);
    }
    out_.EndCall(false);
  }

 protected:
  // Takes of the value; false where it broke, and with it the call.
  bool TakeValue(std::string_view& text, bool more) {
    std::string json;
    value_->Take(text, more, json);
    out_.Arguments(json);
    if (value_->too_deep()) out_.Overflow("max_nesting");
    return !value_->broken();
  }

  void Keep(std::string_view& text) {
    if (!out_.in_call()) seen_ += text.front();
    text.remove_prefix(1);
  }

  std::optional<Literal> value_;
};

class PythonicCalls : public LiteralCalls {
 public:
  using LiteralCalls::LiteralCalls;

  Verdict Take(std::string_view& text, bool more) override {
    while (!text.empty() && state_ != State::kDone) {
      if (state_ == State::kValue) {
        if (!TakeValue(text, more)) {
          End();
          return Verdict::kDone;
        }
        if (value_->done()) state_ = State::kBehindValue;
        if (value_->waits()) return Verdict::kMore;
        continue;
      }
      const bool calls = seen_.size() < out_.limits().max_head_bytes && Step(text.front());
      if (!calls) {
        const bool in_call = out_.in_call();
        End();
        return in_call ? Verdict::kDone : Verdict::kFailed;
      }
      Keep(text);
      if (ended_) seen_.clear();
      ended_ = false;
    }
    return state_ == State::kDone ? Verdict::kDone : Verdict::kMore;
  }

 private:
  enum class State : uint8_t {
    kStart,
    kFunction,
    kFirstKey,
    kKey,
    kEquals,
    kValue,
    kBehindValue,
    kBehindCall,
    kDone,
  };

  // False: this is no call.
  bool Step(char c) {
    switch (state_) {
      case State::kStart:
        state_ = State::kFunction;
        return c == '[';
      case State::kFunction:
        return Function(c);
      case State::kFirstKey:
        if (c == ')') return Begun() && EndArguments();
        if (IsBlank(c)) return true;
        state_ = State::kKey;
        key_.clear();
        return Key(c);
      case State::kKey:
        return Key(c);
      case State::kEquals:
        return IsBlank(c) || Equals(c);
      case State::kBehindValue:
        if (c == ')') return EndArguments();
        if (c == ',') {
          state_ = State::kKey;
          key_.clear();
        }
        return c == ',' || IsBlank(c);
      case State::kBehindCall:
        if (c == ']') state_ = State::kDone;
        if (c == ',') {
          state_ = State::kFunction;
          function_.clear();
        }
        return c == ',' || c == ']' || IsBlank(c);
      default:
        return false;
    }
  }

  bool Function(char c) {
    if (c == '(') {
      state_ = State::kFirstKey;
      any_ = began_here_ = false;
      return !function_.empty() && !(function_[0] >= '0' && function_[0] <= '9');
    }
    if (IsBlank(c)) return function_.empty();
    if (c == ']' && begun_ && function_.empty()) {  // behind a last comma
      state_ = State::kDone;
      return true;
    }
    function_ += c;
    return IsName(c);
  }

  bool Key(char c) {
    if (c == ')' && key_.empty() && any_) return EndArguments();  // behind a last comma
    if (IsBlank(c)) {
      if (!key_.empty()) state_ = State::kEquals;
      return true;
    }
    if (c == '=') return Equals(c);
    key_ += c;
    return IsName(c) && key_.size() <= out_.limits().max_head_bytes;
  }

  bool Equals(char c) {
    if (c != '=' || key_.empty() || !Begun()) return false;
    out_.Arguments((any_ ? ", " : "{") + Quoted(key_) + ": ");
    any_ = true;
    value_.emplace(Literal::Spelling{}, out_.limits());
    state_ = State::kValue;
    return true;
  }

  bool Begun() {
    if (!began_here_) began_here_ = Begin(function_);
    return began_here_;
  }

  bool EndArguments() {
    out_.Arguments(any_ ? "}" : "{}");
    out_.EndCall(true);
    state_ = State::kBehindCall;
    value_.reset();
    return ended_ = true;
  }

  State state_ = State::kStart;
  bool any_ = false;
  bool began_here_ = false;
  bool ended_ = false;
  std::string function_, key_;
};

class BracedCall : public LiteralCalls {
 public:
  using LiteralCalls::LiteralCalls;

  Verdict Take(std::string_view& text, bool more) override {
    while (!text.empty()) {
      if (value_) {
        const bool fits = TakeValue(text, more);
        if (!fits || value_->done()) {
          if (fits) {
            out_.EndCall(true);
          } else {
            End();
          }
          return Verdict::kDone;
        }
        if (value_->waits()) return Verdict::kMore;
        continue;
      }
      if (text.front() == '{') {
        if (!BeginNamed()) return Verdict::kFailed;
        continue;
      }
      if (head_.size() >= out_.limits().max_head_bytes || text.front() == '<') {
        return Verdict::kFailed;
      }
      head_ += text.front();
      Keep(text);
    }
    return Verdict::kMore;
  }

  bool TakeSpecial(std::string_view token) override {
    if (token != dialect_.quote.text || !value_) return false;
    std::string json;
    value_->TakeQuote(json);
    out_.Arguments(json);
    return !value_->broken();
  }

 private:
  bool BeginNamed() {
    constexpr std::string_view kCall = "call:";
    std::string_view name = Trim(head_, " \t\r\n");
    if (!name.starts_with(kCall)) return false;
    name = Trim(name.substr(kCall.size()), " \t\r\n");
    if (name.find_first_of(" \t\r\n") != std::string_view::npos || !Begin(name)) return false;
    function_ = name;
    value_.emplace(Literal::Spelling{dialect_.quote.text, tokens_, &types_, function_},
                   out_.limits());
    return true;
  }

  std::string head_, function_;
};

}  // namespace

std::unique_ptr<Body> MakePythonicCalls(const BodySetting& setting) {
  return std::make_unique<PythonicCalls>(setting);
}

std::unique_ptr<Body> MakeBracedCall(const BodySetting& setting) {
  return std::make_unique<BracedCall>(setting);
}

}  // namespace quire::dialect
