#include "elastic/grpc/coordinator_session.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/thread.h"
#include "elastic/grpc/session_stream.h"
#include "elastic/identity/credentials.h"
#include "elastic/protocol/coordinator_route.h"
#include "elastic/protocol/service_limits.h"

namespace heddle::elastic {
namespace {

constexpr Duration kLongestWait = std::chrono::seconds(1);
constexpr Duration kNoteEvery = std::chrono::seconds(60);

bool IsDenied(const Status& status) {
  return status.code() == StatusCode::kUnauthenticated ||
         status.code() == StatusCode::kPermissionDenied;
}

}  // namespace

class CoordinatorSession::Impl {
 public:
  explicit Impl(SessionOptions options)
      : options_(std::move(options)),
        route_(options_.coordinator),
        random_(options_.seed),
        inbox_(std::make_shared<SessionInbox>()) {
    thread_ = Thread("session", [this] { Run(); });
  }

  void Send(const wire::FromWorker& message) {
    std::shared_ptr<SessionStream> stream;
    {
      const MutexLock lock(inbox_->mutex);
      stream = up_ ? stream_ : nullptr;
    }
    if (stream != nullptr) {
      stream->Send(message);
    }
  }

  void Refresh() {
    const MutexLock lock(inbox_->mutex);
    refresh_ = true;
    inbox_->wake.NotifyAll();
  }

  void Close(Deadline deadline) {
    std::shared_ptr<SessionStream> stream;
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
    const MutexLock lock(join_);  // Another call may close it at the same time.
    thread_.Join();
  }

 private:
  void Run() {
    Duration backoff = options_.backoff;
    while (!Closed() && !refused_) {
      if (RunStream()) {
        backoff = options_.backoff;
      }
      if (route_.is_named()) {
        continue;
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

  // Runs one stream from its beginning to its end, and those that take over from it. Returns true
  // if a stream came up and its coordinator was not a standby.
  bool RunStream() {
    const Result<Credentials> credentials = ReadCredentials(options_.certificates);
    if (!credentials.ok()) {
      SayTrouble(credentials.status().message());
      EndStream(credentials.status());
      return false;
    }
    trouble_.clear();
    int64_t number = ++streams_;
    SetStream(BeginStream(number, route_.current(), *credentials, inbox_));
    const Deadline connected_by = After(kConnectTimeout);
    bool came_up = false;
    while (true) {
      const std::optional<PostedEvent> posted =
          Take(came_up ? After(kLongestWait) : std::min(connected_by, After(kLongestWait)));
      if (came_up) {
        BeginNext();
      }
      if (!posted) {
        if (!came_up && !heard_) {
          SayAway(UnavailableError("it does not answer"));
        }
        if (!came_up && Now() >= connected_by) {
          stream_->Cancel();
        }
      } else if (next_ != nullptr && posted->from == next_number_) {
        if (TakeOver(posted->event)) {
          number = next_number_;
        }
      } else if (posted->from != number) {
        continue;  // From a stream that was replaced.
      } else if (std::holds_alternative<StreamIsUp>(posted->event)) {
        came_up = true;
        SetUp();
        options_.up();
      } else if (const auto* message = std::get_if<wire::ToWorker>(&posted->event)) {
        heard_ = true;
        said_away_ = Time();
        DropOther(before_);  // The coordinator knows this one.
        options_.received(*message);
        stream_->ReadMore();
      } else {
        DropOther(before_);
        DropOther(next_);
        const auto& ended = std::get<StreamEnded>(posted->event);
        route_.MoveOn(ended.leader);
        if (!came_up) {
          SayAway(ended.status);
        }
        EndStream(ended.status);
        return came_up && !ended.stands_by;
      }
    }
  }

  std::optional<PostedEvent> Take(Time until) {
    const MutexLock lock(inbox_->mutex);
    while (inbox_->events.empty() && !refresh_ && Now() < until) {
      inbox_->wake.WaitUntil(inbox_->mutex, until);
    }
    if (inbox_->events.empty()) {
      return std::nullopt;
    }
    PostedEvent posted = std::move(inbox_->events.front());
    inbox_->events.pop_front();
    return posted;
  }

  void SetStream(std::shared_ptr<SessionStream> stream) {
    const MutexLock lock(inbox_->mutex);
    stream_ = std::move(stream);
    up_ = false;
    refresh_ = false;  // This stream was begun with what is in the folder now.
    if (inbox_->closed) {
      stream_->Cancel();
    }
  }

  void SetUp() {
    const MutexLock lock(inbox_->mutex);
    up_ = true;
  }

  static void DropOther(std::shared_ptr<SessionStream>& stream) {
    if (stream != nullptr) {
      stream->Cancel();
      stream.reset();
    }
  }

  // After Refresh, begins a stream with the new certificate beside the one that is up, so that the
  // coordinator hears this worker without a gap.
  void BeginNext() {
    if (next_ != nullptr && Now() >= next_by_) {
      next_->Cancel();
    }
    {
      const MutexLock lock(inbox_->mutex);
      if (!std::exchange(refresh_, false) || next_ != nullptr || inbox_->closed) {
        return;
      }
    }
    const Result<Credentials> credentials = ReadCredentials(options_.certificates);
    if (!credentials.ok()) {
      return SayTrouble(credentials.status().message());
    }
    next_number_ = ++streams_;
    next_by_ = After(kConnectTimeout);
    next_ = BeginStream(next_number_, route_.current(), *credentials, inbox_);
  }

  // Whether the next stream has taken the place of the one that is up.
  bool TakeOver(const StreamEvent& event) {
    if (std::holds_alternative<StreamEnded>(event)) {
      next_.reset();  // The stream that is up stays, with its certificate.
    }
    if (!std::holds_alternative<StreamIsUp>(event)) {
      return false;
    }
    DropOther(before_);
    {
      const MutexLock lock(inbox_->mutex);
      if (inbox_->closed) {
        return false;  // Close ends the stream that it has found.
      }
      before_ = std::exchange(stream_, std::exchange(next_, nullptr));
    }
    options_.down("another certificate");
    options_.up();
    return true;
  }

  // Logs an error of the certificate's folder once, although the folder is read every few seconds.
  void SayTrouble(const std::string& trouble) {
    if (trouble_ != trouble) {
      trouble_ = trouble;
      LogWarning("{}", trouble);
    }
  }

  // Logs once a minute that the coordinator is not reached. Each attempt resolves its name again.
  void SayAway(const Status& status) {
    const bool ends = IsDenied(status) && !heard_;  // EndStream reports this.
    if (ends || Now() - said_away_ < kNoteEvery) {
      return;
    }
    said_away_ = Now();
    if (!heard_) {
      LogWarning("waiting for the coordinator {}: {}", options_.coordinator, status.message());
    } else {
      LogWarning(
          "the coordinator {} is not reached: {}; what trains goes on, and it is tried again at "
          "whatever its name leads to then",
          options_.coordinator, status.message());
    }
  }

  void EndStream(const Status& status) {
    {
      const MutexLock lock(inbox_->mutex);
      stream_ = nullptr;
      up_ = false;
      inbox_->wake.NotifyAll();
    }
    if (IsDenied(status)) {
      wire::ToWorker refusal;
      refusal.mutable_refused()->set_reason(status.message());
      refusal.mutable_refused()->set_permanent(!heard_);
      refused_ = !heard_;
      options_.received(refusal);
    }
    options_.down(status.message());
  }

  const SessionOptions options_;
  // Session thread only, down to next_by_.
  CoordinatorRoute route_;
  Random random_;
  bool heard_ = false;    // A coordinator has sent a message.
  bool refused_ = false;  // Refused for good before any message.
  Time said_away_;        // When it was last logged that the coordinator is not reached.
  std::string trouble_;   // The last logged error of the certificate's folder.
  int64_t streams_ = 0;   // Number of streams begun.
  // The replaced stream, kept until the coordinator has sent a message on the new one.
  std::shared_ptr<SessionStream> before_;
  std::shared_ptr<SessionStream> next_;  // The stream that is to replace stream_.
  int64_t next_number_ = 0;              // Number of next_.
  Time next_by_;                         // When next_ is given up.
  const std::shared_ptr<SessionInbox> inbox_;
  // Guarded by inbox_->mutex; set by the session thread alone.
  std::shared_ptr<SessionStream> stream_;
  bool up_ = false;
  bool refresh_ = false;  // Refresh was called.
  Mutex join_;
  Thread thread_;  // Joined under join_.
};

CoordinatorSession::CoordinatorSession(SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
CoordinatorSession::~CoordinatorSession() {
  Close(Now());
}
void CoordinatorSession::Send(const wire::FromWorker& message) {
  impl_->Send(message);
}
void CoordinatorSession::Refresh() {
  impl_->Refresh();
}
void CoordinatorSession::Close(Deadline deadline) {
  impl_->Close(deadline);
}

}  // namespace heddle::elastic
