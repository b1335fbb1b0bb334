/// \file
/// Memory that stands for another device's: a memory file as its dma-buf, at addresses that nobody
/// may read or write.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/system/unique_fd.h"
#include "comm/communicator.h"
#include "comm/device_memory.h"

namespace heddle::comm {

class ExportedMemory {
 public:
  /// `offset`: where the memory begins in the file.
  explicit ExportedMemory(size_t bytes, uint64_t offset = 0)
      : bytes_(bytes),
        offset_(offset),
        file_(::memfd_create("device", MFD_CLOEXEC)),
        address_(
            ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    EXPECT_EQ(::ftruncate(file_.get(), static_cast<off_t>(offset + bytes)), 0);
    EXPECT_NE(address_, MAP_FAILED);
  }
  ~ExportedMemory() { ::munmap(address_, bytes_); }
  ExportedMemory(const ExportedMemory&) = delete;
  ExportedMemory& operator=(const ExportedMemory&) = delete;

  DeviceMemory memory() const {
    return {.fd = file_.get(), .offset = offset_, .bytes = this->bytes()};
  }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(address_), bytes_}; }
  void Write(size_t at, std::span<const std::byte> host) const {
    EXPECT_EQ(::pwrite(file_.get(), host.data(), host.size(), static_cast<off_t>(offset_ + at)),
              static_cast<ssize_t>(host.size()));
  }
  Bytes Read(size_t at, size_t count) const {
    Bytes host(count);
    EXPECT_EQ(::pread(file_.get(), host.data(), count, static_cast<off_t>(offset_ + at)),
              static_cast<ssize_t>(count));
    return host;
  }
  /// A trial of its first bytes.
  DeviceTrial Trial() const {
    return {.bytes = bytes().first(kTrialBytes),
            .write =
                [this](std::span<const std::byte> host) {
                  Write(0, host);
                  return Status::Ok();
                },
            .read =
                [this](std::span<std::byte> host) {
                  const Bytes read = Read(0, host.size());
                  std::copy(read.begin(), read.end(), host.begin());
                  return Status::Ok();
                }};
  }

 private:
  const size_t bytes_;
  const uint64_t offset_;
  const UniqueFd file_;
  void* const address_;
};

}  // namespace heddle::comm
