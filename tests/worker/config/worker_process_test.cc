// The program quire-worker as its users meet it: ready line, probes' ports, signals, exit codes.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/worker/config/child_process.h"

namespace quire {
namespace {

struct Outcome {
  int exit_code;
  std::string output;
};
Outcome RunToEnd(const std::vector<std::string>& more) {
  WorkerChild process(WorkerArguments(more));
  const int exit_code = process.Wait();
  return {exit_code, process.output};
}

TEST(WorkerProcess, SaysWhereItListensLastAndLeavesOnSigterm) {
  WorkerChild process(WorkerArguments({"--model", kDemo, "--served-model-name=tales"}));
  const std::string listen = process.Ready("listen");
  EXPECT_TRUE(listen.starts_with("127.0.0.1:")) << process.ReadyLine();
  EXPECT_EQ(process.Ready("model"), "tales");
  EXPECT_NE(process.Ready("memory").find("weights"), std::string::npos);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.Wait(), 0);
  const size_t at = process.output.find("ready: " + listen + " serves tales to routers");
  ASSERT_NE(at, std::string::npos) << process.output;
  // What follows the ready line was said by the drain.
  EXPECT_LT(process.output.find("memory plan"), at);
  EXPECT_LT(process.output.find("first token"), at);
  EXPECT_GT(process.output.find("\"draining\""), at);
}

TEST(WorkerProcess, SigintDrainsToo) {
  WorkerChild process(WorkerArguments({"--model", kDemo}));
  EXPECT_NE(process.ReadyLine(), "");
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 0);
}

TEST(WorkerProcess, BadArgumentsExitWithTwo) {
  const Outcome unknown = RunToEnd({"--modle", kDemo});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.output, "quire-worker: unknown flag --modle; did you mean --model?\n");
  EXPECT_EQ(RunToEnd({}).exit_code, 2);
  const Outcome ranks = RunToEnd({"--model", kDemo, "--tensor-parallel-size=7"});
  EXPECT_EQ(ranks.exit_code, 2);
  EXPECT_NE(ranks.output.find("--tensor-parallel-size"), std::string::npos) << ranks.output;
  const Outcome context = RunToEnd({"--model", kDemo, "--max-model-len=1000000"});
  EXPECT_EQ(context.exit_code, 2);
  EXPECT_NE(context.output.find("--max-model-len: 1000000 is beyond the model's context; use at "
                                "most 2048"),
            std::string::npos)
      << context.output;
}

TEST(WorkerProcess, UnusableModelsExitWithThreeAndNameTheFile) {
  const Outcome missing = RunToEnd({"--model=/nonexistent/model"});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_EQ(missing.output.find('\n'), missing.output.size() - 1) << missing.output;
  EXPECT_NE(missing.output.find("/nonexistent/model"), std::string::npos) << missing.output;
  const std::string folder = testing::TempDir() + "quire_broken_model";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(kDemo, folder);
  std::filesystem::resize_file(folder + "/model.safetensors", 100000);
  const Outcome truncated = RunToEnd({"--model", folder});
  EXPECT_EQ(truncated.exit_code, 3);
  EXPECT_NE(truncated.output.find("model.safetensors"), std::string::npos) << truncated.output;
  std::filesystem::remove_all(folder);
}

TEST(WorkerProcess, AModelThatDoesNotFitExitsWithThreeAndSaysWhatDoes) {
  WorkerChild process({"--listen=127.0.0.1:0", "--http-port=0", "--model", kDemo,
                       "--kv-cache-memory-bytes=1KiB", "--max-model-len=2048"});
  EXPECT_EQ(process.Wait(), 3) << process.output;
}

TEST(WorkerProcess, AnUnusableDeviceExitsWithFour) {
  const Outcome cuda = RunToEnd({"--model", kDemo, "--device=cuda"});
  EXPECT_EQ(cuda.exit_code, 4);
  EXPECT_NE(cuda.output.find("--device: cuda needs the plugin of this build"), std::string::npos)
      << cuda.output;
}

TEST(WorkerProcess, ATakenPortExitsWithOneAndNamesTheFlag) {
  WorkerChild first(WorkerArguments({"--model", kDemo}));
  const std::string listen = first.Ready("listen");
  const std::string http = first.Ready("http");
  const Outcome wire = RunToEnd({"--model", kDemo, "--listen=" + listen});
  EXPECT_EQ(wire.exit_code, 1);
  EXPECT_NE(
      wire.output.find("--listen (port 0 lets the system choose): cannot listen on " + listen),
      std::string::npos)
      << wire.output;
  const Outcome probes =
      RunToEnd({"--model", kDemo, "--http-port=" + http.substr(http.rfind(':') + 1)});
  EXPECT_EQ(probes.exit_code, 1);
  EXPECT_NE(probes.output.find("--http-port"), std::string::npos) << probes.output;
}

TEST(WorkerProcess, HelpExitsWithZeroAndListsTheFlags) {
  const Outcome help = RunToEnd({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* flag : {"--model ", "--listen ", "--max-num-seqs ", "--drain-timeout "}) {
    EXPECT_NE(help.output.find(flag), std::string::npos) << flag;
  }
}

}  // namespace
}  // namespace quire
