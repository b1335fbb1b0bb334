// A worker's stream whose connection breaks, against a coordinator of gRPC's own.
#include <atomic>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/mutex.h"
#include "base/thread.h"
#include "elastic/grpc/control.grpc.pb.h"
#include "elastic/grpc/coordinator_session.h"

namespace heddle::elastic {
namespace {

constexpr Duration kPatience = std::chrono::minutes(2);
constexpr int kMessages = 3;

// Something that happens once.
class Event {
 public:
  void Set() {
    const MutexLock lock(mutex_);
    set_ = true;
    changed_.NotifyAll();
  }
  bool Wait() {
    const Deadline deadline = After(kPatience);
    const MutexLock lock(mutex_);
    while (!set_ && Now() < deadline) {
      changed_.WaitUntil(mutex_, deadline);
    }
    return set_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ HEDDLE_GUARDED_BY(mutex_) = false;
};

// Says several things at once to whoever comes, and listens until the connection ends.
class TalkingCoordinator : public wire::Control::Service {
 public:
  grpc::Status Session(
      grpc::ServerContext* /*context*/,
      grpc::ServerReaderWriter<wire::ToWorker, wire::FromWorker>* stream) override {
    for (int i = 0; i < kMessages; ++i) {
      wire::ToWorker message;
      message.mutable_refused()->set_reason(std::to_string(i));
      stream->Write(message);
    }
    wire::FromWorker message;
    while (stream->Read(&message)) {
    }
    ended.Set();
    return grpc::Status::OK;
  }

  Event ended;
};

// Of this process, those to the port.
void BreakConnectionsTo(int port) {
  constexpr int kMaxDescriptors = 1024;
  for (int fd = 0; fd < kMaxDescriptors; ++fd) {
    sockaddr_in peer{};
    socklen_t length = sizeof(peer);
    const bool connected = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0;
    if (connected && peer.sin_family == AF_INET && ntohs(peer.sin_port) == port) {
      ::shutdown(fd, SHUT_RDWR);
    }
  }
}

// gRPC tells a call's end only when all that has come is read. What is sent fails meanwhile, as of
// a worker that stood still.
TEST(CoordinatorSessionTest, AStreamThatBreaksWithMessagesUnreadEndsAndIsBegunAnew) {
  TalkingCoordinator coordinator;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&coordinator);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  Event first;
  Event broken;
  Event down;
  Event again;
  std::atomic<int> ups = 0;
  SessionOptions options;
  options.coordinator = "127.0.0.1:" + std::to_string(port);
  options.up = [&] {
    if (++ups == 2) {
      again.Set();
    }
  };
  options.down = [&](const std::string& /*reason*/) { down.Set(); };
  options.received = [&](const wire::ToWorker& /*message*/) {
    first.Set();
    broken.Wait();  // The next one is not asked for before.
  };
  CoordinatorSession session(options);
  ASSERT_TRUE(first.Wait());
  BreakConnectionsTo(port);
  EXPECT_TRUE(coordinator.ended.Wait());
  for (int i = 0; i < kMessages; ++i) {
    session.Send(wire::FromWorker());
  }
  // Another stream comes up meanwhile, which takes longer than for gRPC to tell that nothing could
  // be sent.
  Event beside;
  SessionOptions others = options;
  others.up = [&] { beside.Set(); };
  others.down = [](const std::string& /*reason*/) {};
  others.received = [](const wire::ToWorker& /*message*/) {};
  CoordinatorSession other(others);
  EXPECT_TRUE(beside.Wait());
  broken.Set();
  EXPECT_TRUE(down.Wait());
  EXPECT_TRUE(again.Wait());
  const Thread closing("closing", [&] { session.Close(Now()); });
  session.Close(Now());
  server->Shutdown(std::chrono::system_clock::now());
}

}  // namespace
}  // namespace heddle::elastic
