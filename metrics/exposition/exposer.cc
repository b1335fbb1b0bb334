#include "metrics/exposition/exposer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <httplib.h>
#include <poll.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "metrics/exposition/process_figures.h"

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

// ---- Bounds ----

// Bounds of a whole request, also while other clients wait for a thread, and of a whole answer.
constexpr Duration kRequestWithin = std::chrono::seconds(2);
constexpr Duration kRequestWithinWhenBusy = std::chrono::milliseconds(200);
constexpr Duration kAnswerWithin = std::chrono::seconds(5);

bool WaitFor(int fd, short events, Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now()).count();
  pollfd polled{.fd = fd, .events = events, .revents = 0};
  return left > 0 && ::poll(&polled, 1, static_cast<int>(left)) == 1;
}

/// A client's connection with a bound on the whole request. The library's own stream bounds only
/// each read, so that a client that sends a byte now and then would occupy a thread for ever.
class BoundedStream : public httplib::Stream {
 public:
  BoundedStream(int fd, Duration request_within) : fd_(fd), read_by_(After(request_within)) {}

  bool is_readable() const override { return next_ < filled_ || WaitFor(fd_, POLLIN, read_by_); }
  bool is_writable() const override { return WaitFor(fd_, POLLOUT, After(kAnswerWithin)); }
  ssize_t read(char* to, size_t size) override {
    if (next_ == filled_) {
      if (!WaitFor(fd_, POLLIN, read_by_)) {
        return -1;
      }
      const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), 0);
      if (got <= 0) {
        return got;
      }
      next_ = 0;
      filled_ = static_cast<size_t>(got);
    }
    const size_t count = std::min(size, filled_ - next_);
    std::memcpy(to, buffer_.data() + next_, count);
    next_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    if (!write_by_) {
      write_by_ = After(kAnswerWithin);
    }
    return WaitFor(fd_, POLLOUT, *write_by_) ? ::send(fd_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT)
                                             : -1;
  }
  // Never called.
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return fd_; }

 private:
  const int fd_;
  const Deadline read_by_;
  std::optional<Deadline> write_by_;
  std::array<char, 4096> buffer_{};
  size_t next_ = 0;
  size_t filled_ = 0;
};

/// The library's thread pool, which counts the clients that wait for a thread.
class CountedQueue : public httplib::TaskQueue {
 public:
  CountedQueue(size_t threads, std::atomic<int>* waiting) : pool_(threads), waiting_(waiting) {}
  void enqueue(std::function<void()> task) override {
    waiting_->fetch_add(1);
    pool_.enqueue([waiting = waiting_, task = std::move(task)] {
      waiting->fetch_sub(1);
      task();
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  httplib::ThreadPool pool_;
  std::atomic<int>* const waiting_;
};

/// A server that answers one request a connection, within the bounds above.
class BoundedServer : public httplib::Server {
 public:
  explicit BoundedServer(std::atomic<int>* waiting) : waiting_(waiting) {}

 private:
  bool process_and_close_socket(socket_t socket) override {
    BoundedStream stream(socket, waiting_->load() > 0 ? kRequestWithinWhenBusy : kRequestWithin);
    bool closed = false;
    const bool answered = process_request(stream, true, closed, nullptr);
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return answered;
  }

  std::atomic<int>* const waiting_;
};

// Reads a request. Its target may be a whole URL, whose authority then counts instead of the Host
// field (RFC 9112, 3.2.2).
PageRequest RequestOf(const httplib::Request& request) {
  constexpr std::string_view kScheme = "http://";
  PageRequest out{.path = request.path, .reached = request.get_header_value("Host")};
  if (out.path.starts_with(kScheme)) {
    const size_t slash = std::min(out.path.find('/', kScheme.size()), out.path.size());
    out.reached = out.path.substr(kScheme.size(), slash - kScheme.size());
    out.path = slash == out.path.size() ? "/" : out.path.substr(slash);
  }
  const auto belongs = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view(".-_:[]").find(c) != std::string_view::npos;
  };
  if (!std::ranges::all_of(out.reached, belongs)) {
    out.reached.clear();
  } else if (!out.reached.empty() &&
             out.reached.find(':', out.reached.rfind(']') + 1) == std::string::npos) {
    out.reached += ":80";
  }
  return out;
}

/// The Exposer, by cpp-httplib.
class HttpExposer : public Exposer {
 public:
  HttpExposer(const Registry& registry, std::map<std::string, HttpHandler> handlers)
      : registry_(registry),
        handlers_(std::move(handlers)) {}
  ~HttpExposer() override {
    server_.stop();
    loop_.Join();
  }

  int port() const override { return port_; }
  Status Listen(const ExposerOptions& options);

 private:
  HttpReply Answer(const PageRequest& request) const;

  const Registry& registry_;
  const std::map<std::string, HttpHandler> handlers_;
  std::atomic<int> waiting_{0};  ///< Clients that wait for a thread.
  BoundedServer server_{&waiting_};
  int port_ = 0;
  Thread loop_;
};

Status HttpExposer::Listen(const ExposerOptions& options) {
  std::array<unsigned char, sizeof(in6_addr)> parsed{};
  const std::string host = options.host.empty() ? "0.0.0.0" : options.host;
  if (::inet_pton(AF_INET, host.c_str(), parsed.data()) != 1 &&
      ::inet_pton(AF_INET6, host.c_str(), parsed.data()) != 1) {
    return InvalidArgumentError("'{}' is no IP address to listen on", options.host);
  }
  const auto threads = static_cast<size_t>(options.threads);
  server_.new_task_queue = [threads, this] { return new CountedQueue(threads, &waiting_); };
  // The library's default also sets SO_REUSEPORT: two servers of one port would share it silently.
  server_.set_socket_options([](socket_t socket) {
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  });
  server_.Get(".*", [this](const httplib::Request& request, httplib::Response& response) {
    const HttpReply reply = Answer(RequestOf(request));
    response.status = reply.status;
    response.set_header("Cache-Control", "no-store");
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_content(reply.body, reply.content_type.c_str());
  });
  // Refuses other methods before their body is read.
  server_.set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
    if (request.method == "GET" || request.method == "HEAD") {
      return httplib::Server::HandlerResponse::Unhandled;
    }
    response.status = 405;
    response.set_content("only GET is answered\n", "text/plain; charset=utf-8");
    return httplib::Server::HandlerResponse::Handled;
  });
  errno = 0;
  port_ = options.port == 0 ? server_.bind_to_any_port(host)
                            : (server_.bind_to_port(host, options.port) ? options.port : -1);
  if (port_ <= 0) {
    return UnavailableError(
        "cannot listen on {}:{}: {}", host, options.port,
        errno != 0 ? std::generic_category().message(errno) : "the address is refused");
  }
  loop_ = Thread("http", [this] { server_.listen_after_bind(); });
  // stop() has no effect before the loop runs.
  const Deadline deadline = After(std::chrono::seconds(5));
  while (!server_.is_running() && Now() < deadline) {
    ::poll(nullptr, 0, 1);
  }
  return server_.is_running() ? Status::Ok() : InternalError("the HTTP server did not start");
}

HttpReply HttpExposer::Answer(const PageRequest& request) const {
  try {
    if (request.path == "/metrics") {
      return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
              .body = ExpositionText(registry_)};
    }
    const auto handler = handlers_.find(request.path);
    return handler == handlers_.end() ? HttpReply{.status = 404, .body = "nothing here\n"}
                                      : handler->second(request);
  } catch (const std::exception& error) {  // Thrown by prometheus-cpp.
    return {.status = 500, .body = fmt::format("{}\n", error.what())};
  }
}

}  // namespace

std::string ExpositionText(const Registry& registry) {
  std::vector<Registry::Family> collected = registry.Collect();
  std::ranges::move(ProcessFigures(), std::back_inserter(collected));
  std::vector<prometheus::MetricFamily> families;
  for (const Registry::Family& family : collected) {
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
  auto exposer = std::make_unique<HttpExposer>(registry, std::move(handlers));
  HEDDLE_RETURN_IF_ERROR(exposer->Listen(options));
  return std::unique_ptr<Exposer>(std::move(exposer));
}

}  // namespace heddle::metrics
