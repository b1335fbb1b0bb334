#include "elastic/service/listen_check.h"

#include <cerrno>
#include <system_error>

#include <sys/socket.h>

#include "base/system/socket_address.h"
#include "base/system/unique_fd.h"

namespace heddle::elastic {

Status CheckCanListen(const std::string& what, const std::string& address) {
  const Result<SocketAddress> parsed = ParseSocketAddress(address);
  if (!parsed.ok()) {
    return InvalidArgumentError("{}: {}", what, parsed.status().message());
  }
  const UniqueFd socket(::socket(parsed->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (!socket.valid() ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&parsed->storage), parsed->length) !=
          0 ||
      ::listen(socket.get(), 1) != 0) {
    return InvalidArgumentError("{}: cannot listen on {}: {}", what, address,
                                std::generic_category().message(errno));
  }
  return Status::Ok();
}

Status CheckIsGuarded(const std::string& what,
                      const std::string& address,
                      bool guarded,
                      const std::string& remedy) {
  HEDDLE_ASSIGN_OR_RETURN(const SocketAddress parsed, ParseSocketAddress(address));
  if (guarded || IsLoopback(parsed)) {
    return Status::Ok();
  }
  return InvalidArgumentError(
      "{}: other machines reach {}, and whoever does may submit jobs, take their secret and end "
      "them: {}, or say --insecure where the network keeps strangers out",
      what, address, remedy);
}

}  // namespace heddle::elastic
