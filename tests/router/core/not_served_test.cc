// The error for a name that no worker serves: the nearest name, a list of bounded length, and
// bounded work.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "router/core/result.h"

namespace quire {
namespace {

TEST(NotServed, NamesTheNearestAndWhatThereIs) {
  const ApiError error = NotServed("sql-exprt", {"base", "sql-expert"});
  EXPECT_EQ(error.code, ApiCode::kNotFound);
  EXPECT_EQ(error.param, "model");
  EXPECT_EQ(error.message,
            "model: 'sql-exprt' is not served; the nearest name is sql-expert; served are: base, "
            "sql-expert");
  EXPECT_EQ(NotServed("x", {}).message, "model: 'x' is not served; served are: none yet");
  EXPECT_EQ(NotServed("", {"base"}).code, ApiCode::kInvalidArgument);
}

TEST(NotServed, ListsAFewAndCountsTheOthers) {
  std::vector<std::string> names;
  for (int i = 0; i < 16; ++i) names.push_back("model-" + std::to_string(i));
  EXPECT_EQ(NotServed("x", names).message.find("more"), std::string::npos);
  names.emplace_back("model-16");
  EXPECT_NE(NotServed("x", names).message.find("model-15 and 1 more"), std::string::npos);
}

TEST(NotServed, ComparesABoundedNumberOfBytes) {
  const std::string at_limit(64, 'x');
  EXPECT_NE(NotServed(at_limit, {at_limit + "y"}).message.find("nearest"), std::string::npos);
  EXPECT_EQ(NotServed(at_limit + "x", {at_limit}).message.find("nearest"), std::string::npos);
  std::vector<std::string> names(127, "aaaa");
  names.emplace_back("abcd");
  EXPECT_NE(NotServed("abce", names).message.find("nearest name is abcd"), std::string::npos);
  names.insert(names.begin(), "aaaa");
  EXPECT_EQ(NotServed("abce", names).message.find("nearest"), std::string::npos)
      << "the 129th of the same length is not compared";
}

}  // namespace
}  // namespace quire
