#include "common/dialect/parser.h"

#include "common/dialect/reader.h"

namespace quire::dialect {

Reader::Reader(const ParserOptions& options)
    : options_(options),
      out_(options.limits),
      types_(options.types ? options.types : std::make_shared<const ToolTypes>()) {}

void Reader::Text(std::string_view text) {
  if (!held_.empty()) {
    held_ += text;
    Decide(true);
    return;
  }
  Take(text, true);
  held_ = text;
}

void Reader::Decide(bool more) {
  std::string_view text = held_;
  Take(text, more);
  held_.erase(0, held_.size() - text.size());
}

void Reader::Special(std::string_view token) {
  if (options_.dialect != nullptr && !token.empty() && token == options_.dialect->part) {
    Text(token);
    return;
  }
  Decide(false);
  TakeSpecial(token);
}

void Reader::Finish() {
  Decide(false);
  End();
  out_.Finish();
}

Parser::Parser(const ParserOptions& options)
    : reader_(options.dialect != nullptr && options.dialect->form == Form::kChannels
                  ? MakeChannelReader(options)
                  : MakeMarkedReader(options)) {}
Parser::~Parser() = default;
Parser::Parser(Parser&&) noexcept = default;

std::span<const Event> Parser::Text(std::string_view text) {
  reader_->out().events().clear();
  reader_->Text(text);
  return reader_->out().events();
}

std::span<const Event> Parser::Special(std::string_view token) {
  reader_->out().events().clear();
  reader_->Special(token);
  return reader_->out().events();
}

std::span<const Event> Parser::Finish() {
  reader_->out().events().clear();
  reader_->Finish();
  return reader_->out().events();
}

std::string_view Parser::limit() const { return reader_->out().limit(); }
bool Parser::in_thought() const { return reader_->InThought(); }
bool Parser::in_call() const { return reader_->out().in_call(); }

void Answer::Add(std::span<const Event> events) {
  for (const Event& event : events) {
    switch (event.kind) {
      case Event::Kind::kContent:
        content += event.text;
        break;
      case Event::Kind::kReasoning:
        reasoning += event.text;
        break;
      case Event::Kind::kCallBegin:
        calls.push_back({event.text, {}, event.id});
        break;
      case Event::Kind::kArguments:
        calls[static_cast<size_t>(event.call)].arguments += event.text;
        break;
      case Event::Kind::kCallEnd:
        break;
    }
  }
}

}  // namespace quire::dialect
