#include "router/http/agent_routes.h"

#include <string>
#include <utility>

#include "router/http/agent_call.h"
#include "router/http/errors.h"
#include "router/messages/request.h"
#include "router/responses/request.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;

ApiError AsItIs(ApiError error) { return error; }

std::optional<ApiError> ReadMessage(std::string_view body, const RequestLimits& limits,
                                    AgentRequest& out) {
  return messages::ReadRequest(body, messages::Purpose::kAnswer, limits, out);
}
std::optional<ApiError> ReadMessageToCount(std::string_view body, const RequestLimits& limits,
                                           AgentRequest& out) {
  return messages::ReadRequest(body, messages::Purpose::kCount, limits, out);
}

constexpr AgentApi kResponses{responses::ReadRequest, responses::InClientsWords};
constexpr CountApi kResponseInput{responses::ReadRequest, responses::InClientsWords,
                                  "response.input_tokens"};
constexpr AgentApi kMessages{
    ReadMessage, AsItIs, {.keep_alive = "event: ping\ndata: {\"type\":\"ping\"}\n\n"}};
constexpr CountApi kMessageTokens{ReadMessageToCount, AsItIs, {}};

}  // namespace

CallPtr CreateResponse(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return AgentCall::Begin(services, kResponses, std::move(request), exchange);
}

CallPtr CountResponseInput(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return BeginCount(services, kResponseInput, std::move(request), exchange);
}

CallPtr NoResponse(HttpServices&, HttpRequest request, Exchange& exchange) {
  std::string id = request.path.substr(std::string_view("/v1/responses/").size());
  id = id.substr(0, std::min<size_t>(id.find('/'), 128));
  exchange.Reply(ErrorResponse({ApiCode::kNotFound,
                                "Response with id '" + id +
                                    "' not found: no responses are kept here, and each request "
                                    "brings its whole conversation",
                                "", 0}));
  return nullptr;
}

CallPtr CreateMessage(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return AgentCall::Begin(services, kMessages, std::move(request), exchange);
}

CallPtr CountMessageTokens(HttpServices& services, HttpRequest request, Exchange& exchange) {
  return BeginCount(services, kMessageTokens, std::move(request), exchange);
}

}  // namespace quire
