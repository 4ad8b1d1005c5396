// --request-log of the real program: one line per attempt, whose sums are the worker's counters.
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "quire/v1/worker.grpc.pb.h"
#include "tests/worker/config/child_process.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

// The body of GET /metrics on 127.0.0.1.
std::string Scrape(const std::string& host_port) {
  const int port = std::stoi(host_port.substr(host_port.rfind(':') + 1));
  const int connection = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(connection, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string ask = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(write(connection, ask.data(), ask.size()), static_cast<ssize_t>(ask.size()));
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(connection, buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
  close(connection);
  return text;
}

uint64_t Counter(const std::string& metrics, const std::string& name) {
  const size_t at = metrics.find("\n" + name + " ");
  EXPECT_NE(at, std::string::npos) << name;
  return at == std::string::npos ? 0 : std::stoull(metrics.substr(at + name.size() + 2));
}

pb::RouterFrame Ask(uint64_t request, const std::string& model_id) {
  pb::RouterFrame frame;
  pb::Submit* submit = frame.mutable_submit();
  submit->set_request_number(request);
  submit->set_attempt(1);
  submit->set_submit_number(request);
  submit->set_model_id(model_id);
  submit->set_request_id("request " + std::to_string(request));
  for (int id = 5; id < 5 + static_cast<int>(request); ++id) submit->add_prompt_ids(id);
  submit->add_choices();
  submit->mutable_sampling()->set_max_tokens(static_cast<int>(3 * request));
  submit->mutable_sampling()->set_ignore_eos(true);
  return frame;
}

TEST(RequestLog, HasALinePerAttemptWhoseSumsAreTheCounters) {
  const std::string path = testing::TempDir() + "quire_request_log.jsonl";
  std::filesystem::remove(path);
  constexpr uint64_t kRequests = 6;
  WorkerChild child(WorkerArguments({"--model", kDemo, "--request-log", path}));
  const auto channel =
      grpc::CreateChannel(child.Ready("listen"), grpc::InsecureChannelCredentials());
  const auto stub = pb::Worker::NewStub(channel);
  grpc::ClientContext context;
  const auto stream = stub->Attach(&context);
  pb::RouterFrame hello;
  hello.mutable_hello()->set_router_instance(42);
  hello.mutable_hello()->set_attach_number(1);
  hello.mutable_hello()->set_protocol_min(1);
  hello.mutable_hello()->set_protocol_max(1);
  stream->Write(hello);
  pb::WorkerFrame frame;
  ASSERT_TRUE(stream->Read(&frame));
  const std::string model_id = frame.hello().model_id();
  for (uint64_t request = 1; request <= kRequests; ++request) {
    ASSERT_TRUE(stream->Write(Ask(request, model_id)));
  }
  std::map<uint64_t, pb::AttemptUsage> told;
  while (told.size() < kRequests && stream->Read(&frame)) {
    for (const pb::Ended& ended : frame.step().ended()) {
      told[ended.request_number()] = ended.usage();
    }
  }
  const std::string before = Scrape(child.Ready("http"));
  child.Signal(SIGTERM);
  while (stream->Read(&frame)) {
  }
  EXPECT_EQ(child.Wait(), 0) << child.output;

  std::map<std::string, uint64_t> sums;
  std::ifstream file(path);
  size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const auto record = json::Parse(line);
    ASSERT_TRUE(record.ok()) << line;
    const json::Object& object = record->as_object();
    EXPECT_EQ(json::View(json::Find(object, "router")->as_string()), "000000000000002a");
    EXPECT_EQ(json::View(json::Find(object, "reason")->as_string()), "length");
    const uint64_t request =
        static_cast<uint64_t>(*json::AsInt(*json::Find(object, "request"), "request"));
    EXPECT_EQ(json::View(json::Find(object, "request_id")->as_string()),
              "request " + std::to_string(request));
    for (const char* name : {"prompt_tokens", "computed_tokens", "recomputed_tokens",
                             "generated_tokens", "discarded_tokens"}) {
      sums[name] += static_cast<uint64_t>(*json::AsInt(*json::Find(object, name), name));
    }
    EXPECT_EQ(*json::AsInt(*json::Find(object, "generated_tokens"), ""),
              told[request].generated_tokens());
    EXPECT_GT(*json::AsInt(*json::Find(object, "prefill_us"), ""), 0);
  }
  EXPECT_EQ(lines, kRequests);
  for (const auto& [name, sum] : sums) {
    const std::string metric = "quire_worker_" + name + "_total";
    // The engine's own first token, which proves that it can, was asked by no router.
    const uint64_t canary = name == "recomputed_tokens" || name == "discarded_tokens" ? 0 : 1;
    EXPECT_EQ(Counter(before, metric), sum + canary) << name;
  }
  EXPECT_EQ(Counter(before, "quire_worker_records_lost_total"), 0u);
  std::filesystem::remove(path);
}

TEST(RequestLog, APathThatCannotBeWrittenToIsRefusedAtOnce) {
  WorkerChild child(WorkerArguments({"--model", kDemo, "--request-log=/nonexistent/log"}));
  EXPECT_EQ(child.Wait(), 2);
  EXPECT_EQ(child.output,
            "quire-worker: --request-log: /nonexistent/log cannot be written to: No such file or "
            "directory\n");
}

}  // namespace
}  // namespace quire
