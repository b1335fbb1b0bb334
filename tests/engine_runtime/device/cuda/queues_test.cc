/// \file
/// Goal: streams, marks, copies and locked memory of a card keep to what devices promise, on a CUDA
/// that does everything as late as it may (fake_cuda.h).
#include "engine/runtime/device/cuda/queues.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "engine/runtime/device/cuda/copies.h"
#include "engine/runtime/device/cuda/pinned_pool.h"
#include "tests/engine_runtime/device/cuda/fake_cuda.h"
#include "tests/support/seed.h"

namespace heddle::runtime::cuda {
namespace {

using ::testing::HasSubstr;

constexpr Duration kPatience = std::chrono::seconds(20);

std::vector<std::byte> Noise(size_t bytes, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> noise(bytes);
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = random.Next();
    std::memcpy(&noise[i], &word, std::min(sizeof(word), bytes - i));
  }
  return noise;
}

class QueuesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::ResetCuda(heddle::testing::TestSeed());
    queues_ = std::make_shared<Queues>(0, [this](Duration duration) {
      ++works_;
      time_ += duration;
    });
    pool_ = std::make_shared<PinnedPool>();
    copies_ = std::make_unique<Copies>(queues_, pool_);
  }

  Mark Down(void* host, const void* card, size_t bytes) {
    Queues::Kept kept;
    queues_->Follow(Queue::kDown, Queue::kCompute);
    copies_->Down(host, card, bytes, kept);
    return queues_->MarkOf(Queue::kDown, std::move(kept));
  }
  Mark Up(void* card, const void* host, size_t bytes) {
    Queues::Kept kept;
    copies_->Up(card, host, bytes, kept);
    return queues_->MarkOf(Queue::kUp, std::move(kept));
  }
  // Work of the card: `to` becomes `from`.
  void Compute(void* to, const void* from, size_t bytes) {
    queues_->BeginWork();
    queues_->Try(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queues_->stream(Queue::kCompute)),
        "cudaMemcpyAsync");
    queues_->EndWork();
  }

  std::shared_ptr<Queues> queues_;
  std::shared_ptr<PinnedPool> pool_;
  std::unique_ptr<Copies> copies_;
  int works_ = 0;
  Duration time_{};
};

TEST_F(QueuesTest, ValuesGoUpThroughComputeAndDown) {
  // Below and above a piece of staging memory, and from memory that is locked or not.
  for (const size_t bytes : {size_t{1}, size_t{70'001}, (size_t{35} << 20) + 3}) {
    for (const bool is_locked : {false, true}) {
      const std::vector<std::byte> value = Noise(bytes, bytes);
      const std::shared_ptr<void> locked = pool_->Take(bytes);
      std::memcpy(locked.get(), value.data(), bytes);
      std::vector<std::byte> on_card(bytes);
      std::vector<std::byte> result(bytes);
      std::vector<std::byte> host(bytes);
      const Mark up = Up(on_card.data(), is_locked ? locked.get() : value.data(), bytes);
      queues_->Await(Queue::kCompute, EventOf(up));
      Compute(result.data(), on_card.data(), bytes);
      void* const target = is_locked ? locked.get() : host.data();
      const Mark down = Down(target, result.data(), bytes);
      ASSERT_TRUE(down.Wait(After(kPatience)).ok());
      EXPECT_TRUE(down.Ended() && up.Ended());
      EXPECT_EQ(std::memcmp(target, value.data(), bytes), 0) << bytes << is_locked;
    }
  }
}

TEST_F(QueuesTest, ACopyKeepsWhatItUsesUntilItHasEnded) {
  testing::HoldCuda(true);
  auto used = std::make_shared<int>(7);
  const std::weak_ptr<int> seen = used;
  const Mark mark = queues_->MarkOf(Queue::kDown, {.tensors = {}, .memory = {std::move(used)}});
  queues_->Harvest();
  EXPECT_FALSE(mark.Ended());
  EXPECT_FALSE(seen.expired());
  testing::HoldCuda(false);
  ASSERT_TRUE(mark.Wait(After(kPatience)).ok());
  EXPECT_TRUE(seen.expired());
}

TEST_F(QueuesTest, HeldComputeRunsOnceTheGateIsOpenOrItsTimeIsUp) {
  for (const bool opens : {true, false}) {
    const std::vector<std::byte> value = Noise(1000, 3);
    std::vector<std::byte> result(value.size());
    const std::shared_ptr<Gate> gate = queues_->HoldCompute();
    const Event begin = queues_->Point();
    Compute(result.data(), value.data(), value.size());
    const Event end = queues_->Point();
    EXPECT_NE(result, value);
    if (opens) {
      gate->Open();
    }
    ASSERT_TRUE(queues_->Drain(After(kPatience)).ok());
    EXPECT_EQ(result, value);
    EXPECT_GT(queues_->Between(begin, end), Duration{});
  }
}

TEST_F(QueuesTest, WaitsEndAtTheirDeadline) {
  testing::HoldCuda(true);
  const Mark mark = queues_->MarkOf(Queue::kUp, {});
  EXPECT_EQ(mark.Wait(Now()).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(queues_->Drain(Now()).code(), StatusCode::kDeadlineExceeded);
  testing::HoldCuda(false);
  EXPECT_TRUE(queues_->Drain(After(kPatience)).ok());
}

TEST_F(QueuesTest, WorksCountOnceWhenTheyHaveEnded) {
  std::vector<std::byte> one(8);
  std::vector<std::byte> other(8);
  for (int i = 0; i < 20; ++i) {
    Compute(one.data(), other.data(), one.size());
  }
  EXPECT_EQ(works_, 0);
  ASSERT_TRUE(queues_->Drain(After(kPatience)).ok());
  EXPECT_EQ(works_, 20);
  EXPECT_EQ(time_, 20 * FromSeconds(2e-3));
  Compute(one.data(), other.data(), one.size());
  queues_->Close();
  ASSERT_TRUE(queues_->Drain(After(kPatience)).ok());
  EXPECT_EQ(works_, 20);
}

TEST_F(QueuesTest, ManyThreadsWaitAtOnce) {
  std::vector<std::vector<std::byte>> targets(16);
  const std::vector<std::byte> value = Noise(50'000, 1);
  std::vector<std::byte> other(8);
  for (int i = 0; i < 40; ++i) {
    Compute(other.data(), value.data(), other.size());
  }
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (auto& target : targets) {
    threads.emplace_back([&] {
      target.resize(value.size());
      const Mark mark = Down(target.data(), value.data(), value.size());
      right += mark.Wait(After(kPatience)).ok() && target == value ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(right.load(), 16);
  EXPECT_EQ(works_, 40);
}

TEST_F(QueuesTest, AnErrorIsNamedAndStays) {
  const Mark mark = queues_->MarkOf(Queue::kDown, {});
  testing::FailCuda(cudaErrorIllegalAddress);
  const Status status = mark.Wait(After(kPatience));
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.ToString(), HasSubstr("cudaErrorIllegalAddress"));
  EXPECT_TRUE(mark.Ended());
  testing::FailCuda(cudaSuccess);
  EXPECT_EQ(queues_->Drain(After(kPatience)).ToString(), status.ToString());
  EXPECT_EQ(queues_->MarkOf(Queue::kUp, {}).Wait(After(kPatience)).ToString(), status.ToString());
}

TEST_F(QueuesTest, MissingMemoryIsNamed) {
  EXPECT_FALSE(queues_->Try(cudaErrorMemoryAllocation, "cudaMalloc"));
  EXPECT_EQ(queues_->Drain(After(kPatience)).code(), StatusCode::kResourceExhausted);
}

TEST_F(QueuesTest, CopiesWithoutLockedMemoryFailByName) {
  std::vector<std::byte> value(100);
  std::vector<std::byte> target(100);
  testing::ExhaustHost();
  EXPECT_EQ(Down(target.data(), value.data(), value.size()).Wait(After(kPatience)).code(),
            StatusCode::kResourceExhausted);
}

TEST_F(QueuesTest, LockedMemoryServesAgainWhenNobodyUsesIt) {
  std::shared_ptr<void> first = pool_->Take(100'000);
  const void* const address = first.get();
  EXPECT_NE(pool_->Take(100'000).get(), address);
  const Mark mark = queues_->MarkOf(Queue::kDown, {.tensors = {}, .memory = {std::move(first)}});
  const std::shared_ptr<void> apart = pool_->Take(90'000);
  EXPECT_NE(apart.get(), address) << "a copy uses it";
  ASSERT_TRUE(mark.Wait(After(kPatience)).ok());
  EXPECT_EQ(pool_->Take(80'000).get(), address);
  EXPECT_TRUE(IsPinned(static_cast<const char*>(address) + 99'999));
  EXPECT_FALSE(IsPinned(&works_));
}

TEST_F(QueuesTest, LockedMemoryGoesWithThePool) {
  EXPECT_EQ(testing::LockedBytes(), 0);
  std::shared_ptr<void> memory = pool_->Take(5'000'000);
  EXPECT_EQ(testing::LockedBytes(), int64_t{5} << 20);
  copies_.reset();
  pool_.reset();
  EXPECT_GT(testing::LockedBytes(), 0) << "it is still in use";
  memory.reset();
  EXPECT_EQ(testing::LockedBytes(), 0);
}

}  // namespace
}  // namespace heddle::runtime::cuda
