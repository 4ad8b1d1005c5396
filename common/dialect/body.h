// The inside of a call while it is read: one reader for each form.
//
// Made when a trigger has been seen, ended when the call's (or the list's) last byte is read.
// Invariants:
//  1. What a reader decides depends on the bytes that it has been given, not on how they were cut.
//  2. Until a call has begun, all text that was read is kept in seen(): it is released as text
//  where
//     no call comes of it.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/dialect/dialect.h"
#include "common/dialect/emitter.h"
#include "common/dialect/tool_types.h"

namespace quire::dialect {

enum class Verdict : uint8_t {
  kMore,    // further text decides
  kDone,    // the call is read; what was not taken follows it
  kFailed,  // no call: seen() and what was not taken are text
};

struct BodySetting {
  const Dialect& dialect;
  const ToolTypes& types;
  Emitter& out;
  bool tokens = false;  // special marks come as special tokens alone
};

class Body {
 public:
  explicit Body(const BodySetting& setting)
      : dialect_(setting.dialect),
        types_(setting.types),
        out_(setting.out),
        tokens_(setting.tokens) {}
  virtual ~Body() = default;
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;

  // Takes a prefix of `text`. `more`: text may follow directly; else nothing or a special token
  // does, and all of it is to be taken with kMore.
  virtual Verdict Take(std::string_view& text, bool more) = 0;
  // A special token. False: it is none of the call's, which ends before it.
  virtual bool TakeSpecial(std::string_view token) = 0;
  // Nothing follows. Ends a call under way.
  virtual void End() = 0;

  const std::string& seen() const { return seen_; }
  // True once a call has begun, whatever came of it.
  bool begun() const { return begun_; }

 protected:
  // False where the call is one too many, or has no name.
  bool Begin(std::string_view name, std::string_view id = {}) {
    if (name.empty() || !out_.BeginCall(name, id)) return false;
    begun_ = true;
    seen_.clear();
    return true;
  }

  // What to look for in text; empty where the mark is none there.
  std::string_view InText(const Mark& mark) const {
    return tokens_ && mark.special ? std::string_view() : mark.text;
  }

  const Dialect& dialect_;
  const ToolTypes& types_;
  Emitter& out_;
  const bool tokens_;
  std::string seen_;
  bool begun_ = false;
};

std::unique_ptr<Body> MakeJsonCalls(const BodySetting& setting);
std::unique_ptr<Body> MakeNamedCall(const BodySetting& setting);
std::unique_ptr<Body> MakeTaggedCall(const BodySetting& setting);
std::unique_ptr<Body> MakeNestedCall(const BodySetting& setting);
std::unique_ptr<Body> MakePythonicCalls(const BodySetting& setting);
std::unique_ptr<Body> MakeBracedCall(const BodySetting& setting);

}  // namespace quire::dialect
