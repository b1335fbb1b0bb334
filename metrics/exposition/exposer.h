/// \file
/// A small HTTP server for what a process shows: /metrics for Prometheus, and pages of the caller's
/// own (service discovery, status). Answers come from the server's own threads, so that a process
/// that computes or recovers still answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "metrics/registry.h"

namespace heddle::metrics {

struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
};

struct PageRequest {
  std::string path;
  /// HOST:PORT by which the asker has reached this server, as it says (RFC 9112); empty: it does
  /// not say, or nonsense.
  std::string reached;
};

/// Answers a GET. Called from several threads at once; must not block for long: a page that waits
/// keeps one of the server's few threads.
using HttpHandler = std::function<HttpReply(const PageRequest& request)>;

struct ExposerOptions {
  /// A numeric IPv4 or IPv6 address to listen on; empty: all of them.
  std::string host = "127.0.0.1";
  /// 0: any free port.
  int port = 0;
  /// Requests answered at the same time; more wait. A whole request comes within two seconds, or a
  /// fraction of one while others wait, and is cut off otherwise.
  int threads = 3;
};

/// Thread: any.
class Exposer {
 public:
  /// Serves `registry` at /metrics and each of `handlers` at its exact path ("/status"); 404
  /// elsewhere. Owner:  `registry` outlives the Exposer, and so does what the handlers refer to.
  /// Errors: kInvalidArgument   the host is no address
  ///         kUnavailable       the port is taken or not allowed; the message names it
  static Result<std::unique_ptr<Exposer>> Start(const Registry& registry,
                                                const ExposerOptions& options,
                                                std::map<std::string, HttpHandler> handlers = {});

  /// Stops listening and waits for requests in progress (each has a bound of seconds).
  virtual ~Exposer() = default;
  Exposer(const Exposer&) = delete;
  Exposer& operator=(const Exposer&) = delete;

  /// The port that is listened on.
  virtual int port() const = 0;

 protected:
  Exposer() = default;
};

/// The registry and the process' own figures in Prometheus' text format, as /metrics serves them.
std::string ExpositionText(const Registry& registry);

}  // namespace heddle::metrics
