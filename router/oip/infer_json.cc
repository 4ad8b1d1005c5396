#include "router/oip/infer_json.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <utility>

#include "common/utf8.h"
#include "router/chat/json_fields.h"

namespace quire::oip {
namespace {

using json::Value;
using Problem = std::optional<ApiError>;

std::string Quoted(std::string_view name) { return "\"" + ValidUtf8(name.substr(0, 64)) + "\""; }

Problem ReadText(const Value* value, std::string_view name, std::string_view& out) {
  if (value == nullptr) return std::nullopt;
  const auto text = json::AsString(*value, name);
  if (!text.ok()) return ErrorFromStatus(text.status(), name);
  out = *text;
  return std::nullopt;
}

// --- /infer

// Elements in row-major order, of one kind; nesting is bounded by the parser.
class Flattener {
 public:
  explicit Flattener(InputTensor& out) : out_(out) {}

  Problem Add(const Value& value) {
    if (value.is_array()) {
      for (const Value& element : value.get_array()) {
        if (auto problem = Add(element)) return problem;
      }
      return std::nullopt;
    }
    if (value.is_string()) return Put<InputTensor::Strings>(json::View(value.get_string()));
    if (value.is_bool()) return Put<InputTensor::Booleans>(value.get_bool() ? 1 : 0);
    const auto integer = json::AsInt(value, "data");
    if (integer.ok()) return Put<InputTensor::Integers>(*integer);
    return Bad("its data must be strings, true or false, or integers");
  }

 private:
  template <class List, class Element>
  Problem Put(Element element) {
    if (std::holds_alternative<std::monostate>(out_.values)) out_.values = List();
    List* const list = std::get_if<List>(&out_.values);
    if (list == nullptr) return Bad("its data are of several types");
    list->push_back(static_cast<typename List::value_type>(element));
    return std::nullopt;
  }
  Problem Bad(std::string_view message) const { return InvalidField(out_.name, message); }

  InputTensor& out_;
};

Problem ReadShape(const Value* value, InputTensor& out) {
  if (value == nullptr || !value->is_array()) {
    return InvalidField(out.name, "its shape must be a list of integers");
  }
  for (const Value& element : value->get_array()) {
    const auto size = json::AsInt(element, "shape");
    if (!size.ok() || out.shape.size() >= 8) {
      return InvalidField(out.name, "its shape must be a list of at most 8 integers");
    }
    out.shape.push_back(*size);
  }
  return std::nullopt;
}

// A tensor whose values follow the JSON takes them off `rest`.
Problem ReadRaw(const Value* parameters, std::string_view& rest, InputTensor& out) {
  if (parameters == nullptr) return std::nullopt;
  if (!parameters->is_object()) return InvalidField(out.name, "its parameters must be an object");
  for (const auto& member : parameters->get_object()) {
    const std::string_view name(member.key().data(), member.key().size());
    if (name != "binary_data_size") {
      return InvalidField(out.name, "its parameter " + Quoted(name) +
                                        " is not served; values travel in the request, not in "
                                        "shared memory");
    }
    const auto size = json::AsInt(member.value(), name);
    if (!size.ok() || *size < 0) {
      return InvalidField(out.name, "its binary_data_size must be a number of bytes");
    }
    if (static_cast<uint64_t>(*size) > rest.size()) {
      return InvalidField(out.name, "its binary_data_size is " + std::to_string(*size) +
                                        "; behind the JSON, which Inference-Header-Content-Length "
                                        "ends, are " +
                                        std::to_string(rest.size()) + " bytes left");
    }
    out.raw = rest.substr(0, static_cast<size_t>(*size));
    rest.remove_prefix(static_cast<size_t>(*size));
  }
  return std::nullopt;
}

Problem ReadTensor(const Value& value, std::string_view& rest, InputTensor& out) {
  if (!value.is_object()) return InvalidField("inputs", "each must be an object");
  const json::Object& object = value.get_object();
  if (auto problem = ReadText(json::Find(object, "name"), "inputs.name", out.name)) return problem;
  if (out.name.empty()) return InvalidField("inputs", "each needs a name");
  if (auto problem = ReadText(json::Find(object, "datatype"), "inputs.datatype", out.datatype)) {
    return problem;
  }
  if (auto problem = ReadShape(json::Find(object, "shape"), out)) return problem;
  if (auto problem = ReadRaw(json::Find(object, "parameters"), rest, out)) return problem;
  const Value* data = json::Find(object, "data");
  if (out.raw && data != nullptr) {
    return InvalidField(out.name, "has data beside its binary_data_size; give one of the two");
  }
  if (out.raw) return std::nullopt;
  if (data == nullptr) return InvalidField(out.name, "has no data");
  return Flattener(out).Add(*data);
}

// Each in turn takes its own part of `rest`, the bytes after the JSON; none may be left.
Problem ReadTensors(const json::Object& root, std::string_view rest, InferMessage& out) {
  const Value* inputs = json::Find(root, "inputs");
  if (inputs == nullptr || !inputs->is_array()) {
    return InvalidField("inputs", "must be a list of tensors");
  }
  if (inputs->get_array().size() > InputFacts().size()) {
    return InvalidField("inputs", "there are more than exist: " + NamesOf(InputFacts()));
  }
  for (const Value& input : inputs->get_array()) {
    if (auto problem = ReadTensor(input, rest, out.inputs.emplace_back())) return problem;
  }
  if (rest.empty()) return std::nullopt;
  return InvalidField("inputs", "behind the JSON are " + std::to_string(rest.size()) +
                                    " bytes that no tensor's binary_data_size claims");
}

// Whether an output comes as bytes; other parameters of an output are not served.
Problem ReadOutputParameters(const Value* parameters, std::string_view name, InferRequest& out) {
  if (parameters == nullptr) return std::nullopt;
  if (!parameters->is_object()) return InvalidField("outputs", "parameters must be an object");
  for (const auto& member : parameters->get_object()) {
    const std::string_view key(member.key().data(), member.key().size());
    const Value& value = member.value();
    if (key == "classification" && value.is_int64() && value.get_int64() == 0) continue;
    if (key != "binary_data") {
      return InvalidField("outputs",
                          Quoted(name) + ": its parameter " + Quoted(key) + " is not served");
    }
    if (auto problem = ReadBool(value, key, out.raw_by_name[std::string(name)])) return problem;
  }
  return std::nullopt;
}

Problem ReadOutputNames(const json::Object& root, InferMessage& message, InferRequest& out) {
  const Value* outputs = json::Find(root, "outputs");
  if (outputs == nullptr) return std::nullopt;
  if (!outputs->is_array()) return InvalidField("outputs", "must be a list of objects");
  if (outputs->get_array().size() > OutputFacts().size()) {
    return InvalidField("outputs", "there are more than exist: " + NamesOf(OutputFacts()));
  }
  for (const Value& output : outputs->get_array()) {
    std::string_view name;
    if (!output.is_object()) return InvalidField("outputs", "must be a list of objects");
    const json::Object& object = output.get_object();
    if (auto problem = ReadText(json::Find(object, "name"), "outputs.name", name)) return problem;
    const Value* parameters = json::Find(object, "parameters");
    if (auto problem = ReadOutputParameters(parameters, name, out)) return problem;
    message.outputs.push_back(name);
  }
  return std::nullopt;
}

Problem SplitBody(const InferBody& body, std::string_view& text, std::string_view& rest) {
  constexpr std::string_view kHeader = "Inference-Header-Content-Length";
  text = body.bytes;
  if (body.json_length.empty()) return std::nullopt;
  uint64_t length = 0;
  const char* const end = body.json_length.data() + body.json_length.size();
  const auto [read, code] = std::from_chars(body.json_length.data(), end, length);
  if (code != std::errc() || read != end || length > text.size()) {
    return InvalidField(kHeader, "must be how many of the body's " + std::to_string(text.size()) +
                                     " bytes are JSON, is " + Quoted(body.json_length));
  }
  rest = text.substr(length);
  text = text.substr(0, length);
  return std::nullopt;
}

// KServe's client repeats the path's content in the body.
Problem CheckMembers(const json::Object& object, const ModelPath& path) {
  constexpr std::string_view kKnown[] = {"id",      "parameters", "inputs",
                                         "outputs", "model_name", "model_version"};
  for (const auto& member : object) {
    const std::string_view name(member.key().data(), member.key().size());
    if (std::find(std::begin(kKnown), std::end(kKnown), name) != std::end(kKnown)) continue;
    return InvalidField("body", Quoted(name) +
                                    " is not a member; there are id, parameters, "
                                    "inputs, outputs");
  }
  std::string_view model = path.model;
  if (auto problem = ReadText(json::Find(object, "model_name"), "model_name", model)) {
    return problem;
  }
  if (model == path.model) return std::nullopt;
  return InvalidField("model_name",
                      "is " + Quoted(model) + "; the path says " + Quoted(path.model));
}

// --- /generate

// A member of a /generate body as the tensor that it represents.
Problem AsTensor(const TensorFacts& facts, const Value& value, InputTensor& out) {
  out.name = facts.name;
  out.datatype = facts.datatype;
  if (auto problem = Flattener(out).Add(value)) return problem;
  const size_t count = std::visit(
      [](const auto& list) -> size_t {
        if constexpr (requires { list.size(); }) return list.size();
        return 0;
      },
      out.values);
  out.shape = {static_cast<int64_t>(count)};
  return std::nullopt;
}

struct GenerateDraft {
  InferMessage message;
  std::deque<std::string> texts;  // that tensors refer to
  bool details = false;
};

Problem TakeMember(std::string_view name, const Value& value, GenerateDraft& draft) {
  if (name == "id") return ReadText(&value, "id", draft.message.id);
  if (name == "details") return ReadBool(value, "details", draft.details);
  for (const TensorFacts& facts : InputFacts()) {
    if (facts.name != name) continue;
    const bool written_out = facts.name == "sampling_parameters" && value.is_object();
    if (!written_out) return AsTensor(facts, value, draft.message.inputs.emplace_back());
    draft.texts.push_back(json::Serialize(value));
    const Value text(json::BoostView(draft.texts.back()));
    InputTensor& tensor = draft.message.inputs.emplace_back();
    if (auto problem = AsTensor(facts, text, tensor)) return problem;
    tensor.values = InputTensor::Strings{draft.texts.back()};
    return std::nullopt;
  }
  draft.message.parameters[json::BoostView(name)] = value;
  return std::nullopt;
}

Problem TakeMembers(const json::Object& object, bool nested, GenerateDraft& draft) {
  for (const auto& member : object) {
    const std::string_view name(member.key().data(), member.key().size());
    const Value& value = member.value();
    if (value.is_null()) continue;
    if (name == "parameters" && !nested) {
      if (!value.is_object()) return InvalidField(name, "must be an object");
      if (auto problem = TakeMembers(value.get_object(), true, draft)) return problem;
      continue;
    }
    if (auto problem = TakeMember(name, value, draft)) return problem;
  }
  return std::nullopt;
}

// --- writing

void AppendMember(std::string_view name, std::string_view value, std::string& out) {
  out += out.back() == '{' ? "\"" : ",\"";
  out += name;
  out += "\":";
  json::AppendQuoted(value, out);
}

void AppendHead(const InferRequest& request, std::string& out) {
  out += '{';
  if (!request.id.empty()) AppendMember("id", request.id, out);
  AppendMember("model_name", request.model, out);
  AppendMember("model_version", kVersion, out);
}

void AppendElement(const std::string& value, std::string& out) { json::AppendQuoted(value, out); }
void AppendElement(float value, std::string& out) {
  out += json::Serialize(static_cast<double>(value));
}
void AppendElement(TokenId value, std::string& out) { out += std::to_string(value); }
void AppendElement(uint32_t value, std::string& out) { out += std::to_string(value); }

void AppendElements(const OutputTensor& tensor, std::string& out) {
  std::visit(
      [&](const auto& list) {
        bool first = true;
        for (const auto& value : list) {
          if (!std::exchange(first, false)) out += ',';
          AppendElement(value, out);
        }
      },
      tensor.values);
}

void AppendTensors(std::string_view name, const std::vector<TensorFacts>& facts, std::string& out) {
  out += ",\"" + std::string(name) + "\":[";
  bool first = true;
  for (const TensorFacts& fact : facts) {
    out += std::exchange(first, false) ? "{" : ",{";
    AppendMember("name", fact.name, out);
    AppendMember("datatype", fact.datatype, out);
    out += ",\"shape\":[" + std::to_string(fact.elements) + "]}";
  }
  out += ']';
}

}  // namespace

Problem ReadInferJson(const InferBody& body, const ModelPath& path, const RequestLimits& limits,
                      InferRequest& out) {
  out.model = path.model;
  out.raw_outputs = false;  // unless requested
  std::string_view text, rest;
  if (auto problem = SplitBody(body, text, rest)) return problem;
  Value root;
  if (auto problem = ReadBody(text, limits, root)) return problem;
  const json::Object& object = root.get_object();
  if (auto problem = CheckMembers(object, path)) return problem;
  InferMessage message;
  message.model = path.model;
  message.version = path.version;
  if (auto problem = ReadText(json::Find(object, "id"), "id", message.id)) return problem;
  if (const Value* parameters = json::Find(object, "parameters")) {
    if (!parameters->is_object()) return InvalidField("parameters", "must be an object");
    message.parameters = parameters->get_object();
  }
  if (auto problem = ReadTensors(object, rest, message)) return problem;
  if (auto problem = ReadOutputNames(object, message, out)) return problem;
  return ReadInfer(message, Answering::kOnce, limits, out);
}

Problem ReadGenerateJson(std::string_view body, const ModelPath& path, Answering answering,
                         const RequestLimits& limits, GenerateBody& out) {
  out.request.model = path.model;
  Value root;
  if (auto problem = ReadBody(body, limits, root)) return problem;
  GenerateDraft draft;
  if (auto problem = TakeMembers(root.get_object(), false, draft)) return problem;
  draft.message.model = path.model;
  draft.message.version = path.version;
  out.details = draft.details;
  return ReadInfer(draft.message, answering, limits, out.request);
}

InferText InferJson(const InferRequest& request, const std::vector<OutputTensor>& outputs) {
  std::string out, raw;
  AppendHead(request, out);
  out += ",\"outputs\":[";
  bool first = true;
  for (const OutputTensor& tensor : outputs) {
    out += std::exchange(first, false) ? "{" : ",{";
    AppendMember("name", tensor.name, out);
    AppendMember("datatype", tensor.Datatype(), out);
    out += ",\"shape\":[" + std::to_string(tensor.Elements()) + "],";
    const auto asked = request.raw_by_name.find(tensor.name);
    if (asked == request.raw_by_name.end() ? request.raw_outputs : asked->second) {
      const std::string bytes = tensor.Raw();
      out += "\"parameters\":{\"binary_data_size\":" + std::to_string(bytes.size()) + "}}";
      raw += bytes;
      continue;
    }
    out += "\"data\":[";
    AppendElements(tensor, out);
    out += "]}";
  }
  out += "]}";
  const size_t json_bytes = out.size();
  return {std::move(out) + raw, json_bytes};
}

std::string GenerateJson(const GenerateBody& body, const std::vector<OutputTensor>& outputs,
                         const InferAnswer& answer) {
  std::string out;
  AppendHead(body.request, out);
  for (const OutputTensor& tensor : outputs) {
    out += ",\"" + std::string(tensor.name) + "\":";
    const bool list = tensor.name == "output_ids";
    if (list) out += '[';
    AppendElements(tensor, out);
    if (list) out += ']';
  }
  if (body.details && answer.ended()) {
    std::string reason = answer.finish_reason();
    if (reason == "stop") reason = answer.by_stop_string() ? "stop_sequence" : "eos_token";
    out += ",\"details\":{";
    AppendMember("finish_reason", reason, out);
    out += '}';
  }
  return out + "}";
}

std::string ModelJson(std::string_view name) {
  std::string out = "{";
  AppendMember("name", name, out);
  out += ",\"versions\":[\"" + std::string(kVersion) + "\"],\"platform\":\"quire\"";
  AppendTensors("inputs", InputFacts(), out);
  AppendTensors("outputs", OutputFacts(), out);
  return out + "}";
}

std::string ErrorText(const ApiError& error) {
  std::string out = "{";
  AppendMember("error", error.message, out);
  return out + "}";
}

}  // namespace quire::oip
