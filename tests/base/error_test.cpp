#include "trash_panda/base/error.h"

#include <cerrno>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace trash_panda {
namespace {

TEST(ErrorFromErrno, SortsByWhatACallerCanDo) {
  EXPECT_EQ(Error::from_errno(ENOENT, "x").code(), ErrorCode::kMissing);
  EXPECT_EQ(Error::from_errno(ENOTDIR, "x").code(), ErrorCode::kMissing);
  for (const int full : {EEXIST, ENOSPC, EDQUOT, EROFS}) {
    EXPECT_EQ(Error::from_errno(full, "x").code(), ErrorCode::kOutput) << full;
  }
  EXPECT_EQ(Error::from_errno(EIO, "x").code(), ErrorCode::kFailed);
  EXPECT_EQ(Error::from_errno(EIO, "x", ErrorCode::kOutput).code(), ErrorCode::kOutput);
}

TEST(ErrorFromErrno, SaysWhatAndWhy) {
  const Error error = Error::from_errno(ENOSPC, "can't write /out");
  EXPECT_EQ(error.message(), "can't write /out: No space left on device");
  EXPECT_EQ(error.errno_value(), ENOSPC);
}

TEST(Error, AddsContextHintAndReason) {
  const Error error = Error(ErrorCode::kCorrupt, "too short")
                          .with_context("model.safetensors")
                          .with_context("opening")
                          .with_reason("too_short")
                          .with_hint("download it again")
                          .with_code(ErrorCode::kStale);
  EXPECT_EQ(error.code(), ErrorCode::kStale);
  EXPECT_EQ(error.reason(), "too_short");
  EXPECT_EQ(error.message(), "opening: model.safetensors: too short");
  EXPECT_EQ(error.to_string(), "opening: model.safetensors: too short; download it again");
}

TEST(Error, CarriesTheNumbersOfAShortage) {
  EXPECT_FALSE(Error(ErrorCode::kDoesNotFit, "too small").shortage());
  const Error error = Error(ErrorCode::kDoesNotFit, "too small")
                          .with_shortage({.needed_bytes = 3, .budget_bytes = 2})
                          .with_context("loading");
  ASSERT_TRUE(error.shortage());
  EXPECT_EQ(error.shortage()->needed_bytes, 3U);
  EXPECT_EQ(error.shortage()->budget_bytes, 2U);
}

TEST(Error, KeepsItsMessageWhenItIsGivenAHintInPlace) {
  Error error(ErrorCode::kMissing, "no model.safetensors here");
  error = std::move(error).with_hint("name the folder that holds it");
  EXPECT_EQ(error.to_string(), "no model.safetensors here; name the folder that holds it");
}

Result<int> half_of(int value) {
  if (value % 2 != 0) {
    return std::unexpected(Error(ErrorCode::kUsage, std::to_string(value) + " is odd"));
  }
  return value / 2;
}

Result<int> quarter_of(int value) {
  TP_ASSIGN_OR_RETURN(const int half, half_of(value));
  TP_ASSIGN_OR_RETURN(const int quarter, half_of(half));
  return quarter;
}

TEST(AssignOrReturn, PassesOnTheFirstError) {
  EXPECT_EQ(quarter_of(8), 2);
  EXPECT_EQ(quarter_of(6).error().message(), "3 is odd");
}

TEST(AssertDeathTest, NamesTheCondition) {
  EXPECT_DEATH(TP_ASSERT(1 + 1 == 3), "1 \\+ 1 == 3 is false .*error_test.cpp");
}

}  // namespace
}  // namespace trash_panda
