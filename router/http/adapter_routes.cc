#include "router/http/adapter_routes.h"

#include <string>
#include <string_view>
#include <utility>

#include "common/json/json.h"
#include "common/wire/router_frames.h"
#include "common/wire/worker_frames.h"
#include "router/core/result.h"
#include "router/http/errors.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;
using Kind = AdapterOrder::Kind;

constexpr size_t kMaxAdapterBodyBytes = 16u << 10;

// Waits for the workers.
class AdapterCall final : public Call {
 public:
  explicit AdapterCall(Exchange& exchange) : exchange_(exchange) {}

  // The error, where it cannot begin.
  std::optional<ApiError> Begin(Pipeline& pipeline, AdapterAsk ask) {
    const bool load = ask.order.kind == Kind::kLoad;
    std::string success = "Success: LoRA adapter '" + ask.order.name + "' " +
                          (load ? "added" : "removed") + " successfully.";
    Result<std::unique_ptr<AdapterTask>> task = pipeline.OrderAdapters(
        std::move(ask), [this, success](const std::optional<ApiError>& error) {
          if (error) return exchange_.Reply(ErrorResponse(*error));
          HttpResponse response;
          response.content_type = "text/plain; charset=utf-8";
          response.body = success;
          exchange_.Reply(std::move(response));
        });
    if (!task.ok()) return task.error();
    task_ = std::move(task.value());
    return std::nullopt;
  }

 private:
  Exchange& exchange_;
  std::unique_ptr<AdapterTask> task_;
};

// Absent and null are the same.
std::optional<ApiError> ReadText(const json::Object& body, std::string_view key, size_t most,
                                 std::string& to) {
  const json::Value* value = json::Find(body, key);
  if (value == nullptr) return std::nullopt;
  const absl::StatusOr<std::string_view> text = json::AsString(*value, key);
  if (!text.ok()) return ErrorFromStatus(text.status(), key);
  if (text->size() > most) {
    return InvalidField(key, "has " + std::to_string(text->size()) + " bytes; at most " +
                                 std::to_string(most) + " are served");
  }
  to = std::string(*text);
  return std::nullopt;
}

std::optional<ApiError> ReadAsk(const std::string& text, AdapterAsk& ask) {
  const absl::StatusOr<json::Value> parsed =
      json::Parse(text, {.max_bytes = kMaxAdapterBodyBytes, .max_depth = 4});
  if (!parsed.ok()) return ErrorFromStatus(parsed.status(), "body");
  const json::Object* body = parsed->if_object();
  if (body == nullptr)
    return InvalidField("body", "must be an object like {\"lora_name\": \"sql\"}");
  AdapterOrder& order = ask.order;
  if (auto error = ReadText(*body, "lora_name", kMaxAdapterBytes, order.name)) return error;
  if (auto error = ReadText(*body, "base_model_name", kMaxHelloStringBytes, ask.base_model)) {
    return error;
  }
  if (order.kind == Kind::kUnload) {
    if (order.name.empty()) return InvalidField("lora_name", "must be provided");
    return std::nullopt;
  }
  if (auto error = ReadText(*body, "lora_path", kMaxAdapterPathBytes, order.path)) return error;
  if (order.name.empty() || order.path.empty()) {
    return ApiError{ApiCode::kInvalidArgument, "Both 'lora_name' and 'lora_path' must be provided.",
                    order.name.empty() ? "lora_name" : "lora_path", 0};
  }
  if (const json::Value* value = json::Find(*body, "load_inplace")) {
    const absl::StatusOr<bool> replace = json::AsBool(*value, "load_inplace");
    if (!replace.ok()) return ErrorFromStatus(replace.status(), "load_inplace");
    order.replace = *replace;
  }
  const absl::Status usable = CheckAdapterName(order.name);
  if (!usable.ok()) return InvalidField("lora_name", StatusMessage(usable));
  return std::nullopt;
}

CallPtr Order(HttpServices& services, Kind kind, const HttpRequest& request, Exchange& exchange) {
  AdapterAsk ask;
  ask.order.kind = kind;
  // Only clients on this machine may give orders without a key.
  ask.order.any_path = services.fleet_is_open;
  if (const std::optional<ApiError> error = ReadAsk(request.body, ask)) {
    exchange.Reply(ErrorResponse(*error));
    return nullptr;
  }
  auto call = std::make_unique<AdapterCall>(exchange);
  if (const std::optional<ApiError> error = call->Begin(services.pipeline, std::move(ask))) {
    exchange.Reply(ErrorResponse(*error));
    return nullptr;
  }
  return call;
}

}  // namespace

CallPtr LoadLoraAdapter(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return Order(services, Kind::kLoad, request, exchange);
}

CallPtr UnloadLoraAdapter(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return Order(services, Kind::kUnload, request, exchange);
}

}  // namespace quire
