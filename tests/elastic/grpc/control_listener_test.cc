// The coordinator's address under connections that say nothing, or not what they should.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "base/system/socket_address.h"
#include "base/system/unique_fd.h"
#include "elastic/grpc/channel.h"
#include "elastic/grpc/control.grpc.pb.h"
#include "server_fixture.h"

namespace heddle::elastic {
namespace {

class ControlListenerTest : public GrpcTest {
 protected:
  UniqueFd Connect() {
    SocketAddress to = *ParseSocketAddress(server_->address());
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to.storage), to.length), 0);
    return fd;
  }
  // Whether the other end has closed it by then.
  static bool IsClosedWithin(const UniqueFd& fd, Duration patience) {
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
    const timeval timeout{.tv_sec = milliseconds / 1000, .tv_usec = milliseconds % 1000 * 1000};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    char byte = 0;
    const ssize_t got = ::recv(fd.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
};

TEST_F(ControlListenerTest, WhoSaysNothingIsClosed) {
  StartServer();
  EXPECT_TRUE(IsClosedWithin(Connect(), kPatience));
}

TEST_F(ControlListenerTest, ManyWhoSayNothingKeepNobodyOut) {
  StartServer();
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(Connect());
  }
  EXPECT_TRUE(IsClosedWithin(idle.front(), kPatience)) << "the oldest makes room";
  EXPECT_TRUE(CoordinatorClient(server_->address()).Status().ok());
}

TEST_F(ControlListenerTest, AStreamWithoutAHelloIsGivenUp) {
  StartServer();
  const auto stub = wire::Control::NewStub(MakeChannel(server_->address()));
  {
    grpc::ClientContext context;
    const auto stream = stub->Session(&context);
    wire::ToWorker message;
    EXPECT_FALSE(stream->Read(&message));  // Nothing is ever sent but the end.
    EXPECT_FALSE(stream->Finish().ok());
  }
  grpc::ClientContext context;
  const auto stream = stub->Session(&context);
  wire::FromWorker heartbeat;
  heartbeat.mutable_heartbeat();
  stream->Write(heartbeat);
  wire::ToWorker message;
  EXPECT_FALSE(stream->Read(&message));
  EXPECT_FALSE(stream->Finish().ok());
}

}  // namespace
}  // namespace heddle::elastic
