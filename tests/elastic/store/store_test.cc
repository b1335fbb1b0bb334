#include "elastic/store/store.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "base/system/file.h"

namespace heddle::elastic {
namespace {

using testing::HasSubstr;

DurableState SomeState() {
  DurableState state;
  state.job_id = "abc";
  state.job_yaml = "steps: 3\nname: \"quoted\"\n";
  state.secret = std::string("\0\x01\xff", 3);
  state.output_folder = "/tmp/x";
  state.generation_counter = 7;
  state.held.emplace();
  state.held->number = 6;
  state.held->plan.plan_json = "{}";
  state.held->plan.members = {"a", "b"};
  state.held->plan.program_hashes = {1, UINT64_MAX};
  state.held->plan.parameters = {{0, 1}, {2}};
  state.held->plan.parameter_count = 3;
  state.held->plan.predicted_step_seconds = 0.125;
  state.held->members = {{"a", std::string(16, '\x80')}, {"b", std::string(16, 'b')}};
  state.snapshots[4] = {.plan_json = "{\"g\": 4}", .owners = {0, 2}, .last_step = 30};
  state.snapshots[6] = {.plan_json = "{}", .owners = {0, 1}};
  state.workers["a"] = {std::string(16, '\x80'), "host", "{\"p\": 1}", "rack-1"};
  state.known_step = 41;
  state.life = 3;
  state.checkpoints = {20, 40};
  state.given_up_checkpoints = {60, 80};
  return state;
}

class StoreTest : public testing::Test {
 protected:
  std::unique_ptr<StateStore> Open() {
    auto store = OpenSqliteStore(path_);
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(*store) : nullptr;
  }
  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/sub/state.sqlite";
};

TEST_F(StoreTest, GivesBackWhatWasSaved) {
  const DurableState state = SomeState();
  {
    const auto store = Open();
    auto empty = store->Load();
    ASSERT_TRUE(empty.ok()) << empty.status().ToString();
    EXPECT_FALSE(empty->has_value());
    ASSERT_TRUE(store->Save(state).ok());
  }
  const auto store = Open();
  auto loaded = store->Load();
  ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
  ASSERT_TRUE(loaded->has_value());
  const DurableState& again = **loaded;
  EXPECT_EQ(again.job_id, state.job_id);
  EXPECT_EQ(again.job_yaml, state.job_yaml);
  EXPECT_EQ(again.secret, state.secret);
  EXPECT_EQ(again.output_folder, state.output_folder);
  EXPECT_EQ(again.generation_counter, 7);
  EXPECT_EQ(again.life, 3);
  ASSERT_TRUE(again.held.has_value());
  EXPECT_EQ(again.held->number, 6);
  EXPECT_EQ(again.held->plan.members, state.held->plan.members);
  EXPECT_EQ(again.held->plan.program_hashes, state.held->plan.program_hashes);
  EXPECT_EQ(again.held->plan.parameters, state.held->plan.parameters);
  EXPECT_EQ(again.held->plan.parameter_count, 3);
  EXPECT_EQ(again.held->plan.predicted_step_seconds, 0.125);
  EXPECT_EQ(again.held->members, state.held->members);
  EXPECT_EQ(again.workers, state.workers);
  EXPECT_EQ(again.snapshots, state.snapshots);
  EXPECT_EQ(again.known_step, 41);
  EXPECT_EQ(again.checkpoints, state.checkpoints);
  EXPECT_EQ(again.given_up_checkpoints, state.given_up_checkpoints);
  EXPECT_FALSE(again.finished);
}

TEST_F(StoreTest, RefusesAnOlderGeneration) {
  const auto store = Open();
  DurableState state = SomeState();
  ASSERT_TRUE(store->Save(state).ok());
  state.generation_counter = 6;
  EXPECT_EQ(store->Save(state).code(), StatusCode::kAborted);
  EXPECT_EQ((*store->Load())->generation_counter, 7);
}

TEST_F(StoreTest, BelongsToOneCoordinator) {
  const auto store = Open();
  const auto second = OpenSqliteStore(path_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(StoreTest, RefusesFilesOfOthers) {
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
TEST_F(StoreTest, AnOlderBuildsStateIsRead) {
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

TEST_F(StoreTest, DamagedContentIsNamed) {
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
