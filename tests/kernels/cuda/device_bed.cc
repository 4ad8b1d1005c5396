#include "tests/kernels/cuda/device_bed.h"

#include <fstream>
#include <sstream>

#include "kernels/cuda/emulate/emulated_runtime.h"

namespace quire::kernels::cuda::test {
namespace {

// The row of a kernel in budget.csv, by column name.
std::map<std::string, std::string> BudgetRow(const std::string& kernel) {
  std::ifstream file(std::string(QUIRE_SOURCE_DIR) + "/kernels/cuda/budget.csv");
  std::string line;
  std::vector<std::string> names;
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::stringstream split(line);
    for (std::string cell; std::getline(split, cell, ',');) cells.push_back(cell);
    if (names.empty()) {
      names = cells;
    } else if (!cells.empty() && cells[0] == kernel) {
      std::map<std::string, std::string> row;
      for (size_t i = 0; i < cells.size() && i < names.size(); ++i) row[names[i]] = cells[i];
      return row;
    }
  }
  return {};
}

}  // namespace

BedRuntime::BedRuntime(uint64_t seed) { body_ = std::make_unique<emulate::EmulatedRuntime>(seed); }

bool BedRuntime::counts() const { return true; }
const std::map<std::string, emulate::Counters>& BedRuntime::counters() const {
  return static_cast<const emulate::EmulatedRuntime&>(*body_).counters();
}
void BedRuntime::ClearCounters() { static_cast<emulate::EmulatedRuntime&>(*body_).ClearCounters(); }
void BedRuntime::LimitShared(uint32_t bytes) {
  static_cast<emulate::EmulatedRuntime&>(*body_).LimitShared(bytes);
}

void BedRuntime::SetTimes(double launch_seconds, double call_seconds) {
  static_cast<emulate::EmulatedRuntime&>(*body_).SetTimes(launch_seconds, call_seconds);
}

void ExpectWithinBudget(const BedRuntime& runtime, const std::string& kernel, double bytes_once,
                        double useful_tiles) {
  SCOPED_TRACE(kernel);
  auto row = BudgetRow(kernel);
  ASSERT_FALSE(row.empty()) << "no row in budget.csv";
  const auto found = runtime.counters().find(kernel);
  ASSERT_NE(found, runtime.counters().end()) << "never launched";
  const emulate::Counters& c = found->second;
  EXPECT_EQ(c.bank_conflicts, 0u);
  const double bytes = static_cast<double>(c.global_read_bytes + c.global_write_bytes);
  EXPECT_LE(bytes, std::stod(row["max_bytes_ratio"]) * bytes_once);
  EXPECT_GE(bytes, 0.99 * bytes_once) << "the shape's bytes are counted wrongly";
  if (!row["max_tile_ratio"].empty()) {
    EXPECT_LE(static_cast<double>(c.tensor_tiles), std::stod(row["max_tile_ratio"]) * useful_tiles);
    EXPECT_GE(static_cast<double>(c.tensor_tiles), useful_tiles);
  } else {
    EXPECT_EQ(c.tensor_tiles, 0u);
  }
}

}  // namespace quire::kernels::cuda::test
