#include "elastic/grpc/coordinator_session.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include <grpcpp/grpcpp.h>

#include "base/mutex.h"
#include "base/random.h"
#include "base/thread.h"
#include "elastic/grpc/channel.h"
#include "elastic/grpc/control.grpc.pb.h"

namespace heddle::elastic {
namespace {

// An attempt that has not reached a coordinator by then is given up.
constexpr Duration kConnectTimeout = std::chrono::seconds(3);
constexpr Duration kLongestWait = std::chrono::seconds(1);

// For streams. The first one lives as long as the process: with the last channel gRPC (1.51) ends
// the threads that call our reactors, and a stream's channel goes when OnDone returns, on one of
// these very threads, which aborts.
std::shared_ptr<grpc::Channel> MakeStreamChannel(const std::string& coordinator) {
  std::shared_ptr<grpc::Channel> channel = MakeChannel(coordinator);
  [[maybe_unused]] static const auto* const kKept = new std::shared_ptr<grpc::Channel>(channel);
  return channel;
}

struct StreamIsUp {};
struct StreamEnded {
  std::string reason;
};
using StreamEvent = std::variant<StreamIsUp, StreamEnded, wire::ToWorker>;

// What the streams of a session post and its thread takes.
struct Inbox {
  Mutex mutex;
  CondVar wake;
  std::deque<StreamEvent> events HEDDLE_GUARDED_BY(mutex);
  bool closed HEDDLE_GUARDED_BY(mutex) = false;

  void Post(StreamEvent event) {
    const MutexLock lock(mutex);
    events.push_back(std::move(event));
    wake.NotifyAll();
  }
};

// One attempt. Kept alive by itself until gRPC is done with it.
class Stream : public grpc::ClientBidiReactor<wire::FromWorker, wire::ToWorker> {
 public:
  Stream(const std::string& coordinator, std::shared_ptr<Inbox> inbox)
      : inbox_(std::move(inbox)),
        stub_(wire::Control::NewStub(MakeStreamChannel(coordinator))) {}

  void Begin(std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    stub_->async()->Session(&context_, this);
    // Held while the owner may write: without it the call could end before an operation is started.
    AddHold();
    StartRead(&in_);
    StartCall();
  }

  void Send(const wire::FromWorker& message) {
    const MutexLock lock(mutex_);
    if (ended_ || closing_) {
      return;
    }
    if (out_.size() >= kMaxQueuedMessages) {
      context_.TryCancel();
      return;
    }
    out_.push_back(message);
    if (!writing_) {
      WriteNext();
    }
  }

  void ReadMore() {
    const MutexLock lock(mutex_);
    if (!ended_) {
      StartRead(&in_);
    }
  }

  // Ends the stream once what is queued is written.
  void EndWrites() {
    const MutexLock lock(mutex_);
    closing_ = true;
    if (!writing_ && !ended_) {
      HalfClose();
    }
  }

  void Cancel() { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) {
      inbox_->Post(StreamIsUp());
    }
  }
  void OnReadDone(bool ok) override {
    if (ok) {
      inbox_->Post(in_);
      return;
    }
    const MutexLock lock(mutex_);
    ended_ = true;
    if (!writing_) {
      Release();
    }
  }
  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    out_.pop_front();
    if (!ok) {
      ended_ = true;
    }
    if (ended_) {
      Release();
    } else if (!out_.empty()) {
      WriteNext();
    } else if (closing_) {
      HalfClose();
    }
  }
  void OnDone(const grpc::Status& status) override {
    inbox_->Post(StreamEnded{status.ok() ? "the coordinator closed the connection"
                                         : status.error_message()});
    self_.reset();
  }

 private:
  void WriteNext() HEDDLE_REQUIRES(mutex_) {
    writing_ = true;
    StartWrite(&out_.front());
  }
  void HalfClose() HEDDLE_REQUIRES(mutex_) {
    if (!half_closed_) {
      half_closed_ = true;
      StartWritesDone();
    }
  }
  void Release() HEDDLE_REQUIRES(mutex_) {
    if (!released_) {
      released_ = true;
      RemoveHold();
    }
  }

  const std::shared_ptr<Inbox> inbox_;
  const std::unique_ptr<wire::Control::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Stream> self_;
  wire::ToWorker in_;

  Mutex mutex_;
  std::deque<wire::FromWorker> out_ HEDDLE_GUARDED_BY(mutex_);
  bool writing_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool closing_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool half_closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool ended_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool released_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace

class CoordinatorSession::Impl {
 public:
  explicit Impl(SessionOptions options)
      : options_(std::move(options)),
        random_(options_.seed),
        inbox_(std::make_shared<Inbox>()) {
    thread_ = Thread("session", [this] { Run(); });
  }

  void Send(const wire::FromWorker& message) {
    std::shared_ptr<Stream> stream;
    {
      const MutexLock lock(inbox_->mutex);
      stream = up_ ? stream_ : nullptr;
    }
    if (stream != nullptr) {
      stream->Send(message);
    }
  }

  void Close(Deadline deadline) {
    std::shared_ptr<Stream> stream;
    {
      const MutexLock lock(inbox_->mutex);
      inbox_->closed = true;
      inbox_->wake.NotifyAll();
      stream = stream_;
    }
    if (stream != nullptr) {
      stream->EndWrites();
      const MutexLock lock(inbox_->mutex);
      while (stream_ != nullptr && Now() < deadline) {
        inbox_->wake.WaitUntil(inbox_->mutex, deadline);
      }
    }
    if (stream != nullptr) {
      stream->Cancel();
    }
    thread_.Join();
  }

 private:
  void Run() {
    Duration backoff = options_.backoff;
    while (!Closed()) {
      if (RunStream()) {
        backoff = options_.backoff;
      }
      const double jitter = 0.5 + 0.5 * random_.Uniform();
      const Time until = Now() + FromSeconds(Seconds(backoff) * jitter);
      backoff = std::min(2 * backoff, options_.max_backoff);
      const MutexLock lock(inbox_->mutex);
      while (!inbox_->closed && Now() < until) {
        inbox_->wake.WaitUntil(inbox_->mutex, until);
      }
    }
  }

  bool Closed() {
    const MutexLock lock(inbox_->mutex);
    return inbox_->closed;
  }

  // One stream from its beginning to its end; whether it came up.
  bool RunStream() {
    const auto stream = std::make_shared<Stream>(options_.coordinator, inbox_);
    {
      const MutexLock lock(inbox_->mutex);
      if (inbox_->closed) {
        return false;
      }
      stream_ = stream;
      up_ = false;
    }
    stream->Begin(stream);
    const Deadline connected_by = After(kConnectTimeout);
    bool came_up = false;
    while (true) {
      std::optional<StreamEvent> event;
      {
        const MutexLock lock(inbox_->mutex);
        const Time until =
            came_up ? After(kLongestWait) : std::min(connected_by, After(kLongestWait));
        while (inbox_->events.empty() && Now() < until) {
          inbox_->wake.WaitUntil(inbox_->mutex, until);
        }
        if (!inbox_->events.empty()) {
          event = std::move(inbox_->events.front());
          inbox_->events.pop_front();
        }
        if (event && std::holds_alternative<StreamIsUp>(*event)) {
          up_ = true;
        }
      }
      if (!event) {
        if (!came_up && Now() >= connected_by) {
          stream->Cancel();
        }
        continue;
      }
      if (std::holds_alternative<StreamIsUp>(*event)) {
        came_up = true;
        options_.up();
      } else if (const auto* message = std::get_if<wire::ToWorker>(&*event)) {
        options_.received(*message);
        stream->ReadMore();
      } else {
        {
          const MutexLock lock(inbox_->mutex);
          stream_ = nullptr;
          up_ = false;
          inbox_->wake.NotifyAll();
        }
        options_.down(std::get<StreamEnded>(*event).reason);
        return came_up;
      }
    }
  }

  const SessionOptions options_;
  Random random_;  // Session thread only.
  const std::shared_ptr<Inbox> inbox_;
  std::shared_ptr<Stream> stream_;  // Guarded by inbox_->mutex.
  bool up_ = false;                 // Guarded by inbox_->mutex.
  Thread thread_;
};

CoordinatorSession::CoordinatorSession(SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
CoordinatorSession::~CoordinatorSession() {
  Close(Now());
}
void CoordinatorSession::Send(const wire::FromWorker& message) {
  impl_->Send(message);
}
void CoordinatorSession::Close(Deadline deadline) {
  impl_->Close(deadline);
}

}  // namespace heddle::elastic
