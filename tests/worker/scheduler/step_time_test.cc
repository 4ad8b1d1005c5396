// What steps take, learned from what they took.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "worker/scheduler/step_time.h"

namespace quire {
namespace {

StepWork Work(int64_t rows, int64_t prefill, int64_t first) {
  StepWork work;
  for (int64_t i = 0; i < rows; ++i) work.AddDecode(first + i);
  if (prefill > 0) work.AddPrefill(first, prefill);
  return work;
}

double Law(const StepWork& work) {
  return 5000 + 700.0 * static_cast<double>(work.decode_rows) +
         300.0 * static_cast<double>(work.prefill_tokens) +
         0.05 * static_cast<double>(work.context);
}

TEST(StepTimeModelTest, LearnsALawThroughNoise) {
  std::mt19937_64 rng(3);
  StepTimeModel model;
  for (int step = 0; step < 400; ++step) {
    const int64_t prefill = step % 2 == 0 ? 0 : static_cast<int64_t>(rng() % 900);
    const StepWork work = Work(static_cast<int64_t>(rng() % 40) >> (rng() % 6), prefill,
                               static_cast<int64_t>(rng() % 8000));
    if (work.decode_rows + work.prefill_tokens == 0) continue;
    const double noise = 0.8 + 0.4 * static_cast<double>(rng() % 1001) / 1000;
    model.Observe(work, static_cast<int64_t>(Law(work) * noise));
  }
  for (const StepWork& work : {Work(1, 0, 100), Work(32, 0, 4000), Work(8, 512, 3000),
                               Work(0, 800, 0), Work(16, 16, 7000)}) {
    EXPECT_NEAR(model.times().Predict(work) / Law(work), 1.0, 0.2);
  }
}

TEST(StepTimeModelTest, HoursOfDecodingDoNotUnlearnPrefill) {
  StepTimeModel model;
  for (int step = 0; step < 50; ++step) {
    const StepWork work = Work(4, 100 + step * 8, 0);
    model.Observe(work, static_cast<int64_t>(Law(work)));
  }
  for (int step = 0; step < 20'000; ++step) {
    const StepWork work = Work(4, 0, 100 + step % 1000);
    model.Observe(work, static_cast<int64_t>(Law(work)));
  }
  EXPECT_NEAR(model.times().token_us, 300, 60);
}

TEST(StepTimeModelTest, OneHiccupMovesLittleAndALastingChangeIsFollowed) {
  StepTimeModel model;
  const StepWork work = Work(8, 64, 500);
  for (int step = 0; step < 50; ++step) model.Observe(work, 30'000);
  model.Observe(work, 60'000'000);
  EXPECT_LT(model.times().Predict(work), 40'000);
  for (int step = 0; step < 100; ++step) model.Observe(work, 90'000);
  EXPECT_NEAR(model.times().Predict(work), 90'000, 9'000);
}

TEST(StepTimeModelTest, WhatWasNotSeenIsNotTrusted) {
  StepTimeModel model;
  EXPECT_LE(model.times().PrefillWithin(200'000, 0), 10);  // nothing is known: slow
  model.Observe(Work(0, 1, 0), 4'000);
  EXPECT_LE(model.times().PrefillWithin(200'000, 0), kMaxPrefillGrowth);
  model.Observe(Work(0, 4, 1), 4'100);
  EXPECT_LE(model.times().PrefillWithin(200'000, 0), 4 * kMaxPrefillGrowth);
}

TEST(StepTimesTest, PrefillWithinIsTheInverseOfPredict) {
  StepTimes times{.fixed_us = 100, .row_us = 10, .token_us = 40, .context_us = 0.03};
  for (const int64_t first : {0, 1000, 30'000}) {
    for (const double micros : {50.0, 5'000.0, 300'000.0}) {
      const int64_t tokens = times.PrefillWithin(micros, first);
      StepWork fits, more;
      if (tokens > 0) fits.AddPrefill(first, tokens);
      more.AddPrefill(first, tokens + 1);
      EXPECT_LE(times.Predict(fits) - times.fixed_us, micros + 1e-6);
      EXPECT_GT(times.Predict(more) - times.fixed_us, micros - 1e-6);
    }
  }
  EXPECT_EQ(times.PrefillWithin(-5, 0), 0);
}

}  // namespace
}  // namespace quire
