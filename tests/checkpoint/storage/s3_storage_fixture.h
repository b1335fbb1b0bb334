/// \file
/// The fixture of tests of checkpoints in an object store: a job's folder in one of this process.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint/storage/storage.h"
#include "tests/checkpoint/storage/object_store.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {

/// The object store of the process. There is one for all tests, because clients keep its address.
inline testing::ObjectStore& Store() {
  static auto* const store = [] {
    auto* const made = new testing::ObjectStore;
    ::setenv("AWS_ENDPOINT_URL", made->endpoint().c_str(), 1);
    ::setenv("AWS_ACCESS_KEY_ID", "user", 1);
    ::setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    ::setenv("AWS_MAX_ATTEMPTS", "2", 1);
    return made;
  }();
  return *store;
}

/// A test of storage in S3; each test has its own bucket.
class S3StorageTest : public ::testing::Test {
 protected:
  S3StorageTest() {
    static int number = 0;
    bucket_ = fmt::format("bucket-{}", ++number);
    root_ = fmt::format("s3://{}/jobs/a", bucket_);
    Store().SetInterference(nullptr);
    Store().SetPage(1000);
  }
  void TearDown() override {
    Store().SetInterference(nullptr);
    EXPECT_TRUE(Store().complaints().empty()) << Store().complaints().front();
  }

  std::vector<std::string> Keys() const { return Store().Keys(bucket_); }
  std::string Path(const std::string& name) const { return bucket_ + "/jobs/a/" + name; }
  void Set(const std::string& name, const std::string& content = "x") const {
    Store().Set(Path(name), content);
  }
  Result<CommitInfo> SaveStep(int64_t step, int64_t generation, size_t workers = 1) {
    Random random(5);
    return Save({.root = root_, .step = step, .generation = generation, .workers = workers}, state_,
                RandomPieces(state_, workers, 3, random), metrics_);
  }
  std::unique_ptr<Storage> Open() const {
    auto storage = OpenStorage(root_);
    EXPECT_TRUE(storage.ok()) << storage.status().ToString();
    return *std::move(storage);
  }

  metrics::Registry metrics_;
  State state_ = StateOf(3);
  std::string bucket_;
  std::string root_;
};

}  // namespace heddle::checkpoint
