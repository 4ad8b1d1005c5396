// What a model's identity depends on, and what it does not.
#include "worker/load/model_id.h"

#include <gtest/gtest.h>

#include "tests/worker/load/file_maker.h"

namespace quire::load {
namespace {

class ModelIdTest : public testing::Test {
 protected:
  ModelIdTest() : data_(400'000, 'a') {}

  TensorTable Table() const {
    TensorTable table;
    Tensor tensor;
    tensor.name = "w";
    tensor.type_name = "F32";
    tensor.type = kernels::DType::kF32;
    tensor.shape = {100, 1'000};
    tensor.bytes = AsBytes(data_);
    tensor.file = file_;
    EXPECT_TRUE(table.Add(tensor).ok());
    return table;
  }
  std::string Id() const { return ModelId(config_, text_, Table()); }

  ModelConfig config_;
  std::string text_ = "bundle";
  std::string data_;
  std::string file_ = "here";
};

TEST_F(ModelIdTest, IsSixtyFourHexadecimalDigits) {
  EXPECT_EQ(Id().size(), 64u);
  EXPECT_EQ(Id().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(Id(), Id());
}

TEST_F(ModelIdTest, DoesNotDependOnThePath) {
  const std::string before = Id();
  file_ = "there";
  EXPECT_EQ(Id(), before);
}

TEST_F(ModelIdTest, DependsOnConfigurationAndText) {
  const std::string before = Id();
  config_.norm_epsilon = 1e-5;
  const std::string after = Id();
  EXPECT_NE(after, before);
  text_ = "other";
  EXPECT_NE(Id(), after);
}

TEST_F(ModelIdTest, ReadsStartMiddleAndEndOfATensor) {
  const std::string before = Id();
  for (const size_t place : {size_t{0}, data_.size() / 2, data_.size() - 1}) {
    data_[place] = 'b';
    EXPECT_NE(Id(), before) << place;
    data_[place] = 'a';
  }
  // Between them nothing is read: loading must not cost a pass over the file.
  data_[100'000] = 'b';
  EXPECT_EQ(Id(), before);
}

}  // namespace
}  // namespace quire::load
