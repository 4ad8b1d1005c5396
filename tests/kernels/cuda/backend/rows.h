// Golden models through the device and the CPU: rows of logits, and how far they lie
// apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/golden/driver.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/rank_driver.h"
#include "tests/kernels/cuda/backend/device.h"
#include "worker/model/model.h"

namespace quire::golden {

inline std::unique_ptr<model::Model> OpenFixture(const std::string& name) {
  std::string path = SourceFolder() + "/tests/golden/models/" + name;
  if (std::filesystem::exists(path + "/model.gguf")) path += "/model.gguf";
  model::LoadOptions options;
  options.with_text = false;
  auto model = model::LoadModel(path, options);
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return nullptr;
  EXPECT_TRUE((*model)->FillWeights().ok());
  return *std::move(model);
}

// Rows of all tokens, fed in pieces of `chunk`; 0: at once.
inline std::vector<Row> RunAll(Driver& driver, std::span<const int32_t> tokens, size_t chunk) {
  driver.Reset();
  std::vector<Row> rows;
  for (size_t begin = 0; begin < tokens.size();) {
    const size_t count = chunk == 0 ? tokens.size() : std::min(chunk, tokens.size() - begin);
    std::vector<int32_t> wanted(count);
    std::iota(wanted.begin(), wanted.end(), 0);
    for (Row& row : driver.Feed(tokens.subspan(begin, count), wanted)) {
      rows.push_back(std::move(row));
    }
    begin += count;
  }
  return rows;
}

inline double SquaredNorm(const std::vector<float>& a) {
  double sum = 0.0;
  for (const float x : a) sum += static_cast<double>(x) * x;
  return sum;
}

inline std::vector<float> Difference(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

// How far `got` lies from `exact`, of the norm of `exact`.
inline double RelativeError(const std::vector<Row>& got, const std::vector<Row>& exact) {
  double off = 0.0;
  double all = 0.0;
  for (size_t i = 0; i < got.size(); ++i) {
    off += SquaredNorm(Difference(got[i].logits, exact[i].logits));
    all += SquaredNorm(exact[i].logits);
  }
  return std::sqrt(off / all);
}

inline Golden GoldenOf(const std::string& name) {
  return ReadGolden(SourceFolder() + "/tests/golden/models/" + name + "/golden.json");
}

inline std::unique_ptr<Driver> Drive(const model::Model& model, DriverOptions options) {
  options.max_positions = 128;
  std::string error;
  std::unique_ptr<Driver> driver = Driver::Make(model, options, error);
  EXPECT_NE(driver, nullptr) << error;
  return driver;
}
inline std::unique_ptr<Driver> DriveDevice(const model::Model& model, DriverOptions options = {}) {
  options.make_backend = MakeDeviceBackend;
  return Drive(model, std::move(options));
}
inline std::unique_ptr<Driver> DriveCpu(const model::Model& model, DriverOptions options = {}) {
  return Drive(model, std::move(options));
}

// Ranks with a device each, and room for two sequences.
inline std::unique_ptr<RankDriver> DriveRanks(model::Model& model, int ranks,
                                              bool whole_experts = false) {
  RankDriver::Options options;
  options.ranks = ranks;
  options.whole_experts = whole_experts;
  options.sequences = 2;
  options.make_backend = MakeDeviceBackend;
  std::string error;
  std::unique_ptr<RankDriver> driver = RankDriver::Make(model, options, error);
  EXPECT_NE(driver, nullptr) << error;
  return driver;
}

inline std::string TestName(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace quire::golden
