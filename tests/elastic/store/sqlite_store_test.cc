// What is SQLite's alone; conformance_test.cc has what every store does.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "base/system/file.h"
#include "elastic/store/store.h"
#include "some_state.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

class SqliteStoreTest : public testing::Test {
 protected:
  std::unique_ptr<StateStore> Open() {
    auto store = OpenSqliteStore(path_);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(*store) : nullptr;
  }
  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/sub/state.sqlite";
};

TEST_F(SqliteStoreTest, BelongsToOneCoordinator) {
  const auto store = Open();
  const auto second = OpenSqliteStore(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(SqliteStoreTest, ANameThatIsTooLongHasItsReasonAndLeavesNoFolders) {
  const std::string name = "/state.sqlite";
  std::string path = folder_.path();
  const size_t most = 512 - 8;  // MAX_PATHNAME of its unix VFS, for the name of the journal.
  while (path.size() < most - name.size()) {
    path += path.size() % 100 == 99 ? '/' : 'd';
  }
  const auto refused = OpenSqliteStore(path + "d" + name);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(),
              HasSubstr("the path has 505 bytes, and SQLite takes 504"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  const auto longest = OpenSqliteStore(path + name);
  EXPECT_TRUE(longest.ok()) << longest.status().ToString();
}

TEST_F(SqliteStoreTest, RefusesFilesOfOthers) {
  ASSERT_TRUE(MakeFolders(FolderOf(path_)).ok());
  std::ofstream(path_) << std::string(4096, 'x');
  const auto garbage = OpenSqliteStore(path_);
  ASSERT_FALSE(garbage.ok());
  EXPECT_EQ(garbage.status().code(), StatusCode::kDataLoss) << garbage.status().ToString();

  const std::string other = folder_.path() + "/other.sqlite";
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(other.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "CREATE TABLE t (x)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(database);
  const auto foreign = OpenSqliteStore(other);
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(foreign.status().message(), HasSubstr("not a coordinator's"));
}

// Builds before them wrote neither snapshots nor failure domains.
TEST_F(SqliteStoreTest, AnOlderBuildsStateIsRead) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->Save(SomeState()).ok());
  }
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database,
                         "UPDATE coordinator SET state = json_remove(state, '$.snapshots', "
                         "'$.workers.a.failure_domain', '$.life')",
                         nullptr, nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  const auto store = Open();
  const auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  EXPECT_TRUE((*loaded)->snapshots.empty());
  EXPECT_EQ((*loaded)->workers.at("a").failure_domain, "");
  EXPECT_EQ((*loaded)->workers.at("a").host, "host");
}

TEST_F(SqliteStoreTest, DamagedContentIsNamed) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->Save(SomeState()).ok());
  }
  sqlite3* database = nullptr;
  ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(database, "UPDATE coordinator SET state = '{\"job_id\": 3}'", nullptr,
                         nullptr, nullptr),
            SQLITE_OK);
  sqlite3_close(database);
  const auto store = Open();
  const auto loaded = store->Load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(loaded.status().message(), HasSubstr("state.sqlite"));
}

}  // namespace
}  // namespace heddle::elastic
