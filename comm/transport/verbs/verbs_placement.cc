// Direct placement over RDMA (transport.h): shared buffers, registered by region when they are
// first used, are written by one end's device into the other's memory. Each connection has
// registrations of its own, so that what one peer is refused, another still has.
#include <algorithm>
#include <cerrno>
#include <utility>

#include <infiniband/verbs.h>

#include "base/mutex.h"
#include "comm/transport/shared_memory.h"
#include "comm/transport/verbs/verbs_chain.h"
#include "comm/transport/verbs/verbs_connection.h"

namespace heddle::comm {

class VerbsConnection::Registration final : public RegionUse {
 public:
  static Result<std::shared_ptr<Registration>> Of(std::shared_ptr<VerbsDevice> device,
                                                  const SharedRegion& region) {
    ibv_mr* const memory =
        ::ibv_reg_mr(device->domain(), region.mapping.base(), region.mapping.bytes(),
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (memory == nullptr) {
      return VerbsResourceError(errno, "registering a shared buffer for RDMA");
    }
    std::shared_ptr<Registration> made(new Registration(std::move(device), memory));
    region.AddUse(made);
    return made;
  }
  ~Registration() override { End(); }

  void End() override HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (ibv_mr* const memory = std::exchange(memory_, nullptr)) {
      ::ibv_dereg_mr(memory);
    }
  }
  bool ended() const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return memory_ == nullptr;
  }

  const uint32_t local_key;
  const uint32_t remote_key;

 private:
  Registration(std::shared_ptr<VerbsDevice> device, ibv_mr* memory)
      : local_key(memory->lkey),
        remote_key(memory->rkey),
        device_(std::move(device)),
        memory_(memory) {}

  const std::shared_ptr<VerbsDevice> device_;  ///< Holds the protection domain.
  mutable Mutex mutex_;
  ibv_mr* memory_ HEDDLE_GUARDED_BY(mutex_);
};

Result<std::shared_ptr<VerbsConnection::Registration>> VerbsConnection::Register(
    const std::shared_ptr<const SharedRegion>& region) {
  const auto found = registrations_.find(region->id);
  if (found != registrations_.end() && !found->second->ended()) {
    return found->second;
  }
  std::erase_if(registrations_, [](const auto& entry) { return entry.second->ended(); });
  HEDDLE_ASSIGN_OR_RETURN(auto made, Registration::Of(device_, *region));
  registrations_[region->id] = made;
  return made;
}

Result<RemoteMemory> VerbsConnection::Expose(const std::shared_ptr<const SharedRegion>& region,
                                             std::span<std::byte> bytes) {
  HEDDLE_ASSIGN_OR_RETURN(const auto registration, Register(region));
  return RemoteMemory{.address = reinterpret_cast<uint64_t>(bytes.data()),
                      .key = registration->remote_key};
}

Status VerbsConnection::Prepare(const std::shared_ptr<const SharedRegion>& region) {
  return Register(region).status();
}

size_t VerbsConnection::PlaceRoom() const {
  const bool may_post = requests_ - completed_ + 1 + kReserve <= kSendDepth;
  return may_post ? ring_bytes_ - static_cast<size_t>(given_ - placed_) : 0;
}

Result<size_t> VerbsConnection::PutPlaced(const Registration& registration,
                                          std::span<const std::byte> bytes,
                                          const RemoteMemory& target) {
  VerbsChain chain;
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t count = std::min({bytes.size() - done, piece_bytes_, PlaceRoom()});
    if (count == 0) {
      break;
    }
    ibv_send_wr& request = chain.Add(bytes.data() + done, count, registration.local_key);
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = target.address + done;
    request.wr.rdma.rkey = target.key;
    done += count;
    given_ += count;
    // What reports its completion siw copies before it sends; else it would go on reading the
    // memory after a later request's completion has given it back.
    Number(request, !immediate_ || done == bytes.size());
    if (chain.full()) {
      HEDDLE_RETURN_IF_ERROR(Post(chain));
    }
  }
  HEDDLE_RETURN_IF_ERROR(Post(chain));
  return done;
}

Result<size_t> VerbsConnection::Place(const std::shared_ptr<const SharedRegion>& region,
                                      std::span<const std::byte> bytes,
                                      const RemoteMemory& target) {
  if (hung_up_) {
    return UnavailableError("the peer closed the connection");
  }
  HEDDLE_RETURN_IF_ERROR(failure_);
  HEDDLE_ASSIGN_OR_RETURN(const auto registration, Register(region));
  HEDDLE_ASSIGN_OR_RETURN(const size_t first, PutPlaced(*registration, bytes, target));
  place_full_ = first == 0;
  if (first > 0) {
    return first;
  }
  HEDDLE_RETURN_IF_ERROR(Poll());
  HEDDLE_ASSIGN_OR_RETURN(const size_t second, PutPlaced(*registration, bytes, target));
  place_full_ = second == 0;
  return second;
}

// What the device still reads it may send from memory that has been deregistered since (siw looks
// at a request's key once): nothing of it may be followed by the frame that tells of it.
void VerbsConnection::Withdraw() {
  if (given_ != placed_) {
    StopQueuePair();
    Fail(UnavailableError("a placement was given up")).IgnoreError("it is kept");
  }
  EndRegistrations();
}

void VerbsConnection::EndRegistrations() {
  for (const auto& [id, registration] : registrations_) {
    registration->End();
  }
  registrations_.clear();
}

}  // namespace heddle::comm
