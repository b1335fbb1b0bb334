#include "checkpoint/files/staging.h"

#include <algorithm>

#include <sys/mman.h>

namespace heddle::checkpoint {

namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t Rounded(int64_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}
}  // namespace

StagingBuffer::~StagingBuffer() {
  if (data_ != nullptr) {
    ::munmap(data_, static_cast<size_t>(size_));
  }
}

Status StagingBuffer::Reserve(int64_t bytes) {
  if (bytes <= size_) {
    return Status::Ok();
  }
  if (data_ != nullptr) {
    ::munmap(data_, static_cast<size_t>(size_));
    data_ = nullptr;
    size_ = 0;
  }
  const int64_t rounded = Rounded(bytes);
  void* memory = ::mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhaustedError("no memory for a snapshot of {} bytes", bytes);
  }
  Take(memory, rounded);
  return Status::Ok();
}

Status StagingBuffer::Extend(int64_t bytes) {
  if (bytes <= size_ || data_ == nullptr) {
    return Reserve(bytes);
  }
  const int64_t rounded = Rounded(std::max(bytes, size_ + size_ / 2));
  void* memory =
      ::mremap(data_, static_cast<size_t>(size_), static_cast<size_t>(rounded), MREMAP_MAYMOVE);
  if (memory == MAP_FAILED) {
    return ResourceExhaustedError("no memory for a snapshot of {} bytes", bytes);
  }
  Take(memory, rounded);
  return Status::Ok();
}

// Touches what is new.
void StagingBuffer::Take(void* memory, int64_t size) {
  ::madvise(memory, static_cast<size_t>(size),
            MADV_HUGEPAGE);  // A hint: failure costs speed only.
  data_ = static_cast<std::byte*>(memory);
  constexpr int64_t kPage = 4096;
  for (int64_t at = size_; at < size; at += kPage) {
    data_[at] = std::byte{0};
  }
  size_ = size;
}

}  // namespace heddle::checkpoint
