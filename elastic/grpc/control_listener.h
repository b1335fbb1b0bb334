/// \file
/// Accepts the coordinator's connections for gRPC, whose own listener (1.51) never accepts again
/// after one failure for want of descriptors. Included by the server only.
///
/// A connection goes to gRPC with its first bytes: whoever says nothing holds a descriptor for
/// seconds at most, less where descriptors run out, and never keeps others from being heard.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/system/unique_fd.h"
#include "base/thread.h"

namespace heddle::elastic {

/// Thread: any.
class ControlListener {
 public:
  /// Takes a descriptor that has something to read. Called from its own thread.
  using Admit = std::function<void(UniqueFd connection)>;

  /// Listens on HOST:PORT, a numeric address; port 0: any free one. Errors: kResourceExhausted (the
  /// port is taken), kInvalidArgument.
  static Result<std::unique_ptr<ControlListener>> Open(const std::string& address);
  ~ControlListener();  ///< Close().

  /// The port that is listened on.
  int port() const { return port_; }
  /// Begins to accept.
  void Start(Admit admit);
  /// No connection is admitted afterwards; idempotent.
  void Close();

 private:
  struct Silent {
    UniqueFd fd;
    Time until;
  };
  ControlListener(UniqueFd listener, UniqueFd wake, int port)
      : listener_(std::move(listener)),
        wake_(std::move(wake)),
        port_(port) {}

  void Run();
  bool Wait();
  void AcceptAll();
  void AdmitSpoken();
  void CloseSilent();
  void NoteShortage(const char* what);

  const UniqueFd listener_;
  const UniqueFd wake_;  ///< Readable: it is closed.
  const int port_;
  Admit admit_;
  std::deque<Silent> silent_;  ///< In the order in which they came.
  std::vector<bool> spoken_;   ///< Of the last wait, by place in silent_.
  bool listener_ready_ = false;
  Time accept_again_{};  ///< After a failure.
  Time noted_{};
  Thread thread_;  // Last: it uses what stands above.
};

}  // namespace heddle::elastic
