// The coordinator's address under connections that say nothing, or not what they should.
#include "elastic/grpc/connection/control_listener.h"

#include <array>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/random.h"
#include "base/system/connect.h"
#include "base/system/socket_address.h"
#include "base/system/unique_fd.h"
#include "elastic/grpc/connection/channel.h"
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
    std::array<char, 4096> said{};
    ssize_t got = 1;
    while (got > 0) {
      got = ::recv(fd.get(), said.data(), said.size(), 0);
    }
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

// A scanner, a browser, a program that speaks something else, and a message that is larger than
// any.
TEST_F(ControlListenerTest, NoiseAtThePortHindersNobody) {
  StartServer();
  Random random(7);
  for (const std::string& greeting :
       {std::string("GET / HTTP/1.0\r\n\r\n"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string()}) {
    std::string noise = greeting;
    for (int i = 0; i < 100'000; ++i) {
      noise.push_back(static_cast<char>(random.Below(256)));
    }
    const UniqueFd fd = Connect();
    // The far side may have closed already.
    [[maybe_unused]] const ssize_t sent =
        ::send(fd.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
    EXPECT_TRUE(IsClosedWithin(fd, kPatience)) << greeting;
  }
  // Our own channels send nothing that large.
  const auto stub = wire::Control::NewStub(
      grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  wire::SubmitRequest request;
  request.set_job_yaml(std::string(kMaxMessageBytes + 1, 'x'));
  wire::SubmitReply reply;
  EXPECT_EQ(stub->Submit(&context, request, &reply).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(CoordinatorClient(server_->address()).Status().ok());
}

// It speaks HTTP/2 well, and calls nothing.
TEST_F(ControlListenerTest, WhoIsNotLetInIsClosedSoon) {
  StartServer();
  std::string greeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  greeting += std::string("\0\0\0\x04\0\0\0\0\0", 9);  // SETTINGS, empty.
  const UniqueFd fd = Connect();
  ASSERT_EQ(::send(fd.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(greeting.size()));
  EXPECT_TRUE(IsClosedWithin(fd, kNamedWithin + std::chrono::seconds(10)))
      << "gRPC itself would wait for half a minute";
}

TEST_F(ControlListenerTest, WhoWasLetInStays) {
  for (const char* listen : {"127.0.0.1:0", "[::1]:0"}) {
    StartServer(listen);
    const auto channel = MakeChannel(server_->address());
    const auto stub = wire::Control::NewStub(channel);
    grpc::ClientContext context;
    wire::JobStatus reply;
    ASSERT_TRUE(stub->Status(&context, {}, &reply).ok());
    ASSERT_EQ(channel->GetState(false), GRPC_CHANNEL_READY);
    EXPECT_FALSE(channel->WaitForStateChange(
        GRPC_CHANNEL_READY, std::chrono::system_clock::now() +
                                std::chrono::duration_cast<std::chrono::seconds>(kNamedWithin) +
                                std::chrono::seconds(2)))
        << listen;
    server_.reset();
    store_.reset();
  }
}

// Of the listener alone: whoever takes its connections keeps them.
TEST(ControlListenerAloneTest, StrangersHaveTheirTimeAndMembersAnyTime) {
  auto listener = ControlListener::Open("127.0.0.1:0");
  ASSERT_TRUE(listener.ok());
  Mutex mutex;
  CondVar changed;
  std::vector<UniqueFd> taken;
  (*listener)->Start([&](UniqueFd connection, char /*first_byte*/) {
    const MutexLock lock(mutex);
    taken.push_back(std::move(connection));
    changed.NotifyAll();
  });
  std::vector<UniqueFd> peers;
  for (size_t i = 0; i < 2; ++i) {
    auto fd = ConnectTo("127.0.0.1:" + std::to_string((*listener)->port()), After(kPatience));
    ASSERT_TRUE(fd.ok()) << fd.status().ToString();
    ASSERT_EQ(::send(fd->get(), "x", 1, MSG_NOSIGNAL), 1);
    peers.push_back(std::move(*fd));
    const MutexLock lock(mutex);
    while (taken.size() <= i) {
      changed.WaitUntil(mutex, After(kPatience));
    }
  }
  SocketAddress own{.length = sizeof(sockaddr_storage)};
  ::getsockname(peers[1].get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length);
  (*listener)->Name("ipv4:127.0.0.1:" + std::to_string(PortOf(own)));
  pollfd stranger{.fd = peers[0].get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&stranger, 1, 30'000), 1) << "the stranger's time ends";
  pollfd member{.fd = peers[1].get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&member, 1, 1000), 0);
  (*listener)->Close();
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
