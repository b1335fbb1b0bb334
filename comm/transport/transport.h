/// \file
/// What a transport is: it listens, dials a handshake socket to a peer and, once both ends have
/// proved who they are, turns that socket into a Connection: a reliable ordered byte stream in each
/// direction. Framing, matching, priorities, rates and deadlines are comm's (channel.h), the same
/// over all of them. So a transport is a folder, and only that: comm/transport/NAME implements
/// these interfaces, declares what it is (comm/cost/transport_traits.h) and registers how it is
/// opened (registry.h); nothing else names it.
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

/// An endpoint's address taken apart: "host" (host identity) and one value a transport.
using AddressParts = std::map<std::string, std::string>;

std::string FormatAddress(const AddressParts& parts);
/// Errors: kInvalidArgument.
Result<AddressParts> ParseAddress(std::string_view text);

/// Hands descriptors to the peer's process, which runs on this host: what a connection within one
/// host may offer. Lives as long as its connection and has its thread.
class DescriptorPassing {
 public:
  /// The peer's process, by its number here; 0: unknown.
  virtual pid_t peer_process() const = 0;
  /// Hands a descriptor over: Take finds it by `id` once anything written later was read. Never
  /// blocks. Errors: kUnavailable (the peer is gone), kResourceExhausted (too many are on their
  /// way).
  virtual Status Send(uint64_t id, int fd) = 0;
  /// One that the peer handed over with this `id`; it may have handed over several. Errors:
  /// kUnavailable (none of this number has come, or 256 others since), kResourceExhausted,
  /// kDataLoss.
  virtual Result<UniqueFd> Take(uint64_t id) = 0;

 protected:
  ~DescriptorPassing() = default;
};

/// Memory of a process as its peer's device names it.
struct RemoteMemory {
  uint64_t address = 0;
  uint32_t key = 0;
};

/// A device carries bytes between shared buffers (Endpoint::AllocateShared) of both ends, beside
/// the stream and before what is written into it later. Lives as long as its connection and has its
/// thread.
class DirectPlacement {
 public:
  /// Lets the peer write into `bytes` of `region`, until Withdraw. Errors: kResourceExhausted,
  /// kUnavailable: the bytes then come in the stream.
  virtual Result<RemoteMemory> Expose(const std::shared_ptr<const SharedRegion>& region,
                                      std::span<std::byte> bytes) = 0;
  /// Whether Place can read from `region`. Errors: as Expose.
  virtual Status Prepare(const std::shared_ptr<const SharedRegion>& region) = 0;
  /// Writes as many of `bytes` of `region` to `target` as fit now and returns how many. They stay
  /// as they are until `placed` counts them. Errors: kUnavailable.
  virtual Result<size_t> Place(const std::shared_ptr<const SharedRegion>& region,
                               std::span<const std::byte> bytes,
                               const RemoteMemory& target) = 0;
  /// Of the bytes given to Place, how many have arrived.
  virtual uint64_t placed() = 0;
  /// Nothing is exposed or read any more once it returns. What is still under way breaks the
  /// connection, in both directions.
  virtual void Withdraw() = 0;

 protected:
  ~DirectPlacement() = default;
};

/// What a connection is, for people and metrics, and what it offers beside its stream.
struct ConnectionInfo {
  std::string transport;
  /// This machine's network port that carries it and no other, "mlx5_0/1" as `heddle links` has it;
  /// empty: the kernel's routes choose.
  std::string port = {};
  DescriptorPassing* descriptors = nullptr;  ///< Null: it passes none.
  DirectPlacement* placement = nullptr;      ///< Null: everything goes through the stream.
};

/// The streams to one peer. Thread: one caller at a time (its channel's lock).
class Connection {
 public:
  /// A descriptor to watch, and the epoll events to watch it for.
  struct Watch {
    int fd = -1;
    uint32_t events = 0;
  };
  enum class Ending : uint8_t {
    kWriting,  ///< No more writes; the peer reads what was written, then the end.
    kAtOnce,   ///< Everything is dropped, in both directions; the peer sees it as a loss.
  };

  virtual ~Connection() = default;
  Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Always the same.
  virtual ConnectionInfo info() = 0;
  /// Takes as many bytes as fit now and returns how many, 0 when none. Errors: kUnavailable.
  virtual Result<size_t> Write(std::span<const iovec> parts) = 0;
  /// Gives as many bytes as are there and returns how many, 0 when none yet. Errors: kUnavailable
  /// when the peer is gone and everything it sent has been read; kDataLoss when the peer broke the
  /// format.
  virtual Result<size_t> Read(std::span<std::byte> buffer) = 0;
  /// What to watch. `want_read` and `want_write`: whether the channel could use bytes, or room;
  /// when a wanted thing comes true one of the watched descriptors becomes ready.
  /// Unused entries have fd -1; the descriptors themselves never change.
  virtual std::array<Watch, 2> Watches(bool want_read, bool want_write) = 0;
  /// What a caller's thread polls to sleep until there are bytes, or room; fd -1: it cannot. It has
  /// called PrepareToWait then, and the loop watches for neither meanwhile.
  virtual Watch SleepOn(bool /*want_write*/) const { return {}; }
  /// Called when a descriptor of Watches or SleepOn was ready, before Read and Write.
  virtual void OnReady(int /*fd*/, uint32_t /*events*/) {}
  /// Called last before the channel waits for readiness. False: do not wait, what is wanted is
  /// there.
  virtual bool PrepareToWait(bool /*want_read*/, bool /*want_write*/) { return true; }
  virtual void Close(Ending how) = 0;
};

/// A connection in the making, after a handshake that ended well. The session that owns it bounds
/// its time. Thread: loop only.
class ConnectionSetup {
 public:
  virtual ~ConnectionSetup() = default;
  ConnectionSetup() = default;
  ConnectionSetup(const ConnectionSetup&) = delete;
  ConnectionSetup& operator=(const ConnectionSetup&) = delete;

  /// Becomes ready to read when Advance should be called again; always the same. Not to be watched
  /// during Advance, which may hand it to the connection.
  virtual int fd() const = 0;
  /// Goes as far as it can without blocking; called at once and then whenever `fd` is ready, until
  /// it gives a connection or an error. Null: not yet. Errors: why no connection will come, in the
  /// peer's words where the reason is the peer's.
  virtual Result<std::unique_ptr<Connection>> Advance() = 0;
};

/// Where a transport's handshakes come in.
struct Listener {
  int socket = -1;        ///< Non-blocking, listening; the transport's.
  std::string port = {};  ///< As ConnectionInfo::port.
};

/// A route to a peer: from which of this endpoint's listeners to which of the peer's.
struct Route {
  size_t listener = 0;  ///< Position among Transport::listeners.
  std::string to = {};
};

/// No transport gives more routes to a peer: each that a broken network swallows takes seconds.
inline constexpr size_t kMostRoutes = 3;

/// The number of a connection between two ranks, which spreads connections over routes: neighbours
/// in a ring of consecutive ranks have one number to the one side and another to the other (in a
/// ring of every second rank or of a larger stride they may have the same one), and so do the two
/// traffic classes of a pair, so that what is urgent does not wait for the bulk in a network
/// adapter either.
constexpr size_t ConnectionNumber(int rank, int peer, bool urgent) {
  return static_cast<size_t>(rank + peer) / 2 + (urgent ? 1 : 0);
}

/// One end of a connection in the making.
struct SetupOptions {
  size_t listener = 0;  ///< That it was accepted at, or dialled from.
  TrafficClass traffic_class = TrafficClass::kBulk;
  bool dialled = false;
  Digest key{};            ///< Both ends' alone, and this socket's.
  bool encrypted = false;  ///< The job asks for TLS. Only where TransportTraits::encrypts.
};

/// Thread: any after construction; Begin is called on the loop thread.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Precondition: `name` is declared.
  explicit Transport(std::string_view name);
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  const TransportTraits& traits() const { return traits_; }
  const std::string& name() const { return traits_.name; }

  /// Its part of the endpoint's address.
  virtual std::string address() const = 0;
  /// One, or one for each network port that it uses. Always the same.
  virtual std::vector<Listener> listeners() const = 0;
  /// The routes from an endpoint with parts `own` to a peer with parts `peer`, in the order in
  /// which they are to be tried, at most kMostRoutes; none: it cannot be reached. `number`:
  /// ConnectionNumber, which chooses among routes that are equally good.
  virtual std::vector<Route> RoutesTo(const AddressParts& own,
                                      const AddressParts& peer,
                                      size_t number) const = 0;
  /// No connection came of a route: another is to be preferred for a while.
  virtual void Avoid(const Route& /*route*/) const {}
  /// Starts a connect and returns the non-blocking socket. Errors: kUnavailable,
  /// kResourceExhausted.
  virtual Result<UniqueFd> Dial(const Route& route) const = 0;
  /// One end of a connection over `socket`, after a handshake that ended well; the other end's is
  /// of the same traffic class. The setup must not outlive the transport; the connection may.
  virtual std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket,
                                                 const SetupOptions& options) const = 0;

 private:
  const TransportTraits& traits_;
};

/// A transport whose connections need no more than their handshake's socket to begin.
class SocketTransport : public Transport {
 public:
  using Transport::Transport;
  std::unique_ptr<ConnectionSetup> Begin(UniqueFd socket, const SetupOptions& options) const final;

 protected:
  /// The dialling end.
  virtual Result<std::unique_ptr<Connection>> FinishDial(UniqueFd socket,
                                                         TrafficClass traffic_class) const = 0;
  /// The accepting end; called when the socket is readable until it returns a connection. Null: not
  /// yet; `socket` stays the caller's until then.
  virtual Result<std::unique_ptr<Connection>> FinishAccept(UniqueFd& socket,
                                                           TrafficClass traffic_class) const = 0;

 private:
  class Setup;
};

/// Whether an endpoint with these parts can pass descriptors to others of its host.
bool PassesDescriptors(const AddressParts& parts);

/// Identity of the host as far as shared memory and local sockets reach: boot and network
/// namespace.
std::string HostIdentity();

}  // namespace heddle::comm
