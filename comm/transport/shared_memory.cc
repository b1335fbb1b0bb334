#include "comm/transport/shared_memory.h"

#include <cerrno>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace heddle::comm {

Result<UniqueFd> MakeSharedMemory(size_t bytes) {
  // The kernel would end the process by a signal (SIGXFSZ) that memory as a file is too large.
  rlimit file_size{};
  if (::getrlimit(RLIMIT_FSIZE, &file_size) == 0 && bytes > file_size.rlim_cur) {
    return ResourceExhaustedError(
        "shared memory of {} bytes where files may have {}: raise `ulimit -f`", bytes,
        file_size.rlim_cur);
  }
  UniqueFd memory(::memfd_create("heddle", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.valid()) {
    return ErrnoError(errno, "memfd_create");
  }
  // Allocated now: a machine without memory says so here and not by a signal at the first touch.
  int error = 0;
  do {
    error = ::posix_fallocate(memory.get(), 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) {
    return ResourceExhaustedError(
        "{}; free memory, or raise the limit of the container or control group",
        ErrnoError(error, fmt::format("shared memory of {} bytes", bytes)).message());
  }
  if (::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoError(errno, "seal of shared memory");
  }
  return memory;
}

Result<size_t> CheckSharedMemory(int fd, size_t least) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return DataLossError("the peer handed over no memory: {}",
                         ErrnoError(errno, "its seals").message());
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return DataLossError("the peer's shared memory is not sealed: it could shrink");
  }
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    return ErrnoError(errno, "fstat of the peer's shared memory");
  }
  if (info.st_size <= 0 || static_cast<size_t>(info.st_size) < least) {
    return DataLossError("the peer's shared memory has {} bytes where at least {} are expected",
                         info.st_size, least);
  }
  return static_cast<size_t>(info.st_size);
}

Result<Mapping> Mapping::Of(int fd, size_t bytes, bool touch) {
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_SHARED | (touch ? MAP_POPULATE : 0), fd, 0);
  if (base == MAP_FAILED) {
    return ErrnoError(errno, fmt::format("mapping {} bytes of shared memory", bytes));
  }
  return Mapping(static_cast<std::byte*>(base), bytes);
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (base_ != nullptr) {
    ::munmap(base_, bytes_);
  }
}

void SharedRegion::AddUse(std::weak_ptr<RegionUse> use) const {
  const MutexLock lock(mutex);
  std::erase_if(uses, [](const auto& other) { return other.expired(); });
  uses.push_back(std::move(use));
}

void SharedRegion::EndUses() const {
  std::vector<std::weak_ptr<RegionUse>> ending;
  {
    const MutexLock lock(mutex);
    ending.swap(uses);
  }
  for (const auto& weak : ending) {
    if (const auto use = weak.lock()) {
      use->End();
    }
  }
}

SharedRegions::SharedRegions(metrics::Registry* metrics) : metrics_(metrics) {
  if (metrics_ != nullptr) {
    Refused(StatusCode::kResourceExhausted);  // Lockable memory or descriptors are used up.
  }
}

Result<SharedBuffer> SharedRegions::Allocate(size_t bytes) {
  if (bytes == 0) {
    return InvalidArgumentError("a shared buffer of 0 bytes");
  }
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t whole = (bytes + page - 1) / page * page;
  HEDDLE_ASSIGN_OR_RETURN(UniqueFd memory, MakeSharedMemory(whole));
  HEDDLE_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Of(memory.get(), whole, false));
  auto made = std::make_unique<SharedRegion>();
  made->memory = std::move(memory);
  made->mapping = std::move(mapping);
  // Peers may keep the mapping until their group ends: its pages go back to the machine now.
  std::shared_ptr<SharedRegion> region(
      made.release(), [registry = shared_from_this(), whole](SharedRegion* own) {
        registry->Forget(*own);
        own->EndUses();
        ::fallocate(own->memory.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                    static_cast<off_t>(whole));
        delete own;
      });
  const MutexLock lock(mutex_);
  return Add(std::move(region), bytes);
}

Result<SharedBuffer> SharedRegions::Import(const DeviceMemory& memory) {
  const size_t bytes = memory.bytes.size();
  if (bytes == 0) {
    return InvalidArgumentError("device memory of 0 bytes");
  }
  UniqueFd own(::fcntl(memory.fd, F_DUPFD_CLOEXEC, 0));
  const off_t size = own.valid() ? ::lseek(own.get(), 0, SEEK_END) : -1;
  if (size < 0) {
    return InvalidArgumentError("{}", ErrnoError(errno, "a device's dma-buf").message());
  }
  const auto room = static_cast<uint64_t>(size);
  if (memory.offset > room || bytes > room - memory.offset) {
    return InvalidArgumentError("device memory of {} bytes at {} of a dma-buf of {}", bytes,
                                memory.offset, room);
  }
  auto made = std::make_unique<SharedRegion>();
  made->memory = std::move(own);
  made->device_bytes = memory.bytes;
  made->device_offset = memory.offset;
  std::shared_ptr<SharedRegion> region(made.release(),
                                       [registry = shared_from_this()](SharedRegion* old) {
                                         registry->Forget(*old);
                                         old->EndUses();
                                         delete old;
                                       });
  RegionPtr before;
  const MutexLock lock(mutex_);
  before = LastBefore(memory.bytes.data() + bytes);
  if (before != nullptr && before->bytes().data() + before->bytes().size() > memory.bytes.data()) {
    return FailedPreconditionError("device memory at {} overlaps a buffer that is in use",
                                   static_cast<const void*>(memory.bytes.data()));
  }
  has_device_memory_.store(true);
  return Add(std::move(region), bytes);
}

SharedBuffer SharedRegions::Add(std::shared_ptr<SharedRegion> region, size_t bytes) {
  region->id = next_id_++;
  std::byte* const base = region->bytes().data();
  by_base_[base] = region;
  return SharedBuffer(std::move(region), std::span(base, bytes));
}

// Another one may lie at its addresses by now.
void SharedRegions::Forget(const SharedRegion& region) {
  RegionPtr there;  // Released after the lock, which its end takes.
  const MutexLock lock(mutex_);
  const auto found = by_base_.find(region.bytes().data());
  if (found == by_base_.end()) {
    return;
  }
  there = found->second.lock();
  if (there == nullptr || there.get() == &region) {
    by_base_.erase(found);
  }
}

SharedRegions::RegionPtr SharedRegions::LastBefore(const std::byte* end) const {
  const auto after = by_base_.lower_bound(end);
  return after == by_base_.begin() ? nullptr : std::prev(after)->second.lock();
}

SharedRegions::RegionPtr SharedRegions::FindAny(std::span<const std::byte> bytes) const {
  RegionPtr region;
  const MutexLock lock(mutex_);
  region = LastBefore(bytes.data() + 1);
  if (region == nullptr) {
    return nullptr;
  }
  const auto offset = static_cast<size_t>(bytes.data() - region->bytes().data());
  const size_t room = region->bytes().size();
  return offset <= room && bytes.size() <= room - offset ? region : nullptr;
}

bool SharedRegions::TouchesDevice(std::span<const std::byte> bytes) const {
  if (!has_device_memory_.load() || bytes.empty()) {
    return false;
  }
  RegionPtr region;
  const MutexLock lock(mutex_);
  region = LastBefore(bytes.data() + bytes.size());
  return region != nullptr && region->in_device() &&
         region->bytes().data() + region->bytes().size() > bytes.data();
}

metrics::Counter& SharedRegions::Refused(StatusCode reason) {
  return metrics_->GetCounter("heddle_comm_refused_buffers_total",
                              "Shared buffers that could not be mapped, or registered for RDMA, "
                              "and are copied instead.",
                              {{"reason", std::string(StatusCodeName(reason))}});
}

void SharedRegions::CountRefused(StatusCode reason) {
  if (metrics_ != nullptr) {
    Refused(reason).Add();
  }
}

Status SharedRegions::Privatise(const SharedRegion& region, std::span<std::byte> bytes) {
  Forget(region);
  region.EndUses();  // They would go on with the pages that this process leaves.
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  std::byte* const base = region.mapping.base();
  const size_t begin = static_cast<size_t>(bytes.data() - base) / page * page;
  const size_t end =
      (static_cast<size_t>(bytes.data() - base) + bytes.size() + page - 1) / page * page;
  void* const copy = ::mmap(nullptr, end - begin, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (copy == MAP_FAILED) {
    return ErrnoError(errno, "a private copy of shared memory");
  }
  std::memcpy(copy, base + begin, end - begin);
  if (::mremap(copy, end - begin, end - begin, MREMAP_MAYMOVE | MREMAP_FIXED, base + begin) ==
      MAP_FAILED) {
    const int error = errno;
    ::munmap(copy, end - begin);
    return ErrnoError(error, "a private copy of shared memory");
  }
  return Status::Ok();
}

}  // namespace heddle::comm
