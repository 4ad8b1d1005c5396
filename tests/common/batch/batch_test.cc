// Lines of batches: what is sent, what is refused in the format's own words, and what a second run
// finds done.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "common/batch/batch_input.h"
#include "common/batch/batch_output.h"
#include "common/batch/line_reader.h"

namespace quire::batch {
namespace {

namespace fs = std::filesystem;

const std::atomic<bool> kNever = false;

class BatchTest : public testing::Test {
 protected:
  BatchTest() {
    char path[] = "/tmp/quire_batch_XXXXXX";
    folder_ = mkdtemp(path);
  }
  ~BatchTest() override { fs::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) const {
    const fs::path path = folder_ / name;
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  std::string Text(const std::string& name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  fs::path folder_;
};

std::string Line(const std::string& custom_id,
                 const std::string& rest = R"("method":"POST","url":"/v1/completions",)"
                                           R"("body":{"prompt":"a"})") {
  return R"({"custom_id":")" + custom_id + "\"," + rest + "}";
}

std::string CodeOf(const std::string& line) {
  BatchRequest request;
  return ParseBatchLine(line, request).code;
}

TEST(BatchLine, IsReadWithItsBody) {
  BatchRequest request;
  const BatchFault fault = ParseBatchLine(Line("one"), request);
  EXPECT_EQ(fault.code, "") << fault.message;
  EXPECT_EQ(request.custom_id, "one");
  EXPECT_EQ(request.path, "/v1/completions");
  EXPECT_EQ(json::Serialize(request.body), R"({"prompt":"a"})");
}

TEST(BatchLine, FaultsHaveCodes) {
  EXPECT_EQ(CodeOf("{"), "invalid_json");
  EXPECT_EQ(CodeOf("[]"), "invalid_json");
  EXPECT_EQ(CodeOf(std::string(100'000, '[')), "invalid_json");
  EXPECT_EQ(CodeOf(R"({"method":"POST"})"), "invalid_custom_id");
  EXPECT_EQ(CodeOf(R"({"custom_id":7})"), "invalid_custom_id");
  EXPECT_EQ(CodeOf(Line("a", R"("method":"GET","url":"/v1/completions","body":{})")),
            "invalid_method");
  EXPECT_EQ(CodeOf(Line("a", R"("method":"POST","url":"/v1/moderations","body":{})")),
            "invalid_url");
  EXPECT_EQ(CodeOf(Line("a", R"("method":"POST","url":"/v1/completions")")), "invalid_body");
  EXPECT_EQ(CodeOf(Line("a", R"("method":"POST","url":"/v1/completions","body":"x")")),
            "invalid_body");
  EXPECT_EQ(CodeOf(Line("a", R"("method":"POST","url":"/v1/completions","body":{"stream":true})")),
            "invalid_body");
  EXPECT_EQ(CodeOf(Line("a", R"("method":"POST","url":"/v1/completions","body":{"stream":false})")),
            "");
}

TEST(BatchLine, LimitsOfIdAndLine) {
  EXPECT_EQ(CodeOf(Line(std::string(kMaxCustomIdBytes, 'i'))), "");
  EXPECT_EQ(CodeOf(Line(std::string(kMaxCustomIdBytes + 1, 'i'))), "invalid_custom_id");
  std::string line = Line("a");
  line.insert(line.size() - 1, std::string(kMaxBatchLineBytes - line.size(), ' '));
  ASSERT_EQ(line.size(), kMaxBatchLineBytes);
  EXPECT_EQ(CodeOf(line), "");
  line.insert(line.size() - 1, " ");
  EXPECT_EQ(CodeOf(line), "request_too_large");
}

TEST_F(BatchTest, InputNamesLinesAndFindsDuplicates) {
  const std::string path = Write(
      "in.jsonl", Line("a") + "\n\n" + Line("b") + "\r\nbroken\n" + Line("a") + "\n" + Line("c"));
  const auto input = BatchInput::Open({path, "in"}, {}, kNever);
  ASSERT_TRUE(input.ok()) << input.status();
  const auto& lines = (*input)->lines();
  ASSERT_EQ(lines.size(), 5u);
  const size_t numbers[] = {1, 3, 4, 5, 6};
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].number, numbers[i]);
  EXPECT_EQ(lines[1].fault, nullptr);
  ASSERT_NE(lines[2].fault, nullptr);
  EXPECT_EQ(lines[2].fault->code, "invalid_json");
  ASSERT_NE(lines[3].fault, nullptr);
  EXPECT_EQ(lines[3].fault->code, "duplicate_custom_id");
  EXPECT_NE(lines[3].fault->message.find("line 1"), std::string::npos);
  const auto request = (*input)->Read(lines[4]);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->custom_id, "c");
}

TEST_F(BatchTest, AnInputThatChangesIsNotSent) {
  const std::string path = Write("in.jsonl", Line("a") + "\n");
  const auto input = BatchInput::Open({path, "in"}, {}, kNever);
  ASSERT_TRUE(input.ok());
  Write("in.jsonl", Line("z") + "\n");
  EXPECT_EQ((*input)->Read((*input)->lines()[0]).status().code(), absl::StatusCode::kDataLoss);
  Write("in.jsonl", "");
  EXPECT_EQ((*input)->Read((*input)->lines()[0]).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(BatchTest, LinesAtTheLimitAndOneMore) {
  std::string text;
  for (size_t i = 0; i < kMaxBatchLines; ++i) text += "7\n";
  const auto most = BatchInput::Open({Write("in.jsonl", text), "in"}, {}, kNever);
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ((*most)->lines().size(), kMaxBatchLines);
  const auto more = BatchInput::Open({Write("in.jsonl", text + "7\n"), "in"}, {}, kNever);
  EXPECT_EQ(more.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(BatchTest, AnInputHasToBeAFile) {
  EXPECT_EQ(BatchInput::Open({(folder_ / "none").string(), "in"}, {}, kNever).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(BatchInput::Open({folder_.string(), "in"}, {}, kNever).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(BatchTest, LongLinesCostNoMemory) {
  const std::string path = Write("long", std::string(200'000, 'x') + "\nshort\n");
  FILE* file = std::fopen(path.c_str(), "rb");
  std::vector<std::pair<size_t, std::string>> seen;
  ASSERT_TRUE(ReadFileLines(fileno(file), 100, [&](const FileLine& line) {
                seen.emplace_back(line.bytes, std::string(line.text));
                return true;
              }).ok());
  std::fclose(file);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], std::make_pair(size_t{200'000}, std::string()));
  EXPECT_EQ(seen[1], std::make_pair(size_t{5}, std::string("short")));
}

TEST_F(BatchTest, WhatIsWrittenIsDoneNextTime) {
  const std::string path = (folder_ / "out.jsonl").string();
  {
    const auto output = BatchOutput::Open({path, "out"}, kNever);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_TRUE((*output)->done().empty());
    EXPECT_TRUE((*output)->Append(AnswerLine(1, "a\"", {200, "r-1", "{\"x\":\n1}"})).ok());
    EXPECT_TRUE((*output)->Append(AnswerLine(2, "b", {400, "r-2", "<html>"})).ok());
    EXPECT_TRUE((*output)->Append(FaultLine(3, "", "invalid_json", "why")).ok());
    EXPECT_EQ(BatchOutput::Open({path, "out"}, kNever).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(Text("out.jsonl"),
            R"({"id":"batch_req_1","custom_id":"a\"","response":{"status_code":200,)"
            R"("request_id":"r-1","body":{"x":1}},"error":null})"
            "\n"
            R"({"id":"batch_req_2","custom_id":"b","response":{"status_code":400,)"
            R"("request_id":"r-2","body":"<html>"},"error":null})"
            "\n"
            R"({"id":"batch_req_3","custom_id":null,"response":null,)"
            R"("error":{"code":"invalid_json","message":"why"}})"
            "\n");
  const auto output = BatchOutput::Open({path, "out"}, kNever);
  ASSERT_TRUE(output.ok()) << output.status();
  const auto& done = (*output)->done();
  ASSERT_EQ(done.size(), 3u);
  EXPECT_EQ(done.at(1).custom_id, "a\"");
  EXPECT_FALSE(done.at(1).failed);
  EXPECT_TRUE(done.at(2).failed);
  EXPECT_TRUE(done.at(3).failed);
}

// Reading them would hold many times their size: no more than what is before them is parsed.
TEST_F(BatchTest, BodiesOfAnswersAreWrittenAsTheyAreAndNotReadAgain) {
  const std::string body = std::string(100, '[') + std::string(100, ']');  // deeper than is parsed
  const std::string id = ",\"body\":{";
  const std::string own = AnswerLine(1, id, {200, "r", body, true});
  EXPECT_NE(own.find(",\"body\":[[["), std::string::npos) << own;
  EXPECT_NE(AnswerLine(1, id, {200, "r", body}).find(",\"body\":\"[[["), std::string::npos);
  const std::string lines = AnswerLine(2, id, {200, "r", "{\"a\":\n1}", true});
  EXPECT_NE(lines.find(",\"body\":{\"a\":1}"), std::string::npos) << lines;
  const std::string path = Write("out.jsonl", own + "\n" + lines + "\n");
  const auto output = BatchOutput::Open({path, "out"}, kNever);
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ((*output)->done().at(1).custom_id, id);
  EXPECT_EQ((*output)->done().at(2).custom_id, id);
  EXPECT_FALSE((*output)->done().at(1).failed);
}

TEST_F(BatchTest, HeadsOfResultsAtTheirLimitAreReadAndOneByteMoreIsNone) {
  for (const size_t more : {0, 1}) {
    const std::string empty = FaultLine(1, "a", "code", "");
    const std::string why(kMaxResultHeadBytes - empty.size() + more, 'x');
    const std::string path = Write("out.jsonl", FaultLine(1, "a", "code", why) + "\n");
    const auto output = BatchOutput::Open({path, "out"}, kNever);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ((*output)->done().contains(1), more == 0);
  }
}

// A kill may leave any beginning of the last line.
TEST_F(BatchTest, ATornLastLineIsCutOffAtEveryByte) {
  const std::string first = AnswerLine(1, "a", {200, "r", "{}"}) + "\n";
  const std::string second = AnswerLine(2, "b", {200, "r", "{}"}) + "\n";
  for (size_t cut = 0; cut <= second.size(); ++cut) {
    for (const std::string& before : {std::string(), first}) {
      const std::string path = Write("out.jsonl", before + second.substr(0, cut));
      const auto output = BatchOutput::Open({path, "out"}, kNever);
      ASSERT_TRUE(output.ok()) << output.status() << " at " << cut;
      const bool whole = cut == second.size();
      EXPECT_EQ((*output)->done().contains(2), whole);
      EXPECT_EQ(Text("out.jsonl"), before + (whole ? second : "")) << cut;
      EXPECT_TRUE((*output)->Append("next").ok());
      EXPECT_EQ(Text("out.jsonl"), before + (whole ? second : "") + "next\n");
    }
  }
}

TEST_F(BatchTest, AFileOfSomethingElseIsLeftAlone) {
  const std::string result = AnswerLine(1, "a", {200, "r", "{}"}) + "\n";
  for (const std::string& text :
       {std::string("my notes\n"), std::string("my notes"), "what\n" + result,
        result + "what\n" + AnswerLine(2, "b", {200, "r", "{}"}) + "\n", result + result,
        Line("a") + "\n"}) {
    const std::string path = Write("out.jsonl", text);
    EXPECT_EQ(BatchOutput::Open({path, "out"}, kNever).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
    EXPECT_EQ(Text("out.jsonl"), text);
  }
}

}  // namespace
}  // namespace quire::batch
