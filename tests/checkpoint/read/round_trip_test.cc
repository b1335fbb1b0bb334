/// \file
/// Goal: whatever split wrote a checkpoint, whatever split reads it, the bits are the same. Method:
/// random states, random cuts on both sides, an element-wise reference for what a box contains.
#include "base/system/file.h"
#include "checkpoint/format/digest.h"
#include "checkpoint/format/manifest.h"
#include "checkpoint/read/reader.h"
#include "checkpoint/read/verify.h"
#include "tests/checkpoint/support.h"

namespace heddle::checkpoint {
namespace {

State SmallState(Random& random) {
  State state;
  const auto pick = [&random] { return random.Below(2) == 0 ? DType::kF32 : DType::kBF16; };
  AddTensor(state,
            {"layers.0.wq", "master", DType::kF32, {random.Between(1, 90), random.Between(1, 120)}},
            random);
  AddTensor(state,
            {"layers.0.wq", "exp_avg", pick(), {random.Between(1, 90), random.Between(1, 120)}},
            random);
  AddTensor(state, {"norm/weight.", "master", pick(), {random.Between(1, 300)}}, random);
  AddTensor(state, {"scalar", "master", DType::kF32, {}}, random);
  AddTensor(state,
            {"cube",
             "exp_avg_sq",
             pick(),
             {random.Between(1, 9), random.Between(1, 9), random.Between(1, 9)}},
            random);
  AddTensor(state, {"empty", "master", DType::kF32, {0, 5}}, random);
  return state;
}

TEST(RoundTripTest, AnySplitReadsWhatAnySplitWrote) {
  const uint64_t seed = TestSeed();
  Random random(seed);
  metrics::Registry metrics;
  const TemporaryFolder folder;
  for (int pair = 0; pair < 220; ++pair) {
    SCOPED_TRACE(pair);
    const State state = SmallState(random);
    const SaveSetup setup{.root = folder.path() + "/c",
                          .step = pair,
                          .generation = pair,
                          .workers = 1 + random.Below(4),
                          .chunk_bytes = int64_t{64} << random.Below(11),
                          .staging_limit_bytes = pair % 4 == 0 ? 0 : int64_t{1} << 40,
                          .codec_threads = 1 + static_cast<int>(random.Below(3))};
    const auto saved = Save(setup, state, RandomPieces(state, setup.workers, 6, random), metrics);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    const auto reader = Reader::Open(saved->path);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    ExpectReads(**reader, state, RandomPieces(state, 1, 6, random),
                1 + static_cast<int>(random.Below(3)));
    if (HasFatalFailure()) {
      return;
    }
    EXPECT_EQ((*reader)->manifest().job, TestJob());
    EXPECT_EQ((*reader)->manifest().step, pair);
    if (pair % 20 == 0) {
      const auto damage = Verify(saved->path);
      ASSERT_TRUE(damage.ok()) << damage.status().ToString();
      EXPECT_TRUE(damage->empty()) << ToString(damage->front());
    }
    ASSERT_TRUE(
        Prune(setup.root, {.keep_last = 1, .protected_steps = {}, .sound_step = pair}).ok());
  }
}

TEST(RoundTripTest, LargeTensorsOfManyChunksAndMatchingDigests) {
  const uint64_t seed = TestSeed();
  Random random(seed);
  metrics::Registry metrics;
  const TemporaryFolder folder;
  State state;
  AddTensor(state, {"w", "master", DType::kF32, {1030, 1100}}, random);
  AddTensor(state, {"w", "exp_avg", DType::kBF16, {1500, 700}}, random);
  Digest first;
  for (int64_t step = 0; step < 2; ++step) {
    const SaveSetup setup{.root = folder.path(), .step = step, .generation = step, .workers = 3};
    const auto saved = Save(setup, state, RandomPieces(state, 3, 5, random), metrics);
    ASSERT_TRUE(saved.ok()) << saved.status().ToString();
    const auto reader = Reader::Open(saved->path);
    ASSERT_TRUE(reader.ok()) << reader.status().ToString();
    ExpectReads(**reader, state, RandomPieces(state, 1, 7, random), 2);
    const Digest digest = (*reader)->manifest().Find({"w", "master"})->digest;
    EXPECT_TRUE(step == 0 || digest == first) << "the digest depends on the split";
    first = digest;
    EXPECT_EQ(digest, DigestBox(state.bytes[0], 4, {1030, 1100}, WholeBox({1030, 1100})));
    EXPECT_LT(saved->bytes, saved->raw_bytes * 95 / 100) << "weights shrink";
  }
}

}  // namespace
}  // namespace heddle::checkpoint
