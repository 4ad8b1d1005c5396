// Fuzzes bodies of /v1/responses, /v1/messages, /api/generate and /api/chat, and the answers to
// them: what is accepted is a chat that a template can take, what is refused says why, and every
// answer is JSON. The first byte picks the API, from 128 on one of Ollama's; the second one picks
// how the model answers.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "common/json/json.h"
#include "router/core/sampling_checks.h"
#include "router/messages/request.h"
#include "router/ollama/request.h"
#include "router/responses/request.h"
#include "router/responses/store.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

// Bodies may continue "resp_r", which the first answer becomes, and refer to its items.
const quire::responses::Keeping& KeepingOf() {
  static quire::Metrics metrics;
  static quire::responses::Store store(1u << 20, std::make_shared<quire::MemoryAccount>(2u << 20),
                                       metrics);
  static const quire::responses::Keeping keeping{&store, "tenant"};
  store.Erase("tenant", "resp_r");
  store.Keep("tenant", "resp_r",
             {R"({"type":"message","id":"item_0","role":"user","content":"a"})",
              R"({"type":"message","id":"msg_r_0","role":"assistant","content":"b"})", "{}", 2});
  return keeping;
}

void CheckList(std::string_view text) {
  const auto read = quire::json::Parse(text);
  Require(read.ok() && read->is_array());
  for (const auto& one : read->get_array()) Require(one.is_object());
}

void CheckRequest(const quire::AgentRequest& request) {
  const quire::GenerateRequest& generate = request.generate;
  Require(request.answer != nullptr);
  Require(generate.sampling.n == 1 && generate.streaming == request.stream);
  Require(!quire::CheckSampling(generate.sampling));
  if (request.only_load) return;
  if (const auto* text = std::get_if<quire::TextPrompt>(&generate.prompt)) {
    return Require(!text->text.empty() && !generate.read_answer);  // raw
  }
  Require(generate.read_answer);
  const auto& chat = std::get<quire::ChatPrompt>(generate.prompt);
  CheckList(chat.messages_json);
  if (!chat.tools_json.empty()) CheckList(chat.tools_json);
  const bool demands = generate.tool_use.choice == quire::ToolChoice::kRequired ||
                       generate.tool_use.choice == quire::ToolChoice::kNamed;
  Require(!demands || !chat.tools_json.empty());
}

void CheckLines(std::string_view lines) {
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    Require(end != std::string_view::npos && quire::json::Parse(lines.substr(0, end)).ok());
    lines.remove_prefix(end + 1);
  }
}

// The bits of `kinds`, two at a time, are thoughts, text and pieces of calls.
void Answer(quire::AnswerEvents& answer, uint8_t kinds, std::string_view text, bool stream,
            bool of_lines) {
  std::string events;
  std::string* out = stream ? &events : nullptr;
  answer.Name("r", 1);
  answer.Begin({}, out);
  for (int shift = 0; shift < 8; shift += 2) {
    const int kind = (kinds >> shift) & 3;
    quire::Delta delta;
    if (kind == 0) delta.reasoning = text;
    if (kind == 1) delta.text = text;
    if (kind >= 2) {
      const bool begins = kind == 2;
      delta.tool_calls.push_back({static_cast<uint32_t>(shift / 4), begins ? "c" : "",
                                  begins ? std::string(text.substr(0, 8)) : "", std::string(text)});
    }
    answer.Add(delta, out);
  }
  answer.End({});
  answer.Finish({}, out);
  if (!stream) Require(quire::json::Parse(answer.Whole()).ok());
  if (of_lines) return CheckLines(events);
  // A line of its own: a text may hold the word, too.
  constexpr std::string_view kData = "\ndata: ";
  events.insert(0, "\n");
  for (size_t at = 0; (at = events.find(kData, at)) != std::string::npos; ++at) {
    const size_t begin = at + kData.size(), end = events.find("\n\n", begin);
    Require(end != std::string::npos);
    Require(quire::json::Parse(std::string_view(events).substr(begin, end - begin)).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 2, size - 2);
  quire::RequestLimits limits;
  limits.max_json_depth = 16;
  quire::AgentRequest request;
  std::optional<quire::ApiError> problem;
  constexpr uint8_t kOllama = 128;
  const bool of_ollama = data[0] >= kOllama;
  switch (of_ollama ? data[0] % 2 + 3 : data[0] % 3) {
    case 3:
      problem = quire::ollama::ReadRequest(quire::ollama::Kind::kGenerate, body, limits, request);
      break;
    case 4:
      problem = quire::ollama::ReadRequest(quire::ollama::Kind::kChat, body, limits, request);
      break;
    case 0:
      problem = quire::responses::ReadRequest(body, limits, KeepingOf(), request);
      break;
    case 1:
      problem =
          quire::messages::ReadRequest(body, quire::messages::Purpose::kAnswer, limits, request);
      break;
    default:
      problem =
          quire::messages::ReadRequest(body, quire::messages::Purpose::kCount, limits, request);
  }
  if (problem) {
    Require(!problem->message.empty());
    Require(problem->code == quire::ApiCode::kInvalidArgument ||
            problem->code == quire::ApiCode::kTooLarge);
    return 0;
  }
  CheckRequest(request);
  Answer(*request.answer, data[1], body.substr(0, 64), request.stream, of_ollama);
  return 0;
}
