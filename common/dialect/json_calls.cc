// Calls as JSON objects: alone, one behind the other, or in an array.
#include <algorithm>

#include "common/dialect/body.h"
#include "common/dialect/scan.h"

namespace quire::dialect {
namespace {

class JsonCalls : public Body {
 public:
  using Body::Body;

  Verdict Take(std::string_view& text, bool more) override {
    while (!text.empty() && state_ != State::kDone) {
      const size_t room = out_.in_call() ? text.size() : Room();
      if (room == 0) return Verdict::kFailed;
      std::string_view part = text.substr(0, room);
      const size_t size = part.size();
      const Verdict verdict = Part(part);
      text.remove_prefix(size - part.size());
      if (verdict == Verdict::kFailed) return Fail();
    }
    if (state_ == State::kDone) return begun_ ? Verdict::kDone : Verdict::kFailed;
    return more || state_ != State::kBehind ? Verdict::kMore : Fail();
  }

  bool TakeSpecial(std::string_view) override { return false; }

  void End() override {
    if (out_.in_call()) out_.EndCall(false);
  }

 private:
  enum class State : uint8_t {
    kStart,
    kItem,
    kBehind,
    kKeyOrEnd,
    kKey,
    kColon,
    kValue,
    kNext,
    kDone
  };
  enum class Role : uint8_t { kName, kArguments, kId, kOther };

  // Bytes that may be held back still.
  size_t Room() {
    const size_t limit = out_.limits().max_argument_bytes + out_.limits().max_head_bytes;
    if (seen_.size() >= limit) out_.Overflow("max_argument_bytes");
    return limit - std::min(limit, seen_.size());
  }

  Verdict Part(std::string_view& text) {
    if (state_ == State::kValue) return Value(text) ? Verdict::kMore : Verdict::kFailed;
    if (state_ == State::kKey) {
      const size_t taken = string_.Take(text, key_);
      Keep(text, taken);
      if (string_.done()) state_ = State::kColon;
      return Verdict::kMore;
    }
    if (Structure(text.front()) == Verdict::kFailed) return Verdict::kFailed;
    Keep(text, 1);
    if (!ended_here_) return Verdict::kMore;
    ended_here_ = false;
    seen_.clear();
    return Verdict::kMore;
  }

  // With a call under way its structure is markup; else it may turn out to be text.
  void Keep(std::string_view& text, size_t count) {
    if (!out_.in_call()) seen_ += text.substr(0, count);
    text.remove_prefix(count);
  }

  // What follows is text; a call that has begun ends.
  Verdict Fail() {
    const bool in_call = out_.in_call();
    End();
    return in_call ? Verdict::kDone : Verdict::kFailed;
  }

  Verdict Structure(char c) {
    switch (state_) {
      case State::kStart:
        if (IsBlank(c)) return Verdict::kMore;
        array_ = c == '[';
        state_ = State::kItem;
        return array_ ? Verdict::kMore : Structure(c);
      case State::kItem:
        if (array_ && c == ']') {
          state_ = State::kDone;
          return Verdict::kMore;
        }
        if (c == '{') BeginObject();
        return c == '{' || IsBlank(c) ? Verdict::kMore : Verdict::kFailed;
      case State::kBehind:
        return Behind(c);
      case State::kKeyOrEnd:
        if (c == '}') return EndObject();
        if (c == '"') {
          key_.clear();
          string_ = {};
          state_ = State::kKey;
        }
        return c == '"' || IsBlank(c) ? Verdict::kMore : Verdict::kFailed;
      case State::kColon:
        if (c == ':') BeginValue();
        return c == ':' || IsBlank(c) ? Verdict::kMore : Verdict::kFailed;
      case State::kNext:
        if (c == '}') return EndObject();
        if (c == ',') state_ = State::kKeyOrEnd;
        return c == ',' || IsBlank(c) ? Verdict::kMore : Verdict::kFailed;
      default:
        return Verdict::kFailed;
    }
  }

  // Behind an object: the array's end, or one more object.
  Verdict Behind(char c) {
    if (c == '{') {
      BeginObject();
      return Verdict::kMore;
    }
    if (array_ && c == ']') {
      state_ = State::kDone;
      return Verdict::kMore;
    }
    if (IsBlank(c)) return Verdict::kMore;
    if ((c == ',' || c == ';') && !separated_) {
      separated_ = true;
      return Verdict::kMore;
    }
    return Verdict::kFailed;
  }

  void BeginObject() {
    state_ = State::kKeyOrEnd;
    name_.clear();
    id_.clear();
    held_.clear();
    has_name_ = has_arguments_ = began_here_ = false;
  }

  void BeginValue() {
    const JsonKeys& keys = dialect_.json;
    state_ = State::kValue;
    value_begun_ = false;
    role_ = Role::kOther;
    if (key_ == keys.name) role_ = Role::kName;
    if ((key_ == keys.arguments[0] || key_ == keys.arguments[1]) && !has_arguments_) {
      role_ = Role::kArguments;
    }
    if (!keys.id.empty() && key_ == keys.id) role_ = Role::kId;
    if (began_here_ && role_ != Role::kArguments) role_ = Role::kOther;
  }

  // False: this is no call.
  bool Value(std::string_view& text) {
    if (!value_begun_) {
      if (IsBlank(text.front())) {
        Keep(text, 1);
        return true;
      }
      value_begun_ = true;
      as_string_ = text.front() == '"' && role_ != Role::kOther;
      string_ = {};
      scan_ = JsonScan(out_.limits().max_nesting);
      if (role_ == Role::kName && !as_string_) return false;
      if (role_ == Role::kArguments) {
        has_arguments_ = true;
        if (!MayBegin()) return false;
      }
      if (as_string_) {
        Keep(text, 1);
        return true;
      }
    }
    return as_string_ ? StringValue(text) : RawValue(text);
  }

  bool StringValue(std::string_view& text) {
    std::string decoded;
    const size_t taken = string_.Take(text, decoded);
    Keep(text, taken);
    if (role_ == Role::kArguments) Argument(decoded);
    if (role_ == Role::kName) name_ += decoded;
    if (role_ == Role::kId) id_ += decoded;
    return !string_.done() || EndValue();
  }

  bool RawValue(std::string_view& text) {
    const size_t taken = scan_.Take(text);
    const std::string_view raw = text.substr(0, taken);
    if (role_ == Role::kArguments) Argument(raw);
    Keep(text, taken);
    if (scan_.too_deep()) {
      out_.Overflow("max_nesting");
      if (!out_.in_call()) return false;
    }
    return !scan_.done() || EndValue();
  }

  bool EndValue() {
    state_ = State::kNext;
    if (role_ == Role::kName) {
      has_name_ = true;
      const size_t limit = out_.limits().max_head_bytes;
      return name_.size() <= limit && id_.size() <= limit && MayBegin();
    }
    return true;
  }

  // The call begins as soon as it is sure to be one. False: it is one too many.
  bool MayBegin() {
    if (began_here_ || !has_name_) return true;
    if (dialect_.json.needs_arguments && !has_arguments_) return true;
    if (!Begin(name_, id_)) return false;
    began_here_ = true;
    out_.Arguments(held_);
    held_.clear();
    return true;
  }

  void Argument(std::string_view text) {
    if (began_here_) {
      out_.Arguments(text);
    } else {
      held_ += text;
    }
  }

  Verdict EndObject() {
    if (!began_here_) return Verdict::kFailed;
    out_.EndCall(true);
    state_ = State::kBehind;
    separated_ = false;
    ended_here_ = true;
    return Verdict::kMore;
  }

  State state_ = State::kStart;
  Role role_ = Role::kOther;
  bool array_ = false;
  bool separated_ = false;
  bool value_begun_ = false;
  bool as_string_ = false;
  bool has_name_ = false;
  bool has_arguments_ = false;
  bool began_here_ = false;  // the call of this object
  bool ended_here_ = false;
  JsonText string_;
  JsonScan scan_;
  std::string key_, name_, id_, held_;
};

}  // namespace

std::unique_ptr<Body> MakeJsonCalls(const BodySetting& setting) {
  return std::make_unique<JsonCalls>(setting);
}

}  // namespace quire::dialect
