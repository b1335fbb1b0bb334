/// \file
/// Goal: a device reads and adds what a worker of another process, and another device of this one, has
/// put into memory for its peers, bit for bit.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system/file.h"
#include "engine/runtime/device/peer_memory.h"
#include "engine/runtime/device/tensor.h"
#include "tests/engine_runtime/device/check.h"
#include "tests/support/eventually.h"

namespace heddle::runtime::testing {
namespace {

constexpr const char* kFolder = "HEDDLE_CHECK_PEER";  // Of what the two processes tell each other.

int64_t Elements() {
  return Size(10'001, 16'000'001);
}

// Of unlike sizes, so that sums round.
at::Tensor ValuesOf(int member) {
  const at::Tensor index = at::arange(Elements(), at::TensorOptions(at::kFloat));
  return (index * (0.37F + static_cast<float>(member))).sin() * at::exp2(at::remainder(index, 17));
}

std::byte* DataOf(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

/// The values of `member` in memory that peers can open, once they are there.
Result<PeerMemory::Arena> Put(Device& device, int member) {
  PeerMemory& peers = *device.peer_memory();
  const Copied values = device.Upload(ValuesOf(member));
  const size_t bytes = values.tensor.nbytes();
  HEDDLE_ASSIGN_OR_RETURN(auto arena, peers.Allocate(bytes));
  const Mark mark = peers.Copy(
      values.mark, {{.from = DataOf(values.tensor), .to = arena.memory.get(), .bytes = bytes}},
      std::make_shared<at::Tensor>(values.tensor));
  HEDDLE_RETURN_IF_ERROR(mark.Wait(After(kPatience)));
  return arena;
}

/// Adds the values of members 0 and 1, of which the other's are `handle`, on `device`.
void ExpectSum(Device& device, std::span<const std::byte> handle, const std::string& what) {
  PeerMemory& peers = *device.peer_memory();
  const auto own = Put(device, 0);
  ASSERT_TRUE(own.ok()) << own.status().ToString();
  const auto other = peers.Open(handle);
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  const at::Tensor sum = device.Empty({.dtype = DType::kF32, .shape = {Elements()}});
  const PeerMemory::Addition addition{.addends = {own->memory.get(), other->get()},
                                      .additions = {0, 1},
                                      .sum = DataOf(sum),
                                      .elements = Elements()};
  ASSERT_TRUE(peers.Copy(device.Computed(), {}, nullptr).Wait(After(kPatience)).ok());
  const Time begun = Now();
  const Mark added = peers.Add(addition, nullptr);
  ASSERT_TRUE(added.Wait(After(kPatience)).ok());
  Note(what, {{"bytes_per_second", static_cast<double>(sum.nbytes()) / Seconds(Now() - begun)}});
  device.Await(added);
  EXPECT_TRUE(at::equal(OnHost(device, sum), ValuesOf(0) + ValuesOf(1)));
}

TEST(DeviceCheckPeers, AddsWhatAnotherDeviceHas) {
  auto one = OpenChecked();
  auto other = OpenChecked();
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  if ((*one)->peer_memory() == nullptr) {
    GTEST_SKIP() << "the device has no memory for peers";
  }
  const auto arena = Put(**other, 1);
  ASSERT_TRUE(arena.ok()) << arena.status().ToString();
  ExpectSum(**one, arena->handle, "peers of one process");
}

// Run by the test below, in a process of its own.
TEST(DeviceCheckPeers, DISABLED_TheOther) {
  const char* const folder = std::getenv(kFolder);  // NOLINT(concurrency-mt-unsafe)
  ASSERT_NE(folder, nullptr);
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  const auto arena = Put(**device, 1);
  ASSERT_TRUE(arena.ok()) << arena.status().ToString();
  const std::string text(reinterpret_cast<const char*>(arena->handle.data()), arena->handle.size());
  ASSERT_TRUE(WriteFileAtomically(std::string(folder) + "/handle", text).ok());
  EXPECT_TRUE(heddle::testing::Eventually(
      [&] { return std::filesystem::exists(std::string(folder) + "/done"); }));
}

TEST(DeviceCheckPeers, AddsWhatAnotherProcessHas) {
  auto device = OpenChecked();
  ASSERT_TRUE(device.ok()) << device.status().ToString();
  if ((*device)->peer_memory() == nullptr) {
    GTEST_SKIP() << "the device has no memory for peers";
  }
  const std::string folder = ::testing::TempDir() + "/peers-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  ASSERT_EQ(::setenv(kFolder, folder.c_str(), 1), 0);  // NOLINT(concurrency-mt-unsafe)
  std::string program = "/proc/self/exe";
  std::string filter = "--gtest_filter=DeviceCheckPeers.DISABLED_TheOther";
  std::string disabled = "--gtest_also_run_disabled_tests";
  char* const arguments[] = {program.data(), filter.data(), disabled.data(), nullptr};
  pid_t other = 0;
  ASSERT_EQ(::posix_spawn(&other, program.c_str(), nullptr, nullptr, arguments, environ), 0);
  int status = 0;
  bool ended = false;
  EXPECT_TRUE(heddle::testing::Eventually([&] {
    ended = ended || ::waitpid(other, &status, WNOHANG) == other;
    return ended || std::filesystem::exists(folder + "/handle");
  })) << "the other process put nothing";
  if (const auto handle = ReadFile(folder + "/handle", 1 << 10); handle.ok()) {
    ExpectSum(**device, AsBytes(*handle), "peers of two processes");
  } else {
    ADD_FAILURE() << "the other process gave no handle";
  }
  EXPECT_TRUE(WriteFileAtomically(folder + "/done", "").ok());
  EXPECT_TRUE(heddle::testing::Eventually([&] {
    ended = ended || ::waitpid(other, &status, WNOHANG) == other;
    return ended;
  })) << "the other process does not end";
  EXPECT_EQ(status, 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace heddle::runtime::testing
