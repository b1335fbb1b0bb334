#include "elastic/grpc/connection/control_listener.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
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

constexpr size_t kMaxSilent = 64;
// All workers of a large job may come at once.
constexpr size_t kMaxUnauthorised = 1024;
// Descriptors that no connection takes: for files, pipes and workers that are there.
constexpr rlim_t kReserve = 32;
constexpr Duration kAcceptAgainAfter = std::chrono::milliseconds(100);
constexpr Duration kNoteEvery = std::chrono::seconds(60);

// How many descriptors connections may take; nullopt without a limit.
std::optional<rlim_t> DescriptorsForConnections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::nullopt;
  }
  return limit.rlim_cur - std::min(kReserve, limit.rlim_cur / 4);
}

// True if `fd` is in the reserve that connections may not use. A new descriptor always gets the
// lowest free number, so its number tells how many are in use.
bool IsScarce(const UniqueFd& fd) {
  const std::optional<rlim_t> usable = DescriptorsForConnections();
  return !fd.valid() || (usable && static_cast<rlim_t>(fd.get()) >= *usable);
}

// The most unauthorised connections at a time; each takes two descriptors.
size_t MaxUnauthorised() {
  const std::optional<rlim_t> usable = DescriptorsForConnections();
  return usable ? std::clamp<size_t>(*usable / 4, 1, kMaxUnauthorised) : kMaxUnauthorised;
}

// The peer's address as gRPC writes it.
std::string PeerOf(const UniqueFd& fd) {
  SocketAddress peer{.length = sizeof(sockaddr_storage)};
  if (::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) {
    return "";
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  const auto* const v6 = reinterpret_cast<const sockaddr_in6*>(&peer.storage);
  if (peer.storage.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) == 0) {
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text.data(), text.size());
    return fmt::format("ipv6:[{}]:{}", text.data(), PortOf(peer));
  }
  const void* const v4 = peer.storage.ss_family == AF_INET6
                             ? static_cast<const void*>(&v6->sin6_addr.s6_addr[12])
                             : &reinterpret_cast<const sockaddr_in*>(&peer.storage)->sin_addr;
  ::inet_ntop(AF_INET, v4, text.data(), text.size());
  return fmt::format("ipv4:{}:{}", text.data(), PortOf(peer));
}

// gRPC writes the brackets of a URI as %5B and %5D.
std::string WithBrackets(std::string peer) {
  for (const auto& [code, bracket] : {std::pair("%5B", "["), std::pair("%5D", "]")}) {
    if (const size_t at = peer.find(code); at != std::string::npos) {
      peer.replace(at, 3, bracket);
    }
  }
  return peer;
}

}  // namespace

Result<std::unique_ptr<ControlListener>> ControlListener::Open(const std::string& address,
                                                               Duration named_within) {
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
    return ResourceExhaustedError("cannot listen on {}: {}", address,
                                  std::generic_category().message(errno));
  }
  return std::unique_ptr<ControlListener>(new ControlListener(
      std::move(listener), std::move(wake), PortOf(socket_address), named_within));
}

ControlListener::~ControlListener() {
  Close();
}

void ControlListener::Start(Admit admit) {
  admit_ = std::move(admit);
  thread_ = Thread("listener", [this] { Run(); });
}

void ControlListener::Close() {
  {
    const MutexLock lock(mutex_);
    closed_ = true;
  }
  Wake();
  thread_.Join();
}

void ControlListener::Name(const std::string& peer) {
  {
    const MutexLock lock(mutex_);
    named_.insert(WithBrackets(peer));
  }
  Wake();
}

void ControlListener::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void ControlListener::Run() {
  while (Wait()) {
    SiftUnauthorised();
    TakeSpoken();
    CloseSilent();
    HandSpoken();
    AcceptAll();
  }
  next_.Reset();
  silent_.clear();
  spoken_.clear();
  unauthorised_.clear();
}

// Polls until something is to be done. False after Close.
bool ControlListener::Wait() {
  std::vector<pollfd> polled = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}};
  const bool accepts = Now() >= again_;
  polled.push_back({.fd = accepts ? listener_.get() : -1, .events = POLLIN, .revents = 0});
  Time until = After(std::chrono::seconds(1));
  if (!accepts) {
    until = std::min(until, again_);
  }
  for (const Silent& silent : silent_) {
    until = std::min(until, silent.until);
    polled.push_back({.fd = silent.fd.get(), .events = POLLIN, .revents = 0});
  }
  for (const Unauthorised& connection : unauthorised_) {
    until = std::min(until, connection.until);
    polled.push_back({.fd = connection.fd.get(), .events = 0, .revents = 0});  // POLLHUP alone.
  }
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Now()).count();
  const int ready =
      ::poll(polled.data(), polled.size(), static_cast<int>(std::max<int64_t>(left, 0)));
  const bool any = ready > 0;
  listener_ready_ = any && polled[1].revents != 0;
  readable_.assign(silent_.size(), false);
  for (size_t i = 0; any && i < silent_.size(); ++i) {
    readable_[i] = polled[i + 2].revents != 0;
  }
  ended_.assign(unauthorised_.size(), false);
  for (size_t i = 0; any && i < unauthorised_.size(); ++i) {
    ended_[i] = polled[i + 2 + silent_.size()].revents != 0;
  }
  uint64_t woken = 0;
  [[maybe_unused]] const ssize_t read = ::read(wake_.get(), &woken, sizeof(woken));
  const MutexLock lock(mutex_);
  return !closed_;
}

// ---- Connections without an authorised call ----

void ControlListener::SiftUnauthorised() {
  std::set<std::string> named;
  {
    const MutexLock lock(mutex_);
    named.swap(named_);
  }
  std::deque<Unauthorised> still;
  for (size_t i = 0; i < unauthorised_.size(); ++i) {
    if (!ended_[i] && !named.contains(unauthorised_[i].peer)) {
      still.push_back(std::move(unauthorised_[i]));
    }
  }
  unauthorised_ = std::move(still);
  while (!unauthorised_.empty() && unauthorised_.front().until <= Now()) {
    EndOldestUnauthorised();
  }
}

// gRPC sees the connection's end, and closes its own descriptor.
void ControlListener::EndOldestUnauthorised() {
  ::shutdown(unauthorised_.front().fd.get(), SHUT_RDWR);
  unauthorised_.pop_front();
}

ControlListener::Room ControlListener::MakeRoom() {
  if (!silent_.empty()) {
    silent_.pop_front();
    return Room::kNow;
  }
  if (unauthorised_.empty()) {
    return Room::kNever;
  }
  EndOldestUnauthorised();
  again_ = After(kAcceptAgainAfter);
  return Room::kSoon;
}

ControlListener::Room ControlListener::Duplicate(const UniqueFd& fd, UniqueFd& duplicate) {
  Room room = Room::kNow;
  while (room == Room::kNow) {
    duplicate = UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));  // The lowest free number.
    if (!IsScarce(duplicate)) {
      return room;
    }
    NoteShortage("few descriptors are left");
    room = MakeRoom();
  }
  duplicate.Reset();
  return room;
}

void ControlListener::TakeSpoken() {
  std::deque<Silent> still;
  for (size_t i = 0; i < silent_.size(); ++i) {
    if (readable_[i]) {
      spoken_.push_back(std::move(silent_[i].fd));
    } else {
      still.push_back(std::move(silent_[i]));
    }
  }
  silent_ = std::move(still);
}

void ControlListener::HandSpoken() {
  while (!spoken_.empty() && Now() >= again_) {
    char byte = 0;
    if (::recv(spoken_.front().get(), &byte, 1, MSG_PEEK) != 1) {  // It has closed.
      spoken_.pop_front();
      continue;
    }
    while (unauthorised_.size() >= MaxUnauthorised()) {
      EndOldestUnauthorised();
    }
    UniqueFd second;
    const Room room = Duplicate(spoken_.front(), second);
    if (room == Room::kSoon) {
      return;
    }
    UniqueFd connection = std::move(spoken_.front());
    spoken_.pop_front();
    if (room == Room::kNow) {  // Else it is closed: all others are authorised and stay.
      unauthorised_.push_back(
          {.fd = std::move(second), .peer = PeerOf(connection), .until = After(named_within_)});
      admit_(std::move(connection), byte);
    }
  }
}

void ControlListener::CloseSilent() {
  while (!silent_.empty() && (silent_.front().until <= Now() || silent_.size() > kMaxSilent)) {
    silent_.pop_front();
  }
}

void ControlListener::AcceptAll() {
  // Accepts at most kMaxSilent at a time: the rest is accepted after the next poll of the silent
  // ones.
  const bool any = listener_ready_ || next_.valid();
  for (size_t i = 0; any && i < kMaxSilent && Now() >= again_; ++i) {
    UniqueFd fd = std::move(next_);
    if (!fd.valid()) {
      fd = UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    }
    const int error = errno;
    if (!fd.valid()) {
      const bool nobody = error == EAGAIN || error == EWOULDBLOCK;
      if (nobody || error == EINTR || error == ECONNABORTED) {
        return;
      }
      NoteShortage(std::generic_category().message(error));
      if (MakeRoom() == Room::kNever) {
        again_ = After(kAcceptAgainAfter);
      }
      continue;
    }
    if (IsScarce(fd)) {
      UniqueFd lower;
      const Room room = Duplicate(fd, lower);
      if (room == Room::kSoon) {
        next_ = std::move(fd);
      }
      if (room != Room::kNow) {  // Never: all others are authorised and stay; this one is closed.
        continue;
      }
      fd = std::move(lower);
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    silent_.push_back({.fd = std::move(fd), .until = After(kSpeakWithin)});
    CloseSilent();
  }
}

void ControlListener::NoteShortage(std::string_view what) {
  if (noted_ == Time() || Now() - noted_ >= kNoteEvery) {
    noted_ = Now();
    LogWarning(
        "connections are more than this process may have, those that were not let in are closed: "
        "{} "
        "(raise `ulimit -n`)",
        what);
  }
}

}  // namespace heddle::elastic
