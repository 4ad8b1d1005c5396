// A client of quire.v1 in tests: what it asks, and all that it is told.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "quire/v1/inference.grpc.pb.h"
#include "tests/router/support/grpc_edge.h"

namespace quire {

using GrpcStub = v1::Inference::Stub;

inline std::unique_ptr<GrpcStub> Connect(const GrpcEdge& edge, size_t port = 1) {
  return v1::Inference::NewStub(
      grpc::CreateChannel(edge.Target(port), grpc::InsecureChannelCredentials()));
}

struct GrpcAnswer {
  grpc::Status status;
  v1::Started started;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<v1::Done> done;
  v1::Usage usage;
  int messages = 0;
};

inline void Take(const v1::GenerateResponse& event, GrpcAnswer& answer) {
  if (event.has_started()) answer.started = event.started();
  if (event.has_delta()) {
    EXPECT_EQ(event.delta().first_index(), answer.ids.size());
    answer.text += event.delta().text();
    for (const int32_t id : event.delta().token_ids()) answer.ids.push_back(id);
  }
  if (event.has_done()) answer.done.push_back(event.done());
  if (event.has_usage()) answer.usage = event.usage();
}

template <class Reader>
GrpcAnswer ReadAll(Reader& reader) {
  GrpcAnswer answer;
  v1::GenerateResponse response;
  while (reader.Read(&response)) {
    ++answer.messages;
    Take(response, answer);
    for (const v1::GenerateResponse& event : response.more()) Take(event, answer);
  }
  answer.status = reader.Finish();
  return answer;
}

inline GrpcAnswer Generate(GrpcStub& stub, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  auto reader = stub.Generate(&context, request);
  return ReadAll(*reader);
}

inline v1::GenerateRequest Prompted(int max_tokens) {
  v1::GenerateRequest request;
  request.set_text("x");
  request.mutable_sampling()->set_max_tokens(max_tokens);
  request.set_request_id("rid");
  return request;
}

}  // namespace quire
