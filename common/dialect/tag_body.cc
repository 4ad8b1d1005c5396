#include "common/dialect/tag_body.h"

#include "common/ascii.h"
#include "common/dialect/scan.h"

namespace quire::dialect {

Verdict TagBody::Take(std::string_view& text, bool more) {
  while (!text.empty() && !done()) {
    waits_ = false;
    const Verdict verdict = Part(text, more);
    if (verdict == Verdict::kFailed) return verdict;
    if (waits_) return Verdict::kMore;
  }
  return done() ? Verdict::kDone : Verdict::kMore;
}

std::string_view TagBody::name() const { return Trim(name_, " \t\r\n\""); }

bool TagBody::BeginNamed() {
  if (name().find_first_of(" \t\r\n<>{}") != std::string_view::npos) return false;
  return Begin(name());
}

void TagBody::BeginValueOf(std::string_view key, bool streams) {
  out_.Arguments((any_ ? ", " : "{") + Quoted(key) + ": ");
  any_ = true;
  streams_ = streams;
  if (streams) out_.Arguments("\"");
  value_.clear();
}

void TagBody::Put(std::string_view text) {
  if (!streams_ && value_.size() + text.size() > out_.limits().max_argument_bytes) {
    streams_ = true;  // too long to be looked at: a string
    std::string begun = Quoted(value_);
    begun.pop_back();
    out_.Arguments(begun);
    value_.clear();
  }
  if (!streams_) {
    value_ += text;
    return;
  }
  std::string escaped;
  AppendEscaped(text, escaped);
  out_.Arguments(escaped);
}

}  // namespace quire::dialect
