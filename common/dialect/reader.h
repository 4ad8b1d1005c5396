// What is common to the readers of answers: text that is not decided yet, and the events.
//
// A parser owns one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/dialect/emitter.h"
#include "common/dialect/parser.h"

namespace quire::dialect {

class Reader {
 public:
  explicit Reader(const ParserOptions& options);
  virtual ~Reader() = default;

  void Text(std::string_view text);
  void Special(std::string_view token);
  void Finish();
  Emitter& out() { return out_; }
  virtual bool InThought() const = 0;

 protected:
  // Takes a prefix of `text`: all that is decided. Without `more`, all.
  virtual void Take(std::string_view& text, bool more) = 0;
  virtual void TakeSpecial(std::string_view token) = 0;
  virtual void End() = 0;

  const ParserOptions options_;
  const ToolTypes& types() const { return *types_; }
  Emitter out_;

 private:
  void Decide(bool more);

  std::shared_ptr<const ToolTypes> types_;
  std::string held_;
};

std::unique_ptr<Reader> MakeMarkedReader(const ParserOptions& options);
std::unique_ptr<Reader> MakeChannelReader(const ParserOptions& options);

}  // namespace quire::dialect
