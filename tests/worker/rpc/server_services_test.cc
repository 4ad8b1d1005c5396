// What the worker's gRPC port serves beside streams of frames: the text bundle, health, reflection.
#include <grpcpp/generic/generic_stub.h>

#include <vector>

#include "tests/worker/rpc/server_fixture.h"

namespace quire {
namespace {

TEST_F(GrpcServerTest, TheBundleComesInChunks) {
  grpc::ClientContext context;
  pb::GetTextBundleRequest request;
  request.set_model_id("model");
  auto reader = stub->GetTextBundle(&context, request);
  pb::TextBundleChunk chunk;
  std::string bundle;
  int chunks = 0;
  while (reader->Read(&chunk)) {
    EXPECT_LE(chunk.data().size(), kTextBundleChunkBytes);
    EXPECT_EQ(chunk.total_bytes(), 2 * kTextBundleChunkBytes + 7);
    bundle += chunk.data();
    ++chunks;
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(chunks, 3);
  EXPECT_EQ(bundle, std::string((2 * kTextBundleChunkBytes) + 7, 'b'));
}

// A bundle that no client takes unread, by a server of its own.
class LargeBundleTest : public GrpcServerTest {
 protected:
  LargeBundleTest() {
    WorkerServerOptions options = Options();
    options.model_id = "model";
    options.text_bundle = std::string(32u << 20, 'b');
    large = *StartWorkerServer(std::move(options));
    target = "127.0.0.1:" + std::to_string(large->port());
    request.set_model_id("model");
  }
  ~LargeBundleTest() override { large->Shutdown(); }

  std::unique_ptr<WorkerServer> large;
  pb::GetTextBundleRequest request;
};

TEST_F(LargeBundleTest, ARouterThatTakesNothingGivesWay) {
  executor.speed = 100;
  grpc::ClientContext context;
  auto own = pb::Worker::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
  auto reader = own->GetTextBundle(&context, request);
  Await(rpc_metrics.grpc.write_timeouts, 1);
  pb::TextBundleChunk chunk;
  while (reader->Read(&chunk)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(LargeBundleTest, AtMostSoManyRoutersFetchItAtOnce) {
  executor.speed = 0;  // nobody gives way meanwhile
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<pb::TextBundleChunk>>> readers;
  std::vector<std::unique_ptr<pb::Worker::Stub>> stubs;  // a connection each
  for (size_t i = 0; i < kConnections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(pb::Worker::NewStub(
        grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments)));
  }
  const auto fetch = [&](size_t connection) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stubs[connection]->GetTextBundle(contexts.back().get(), request));
    readers.back()->WaitForInitialMetadata();
  };
  const auto end_of_last = [&] {
    pb::TextBundleChunk chunk;
    while (readers.back()->Read(&chunk)) {
    }
    return readers.back()->Finish();
  };
  for (size_t i = 0; i < kMaxBundleCalls; ++i) fetch(i % (kConnections - 1));
  fetch(kConnections - 1);
  EXPECT_EQ(end_of_last().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  contexts.front()->TryCancel();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  do {
    fetch(kConnections - 1);
  } while (!end_of_last().ok() && std::chrono::steady_clock::now() < limit);
  EXPECT_LT(std::chrono::steady_clock::now(), limit);
  executor.speed = 1;
  for (size_t i = 0; i < kMaxBundleCalls; ++i) {
    contexts[i]->TryCancel();
    pb::TextBundleChunk chunk;
    while (readers[i]->Read(&chunk)) {
    }
    (void)readers[i]->Finish();
  }
}

TEST_F(GrpcServerTest, TheBundleOfAnotherModelIsRefused) {
  grpc::ClientContext context;
  pb::GetTextBundleRequest request;
  request.set_model_id("other");
  auto reader = stub->GetTextBundle(&context, request);
  pb::TextBundleChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(), "model_id: this worker serves model");
}

std::string Text(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!buffer.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

TEST_F(GrpcServerTest, HealthSaysWhatWasSet) {
  const auto check = [this] {
    grpc::GenericStub generic(channel);
    grpc::ClientContext context;
    grpc::ByteBuffer request, answer;
    const grpc::Slice empty("");
    request = grpc::ByteBuffer(&empty, 1);
    std::promise<grpc::Status> done;
    generic.UnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::StubOptions(), &request,
                      &answer, [&](const grpc::Status& status) { done.set_value(status); });
    EXPECT_TRUE(done.get_future().get().ok());
    return Text(answer);
  };
  EXPECT_EQ(check(), "\x08\x02");  // NOT_SERVING until said otherwise
  server->SetServing(true);
  EXPECT_EQ(check(), "\x08\x01");  // SERVING
  server->SetServing(false);
  EXPECT_EQ(check(), "\x08\x02");
}

// Sends one reflection request, keeps the answer.
class ReflectionCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit ReflectionCall(grpc::GenericStub& stub) {
    stub.PrepareBidiStreamingCall(&context_,
                                  "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
                                  grpc::StubOptions(), this);
    const grpc::Slice list_services(std::string("\x3a\x00", 2));
    request_ = grpc::ByteBuffer(&list_services, 1);
    StartWriteLast(&request_, grpc::WriteOptions());
    StartRead(&answer_);
    StartCall();
  }
  void OnDone(const grpc::Status& status) override { done_.set_value(status); }
  std::string Answer() {
    EXPECT_TRUE(done_.get_future().get().ok());
    return Text(answer_);
  }

 private:
  grpc::ClientContext context_;
  grpc::ByteBuffer request_;
  grpc::ByteBuffer answer_;
  std::promise<grpc::Status> done_;
};

TEST_F(GrpcServerTest, ReflectionListsTheService) {
  grpc::GenericStub generic(channel);
  ReflectionCall call(generic);
  EXPECT_NE(call.Answer().find("quire.worker.v1.Worker"), std::string::npos);
}

}  // namespace
}  // namespace quire
