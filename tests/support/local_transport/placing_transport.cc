#include "tests/support/local_transport/placing_transport.h"

#include <map>
#include <memory>
#include <set>
#include <utility>

#include <unistd.h>

#include "base/bytes.h"
#include "base/mutex.h"
#include "comm/cost/transport_traits.h"
#include "comm/transport/shared_memory.h"
#include "tests/support/local_transport/local_transport.h"

namespace heddle::comm::testing {
namespace {

constexpr const char* kName = "placing";

const DeclaredTransport declared(
    {.name = kName, .title = "placing", .rank = 1, .within_host = true, .encrypts = true});

using Refusal = PlacingFaults::Refusal;
thread_local bool refuses_here = false;

using RegionPtr = std::shared_ptr<const SharedRegion>;

/// A registration of a region by one connection. It ends with the region.
class Registration final : public RegionUse {
 public:
  explicit Registration(const RegionPtr& region)
      : in_device_(region->in_device()),
        begin_(region->bytes().data()),
        file_(::dup(region->memory.get())),
        offset_(region->device_offset) {}

  void End() override HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    file_.Reset();
  }
  bool ended() const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return !file_.valid();
  }
  /// False: it has ended.
  bool Read(const std::byte* at, std::span<std::byte> to) const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    return ::pread(file_.get(), to.data(), to.size(), Place(at)) == static_cast<ssize_t>(to.size());
  }
  bool Write(const std::byte* at, std::span<const std::byte> from) const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (in_device_ && file_.valid()) {
      Placing().to_device.fetch_add(static_cast<int64_t>(from.size()));
      if (Placing().loses) {
        return true;
      }
    }
    return ::pwrite(file_.get(), from.data(), from.size(), Place(at)) ==
           static_cast<ssize_t>(from.size());
  }

 private:
  off_t Place(const std::byte* at) const { return static_cast<off_t>(offset_) + (at - begin_); }

  const bool in_device_;
  const std::byte* const begin_;
  mutable Mutex mutex_;
  UniqueFd file_ HEDDLE_GUARDED_BY(mutex_);
  const uint64_t offset_;
};

/// What peers may write to, by key. Thread: any.
class Exposed {
 public:
  uint32_t Add(std::weak_ptr<Registration> registration) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    by_key_[++last_] = std::move(registration);
    return last_;
  }
  std::shared_ptr<Registration> Find(uint32_t key) const HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto found = by_key_.find(key);
    return found == by_key_.end() ? nullptr : found->second.lock();
  }
  static Exposed& All() {
    static Exposed all;
    return all;
  }

 private:
  mutable Mutex mutex_;
  uint32_t last_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, std::weak_ptr<Registration>> by_key_ HEDDLE_GUARDED_BY(mutex_);
};

class PlacingConnection final : public LocalConnection, private DirectPlacement {
 public:
  using LocalConnection::LocalConnection;
  virtual ~PlacingConnection() { Withdraw(); }
  ConnectionInfo info() override { return {.transport = kName, .placement = this}; }
  /// What was placed has arrived at once, which nothing else tells of.
  bool PrepareToWait(bool /*want_read*/, bool /*want_write*/) override {
    return reported_ == placed_;
  }

 private:
  Result<RemoteMemory> Expose(const RegionPtr& region, std::span<std::byte> bytes) override {
    HEDDLE_ASSIGN_OR_RETURN(const auto registration, Register(region));
    return RemoteMemory{.address = reinterpret_cast<uint64_t>(bytes.data()),
                        .key = Exposed::All().Add(registration)};
  }
  Status Prepare(const RegionPtr& region) override { return Register(region).status(); }
  Result<size_t> Place(const RegionPtr& region,
                       std::span<const std::byte> bytes,
                       const RemoteMemory& target) override {
    HEDDLE_ASSIGN_OR_RETURN(const auto own, Register(region));
    const auto theirs = Exposed::All().Find(target.key);
    Bytes moved(bytes.size());
    if (theirs == nullptr || !own->Read(bytes.data(), moved) ||
        !theirs->Write(reinterpret_cast<const std::byte*>(target.address), moved)) {
      return UnavailableError("memory that is not registered");
    }
    placed_ += bytes.size();
    return bytes.size();
  }
  uint64_t placed() override { return reported_ = placed_; }
  void Withdraw() override {
    for (const auto& [id, registration] : registrations_) {
      if (registration != nullptr) {
        registration->End();
      }
    }
    registrations_.clear();
  }

  Result<std::shared_ptr<Registration>> Register(const RegionPtr& region) {
    auto& registration = registrations_[region->id];
    const bool is_new = registration == nullptr || registration->ended();
    const bool over = refuses_here || Placing().to_device > Placing().lasts;
    const Refusal refuses = over ? Refusal::kAll : Placing().refuses.load();
    if (region->in_device() && (refuses == Refusal::kAll || (is_new && refuses == Refusal::kNew))) {
      return ResourceExhaustedError("no more device memory is registered");
    }
    if (is_new) {
      registration = std::make_shared<Registration>(region);
      region->AddUse(registration);
    }
    return registration;
  }

  std::map<uint64_t, std::shared_ptr<Registration>> registrations_;
  uint64_t placed_ = 0;
  uint64_t reported_ = 0;  ///< Value of the last call of `placed`.
};

class PlacingTransport final : public LocalTransport {
 public:
  PlacingTransport(UniqueFd listener, std::string name)
      : LocalTransport(kName, std::move(listener), std::move(name)) {}

 private:
  std::unique_ptr<Connection> Make(UniqueFd socket) const override {
    return std::make_unique<PlacingConnection>(std::move(socket));
  }
};

const RegisteredTransport kRegistered(kName, &LocalTransport::Open<PlacingTransport>);

}  // namespace

PlacingFaults& Placing() {
  static PlacingFaults faults;
  return faults;
}

void RefuseDeviceMemoryHere() {
  refuses_here = true;
}

}  // namespace heddle::comm::testing
