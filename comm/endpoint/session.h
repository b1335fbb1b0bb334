/// \file
/// Handshakes in flight: an AcceptSession for each socket that someone opened to us, a DialSession
/// for each peer that we open one to. Both live on the event loop, hold no more memory than the
/// messages' fixed sizes and end by themselves.
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

/// Bound of every step of a handshake that depends on the other side's answer alone.
inline constexpr Duration kHandshakeTimeout = std::chrono::seconds(2);

/// A socket with fixed-size messages on the loop. Thread: loop only.
class HandshakeSocket {
 public:
  HandshakeSocket(EventLoop& loop, UniqueFd socket) : loop_(loop), socket_(std::move(socket)) {}
  ~HandshakeSocket() { Unwatch(); }
  HandshakeSocket(const HandshakeSocket&) = delete;
  HandshakeSocket& operator=(const HandshakeSocket&) = delete;

  void Watch(uint32_t events, EventLoop::Handler handler);
  void SetEvents(uint32_t events);
  void Unwatch();
  /// Fills `message` over several calls; true when it is whole. Errors: kUnavailable (closed).
  Result<bool> Read(std::span<std::byte> message);
  /// The messages are smaller than any socket's buffer, so they go whole or not at all.
  Status Write(std::span<const std::byte> message);
  int fd() const { return socket_.get(); }
  UniqueFd Take();

 private:
  EventLoop& loop_;
  UniqueFd socket_;
  uint64_t watch_ = 0;
  size_t have_ = 0;
};

/// A connection setup on the loop. Thread: loop only.
class SetupWatch {
 public:
  explicit SetupWatch(EventLoop& loop) : loop_(loop) {}
  ~SetupWatch() { Drop(); }
  SetupWatch(const SetupWatch&) = delete;
  SetupWatch& operator=(const SetupWatch&) = delete;

  void Begin(std::unique_ptr<ConnectionSetup> setup) { setup_ = std::move(setup); }
  /// Null: not yet; `handler` is called when it should be tried again.
  Result<std::unique_ptr<Connection>> Advance(EventLoop::Handler handler);
  void Drop();

 private:
  void Unwatch();

  EventLoop& loop_;
  std::unique_ptr<ConnectionSetup> setup_;
  uint64_t watch_ = 0;
};

/// The accepting side. The owner drops it when `on_end` is called. Thread: loop only.
class AcceptSession : public std::enable_shared_from_this<AcceptSession> {
 public:
  struct Owner {
    virtual ~Owner() = default;
    /// What this worker proves and asks for. An empty secret refuses everyone.
    virtual Identity identity() const = 0;
    /// The dialler is authentic. The owner calls Welcome or Refuse, now or later; Welcome only for
    /// a traffic class that there is.
    virtual void OnAuthentic(const std::shared_ptr<AcceptSession>& session) = 0;
    virtual void OnConnection(const std::shared_ptr<AcceptSession>& session,
                              std::unique_ptr<Connection>) = 0;
    /// It ended without a connection.
    virtual void OnRefused(const std::shared_ptr<AcceptSession>& session, VerdictCode reason) = 0;
    /// The same for a dialler that is authentic. `reason`: kCancelled when it took itself back
    /// before it was welcome, else why the connection came to nothing.
    virtual void OnGone(const std::shared_ptr<AcceptSession>& session, const Status& reason) = 0;
  };

  /// `listener`: of `transport`, at which the socket was accepted.
  AcceptSession(
      EventLoop& loop, Owner& owner, const Transport& transport, size_t listener, UniqueFd socket);
  void Start();
  void Welcome();
  void Refuse(VerdictCode reason);
  const Hello& hello() const { return hello_; }
  const Transport& transport() const { return transport_; }
  size_t listener() const { return listener_; }
  /// As this worker was when the handshake began.
  const Identity& identity() const { return identity_; }
  /// Whether an authentic dialler uses TLS.
  bool peer_uses_tls() const { return proof_.tls != 0; }
  bool authentic() const { return step_ >= Step::kHeld; }
  /// Ends it silently.
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

/// The dialling side. Thread: loop only.
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
  /// `connect_by`: until when the peer's port must have answered; there may be another route.
  /// `step`: how long at most one of the handshake's steps may take, but for the wait for a peer
  /// that has not joined the generation yet.
  void Start(Deadline connect_by, Duration step = kHandshakeTimeout);
  /// Ends it without calling `done`.
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
