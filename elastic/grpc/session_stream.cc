#include "elastic/grpc/session_stream.h"

#include <utility>

#include <grpcpp/grpcpp.h>

#include "elastic/grpc/connection/channel.h"
#include "elastic/grpc/control.grpc.pb.h"
#include "elastic/protocol/coordinator_route.h"

namespace heddle::elastic {
namespace {

// Makes a stream's channel. The first one is kept for the life of the process: with its last
// channel gRPC (1.51) joins the threads that call our reactors, and a stream's channel is destroyed
// after OnDone, on one of these threads, which would abort.
std::shared_ptr<grpc::Channel> MakeStreamChannel(const std::string& coordinator,
                                                 const Credentials& credentials) {
  std::shared_ptr<grpc::Channel> channel = MakeChannel(coordinator, credentials);
  [[maybe_unused]] static const auto* const kKept = new std::shared_ptr<grpc::Channel>(channel);
  return channel;
}

// One stream. It holds itself until gRPC calls OnDone.
class Stream : public SessionStream,
               public grpc::ClientBidiReactor<wire::FromWorker, wire::ToWorker> {
 public:
  Stream(int64_t number,
         const std::string& coordinator,
         const Credentials& credentials,
         std::shared_ptr<SessionInbox> inbox)
      : number_(number),
        inbox_(std::move(inbox)),
        stub_(wire::Control::NewStub(MakeStreamChannel(coordinator, credentials))) {}

  void Begin(std::shared_ptr<Stream> self) {
    self_ = std::move(self);
    stub_->async()->Session(&context_, this);
    // A hold while the owner may write: without it the call could end before a write is started.
    AddHold();
    StartRead(&in_);
    StartCall();
  }

  void Send(const wire::FromWorker& message) override {
    const MutexLock lock(mutex_);
    if (ended_ || broken_ || closing_) {
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

  void ReadMore() override {
    const MutexLock lock(mutex_);
    if (!ended_) {
      StartRead(&in_);
    }
  }

  void EndWrites() override {
    const MutexLock lock(mutex_);
    closing_ = true;
    if (!writing_ && !ended_ && !broken_) {
      HalfClose();
    }
  }

  void Cancel() override { context_.TryCancel(); }

  void OnReadInitialMetadataDone(bool ok) override {
    if (ok) {
      inbox_->Post(number_, StreamIsUp());
    }
  }
  void OnReadDone(bool ok) override {
    if (ok) {
      inbox_->Post(number_, in_);
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
      // Reads go on: gRPC does not report the call's end before all messages are read.
      broken_ = true;
      out_.clear();
    }
    if (ended_) {
      Release();
    } else if (!out_.empty()) {
      WriteNext();
    } else if (closing_ && !broken_) {
      HalfClose();
    }
  }
  void OnDone(const grpc::Status& status) override {
    StreamEnded ended{.status = status.ok()
                                    ? UnavailableError("the coordinator closed the connection")
                                    : FromGrpc(status)};
    const auto& metadata = context_.GetServerTrailingMetadata();
    if (const auto leader = metadata.find(kLeaderKey); leader != metadata.end()) {
      ended.stands_by = true;
      ended.leader.assign(leader->second.data(), leader->second.size());
    }
    inbox_->Post(number_, std::move(ended));
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

  const int64_t number_;
  const std::shared_ptr<SessionInbox> inbox_;
  const std::unique_ptr<wire::Control::Stub> stub_;
  grpc::ClientContext context_;
  std::shared_ptr<Stream> self_;
  wire::ToWorker in_;

  Mutex mutex_;
  std::deque<wire::FromWorker> out_ HEDDLE_GUARDED_BY(mutex_);
  bool writing_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool closing_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool half_closed_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool broken_ HEDDLE_GUARDED_BY(mutex_) = false;  // A write failed.
  bool ended_ HEDDLE_GUARDED_BY(mutex_) = false;   // A read failed: no message comes any more.
  bool released_ HEDDLE_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<SessionStream> BeginStream(int64_t number,
                                           const std::string& coordinator,
                                           const Credentials& credentials,
                                           std::shared_ptr<SessionInbox> inbox) {
  const auto stream = std::make_shared<Stream>(number, coordinator, credentials, std::move(inbox));
  stream->Begin(stream);
  return stream;
}

}  // namespace heddle::elastic
