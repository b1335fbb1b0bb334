#include "engine/data/dataset.h"

#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/file.h"

namespace heddle::data {
namespace {

using testing::HasSubstr;

class DatasetTest : public testing::Test {
 protected:
  /// A token file 0, 1, 2, …, so that a token is its own position.
  DatasetOptions Counting(int count) {
    std::vector<uint16_t> tokens(static_cast<size_t>(count));
    std::iota(tokens.begin(), tokens.end(), uint16_t{0});
    const std::string path = folder_.path() + "/tokens.bin";
    EXPECT_TRUE(
        WriteFileAtomically(path, {reinterpret_cast<const char*>(tokens.data()), tokens.size() * 2})
            .ok());
    return {.paths = {path},
            .include = {},
            .format = Format::kUint16,
            .sequence_length = 8,
            .vocabulary = 65536,
            .validation_fraction = 0.1,
            .seed = 1};
  }
  TemporaryFolder folder_;
};

struct Sample {
  explicit Sample(const Dataset& data)
      : tokens(static_cast<size_t>(data.sequence_length())),
        targets(tokens.size()) {}
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

TEST_F(DatasetTest, TargetsAreTheTokensOneLater) {
  const auto data = Dataset::Open(Counting(1000));
  ASSERT_TRUE(data.ok()) << data.status().message();
  Sample sample(**data);
  for (int64_t n = 0; n < 3 * (*data)->train_windows(); ++n) {
    ASSERT_TRUE((*data)->ReadSample(n, sample.tokens, sample.targets).ok());
    EXPECT_EQ(sample.tokens.front() % 8, 0);
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
      EXPECT_EQ(sample.tokens[i], sample.tokens.front() + static_cast<int32_t>(i));
      EXPECT_EQ(sample.targets[i], sample.tokens[i] + 1);
    }
  }
}

TEST_F(DatasetTest, EpochsCoverTheTrainingPartAndNoneOfTheValidationPart) {
  const auto data = Dataset::Open(Counting(1000));
  // 900 tokens for training: (900 - 1) / 8; 100 for validation: (100 - 1) / 8.
  ASSERT_EQ((*data)->train_windows(), 112);
  ASSERT_EQ((*data)->validation_windows(), 12);
  Sample sample(**data);
  std::set<int32_t> trained;
  for (int64_t n = 0; n < 112; ++n) {
    ASSERT_TRUE((*data)->ReadSample(n, sample.tokens, sample.targets).ok());
    EXPECT_TRUE(trained.insert(sample.tokens.front()).second);
    EXPECT_LT(sample.targets.back(), 900);
  }
  EXPECT_EQ(trained.size(), 112U);
  for (int64_t window = 0; window < 12; ++window) {
    ASSERT_TRUE((*data)->ReadValidation(window, sample.tokens, sample.targets).ok());
    EXPECT_EQ(sample.tokens.front(), 900 + 8 * window);
    EXPECT_LT(sample.targets.back(), 1000);
  }
  EXPECT_EQ((*data)->ReadValidation(12, sample.tokens, sample.targets).code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ((*data)->ReadValidation(-1, sample.tokens, sample.targets).code(),
            StatusCode::kOutOfRange);
}

TEST_F(DatasetTest, ASampleDependsOnSeedAndNumberAlone) {
  const DatasetOptions options = Counting(1000);
  const auto one = Dataset::Open(options);
  const auto two = Dataset::Open(options);
  Sample a(**one);
  Sample b(**two);
  // Backwards against forwards: nothing may depend on what was read before.
  for (int64_t n = 0; n < 112; ++n) {
    ASSERT_TRUE((*two)->ReadSample(111 - n, b.tokens, b.targets).ok());
  }
  for (int64_t n = 0; n < 112; ++n) {
    ASSERT_TRUE((*one)->ReadSample(n, a.tokens, a.targets).ok());
    ASSERT_TRUE((*two)->ReadSample(n, b.tokens, b.targets).ok());
    EXPECT_EQ(a.tokens, b.tokens);
  }
  EXPECT_EQ((*one)->fingerprint(), (*two)->fingerprint());
}

TEST_F(DatasetTest, TheFingerprintSeesContentSplitAndSeed) {
  const DatasetOptions options = Counting(1000);
  const auto fingerprint = [](const DatasetOptions& changed) {
    return (*Dataset::Open(changed))->fingerprint();
  };
  std::set<uint64_t> seen = {fingerprint(options)};
  DatasetOptions changed = options;
  changed.seed = 2;
  EXPECT_TRUE(seen.insert(fingerprint(changed)).second);
  changed = options;
  changed.sequence_length = 9;
  EXPECT_TRUE(seen.insert(fingerprint(changed)).second);
  changed = options;
  changed.validation_fraction = 0.2;
  EXPECT_TRUE(seen.insert(fingerprint(changed)).second);
  EXPECT_TRUE(seen.insert(fingerprint(Counting(1001))).second);
}

TEST_F(DatasetTest, DataThatAreTooShortAreNamed) {
  const auto message = [](const DatasetOptions& options) {
    return Dataset::Open(options).status().message();
  };
  EXPECT_THAT(
      message(Counting(8)),
      HasSubstr("tokens.bin: 8 tokens for training are fewer than one sample, which takes 9"));
  EXPECT_THAT(
      message(Counting(40)),
      HasSubstr("4 tokens for validation (0.1 of 40) are fewer than one sample, which takes 9"));
  DatasetOptions all = Counting(9);
  all.validation_fraction = 0;
  const auto data = Dataset::Open(all);
  ASSERT_TRUE(data.ok());
  EXPECT_EQ((*data)->train_windows(), 1);
  EXPECT_EQ((*data)->validation_windows(), 0);
}

TEST_F(DatasetTest, TextNeedsItsVocabulary) {
  DatasetOptions options = Counting(100);
  options.format = Format::kText;
  options.vocabulary = 255;
  EXPECT_THAT(Dataset::Open(options).status().message(),
              HasSubstr("at least 256, the model has 255"));
}

TEST_F(DatasetTest, GlobsNeedAFolder) {
  auto options = Counting(100);
  options.include = {"*.bin"};
  EXPECT_THAT(Dataset::Open(options).status().message(), HasSubstr("data.include has no effect"));
  options.paths = {folder_.path() + "/nothing.bin"};
  EXPECT_THAT(Dataset::Open(options).status().message(), testing::Not(HasSubstr("data.include")))
      << "a file that is not there is said to be no folder";
}

// Debian's package "fortunes" has a binary .dat and a symbolic link .u8 beside every text.
TEST_F(DatasetTest, DebiansFortunesAreReadAsTheyLie) {
  const std::string folder = "/usr/share/games/fortunes";
  if (!FileExists(folder + "/fortunes.dat")) {
    GTEST_SKIP() << folder << " is not installed";
  }
  const auto data = Dataset::Open({.paths = {folder},
                                   .include = {},
                                   .format = Format::kText,
                                   .sequence_length = 128,
                                   .vocabulary = 256,
                                   .validation_fraction = 0.05,
                                   .seed = 1});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_GT((*data)->train_windows(), 1000);
  EXPECT_GT((*data)->validation_windows(), 50);
  for (const std::string& file : (*data)->files()) {
    EXPECT_FALSE(file.ends_with(".dat") || file.ends_with(".u8")) << file;
  }
}

}  // namespace
}  // namespace heddle::data
