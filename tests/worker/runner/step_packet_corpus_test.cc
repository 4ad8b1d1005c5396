// The corpus that the packet's fuzzing starts from is of the version that is decoded: a file that
// stops at the version check explores nothing.
//
// After a change of the packet: QUIRE_WRITE_CORPUS=1 build/tests/test_worker_runner
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/packet_limits.h"

namespace quire {
namespace {

constexpr char kFolder[] = QUIRE_SOURCE_DIR "/tests/fuzz/corpus/step_packet/";

RowBirth Birth(int32_t row, int32_t prompt_length) {
  RowBirth birth;
  birth.row = row;
  birth.sequence = 1000 + static_cast<uint64_t>(row);
  birth.prompt_length = prompt_length;
  return birth;
}

// A row with every sampling parameter away from its default.
StepPlan Sampling() {
  StepPlan plan;
  plan.number = 77;
  plan.retired = {3, 1};
  RowBirth birth = Birth(3, 5);
  birth.choice = 2;
  birth.adapter_slot = 1;
  birth.end_ids = {1, 49};
  birth.constrained = true;
  SamplingParams& sampling = birth.sampling;
  sampling.temperature = 0.25f;
  sampling.top_k = 7;
  sampling.top_p = 0.9f;
  sampling.min_p = 0.1f;
  sampling.typical_p = 0.8f;
  sampling.repetition_penalty = 1.2f;
  sampling.presence_penalty = 0.3f;
  sampling.frequency_penalty = -0.4f;
  sampling.seed = 0xFEDCBA9876543210ull;
  sampling.min_tokens = 2;
  sampling.max_tokens = 20;
  sampling.stop_token_ids = {1};
  sampling.logit_bias = {{4, -1.5f}};
  sampling.allowed_token_ids = {4, 5, 6};
  sampling.bad_words = {{1, 2}, {3}};
  sampling.logprobs = 3;
  plan.born.push_back(birth);
  plan.appends = {{3, 0, 0, 99}, {3, 0, 1, 98}, {3, 1, 0, 5}, {3, 1, 1, 4}, {3, 2, 0, 6}};
  plan.rows = {{3, 0, 5, 0, 5, true, 0, 0}};
  plan.tokens = {10, 11, 12, 13, 14};
  return plan;
}

// Rows that run: their input is what they sampled last.
StepPlan Decoding() {
  StepPlan plan;
  plan.number = 5000;
  plan.drops = {{2, 1, 4}, {2, 2, 4}};
  plan.appends = {{2, 0, 4, 17}};
  plan.rows = {{2, 16, 1, 0, 0, true, 0, 0}, {0, 90, 1, 0, 0, true, 0, 0}};
  return plan;
}

// A prompt whose tokens are scored, in the middle of it.
StepPlan Scoring() {
  StepPlan plan;
  plan.number = 2;
  RowBirth birth = Birth(1, 40);
  birth.sampling.prompt_logprobs = 3;
  plan.born.push_back(birth);
  plan.appends = {{1, 0, 0, 9}, {1, 1, 0, 10}, {1, 2, 0, 11}};
  plan.rows = {{1, 0, 4, 0, 5, false, 0, 4}};
  plan.tokens = {1, 2, 3, 4, 5};
  return plan;
}

// Choices that share a prompt and copy its last page.
StepPlan Choices() {
  StepPlan plan;
  plan.number = 3;
  plan.copies = {{7, 8}, {9, 10}};
  for (const int32_t row : {4, 5}) {
    RowBirth birth = Birth(row, 3);
    birth.choice = static_cast<uint32_t>(row - 4);
    plan.born.push_back(birth);
    plan.appends.push_back({row, 0, 0, row == 4 ? 7 : 8});
  }
  plan.rows = {{4, 2, 1, 0, 3, true, 0, 0}, {5, 2, 1, 3, 3, true, 0, 0}};
  plan.tokens = {20, 21, 22, 20, 21, 22};
  return plan;
}

// A row whose drafts are verified, beside one without any.
StepPlan Drafting() {
  StepPlan plan;
  plan.number = 9;
  plan.appends = {{2, 0, 2, 17}, {2, 1, 2, 18}};
  plan.rows = {{2, 30, 4, 0, 0, true, 0, 0, 3}, {0, 90, 1, 0, 0, true, 0, 0, 0}};
  plan.drafts = {7, 8, 9};
  return plan;
}

std::vector<std::byte> Encoded(const StepPlan& plan) {
  std::vector<std::byte> packet;
  EncodeStepPlan(plan, packet);
  return packet;
}

std::vector<std::byte> Read(const std::string& name) {
  std::ifstream file(kFolder + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << kFolder + name;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void Write(const std::string& name, std::span<const std::byte> packet) {
  std::ofstream file(kFolder + name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(packet.data()),
             static_cast<std::streamsize>(packet.size()));
}

TEST(StepPacketCorpus, IsOfThisVersion) {
  const std::map<std::string, StepPlan> plans = {{"sampling", Sampling()},
                                                 {"decoding", Decoding()},
                                                 {"scoring", Scoring()},
                                                 {"choices", Choices()},
                                                 {"drafting", Drafting()}};
  for (const auto& [name, plan] : plans) {
    SCOPED_TRACE(name);
    const std::vector<std::byte> packet = Encoded(plan);
    if (std::getenv("QUIRE_WRITE_CORPUS") != nullptr) Write(name, packet);
    const std::vector<std::byte> file = Read(name);
    EXPECT_EQ(file, packet) << "the packet has changed: write the corpus again";
    StepPlan back;
    const absl::Status status = DecodeStepPlan(file, test::SmallPacketLimits(), back);
    EXPECT_TRUE(status.ok()) << status;
  }
}

// What is damaged gets past the version, too.
TEST(StepPacketCorpus, WhatIsDamagedIsRefusedForItsDamage) {
  std::vector<std::byte> cut = Encoded(Sampling());
  cut.resize(cut.size() / 2);
  if (std::getenv("QUIRE_WRITE_CORPUS") != nullptr) Write("cut", cut);
  EXPECT_EQ(Read("cut"), cut);
  StepPlan back;
  const absl::Status status = DecodeStepPlan(cut, test::SmallPacketLimits(), back);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.message().find("version"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace quire
