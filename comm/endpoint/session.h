/// \file
/// Handshakes in progress: an AcceptSession for each accepted socket, a DialSession for each
/// dialled one. Both run on the event loop, hold no more memory than the messages' fixed sizes, and
/// have timeouts.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/system/unique_fd.h"
#include "comm/stream/event_loop.h"
#include "comm/transport/handshake.h"
#include "comm/transport/transport.h"

namespace heddle::comm {

/// Timeout of every step of a handshake that depends only on the peer's reply.
inline constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

/// A socket on the loop that carries fixed-size messages. Thread: loop only.
class HandshakeSocket {
 public:
  HandshakeSocket(EventLoop& loop, UniqueFd socket) : loop_(loop), socket_(std::move(socket)) {}
  ~HandshakeSocket() { Unwatch(); }
  HandshakeSocket(const HandshakeSocket&) = delete;
  HandshakeSocket& operator=(const HandshakeSocket&) = delete;

  void Watch(uint32_t events, EventLoop::Handler handler);
  void SetEvents(uint32_t events);
  void Unwatch();
  /// Reads a part of `message`; several calls may be needed. Returns whether it is complete.
  /// Errors: kUnavailable (the peer closed the connection, or the socket failed).
  Result<bool> Read(std::span<std::byte> message);
  /// Writes a whole message; messages are smaller than any socket's buffer. Errors: kUnavailable.
  Status Write(std::span<const std::byte> message);
  int fd() const { return socket_.get(); }
  UniqueFd Take();

 private:
  EventLoop& loop_;
  UniqueFd socket_;
  uint64_t watch_ = 0;
  size_t have_ = 0;
};

/// A ConnectionSetup on the loop. Thread: loop only.
class SetupWatch {
 public:
  explicit SetupWatch(EventLoop& loop) : loop_(loop) {}
  ~SetupWatch() { Drop(); }
  SetupWatch(const SetupWatch&) = delete;
  SetupWatch& operator=(const SetupWatch&) = delete;

  void Begin(std::unique_ptr<ConnectionSetup> setup) { setup_ = std::move(setup); }
  /// Advances the setup. Null: not ready yet; `handler` is called when Advance should be called
  /// again. Errors: those of ConnectionSetup::Advance.
  Result<std::unique_ptr<Connection>> Advance(EventLoop::Handler handler);
  void Drop();

 private:
  void Unwatch();

  EventLoop& loop_;
  std::unique_ptr<ConnectionSetup> setup_;
  uint64_t watch_ = 0;
};

/// The accepting side of a handshake. The owner drops it after OnConnection, OnRefused or OnGone.
/// Thread: loop only.
class AcceptSession : public std::enable_shared_from_this<AcceptSession> {
 public:
  struct Owner {
    virtual ~Owner() = default;
    /// The identity against which diallers are checked. With an empty secret all are refused.
    virtual Identity identity() const = 0;
    /// Called when the dialler is authenticated. The owner calls Welcome or Refuse, now or later;
    /// Welcome only if the traffic class is valid.
    virtual void OnAuthentic(const std::shared_ptr<AcceptSession>& session) = 0;
    virtual void OnConnection(const std::shared_ptr<AcceptSession>& session,
                              std::unique_ptr<Connection>) = 0;
    /// Called when the session ends because the dialler is refused.
    virtual void OnRefused(const std::shared_ptr<AcceptSession>& session, VerdictCode reason) = 0;
    /// Called when the session with an authenticated dialler ends without a connection and without
    /// a refusal. `reason`: kCancelled if the dialler left before Welcome, else why the setup of
    /// the connection failed.
    virtual void OnGone(const std::shared_ptr<AcceptSession>& session, const Status& reason) = 0;
  };

  /// `listener`: index of the listener of `transport` that accepted the socket.
  AcceptSession(
      EventLoop& loop, Owner& owner, const Transport& transport, size_t listener, UniqueFd socket);
  void Start();
  void Welcome();
  void Refuse(VerdictCode reason);
  const Hello& hello() const { return hello_; }
  const Transport& transport() const { return transport_; }
  size_t listener() const { return listener_; }
  /// This worker's identity when the handshake began.
  const Identity& identity() const { return identity_; }
  /// Whether the dialler uses TLS. Precondition: the dialler is authenticated.
  bool peer_uses_tls() const { return proof_.tls != 0; }
  bool authentic() const { return step_ >= Step::kHeld; }
  /// Ends the session without a call to its owner.
  void Drop();

 private:
  enum class Step : uint8_t { kHello, kProof, kHeld, kFinish, kEnded };

  void OnReady();
  void ReadHello();
  void ReadProof();
  void Finish();

  EventLoop& loop_;
  Owner& owner_;
  const Transport& transport_;
  const size_t listener_;
  HandshakeSocket socket_;
  SetupWatch setup_;
  Step step_ = Step::kHello;
  Hello hello_;
  Challenge challenge_;
  Proof proof_;
  Identity identity_;
};

/// The dialling side of a handshake. Thread: loop only.
class DialSession : public std::enable_shared_from_this<DialSession> {
 public:
  using Done = std::function<void(Result<std::unique_ptr<Connection>>)>;

  DialSession(EventLoop& loop,
              const Transport& transport,
              Route route,
              Identity identity,
              const Hello& hello,
              Deadline deadline,
              Done done);
  /// Dials the peer. `connect_by`: deadline of the connect, before that of the session, so that
  /// another route can be tried. `step`: timeout of each later step, except for the wait for a
  /// peer that has not joined the generation yet.
  void Start(Deadline connect_by, Duration step = kHandshakeTimeout);
  /// Ends the session without calling `done`.
  void Drop();

 private:
  enum class Step : uint8_t { kConnect, kChallenge, kVerdict, kFinish, kEnded };

  void OnReady();
  void End(Result<std::unique_ptr<Connection>> result);
  void ExpectWithin(Step step, Deadline deadline, const char* what);
  void SendHello();
  void ReadChallenge();
  void ReadVerdict();
  void Finish();

  EventLoop& loop_;
  const Transport& transport_;
  const Route route_;
  const Identity identity_;
  const Hello hello_;
  const Deadline deadline_;
  Done done_;
  std::unique_ptr<HandshakeSocket> socket_;
  SetupWatch setup_;
  Duration step_timeout_ = kHandshakeTimeout;
  Step step_ = Step::kConnect;
  Challenge challenge_;
  Verdict verdict_;
};

}  // namespace heddle::comm
