/// \file
/// Accepts the coordinator's connections for gRPC, whose own listener (1.51) never accepts again
/// after it once ran out of file descriptors. Included by the server only.
///
/// A connection has three stages. It is silent until its first byte arrives; then it is handed to
/// gRPC. It is unauthorised until a call on it is authorised (Name); then it may stay open. Silent
/// and unauthorised connections are limited in number and in time: the oldest is closed when there
/// are too many or descriptors run out, and the newest waits until its descriptors are free.
/// Descriptors in reserve for files and for authorised connections are never given to them.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/system/unique_fd.h"
#include "base/thread.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {

/// The coordinator's listener. Thread: any.
class ControlListener {
 public:
  /// Takes over a connection with readable data, which begins with `first_byte`. Thread: the
  /// listener's.
  using Admit = std::function<void(UniqueFd connection, char first_byte)>;

  /// Listens on HOST:PORT, a numeric address; port 0: any free one. `named_within`: how long an
  /// unauthorised connection may stay. Errors: kResourceExhausted (the port is taken),
  /// kInvalidArgument.
  static Result<std::unique_ptr<ControlListener>> Open(const std::string& address,
                                                       Duration named_within = kNamedWithin);
  ~ControlListener();  ///< Close().

  /// The port on which this listens.
  int port() const { return port_; }
  /// Begins to accept connections and passes them to `admit`.
  void Start(Admit admit);
  /// Records that a call on the connection from `peer` was authorised, so that the connection may
  /// stay. `peer` as gRPC writes it ("ipv4:127.0.0.1:4600").
  void Name(const std::string& peer) HEDDLE_EXCLUDES(mutex_);
  /// Stops accepting; no connection is admitted afterwards. Idempotent.
  void Close();

 private:
  /// A connection that has sent nothing yet.
  struct Silent {
    UniqueFd fd;
    Time until;
  };
  /// A connection that gRPC has and on which no call was authorised yet. `fd` is a duplicate of its
  /// descriptor, by which it can be shut down.
  struct Unauthorised {
    UniqueFd fd;
    std::string peer;
    Time until;
  };
  ControlListener(UniqueFd listener, UniqueFd wake, int port, Duration named_within)
      : listener_(std::move(listener)),
        wake_(std::move(wake)),
        port_(port),
        named_within_(named_within) {}

  /// Whether a connection can have one more descriptor.
  enum class Room { kNow, kSoon, kNever };

  void Run();
  void Wake();
  bool Wait() HEDDLE_EXCLUDES(mutex_);
  void AcceptAll();
  void TakeSpoken();
  void HandSpoken();
  void CloseSilent();
  /// Forgets unauthorised connections that were named or have closed, and shuts down those whose
  /// time is over.
  void SiftUnauthorised() HEDDLE_EXCLUDES(mutex_);
  void EndOldestUnauthorised();
  /// Closes the oldest silent connection, whose descriptor is free at once, or else the oldest
  /// unauthorised one, whose other descriptor gRPC frees soon. kNever: there is none.
  Room MakeRoom();
  /// Makes a duplicate of `fd` that is not in the reserve, with MakeRoom where it takes that.
  Room Duplicate(const UniqueFd& fd, UniqueFd& duplicate);
  void NoteShortage(std::string_view what);

  const UniqueFd listener_;
  const UniqueFd wake_;  ///< Readable after Close or Name.
  const int port_;
  const Duration named_within_;
  Admit admit_;
  UniqueFd next_;                          ///< Accepted; waits for a descriptor. Not valid: none.
  std::deque<Silent> silent_;              ///< By time of arrival.
  std::vector<bool> readable_;             ///< By index in silent_, at the last poll.
  std::deque<UniqueFd> spoken_;            ///< Those that are to be handed to gRPC.
  std::deque<Unauthorised> unauthorised_;  ///< By time of the first byte.
  std::vector<bool> ended_;                ///< By index in unauthorised_: closed at the last poll.
  bool listener_ready_ = false;
  Time again_{};  ///< When to accept and hand over again after there was no descriptor.
  Time noted_{};

  Mutex mutex_;
  bool closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::set<std::string> named_ HEDDLE_GUARDED_BY(mutex_);  ///< Peers named since the last poll.
  Thread thread_;                                          // Last: it uses what stands above.
};

}  // namespace heddle::elastic
