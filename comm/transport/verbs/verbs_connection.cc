#include "comm/transport/verbs/verbs_connection.h"

#include <sys/epoll.h>

#include "comm/transport/ip_socket.h"

namespace heddle::comm {

ConnectionInfo VerbsConnection::info() {
  return {.transport = "verbs",
          .port = stream_->queue_pair().device()->port().name(),
          .placement = &placement_};
}

Result<size_t> VerbsConnection::Write(std::span<const iovec> parts) {
  placement_.StopWaiting();
  return stream_->Write(parts);
}

std::array<Connection::Watch, 2> VerbsConnection::Watches(bool want_read, bool want_write) {
  return {Watch{.fd = stream_->queue_pair().completion_fd(),
                .events = want_read || want_write ? EPOLLIN : 0U},
          Watch{.fd = stream_->queue_pair().watched_fd(), .events = EPOLLIN}};
}

Connection::Watch VerbsConnection::SleepOn(bool /*want_write*/) const {
  return {.fd = stream_->queue_pair().completion_fd(), .events = EPOLLIN};
}

void VerbsConnection::OnReady(int fd, uint32_t /*events*/) {
  if (fd == stream_->queue_pair().completion_fd()) {
    stream_->queue_pair().TakeEvent();
  } else if (stream_->queue_pair().TakeNews()) {
    stream_->HangUp();
  }
}

bool VerbsConnection::PrepareToWait(bool want_read, bool want_write) {
  if (!want_read && !want_write) {
    return true;
  }
  stream_->Await().IgnoreError("it is kept");
  const bool over = stream_->over();
  const bool readable = want_read && (stream_->readable() || over);
  const bool room = placement_.waits() ? stream_->requests().PlaceRoom() > 0 : stream_->writable();
  return !readable && !placement_.has_news() && !(want_write && (over || room));
}

void VerbsConnection::Close(Ending how) {
  if (how == Ending::kWriting) {
    stream_->End();
    return;
  }
  stream_->queue_pair().Stop(CancelledError("the connection was reset"));
  CloseByReset(socket_);
}

}  // namespace heddle::comm
