/// \file
/// Goal: a model is written whole or not at all, wherever its storage says that there is no more
/// room. Method: the limit on the size of a file, at every place of the largest one.
#include <algorithm>
#include <csignal>
#include <filesystem>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "base/system/file.h"
#include "checkpoint/formats/format.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

/// While it lives, no file of this process gets longer.
class SizeLimit {
 public:
  explicit SizeLimit(uint64_t bytes) {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;

 private:
  rlimit before_{};
};

Status Write(const std::string& format, const std::string& path) {
  SinkRequest request;
  request.path = path;
  if (format != "native") {
    request.config.assign(300, ' ');
  }
  request.max_shard_bytes = 64;
  request.identity = "this attempt";
  for (const char* const name : {"a", "b", "c"}) {
    request.tensors.push_back({.name = name, .role = "master", .shape = {16}});
  }
  HEDDLE_ASSIGN_OR_RETURN(auto sink, (*FindFormat(format))->create(std::move(request)));
  for (int i = 0; i < 3; ++i) {
    HEDDLE_RETURN_IF_ERROR(sink->Append(Bytes(64, std::byte{1})));
  }
  return sink->Finish();
}

TEST(NoRoomTest, AModelIsWholeOrAbsentWhereverItsStorageIsFull) {
  for (const std::string format : {"safetensors", "pytorch", "native"}) {
    SCOPED_TRACE(format);
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/model";
    ASSERT_TRUE(Write(format, path).ok());
    std::vector<uint64_t> sizes;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      sizes.push_back(entry.file_size());
    }
    std::filesystem::remove_all(path);
    const uint64_t largest = *std::max_element(sizes.begin(), sizes.end());
    // At the end of each file, and in between.
    for (uint64_t limit = 0; limit < largest; limit += 1 + limit / 16) {
      sizes.push_back(limit + 1);
    }
    for (const uint64_t size : sizes) {
      Status status;
      {
        const SizeLimit limit(size - 1);
        status = Write(format, path);
      }
      EXPECT_FALSE(status.ok()) << size;
      EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << size;
      std::filesystem::remove_all(path);
    }
    const SizeLimit limit(std::max<uint64_t>(largest, 1 << 20));
    EXPECT_TRUE(Write(format, path).ok()) << "there is room again";
  }
}

}  // namespace
}  // namespace heddle::checkpoint
