// The program quire-worker as its users meet it: ready line, probes' ports, signals, exit codes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/json/json.h"

namespace quire {
namespace {

const char kDemo[] = QUIRE_SOURCE_DIR "/models/demo";

// A child with its standard output and error on one pipe, its ready line on another.
class Process {
 public:
  explicit Process(std::vector<std::string> args) {
    int out[2];
    int ready[2];
    EXPECT_EQ(pipe(out), 0);
    EXPECT_EQ(pipe(ready), 0);
    args.insert(args.begin(), QUIRE_BINARY_DIR "/bin/quire-worker");
    args.push_back("--ready-fd=" + std::to_string(ready[1]));
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(out[1], 1);
      dup2(out[1], 2);
      close(out[0]);
      close(ready[0]);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(out[1]);
    close(ready[1]);
    out_ = out[0];
    ready_ = ready[0];
  }
  ~Process() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(ready_);
  }
  // Empty when the process ended without one.
  std::string ReadyLine() { return ReadAll(ready_); }
  void Signal(int signal) { kill(pid_, signal); }
  int Wait() {
    output = ReadAll(out_);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string output;

 private:
  static std::string ReadAll(int descriptor) {
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(descriptor, buffer, sizeof(buffer))) > 0;) text.append(buffer, n);
    return text;
  }
  pid_t pid_ = -1;
  int out_ = -1;
  int ready_ = -1;
};

std::vector<std::string> With(const std::vector<std::string>& more) {
  std::vector<std::string> args = {"--listen=127.0.0.1:0", "--http-port=0", "--log-format=json",
                                   "--kv-cache-memory-bytes=64MiB"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

struct Outcome {
  int exit_code;
  std::string output;
};
Outcome RunToEnd(const std::vector<std::string>& more) {
  Process process(With(more));
  const int exit_code = process.Wait();
  return {exit_code, process.output};
}

TEST(WorkerProcess, SaysWhereItListensLastAndLeavesOnSigterm) {
  Process process(With({"--model", kDemo, "--served-model-name=tales"}));
  const std::string ready = process.ReadyLine();
  const auto line = json::Parse(ready);
  ASSERT_TRUE(line.ok()) << ready;
  const json::Object& members = line->as_object();
  const std::string listen(json::View(members.at("listen").as_string()));
  EXPECT_TRUE(listen.starts_with("127.0.0.1:")) << listen;
  EXPECT_EQ(json::View(members.at("model").as_string()), "tales");
  EXPECT_NE(json::View(members.at("memory").as_string()).find("weights"), std::string::npos);
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
  Process process(With({"--model", kDemo}));
  EXPECT_NE(process.ReadyLine(), "");
  process.Signal(SIGINT);
  EXPECT_EQ(process.Wait(), 0);
}

TEST(WorkerProcess, BadArgumentsExitWithTwo) {
  const Outcome unknown = RunToEnd({"--modle", kDemo});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_EQ(unknown.output, "quire-worker: unknown flag --modle; did you mean --model?\n");
  EXPECT_EQ(RunToEnd({}).exit_code, 2);
  EXPECT_EQ(RunToEnd({"--model", kDemo, "--tensor-parallel-size=2"}).exit_code, 2);
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
  Process process({"--listen=127.0.0.1:0", "--http-port=0", "--model", kDemo,
                   "--kv-cache-memory-bytes=1KiB", "--max-model-len=2048"});
  EXPECT_EQ(process.Wait(), 3) << process.output;
}

TEST(WorkerProcess, AnUnusableDeviceExitsWithFour) {
  const Outcome cuda = RunToEnd({"--model", kDemo, "--device=cuda"});
  EXPECT_EQ(cuda.exit_code, 4);
  EXPECT_NE(cuda.output.find("--device: cuda is not served by this build; use cpu or auto"),
            std::string::npos)
      << cuda.output;
}

TEST(WorkerProcess, ATakenPortExitsWithOneAndNamesTheFlag) {
  Process first(With({"--model", kDemo}));
  const auto line = json::Parse(first.ReadyLine());
  ASSERT_TRUE(line.ok());
  const json::Object& members = line->as_object();
  const std::string listen(json::View(members.at("listen").as_string()));
  const std::string http(json::View(members.at("http").as_string()));
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
