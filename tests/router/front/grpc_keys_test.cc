// Credentials over gRPC: every RPC that the server serves, without, with wrong and with another
// tenant's.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/empty.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "inference/open_inference.pb.h"
#include "quire/v1/inference.grpc.pb.h"
#include "tests/router/support/grpc_edge.h"
#include "tests/router/support/test_keys.h"

namespace quire {
namespace {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct RpcAnswer {
  grpc::Status status;
  std::string first_message;
  std::string request_id;
  std::string trace_response;
};

// Any method with one message; ends when the server does, or after its first answer.
RpcAnswer CallRpc(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                  const std::string& message, const Headers& headers) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  for (const auto& [name, value] : headers) context.AddMetadata(name, value);
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  RpcAnswer answer;
  auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  if (wait()) {
    const grpc::Slice slice(message);
    call->WriteLast(grpc::ByteBuffer(&slice, 1), {}, nullptr);
    wait();
    grpc::ByteBuffer buffer;
    call->Read(&buffer, nullptr);
    while (wait()) {
      if (answer.first_message.empty()) {
        grpc::Slice whole;
        (void)buffer.DumpToSingleSlice(&whole);
        answer.first_message.assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
      }
      call->Read(&buffer, nullptr);
    }
  }
  call->Finish(&answer.status, nullptr);
  wait();
  const auto metadata = [&context](const char* name) {
    const auto found = context.GetServerInitialMetadata().find(name);
    if (found == context.GetServerInitialMetadata().end()) return std::string();
    return std::string(found->second.data(), found->second.size());
  };
  answer.request_id = metadata("x-request-id");
  answer.trace_response = metadata("traceresponse");
  queue.Shutdown();
  return answer;
}

Headers Bearer(const std::string& key) { return {{"authorization", "Bearer " + key}}; }

constexpr char kReflection[] = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
constexpr char kOldReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const std::string kListServices("\x3A\x01*", 3);  // ServerReflectionRequest{list_services: "*"}

template <class Message>
std::string Bytes(const Message& message) {
  return message.SerializeAsString();
}

std::string GenerateBytes() {
  v1::GenerateRequest request;
  request.set_model("demo");
  request.set_text("x");
  return Bytes(request);
}

std::string ChatBytes() {
  v1::ChatRequest request;
  request.set_model("demo");
  auto* message = request.add_messages();
  message->set_role("user");
  message->set_content("x");
  return Bytes(request);
}

std::string TokenizeBytes() {
  v1::TokenizeRequest request;
  request.set_model("demo");
  request.set_text("x");
  return Bytes(request);
}

std::string InferBytes() {
  inference::ModelInferRequest request;
  request.set_model_name("demo");
  auto& input = *request.add_inputs();
  input.set_name("text_input");
  input.set_datatype("BYTES");
  input.add_shape(1);
  input.mutable_contents()->add_bytes_contents("x");
  return Bytes(request);
}

std::string ModelBytes() {
  inference::ModelMetadataRequest request;  // the other requests about a model look the same
  request.set_name("demo");
  return Bytes(request);
}

struct Census {
  std::string message;
  bool open = false;
  grpc::StatusCode beta = grpc::StatusCode::OK;  // for a tenant that may use another model only
  bool ends = true;                              // Watch does not
};

// What each RPC shall be. One that is not listed here fails the test.
const std::map<std::string, Census>& Expected() {
  constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
  static const auto& expected = *new std::map<std::string, Census>{
      {"/quire.v1.Inference/Generate", {GenerateBytes(), false, kNotFound}},
      {"/quire.v1.Inference/Chat", {ChatBytes(), false, kNotFound}},
      {"/quire.v1.Inference/ListModels", {"", false}},
      {"/quire.v1.Inference/Tokenize", {TokenizeBytes(), false, kNotFound}},
      {"/inference.GRPCInferenceService/ServerLive", {"", false}},
      {"/inference.GRPCInferenceService/ServerReady", {"", false}},
      {"/inference.GRPCInferenceService/ServerMetadata", {"", false}},
      {"/inference.GRPCInferenceService/ModelReady", {ModelBytes(), false, kNotFound}},
      {"/inference.GRPCInferenceService/ModelMetadata", {ModelBytes(), false, kNotFound}},
      {"/inference.GRPCInferenceService/ModelConfig", {ModelBytes(), false, kNotFound}},
      {"/inference.GRPCInferenceService/ModelInfer", {InferBytes(), false, kNotFound}},
      // What a stream refuses it says in a message: the test below looks into it.
      {"/inference.GRPCInferenceService/ModelStreamInfer", {InferBytes(), false}},
      {"/grpc.health.v1.Health/Check", {"", true}},
      {"/grpc.health.v1.Health/List", {"", true}},
      {"/grpc.health.v1.Health/Watch", {"", true, grpc::StatusCode::OK, false}},
      {kReflection, {kListServices, false}},
      {kOldReflection, {kListServices, false}},
  };
  return expected;
}

// The names in a ServerReflectionResponse, read by field number.
std::set<std::string> ServicesOf(const std::string& response) {
  const auto fields = [](const std::string& bytes, int number) {
    google::protobuf::Empty message;
    EXPECT_TRUE(message.ParseFromString(bytes));
    const auto& unknown = message.GetReflection()->GetUnknownFields(message);
    std::vector<std::string> found;
    for (int i = 0; i < unknown.field_count(); ++i) {
      if (unknown.field(i).number() == number) found.push_back(unknown.field(i).length_delimited());
    }
    return found;
  };
  std::set<std::string> names;
  for (const std::string& list : fields(response, 6)) {
    for (const std::string& service : fields(list, 1)) {
      for (const std::string& name : fields(service, 1)) names.insert(name);
    }
  }
  return names;
}

class GrpcKeys : public testing::Test {
 protected:
  RpcAnswer Ask(const std::string& method, const std::string& message, const Headers& headers) {
    return CallRpc(channel, method, message, headers);
  }

  GrpcEdge edge{{}, {}, TestKeys()};
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateChannel(edge.Target(), grpc::InsecureChannelCredentials());
};

TEST_F(GrpcKeys, EveryRpcIsInTheCensus) {
  const RpcAnswer answer = Ask(kReflection, kListServices, Bearer(kAcmeKey));
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  const std::set<std::string> services = ServicesOf(answer.first_message);
  ASSERT_EQ(services.count("quire.v1.Inference"), 1u);
  std::set<std::string> served, listed;
  for (const std::string& service : services) {
    const auto* descriptor =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
    ASSERT_NE(descriptor, nullptr) << service;
    for (int i = 0; i < descriptor->method_count(); ++i) {
      served.insert("/" + service + "/" + descriptor->method(i)->name());
    }
  }
  for (const auto& [method, census] : Expected()) listed.insert(method);
  EXPECT_EQ(listed, served);
}

TEST_F(GrpcKeys, CensusOfRpcsAndCredentials) {
  using grpc::StatusCode;
  for (const auto& [method, census] : Expected()) {
    if (!census.ends) continue;
    SCOPED_TRACE(method);
    const Headers twice = {{"authorization", std::string("Bearer ") + kAcmeKey},
                           {"authorization", std::string("Bearer ") + kAcmeKey}};
    for (const Headers& wrong :
         {Headers(), Bearer("wrong-key"), twice, Headers{{"authorization", "Basic a2V5"}},
          Headers{{"api-key", kAcmeKey}}}) {
      const RpcAnswer refused = Ask(method, census.message, wrong);
      EXPECT_EQ(refused.status.error_code(),
                census.open ? StatusCode::OK : StatusCode::UNAUTHENTICATED)
          << refused.status.error_message();
      EXPECT_TRUE(census.open || refused.first_message.empty());
      EXPECT_EQ(refused.status.error_message().find("wrong-key"), std::string::npos);
    }
    const RpcAnswer good = Ask(method, census.message, Bearer(kAcmeKey));
    EXPECT_TRUE(good.status.ok()) << good.status.error_message();
    Headers claim = Bearer(kAcmeKey);
    claim.push_back({"x-quire-tenant", "beta"});
    EXPECT_EQ(Ask(method, census.message, claim).status.error_code(),
              census.open ? StatusCode::OK : StatusCode::PERMISSION_DENIED);
    EXPECT_EQ(Ask(method, census.message, Bearer(kBetaKey)).status.error_code(), census.beta);
  }
  EXPECT_EQ(Ask("/no.such.Service/Call", "", {}).status.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Ask("/no.such.Service/Call", "", Bearer(kAcmeKey)).status.error_code(),
            StatusCode::UNIMPLEMENTED);
}

TEST_F(GrpcKeys, TheTenantAndTheRequestIdTravelWithTheCall) {
  Headers headers = Bearer(kGatewayKey);
  headers.push_back({"x-quire-tenant", "customer-7"});
  headers.push_back({"x-request-id", "id-of-client"});
  const RpcAnswer answer = Ask("/quire.v1.Inference/Generate", GenerateBytes(), headers);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.request_id, "id-of-client");
  EXPECT_EQ(answer.trace_response, "") << "it is in no trace";
  headers.push_back({"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"});
  headers.push_back({"tracestate", "a=1"});
  headers.push_back({"tracestate", "b=2"});
  for (const char* method :
       {"/quire.v1.Inference/Generate", "/inference.GRPCInferenceService/ModelInfer"}) {
    const bool own = std::string(method).find("quire") != std::string::npos;
    EXPECT_EQ(
        Ask(method, own ? GenerateBytes() : InferBytes(), headers).trace_response.substr(0, 36),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-")
        << method;
  }
  EXPECT_FALSE(
      Ask("/quire.v1.Inference/Generate", GenerateBytes(), Bearer(kAcmeKey)).request_id.empty());
  edge.OnLoop([&] {
    ASSERT_EQ(edge.pipeline.seen.size(), 4u);
    EXPECT_EQ(edge.pipeline.seen[0].tenant->name, "customer-7");
    EXPECT_EQ(edge.pipeline.seen[0].request_id, "id-of-client");
    EXPECT_EQ(edge.pipeline.seen[0].tracestate, "");
    EXPECT_EQ(edge.pipeline.seen[1].tracestate, "a=1,b=2");
    EXPECT_EQ(edge.pipeline.seen[2].tracestate, "a=1,b=2");
    EXPECT_EQ(edge.pipeline.seen[3].tenant->name, "acme");
  });
}

TEST_F(GrpcKeys, WhatTheOpenProtocolHasBesideIsUnimplemented) {
  for (const char* method :
       {"RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload", "ModelStatistics",
        "SystemSharedMemoryStatus", "SystemSharedMemoryRegister", "CudaSharedMemoryRegister",
        "TraceSetting", "LogSettings"}) {
    const std::string path = std::string("/inference.GRPCInferenceService/") + method;
    EXPECT_EQ(Ask(path, "", Bearer(kAcmeKey)).status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_EQ(Ask(path, "", {}).status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  }
}

TEST_F(GrpcKeys, RequestsOfAStreamAreHeldToTheTenantsModels) {
  for (const auto& [key, served] : {std::pair(kAcmeKey, true), std::pair(kBetaKey, false)}) {
    const RpcAnswer answer =
        Ask("/inference.GRPCInferenceService/ModelStreamInfer", InferBytes(), Bearer(key));
    inference::ModelStreamInferResponse response;
    ASSERT_TRUE(response.ParseFromString(answer.first_message));
    EXPECT_EQ(response.error_message().empty(), served) << response.error_message();
    EXPECT_EQ(response.infer_response().outputs().empty(), !served);
  }
  edge.OnLoop([&] {
    ASSERT_EQ(edge.pipeline.seen.size(), 1u);
    EXPECT_EQ(edge.pipeline.seen[0].tenant->name, "acme");
  });
}

TEST_F(GrpcKeys, ModelsAreListedForThoseWhoMayUseThem) {
  auto stub = v1::Inference::NewStub(channel);
  for (const auto& [key, count] : {std::pair(kAcmeKey, 1), std::pair(kBetaKey, 0)}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", std::string("Bearer ") + key);
    v1::ListModelsResponse response;
    ASSERT_TRUE(stub->ListModels(&context, {}, &response).ok());
    EXPECT_EQ(response.models_size(), count) << key;
  }
}

TEST(GrpcWithoutKeys, NothingIsAsked) {
  GrpcEdge edge;
  const auto channel = grpc::CreateChannel(edge.Target(), grpc::InsecureChannelCredentials());
  for (const auto& [method, census] : Expected()) {
    if (!census.ends) continue;
    EXPECT_TRUE(CallRpc(channel, method, census.message, {}).status.ok()) << method;
  }
}

}  // namespace
}  // namespace quire
