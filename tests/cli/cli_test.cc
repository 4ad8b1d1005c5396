#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/model_names.h"
#include "cli/serve/child_process.h"
#include "cli/serve/model_host.h"
#include "cli/serve/restart_policy.h"
#include "cli/serve/serve_plan.h"
#include "cli/serve/vllm_flags.h"
#include "common/client/http_client_asio.h"

namespace quire::cli {
namespace {

namespace fs = std::filesystem;

class TempFolder {
 public:
  TempFolder() {
    char path[] = "/tmp/quire_cli_XXXXXX";
    path_ = mkdtemp(path);
  }
  ~TempFolder() { fs::remove_all(path_); }
  void Write(const std::string& name, const std::string& content) const {
    fs::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << content;
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

// What a child says of itself.
config::Description Says(const std::vector<std::string>& names, bool with_bool) {
  config::Schema schema("program", "Summary.");
  std::vector<std::string> values(names.size());
  std::vector<std::string> list;
  bool on = true;
  for (size_t i = 0; i < names.size(); ++i) {
    config::Flag flag;
    flag.name = names[i];
    flag.help =
        "A rather long help text that is certainly wrapped over more than one line of output.";
    flag.default_text = "something";
    flag.target = &values[i];
    schema.Add(flag);
  }
  config::Flag repeated;
  repeated.name = "served-model-name";
  repeated.target = &list;
  schema.Add(repeated);
  for (const char* name : {"lora-modules", "lora-dir"}) {
    repeated.name = name;
    if (with_bool) schema.Add(repeated);
  }
  std::vector<std::string> keys;
  if (!with_bool) schema.Add({.name = "api-key", .target = &keys, .secret = true});
  std::string collector;
  schema.Add({.name = "otlp-traces-endpoint", .target = &collector, .secret = true});
  if (with_bool) {
    config::Flag flag;
    flag.name = "enable-prefix-caching";
    flag.help = "Reuses blocks.";
    flag.target = &on;
    schema.Add(flag);
  }
  return schema.Describe();
}

struct Plans {
  Plans() {
    folder.Write("models/demo/config.json", "{}");
    folder.Write("models/demo/model.safetensors", "x");
    inputs.router = Says({"port", "host", "log-level", "drain-timeout"}, false);
    inputs.worker = Says({"threads", "log-level", "listen"}, true);
    inputs.model_folders = {folder.path() + "/models"};
  }
  absl::StatusOr<ServePlan> Plan(std::vector<std::string> args) {
    inputs.args = std::move(args);
    return PlanServe(inputs);
  }
  TempFolder folder;
  ServeInputs inputs;
};

TEST(ServePlan, GivesEachChildItsFlags) {
  Plans plans;
  const auto plan = plans.Plan({"demo", "--port", "9", "--threads=2", "--log-level", "debug",
                                "--no-enable-prefix-caching", "--workers", "3"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->router_args, (std::vector<std::string>{"--port=9", "--log-level=debug"}));
  EXPECT_EQ(plan->worker_args, (std::vector<std::string>{"--log-level=debug", "--threads=2",
                                                         "--no-enable-prefix-caching"}));
  ASSERT_EQ(plan->models.size(), 1u);
  EXPECT_EQ(plan->models[0].path, plans.folder.path() + "/models/demo");
  EXPECT_EQ(plan->workers, 3);
  EXPECT_TRUE(plan->required && plan->load_first);
}

TEST(ServePlan, SeveralModelsAreLoadedWhenTheyAreAskedFor) {
  Plans plans;
  plans.folder.Write("more/big/config.json", "{}");
  plans.folder.Write("more/big/model.safetensors", "x");
  plans.folder.Write("empty/readme", "x");
  const std::string more = "--models-dir=" + plans.folder.path() + "/more";
  auto plan = plans.Plan({"demo", plans.folder.path() + "/more/big"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->models.size(), 2u);
  EXPECT_EQ(plan->models[1].served_name, "big");
  EXPECT_TRUE(plan->load_first);
  EXPECT_FALSE(plan->required);
  plan = plans.Plan({more});
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->models.size(), 1u);
  EXPECT_FALSE(plan->load_first) << "nobody has asked for it yet";
  plan = plans.Plan({"demo", more});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->models.size(), 2u);
  EXPECT_TRUE(plan->required);
  const std::pair<std::vector<std::string>, std::string> wrong[] = {
      {{"demo", "demo"}, "has the name of another one"},
      {{"demo", more, "--workers=2"}, "--workers: several models"},
      {{"demo", more, "--lora-modules=a=/a"}, "--lora-modules: adapters go with one MODEL"},
      {{"demo", more, "--lora-dir=/a"}, "--lora-dir: adapters go with one MODEL"},
      {{"--models-dir=" + plans.folder.path() + "/empty"}, "holds no model"},
  };
  for (const auto& [args, message] : wrong) {
    const auto refused = plans.Plan(args);
    ASSERT_FALSE(refused.ok()) << message;
    EXPECT_NE(StatusMessage(refused.status()).find(message), std::string::npos) << refused.status();
  }
}

TEST(ModelHost, MemoryIsDealtOutSoThatAnotherModelFindsSome) {
  constexpr int64_t kGiB = int64_t{1} << 30;
  EXPECT_EQ(MemoryShare(kGiB, 24 * kGiB), 12 * kGiB);
  EXPECT_GE(MemoryShare(8 * kGiB, 24 * kGiB), 16 * kGiB) << "a large one gets what it needs";
  EXPECT_EQ(MemoryShare(8 * kGiB, 10 * kGiB), 10 * kGiB) << "and never more than there is";
  EXPECT_GT(LeastMemory(8 * kGiB), 8 * kGiB);
}

TEST(ServePlan, DefaultsToTheDemoAndReadsTheEnvironment) {
  Plans plans;
  plans.inputs.environment = {{"QUIRE_THREADS", "4"}};
  const auto plan = plans.Plan({});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->models.at(0).served_name, "demo");
  EXPECT_NE(std::find(plan->worker_args.begin(), plan->worker_args.end(), "--threads=4"),
            plan->worker_args.end());
  EXPECT_TRUE(plan->router_args.empty());
}

// Every user of a machine may read the command lines of all its processes.
TEST(ServePlan, SecretsGoToTheRouterInItsEnvironmentAlone) {
  Plans plans;
  plans.inputs.environment = {{"QUIRE_API_KEY", "sk-one,sk-two"}};
  auto plan = plans.Plan({"--port=9"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->router_args, std::vector<std::string>{"--port=9"});
  EXPECT_EQ(plan->router_environment, std::vector<std::string>{"QUIRE_API_KEY=sk-one,sk-two"});
  for (const std::string& arg : plan->worker_args) EXPECT_EQ(arg.find("sk-"), std::string::npos);
  plan = plans.Plan({"--api-key=sk-3"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->router_environment, std::vector<std::string>{"QUIRE_API_KEY=sk-3"});
  EXPECT_TRUE(plan->router_args.empty());
  EXPECT_EQ(StatusMessage(plans.Plan({"--api-key=a,b"}).status()).find("a,b"), std::string::npos);
  EXPECT_FALSE(plans.Plan({"--api-key=a,b"}).ok());
  for (const auto& args : {std::vector<std::string>{"--api-key="},
                           std::vector<std::string>{"--api-key=sk-4", "--api-key="}}) {
    EXPECT_NE(StatusMessage(plans.Plan(args).status()).find("--api-key: is empty"),
              std::string::npos);
  }
  plans.inputs.environment = {{"QUIRE_API_KEY", ""}};
  EXPECT_NE(StatusMessage(plans.Plan({}).status()).find("QUIRE_API_KEY"), std::string::npos);
  plans.inputs.environment.clear();
  EXPECT_TRUE(plans.Plan({})->router_environment.empty());
}

// A collector's URL may have a password in it.
TEST(ServePlan, TheCollectorIsToldToAllInTheirEnvironments) {
  Plans plans;
  const std::vector<std::string> told = {"QUIRE_OTLP_TRACES_ENDPOINT=http://me:secret@c:4318"};
  for (const bool by_flag : {true, false}) {
    plans.inputs.environment.clear();
    if (!by_flag) plans.inputs.environment = {{"QUIRE_OTLP_TRACES_ENDPOINT", told[0].substr(27)}};
    const auto plan = plans.Plan(
        by_flag ? std::vector<std::string>{"--otlp-traces-endpoint", "http://me:secret@c:4318"}
                : std::vector<std::string>{});
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->router_environment, told);
    EXPECT_EQ(plan->worker_environment, told);
    EXPECT_TRUE(plan->router_args.empty());
    for (const std::string& arg : plan->worker_args) {
      EXPECT_EQ(arg.find("secret"), std::string::npos);
    }
  }
  const auto shown = plans.Plan({"--show-config"});
  ASSERT_TRUE(shown.ok() && shown->answer.has_value());
  EXPECT_EQ(shown->answer->find("secret"), std::string::npos) << *shown->answer;
  EXPECT_NE(shown->answer->find("(not shown)"), std::string::npos);
  plans.inputs.environment = {{"QUIRE_OTLP_TRACES_ENDPOINT", ""}};
  EXPECT_TRUE(plans.Plan({})->worker_environment.empty()) << "empty is none";
}

TEST(ServePlan, PeersShareTheirWorkersUnderCertificates) {
  Plans plans;
  const std::vector<std::string> files = {"--peer-tls-ca-file=ca", "--peer-tls-cert-file=crt",
                                          "--peer-tls-key-file=key"};
  std::vector<std::string> args = {"demo", "--peer-worker-dns=gemma-predictor:9100",
                                   "--peer-address=10.1.2.3"};
  EXPECT_NE(StatusMessage(plans.Plan(args).status()).find("--peer-tls-ca-file"), std::string::npos);
  args.insert(args.end(), files.begin(), files.end());
  const auto plan = plans.Plan(args);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->worker_listen, "10.1.2.3:9100");
  EXPECT_EQ(plan->router_args, (std::vector<std::string>{
                                   "--worker-dns=gemma-predictor:9100", "--worker-tls-ca-file=ca",
                                   "--worker-tls-cert-file=crt", "--worker-tls-key-file=key"}));
  for (const char* wanted : {"--tls-ca-file=ca", "--tls-cert-file=crt", "--tls-key-file=key"}) {
    EXPECT_EQ(std::count(plan->worker_args.begin(), plan->worker_args.end(), wanted), 1) << wanted;
  }
  args[2] = "--peer-address=fd00::7";
  EXPECT_EQ(plans.Plan(args)->worker_listen, "[fd00::7]:9100");
  args.push_back("--workers=2");
  EXPECT_NE(StatusMessage(plans.Plan(args).status()).find("--workers"), std::string::npos);
  args.pop_back();
  args.erase(args.begin() + 2);
  EXPECT_NE(StatusMessage(plans.Plan(args).status()).find("--peer-address"), std::string::npos);
  EXPECT_NE(StatusMessage(plans.Plan({"demo", files[0]}).status()).find("--peer-worker-dns"),
            std::string::npos);
  EXPECT_EQ(plans.Plan({"demo"})->worker_listen, "127.0.0.1:0");
}

TEST(ServePlan, TakesWhatKserveGivesToVllm) {
  Plans plans;
  plans.inputs.environment = {
      {"VLLM_ADDITIONAL_ARGS", "--threads=8  --collect-detailed-traces all"}};
  const auto plan = plans.Plan({"demo", "--served-model-name", "a", "publishers/ns/models/a",
                                "--shutdown-timeout", "45", "--enable-ssl-refresh",
                                "--disable-access-log-for-endpoints", "/health,/metrics"});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (const char* wanted :
       {"--served-model-name=a", "--served-model-name=publishers/ns/models/a", "--threads=8"}) {
    EXPECT_EQ(std::count(plan->worker_args.begin(), plan->worker_args.end(), wanted), 1) << wanted;
  }
  EXPECT_EQ(std::count(plan->router_args.begin(), plan->router_args.end(), "--drain-timeout=45s"),
            1);
  ASSERT_EQ(plan->warnings.size(), 1u);
  EXPECT_NE(plan->warnings[0].find("--collect-detailed-traces"), std::string::npos);
  EXPECT_TRUE(plans.Plan({"demo", "--enable-chunked-prefill", "--disable-log-requests"}).ok());
  EXPECT_EQ(
      plans.Plan({"demo", "--fully-sharded-loras", "--lora-modules", "a=/a", "b=/b"})->worker_args,
      (std::vector<std::string>{"--threads=8", "--lora-modules=a=/a", "--lora-modules=b=/b"}));
  EXPECT_EQ(plans.Plan({"demo", "--max-cpu-loras", "4", "--lora-dtype=auto"})->warnings.size(), 3u);
  EXPECT_EQ(plans.Plan({"demo", "--enforce-eager"})->warnings.size(), 2u);
}

TEST(ServePlan, SaysWhatToSayInsteadOfVllmsFlags) {
  Plans plans;
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--model", "demo"}, "--model is vLLM's: the model is the first word"},
      {{"demo", "--gpu-memory-utilization=0.9"}, "--kv-cache-memory-bytes says a size"},
      {{"demo", "--data-parallel-size", "2"}, "--workers"}};
  for (const auto& [args, needle] : cases) {
    const auto plan = plans.Plan(args);
    ASSERT_FALSE(plan.ok()) << needle;
    EXPECT_NE(StatusMessage(plan.status()).find(needle), std::string::npos) << plan.status();
  }
  EXPECT_TRUE(FromVllm({"--model=x"}, "", [](std::string_view) { return true; }).refusal.empty())
      << "a flag of ours";
}

TEST(VllmFlags, AFlagOfOursIsNeverTouched) {
  const auto none = [](std::string_view) { return false; };
  const auto all = [](std::string_view) { return true; };
  const std::vector<std::string> args = {"--shutdown-timeout=4", "m", "--trust-remote-code"};
  EXPECT_EQ(FromVllm(args, "", all).args, args);
  EXPECT_EQ(FromVllm(args, "", none).args, (std::vector<std::string>{"--drain-timeout=4s", "m"}));
  EXPECT_EQ(FromVllm({"--served-model-name", "a", "m"}, "", all).args,
            (std::vector<std::string>{"--served-model-name", "a", "m"}))
      << "the model may come last";
  EXPECT_TRUE(FromVllm({}, "  ", none).args.empty());
  EXPECT_EQ(FromVllm({"--shutdown-timeout"}, "", none).args,
            (std::vector<std::string>{"--drain-timeout=s"}))
      << "for the schema to refuse";
}

TEST(ServePlan, RefusesInOneLineThatNamesWhatIsWrong) {
  Plans plans;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"demo", "--prot", "9"}, "--port"},
      {{"nothing-here"}, "demo"},
      {{"demo", "--workers", "0"}, "--workers"},
      {{"demo", "--workers", "65"}, "--workers"},
      {{"demo", "--listen", "1.2.3.4:5"}, "--listen"},
      {{"demo", "second"}, "second"},
  };
  for (const auto& [args, needle] : cases) {
    const auto plan = plans.Plan(args);
    ASSERT_FALSE(plan.ok()) << needle;
    const std::string message = StatusMessage(plan.status());
    EXPECT_NE(message.find(needle), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  EXPECT_TRUE(plans.Plan({"demo", "--workers", "64"}).ok());
}

TEST(ServePlan, HelpListsAllFlags) {
  Plans plans;
  const auto plan = plans.Plan({"--help"});
  ASSERT_TRUE(plan.ok());
  EXPECT_TRUE(plan->answer.has_value());
  for (const char* name : {"--workers", "--port", "--threads", "MODEL"}) {
    EXPECT_NE(plan->answer->find(name), std::string::npos) << name;
  }
  EXPECT_EQ(plan->answer->find("--listen"), std::string::npos);
}

TEST(ModelNames, AFolderIsAModelOnlyWithWeights) {
  TempFolder folder;
  folder.Write("a/config.json", "{}");
  folder.Write("a/model.safetensors", "1234");
  folder.Write("b/model.gguf", "12");
  folder.Write("c/config.json", "{}");
  folder.Write("d/one.gguf", "1");
  folder.Write("d/two.gguf", "1");
  const auto models = ListModels({folder.path(), folder.path() + "/absent"});
  ASSERT_EQ(models.size(), 2u);
  EXPECT_EQ(models[0].name, "a");
  EXPECT_EQ(models[0].bytes, 4);
  EXPECT_EQ(models[1].path, folder.path() + "/b/model.gguf");
  const auto by_path = ResolveModel(folder.path() + "/d/one.gguf", {});
  ASSERT_TRUE(by_path.ok());
  EXPECT_EQ(by_path->served_name, "one");
  EXPECT_EQ(ResolveModel(folder.path() + "/c/", {})->served_name, "c");
  EXPECT_EQ(ResolveModel("zzz", {folder.path()}).status().code(), absl::StatusCode::kNotFound);
}

TEST(RestartPolicy, WaitsLongerEachTimeAndGivesUpAtTheFifthFailureInAMinute) {
  RestartPolicy policy;
  EXPECT_EQ(policy.OnDeath(0), 200);
  EXPECT_EQ(policy.OnDeath(1000), 400);
  EXPECT_EQ(policy.OnDeath(2000), 800);
  EXPECT_EQ(policy.OnDeath(3000), 1600);
  EXPECT_EQ(policy.OnDeath(4000), -1);
  RestartPolicy slow;
  for (int i = 0; i < 100; ++i) EXPECT_GE(slow.OnDeath(i * 20'000), 200) << i;
}

// Polls a bounded number of times; the child is a shell that ends by itself.
std::optional<int> Reap(ChildProcess& child) {
  for (int i = 0; i < 2000; ++i) {
    if (auto code = child.TryReap()) return code;
    usleep(5000);
  }
  return std::nullopt;
}

TEST(ChildProcess, ReportsItsReadyLineAndItsExitCode) {
  TempFolder folder;
  folder.Write(
      "child",
      "#!/bin/sh\nfd=${1#--ready-fd=}\neval \"echo '{\\\"listen\\\":\\\"x\\\"}' >&$fd\"\nexit 7\n");
  fs::permissions(folder.path() + "/child", fs::perms::owner_all);
  auto child = ChildProcess::Start(folder.path() + "/child", {}, {"PATH=/bin:/usr/bin"});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_EQ(Reap(*child), 7);
  EXPECT_EQ(child->ReadReadyLine(), "{\"listen\":\"x\"}");
  EXPECT_EQ(child->ready_fd(), -1);
}

TEST(ChildProcess, ASignalIsToldAs128PlusItsNumber) {
  auto child = ChildProcess::Start("/bin/sleep", {"100"}, {});
  ASSERT_TRUE(child.ok());
  // sleep refuses the added flag by itself: code 1.
  EXPECT_EQ(Reap(*child), 1);
  EXPECT_EQ(child->ReadReadyLine(), "");
  TempFolder folder;
  folder.Write("child", "#!/bin/sh\nkill -9 $$\n");
  fs::permissions(folder.path() + "/child", fs::perms::owner_all);
  auto killed = ChildProcess::Start(folder.path() + "/child", {}, {"PATH=/bin"});
  EXPECT_EQ(Reap(*killed), 128 + SIGKILL);
}

TEST(ChildProcess, AMissingProgramIsNamed) {
  const auto child = ChildProcess::Start("/nowhere/quire-worker", {}, {});
  EXPECT_NE(StatusMessage(child.status()).find("/nowhere/quire-worker"), std::string::npos);
}

TEST(ParseUrl, TakesHostAndPort) {
  EXPECT_EQ(client::ParseUrl("http://127.0.0.1:8000/v1")->port, "8000");
  EXPECT_EQ(client::ParseUrl("localhost")->port, "80");
  EXPECT_EQ(client::ParseUrl("h:1")->host, "h");
  EXPECT_FALSE(client::ParseUrl("http://h:1")->tls);
  EXPECT_TRUE(client::ParseUrl("https://h")->tls);
  EXPECT_EQ(client::ParseUrl("https://h/v1")->port, "443");
  EXPECT_EQ(client::ParseUrl("https://h:8443")->port, "8443");
  EXPECT_EQ(client::ParseUrl("https://[::1]:8443")->host, "::1");
  EXPECT_EQ(client::ParseUrl("https://[::1]:8443")->port, "8443");
  EXPECT_EQ(client::ParseUrl("http://[::1]")->port, "80");
  EXPECT_FALSE(client::ParseUrl("ftp://x").ok());
  EXPECT_FALSE(client::ParseUrl("http://[::1").ok());
  EXPECT_FALSE(client::ParseUrl("http://").ok());
  EXPECT_FALSE(client::ParseUrl(":80").ok());
}

}  // namespace
}  // namespace quire::cli
