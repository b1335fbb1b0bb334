#include "tests/support/device/fake_peer_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "engine/runtime/device/tensor.h"
#include "tests/support/device/fake_memory.h"

namespace heddle::runtime::testing {
namespace {

constexpr size_t kPage = 4096;

std::byte* Map(int file, size_t bytes, int protection) {
  void* const memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, file, 0);
  HEDDLE_CHECK(memory != MAP_FAILED, "an arena cannot be mapped");
  return static_cast<std::byte*>(memory);
}

}  // namespace

/// An arena as one device sees it.
class FakePeerMemory::View {
 public:
  /// Takes `file`. `count` null: the arena is another device's.
  View(int file, size_t bytes, std::shared_ptr<std::atomic<int64_t>> count)
      : file_(file),
        bytes_(bytes),
        count_(std::move(count)),
        memory_(Map(file, bytes, PROT_NONE)) {
    if (count_ != nullptr) {
      poisoner_ = Map(file, bytes, PROT_READ | PROT_WRITE);
      Poison({poisoner_, bytes});
      *count_ += static_cast<int64_t>(bytes);
    }
  }
  ~View() {
    ::munmap(memory_, bytes_);
    if (count_ != nullptr) {
      ::munmap(poisoner_, bytes_);
      *count_ -= static_cast<int64_t>(bytes_);
    }
    ::close(file_);
  }
  View(const View&) = delete;
  View& operator=(const View&) = delete;

  std::byte* memory() const { return memory_; }
  void Protect(bool open) const {
    const int access = count_ != nullptr ? PROT_READ | PROT_WRITE : PROT_READ;
    HEDDLE_CHECK(::mprotect(memory_, bytes_, open ? access : PROT_NONE) == 0,
                 "an arena cannot be opened or closed");
  }
  bool IsOfAnother(const std::byte* place) const {
    return count_ == nullptr && place >= memory_ && place < memory_ + bytes_;
  }
  // From the host, whenever the device gets there.
  void PoisonPart(const std::byte* begin, size_t bytes) const {
    if (poisoner_ != nullptr && begin >= memory_ && begin + bytes <= memory_ + bytes_) {
      Poison({poisoner_ + (begin - memory_), bytes});
    }
  }

 private:
  const int file_;
  const size_t bytes_;
  const std::shared_ptr<std::atomic<int64_t>> count_;
  std::byte* const memory_;
  std::byte* poisoner_ = nullptr;
};

FakePeerMemory::FakePeerMemory(const FakeOptions& options, FakeQueues& queues)
    : PeerMemory(options.peer_bytes_per_second),
      options_(options),
      queues_(queues) {}

Result<PeerMemory::Arena> FakePeerMemory::Allocate(size_t bytes) {
  const size_t whole = std::max<size_t>(1, (bytes + kPage - 1) / kPage) * kPage;
  const int file = ::memfd_create("arena", MFD_CLOEXEC);
  HEDDLE_CHECK(file >= 0 && ::ftruncate(file, static_cast<off_t>(whole)) == 0, "no arena");
  ByteWriter handle;
  handle.PutString(fmt::format("/proc/{}/fd/{}", ::getpid(), file));
  handle.Put(static_cast<uint64_t>(whole));
  return Arena{.memory = Keep(std::make_shared<View>(file, whole, in_use_)),
               .handle = handle.Take()};
}

Result<std::shared_ptr<std::byte>> FakePeerMemory::Open(std::span<const std::byte> handle) {
  if (!options_.opens_peers) {
    return FailedPreconditionError("the device reads no memory of others");
  }
  ByteReader reader(handle);
  HEDDLE_ASSIGN_OR_RETURN(const std::string path, reader.GetString());
  HEDDLE_ASSIGN_OR_RETURN(const auto bytes, reader.Get<uint64_t>());
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat found {};
  if (file < 0 || ::fstat(file, &found) != 0 || static_cast<uint64_t>(found.st_size) != bytes) {
    return FailedPreconditionError("there is no arena {}", path);
  }
  return Keep(std::make_shared<View>(file, bytes, nullptr));
}

std::shared_ptr<std::byte> FakePeerMemory::Keep(std::shared_ptr<View> view) {
  const MutexLock lock(mutex_);
  std::erase_if(views_, [](const auto& other) { return other.expired(); });
  views_.push_back(view);
  std::byte* const memory = view->memory();
  return {std::move(view), memory};
}

std::vector<std::shared_ptr<FakePeerMemory::View>> FakePeerMemory::Views() {
  const MutexLock lock(mutex_);
  std::vector<std::shared_ptr<View>> views;
  for (const auto& view : views_) {
    if (auto alive = view.lock()) {
      views.push_back(std::move(alive));
    }
  }
  return views;
}

Mark FakePeerMemory::Put(std::function<void()> run,
                         OperationPtr after,
                         std::shared_ptr<void> kept) {
  const OperationPtr operation = queues_.Put(
      Queue::kPeers, /*counted=*/false,
      [this, run = std::move(run), kept = std::move(kept)] {
        const std::vector<std::shared_ptr<View>> views = Views();
        for (const auto& view : views) {
          view->Protect(/*open=*/true);
        }
        run();
        for (const auto& view : views) {
          view->Protect(/*open=*/false);
        }
      },
      std::move(after));
  return Has(Fault::kPeerMarkEndsAtOnce) ? Mark() : MarkOf(queues_, operation);
}

bool FakePeerMemory::IsOfAnother(const std::byte* place) {
  return std::ranges::any_of(Views(), [&](const auto& view) { return view->IsOfAnother(place); });
}

Mark FakePeerMemory::Copy(const Mark& after,
                          std::vector<Stretch> stretches,
                          std::shared_ptr<void> kept) {
  for (const auto& view : Views()) {
    for (const Stretch& stretch : stretches) {
      view->PoisonPart(stretch.to, stretch.bytes);
    }
  }
  return Put(
      [this, stretches = std::move(stretches)] {
        for (const Stretch& stretch : stretches) {
          std::copy_n(stretch.from, stretch.bytes, stretch.to);
          if (options_.garbles_copies && IsOfAnother(stretch.from)) {
            stretch.to[stretch.bytes / 2] ^= std::byte{1};
          }
        }
      },
      Has(Fault::kPeerCopyEarly) ? nullptr : OperationOf(after), std::move(kept));
}

Mark FakePeerMemory::Add(Addition addition, std::shared_ptr<void> kept) {
  if (Has(Fault::kPeerSumReversed)) {
    std::ranges::reverse(addition.addends);
  }
  return Put(
      [this, addition = std::move(addition)] {
        const auto options = at::TensorOptions().dtype(ToScalarType(addition.dtype));
        std::vector<at::Tensor> pending;
        for (size_t i = 0; i < addition.addends.size(); ++i) {
          auto* const memory = const_cast<std::byte*>(addition.addends[i]);
          pending.push_back(at::from_blob(memory, {addition.elements}, options));
          for (uint8_t left = addition.additions[i]; left > 0; --left) {
            const at::Tensor newest = pending.back();
            pending.pop_back();
            pending.back() = at::add(pending.back(), newest);
          }
        }
        const at::Tensor sum = at::from_blob(addition.sum, {addition.elements}, options);
        sum.copy_(pending.at(0));
        if (options_.garbles_sums && IsOfAnother(addition.addends.back())) {
          sum[addition.elements / 2] += 1;
        }
      },
      nullptr, std::move(kept));
}

}  // namespace heddle::runtime::testing
