// What every store does, whatever is behind it.
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/system/file.h"
#include "elastic/store/store.h"
#include "etcd_cluster.h"
#include "some_state.h"

namespace heddle::elastic {
namespace {

class Backend {
 public:
  virtual ~Backend() = default;
  /// The one store of this test; again when the one before is gone.
  virtual std::unique_ptr<StateStore> Open() = 0;
};

class SqliteBackend : public Backend {
 public:
  std::unique_ptr<StateStore> Open() override {
    auto store = OpenSqliteStore(folder_.path() + "/sub/state.sqlite");
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? std::move(*store) : nullptr;
  }

 private:
  const TemporaryFolder folder_;
};

class EtcdBackend : public Backend {
 public:
  std::unique_ptr<StateStore> Open() override { return Lead(cluster_.Address("/heddle/test")); }

 private:
  const EtcdCluster cluster_{1};
};

struct Kind {
  const char* name;
  std::function<std::unique_ptr<Backend>()> make;
};

class StoreConformance : public testing::TestWithParam<Kind> {
 protected:
  static void ExpectHolds(StateStore& store, const DurableState& state) {
    const auto loaded = store.Load();
    ASSERT_TRUE(loaded.ok()) << loaded.status().ToString();
    ASSERT_TRUE(loaded->has_value());
    ExpectSame(**loaded, state);
  }

  const std::unique_ptr<Backend> backend_ = GetParam().make();
};

TEST_P(StoreConformance, GivesBackWhatWasSaved) {
  const DurableState state = SomeState();
  {
    const auto store = backend_->Open();
    const auto empty = store->Load();
    ASSERT_TRUE(empty.ok()) << empty.status().ToString();
    EXPECT_FALSE(empty->has_value());
    ASSERT_TRUE(store->Save(state).ok());
    ExpectHolds(*store, state);
    EXPECT_TRUE(store->Owned().ok());
  }
  ExpectHolds(*backend_->Open(), state);
}

TEST_P(StoreConformance, TheLastOneCounts) {
  DurableState state = SomeState();
  const auto store = backend_->Open();
  for (int i = 0; i < 20; ++i) {
    state.known_step = i;
    state.generation_counter += i % 2;
    ASSERT_TRUE(store->Save(state).ok());
  }
  ExpectHolds(*store, state);
}

TEST_P(StoreConformance, RefusesAnOlderGeneration) {
  DurableState state = SomeState();
  {
    const auto store = backend_->Open();
    ASSERT_TRUE(store->Save(state).ok());
    state.generation_counter = 6;
    EXPECT_EQ(store->Save(state).code(), StatusCode::kAborted);
    ExpectHolds(*store, SomeState());
  }
  const auto next = backend_->Open();
  EXPECT_EQ(next->Save(state).code(), StatusCode::kAborted) << "without a look before, too";
  ExpectHolds(*next, SomeState());
}

TEST_P(StoreConformance, KeepsStatesOfAnySize) {
  DurableState state = SomeState();
  const auto store = backend_->Open();
  // Around a mebibyte, and many of them; a small one takes the place of a large one.
  for (const size_t size : {(1U << 20) - 2000, (1U << 20) + 2000, 7U << 20, 100U, 3U << 20}) {
    state.job_yaml.clear();
    while (state.job_yaml.size() < size) {
      state.job_yaml += std::to_string(state.job_yaml.size()) + "\n";
    }
    ++state.known_step;
    const Status saved = store->Save(state);
    ASSERT_TRUE(saved.ok()) << size << ": " << saved.ToString();
    ExpectHolds(*store, state);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Stores,
    StoreConformance,
    testing::Values(Kind{"Sqlite", [] { return std::make_unique<SqliteBackend>(); }},
                    Kind{"Etcd", [] { return std::make_unique<EtcdBackend>(); }}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace heddle::elastic
