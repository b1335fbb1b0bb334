#include "base/system/file_lock.h"

#include <chrono>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/system/file.h"

namespace heddle {
namespace {

UniqueFd OpenFolder(const TemporaryFolder& folder) {
  return UniqueFd(::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

TEST(FileLockTest, OneHolderAtATimeAndTheOthersWaitInVainNoLongerThanTheySay) {
  const TemporaryFolder folder;
  UniqueFd first = OpenFolder(folder);
  const UniqueFd second = OpenFolder(folder);
  ASSERT_TRUE(LockWithin(first, "the folder", std::chrono::milliseconds(0)).ok());
  const Status refused = LockWithin(second, "the folder", std::chrono::milliseconds(10));
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_EQ(refused.message(), "the folder is locked by another process for more than 0.01 s");
  first = UniqueFd();
  EXPECT_TRUE(LockWithin(second, "the folder", std::chrono::milliseconds(0)).ok());
}

TEST(FileLockTest, ADescriptorThatIsClosedIsAnError) {
  const Status status = LockWithin(UniqueFd(), "nothing", std::chrono::milliseconds(0));
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("nothing"), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace heddle
