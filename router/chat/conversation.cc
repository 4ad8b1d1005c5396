#include "router/chat/conversation.h"

#include <openssl/evp.h>

#include <utility>

#include "common/json/json.h"

namespace quire {
namespace {

constexpr std::string_view kPacked = "quire1.";
// The messages, what their string has spare, and the list that is made of them.
constexpr size_t kCopies = 3;
constexpr size_t kBytesPerName = 160;     // a node of a map with two strings
constexpr size_t kChargeStep = 64 << 10;  // at once, so that few items charge

}  // namespace

void Conversation::Join(std::string_view text, std::string& to) {
  if (text.empty()) return;
  if (!to.empty()) to += '\n';
  to += text;
}

void Conversation::Instruct(std::string_view text) {
  if (!begun_) return Join(text, system_);
  User(text);
}

void Conversation::User(std::string_view text) {
  Open(Turn::kUser);
  Join(text, text_);
}

void Conversation::Assistant(std::string_view text) {
  Open(Turn::kAssistant);
  Join(text, text_);
}

void Conversation::Think(std::string_view text) {
  if (text.empty()) return;
  Open(Turn::kAssistant);
  Join(text, thought_);
}

void Conversation::Call(std::string_view id, std::string_view name,
                        std::string_view arguments_json) {
  Open(Turn::kAssistant);
  if (!calls_.empty()) calls_ += ',';
  calls_ += "{\"id\":";
  json::AppendQuoted(id, calls_);
  calls_ += ",\"type\":\"function\",\"function\":{\"name\":";
  json::AppendQuoted(name, calls_);
  calls_ += ",\"arguments\":";
  calls_ += arguments_json;
  calls_ += "}}";
  const auto [at, is_new] = names_.try_emplace(std::string(id));
  names_bytes_ += (is_new ? kBytesPerName + id.size() : 0) + name.size();
  at->second = std::string(name);
}

void Conversation::Result(std::string_view call_id, std::string_view text) {
  CloseTurn();
  begun_ = true;
  AppendMessage("tool", text);
  messages_ += ",\"tool_call_id\":";
  json::AppendQuoted(call_id, messages_);
  const auto name = names_.find(call_id);
  if (name != names_.end()) {
    messages_ += ",\"name\":";
    json::AppendQuoted(name->second, messages_);
  }
  messages_ += '}';
}

FieldError Conversation::Check(std::string_view field, const RequestLimits& limits) {
  const size_t bytes =
      system_.size() + messages_.size() + text_.size() + thought_.size() + calls_.size();
  if (bytes > limits.max_prompt_bytes) {
    ApiError error = PastLimit(field, "--max-prompt-bytes", limits.max_prompt_bytes,
                               limits.counters ? &limits.counters->prompt_bytes : nullptr);
    error.code = ApiCode::kTooLarge;
    return error;
  }
  const size_t held = kCopies * bytes + names_bytes_;
  if (held <= charged_) return std::nullopt;
  const size_t more = held - charged_ + kChargeStep;
  charged_ += more;
  return ChargeMore(limits, more);
}

void Conversation::Open(Turn turn) {
  if (turn_ != turn) CloseTurn();
  turn_ = turn;
  begun_ = true;
}

// Leaves the object open.
void Conversation::AppendMessage(std::string_view role, std::string_view content) {
  if (!messages_.empty()) messages_ += ',';
  messages_ += "{\"role\":\"";
  messages_ += role;
  messages_ += "\",\"content\":";
  json::AppendQuoted(content, messages_);
}

// Templates read a thought under the name that its family gave it. Harmony's refuses one beside a
// text before calls.
void Conversation::AppendThought() {
  if (thought_.empty()) return;
  std::string quoted;
  json::AppendQuoted(thought_, quoted);
  messages_ += ",\"reasoning\":" + quoted + ",\"reasoning_content\":" + quoted;
  if (text_.empty() || calls_.empty()) messages_ += ",\"thinking\":" + quoted;
}

void Conversation::CloseTurn() {
  if (turn_ == Turn::kUser) {
    AppendMessage("user", text_);
    messages_ += '}';
  } else if (turn_ == Turn::kAssistant) {
    AppendMessage("assistant", text_);
    AppendThought();
    if (!calls_.empty()) messages_ += ",\"tool_calls\":[" + calls_ + ']';
    messages_ += '}';
  }
  turn_ = Turn::kNone;
  text_.clear();
  thought_.clear();
  calls_.clear();
}

std::string Conversation::TakeJson() {
  CloseTurn();
  std::string out = "[";
  if (!system_.empty()) {
    out += "{\"role\":\"system\",\"content\":";
    json::AppendQuoted(system_, out);
    out += messages_.empty() ? "}" : "},";
  }
  out += messages_;
  out += ']';
  system_.clear();
  messages_.clear();
  return out;
}

std::string PackThought(std::string_view thought) {
  std::string out(kPacked);
  const size_t from = out.size();
  out.resize(from + 4 * ((thought.size() + 2) / 3) + 1);  // and the NUL that OpenSSL writes
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data() + from),
                  reinterpret_cast<const unsigned char*>(thought.data()),
                  static_cast<int>(thought.size()));
  out.pop_back();
  return out;
}

std::string UnpackThought(std::string_view packed) {
  if (!packed.starts_with(kPacked)) return {};
  packed.remove_prefix(kPacked.size());
  if (packed.empty() || packed.size() % 4 != 0) return {};
  std::string out(packed.size() / 4 * 3, '\0');
  const int bytes = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                    reinterpret_cast<const unsigned char*>(packed.data()),
                                    static_cast<int>(packed.size()));
  if (bytes < 0) return {};
  const size_t padding = packed.ends_with("==") ? 2 : packed.ends_with('=') ? 1 : 0;
  out.resize(static_cast<size_t>(bytes) - padding);
  return out;
}

}  // namespace quire
