#include "cli/check/doctor_checks.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/format.h"

namespace quire::cli {
namespace {

const Finding* Of(const std::vector<Finding>& findings, const std::string& subject) {
  for (const Finding& finding : findings) {
    if (finding.subject == subject) return &finding;
  }
  return nullptr;
}

Machine Healthy() {
  Machine machine;
  machine.processor = "A processor";
  machine.features = {"fma", "avx2", "f16c", "avx512f", "avx512bw", "avx512_vnni"};
  machine.affinity_cpus = 8;
  machine.total_bytes = int64_t{32} << 30;
  machine.available_bytes = int64_t{30} << 30;
  machine.shared_memory_bytes = int64_t{1} << 30;
  machine.open_files_soft = 1024;
  machine.open_files_hard = 1 << 20;
  machine.huge_pages = "madvise";
  return machine;
}

TEST(Doctor, AHealthyMachineNeedsNothing) {
  const std::vector<Finding> findings = JudgeMachine(Healthy());
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.subject << ": " << finding.what;
    EXPECT_EQ(finding.remedy, "") << finding.subject;
  }
  EXPECT_EQ(Of(findings, "processor")->what, "A processor, AVX-512, VNNI");
  EXPECT_EQ(Of(findings, "memory")->what, "30 GiB available of 32 GiB");
}

TEST(Doctor, WhatIsShortIsNamedWithWhatToDo) {
  Machine machine = Healthy();
  machine.features = {"sse2"};
  machine.quota_cpus = 0.5;
  machine.available_bytes = int64_t{512} << 20;
  machine.open_files_hard = 1024;
  machine.shared_memory_bytes = -1;
  machine.huge_pages = "never";
  const std::vector<Finding> findings = JudgeMachine(machine);
  for (const char* subject :
       {"processor", "cpus", "memory", "open files", "shared memory", "huge pages"}) {
    const Finding* finding = Of(findings, subject);
    ASSERT_NE(finding, nullptr) << subject;
    EXPECT_EQ(finding->verdict, Verdict::kWarning) << subject;
    EXPECT_NE(finding->remedy, "") << subject;
  }
}

TEST(Doctor, AMachineIsReadFromItsFilesAndMissingOnesAreSurvived) {
  const std::filesystem::path root = testing::TempDir() + "quire_doctor/";
  std::filesystem::remove_all(root);
  EXPECT_EQ(ReadMachine(root).processor, "unknown processor");
  std::filesystem::create_directories(root / "proc/self");
  std::filesystem::create_directories(root / "sys/fs/cgroup/a/b");
  std::filesystem::create_directories(root / "sys/kernel/mm/transparent_hugepage");
  std::filesystem::create_directories(root / "dev");
  std::ofstream(root / "proc/cpuinfo")
      << "processor\t: 0\nmodel name\t: Fast One\nflags\t\t: fma avx2\n";
  std::ofstream(root / "proc/meminfo") << "MemTotal:  2048 kB\nMemAvailable:   1024 kB\n";
  std::ofstream(root / "proc/self/cgroup") << "0::/a/b\n";
  std::ofstream(root / "sys/fs/cgroup/a/cpu.max") << "150000 100000\n";
  std::ofstream(root / "sys/fs/cgroup/a/b/cpu.max") << "max 100000\n";
  std::ofstream(root / "sys/kernel/mm/transparent_hugepage/enabled") << "always madvise [never]\n";
  std::ofstream(root / "dev/nvidia0") << "";
  const Machine machine = ReadMachine(root);
  EXPECT_EQ(machine.processor, "Fast One");
  EXPECT_EQ(machine.features, (std::vector<std::string>{"fma", "avx2"}));
  EXPECT_EQ(machine.available_bytes, 1 << 20);
  EXPECT_EQ(machine.quota_cpus, 1.5) << "the parent's is tighter than none";
  EXPECT_EQ(machine.huge_pages, "never");
  EXPECT_EQ(machine.gpus, 1);
  std::filesystem::remove_all(root);
}

TEST(Doctor, ATakenPortAndAPeerThatIsNotThereAreBad) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd, 1), 0);
  ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const int port = ntohs(address.sin_port);
  const std::string place = "127.0.0.1:" + std::to_string(port);
  const std::atomic<bool> cancelled = false;
  const Finding taken = CheckPort("127.0.0.1", port, "--port");
  EXPECT_EQ(taken.verdict, Verdict::kBad);
  EXPECT_EQ(taken.what, place + " is taken");
  EXPECT_NE(taken.remedy.find("--port "), std::string::npos);
  EXPECT_EQ(CheckPeer(place, cancelled).verdict, Verdict::kGood);
  close(fd);
  EXPECT_EQ(CheckPort("127.0.0.1", port, "--port").verdict, Verdict::kGood);
  EXPECT_EQ(CheckPeer(place, cancelled).verdict, Verdict::kBad);
  EXPECT_EQ(CheckPeer("gopher://x", cancelled).verdict, Verdict::kBad);
  EXPECT_EQ(CheckPort("256.0.0.1", 1, "--port").verdict, Verdict::kBad);
}

TEST(Doctor, FindingsAreToldToPeopleAndToPrograms) {
  const std::vector<Finding> findings = {{"a", Verdict::kGood, "fine", ""},
                                         {"b", Verdict::kBad, "broken", "mend it"}};
  EXPECT_EQ(FindingsText(findings),
            "ok   a              fine\nBAD  b              broken\n"
            "                    -> mend it\n");
  EXPECT_TRUE(FindingsJson(findings).starts_with("{\"good\":false,\"findings\":[{\"subject\":"));
}

TEST(WorkerPlan, ALineOfAnotherFormIsRefusedByName) {
  EXPECT_FALSE(ParseWorkerPlan("").ok());
  EXPECT_FALSE(ParseWorkerPlan("[]").ok());
  EXPECT_NE(StatusMessage(ParseWorkerPlan("{\"family\":1}").status()).find("'family'"),
            std::string::npos);
  const std::string line =
      "{\"family\":\"llama\",\"device\":\"cpu\",\"numerics\":\"n\",\"context\":1024,"
      "\"max_model_len\":512,\"max_num_seqs\":8,\"block_size\":16,\"usable_bytes\":100,"
      "\"weight_bytes\":50,\"workspace_bytes\":10,\"adapter_bytes\":0,"
      "\"draft_bytes\":0,\"kv_bytes\":20,"
      "\"constraint_bytes\":5,\"free_bytes\":15,"
      "\"page_count\":4,\"largest_context\":64,\"largest_context_with_all_memory\":128,"
      "\"largest_batch\":1,\"largest_batch_with_all_memory\":2,\"read_bytes_per_second\":1e9,"
      "\"limited_by_cgroup\":true,\"bandwidth_is_measured\":false,"
      "\"fits\":[{\"context\":512,\"sequences\":2,\"tokens_per_second\":1234.5,"
      "\"tokens_per_second_alone\":700}]}";
  const auto plan = ParseWorkerPlan(line);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const std::string text = WorkerPlanText(*plan);
  for (const char* part : {"llama", "cgroup", "as given", "       512          2", "1.23k", "700",
                           "--kv-cache-memory-bytes 35: context 128, batch 2"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
  EXPECT_EQ(text.find("experts"), std::string::npos);
  EXPECT_EQ(text.find("draft"), std::string::npos);
  const auto mixture = ParseWorkerPlan(line.substr(0, line.size() - 1) +
                                       R"(,"expert_bytes":2000000,"step_weight_bytes":3000000})");
  ASSERT_TRUE(mixture.ok()) << mixture.status();
  EXPECT_NE(WorkerPlanText(*mixture).find(BytesText(2e6) + " of experts; one token reads " +
                                          BytesText(3e6)),
            std::string::npos)
      << WorkerPlanText(*mixture);
  const auto latent =
      ParseWorkerPlan(line.substr(0, line.size() - 1) +
                      R"(,"cache_bytes_per_token":31104,"head_bytes_per_token":276480})");
  ASSERT_TRUE(latent.ok()) << latent.status();
  EXPECT_NE(WorkerPlanText(*latent).find("31104 bytes of latents per token; keys and values of all "
                                         "heads would take 276480"),
            std::string::npos)
      << WorkerPlanText(*latent);
  EXPECT_EQ(text.find("latents"), std::string::npos);
  EXPECT_EQ(text.find("state"), std::string::npos);
  const auto hybrid = ParseWorkerPlan(line.substr(0, line.size() - 1) +
                                      R"(,"state_bytes":2000000,"state_interval":480})");
  ASSERT_TRUE(hybrid.ok()) << hybrid.status();
  EXPECT_NE(WorkerPlanText(*hybrid).find(
                BytesText(2e6) + " of them a sequence's state; one is kept every 480 tokens"),
            std::string::npos)
      << WorkerPlanText(*hybrid);
  EXPECT_EQ(JudgePlan("m", *plan).verdict, Verdict::kWarning) << "a part of the context";
  EXPECT_FALSE(ParseWorkerPlan(line.substr(0, line.size() - 4) + "x\"}]}").ok());
}

TEST(Format, NumbersForPeople) {
  EXPECT_EQ(BytesText(512), "512 B");
  EXPECT_EQ(BytesText(1536), "1.50 KiB");
  EXPECT_EQ(CountText(999), "999");
  EXPECT_EQ(CountText(12'345), "12.3k");
  EXPECT_EQ(MillisText(0.25), "250 µs");
  EXPECT_EQ(MillisText(1500), "1.50 s");
  EXPECT_EQ(MillisText(0), "0 ms");
  EXPECT_EQ(PlainText("a\x1b[31mb\n", 100), "a?[31mb?") << "nothing speaks to the terminal";
  EXPECT_EQ(PlainText("abc", 2), "ab");
  EXPECT_EQ(PlainText("\xe2\x80\xae"
                      "abc\t",
                      100),
            "?abc?");
}

TEST(Format, WhatCommandsATerminalIsShownAsAQuestionMark) {
  EXPECT_EQ(WithoutControls("\x1b]52;c;aGk=\x07"), "?]52;c;aGk=?");
  EXPECT_EQ(WithoutControls(std::string("a\0b\r\nc\td\x7f", 9)), "a?b?\nc\td?");
  // C1 and those beside it: U+007E, U+0080, U+009B (which begins commands as ESC [ does), U+009F,
  // U+00A0.
  EXPECT_EQ(WithoutControls("~\xc2\x80\xc2\x9b"
                            "31m\xc2\x9f\xc2\xa0"),
            "~??31m?\xc2\xa0");
  // U+2029, U+202A, U+202E, U+202F; U+2065, U+2066, U+2069, U+206A.
  EXPECT_EQ(WithoutControls("\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf"),
            "\xe2\x80\xa9??\xe2\x80\xaf");
  EXPECT_EQ(WithoutControls("\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa"),
            "\xe2\x81\xa5??\xe2\x81\xaa");
  // No UTF-8: a bare C1 byte, an overlong one, a cut one.
  EXPECT_EQ(WithoutControls("a\x9b"
                            "31m\xc0\x9b\xe2\x80"),
            "a?31m????");
  const std::string readable = "größer 語 🙂\n\tcode";
  EXPECT_EQ(WithoutControls(readable), readable);
}

// With a library that stands in for NVML.
class DoctorGpus : public testing::Test {
 protected:
  static std::vector<Finding> Check(const std::string& words, const std::string& folder, int gpus,
                                    int64_t limit_millis = 60'000) {
    setenv("FAKE_NVML", words.c_str(), 1);
    kernels::LibraryPlaces places;
    places.named = QUIRE_BINARY_DIR "/tests/fake_cuda/" + folder;
    std::vector<Finding> findings = CheckGpus(places, gpus, limit_millis);
    unsetenv("FAKE_NVML");
    return findings;
  }
};

TEST_F(DoctorGpus, AreToldWithWhatIsWrong) {
  const auto well = Check("reasons=4", "nvml", 1);
  ASSERT_EQ(well.size(), 1u);
  EXPECT_EQ(well[0].verdict, Verdict::kGood);
  EXPECT_EQ(well[0].what,
            "Paper 9000 (GPU-00000000-0000-0000-0000-000000000000): 41 C, 310 W, throttled by "
            "power, 1.0 of 80.0 GiB in use");
  for (const char* wrong : {"uncorrected=1", "xid=79", "reasons=8", "reasons=32", "lost=1"}) {
    const auto ill = Check(wrong, "nvml", 1);
    ASSERT_EQ(ill.size(), 1u);
    EXPECT_EQ(ill[0].verdict, Verdict::kWarning) << wrong;
    EXPECT_NE(ill[0].remedy, "") << wrong;
  }
}

TEST_F(DoctorGpus, WithoutNvmlAreAWarningWhereTheMachineHasSome) {
  EXPECT_TRUE(Check("", "nowhere", 0).empty());
  const auto findings = Check("", "nowhere", 2);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::kWarning);
  EXPECT_NE(findings[0].what.find("libnvidia-ml.so.1 cannot be used"), std::string::npos);
  EXPECT_TRUE(Check("count=0", "nvml", 0).empty());
}

TEST_F(DoctorGpus, OfADriverThatHangsAreBad) {
  setenv("FAKE_NVML", "hang_init=1", 1);
  kernels::LibraryPlaces places;
  places.named = QUIRE_BINARY_DIR "/tests/fake_cuda/nvml";
  const auto findings = CheckGpus(places, 1, 500);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, Verdict::kBad);
  EXPECT_EQ(findings[0].what, "the driver does not answer within 500 ms");
}

}  // namespace
}  // namespace quire::cli
