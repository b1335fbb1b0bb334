/// \file
/// How a worker gets its certificate, and how it renews it in time.
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
  std::string coordinator;  ///< HOST:PORT or a list, as SessionOptions::coordinator.
  std::string token_file;   ///< File with the join token; only its owner may have access to it.
  std::string name;         ///< The worker's name.
  std::string folder;       ///< Where the certificate is written.
  std::function<bool()> asked_to_end = {};  ///< True ends the retries. May be empty.
};

/// Gets a certificate by a join token and writes it, with its key, to the worker's folder; does
/// nothing if valid credentials are there already. The token is sent only to a coordinator whose
/// authority has the token's fingerprint. A coordinator that does not answer is asked again for up
/// to kWelcomeTimeout. Errors: kInvalidArgument (file, name), kUnauthenticated and
/// kPermissionDenied (the token is refused, or the coordinator is not the token's),
/// kFailedPrecondition (the coordinator makes no certificates), kUnavailable.
Status JoinByToken(const JoinOptions& options);

/// Renews the worker's certificate in its folder for as long as this object exists, each
/// certificate from half of its life on. Thread: any.
class Renewal {
 public:
  struct Options {
    std::string coordinator;  ///< HOST:PORT or a list, as SessionOptions::coordinator.
    std::string folder;       ///< The worker's folder, as ReadCredentials takes it.
    /// Called when a renewed certificate is in the folder. Thread: the renewal's. May be empty.
    std::function<void()> renewed = {};
    /// Called with the end of the certificate, in seconds since the epoch: of the first, and of
    /// each later one. Thread: the renewal's. May be empty.
    std::function<void(double ends)> ends = {};
  };
  /// Starts the renewal's thread. Errors: those of ReadCredentials and OwnCertificate::Make.
  static Result<std::unique_ptr<Renewal>> Start(Options options);
  ~Renewal();
  Renewal(const Renewal&) = delete;
  Renewal& operator=(const Renewal&) = delete;

 private:
  Renewal(Options options, std::unique_ptr<OwnCertificate> own);
  void Run();
  /// Reads the folder, and renews the certificate if it is time.
  void Look();
  void NoteEnd();
  Status Renew();

  const Options options_;
  const std::unique_ptr<OwnCertificate> own_;
  // Used by thread_ alone.
  double again_at_ = 0;  ///< When to try again after a failure, in seconds since the epoch.
  std::string trouble_;  ///< The last logged error; empty after a renewal.
  int64_t warned_ = 0;   ///< The last version whose end was logged as near.

  Mutex mutex_;
  CondVar wake_;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  Thread thread_;  // Last: it uses what stands above.
};

}  // namespace heddle::elastic
