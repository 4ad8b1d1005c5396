// The program quire-worker over its wire: a router attaches and gets tokens of the demo model.
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "quire/v1/worker.grpc.pb.h"
#include "tests/worker/config/child_process.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

class WorkerWireTest : public testing::Test {
 protected:
  explicit WorkerWireTest(const std::vector<std::string>& arguments = {"--model", kDemo})
      : child(WorkerArguments(arguments)) {
    channel = grpc::CreateChannel(child.Ready("listen"), grpc::InsecureChannelCredentials());
    stub = pb::Worker::NewStub(channel);
    stream = stub->Attach(&context);
    SayHello(*stream, 42);
    pb::WorkerFrame answer;
    EXPECT_TRUE(stream->Read(&answer));
    hello = answer.hello();
  }
  ~WorkerWireTest() override {
    context.TryCancel();
    next_context.TryCancel();
  }

  using Stream = grpc::ClientReaderWriter<pb::RouterFrame, pb::WorkerFrame>;
  static void SayHello(Stream& to, uint64_t router, uint64_t attach_number = 1) {
    pb::RouterFrame frame;
    frame.mutable_hello()->set_router_instance(router);
    frame.mutable_hello()->set_attach_number(attach_number);
    frame.mutable_hello()->set_protocol_min(1);
    frame.mutable_hello()->set_protocol_max(1);
    to.Write(frame);
  }

  void Submit(uint64_t request, int max_tokens, uint64_t seed) {
    pb::RouterFrame frame;
    pb::Submit* submit = frame.mutable_submit();
    submit->set_request_number(request);
    submit->set_attempt(1);
    submit->set_submit_number(request);
    submit->set_model_id(hello.model_id());
    for (const int id : {5, 6, 7, 8, 9}) submit->add_prompt_ids(id);
    submit->add_choices();
    submit->mutable_sampling()->set_max_tokens(max_tokens);
    submit->mutable_sampling()->set_ignore_eos(true);
    submit->mutable_sampling()->set_temperature(seed == 0 ? 0.0f : 1.0f);
    submit->mutable_sampling()->set_seed(seed);
    ASSERT_TRUE(stream->Write(frame));
  }

  // Reads until `count` attempts have ended.
  void ReadEnds(size_t count) {
    ReadUntil([&] { return ends.size() >= count; });
  }
  void ReadUntil(const std::function<bool()>& done) {
    pb::WorkerFrame frame;
    SayHeartbeat();
    while (!done() && stream->Read(&frame)) {
      if (std::chrono::steady_clock::now() - last_heartbeat > std::chrono::seconds(1)) {
        SayHeartbeat();
      }
      draining = draining || frame.has_draining();
      stuck_frames += frame.has_step() && frame.step().state() == pb::STUCK ? 1 : 0;
      for (const pb::Output& output : frame.step().outputs()) {
        std::vector<int>& all = tokens[output.request_number()];
        EXPECT_EQ(output.first_index(), all.size());
        all.insert(all.end(), output.ids().begin(), output.ids().end());
      }
      for (const pb::Ended& end : frame.step().ended()) ends[end.request_number()] = end;
    }
  }

  // As a router does: the worker gives up one that is silent for five seconds, and a busy machine
  // may take longer than that over a long answer.
  void SayHeartbeat() {
    last_heartbeat = std::chrono::steady_clock::now();
    pb::RouterFrame frame;
    frame.mutable_heartbeat()->set_sent_at_ms(1);
    stream->Write(frame);
  }

  WorkerChild child;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<pb::Worker::Stub> stub;
  grpc::ClientContext context;
  grpc::ClientContext next_context;
  std::unique_ptr<Stream> stream;
  pb::WorkerHello hello;
  std::map<uint64_t, std::vector<int>> tokens;
  std::map<uint64_t, pb::Ended> ends;
  bool draining = false;
  size_t stuck_frames = 0;
  std::chrono::steady_clock::time_point last_heartbeat;
};

TEST_F(WorkerWireTest, HelloDescribesTheModelAndItsBundle) {
  EXPECT_EQ(hello.model_id().size(), 64u);
  EXPECT_EQ(hello.limits().max_model_len(), 2048u);
  EXPECT_EQ(hello.block_size(), 16u);
  EXPECT_GT(hello.capacity_blocks(), 0u);
  EXPECT_NE(hello.epoch(), 0u);
  EXPECT_EQ(hello.served_names(0), "demo");
  EXPECT_EQ(hello.text_bundle_sha256().size(), 32u);
  grpc::ClientContext bundle_context;
  pb::GetTextBundleRequest request;
  request.set_model_id(hello.model_id());
  auto reader = stub->GetTextBundle(&bundle_context, request);
  pb::TextBundleChunk chunk;
  uint64_t bytes = 0;
  while (reader->Read(&chunk)) bytes += chunk.data().size();
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(bytes, chunk.total_bytes());
}

TEST_F(WorkerWireTest, SameRequestSameTokensAloneAndInABatch) {
  Submit(1, 20, 0);
  ReadEnds(1);
  Submit(2, 20, 99);
  ReadEnds(2);
  for (uint64_t request = 3; request < 11; ++request) Submit(request, 20, request % 2 ? 0 : 99);
  ReadEnds(10);
  ASSERT_EQ(ends.size(), 10u);
  for (const auto& [request, end] : ends) {
    EXPECT_EQ(end.reason(), pb::LENGTH);
    EXPECT_EQ(end.usage().prompt_tokens(), 5u);
    EXPECT_EQ(end.usage().generated_tokens(), 20u);
    EXPECT_EQ(tokens[request], tokens[request % 2 ? 1 : 2]) << request;
  }
  EXPECT_EQ(tokens[1].size(), 20u);
}

TEST_F(WorkerWireTest, ADrainEndsWhatRunsInOrder) {
  Submit(1, 400, 0);
  ReadUntil([this] { return !tokens[1].empty(); });
  child.Signal(SIGTERM);
  ReadEnds(1);
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[1].reason(), pb::LENGTH);
  EXPECT_EQ(tokens[1].size(), 400u);
  pb::WorkerFrame frame;
  while (stream->Read(&frame)) draining = draining || frame.has_draining();
  EXPECT_TRUE(draining);
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(child.Wait(), 0);
}

// No one reads the log, and it is full long before it says the last of these Attaches.
TEST_F(WorkerWireTest, ALogThatNobodyReadsStopsNobody) {
  child.ReadNoLog();
  for (uint64_t router = 100; router < 160; ++router) {
    grpc::ClientContext other;
    const auto another = stub->Attach(&other);
    SayHello(*another, router);
    pb::WorkerFrame answer;
    EXPECT_TRUE(another->Read(&answer));
    other.TryCancel();
  }
  Submit(1, 300, 0);
  ReadEnds(1);
  EXPECT_EQ(tokens[1].size(), 300u);
  child.Signal(SIGTERM);
  pb::WorkerFrame frame;
  while (stream->Read(&frame)) continue;
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_GT(child.output.size(), 4096u);
}

class StoppedWorkerTest : public WorkerWireTest {
 protected:
  StoppedWorkerTest()
      : WorkerWireTest(
            {"--model", kDemo, "--watchdog-grace=100ms", "--request-log=" + RecordFile()}) {}
  ~StoppedWorkerTest() override { std::remove(RecordFile().c_str()); }

  static std::string RecordFile() {
    return testing::TempDir() + "stopped_worker_" + std::to_string(getpid()) + ".jsonl";
  }
  static std::string Records() {
    std::ifstream file(RecordFile());
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

// Stopped in mid-decode for longer than a step's limit and the grace: it goes on as if nothing had
// been, its Attach too, and never says that it is stuck. The time that passes is the thing under
// test, so that this one does wait.
TEST_F(StoppedWorkerTest, GoesOnWithoutBeingTakenForStuck) {
  Submit(1, 1500, 0);
  ReadUntil([this] { return tokens[1].size() > 10; });
  child.Signal(SIGSTOP);
  usleep(2'600'000);
  child.Signal(SIGCONT);
  ReadEnds(1);
  EXPECT_EQ(tokens[1].size(), 1500u);
  EXPECT_EQ(ends[1].reason(), pb::LENGTH);
  EXPECT_EQ(stuck_frames, 0u);
  Submit(2, 20, 0);  // and serves what comes next
  ReadEnds(2);
  EXPECT_EQ(tokens[2].size(), 20u);
  child.Signal(SIGTERM);
  pb::WorkerFrame frame;
  while (stream->Read(&frame)) continue;
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(child.output.find("stuck"), std::string::npos) << child.output;
}

// Its router gives it up in the meantime: what it had for it ends as lost, and the router's next
// Attach is served.
TEST_F(StoppedWorkerTest, EndsWhatItsRouterHasCarriedOnElsewhere) {
  Submit(1, 1900, 0);
  ReadUntil([this] { return tokens[1].size() > 10; });
  child.Signal(SIGSTOP);
  context.TryCancel();
  EXPECT_FALSE(stream->Finish().ok());
  child.Signal(SIGCONT);
  stream = stub->Attach(&next_context);
  SayHello(*stream, 42, 2);
  pb::WorkerFrame frame;
  ASSERT_TRUE(stream->Read(&frame));
  EXPECT_EQ(frame.hello().epoch(), hello.epoch()) << "it is the same process";
  Submit(2, 20, 0);
  ReadUntil([this] { return ends.contains(2); });
  EXPECT_EQ(tokens[2].size(), 20u);
  EXPECT_FALSE(ends.contains(1)) << "nothing of the older Attach is told";
  child.Signal(SIGTERM);
  while (stream->Read(&frame)) continue;
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_NE(Records().find("\"reason\":\"router_lost\""), std::string::npos) << Records();
  EXPECT_NE(Records().find("\"reason\":\"length\""), std::string::npos) << Records();
}

}  // namespace
}  // namespace quire
