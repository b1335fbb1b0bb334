/// \file
/// An opened RDMA device with one port that a worker uses: its protection domain, its limits and
/// its asynchronous events.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/mutex.h"
#include "base/status.h"
#include "comm/transport/verbs/rdma_ports.h"

namespace heddle::comm {

/// The status of a failed allocation of the verbs library; names the limit on locked memory if that
/// is the reason.
Status VerbsResourceError(int error, std::string_view what);
/// The status of a failed call that posts a request. The calls return an errno value, but some
/// providers return -1 and set errno.
Status VerbsPostError(int error, std::string_view what);

/// Deleter for objects of libibverbs and librdmacm. An object must be destroyed before the objects
/// that it uses.
struct VerbsRelease {
  void operator()(ibv_comp_channel* channel) const { ::ibv_destroy_comp_channel(channel); }
  void operator()(ibv_cq* completions) const { ::ibv_destroy_cq(completions); }
  void operator()(ibv_mr* memory) const { ::ibv_dereg_mr(memory); }
  void operator()(ibv_pd* domain) const { ::ibv_dealloc_pd(domain); }
  void operator()(rdma_cm_id* id) const { ::rdma_destroy_id(id); }
  void operator()(rdma_event_channel* channel) const { ::rdma_destroy_event_channel(channel); }
};
template <typename Object>
using VerbsHandle = std::unique_ptr<Object, VerbsRelease>;

/// A device shared by the connections over it. Thread: any.
class VerbsDevice {
 public:
  /// Opens the device of `port`. Errors: kUnavailable, with the device's name.
  static Result<std::shared_ptr<VerbsDevice>> Open(const RdmaPort& port);
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  const RdmaPort& port() const { return port_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_.get(); }
  /// Whether the device supports RDMA WRITE WITH IMMEDIATE. iWARP's RDMAP (RFC 5040) has none, and
  /// the device cannot be queried for it.
  bool writes_with_immediate() const { return port_.kind != RdmaKind::kIwarp; }
  uint32_t max_message_bytes() const { return max_message_bytes_; }
  /// The port's active MTU when it was opened, in the encoding of ibv_mtu.
  uint8_t active_mtu() const { return active_mtu_; }
  /// The port's address in an InfiniBand subnet when it was opened.
  uint16_t lid() const { return lid_; }

  /// Checks that the port is active now. Errors: kUnavailable, with its state.
  Status CheckPort() const;
  /// Whether the device could register memory of other devices, such as cards (dma-buf). Registers
  /// nothing. Errors: kUnavailable, with the reason.
  Status CheckDmaBuf() const;

  /// Descriptor that is ready to read when an asynchronous event is pending. The first connection
  /// that sees it calls Failure, which notifies every queue pair that the event concerns.
  int event_fd() const;
  /// Adds a queue pair, which is notified of its failure by a write to the eventfd `news`. The
  /// eventfd must stay open until Remove.
  void Add(uint32_t queue_pair, const ibv_cq* completions, int news) HEDDLE_EXCLUDES(mutex_);
  void Remove(uint32_t queue_pair) HEDDLE_EXCLUDES(mutex_);
  /// Reads the pending events, then returns the failure of a queue pair that was added, or ok.
  /// Errors: kUnavailable (port down, device gone, queue pair or completion queue in error).
  Status Failure(uint32_t queue_pair) HEDDLE_EXCLUDES(mutex_);

 private:
  struct QueuePair {
    const ibv_cq* completions = nullptr;
    int news = -1;
    Status failure;
  };

  explicit VerbsDevice(RdmaPort port) : port_(std::move(port)) {}
  Status OpenContext();
  void TakeEvents() HEDDLE_REQUIRES(mutex_);
  void Note(const ibv_async_event& event) HEDDLE_REQUIRES(mutex_);

  const RdmaPort port_;
  uint32_t max_message_bytes_ = 0;
  uint8_t active_mtu_ = 0;
  uint16_t lid_ = 0;
  /// An identifier that keeps librdmacm's own context of the device open; used for iWARP, whose
  /// connections are made through librdmacm.
  VerbsHandle<rdma_event_channel> anchor_channel_;
  VerbsHandle<rdma_cm_id> anchor_;
  ibv_context* context_ = nullptr;
  VerbsHandle<ibv_pd> domain_;

  Mutex mutex_;
  std::map<uint32_t, QueuePair> queue_pairs_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
