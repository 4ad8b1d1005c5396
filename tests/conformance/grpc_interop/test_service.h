// grpc.testing.TestService on common/grpc: what gRPC's interoperability clients ask of a server,
// and the load reports that two of their cases read.
//
// Owner: the test server's main; event loop only.
#pragma once

#include <memory>
#include <string>

#include "common/grpc/methods.h"
#include "common/runtime/runtime.h"
#include "grpc_interop/load_report.pb.h"

namespace quire::interop {

// Of one answer's payload. The largest that a case asks for is 314,159.
inline constexpr int32_t kMaxPayloadBytes = 4 << 20;

struct TestWorld {
  Executor& executor;
  std::string server_id;
  // What OpenRcaService tells, since a client has last set it.
  grpc::testing::load::OrcaLoadReport load = {};
};

// `world` outlives the server.
void AddTestService(TestWorld& world, GrpcMethods& methods);

}  // namespace quire::interop
