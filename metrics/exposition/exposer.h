/// \file
/// A small HTTP server of a process: /metrics for Prometheus, and pages of the caller (service
/// discovery, status). It answers on threads of its own, so that a process that computes or
/// recovers still answers.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "base/status.h"
#include "metrics/registry.h"

namespace heddle::metrics {

/// A page's answer.
struct HttpReply {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body = {};
};

/// A GET request.
struct PageRequest {
  std::string path;
  /// HOST:PORT by which the client says that it has reached this server (RFC 9112); empty if it
  /// does not say or the value is malformed.
  std::string reached;
};

/// Answers a GET. Called from several threads at once. Must not block for long, since a waiting
/// page occupies one of the server's few threads.
using HttpHandler = std::function<HttpReply(const PageRequest& request)>;

struct ExposerOptions {
  /// A numeric IPv4 or IPv6 address to listen on; empty: all IPv4 addresses.
  std::string host = "127.0.0.1";
  /// The port; 0: any free one.
  int port = 0;
  /// The most requests answered at the same time; more wait. A client has two seconds for a whole
  /// request, or 0.2 s while other clients wait, before its connection is closed.
  int threads = 3;
};

/// The running server. Thread: any.
class Exposer {
 public:
  /// Serves `registry` at /metrics and each of `handlers` at its exact path ("/status"); other
  /// paths get 404. `registry` and all that the handlers refer to outlive the Exposer.
  /// Errors: kInvalidArgument  the host is no address
  ///         kUnavailable      the port is taken or not allowed; the message names it
  static Result<std::unique_ptr<Exposer>> Start(const Registry& registry,
                                                const ExposerOptions& options,
                                                std::map<std::string, HttpHandler> handlers = {});

  /// Stops listening and waits for requests in progress, each of which is bounded to seconds.
  virtual ~Exposer() = default;
  Exposer(const Exposer&) = delete;
  Exposer& operator=(const Exposer&) = delete;

  /// The port on which this listens.
  virtual int port() const = 0;

 protected:
  Exposer() = default;
};

/// The metrics of the registry and of the process in Prometheus's text format, as /metrics serves
/// them.
std::string ExpositionText(const Registry& registry);

}  // namespace heddle::metrics
