#include "checkpoint/staging.h"

#include <cerrno>

#include <sys/mman.h>

namespace heddle::checkpoint {

namespace {
constexpr int64_t kHugePage = int64_t{2} << 20;
}

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
  const int64_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = ::mmap(nullptr, static_cast<size_t>(rounded), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhaustedError("no memory for a snapshot of {} bytes", bytes);
  }
  ::madvise(memory, static_cast<size_t>(rounded),
            MADV_HUGEPAGE);  // A hint: failure costs speed only.
  data_ = static_cast<std::byte*>(memory);
  size_ = rounded;
  constexpr int64_t kPage = 4096;
  for (int64_t at = 0; at < rounded; at += kPage) {
    data_[at] = std::byte{0};
  }
  return Status::Ok();
}

}  // namespace heddle::checkpoint
