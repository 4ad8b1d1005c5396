#include "router/grpc/oip/oip_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/utf8.h"
#include "router/grpc/messages.h"

namespace quire::oip {
namespace {

using Problem = std::optional<ApiError>;
using ParameterMap = google::protobuf::Map<std::string, inference::InferParameter>;

constexpr std::string_view kFinalResponse = "triton_final_response";

json::Value ValueOf(const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return parameter.bool_param();
    case inference::InferParameter::kInt64Param:
      return parameter.int64_param();
    case inference::InferParameter::kStringParam:
      return json::Value(json::BoostView(parameter.string_param()));
    case inference::InferParameter::kDoubleParam:
      return parameter.double_param();
    case inference::InferParameter::kUint64Param:
      // As a signed one where it fits, as readers of small numbers expect.
      if (parameter.uint64_param() > INT64_MAX) return parameter.uint64_param();
      return static_cast<int64_t>(parameter.uint64_param());
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return nullptr;
}

// A map is sorted, so that of several mistakes the same one is named each time.
json::Object ObjectOf(const ParameterMap& parameters) {
  std::vector<std::pair<std::string_view, const inference::InferParameter*>> sorted;
  for (const auto& [name, value] : parameters) sorted.emplace_back(name, &value);
  std::sort(sorted.begin(), sorted.end());
  json::Object object;
  for (const auto& [name, value] : sorted) object[json::BoostView(name)] = ValueOf(*value);
  return object;
}

template <class List>
InputTensor::Integers IntegersOf(const List& list) {
  InputTensor::Integers integers;
  integers.reserve(static_cast<size_t>(list.size()));
  for (const auto value : list) {
    const bool fits =
        std::is_signed_v<decltype(value)> || static_cast<uint64_t>(value) <= INT64_MAX;
    integers.push_back(fits ? static_cast<int64_t>(value) : INT64_MAX);
  }
  return integers;
}

// At most one list of contents may be non-empty.
Problem TakeContents(const inference::InferTensorContents& in, InputTensor& out) {
  int lists = 0;
  const auto take = [&](const auto& list, const char* name, auto convert) {
    if (list.empty()) return;
    ++lists;
    out.contents = name;
    out.values = convert(list);
  };
  const auto integers = [](const auto& list) { return IntegersOf(list); };
  const auto nothing = [](const auto&) { return std::monostate(); };
  take(in.bool_contents(), "bool_contents",
       [](const auto& list) { return InputTensor::Booleans(list.begin(), list.end()); });
  take(in.int_contents(), "int_contents", integers);
  take(in.int64_contents(), "int64_contents", integers);
  take(in.uint_contents(), "uint_contents", integers);
  take(in.uint64_contents(), "uint64_contents", integers);
  take(in.fp32_contents(), "fp32_contents", nothing);
  take(in.fp64_contents(), "fp64_contents", nothing);
  take(in.bytes_contents(), "bytes_contents",
       [](const auto& list) { return InputTensor::Strings(list.begin(), list.end()); });
  if (lists <= 1) return std::nullopt;
  return InvalidField(out.name, "its contents have values of several types");
}

std::string Shown(const std::string& name) {
  return name.empty() ? "inputs" : ValidUtf8(std::string_view(name).substr(0, 64));
}

Problem TakeInput(const inference::ModelInferRequest& in, int index, InputTensor& out) {
  const auto& tensor = in.inputs(index);
  out.name = tensor.name();
  out.datatype = tensor.datatype();
  out.shape.assign(tensor.shape().begin(), tensor.shape().end());
  for (const auto& [name, value] : tensor.parameters()) {
    if (name == "binary_data_size") continue;  // raw contents state it themselves
    return InvalidField(Shown(tensor.name()),
                        "its parameter \"" + Shown(name) +
                            "\" is not served; values travel in the request, not in shared memory");
  }
  if (in.raw_input_contents().empty()) return TakeContents(tensor.contents(), out);
  InputTensor typed;
  if (TakeContents(tensor.contents(), typed) || !typed.contents.empty()) {
    return InvalidField(Shown(tensor.name()),
                        "has typed contents beside raw_input_contents; give one of the two");
  }
  if (index >= in.raw_input_contents_size()) {
    return InvalidField(Shown(tensor.name()), "has no raw contents: raw_input_contents holds " +
                                                  std::to_string(in.raw_input_contents_size()) +
                                                  " for " + std::to_string(in.inputs_size()) +
                                                  " inputs");
  }
  out.raw = in.raw_input_contents(index);
  return std::nullopt;
}

Problem TakeOutputs(const inference::ModelInferRequest& in, InferMessage& out) {
  for (const auto& output : in.outputs()) {
    for (const auto& [name, value] : output.parameters()) {
      const bool harmless =
          name == "binary_data" || (name == "classification" && value.int64_param() == 0);
      if (harmless) continue;
      return InvalidField(Shown(output.name()),
                          "its parameter \"" + Shown(name) + "\" is not served");
    }
    out.outputs.push_back(output.name());
  }
  return std::nullopt;
}

void PutValues(const OutputTensor& tensor, inference::InferTensorContents& out) {
  if (const auto* strings = std::get_if<OutputTensor::Strings>(&tensor.values)) {
    for (const std::string& s : *strings) out.add_bytes_contents(s);
  } else if (const auto* ids = std::get_if<OutputTensor::Ids>(&tensor.values)) {
    out.mutable_int_contents()->Add(ids->begin(), ids->end());
  } else if (const auto* counts = std::get_if<OutputTensor::Counts>(&tensor.values)) {
    out.mutable_uint_contents()->Add(counts->begin(), counts->end());
  } else {
    const auto& floats = std::get<OutputTensor::Floats>(tensor.values);
    out.mutable_fp32_contents()->Add(floats.begin(), floats.end());
  }
}

void PutHead(const InferRequest& request, inference::ModelInferResponse& out) {
  out.set_model_name(request.model);
  out.set_model_version(std::string(kVersion));
  out.set_id(request.id);
}

inference::DataType DataTypeOf(std::string_view datatype) {
  if (datatype == "BYTES") return inference::TYPE_STRING;
  if (datatype == "BOOL") return inference::TYPE_BOOL;
  if (datatype == "INT32") return inference::TYPE_INT32;
  if (datatype == "UINT32") return inference::TYPE_UINT32;
  QUIRE_CHECK(datatype == "FP32");
  return inference::TYPE_FP32;
}

}  // namespace

Problem FromProto(const inference::ModelInferRequest& in, Answering answering,
                  const RequestLimits& limits, InferRequest& out) {
  // Errors carry them too, unless they are too long for that.
  if (in.id().size() <= kMaxIdBytes) out.id = in.id();
  if (in.model_name().size() <= kMaxIdBytes) out.model = in.model_name();
  InferMessage message;
  message.model = in.model_name();
  message.version = in.model_version();
  message.id = in.id();
  // Repeated names are refused, so that more inputs than there are names cannot be right.
  if (static_cast<size_t>(in.inputs_size()) > InputFacts().size()) {
    return InvalidField("inputs", "there are more than the " + std::to_string(InputFacts().size()) +
                                      " that exist: " + NamesOf(InputFacts()));
  }
  if (in.raw_input_contents_size() > in.inputs_size()) {
    return InvalidField("raw_input_contents",
                        "holds " + std::to_string(in.raw_input_contents_size()) + " for " +
                            std::to_string(in.inputs_size()) + " inputs");
  }
  for (int i = 0; i < in.inputs_size(); ++i) {
    if (auto problem = TakeInput(in, i, message.inputs.emplace_back())) return problem;
  }
  if (auto problem = TakeOutputs(in, message)) return problem;
  message.parameters = ObjectOf(in.parameters());
  return ReadInfer(message, answering, limits, out);
}

void ToProto(const InferRequest& request, const std::vector<OutputTensor>& outputs,
             inference::ModelInferResponse& out) {
  PutHead(request, out);
  for (const OutputTensor& tensor : outputs) {
    auto& told = *out.add_outputs();
    told.set_name(std::string(tensor.name));
    told.set_datatype(std::string(tensor.Datatype()));
    told.add_shape(static_cast<int64_t>(tensor.Elements()));
    if (request.raw_outputs) {
      out.add_raw_output_contents(tensor.Raw());
    } else {
      PutValues(tensor, *told.mutable_contents());
    }
  }
}

Problem CheckSize(const google::protobuf::MessageLite& message, size_t limit) {
  if (message.ByteSizeLong() <= limit) return std::nullopt;
  return ApiError{ApiCode::kTooLarge,
                  "the answer is more than one message may hold, " + std::to_string(limit) +
                      " bytes; ask for a stream, or for fewer outputs",
                  "", 0};
}

void MarkFinal(bool final, inference::ModelInferResponse& out) {
  (*out.mutable_parameters())[std::string(kFinalResponse)].set_bool_param(final);
}

void ToProto(const InferRequest& request, const ApiError& error,
             inference::ModelStreamInferResponse& out) {
  const absl::Status status = ToStatus(error);
  out.set_error_message(StatusMessage(status));
  inference::ModelInferResponse& response = *out.mutable_infer_response();
  PutHead(request, response);
  MarkFinal(true, response);
  auto& parameters = *response.mutable_parameters();
  parameters["error_code"].set_int64_param(static_cast<int64_t>(status.code()));
  if (error.retry_after_ms > 0) {
    parameters["retry_after_ms"].set_int64_param(error.retry_after_ms);
  }
}

void DescribeModel(std::string_view name, inference::ModelMetadataResponse& out) {
  out.set_name(std::string(name));
  out.add_versions(std::string(kVersion));
  out.set_platform("quire");
  const auto describe = [](const std::vector<TensorFacts>& facts, auto* list) {
    for (const TensorFacts& fact : facts) {
      auto& tensor = *list->Add();
      tensor.set_name(std::string(fact.name));
      tensor.set_datatype(std::string(fact.datatype));
      tensor.add_shape(fact.elements);
    }
  };
  describe(InputFacts(), out.mutable_inputs());
  describe(OutputFacts(), out.mutable_outputs());
}

void DescribeModel(std::string_view name, inference::ModelConfig& out) {
  out.set_name(std::string(name));
  out.set_platform("quire");
  out.set_backend("quire");
  out.mutable_model_transaction_policy()->set_decoupled(true);
  for (const TensorFacts& fact : InputFacts()) {
    auto& input = *out.add_input();
    input.set_name(std::string(fact.name));
    input.set_data_type(DataTypeOf(fact.datatype));
    input.add_dims(fact.elements);
    input.set_optional(true);  // either text_input or input_ids is required
  }
  for (const TensorFacts& fact : OutputFacts()) {
    auto& output = *out.add_output();
    output.set_name(std::string(fact.name));
    output.set_data_type(DataTypeOf(fact.datatype));
    output.add_dims(fact.elements);
  }
}

}  // namespace quire::oip
