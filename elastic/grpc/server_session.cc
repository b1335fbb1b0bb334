#include "elastic/grpc/server_session.h"

#include <deque>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "base/mutex.h"
#include "elastic/grpc/connection/channel.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {
namespace {

// Largest Hello in bytes; it has names and addresses only.
constexpr size_t kMaxHelloBytes = 64 << 10;
constexpr size_t kMaxUnnamed = 1024;  // All workers of a large job may come at once.

// One worker's stream. The next message is read only once the loop has handled the one before, so
// that a flood of messages is held back by flow control. Owned by the map of sessions, and by
// itself until gRPC calls OnDone.
class Stream : public ServerSession,
               public grpc::ServerBidiReactor<wire::FromWorker, wire::ToWorker> {
 public:
  Stream(ConnectionId id,
         grpc::CallbackServerContext* context,
         ServerSessions::OnMessage on_message,
         ServerSessions::OnClosed on_closed)
      : id_(id),
        context_(context),
        on_message_(std::move(on_message)),
        on_closed_(std::move(on_closed)) {}

  void Begin(std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    StartSendInitialMetadata();
    StartRead(&in_);
  }

  void ReadMore() override {
    const MutexLock lock(mutex_);
    if (!finished_ && !read_ended_) {
      StartRead(&in_);
    }
  }

  void Send(const wire::ToWorker& message) override {
    const MutexLock lock(mutex_);
    if (finished_ || closing_) {
      return;
    }
    if (out_.size() >= kMaxQueuedMessages) {
      context_->TryCancel();
      return;
    }
    out_.push_back(message);
    if (!writing_) {
      WriteNext();
    }
  }

  void Cancel() override { context_->TryCancel(); }

  void Refuse(const Status& status) override {
    {
      const MutexLock lock(mutex_);
      end_ = ToGrpc(status);
    }
    EndReads();
  }

  void Close() override {
    const MutexLock lock(mutex_);
    closing_ = true;
    if (!writing_) {
      FinishOnce();
    }
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      on_message_(id_, std::move(in_));
      return;
    }
    EndReads();
  }

  // The only sign of the stream's end while no read is pending.
  void OnCancel() override { EndReads(); }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    out_.pop_front();
    if (!ok) {
      out_.clear();
      closing_ = true;
    }
    if (!out_.empty()) {
      WriteNext();
    } else if (closing_) {
      FinishOnce();
    }
  }

  void OnDone() override {
    on_closed_(id_);
    self_.reset();
  }

 private:
  void EndReads() {
    const MutexLock lock(mutex_);
    read_ended_ = true;
    closing_ = true;
    out_.resize(writing_ ? 1 : 0);
    if (!writing_) {
      FinishOnce();
    }
  }
  void WriteNext() HEDDLE_REQUIRES(mutex_) {
    writing_ = true;
    StartWrite(&out_.front());
  }
  void FinishOnce() HEDDLE_REQUIRES(mutex_) {
    if (!finished_) {
      finished_ = true;
      Finish(end_);
    }
  }

  const ConnectionId id_;
  grpc::CallbackServerContext* const context_;  // Valid until OnDone.
  const ServerSessions::OnMessage on_message_;
  const ServerSessions::OnClosed on_closed_;
  std::shared_ptr<Stream> self_;
  wire::FromWorker in_;

  Mutex mutex_;
  std::deque<wire::ToWorker> out_ HEDDLE_GUARDED_BY(mutex_);  // A deque: its elements do not move.
  bool writing_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool closing_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool read_ended_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool finished_ HEDDLE_GUARDED_BY(mutex_) = false;
  grpc::Status end_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace

ServerSessions::Reactor* ServerSessions::Open(grpc::CallbackServerContext* context,
                                              const std::string& worker,
                                              OnMessage on_message,
                                              OnClosed on_closed) {
  std::shared_ptr<Stream> stream;
  bool too_many = false;
  {
    const MutexLock lock(mutex_);
    const ConnectionId id = next_++;
    too_many = unnamed_.size() >= kMaxUnnamed;
    unnamed_[id] = After(kHelloWithin);
    stream = std::make_shared<Stream>(
        id, context,
        [this, heard = std::move(on_message)](ConnectionId from, wire::FromWorker message) {
          if (IsNamed(from, message)) {
            heard(from, std::move(message));
          }
        },
        [this, closed = std::move(on_closed)](ConnectionId ended) {
          Erase(ended);
          closed(ended);
        });
    sessions_[id] = stream;
    workers_[id] = worker;
  }
  stream->Begin(stream);
  if (too_many) {
    stream->Cancel();
  }
  return stream.get();
}

bool ServerSessions::IsNamed(ConnectionId id, const wire::FromWorker& message) {
  const bool sound = !message.has_hello() || message.ByteSizeLong() <= kMaxHelloBytes;
  std::shared_ptr<ServerSession> session;
  {
    const MutexLock lock(mutex_);
    if (sound && (message.has_hello() || !unnamed_.contains(id))) {
      unnamed_.erase(id);
      return true;
    }
    session = sessions_[id];
  }
  session->Cancel();
  return false;
}

void ServerSessions::CancelUnnamed(Time now) {
  std::vector<std::shared_ptr<ServerSession>> late;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, until] : unnamed_) {
      if (until <= now) {
        late.push_back(sessions_.at(id));
      }
    }
  }
  CancelAll(late);
}

void ServerSessions::CancelOf(const std::string& worker) {
  std::vector<std::shared_ptr<ServerSession>> theirs;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, name] : workers_) {
      if (name == worker) {
        theirs.push_back(sessions_.at(id));
      }
    }
  }
  CancelAll(theirs);
}

void ServerSessions::CancelAll(const std::vector<std::shared_ptr<ServerSession>>& sessions) {
  for (const auto& session : sessions) {
    session->Cancel();
  }
}

std::shared_ptr<ServerSession> ServerSessions::Find(ConnectionId id) const {
  const MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

bool ServerSessions::WaitUntilNone(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (!sessions_.empty() && Now() < deadline) {
    changed_.WaitUntil(mutex_, deadline);
  }
  return sessions_.empty();
}

void ServerSessions::Erase(ConnectionId id) {
  const MutexLock lock(mutex_);
  sessions_.erase(id);
  workers_.erase(id);
  unnamed_.erase(id);
  changed_.NotifyAll();
}

}  // namespace heddle::elastic
