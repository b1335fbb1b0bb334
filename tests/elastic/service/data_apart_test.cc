// A run's folders and its data: apart, wherever links lead.
#include "elastic/service/folders/data_apart.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "base/system/file.h"

namespace heddle::elastic {
namespace {

class DataApartTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(MakeFolders(data_ + "/sub").ok());
    ASSERT_TRUE(WriteFileAtomically(data_ + "/a.txt", "text").ok());
    std::filesystem::create_directory_symlink(data_, folder_.path() + "/link");
  }
  std::string Refusal(const std::string& text,
                      const std::string& output,
                      const std::string& store = "") const {
    job::JobConfig job;
    job.data.text = {text};
    job.checkpoint.store = store;
    return std::string(CheckDataApart(job, output).message());
  }

  const TemporaryFolder folder_;
  const std::string data_ = folder_.path() + "/data";
};

TEST_F(DataApartTest, AFolderInTheDataIsRefused) {
  const std::string why = ", and the run would read what it writes: choose another one";
  for (const std::string& output :
       {data_, data_ + "/", data_ + "/runs/a", data_ + "/sub/../x", folder_.path() + "/link/runs",
        folder_.path() + "/none/../data/x"}) {
    EXPECT_EQ(Refusal(data_, output),
              "output folder " + output + " lies in the data folder " + data_ + why);
  }
  const std::string link = folder_.path() + "/link";
  EXPECT_EQ(Refusal(link, data_ + "/runs"),
            "output folder " + data_ + "/runs lies in the data folder " + link + why);
  EXPECT_EQ(
      Refusal(data_, folder_.path() + "/out", data_ + "/checkpoints"),
      "folder of checkpoints " + data_ + "/checkpoints lies in the data folder " + data_ + why);
}

TEST_F(DataApartTest, FoldersBesideTheDataAreNot) {
  EXPECT_EQ(Refusal(data_, folder_.path() + "/out"), "");
  EXPECT_EQ(Refusal(data_, data_ + "x/out"), "");
  EXPECT_EQ(Refusal(data_ + "/sub", data_), "") << "the data may lie in the output";
  EXPECT_EQ(Refusal(data_ + "/a.txt", data_ + "/out"), "") << "a file alone is read";
  EXPECT_EQ(Refusal(data_ + "/none", data_ + "/none/out"), "") << "that is told elsewhere";
  EXPECT_EQ(Refusal(data_, folder_.path() + "/out", "s3://bucket/data"), "");
}

}  // namespace
}  // namespace heddle::elastic
