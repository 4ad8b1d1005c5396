// The least that sampling a row can cost: one read of it that keeps the largest value.
#pragma once

#include <span>

namespace quire::bench {

float ReadForMax(std::span<const float> row);

}  // namespace quire::bench
