// What is served over gRPC: the methods by their paths, and their services.
//
// Owner: the server; event loop only, and nothing changes once it has started.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/grpc/call.h"

namespace quire {

struct GrpcMethod {
  bool many_messages = false;  // of the client; else exactly one
  std::function<std::shared_ptr<GrpcCallHandler>(std::shared_ptr<GrpcCall>)> begin;
  bool keeps_metadata = true;  // false: the handler gets none, since they would be held for nothing
  size_t max_message_bytes = 0;     // below what the host's limits allow; 0: the same as these
  Micros message_timeout = 0;       // the same
  uint32_t max_per_connection = 0;  // its calls at once; 0: as many as streams
};

class GrpcMethods {
 public:
  // `service` is a full name.
  void Add(const std::string& service, std::string_view method, GrpcMethod what);
  // nullptr: there is none.
  const GrpcMethod* Find(std::string_view path) const {
    const auto found = methods_.find(path);
    return found == methods_.end() ? nullptr : &found->second;
  }
  // Full names, sorted.
  const std::set<std::string>& services() const { return services_; }

 private:
  std::map<std::string, GrpcMethod, std::less<>> methods_;  // by path
  std::set<std::string> services_;
};

// A method whose handler needs only its one message. `read` makes a step from it, on any thread:
// Step(std::shared_ptr<GrpcCall>, const Request&).
template <class Request, class Reader>
class OneMessageHandler final : public GrpcCallHandler {
 public:
  OneMessageHandler(std::shared_ptr<GrpcCall> call, const Reader& read)
      : call_(std::move(call)), read_(read) {}
  Step Read(std::string_view message) override {
    Request request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
    return read_(call_, request);
  }

 private:
  const std::shared_ptr<GrpcCall> call_;
  const Reader& read_;
};

template <class Request, class Reader>
GrpcMethod OneMessageMethod(Reader read) {
  GrpcMethod method;
  method.begin = [read = std::move(read)](std::shared_ptr<GrpcCall> call) {
    return std::make_shared<OneMessageHandler<Request, Reader>>(std::move(call), read);
  };
  return method;
}

}  // namespace quire
