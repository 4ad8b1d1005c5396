// What readers of calls between tags share: the call's name, and values that are kept or streamed.
#pragma once

#include <string>
#include <string_view>

#include "common/dialect/body.h"

namespace quire::dialect {

class TagBody : public Body {
 public:
  Verdict Take(std::string_view& text, bool more) override;

 protected:
  using Body::Body;

  // Takes a part of the text. Sets waits_ where further text decides.
  virtual Verdict Part(std::string_view& text, bool more) = 0;
  virtual bool done() const = 0;

  std::string_view name() const;
  // False: what was read is no name, or the call is one too many.
  bool BeginNamed();
  // A value begins; `streams`: it is a string, and goes out as it comes.
  void BeginValueOf(std::string_view key, bool streams);
  void Put(std::string_view text);

  bool waits_ = false;
  bool any_ = false;      // a key has been read
  bool streams_ = false;  // the value is a string and goes out as it comes
  std::string name_, value_;
};

}  // namespace quire::dialect
