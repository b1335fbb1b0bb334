/// \file
/// An opened RDMA device with the one port that a worker uses: its protection domain, its limits,
/// and what it says about itself out of turn.
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

/// What an allocation of the verbs library failed with; names the limit on locked memory where that
/// is the reason.
Status VerbsResourceError(int error, std::string_view what);
/// What posting a request failed with. The calls return an errno, but some providers -1 and leave
/// it in errno.
Status VerbsPostError(int error, std::string_view what);

/// Objects of libibverbs and librdmacm that somebody owns. Order matters: what uses another one
/// goes first.
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

/// Shared by the connections over it. Thread: any.
class VerbsDevice {
 public:
  /// Errors: kUnavailable, with the device's name.
  static Result<std::shared_ptr<VerbsDevice>> Open(const RdmaPort& port);
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  const RdmaPort& port() const { return port_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_.get(); }
  /// RDMA WRITE WITH IMMEDIATE: iWARP's RDMAP (RFC 5040) has none, and there is no query for it.
  bool writes_with_immediate() const { return port_.kind != RdmaKind::kIwarp; }
  uint32_t max_message_bytes() const { return max_message_bytes_; }
  /// Of the port when it was opened: its largest packet, in the encoding of ibv_mtu, and its
  /// address in an InfiniBand subnet.
  uint8_t active_mtu() const { return active_mtu_; }
  uint16_t lid() const { return lid_; }

  /// Whether the port is there at this moment. Errors: kUnavailable, with its state.
  Status CheckPort() const;

  /// Ready to read when an asynchronous event has come: whoever sees it first calls Failure, which
  /// writes to `news` (an eventfd, the caller's until Remove) of every queue pair that it concerns.
  int event_fd() const;
  void Add(uint32_t queue_pair, const ibv_cq* completions, int news) HEDDLE_EXCLUDES(mutex_);
  void Remove(uint32_t queue_pair) HEDDLE_EXCLUDES(mutex_);
  /// Takes in the events that have come; then what they mean for a queue pair that was added.
  /// Errors: kUnavailable: port down, device gone, queue pair or completion queue in error.
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
  /// iWARP: connections are made through librdmacm, which has a context of its own for a device;
  /// this identifier holds it open.
  VerbsHandle<rdma_event_channel> anchor_channel_;
  VerbsHandle<rdma_cm_id> anchor_;
  ibv_context* context_ = nullptr;
  VerbsHandle<ibv_pd> domain_;

  Mutex mutex_;
  std::map<uint32_t, QueuePair> queue_pairs_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::comm
