/// \file
/// Accepts the coordinator's connections for gRPC, whose own listener (1.51) never accepts again
/// after one failure for want of descriptors. Included by the server only.
///
/// A connection goes to gRPC with its first bytes: whoever says nothing holds a descriptor for
/// seconds at most, less where descriptors run out, and never keeps others from being heard.
/// Beyond its first byte a connection is a stranger's until Name says that a call of it was let in:
/// strangers are few, have seconds, the oldest makes room for the next one, and none of them takes
/// a descriptor of those that are kept for files and members.
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

/// Thread: any.
class ControlListener {
 public:
  /// Takes a descriptor that has something to read, which begins with `first_byte`. Called from its
  /// own thread.
  using Admit = std::function<void(UniqueFd connection, char first_byte)>;

  /// Listens on HOST:PORT, a numeric address; port 0: any free one. `named_within`: the time of a
  /// stranger. Errors: kResourceExhausted (the port is taken), kInvalidArgument.
  static Result<std::unique_ptr<ControlListener>> Open(const std::string& address,
                                                       Duration named_within = kNamedWithin);
  ~ControlListener();  ///< Close().

  /// The port that is listened on.
  int port() const { return port_; }
  /// Begins to accept.
  void Start(Admit admit);
  /// A call of the connection from `peer`, as gRPC calls it ("ipv4:127.0.0.1:4600"), was let in: it
  /// stays for as long as it likes.
  void Name(const std::string& peer) HEDDLE_EXCLUDES(mutex_);
  /// No connection is admitted afterwards; idempotent.
  void Close();

 private:
  struct Silent {
    UniqueFd fd;
    Time until;
  };
  /// One that has spoken, and is gRPC's: `fd` is a second descriptor of it, which ends it.
  struct Stranger {
    UniqueFd fd;
    std::string peer;
    Time until;
  };
  ControlListener(UniqueFd listener, UniqueFd wake, int port, Duration named_within)
      : listener_(std::move(listener)),
        wake_(std::move(wake)),
        port_(port),
        named_within_(named_within) {}

  void Run();
  void Wake();
  bool Wait() HEDDLE_EXCLUDES(mutex_);
  void AcceptAll();
  void AdmitSpoken();
  void Hand(UniqueFd connection, char first_byte);
  void CloseSilent();
  /// Forgets those that were named or have ended, and ends those that are late.
  void SiftStrangers() HEDDLE_EXCLUDES(mutex_);
  void EndOldestStranger();
  /// Whether somebody who is not let in yet has given up a descriptor, or soon will.
  bool MakeRoom();
  void NoteShortage(std::string_view what);

  const UniqueFd listener_;
  const UniqueFd wake_;  ///< Readable: it is closed, or somebody was named.
  const int port_;
  const Duration named_within_;
  Admit admit_;
  std::deque<Silent> silent_;       ///< In the order in which they came.
  std::vector<bool> spoken_;        ///< Of the last wait, by place in silent_.
  std::deque<Stranger> strangers_;  ///< In the order in which they have spoken.
  std::vector<bool> ended_;         ///< Of the last wait, by place in strangers_.
  bool listener_ready_ = false;
  Time accept_again_{};  ///< After a failure.
  Time noted_{};

  Mutex mutex_;
  bool closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::set<std::string> named_ HEDDLE_GUARDED_BY(mutex_);  ///< Since the thread looked last.
  Thread thread_;                                          // Last: it uses what stands above.
};

}  // namespace heddle::elastic
