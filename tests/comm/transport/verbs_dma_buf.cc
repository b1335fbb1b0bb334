// Memory of other devices, which RDMA devices register. The devices here say no (rxe, siw), or a
// stand-in for the library's call answers as others would: it maps the dma-buf's bytes and registers
// them, so that real RDMA carries them.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>

#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "comm/stream/frame.h"
#include "comm/transport/verbs/rdma_ports.h"
#include "comm/transport/verbs/verbs_device.h"
#include "tests/comm/cluster.h"
#include "tests/support/local_transport/exported_memory.h"

namespace {
std::atomic<int> g_error = 0;           // Of a registration of a file that is there; 0: none.
std::atomic<bool> g_stands_in = false;  // False: the library answers.
std::atomic<bool> g_elsewhere = false;  // Bytes land in another place than they should.
std::mutex g_mutex;
std::set<const ibv_mr*> g_registered;  // Of dma-bufs.

template <typename Call>
Call* Library(const char* name) {
  return reinterpret_cast<Call*>(::dlsym(RTLD_NEXT, name));
}
}  // namespace

// In the place of the library's.
extern "C" ibv_mr* ibv_reg_dmabuf_mr(
    ibv_pd* domain, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
  if (!g_stands_in && g_error == 0) {
    return Library<decltype(ibv_reg_dmabuf_mr)>("ibv_reg_dmabuf_mr")(domain, offset, length, iova,
                                                                     fd, access);
  }
  const bool there = ::fcntl(fd, F_GETFD) >= 0;
  if (g_error != 0 || !there) {
    errno = g_error != 0 ? g_error.load() : EBADF;
    return nullptr;
  }
  // The mapping stays: a test is short.
  void* const memory =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, g_elsewhere ? MAP_PRIVATE : MAP_SHARED, fd,
             static_cast<off_t>(offset));
  const auto begin = reinterpret_cast<uint64_t>(memory);
  ibv_mr* const made = ::ibv_reg_mr_iova(domain, memory, length, iova, access);
  EXPECT_NE(made, nullptr) << begin;
  const std::lock_guard lock(g_mutex);
  g_registered.insert(made);
  return made;
}

extern "C" int ibv_dereg_mr(ibv_mr* memory) {
  {
    const std::lock_guard lock(g_mutex);
    g_registered.erase(memory);
  }
  return Library<decltype(ibv_dereg_mr)>("ibv_dereg_mr")(memory);
}

namespace heddle::comm {
namespace {

using ::testing::HasSubstr;

class VerbsDmaBufTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (RdmaDevice().empty()) {
      GTEST_SKIP() << "HEDDLE_TEST_RDMA names no device";
    }
    for (const RdmaPort& port : FindRdmaPorts()) {
      if (IsAmong(port, RdmaDevice())) {
        auto device = VerbsDevice::Open(port);
        ASSERT_TRUE(device.ok()) << device.status().message();
        device_ = *device;
      }
    }
    ASSERT_NE(device_, nullptr);
  }
  void TearDown() override {
    g_error = 0;
    g_stands_in = false;
    g_elsewhere = false;
  }

  std::shared_ptr<VerbsDevice> device_;
};

TEST_F(VerbsDmaBufTest, ASoftwareDeviceSaysThatItRegistersNone) {
  const Status status = device_->CheckDmaBuf();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("ibv_reg_dmabuf_mr: "));
}

TEST_F(VerbsDmaBufTest, OnlyADeviceThatLooksForTheDescriptorRegistersIt) {
  g_error = EBADF;
  EXPECT_TRUE(device_->CheckDmaBuf().ok());
  for (const int error : {EOPNOTSUPP, ENOSYS, EPROTONOSUPPORT, EINVAL, ENOMEM}) {
    g_error = error;
    EXPECT_EQ(device_->CheckDmaBuf().code(), StatusCode::kUnavailable) << error;
  }
}

size_t Registered() {
  const std::lock_guard lock(g_mutex);
  return g_registered.size();
}

/// Bytes that no other message holds.
Bytes BytesOf(size_t count, uint64_t message) {
  Bytes bytes(count);
  for (size_t at = 0; at < count; ++at) {
    bytes[at] = static_cast<std::byte>((at * 31 + (at >> 8) * 7 + message * 101 + 1) & 0xFF);
  }
  return bytes;
}

/// Two endpoints between whose devices RDMA carries messages.
class VerbsDmaBufPairTest : public VerbsDmaBufTest {
 protected:
  static constexpr size_t kRoom = (size_t{3} << 20) + 4096;
  static constexpr uint64_t kOffset = 8192;

  void SetUp() override {
    VerbsDmaBufTest::SetUp();
    if (RdmaDevice().starts_with("siw")) {
      GTEST_SKIP() << "siw registers memory at the host's addresses alone";
    }
    g_stands_in = true;
  }
  static Status Pass(Communicator& communicator,
                     uint64_t tag,
                     std::span<std::byte> bytes,
                     bool urgent = false) {
    return (communicator.rank() == 0 ? communicator.Send(1, tag, bytes, urgent)
                                     : communicator.Recv(0, tag, bytes, urgent))
        .Wait(After(kAmple));
  }
};

// From and to memory at an offset in its dma-buf, and the host's; nobody reads or writes the
// addresses, or the test would die.
TEST_F(VerbsDmaBufPairTest, MessagesOfAllSizesArriveInDeviceMemory) {
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory device(kRoom, kOffset);
    const auto imported = cluster.endpoint(rank).ImportDeviceMemory(device.memory());
    ASSERT_TRUE(imported.ok()) << imported.status().ToString();
    const auto shared = cluster.endpoint(rank).AllocateShared(kRoom);
    ASSERT_TRUE(shared.ok());
    uint64_t tag = 0;
    for (const bool from_device : {true, false}) {
      for (const bool to_device : {true, false}) {
        const bool in_device = rank == 0 ? from_device : to_device;
        for (const size_t size : {size_t{1}, size_t{4000}, size_t{65537}, size_t{3} << 20}) {
          if (size < kPlacedBytes && !(from_device && to_device)) {
            continue;  // Would go through the stream.
          }
          ++tag;
          const size_t at = tag % 2 == 0 ? 0 : 777;
          const Bytes expected = BytesOf(size, tag);
          const std::span<std::byte> host = shared->bytes().subspan(at, size);
          if (rank == 0) {
            device.Write(at, expected);
            std::copy(expected.begin(), expected.end(), host.begin());
          }
          const Status status =
              Pass(communicator, tag, in_device ? imported->bytes().subspan(at, size) : host,
                   tag % 2 == 1);
          ASSERT_TRUE(status.ok()) << size << ": " << status.ToString();
          if (rank == 1) {
            const Bytes arrived =
                in_device ? device.Read(at, size) : Bytes(host.begin(), host.end());
            EXPECT_TRUE(arrived == expected) << size << " to " << to_device;
          }
        }
      }
    }
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST_F(VerbsDmaBufPairTest, WhatLiesPastTheBufferFailsAlone) {
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory device(kRoom);
    DeviceMemory part = device.memory();
    part.bytes = part.bytes.first(kRoom - 4096);
    const auto imported = cluster.endpoint(rank).ImportDeviceMemory(part);
    ASSERT_TRUE(imported.ok());
    const auto fits = device.bytes().subspan(4096, kRoom - 8192);
    for (const int wrong : {0, 1}) {
      const auto past = device.bytes().subspan(8192, kRoom - 8192);
      EXPECT_EQ(Pass(communicator, 1, rank == wrong ? past : fits).code(),
                StatusCode::kUnimplemented);
    }
    const Bytes expected = BytesOf(fits.size(), 5);
    if (rank == 0) {
      device.Write(4096, expected);
    }
    EXPECT_TRUE(Pass(communicator, 2, fits).ok());
    EXPECT_TRUE(device.Read(4096, fits.size()) == expected);
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST_F(VerbsDmaBufPairTest, ARegistrationThatFailsLaterFailsItsMessageAlone) {
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory first(kRoom);
    const ExportedMemory second(kRoom);
    const auto before = cluster.endpoint(rank).ImportDeviceMemory(first.memory());
    ASSERT_TRUE(before.ok());
    EXPECT_TRUE(Pass(communicator, 1, before->bytes()).ok());
    const auto later = cluster.endpoint(rank).ImportDeviceMemory(second.memory());
    ASSERT_TRUE(later.ok());
    const auto shared = cluster.endpoint(rank).AllocateShared(kRoom);
    ASSERT_TRUE(shared.ok());
    for (const int refused : {0, 1}) {  // Sender and receiver.
      ASSERT_TRUE(communicator.Barrier({}).ok());
      g_error = ENOMEM;
      const auto bytes = rank == refused ? later->bytes() : before->bytes();
      EXPECT_EQ(Pass(communicator, 2, bytes).code(), StatusCode::kUnimplemented);
      // The way back.
      std::fill(shared->bytes().begin(), shared->bytes().end(), static_cast<std::byte>(rank + 5));
      EXPECT_TRUE(Pass(communicator, 3, shared->bytes()).ok());
      EXPECT_EQ(shared->bytes().back(), std::byte{5});
      EXPECT_TRUE(Pass(communicator, 4, before->bytes()).ok()) << "it is registered already";
      ASSERT_TRUE(communicator.Barrier({}).ok());
      g_error = 0;
    }
    EXPECT_TRUE(Pass(communicator, 5, later->bytes()).ok());
    ASSERT_TRUE(communicator.Barrier({}).ok());
  });
}

TEST_F(VerbsDmaBufPairTest, ABufferThatGoesIsNotRegisteredAnyMore) {
  Cluster cluster(2, Media::kVerbs);
  const size_t none = Registered();
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory device(kRoom);
    const ExportedMemory other(kRoom);
    for (uint64_t round = 1; round <= 3; ++round) {
      // Other memory at the same addresses.
      DeviceMemory memory = round % 2 == 0 ? other.memory() : device.memory();
      memory.bytes = device.bytes();
      const ExportedMemory& lies_in = round % 2 == 0 ? other : device;
      auto imported = cluster.endpoint(rank).ImportDeviceMemory(memory);
      ASSERT_TRUE(imported.ok()) << imported.status().ToString();
      const Bytes expected = BytesOf(kRoom, round);
      if (rank == 0) {
        lies_in.Write(0, expected);
      }
      ASSERT_TRUE(Pass(communicator, round, imported->bytes()).ok());
      EXPECT_TRUE(lies_in.Read(0, kRoom) == expected) << round;
      ASSERT_TRUE(communicator.Barrier({}).ok());
      EXPECT_EQ(Registered(), none + 2);
      ASSERT_TRUE(communicator.Barrier({}).ok());
      imported = UnavailableError("freed");
      ASSERT_TRUE(communicator.Barrier({}).ok());
      EXPECT_EQ(Registered(), none);
      ASSERT_TRUE(communicator.Barrier({}).ok());
    }
  });
}

/// What the trial says at both ends.
std::array<Status, 2> Try(
    const std::function<DeviceTrial(int rank, const ExportedMemory&)>& trial) {
  std::array<Status, 2> said;
  Cluster cluster(2, Media::kVerbs);
  cluster.Run(1, [&](int rank, Communicator& communicator) {
    const ExportedMemory device(size_t{1} << 20);
    const auto imported = cluster.endpoint(rank).ImportDeviceMemory(device.memory());
    ASSERT_TRUE(imported.ok());
    said[static_cast<size_t>(rank)] = cluster.endpoint(rank).TryDeviceMemory(
        communicator, 1 - rank, 9, trial(rank, device), After(kAmple));
    EXPECT_TRUE(communicator.Barrier({}).ok()) << "the group goes on";
  });
  return said;
}

TEST_F(VerbsDmaBufPairTest, ATrialSucceedsWhereThePatternArrives) {
  for (const Status& status :
       Try([](int, const ExportedMemory& device) { return device.Trial(); })) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
}

TEST_F(VerbsDmaBufPairTest, ATrialFailsAtBothEndsWhereThePatternDoesNotArrive) {
  g_elsewhere = true;
  for (const Status& status :
       Try([](int, const ExportedMemory& device) { return device.Trial(); })) {
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("byte 0 of the pattern that worker-"));
  }
}

// The last byte alone, at one end: as where a write was not flushed.
TEST_F(VerbsDmaBufPairTest, ATrialFailsAtBothEndsWhereOneByteIsWrong) {
  const auto said = Try([](int rank, const ExportedMemory& device) {
    DeviceTrial trial = device.Trial();
    if (rank == 1) {
      trial.read = [read = trial.read](std::span<std::byte> host) {
        const Status status = read(host);
        host.back() ^= std::byte{1};
        return status;
      };
    }
    return trial;
  });
  EXPECT_EQ(said[1].code(), StatusCode::kUnimplemented);
  EXPECT_THAT(said[1].message(), HasSubstr("of the pattern that worker-0 wrote did not arrive"));
  EXPECT_EQ(said[0].code(), StatusCode::kUnimplemented);
  EXPECT_THAT(said[0].message(), HasSubstr("at worker-1: byte "));
}

TEST_F(VerbsDmaBufPairTest, ATrialFailsAtBothEndsWhereOneHasNoMemoryOrCannotWriteIt) {
  for (const bool has_none : {true, false}) {
    const auto said = Try([&](int rank, const ExportedMemory& device) {
      DeviceTrial trial = device.Trial();
      if (rank == 1 && has_none) {
        return DeviceTrial{};
      }
      if (rank == 1) {
        trial.write = [](std::span<const std::byte>) { return InternalError("lost"); };
      }
      return trial;
    });
    for (const Status& status : said) {
      EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
      EXPECT_THAT(status.message(), HasSubstr(has_none ? "no device memory" : "lost"));
    }
  }
}

}  // namespace
}  // namespace heddle::comm
