#include "tests/support/device/fake_export.h"

#include <algorithm>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "tests/support/device/fake_memory.h"

namespace heddle::runtime::testing {
namespace {

constexpr size_t kPage = 4096;

UniqueFd PoisonedFile(std::span<const std::byte> poison) {
  UniqueFd file(::memfd_create("fake", MFD_CLOEXEC));
  HEDDLE_CHECK(
      ::pwrite(file.get(), poison.data(), poison.size(), 0) == static_cast<ssize_t>(poison.size()),
      "no room for a device's memory");
  return file;
}

}  // namespace

FakeExport::FakeExport(size_t bytes, bool flushes)
    : flushes_(flushes),
      known_((bytes + kPage - 1) / kPage * kPage) {
  Poison(known_);
  file_ = PoisonedFile(known_);
  seen_file_ = PoisonedFile(known_);
  void* const seen = ::mmap(nullptr, known_.size(), PROT_NONE, MAP_SHARED, seen_file_.get(), 0);
  HEDDLE_CHECK(seen != MAP_FAILED, "no room for a device's memory");
  seen_ = {static_cast<std::byte*>(seen), known_.size()};
}

FakeExport::~FakeExport() {
  ::munmap(seen_.data(), seen_.size());
}

Status FakeExport::Flush() {
  const MutexLock lock(mutex_);
  std::vector<std::byte> page(kPage);
  for (size_t at = 0; flushes_ && at < known_.size(); at += kPage) {
    const auto place = static_cast<off_t>(at);
    HEDDLE_CHECK(::pread(file_.get(), page.data(), kPage, place) == kPage, "a short read");
    if (std::memcmp(page.data(), known_.data() + at, kPage) != 0) {
      std::copy(page.begin(), page.end(), known_.begin() + place);
      HEDDLE_CHECK(::pwrite(seen_file_.get(), page.data(), kPage, place) == kPage, "a short write");
    }
  }
  return Status::Ok();
}

void FakeExport::Open() {
  const MutexLock lock(mutex_);
  open_ = true;
  HEDDLE_CHECK(::mprotect(seen_.data(), seen_.size(), PROT_READ | PROT_WRITE) == 0,
               "a device's memory cannot be opened");
}

void FakeExport::Close() {
  const MutexLock lock(mutex_);
  if (!open_) {
    return;  // It is younger than the work that ends.
  }
  open_ = false;
  for (size_t at = 0; at < known_.size(); at += kPage) {
    const std::byte* const page = seen_.data() + at;
    if (std::memcmp(page, known_.data() + at, kPage) != 0) {
      std::copy_n(page, kPage, known_.data() + at);
      HEDDLE_CHECK(::pwrite(file_.get(), page, kPage, static_cast<off_t>(at)) == kPage,
                   "a short write");
    }
  }
  HEDDLE_CHECK(::mprotect(seen_.data(), seen_.size(), PROT_NONE) == 0,
               "a device's memory cannot be closed");
}

}  // namespace heddle::runtime::testing
