#include "common/grpc/methods.h"

namespace quire {

void GrpcMethods::Add(const std::string& service, std::string_view method, GrpcMethod what) {
  services_.insert(service);
  methods_["/" + service + "/" + std::string(method)] = std::move(what);
}

}  // namespace quire
