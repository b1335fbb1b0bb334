/// \file
/// Communication among the workers of a generation, over any mix of transports. An Endpoint lives
/// as long as its worker process; each generation it opens a Communicator over the pairs that the
/// plan uses. Every wait has a deadline and ends at Abort. The generation and the job's secret are
/// part of every connection's handshake, so that a worker of an old generation, or a stranger,
/// changes nothing.
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
#include "comm/device_memory.h"
#include "metrics/registry.h"

namespace heddle::comm {

/// A worker's identity and the transports and encryption that its job uses. All of it comes with
/// the job, so Endpoint::Configure replaces it as a whole.
struct EndpointConfig {
  std::string worker = {};  ///< This worker's name.
  std::string job = {};     ///< Job identity; part of the handshake.
  /// Job secret: key of the handshake's HMAC-SHA256. Never logged. Empty: every connection is
  /// refused.
  std::string secret = {};
  /// Transports that may join pairs, best first (comm/cost/transport_traits.h); empty: all.
  std::vector<std::string> transports = {};
  /// Encrypt everything that leaves the machine, by TLS 1.3 with keys derived from `secret`.
  /// Transports that cannot encrypt (TransportTraits::encrypts) are not used. All members of a
  /// group set the same value; a member that differs is refused.
  bool tls = false;
};

/// Option values by transport name, then by option name (TransportTraits::options).
using TransportOptions = std::map<std::string, std::map<std::string, std::string>>;

struct EndpointOptions {
  EndpointConfig config = {};           ///< In force until Configure replaces it.
  std::string bind_host = "127.0.0.1";  ///< Address to listen on, by which peers reach this worker.
  std::vector<std::string> open = {};   ///< Transports to open; empty: all that are linked in.
  TransportOptions transport_options = {};  ///< An empty value counts as none.
  double link_bytes_per_second = 0;         ///< Emulated link rate per direction; 0: unlimited.
  metrics::Registry* metrics = nullptr;     ///< Required; outlives the endpoint.
};

struct GroupMember {
  std::string name;
  std::string address;  ///< Endpoint::address() of that worker.
  /// Measurements of the transports between this worker and the member. The pair uses the cheapest
  /// of them (comm/cost/transport_choice.h); empty: the first transport that reaches the member.
  std::vector<MeasuredTransport> transports = {};
};

struct GroupOptions {
  int64_t generation = 0;
  int rank = 0;  ///< This worker's index in `members`.
  std::vector<GroupMember> members;
  /// Ranks that this worker exchanges messages with (symmetric over the group: the caller
  /// guarantees that a lists b exactly when b lists a). Only these pairs are connected.
  /// AllGatherBytes and Barrier use the binary tree of ranks (parent of r is (r - 1) / 2): those
  /// neighbours are added by Connect.
  std::vector<int> peers;
  Duration operation_timeout =
      std::chrono::seconds(30);  ///< Timeout of every wait without a deadline of its own.
  /// Links among `members`, the same at every member; collectives choose their algorithms by them.
  /// Null: all links are assumed to be equal until Communicator::ShareLinks.
  std::shared_ptr<const LinkTable> links = nullptr;
  /// Transports that may join this group's pairs, best first; empty: the endpoint's.
  std::vector<std::string> transports = {};
  /// Timeout of connecting over one route to a peer (a transport, or a pair of its network ports)
  /// and of each step of its handshake. After it the next route is tried, if there is one.
  Duration route_timeout = std::chrono::seconds(2);
  /// True: members whose collectives disagree detect it and report the difference. False: they wait
  /// for each other until their deadlines; for tests that measure the cost of the detection.
  bool diagnose_calls = true;
};

enum class ReduceOp : uint8_t { kSum, kMax, kMin };

/// Whether a wait spins before it sleeps.
enum class Patience : uint8_t {
  kSpin,   ///< The wait keeps its core for a while: the caller cannot go on without the message.
  kSleep,  ///< The wait gives up its core at once: the message is not on the critical path.
};

/// An operation in flight. The operation owns its buffer until Wait returns or Done returns true.
/// Dropping a Work does not cancel the operation. Thread: one caller at a time.
class Work {
 public:
  class State;
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Whether the operation has ended, successfully or not. An empty Work is done.
  bool Done() const;
  /// Blocks until the operation has ended. Errors: those of the operation; kDeadlineExceeded names
  /// the peer that the operation waits for. Reaching the deadline ends the operation: the caller
  /// owns the buffer again, and data that arrives for it later is dropped. If a device was reading
  /// or writing the buffer (Endpoint::AllocateShared), the group may lose the peer. Done polls
  /// without ending the operation.
  Status Wait(Deadline deadline, Patience patience = Patience::kSpin) const;
  Status Wait() const;  ///< Waits with the group's operation_timeout.
  /// Time at which the operation ended (steady clock). Precondition: Done().
  Time finished_at() const;

 private:
  std::shared_ptr<State> state_;
};

/// The members, tag and deadline of a collective. Every member passes the same group, tag and
/// urgency; operations in flight have different tags.
struct CollectiveOptions {
  /// Different ranks by position, its own among them, in any order that all members share. Empty:
  /// the whole generation, by rank.
  std::span<const int> group;
  uint64_t tag = 0;
  std::optional<Deadline> deadline;  ///< Default: the group's operation_timeout from the call.
  /// Whether its messages pass the bulk of other collectives, on the connections of Send's urgent
  /// ones.
  bool urgent = false;
};

/// The contributions of all members to a ReduceTree; every member knows them from the plan.
struct TreeContributions {
  /// The tree nodes that each member holds, ascending; by position in the group.
  std::vector<std::vector<TreeNode>> nodes;
};

/// Memory that workers of one host can access directly (Endpoint::AllocateShared). A collective
/// whose members all pass shared buffers reduces them in place, without copies. Between workers for
/// which Communicator::places is true, RDMA devices write large messages from one shared buffer
/// into the other. The memory is freed with the last copy of the object; no operation on it may be
/// in flight then. It may outlive its endpoint. In all else it is ordinary memory. No other
/// process has access to it before the buffer is first passed to a communicator.
class SharedBuffer {
 public:
  SharedBuffer() = default;
  SharedBuffer(std::shared_ptr<const void> owner, std::span<std::byte> bytes)
      : owner_(std::move(owner)),
        bytes_(bytes) {}
  std::span<std::byte> bytes() const { return bytes_; }  ///< Page-aligned; initially zero.

 private:
  std::shared_ptr<const void> owner_;
  std::span<std::byte> bytes_;
};

/// Point-to-point operations and collectives among the workers of one generation.
///
/// Errors of every operation: kUnavailable (a peer was lost; the message names it),
/// kDeadlineExceeded (the message names the peer that was waited for), kAborted (Abort was called;
/// the message is that of its reason), kInvalidArgument, kFailedPrecondition (not connected to a
/// peer). Members whose calls with one tag disagree (another collective, element type, operation,
/// urgency, root or counts) detect it within half a second of waiting for each other. Every
/// member's call then fails with kInvalidArgument and a message that names two members and the
/// field that differs, and all other operations of the group are aborted. A member whose call needs
/// no reply (the root of a small broadcast) may have succeeded by then. After an error the outputs
/// are unspecified, inputs of out-of-place calls are unchanged, and the communicator must be
/// replaced. When a peer calls Abort, operations with that peer fail with kAborted and the peer's
/// reason. When a peer destroys its communicator, they fail with kUnavailable, except for messages
/// that it sent before. Neither counts as a loss. Thread: any; operations may run from several
/// threads at once, each with its own tag.
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
  /// Name of the transport that joins this worker to `peer`; "self" for this worker's own rank.
  virtual std::string transport(int peer) const = 0;
  /// This worker's network ports that its connections to `peer` are bound to: "mlx5_0/1", or
  /// "mlx5_0/1, mlx5_1/1" where urgent messages use another port. Empty: the kernel's routing
  /// table chooses.
  virtual std::string ports(int /*peer*/) const { return {}; }
  /// Whether RDMA devices write large messages directly between shared buffers (SharedBuffer) of
  /// this worker and of `peer`. If not, messages between shared buffers are copied like any other.
  virtual bool places(int /*peer*/) const { return false; }
  /// Registers the imported memory (Endpoint::ImportDeviceMemory) that contains `bytes` for messages
  /// with `peer`, which then do not fail for want of it at this end. Errors: kUnimplemented (not
  /// imported, or the pair's transport cannot address it), those of the registration.
  virtual Status RegisterDeviceMemory(int peer, std::span<const std::byte> bytes, bool urgent) = 0;

  /// Sends `data` to `peer`. A Send and a Recv match by (peer, tag, urgency); sizes must agree.
  /// Zero bytes are allowed. A message that arrives before its Recv waits at the sender or in a
  /// bounded buffer (1 MiB a peer; messages above 64 KiB always wait at the sender). Urgent
  /// messages have a connection of their own, so that they pass all bulk; both ends must agree
  /// whether a message is urgent. Messages of one tag and one urgency match in the order in which
  /// they were sent.
  virtual Work Send(int peer, uint64_t tag, std::span<const std::byte> data, bool urgent) = 0;
  /// Receives the matching message of `peer` into `data`; see Send.
  virtual Work Recv(int peer, uint64_t tag, std::span<std::byte> data, bool urgent) = 0;

  /// Reduces `buffer` over all members, in place. Every member gets the same bits (a NaN may have
  /// another payload); the order of additions depends on the group, the size and the links that the
  /// members share. All types are supported. 16-bit floats are summed in fp32 and rounded once
  /// (twice or more across islands), integers wrap, and a NaN among the operands gives a NaN for
  /// max and min, too. At most 64 GiB.
  virtual Status AllReduce(std::span<std::byte> buffer,
                           DType dtype,
                           ReduceOp op,
                           const CollectiveOptions& options) = 0;
  /// Reduces `input` over all members and leaves member i's share of counts[i] elements in its
  /// `output`. `counts` is the same at all members; zeros are allowed. `input` has sum(counts)
  /// elements. Shares are not padded.
  virtual Status ReduceScatter(std::span<const std::byte> input,
                               std::span<std::byte> output,
                               std::span<const int64_t> counts,
                               DType dtype,
                               ReduceOp op,
                               const CollectiveOptions& options) = 0;
  /// Gathers the members' shares into every member's `output`. `input` is this member's share, of
  /// counts[own position] elements; `output` has sum(counts) elements, by position.
  virtual Status AllGather(std::span<const std::byte> input,
                           std::span<std::byte> output,
                           std::span<const int64_t> counts,
                           DType dtype,
                           const CollectiveOptions& options) = 0;
  /// Sends a block from each member to each. `input` holds the blocks for the members at positions
  /// 0, 1 …, of send_counts[i] elements each; `output` receives the blocks from those members, of
  /// receive_counts[i] elements each, which must equal that member's send count for this one. Zeros
  /// are allowed; the buffers must not overlap.
  virtual Status AllToAll(std::span<const std::byte> input,
                          std::span<const int64_t> send_counts,
                          std::span<std::byte> output,
                          std::span<const int64_t> receive_counts,
                          DType dtype,
                          const CollectiveOptions& options) = 0;
  /// Copies `buffer` from the member at position `root` of the group to all members.
  virtual Status Broadcast(std::span<std::byte> buffer,
                           int root,
                           const CollectiveOptions& options) = 0;
  /// Returns after all members have called it.
  virtual Status Barrier(const CollectiveOptions& options) = 0;
  /// Gathers every worker's record at every worker, in rank order, over the binary tree. Records
  /// may differ in size, up to 64 MiB together.
  virtual Result<std::vector<Bytes>> AllGatherBytes(std::span<const std::byte> mine,
                                                    const CollectiveOptions& options) = 0;

  /// The reproducible reduction (sum of fp32 or fp64): adds all members' contributions in the order
  /// of base/tensor/reduction_tree.h, however they are distributed over members. Every member gets
  /// the result in `output`. `mine[i]` is the value of contributions.nodes[own position][i];
  /// `output` may be exactly one of them. Memory: a few pieces of 256 KiB per contribution,
  /// independent of the tensor's size.
  virtual Status ReduceTree(const TreeContributions& contributions,
                            std::span<const std::span<const std::byte>> mine,
                            std::span<std::byte> output,
                            DType dtype,
                            const CollectiveOptions& options) = 0;
  /// Adds like ReduceTree, and leaves member i's share of counts[i] elements in its `output`.
  /// `counts` is the same at all members; zeros are allowed. Each of `mine` has sum(counts)
  /// elements. What all members send is less than for ReduceTree by the results, which no other
  /// member gets. Memory: as for ReduceTree.
  virtual Status ReduceScatterTree(const TreeContributions& contributions,
                                   std::span<const std::span<const std::byte>> mine,
                                   std::span<std::byte> output,
                                   std::span<const int64_t> counts,
                                   DType dtype,
                                   const CollectiveOptions& options) = 0;

  /// Runs `call`, which makes one collective of this communicator, on a progress thread of the
  /// communicator, and returns at once. Urgent calls and the others have threads of their own, so
  /// that no urgent call waits for one that is not, whatever that waits for. Among each, calls
  /// begin in the order in which they were started, up to four at a time; members start them in the
  /// same order. Everything that `call` refers to must live until the Work ends. A Work whose wait
  /// reaches its deadline aborts the group, because a collective that one member gave up cannot
  /// succeed at the others. Urgent messages pass the bulk of collectives
  /// (CollectiveOptions::urgent).
  virtual Work Start(std::function<Status()> call, bool urgent) = 0;

  /// Ends every wait of this process in this group with `reason`, notifies the connected peers and
  /// closes the connections. Idempotent; never blocks. Delivery of the notification takes at most a
  /// second: peers may count a process that exits earlier without destroying its endpoint as lost.
  /// Thread: any.
  virtual void Abort(const Status& reason) = 0;
  /// Registers the handler of peer losses. It is called once for each lost peer, from a progress
  /// thread, as soon as the loss is detected and before any wait for that peer ends; losses before
  /// the registration are delivered after it. `reason` is kUnavailable. The handler is not called
  /// for peers that aborted or left, nor once the communicator is being destroyed. It may call
  /// Abort; it must not destroy the communicator.
  virtual void OnPeerLost(std::function<void(int peer, const Status& reason)> handler) = 0;

  /// Exchanges all members' links over the binary tree; from then on collectives choose their
  /// algorithms by them. `own[r]` is this worker's link to rank r. All members of the generation
  /// call it, and none has a collective in flight. Errors: kInvalidArgument (other than size()
  /// links, no positive rate).
  virtual Status ShareLinks(std::span<const Link> own, const CollectiveOptions& options) = 0;
  /// Exchanges all members' link ends, like ShareLinks, for workers that know their own end and the
  /// measurements of some pairs. The table is that of LinksBetween (comm/cost/measured_links.h).
  /// All members pass the same `measured` and `preference`.
  virtual Status ShareLinkEnd(const LinkEnd& own,
                              const MeasuredLinks& measured,
                              const TransportPreference& preference,
                              const CollectiveOptions& options) = 0;
  /// The links by which collectives choose their algorithms; null: none are known.
  virtual std::shared_ptr<const LinkTable> links() const = 0;

  /// Bytes sent to each rank so far. Thread: any.
  virtual std::vector<int64_t> BytesSent() const = 0;
};

/// Members for which a worker has been waiting for more than a few dozen milliseconds, for a
/// message or a connection.
struct AwaitedMembers {
  int64_t generation = 0;
  std::vector<std::string> names = {};  ///< In rank order.
};

/// A worker's endpoint: listens for connections and forms communicators.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  /// Opens the transports and starts listening. Errors: kInvalidArgument, kResourceExhausted (the
  /// port is taken).
  static Result<std::unique_ptr<Endpoint>> Create(const EndpointOptions& options);

  /// Replaces the whole config of EndpointOptions for later calls of Connect: a worker listens
  /// before the coordinator assigns it a job. Must not be called while connected. Errors:
  /// kInvalidArgument (an unknown or repeated transport; the config is then unchanged).
  virtual Status Configure(const EndpointConfig& config) = 0;

  /// Opaque text that other workers pass in GroupMember::address; valid for the endpoint's life.
  virtual std::string address() const = 0;
  /// Connects to `options.peers`; all members call it at once. Returns when every pair of this
  /// worker is connected. Errors: kAborted (the generation is older than the newest seen);
  /// kUnavailable or kDeadlineExceeded, which name the peer; kUnauthenticated (another secret or
  /// job, TLS at one end only, a failed TLS handshake). Fence cancels it from another thread.
  virtual Result<std::unique_ptr<Communicator>> Connect(const GroupOptions& options,
                                                        Deadline deadline) = 0;
  /// Refuses all generations below `generation` from now on, and aborts their communicators and
  /// calls of Connect.
  virtual void Fence(int64_t generation) = 0;
  /// The members that this process is waiting for, in the newest generation in which it waits.
  /// Thread: any.
  virtual AwaitedMembers Awaited() const = 0;
  /// Changes the emulated link rate; 0: unlimited.
  virtual void SetLinkRate(double bytes_per_second) = 0;
  /// Allocates memory for tensors that take part in collectives among workers of one host. Any part
  /// of it may be passed to AllReduce, ReduceScatter, AllGather and Broadcast. Where
  /// Communicator::places is true, RDMA devices write messages of Send and Recv of 32 KiB and more
  /// from buffer to buffer; elsewhere it works like any other memory. When a collective on it fails
  /// while a peer might still write to it (a stopped process), that part is replaced in place by
  /// private memory with the same content, so that late writes cannot land there; no other thread
  /// may write to the buffer while such a collective runs. Errors: kInvalidArgument (0 bytes),
  /// kResourceExhausted. Thread: any.
  virtual Result<SharedBuffer> AllocateShared(size_t bytes) = 0;
  /// Imports memory of another device, for messages of Send and Recv alone: RDMA devices read and
  /// write it directly, and the host never does. Its address is the device's. What Send sends is
  /// complete in the device's memory, and what has arrived is visible to the device after a flush
  /// of its own, if it needs one. A message from or to such memory is placed (if the other end's is
  /// ordinary, only as messages of AllocateShared are), or fails with kUnimplemented at each end
  /// whose Send or Recv had not ended; then only that message failed, and none of its bytes was
  /// written. It must not be passed to collectives. The memory is deregistered with the last copy
  /// of the buffer, and must live until then. Errors: kInvalidArgument (0 bytes, no dma-buf, past
  /// its end), kFailedPrecondition (it overlaps a buffer that is in use). Thread: any.
  virtual Result<SharedBuffer> ImportDeviceMemory(const DeviceMemory& memory) = 0;
  /// Sends a pattern between the memories of this worker's device and the peer's, both ways and in
  /// both traffic classes, and compares what has arrived. Both ends call it, with the same tag. Ok at
  /// both ends, or kUnimplemented at both, with the reason: then messages go through the host's
  /// memory. Further errors: those of the communicator.
  virtual Status TryDeviceMemory(
      Communicator& group, int peer, uint64_t tag, const DeviceTrial& trial, Deadline deadline) = 0;
  /// Measures latency and bandwidth to `peer` of a connected group (both sides call it, lower rank
  /// first).
  virtual Result<Link> MeasureLink(Communicator& group,
                                   int peer,
                                   uint64_t tag,
                                   Deadline deadline) = 0;
};

}  // namespace heddle::comm
