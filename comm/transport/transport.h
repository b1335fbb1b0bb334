/// \file
/// The interface of a transport. A transport listens, dials a handshake socket to a peer and, once
/// both ends are authenticated, turns that socket into a Connection, a reliable ordered byte stream
/// in each direction. Framing, matching, priorities, rates and deadlines are common to all
/// transports (channel.h). All code of a transport is in its folder comm/transport/NAME, which
/// implements these interfaces, declares the traits (comm/cost/transport_traits.h) and registers
/// the function that opens it (registry.h); no other code names it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>
#include <sys/uio.h>

#include "base/status.h"
#include "base/system/unique_fd.h"
#include "comm/communicator.h"
#include "comm/cost/transport_traits.h"
#include "comm/transport/handshake.h"
#include "comm/transport/traffic_class.h"

namespace heddle::comm {

struct SharedRegion;

/// The parts of an endpoint's address by name: "host" (host identity) and one for each transport.
using AddressParts = std::map<std::string, std::string>;

std::string FormatAddress(const AddressParts& parts);
/// Splits an endpoint's address into its parts. Errors: kInvalidArgument.
Result<AddressParts> ParseAddress(std::string_view text);

/// Passes descriptors to the peer's process on this host; a connection within one host may offer
/// it. Lives as long as its connection and is used under the same rules for threads.
class DescriptorPassing {
 public:
  /// The peer's process ID in this process' namespace; 0: unknown.
  virtual pid_t peer_process() const = 0;
  /// Hands a descriptor to the peer, where Take finds it by `id` once it has read anything that was
  /// written to the stream later. Never blocks. Errors: kUnavailable (the peer is gone),
  /// kResourceExhausted (too many descriptors are in flight).
  virtual Status Send(uint64_t id, int fd) = 0;
  /// Takes a descriptor that the peer handed over with this `id`, which it may have used several
  /// times. Errors: kUnavailable (none has arrived with this id, or 256 others since),
  /// kResourceExhausted, kDataLoss.
  virtual Result<UniqueFd> Take(uint64_t id) = 0;

 protected:
  ~DescriptorPassing() = default;
};

/// The address and remote key by which the peer's RDMA device accesses memory of this process.
struct RemoteMemory {
  uint64_t address = 0;
  uint32_t key = 0;
};

/// Direct placement: an RDMA device writes bytes from a shared buffer (Endpoint::AllocateShared,
/// ImportDeviceMemory) of one end into one of the other, beside the stream. Placed bytes arrive
/// before bytes that are written into the stream later. Lives as long as its connection and is used
/// under the same rules for threads.
class DirectPlacement {
 public:
  /// Lets the peer's device write into `bytes` of `region` until Withdraw. Errors:
  /// kResourceExhausted, kUnavailable; the bytes are then sent in the stream.
  virtual Result<RemoteMemory> Expose(const std::shared_ptr<const SharedRegion>& region,
                                      std::span<std::byte> bytes) = 0;
  /// Prepares `region` for Place to read from. Errors: as for Expose.
  virtual Status Prepare(const std::shared_ptr<const SharedRegion>& region) = 0;
  /// Starts writing as many of `bytes` of `region` to `target` as fit now and returns how many.
  /// They must not change until `placed` counts them. Errors: kUnavailable.
  virtual Result<size_t> Place(const std::shared_ptr<const SharedRegion>& region,
                               std::span<const std::byte> bytes,
                               const RemoteMemory& target) = 0;
  /// Number of bytes of all calls of Place that have arrived.
  virtual uint64_t placed() = 0;
  /// Revokes all exposures and registrations: once it returns, no device writes to or reads from
  /// the buffers. Writes still in flight break the connection, in both directions.
  virtual void Withdraw() = 0;

 protected:
  ~DirectPlacement() = default;
};

/// A connection's properties, for users and metrics, and its services beside the stream.
struct ConnectionInfo {
  std::string transport;
  /// This machine's network port to which the connection is bound, "mlx5_0/1" as `heddle links`
  /// shows it; empty: the kernel's routing table chooses.
  std::string port = {};
  DescriptorPassing* descriptors = nullptr;  ///< Null: it passes none.
  DirectPlacement* placement = nullptr;      ///< Null: everything goes through the stream.
};

/// A byte stream to and from one peer. Thread: one caller at a time (its channel's lock).
class Connection {
 public:
  /// A descriptor and the epoll events to watch it for.
  struct Watch {
    int fd = -1;
    uint32_t events = 0;
  };
  enum class Ending : uint8_t {
    kWriting,  ///< Ends the writing direction; the peer reads what was written, then the end.
    kAtOnce,   ///< Drops everything, in both directions; the peer counts it as a loss.
  };

  virtual ~Connection() = default;
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// The connection's properties, which never change.
  virtual ConnectionInfo info() = 0;
  /// Writes as many bytes as fit now and returns how many; 0: none. Errors: kUnavailable.
  virtual Result<size_t> Write(std::span<const iovec> parts) = 0;
  /// Reads as many bytes as are available and returns how many; 0: none yet. Errors: kUnavailable
  /// (the peer is gone and everything that it sent has been read), kDataLoss (the peer violated the
  /// format).
  virtual Result<size_t> Read(std::span<std::byte> buffer) = 0;
  /// The descriptors to watch. One of them becomes ready when there are bytes to read (if
  /// `want_read`) or room to write (if `want_write`). Unused entries have fd -1; the descriptors
  /// themselves never change.
  virtual std::array<Watch, 2> Watches(bool want_read, bool want_write) = 0;
  /// The descriptor that a caller's thread polls to sleep until there are bytes to read or, if
  /// `want_write`, room to write; fd -1: it cannot sleep. The caller has called PrepareToWait
  /// before, and the loop watches for neither meanwhile.
  virtual Watch SleepOn(bool /*want_write*/) const { return {}; }
  /// Called when a descriptor of Watches or SleepOn is ready, before Read and Write.
  virtual void OnReady(int /*fd*/, uint32_t /*events*/) {}
  /// Called immediately before the channel waits for readiness. False: do not wait, there are bytes
  /// or room already.
  virtual bool PrepareToWait(bool /*want_read*/, bool /*want_write*/) { return true; }
  virtual void Close(Ending how) = 0;
};

/// The setup of a connection after a successful handshake. The session that owns it bounds its
/// time. Thread: loop only.
class ConnectionSetup {
 public:
  virtual ~ConnectionSetup() = default;
  ConnectionSetup() = default;
  ConnectionSetup(const ConnectionSetup&) = delete;
  ConnectionSetup& operator=(const ConnectionSetup&) = delete;

  /// The descriptor that becomes ready to read when Advance should be called again; it never
  /// changes. It must not be watched during Advance, which may hand it to the connection.
  virtual int fd() const = 0;
  /// Advances the setup without blocking. Called at once and then whenever `fd` is ready, until it
  /// returns a connection or an error. Null: not ready yet. Errors: the reason why there will be no
  /// connection, as text of the peer if the peer gave it.
  virtual Result<std::unique_ptr<Connection>> Advance() = 0;
};

/// A listening socket of a transport, on which handshakes arrive.
struct Listener {
  int socket = -1;        ///< Non-blocking, listening; owned by the transport.
  std::string port = {};  ///< Network port (ConnectionInfo::port).
};

/// A route to a peer: one of this endpoint's listeners and one of the peer's.
struct Route {
  size_t listener = 0;  ///< Index into Transport::listeners.
  std::string to = {};  ///< The peer's listener, in the transport's format.
};

/// The most routes to a peer that a transport returns. Each route that a broken network drops
/// silently takes seconds to time out.
inline constexpr size_t kMaxRoutes = 3;

/// The number of a connection between two ranks, by which connections are spread over routes. In a
/// ring of consecutive ranks, a rank's connections to its two neighbours have different numbers (in
/// a ring of every second rank or of a larger stride they may be equal). The two traffic classes of
/// a pair have different numbers, so that urgent messages do not wait for bulk in a network
/// adapter.
constexpr size_t ConnectionNumber(int rank, int peer, bool urgent) {
  return static_cast<size_t>(rank + peer) / 2 + (urgent ? 1 : 0);
}

/// Options of the setup of one end of a connection.
struct SetupOptions {
  size_t listener = 0;  ///< Index of the listener that accepted it or from which it was dialled.
  TrafficClass traffic_class = TrafficClass::kBulk;
  bool dialled = false;
  Digest key{};            ///< Secret key of this connection, the same at both ends.
  bool encrypted = false;  ///< The job asks for TLS. Only where TransportTraits::encrypts.
};

/// A transport of an endpoint. Thread: any after construction; Begin is called on the loop thread.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Precondition: `name` is the name of a declared transport.
  explicit Transport(std::string_view name);
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const TransportTraits& traits() const { return traits_; }
  const std::string& name() const { return traits_.name; }

  /// The transport's part of the endpoint's address.
  virtual std::string address() const = 0;
  /// The transport's listeners: one, or one for each network port that it uses. They never change.
  virtual std::vector<Listener> listeners() const = 0;
  /// The routes from an endpoint with address `own` to a peer with address `peer`, in the order in
  /// which to try them, at most kMaxRoutes; none: the peer cannot be reached. `number`, a
  /// ConnectionNumber, chooses among equally good routes.
  virtual std::vector<Route> RoutesTo(const AddressParts& own,
                                      const AddressParts& peer,
                                      size_t number) const = 0;
  /// Reports that a connection over `route` failed; RoutesTo then prefers others for a while.
  virtual void Avoid(const Route& /*route*/) const {}
  /// Starts a connect and returns the non-blocking socket. Errors: kUnavailable,
  /// kResourceExhausted.
  virtual Result<UniqueFd> Dial(const Route& route) const = 0;
  /// Begins the setup of one end of a connection over `socket` after a successful handshake. Both
  /// ends have the same traffic class. The setup must not outlive the transport; the connection
  /// may.
  virtual std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket,
                                                 const SetupOptions& options) const = 0;

 private:
  const TransportTraits& traits_;
};

/// A transport whose connections are made from their handshake's socket alone.
class SocketTransport : public Transport {
 public:
  using Transport::Transport;
  std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket, const SetupOptions& options) const final;

 protected:
  /// Makes the connection of the dialling end.
  virtual Result<std::unique_ptr<Connection>> FinishDial(UniqueFd socket,
                                                         TrafficClass traffic_class) const = 0;
  /// Makes the connection of the accepting end. Called whenever the socket is readable until it
  /// returns a connection or an error. Null: not ready yet; the caller keeps `socket` until then.
  virtual Result<std::unique_ptr<Connection>> FinishAccept(UniqueFd& socket,
                                                           TrafficClass traffic_class) const = 0;

 private:
  class Setup;
};

/// Whether an endpoint with this address can pass descriptors to other endpoints on its host.
bool PassesDescriptors(const AddressParts& parts);

/// Identity of the host for shared memory and local sockets: its boot ID and network namespace.
/// Empty: unknown.
std::string HostIdentity();

}  // namespace heddle::comm
