/// \file
/// The one communicator of Heddle: a generation's group of workers, whatever medium joins each
/// pair. An Endpoint lives as long as its worker process; each generation it opens a Communicator
/// over the pairs that the plan uses. Every wait has a deadline and ends at Abort; the generation
/// and the job's secret are part of every connection's handshake, so that a worker of an old
/// generation, or a stranger, changes nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/tensor/dtype.h"
#include "base/tensor/reduction_tree.h"
#include "comm/cost/cost.h"
#include "comm/cost/measured_links.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// Who a worker is and how it meets others: all of it comes with the job, so it is set as a whole.
struct EndpointConfig {
  std::string worker = {};  ///< This worker's name.
  std::string job = {};     ///< Job identity; part of the handshake.
  /// Job secret: key of the handshake's HMAC-SHA256. Never logged. Empty: every connection is
  /// refused.
  std::string secret = {};
  /// Transports that may join pairs, best first (comm/cost/transport_traits.h); empty: all.
  std::vector<std::string> transports = {};
  /// Encrypt what leaves the machine: TLS 1.3 whose keys come from `secret`; transports that cannot
  /// (TransportTraits::encrypts) are not used. All members of a group have the same; one that
  /// differs is refused.
  bool tls = false;
};

/// Values by the transport's name and the option's (TransportTraits::options).
using TransportOptions = std::map<std::string, std::map<std::string, std::string>>;

struct EndpointOptions {
  EndpointConfig config = {};           ///< Until Configure.
  std::string bind_host = "127.0.0.1";  ///< Address to listen on, by which others reach this one.
  std::vector<std::string> open = {};   ///< Transports to open; empty: all that there are.
  TransportOptions transport_options = {};  ///< An empty value counts as none.
  double link_bytes_per_second = 0;      ///< Emulated link: token bucket a direction; 0: unlimited.
  metrics::Registry* metrics = nullptr;  ///< Required; outlives the endpoint.
};

struct GroupMember {
  std::string name;
  std::string address;  ///< Endpoint::address() of that worker.
  /// What this pair measured: the cheapest of these joins it (comm/cost/transport_choice.h). Empty:
  /// the first transport that leads there does.
  std::vector<MeasuredTransport> transports = {};
};

struct GroupOptions {
  int64_t generation = 0;
  int rank = 0;  ///< Own index in `members`.
  std::vector<GroupMember> members;
  /// Ranks that this worker exchanges messages with (symmetric over the group: the caller
  /// guarantees that a lists b exactly when b lists a). Only these pairs are connected.
  /// AllGatherBytes and Barrier use the binary tree of ranks (parent of r is (r - 1) / 2): those
  /// neighbours are added by Connect.
  std::vector<int> peers;
  Duration operation_timeout =
      std::chrono::seconds(30);  ///< Bound of every wait without its own deadline.
  /// Links among `members`, the same at every member: collectives choose their algorithms by it.
  /// Null: all links are taken to be alike, until Communicator::ShareLinks.
  std::shared_ptr<const LinkTable> links = nullptr;
  /// Transports that may join this group's pairs, best first; empty: the endpoint's.
  std::vector<std::string> transports = {};
  /// Where connecting over a route to a peer (a transport, or a pair of its network ports), or
  /// another step of its handshake, takes longer than this, the next route is tried, if there is
  /// one.
  Duration route_timeout = std::chrono::seconds(2);
  /// Members whose collectives disagree find out and name the difference. False: they wait for each
  /// other until their deadlines; for tests of what that costs.
  bool diagnose_calls = true;
};

enum class ReduceOp : uint8_t { kSum, kMax, kMin };

/// What a wait does with its core while nothing arrives.
enum class Patience : uint8_t {
  kSpin,   ///< Keeps it for a while: the caller's work hangs on the message.
  kSleep,  ///< Leaves it to others at once: the message is beside the process's work.
};

/// An operation in flight. The buffer belongs to the operation until Wait or Done says it ended.
/// Dropping a Work does not cancel it. Thread: one caller at a time.
class Work {
 public:
  class State;
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Whether it ended, well or not. An empty Work is done.
  bool Done() const;
  /// Blocks until it ended. Errors: those of the operation; kDeadlineExceeded names the peer waited
  /// for. A deadline that passes ends the operation: its buffer is the caller's again, and what
  /// arrives for it later is dropped. Where a device was at work on it (AllocateShared) the peer
  /// may be lost to the group. To look without ending it, use Done.
  Status Wait(Deadline deadline, Patience patience = Patience::kSpin) const;
  Status Wait() const;  ///< Bounded by the group's operation_timeout.
  /// When it ended (steady clock). Precondition: Done().
  Time finished_at() const;

 private:
  std::shared_ptr<State> state_;
};

/// Who takes part in a collective, and which call of the step it is. Every member passes the same
/// group (ascending ranks, own rank among them) and the same tag; tags of operations in flight
/// differ.
struct CollectiveOptions {
  std::span<const int> group;  ///< Empty: the whole generation.
  uint64_t tag = 0;
  std::optional<Deadline> deadline;  ///< Default: the group's operation_timeout from the call.
};

/// What each member contributes to a ReduceTree; known to all from the plan.
struct TreeContributions {
  /// By position in the group: the tree nodes it holds, ascending.
  std::vector<std::vector<TreeNode>> nodes;
};

/// Memory that workers of one host can reach directly (Endpoint::AllocateShared). A collective
/// whose members all pass such memory folds it where it lies, without copies; between workers that
/// `places` names, devices carry large messages from such memory to such memory. Freed when the
/// last copy of the object goes; by then no operation on it may be in flight. It may outlive its
/// endpoint. Otherwise it is ordinary memory; what is written before it was ever passed to a
/// collective stays within the process.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  SharedBuffer(std::shared_ptr<const void> owner, std::span<std::byte> bytes)
      : owner_(std::move(owner)),
        bytes_(bytes) {}
  std::span<std::byte> bytes() const { return bytes_; }  ///< Aligned to a page; zeros at first.

 private:
  std::shared_ptr<const void> owner_;
  std::span<std::byte> bytes_;
};

/// Errors of every operation: kUnavailable (a peer was lost; its name is in the message),
/// kDeadlineExceeded (the message names the peer waited for), kAborted (Abort was called; its
/// status' message), kInvalidArgument, kFailedPrecondition (not connected to a peer). Members whose
/// calls of a tag disagree (another collective, element type, operation, root or counts) notice it
/// within half a second of waiting for each other: every member's call then ends as
/// kInvalidArgument with a message that names two of them and the field, and all other operations
/// of the group are aborted. A member whose call needs no answer (a small broadcast's root) may
/// have ended well by then. After an error the outputs are unspecified, inputs of out-of-place
/// calls are unchanged, and the communicator must be replaced. A peer's Abort ends the operations
/// with that peer as kAborted with its reason; a peer that destroyed its communicator ends them as
/// kUnavailable, save what it had sent before. Neither is a loss. Thread: any; operations may run
/// from several threads at once, each with its own tag.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int64_t generation() const = 0;
  virtual const std::string& member_name(int rank) const = 0;
  /// Name of the transport that joins this worker to `peer`; "self" for itself.
  virtual std::string transport(int peer) const = 0;
  /// This worker's network ports that join it to `peer` and nobody else's: "mlx5_0/1", or
  /// "mlx5_0/1, mlx5_1/1" where urgent messages have a port of their own. Empty: the kernel's
  /// routes choose.
  virtual std::string ports(int /*peer*/) const { return {}; }
  /// Whether devices carry large messages between shared buffers (SharedBuffer) of this worker and
  /// of `peer`; elsewhere they are copied, as all memory is.
  virtual bool places(int /*peer*/) const { return false; }

  /// Point to point, matched by (peer, tag); sizes must agree. Zero bytes are allowed. A message
  /// that arrives before its Recv waits at the sender or in a bounded buffer (1 MiB a peer;
  /// messages above 64 KiB always wait at the sender). Urgent messages go by themselves, past all
  /// bulk; both ends say alike whether a message is urgent, and an urgent Send never meets a Recv
  /// that is not. Messages of one tag and one urgency are matched in the order in which they were
  /// sent.
  virtual Work Send(int peer, uint64_t tag, std::span<const std::byte> data, bool urgent) = 0;
  virtual Work Recv(int peer, uint64_t tag, std::span<std::byte> data, bool urgent) = 0;

  /// In place. Every member gets the same bits (of a NaN: a NaN); the order of additions depends on
  /// the group, the size and the links that the members share. All types; 16-bit floats are folded
  /// in fp32 and rounded once (twice or more across islands), integers wrap, a NaN among the
  /// operands gives a NaN in max and min, too. At most 64 GiB.
  virtual Status AllReduce(std::span<std::byte> buffer,
                           DType dtype,
                           ReduceOp op,
                           const CollectiveOptions& options) = 0;
  /// Member i's share is counts[i] elements (zero allowed, known to all); `input` is the whole of
  /// sum(counts) elements. No byte travels for padding.
  virtual Status ReduceScatter(std::span<const std::byte> input,
                               std::span<std::byte> output,
                               std::span<const int64_t> counts,
                               DType dtype,
                               ReduceOp op,
                               const CollectiveOptions& options) = 0;
  /// `input` is counts[own position] elements; `output` is the whole.
  virtual Status AllGather(std::span<const std::byte> input,
                           std::span<std::byte> output,
                           std::span<const int64_t> counts,
                           DType dtype,
                           const CollectiveOptions& options) = 0;
  /// From each member to each. `input` holds what goes to the member at position 0, 1 …, of
  /// send_counts[i] elements; `output` what comes from it, of receive_counts[i] elements: the
  /// other's send_counts for this member. Zeros allowed; the buffers must not overlap.
  virtual Status AllToAll(std::span<const std::byte> input,
                          std::span<const int64_t> send_counts,
                          std::span<std::byte> output,
                          std::span<const int64_t> receive_counts,
                          DType dtype,
                          const CollectiveOptions& options) = 0;
  /// From the member at position `root` of the group to all.
  virtual Status Broadcast(std::span<std::byte> buffer,
                           int root,
                           const CollectiveOptions& options) = 0;
  virtual Status Barrier(const CollectiveOptions& options) = 0;
  /// Every worker's record (any size up to 64 MiB in sum) to every worker, in rank order, over the
  /// tree.
  virtual Result<std::vector<Bytes>> AllGatherBytes(std::span<const std::byte> mine,
                                                    const CollectiveOptions& options) = 0;

  /// The reproducible reduction (sum of fp32 or fp64): folds all members' contributions in the
  /// order of base/tensor/reduction_tree.h, whatever the grouping; every member gets the result in
  /// `output`. `mine[i]` is the value of contributions.nodes[own position][i]; `output` may be
  /// exactly one of them. Memory: a few pieces of 256 KiB a contribution, whatever the size.
  virtual Status ReduceTree(const TreeContributions& contributions,
                            std::span<const std::span<const std::byte>> mine,
                            std::span<std::byte> output,
                            DType dtype,
                            const CollectiveOptions& options) = 0;

  /// Runs `call`, which makes one collective of this communicator, on progress threads of its own,
  /// so that several are in flight; returns at once. Calls begin in the order in which they
  /// were started, up to four at a time; members start them in the same order. What `call` uses
  /// lives until the Work ends. A Work whose wait meets its deadline aborts the group: a collective
  /// that one member gave up cannot end well at the others. Urgent messages pass the bulk of
  /// collectives.
  virtual Work Start(std::function<Status()> call) = 0;

  /// Ends every wait of this process in this group with `reason`, tells the connected peers, closes
  /// the connections. Idempotent, never blocks. The news travel for a moment (at most a second): a
  /// process that exits at once without destroying its endpoint may be taken for lost instead.
  /// Thread: any.
  virtual void Abort(const Status& reason) = 0;
  /// Called once a lost peer, from a progress thread, as soon as the loss is seen (before any wait
  /// on that peer ends); losses before the registration are delivered then. `reason` is
  /// kUnavailable. Not called for peers that aborted or left, nor once the communicator is being
  /// destroyed. The handler may call Abort; it must not destroy the communicator.
  virtual void OnPeerLost(std::function<void(int peer, const Status& reason)> handler) = 0;

  /// Tells all members each one's links, `own[r]` being this worker's link to rank r, over the
  /// tree; from then on collectives choose by them. All members of the generation call it, and none
  /// has a collective in flight. Errors: kInvalidArgument (other than size() links, no positive
  /// rate).
  virtual Status ShareLinks(std::span<const Link> own, const CollectiveOptions& options) = 0;
  /// The same for a worker that knows its own end, and what some pairs measured: the table is that
  /// of LinksBetween (comm/cost/measured_links.h). All members pass the same `measured` and
  /// `preference`.
  virtual Status ShareLinkEnd(const LinkEnd& own,
                              const MeasuredLinks& measured,
                              const TransportPreference& preference,
                              const CollectiveOptions& options) = 0;
  /// The links that collectives choose by; null: none are known.
  virtual std::shared_ptr<const LinkTable> links() const = 0;

  /// Bytes sent to each rank so far. Thread: any.
  virtual std::vector<int64_t> BytesSent() const = 0;
};

/// Members whose messages or connections are waited for, for longer than a few dozen milliseconds.
struct AwaitedMembers {
  int64_t generation = 0;
  std::vector<std::string> names = {};  ///< By rank.
};

/// A worker's end: listens, and forms communicators.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  /// Errors: kInvalidArgument, kResourceExhausted (the port is taken).
  static Result<std::unique_ptr<Endpoint>> Create(const EndpointOptions& options);

  /// Replaces EndpointOptions' config, all of it at once, for the connects that come: a worker
  /// listens before the coordinator tells it the job. Not while connected. Errors: kInvalidArgument
  /// (an unknown transport, or one twice; everything stays as it was).
  virtual Status Configure(const EndpointConfig& config) = 0;

  /// Opaque text that others pass in GroupMember::address; valid for the endpoint's life.
  virtual std::string address() const = 0;
  /// Connects to `peers` of the generation, both sides at once; returns when every pair is up.
  /// Refuses generations below the newest seen (kAborted). Errors: kUnavailable or
  /// kDeadlineExceeded name the peer; kUnauthenticated (another secret or job, TLS at one end only,
  /// a TLS handshake that failed). May be cancelled from another thread by
  /// Fence.
  virtual Result<std::unique_ptr<Communicator>> Connect(const GroupOptions& options,
                                                        Deadline deadline) = 0;
  /// Refuses everything below `generation` from now on, and aborts communicators and connects of
  /// it.
  virtual void Fence(int64_t generation) = 0;
  /// Whom this process waits for at this moment, in the newest generation in which it does. Thread:
  /// any.
  virtual AwaitedMembers Awaited() const = 0;
  /// Changes the emulated link rate; 0: unlimited.
  virtual void SetLinkRate(double bytes_per_second) = 0;
  /// Memory for tensors that take part in collectives among workers of one host. Any part of it may
  /// be passed to AllReduce, ReduceScatter, AllGather and Broadcast. Where Communicator::places,
  /// devices carry Send's and Recv's messages of 32 KiB and more from buffer to buffer; elsewhere
  /// it works like any other memory. When a collective on it fails while a peer might still write
  /// to it (a stopped process), that part of it is replaced in place by private memory with the
  /// same content, so that nothing that comes late can land there; no other thread may write to the
  /// buffer while such a collective runs. Errors: kInvalidArgument (0 bytes), kResourceExhausted.
  /// Thread: any.
  virtual Result<SharedBuffer> AllocateShared(size_t bytes) = 0;
  /// Measures latency and bandwidth to `peer` of a connected group (both sides call it, lower rank
  /// first).
  virtual Result<Link> MeasureLink(Communicator& group,
                                   int peer,
                                   uint64_t tag,
                                   Deadline deadline) = 0;
};

}  // namespace heddle::comm
