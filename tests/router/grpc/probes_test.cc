// Health and reflection, as their clients ask for them.
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <set>

#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "tests/router/support/wire_client.h"

namespace quire {
namespace {

using wire::Data;
using wire::Frame;
using wire::Headers;
using wire::kEndStream;
using wire::Message;
using wire::Post;
using wire::WireClient;

using Health = grpc::health::v1::HealthCheckResponse;
using Question = grpc::reflection::v1::ServerReflectionRequest;
using Reflection = grpc::reflection::v1::ServerReflectionResponse;

std::string Asking(const std::string& service) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  return Message(request.SerializeAsString());
}

std::vector<Health::ServingStatus> StatesOf(const wire::Answer& answer) {
  std::vector<Health::ServingStatus> states;
  for (const std::string& message : answer.messages) {
    Health health;
    EXPECT_TRUE(health.ParseFromString(message));
    states.push_back(health.status());
  }
  return states;
}

TEST(GrpcHealth, IsAskedForTheServerAndForItsServices) {
  WireClient client;
  client.Hello();
  client.health.Set(true);
  uint32_t stream = 1;
  const auto check = [&](const std::string& service) -> wire::Answer& {
    client.Say(Headers(stream, Post("/grpc.health.v1.Health/Check")) +
               Data(stream, Asking(service), kEndStream));
    stream += 2;
    return client.answers[stream - 2];
  };
  for (const char* service : {"", "quire.v1.Inference", "inference.GRPCInferenceService"}) {
    EXPECT_EQ(StatesOf(check(service)), std::vector{Health::SERVING}) << service;
  }
  const wire::Answer& unknown = check("no.such.Service");
  EXPECT_EQ(unknown.status(), "5");
  EXPECT_EQ(unknown.trailer("grpc-message"), "service name unknown");
  client.health.Set(false);
  EXPECT_EQ(StatesOf(check("")), std::vector{Health::NOT_SERVING});
}

TEST(GrpcHealth, AllServicesAreListedWithTheServer) {
  for (const bool serving : {true, false}) {
    WireClient client;
    client.Hello();
    client.health.Set(serving);
    client.Say(Headers(1, Post("/grpc.health.v1.Health/List")) + Data(1, Message(""), kEndStream));
    ASSERT_EQ(client.answers[1].messages.size(), 1u);
    grpc::health::v1::HealthListResponse listed;
    ASSERT_TRUE(listed.ParseFromString(client.answers[1].messages[0]));
    std::set<std::string> names;
    for (const auto& [name, state] : listed.statuses()) {
      names.insert(name);
      EXPECT_EQ(state.status(), serving ? Health::SERVING : Health::NOT_SERVING) << name;
    }
    EXPECT_EQ(names,
              (std::set<std::string>{"", "inference.GRPCInferenceService", "quire.v1.Inference"}));
  }
}

TEST(GrpcHealth, AWatcherIsToldOfEachChangeThatItTakes) {
  WireClient client;
  client.Hello(wire::Setting(4, 7 + 7));  // a window for two messages
  client.Say(Headers(1, Post("/grpc.health.v1.Health/Watch")) + Data(1, Asking(""), kEndStream));
  client.Say(Headers(3, Post("/grpc.health.v1.Health/Watch")) + Data(3, Asking("x"), kEndStream));
  EXPECT_EQ(StatesOf(client.answers[3]), std::vector{Health::SERVICE_UNKNOWN});
  for (const bool serving : {true, true, false, true, false, true}) {
    client.health.Set(serving);
    client.Hear();
  }
  EXPECT_EQ(StatesOf(client.answers[1]), (std::vector{Health::NOT_SERVING, Health::SERVING}));
  client.Say(Frame(wire::kWindowUpdate, 0, 1, wire::Number(1000, 4)));
  EXPECT_EQ(StatesOf(client.answers[1]), (std::vector{Health::NOT_SERVING, Health::SERVING,
                                                      Health::NOT_SERVING, Health::SERVING}))
      << "what waited, and what holds now: no watcher gets the changes between";
  EXPECT_FALSE(client.answers[1].ended);
  client.Say(Frame(wire::kReset, 0, 1, wire::Number(8, 4)));
  client.health.Set(false);
}

std::vector<Reflection> Ask(WireClient& client, uint32_t stream, const std::string& version,
                            const std::vector<Question>& questions) {
  std::string asked;
  for (const Question& question : questions) asked += Message(question.SerializeAsString());
  const std::string path = "/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo";
  client.Say(Headers(stream, Post(path)) + Data(stream, asked, kEndStream));
  std::vector<Reflection> answers;
  for (const std::string& message : client.answers[stream].messages) {
    EXPECT_TRUE(answers.emplace_back().ParseFromString(message));
  }
  EXPECT_EQ(client.answers[stream].status(), "0");
  return answers;
}

std::set<std::string> FilesOf(const Reflection& answer) {
  std::set<std::string> files;
  for (const std::string& bytes : answer.file_descriptor_response().file_descriptor_proto()) {
    google::protobuf::FileDescriptorProto file;
    EXPECT_TRUE(file.ParseFromString(bytes));
    files.insert(file.name());
  }
  return files;
}

TEST(GrpcReflection, TellsOfServicesAndDescribesThem) {
  WireClient client;
  client.Hello();
  uint32_t stream = 1;
  for (const char* version : {"v1", "v1alpha"}) {
    std::vector<Question> questions(6);
    questions[0].set_list_services("");
    questions[1].set_file_containing_symbol("quire.v1.Inference.Generate");
    questions[2].set_file_by_filename("grpc/health/v1/health.proto");
    questions[3].set_file_containing_symbol("grpc.reflection.v1alpha.ServerReflection");
    questions[4].set_file_containing_symbol("no.such.Symbol");
    questions[4].set_host("h");
    questions[5].set_all_extension_numbers_of_type("quire.v1.GenerateRequest");
    const std::vector<Reflection> answers = Ask(client, stream, version, questions);
    stream += 2;
    ASSERT_EQ(answers.size(), 6u);
    std::set<std::string> services;
    for (const auto& one : answers[0].list_services_response().service()) {
      services.insert(one.name());
    }
    EXPECT_EQ(services,
              (std::set<std::string>{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection",
                                     "grpc.reflection.v1alpha.ServerReflection",
                                     "inference.GRPCInferenceService", "quire.v1.Inference"}));
    EXPECT_EQ(FilesOf(answers[1]), std::set<std::string>{"quire/v1/inference.proto"});
    EXPECT_EQ(FilesOf(answers[2]), std::set<std::string>{"grpc/health/v1/health.proto"});
    EXPECT_EQ(FilesOf(answers[3]).size(), 1u);
    EXPECT_EQ(answers[4].error_response().error_code(), 5);
    EXPECT_EQ(answers[4].error_response().error_message(), "Symbol not found.");
    EXPECT_EQ(answers[4].valid_host(), "h");
    EXPECT_EQ(answers[4].original_request().SerializeAsString(), questions[4].SerializeAsString());
    EXPECT_EQ(answers[5].all_extension_numbers_response().base_type_name(),
              "quire.v1.GenerateRequest");
  }
}

// Answers are larger than questions: without a client that takes them no more are made.
TEST(GrpcReflection, AClientThatTakesNothingIsNotReadFrom) {
  WireClient client;
  client.Hello(wire::Setting(4, 0));
  Question question;
  question.set_file_containing_symbol("quire.v1.Inference");
  std::string asked;
  for (int i = 0; i < 1000; ++i) asked += Message(question.SerializeAsString());
  client.Say(Headers(1, Post("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")) +
             Data(1, asked, kEndStream));
  EXPECT_LT(client.connection->session().Queued(1), 64u << 10);
  client.Say(Frame(wire::kWindowUpdate, 0, 0, wire::Number(1 << 30, 4)));
  client.Say(Frame(wire::kWindowUpdate, 0, 1, wire::Number(1 << 30, 4)));
  EXPECT_EQ(client.answers[1].messages.size(), 1000u);
  EXPECT_EQ(client.answers[1].status(), "0");
}

}  // namespace
}  // namespace quire
