#include "metrics/exposition/exposer.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <poll.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>

#include "base/thread.h"
#include "base/unique_fd.h"

namespace heddle::metrics {
namespace {

prometheus::MetricType TypeOf(Registry::Kind kind) {
  switch (kind) {
    case Registry::Kind::kCounter:
      return prometheus::MetricType::Counter;
    case Registry::Kind::kGauge:
      return prometheus::MetricType::Gauge;
    case Registry::Kind::kHistogram:
      return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric Convert(Registry::Kind kind, const Registry::Sample& sample) {
  prometheus::ClientMetric metric;
  for (const auto& [name, value] : sample.labels) {
    metric.label.push_back({name, value});
  }
  metric.counter.value = sample.value;
  metric.gauge.value = sample.value;
  if (kind == Registry::Kind::kHistogram) {
    const Histogram::Snapshot& histogram = sample.histogram;
    for (size_t i = 0; i < histogram.cumulative.size(); ++i) {
      const double bound = i < histogram.bounds.size() ? histogram.bounds[i]
                                                       : std::numeric_limits<double>::infinity();
      metric.histogram.bucket.push_back({histogram.cumulative[i], bound});
    }
    metric.histogram.sample_count = histogram.cumulative.back();
    metric.histogram.sample_sum = histogram.sum;
  }
  return metric;
}

/// civetweb's part of the Exposer: C callbacks that find their object through the context's user
/// data.
class CivetExposer : public Exposer {
 public:
  CivetExposer(const Registry& registry, std::map<std::string, HttpHandler> handlers)
      : registry_(registry),
        handlers_(std::move(handlers)) {
    mg_init_library(MG_FEATURES_DEFAULT);
  }
  ~CivetExposer() override {
    if (context_ != nullptr) {
      Stop();
    }
    mg_exit_library();
  }

  int port() const override { return port_; }
  Status Listen(const ExposerOptions& options);

 private:
  void Stop();
  static int OnRequest(mg_connection* connection);
  static int OnLog(const mg_connection* /*connection*/, const char* /*message*/) { return 1; }
  HttpReply Answer(std::string_view method, const std::string& path) const;

  const Registry& registry_;
  const std::map<std::string, HttpHandler> handlers_;
  mg_context* context_ = nullptr;
  int port_ = 0;
  sockaddr_storage address_{};  ///< Where a client of this machine reaches us.
};

/// "127.0.0.1:80", "[::1]:80" or "80".
Result<std::string> ListenAddress(const ExposerOptions& options) {
  std::array<unsigned char, sizeof(in6_addr)> parsed{};
  if (options.host.empty()) {
    return std::to_string(options.port);
  }
  if (::inet_pton(AF_INET, options.host.c_str(), parsed.data()) == 1) {
    return fmt::format("{}:{}", options.host, options.port);
  }
  if (::inet_pton(AF_INET6, options.host.c_str(), parsed.data()) == 1) {
    return fmt::format("[{}]:{}", options.host, options.port);
  }
  return InvalidArgumentError("'{}' is no IP address to listen on", options.host);
}

/// The socket address of `host` (checked before), or of the loopback when all are listened on.
sockaddr_storage OwnAddress(const std::string& host, int port) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(static_cast<uint16_t>(port));
  } else {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    const bool any = host.empty() || host == "0.0.0.0";
    ::inet_pton(AF_INET, any ? "127.0.0.1" : host.c_str(), &v4->sin_addr);
  }
  return storage;
}

Status CivetExposer::Listen(const ExposerOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string address, ListenAddress(options));
  const std::string threads = std::to_string(options.threads);
  // The timeout bounds how long a client that sends nothing keeps a thread, and so how long a stop
  // takes.
  const std::array<const char*, 11> settings = {"listening_ports",
                                                address.c_str(),
                                                "num_threads",
                                                threads.c_str(),
                                                "request_timeout_ms",
                                                "2000",
                                                "enable_keep_alive",
                                                "no",
                                                "tcp_nodelay",
                                                "1",
                                                nullptr};
  mg_callbacks callbacks{};
  callbacks.begin_request = &OnRequest;
  callbacks.log_message = &OnLog;
  callbacks.log_access = &OnLog;
  errno = 0;
  std::vector<const char*> configuration(settings.begin(), settings.end());
  context_ = mg_start(&callbacks, this, configuration.data());
  if (context_ == nullptr) {
    return UnavailableError("cannot listen on {}: {}", address,
                            errno != 0 ? std::strerror(errno) : "the address is refused");
  }
  std::array<mg_server_port, 4> ports{};
  if (mg_get_server_ports(context_, static_cast<int>(ports.size()), ports.data()) < 1) {
    return InternalError("{} is listened on, but has no port", address);
  }
  port_ = ports.front().port;
  address_ = OwnAddress(options.host, port_);
  return Status::Ok();
}

/// civetweb looks at its stop flag only every two seconds, or when a client connects: so one does.
void CivetExposer::Stop() {
  std::atomic<bool> stopped = false;
  const Thread stopper("http-stop", [&] {
    mg_stop(context_);
    stopped = true;
  });
  while (!stopped) {
    const UniqueFd wake(
        ::socket(address_.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ::connect(wake.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_));
    ::poll(nullptr, 0, 5);
  }
}

int CivetExposer::OnRequest(mg_connection* connection) {
  const mg_request_info* request = mg_get_request_info(connection);
  const auto* self = static_cast<const CivetExposer*>(request->user_data);
  const std::string_view method = request->request_method;
  const HttpReply reply =
      self->Answer(method, request->local_uri != nullptr ? request->local_uri : "");
  const std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
      reply.status, mg_get_response_code_text(connection, reply.status), reply.content_type,
      reply.body.size());
  mg_write(connection, head.data(), head.size());
  if (method != "HEAD") {
    mg_write(connection, reply.body.data(), reply.body.size());
  }
  return reply.status;
}

HttpReply CivetExposer::Answer(std::string_view method, const std::string& path) const {
  if (method != "GET" && method != "HEAD") {
    return {.status = 405, .body = "only GET is answered\n"};
  }
  // An exception must not go up through civetweb, which is C.
  try {
    if (path == "/metrics") {
      return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
              .body = ExpositionText(registry_)};
    }
    const auto handler = handlers_.find(path);
    return handler == handlers_.end() ? HttpReply{.status = 404, .body = "nothing here\n"}
                                      : handler->second(path);
  } catch (const std::exception& error) {
    return {.status = 500, .body = fmt::format("{}\n", error.what())};
  }
}

}  // namespace

std::string ExpositionText(const Registry& registry) {
  std::vector<prometheus::MetricFamily> families;
  for (const Registry::Family& family : registry.Collect()) {
    prometheus::MetricFamily& out = families.emplace_back();
    out.name = family.name;
    out.help = family.help;
    out.type = TypeOf(family.kind);
    for (const Registry::Sample& sample : family.samples) {
      out.metric.push_back(Convert(family.kind, sample));
    }
  }
  return prometheus::TextSerializer().Serialize(families);
}

Result<std::unique_ptr<Exposer>> Exposer::Start(const Registry& registry,
                                                const ExposerOptions& options,
                                                std::map<std::string, HttpHandler> handlers) {
  auto exposer = std::make_unique<CivetExposer>(registry, std::move(handlers));
  HEDDLE_RETURN_IF_ERROR(exposer->Listen(options));
  return std::unique_ptr<Exposer>(std::move(exposer));
}

}  // namespace heddle::metrics
