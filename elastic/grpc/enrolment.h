/// \file
/// How a worker gets its certificate, and another one before it ends.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/thread.h"
#include "elastic/identity/own_certificate.h"

namespace heddle::elastic {

struct JoinOptions {
  std::string coordinator;                  ///< As SessionOptions::coordinator.
  std::string token_file;                   ///< Its owner alone may read it.
  std::string name;                         ///< The worker's.
  std::string folder;                       ///< Where its certificate is to be.
  std::function<bool()> asked_to_end = {};  ///< May be empty.
};

/// Makes the folder of a worker that has a token, unless it has a certificate there that is valid:
/// draws a key, knows the coordinator by the token's fingerprint, and only then shows the token. A
/// coordinator that does not answer is asked again for as long as a new worker waits for one.
/// Errors: kInvalidArgument (file, name), kUnauthenticated and kPermissionDenied (the token, or
/// what answers), kFailedPrecondition (the coordinator makes no certificates), kUnavailable.
Status JoinByToken(const JoinOptions& options);

/// Renews the worker's certificate in its folder, from half of its life on, for as long as it
/// exists. Thread: any.
class Renewal {
 public:
  struct Options {
    std::string coordinator;
    std::string folder;  ///< Of ReadCredentials.
    /// Another certificate is in the folder. Thread: the renewal's. May be empty.
    std::function<void()> renewed = {};
    /// When the certificate ends, in seconds since the epoch: of the first, and of each later one.
    std::function<void(double ends)> ends = {};
  };
  /// Errors: those of ReadCredentials.
  static Result<std::unique_ptr<Renewal>> Start(Options options);
  ~Renewal();
  Renewal(const Renewal&) = delete;
  Renewal& operator=(const Renewal&) = delete;

 private:
  Renewal(Options options, std::unique_ptr<OwnCertificate> own);
  void Run();
  /// Whether the renewal was refused for good, for this certificate.
  void Look();
  void NoteEnd();
  Status Renew();

  const Options options_;
  const std::unique_ptr<OwnCertificate> own_;
  // The thread's alone.
  double again_at_ = 0;  ///< After a failure.
  std::string trouble_;  ///< Of the last attempt, as it was said.
  int64_t warned_ = 0;   ///< The version whose end was said to be near.

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  Thread thread_;  // Last: it uses what stands above.
};

}  // namespace heddle::elastic
