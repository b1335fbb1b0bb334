#include "comm/transport/shm/descriptor_message.h"

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include <sys/socket.h>

#include "base/check.h"

namespace heddle::comm {

namespace {

/// Why descriptors could not be handed over. A full queue says nothing about the peer's life.
Status HandOverError(int error) {
  const std::string text = ErrnoError(error, "handing over a descriptor").message();
  switch (error) {
    case ETOOMANYREFS:
      return ResourceExhaustedError(
          "{}; the descriptors of this user that are on their way count against a limit (raise "
          "`ulimit -n`)",
          text);
    case EAGAIN:
    case ENOBUFS:
      return ResourceExhaustedError(
          "{}; the peer has not taken those before (raise `ulimit -n` and net.core.wmem_default)",
          text);
    default:
      return ErrnoError(error, "handing over a descriptor");
  }
}

/// A message of one part, with room for `descriptors`.
class Message {
 public:
  Message(std::byte* data, size_t bytes, size_t descriptors)
      : part_{.iov_base = data, .iov_len = bytes} {
    HEDDLE_CHECK(descriptors <= kMaxDescriptors, "{} descriptors", descriptors);
    header_.msg_iov = &part_;
    header_.msg_iovlen = 1;
    header_.msg_control = control_;
    header_.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
  }
  Message(const Message&) = delete;
  Message& operator=(const Message&) = delete;
  msghdr& header() { return header_; }

 private:
  alignas(cmsghdr) char control_[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  iovec part_;
  msghdr header_{};
};

/// Owns whatever came, so that nothing leaks from a message of another form. Returns how many.
size_t TakeDescriptors(msghdr& message, std::span<UniqueFd> descriptors) {
  size_t count = 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    for (size_t at = 0; CMSG_LEN((at + 1) * sizeof(int)) <= header->cmsg_len; ++at, ++count) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at * sizeof(int), sizeof(fd));
      UniqueFd owned(fd);
      if (count < descriptors.size()) {
        descriptors[count] = std::move(owned);
      }
    }
  }
  return count;
}

}  // namespace

Status SendDescriptors(int socket,
                       std::span<const std::byte> bytes,
                       std::span<const int> descriptors) {
  Message message(const_cast<std::byte*>(bytes.data()), bytes.size(), descriptors.size());
  cmsghdr* header = CMSG_FIRSTHDR(&message.header());
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  const ssize_t sent = ::sendmsg(socket, &message.header(), MSG_DONTWAIT | MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size()) ? Status::Ok()
                                                    : HandOverError(sent < 0 ? errno : ENOBUFS);
}

Result<bool> ReceiveDescriptors(int socket,
                                std::span<std::byte> bytes,
                                std::span<UniqueFd> descriptors) {
  Message message(bytes.data(), bytes.size(), descriptors.size());
  const ssize_t got = ::recvmsg(socket, &message.header(), MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return false;
  }
  if (got < 0) {
    return ErrnoError(errno, "recvmsg");
  }
  if (got == 0) {
    return UnavailableError("the peer closed the connection");
  }
  const size_t count = TakeDescriptors(message.header(), descriptors);
  if ((message.header().msg_flags & MSG_CTRUNC) != 0) {
    return ResourceExhaustedError("no descriptors are left (raise ulimit -n)");
  }
  if (got != static_cast<ssize_t>(bytes.size()) || count != descriptors.size()) {
    return DataLossError("{} bytes with {} descriptors where {} with {} are expected", got, count,
                         bytes.size(), descriptors.size());
  }
  return true;
}

}  // namespace heddle::comm
