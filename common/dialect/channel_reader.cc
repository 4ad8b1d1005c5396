// Answers in harmony: messages, each with a header that says role, channel and recipient.
#include <array>

#include "common/ascii.h"
#include "common/dialect/reader.h"
#include "common/dialect/scan.h"
#include "common/dialect/table.h"

namespace quire::dialect {
namespace {

enum MarkOf : size_t { kStart, kChannel, kConstrain, kMessage };  // of kHarmonyMarks

class ChannelReader : public Reader {
 public:
  explicit ChannelReader(const ParserOptions& options) : Reader(options) {
    if (!options.thought_opened) return;
    part_ = Part::kThought;
    out_.BeginThought();
  }

  bool InThought() const override { return part_ == Part::kThought; }

 protected:
  void Take(std::string_view& text, bool more) override {
    while (!text.empty()) {
      size_t at = 0;
      if (!options_.tokens && text.front() == '<') {
        const Match mark = MatchAt(text, kHarmonyMarks, more);
        if (mark.kind == Match::Kind::kMaybe) return;
        if (mark.kind == Match::Kind::kMark) {
          text.remove_prefix(kHarmonyMarks[mark.index].size());
          At(mark.index);
          continue;
        }
        at = 1;
      }
      const size_t end = options_.tokens ? std::string_view::npos : text.find('<', at);
      const std::string_view part = text.substr(0, end);
      Put(part);
      text.remove_prefix(part.size());
    }
  }

  void TakeSpecial(std::string_view token) override {
    for (size_t i = 0; i < std::size(kHarmonyMarks); ++i) {
      if (kHarmonyMarks[i] == token) return At(i);
    }
  }

  void End() override {}

 private:
  enum class Part : uint8_t { kContent, kThought, kCall, kRole, kChannelName, kType };

  void Put(std::string_view text) {
    switch (part_) {
      case Part::kContent:
        return out_.Content(text);
      case Part::kThought:
        return out_.Reasoning(text);
      case Part::kCall:
        return out_.Arguments(text);
      case Part::kRole:
        return Head(text, role_);
      case Part::kChannelName:
        return Head(text, channel_);
      case Part::kType:
        return Head(text, type_);
    }
  }

  // A header that does not end is text.
  void Head(std::string_view text, std::string& into) {
    const size_t limit = out_.limits().max_head_bytes;
    const std::string_view fits = text.substr(0, limit - std::min(limit, into.size()));
    into += fits;
    if (fits.size() == text.size()) return;
    const std::string all = role_ + channel_ + type_;
    Clear();
    part_ = Part::kContent;
    out_.Content(all);
    out_.Content(text.substr(fits.size()));
  }

  void Clear() {
    role_.clear();
    channel_.clear();
    type_.clear();
  }

  void At(size_t mark) {
    if (part_ == Part::kCall) out_.EndCall(true);
    if (part_ == Part::kThought) out_.EndThought();
    const bool in_header =
        part_ == Part::kRole || part_ == Part::kChannelName || part_ == Part::kType;
    out_.MarkSeen();
    if (mark == kStart || (mark == kChannel && !in_header)) Clear();
    switch (mark) {
      case kStart:
        part_ = Part::kRole;
        return;
      case kChannel:
        part_ = Part::kChannelName;
        return;
      case kConstrain:
        part_ = Part::kType;
        return;
      case kMessage:
        Message();
        Clear();
        return;
      default:
        part_ = Part::kContent;
    }
  }

  static std::string_view Word(std::string_view text) {
    text = Trim(text, " \t\r\n");
    return text.substr(0, text.find_first_of(" \t\r\n"));
  }

  std::string_view Recipient() const {
    for (const std::string* head : {&channel_, &role_, &type_}) {
      const size_t at = head->find("to=");
      if (at != std::string::npos) return Word(std::string_view(*head).substr(at + 3));
    }
    return {};
  }

  void Message() {
    constexpr std::string_view kFunctions = "functions.";
    const std::string_view to = Recipient();
    if (options_.calls && to.starts_with(kFunctions) && to.size() > kFunctions.size() &&
        out_.BeginCall(to.substr(kFunctions.size()), {})) {
      part_ = Part::kCall;
      return;
    }
    // A recipient that is no function is one of the model's own tools: its thinking, not its
    // answer.
    const bool tool = !to.empty() && !to.starts_with(kFunctions);
    part_ = Word(channel_) == "analysis" || tool ? Part::kThought : Part::kContent;
    if (part_ == Part::kThought) {
      out_.BeginThought();
    } else {
      out_.NextMessage();
    }
  }

  Part part_ = Part::kContent;
  std::string role_, channel_, type_;
};

}  // namespace

std::unique_ptr<Reader> MakeChannelReader(const ParserOptions& options) {
  return std::make_unique<ChannelReader>(options);
}

}  // namespace quire::dialect
