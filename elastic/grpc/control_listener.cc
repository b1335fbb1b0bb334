#include "elastic/grpc/control_listener.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/system/socket_address.h"

namespace heddle::elastic {
namespace {

constexpr Duration kSpeakWithin = std::chrono::seconds(3);
constexpr size_t kMostSilent = 64;
// Descriptors that no connection takes: for files, pipes and workers that are there.
constexpr rlim_t kReserve = 32;
constexpr Duration kAcceptAgainAfter = std::chrono::milliseconds(100);
constexpr Duration kNoteEvery = std::chrono::seconds(60);

// Whether so many descriptors are in use that the next ones are needed for something else. The
// lowest free number is always the next one's.
bool IsScarce(int fd) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return false;
  }
  const rlim_t reserve = std::min(kReserve, limit.rlim_cur / 4);
  return static_cast<rlim_t>(fd) >= limit.rlim_cur - reserve;
}

}  // namespace

Result<std::unique_ptr<ControlListener>> ControlListener::Open(const std::string& address) {
  HEDDLE_ASSIGN_OR_RETURN(SocketAddress socket_address, ParseSocketAddress(address));
  UniqueFd listener(
      ::socket(socket_address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const int on = 1;
  // A predecessor's connections may linger; a living one's port is taken all the same.
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  auto* const raw = reinterpret_cast<sockaddr*>(&socket_address.storage);
  if (!listener.valid() || !wake.valid() ||
      ::bind(listener.get(), raw, socket_address.length) != 0 ||
      ::listen(listener.get(), SOMAXCONN) != 0 ||
      ::getsockname(listener.get(), raw, &socket_address.length) != 0) {
    return ResourceExhaustedError("cannot listen on {}: {}", address, std::strerror(errno));
  }
  return std::unique_ptr<ControlListener>(
      new ControlListener(std::move(listener), std::move(wake), PortOf(socket_address)));
}

ControlListener::~ControlListener() {
  Close();
}

void ControlListener::Start(Admit admit) {
  admit_ = std::move(admit);
  thread_ = Thread("listener", [this] { Run(); });
}

void ControlListener::Close() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
  thread_.Join();
}

void ControlListener::Run() {
  while (Wait()) {
    AdmitSpoken();
    CloseSilent();
    if (listener_ready_) {
      AcceptAll();
    }
  }
  silent_.clear();
}

// False: it is closed.
bool ControlListener::Wait() {
  std::vector<pollfd> polled = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  const bool accepts = Now() >= accept_again_;
  polled.push_back({.fd = accepts ? listener_.get() : -1, .events = POLLIN, .revents = 0});
  Time until = After(std::chrono::seconds(1));
  if (!accepts) {
    until = std::min(until, accept_again_);
  }
  for (const Silent& silent : silent_) {
    until = std::min(until, silent.until);
    polled.push_back({.fd = silent.fd.get(), .events = POLLIN, .revents = 0});
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Now()).count();
  const int ready =
      ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  const bool any = ready > 0;
  listener_ready_ = any && polled[1].revents != 0;
  spoken_.assign(silent_.size(), false);
  for (size_t i = 0; any && i < silent_.size(); ++i) {
    spoken_[i] = polled[i + 2].revents != 0;
  }
  return !any || polled[0].revents == 0;
}

void ControlListener::AdmitSpoken() {
  std::deque<Silent> still;
  for (size_t i = 0; i < silent_.size(); ++i) {
    if (!spoken_[i]) {
      still.push_back(std::move(silent_[i]));
      continue;
    }
    char byte = 0;
    if (::recv(silent_[i].fd.get(), &byte, 1, MSG_PEEK) == 1) {
      admit_(std::move(silent_[i].fd));
    }
  }
  silent_ = std::move(still);
}

void ControlListener::CloseSilent() {
  while (!silent_.empty() && (silent_.front().until <= Now() || silent_.size() > kMostSilent)) {
    silent_.pop_front();
  }
}

void ControlListener::AcceptAll() {
  // The rest has its turn after the next look at those that have spoken.
  for (size_t i = 0; i < kMostSilent; ++i) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = errno;
    if (!fd.valid()) {
      const bool nobody = error == EAGAIN || error == EWOULDBLOCK;
      if (nobody || error == EINTR || error == ECONNABORTED) {
        return;
      }
      NoteShortage(std::strerror(error));
      if (silent_.empty()) {
        accept_again_ = After(kAcceptAgainAfter);
        return;
      }
      silent_.pop_front();
      continue;
    }
    if (IsScarce(fd.get())) {
      NoteShortage("few descriptors are left");
      if (!silent_.empty()) {
        silent_.pop_front();
      }
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    silent_.push_back({.fd = std::move(fd), .until = After(kSpeakWithin)});
    CloseSilent();
  }
}

void ControlListener::NoteShortage(const char* what) {
  if (noted_ == Time() || Now() - noted_ >= kNoteEvery) {
    noted_ = Now();
    LogWarning(
        "connections are more than this process may have, those that say nothing are closed: {} "
        "(raise `ulimit -n`)",
        what);
  }
}

}  // namespace heddle::elastic
