#include "elastic/run_folder.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace heddle::elastic {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

LogEvent Step(int64_t step) {
  return {"step", {{"step", step}}};
}

TEST(RunFolderTest, AppendsLinesAndGoesOnAfterARestart) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/run";
  {
    auto run = RunFolder::Open(path);
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    ASSERT_TRUE((*run)->Append(Step(1)).ok());
  }
  // A crash in the middle of a line leaves half of it.
  std::ofstream(path + "/events.jsonl", std::ios::app) << "{\"time\": 1";
  {
    auto run = RunFolder::Open(path);
    ASSERT_TRUE(run.ok());
    ASSERT_TRUE((*run)->Append(Step(2)).ok());
  }
  std::ifstream file(path + "/events.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[0], EndsWith("\"event\": \"step\", \"step\": 1}"));
  EXPECT_EQ(lines[1], "{\"time\": 1");
  EXPECT_THAT(lines[2], EndsWith("\"event\": \"step\", \"step\": 2}"));
}

TEST(RunFolderTest, JobFileNamesCoordinatorMetricsAndWorkers) {
  const TemporaryFolder folder;
  auto run = RunFolder::Open(folder.path());
  ASSERT_TRUE(run.ok());
  (*run)->SetAddresses("127.0.0.1:1", "127.0.0.1:2");
  ASSERT_TRUE((*run)->WriteJobFile({{"a", 11, "", ""}, {"b", 12, "", ""}}).ok());
  EXPECT_EQ(*ReadFile(folder.path() + "/job.json", 1000),
            "{\"coordinator\": \"127.0.0.1:1\", \"metrics\": \"127.0.0.1:2\", \"workers\": "
            "[{\"name\": \"a\", \"pid\": 11}, {\"name\": \"b\", \"pid\": 12}]}\n");
  ASSERT_TRUE((*run)->WriteJobFile({}).ok());
  EXPECT_THAT(*ReadFile(folder.path() + "/job.json", 1000), HasSubstr("\"workers\": []"));
}

}  // namespace
}  // namespace heddle::elastic
