#include "comm/transport/verbs/verbs_placement.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/mutex.h"
#include "comm/transport/shared_memory.h"

namespace heddle::comm {

class VerbsPlacement::Registration final : public RegionUse {
 public:
  static Result<std::shared_ptr<Registration>> Of(std::shared_ptr<VerbsDevice> device,
                                                  const SharedRegion& region) {
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    std::byte* const base = region.bytes().data();
    const size_t bytes = region.bytes().size();
    VerbsHandle<ibv_mr> memory(region.in_device()
                                   ? ::ibv_reg_dmabuf_mr(device->domain(), region.device_offset,
                                                         bytes, reinterpret_cast<uint64_t>(base),
                                                         region.memory.get(), kAccess)
                                   : ::ibv_reg_mr(device->domain(), base, bytes, kAccess));
    if (memory == nullptr) {
      return VerbsResourceError(
          errno, region.in_device() ? "ibv_reg_dmabuf_mr" : "registering a shared buffer for RDMA");
    }
    std::shared_ptr<Registration> made(new Registration(std::move(device), std::move(memory)));
    region.AddUse(made);
    return made;
  }

  void End() override HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    memory_.reset();
  }
  bool ended() const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return memory_ == nullptr;
  }

  const uint32_t local_key;
  const uint32_t remote_key;

 private:
  Registration(std::shared_ptr<VerbsDevice> device, VerbsHandle<ibv_mr> memory)
      : local_key(memory->lkey),
        remote_key(memory->rkey),
        device_(std::move(device)),
        memory_(std::move(memory)) {}

  const std::shared_ptr<VerbsDevice> device_;  ///< Holds the protection domain.
  mutable Mutex mutex_;
  VerbsHandle<ibv_mr> memory_ HEDDLE_GUARDED_BY(mutex_);
};

VerbsPlacement::~VerbsPlacement() {
  EndRegistrations();
}

Result<std::shared_ptr<VerbsPlacement::Registration>> VerbsPlacement::Register(
    const std::shared_ptr<const SharedRegion>& region) {
  const auto found = registrations_.find(region->id);
  if (found != registrations_.end() && !found->second->ended()) {
    return found->second;
  }
  std::erase_if(registrations_, [](const auto& entry) { return entry.second->ended(); });
  HEDDLE_ASSIGN_OR_RETURN(auto made, Registration::Of(stream_.queue_pair().device(), *region));
  registrations_[region->id] = made;
  return made;
}

Result<RemoteMemory> VerbsPlacement::Expose(const std::shared_ptr<const SharedRegion>& region,
                                            std::span<std::byte> bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const auto registration, Register(region));
  return RemoteMemory{.address = reinterpret_cast<uint64_t>(bytes.data()),
                      .key = registration->remote_key};
}

Status VerbsPlacement::Prepare(const std::shared_ptr<const SharedRegion>& region) {
  return Register(region).status();
}

Result<size_t> VerbsPlacement::Put(const Registration& registration,
                                   std::span<const std::byte> bytes,
                                   const RemoteMemory& target) {
  VerbsQueuePair& queue_pair = stream_.queue_pair();
  VerbsChain chain(stream_.requests());
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t count =
        std::min({bytes.size() - done, queue_pair.piece_bytes(), stream_.requests().PlaceRoom()});
    if (count == 0) {
      break;
    }
    const std::byte* from = bytes.data() + done;
    const uint64_t to = target.address + done;
    done += count;
    // siw copies the data of requests that report their completion before it sends. It would read
    // the memory of others even after a later request's completion has returned it to the caller.
    const bool report = !queue_pair.device()->writes_with_immediate() || done == bytes.size();
    ibv_send_wr& request =
        chain.Add(from, count, registration.local_key, {.placed = count}, report);
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = to;
    request.wr.rdma.rkey = target.key;
    if (chain.full()) {
      HEDDLE_RETURN_IF_ERROR(queue_pair.Post(chain));
    }
  }
  HEDDLE_RETURN_IF_ERROR(queue_pair.Post(chain));
  return done;
}

Result<size_t> VerbsPlacement::Place(const std::shared_ptr<const SharedRegion>& region,
                                     std::span<const std::byte> bytes,
                                     const RemoteMemory& target) {
  HEDDLE_RETURN_IF_ERROR(stream_.CheckSending());
  HEDDLE_ASSIGN_OR_RETURN(const auto registration, Register(region));
  HEDDLE_ASSIGN_OR_RETURN(const size_t first, Put(*registration, bytes, target));
  waits_ = first == 0;
  if (first > 0) {
    return first;
  }
  HEDDLE_RETURN_IF_ERROR(stream_.Poll());
  HEDDLE_ASSIGN_OR_RETURN(const size_t second, Put(*registration, bytes, target));
  waits_ = second == 0;
  return second;
}

// The device may still send from memory that has been deregistered meanwhile (siw checks a
// request's key only once). So the queue pair is stopped: the frame that reports such a message
// must not follow.
void VerbsPlacement::Withdraw() {
  if (stream_.requests().given().placed != stream_.requests().done().placed) {
    stream_.queue_pair().Stop(UnavailableError("a placement was given up"));
  }
  EndRegistrations();
}

void VerbsPlacement::EndRegistrations() {
  for (const auto& [id, registration] : registrations_) {
    registration->End();
  }
  registrations_.clear();
}

}  // namespace heddle::comm
