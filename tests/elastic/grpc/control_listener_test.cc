// The coordinator's address under connections that say nothing, or not what they should.
#include "elastic/grpc/connection/control_listener.h"

#include <array>
#include <cstring>

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
  std::unique_ptr<StateStore> OpenStore() override {  // Of each server of a test.
    auto store = OpenSqliteStore(folder_.path() + "/state" + std::to_string(stores_++));
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? *std::move(store) : nullptr;
  }
  UniqueFd Connect() {
    SocketAddress to = *ParseSocketAddress(server_->address());
    UniqueFd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to.storage), to.length), 0);
    return fd;
  }
  /// The other end closes it, or the test hangs.
  static void WaitUntilClosed(const UniqueFd& fd) {
    std::array<char, 4096> said{};
    ssize_t got = 1;
    while (got > 0) {
      got = ::recv(fd.get(), said.data(), said.size(), 0);
    }
    EXPECT_TRUE(got == 0 || errno == ECONNRESET) << std::strerror(errno);
  }

 private:
  int stores_ = 0;
};

TEST_F(ControlListenerTest, ManyWhoSayNothingKeepNobodyOut) {
  StartServer();
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(Connect());
  }
  WaitUntilClosed(idle.front());  // The oldest makes room.
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
    WaitUntilClosed(fd);
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

/// A connection that says nothing, one that speaks HTTP/2 well and calls nothing, one whose stream
/// says no Hello, and a member's.
struct Guests {
  explicit Guests(const std::string& address, UniqueFd one, UniqueFd other)
      : silent(std::move(one)),
        idle(std::move(other)),
        member(MakeChannel(address)),
        stub(wire::Control::NewStub(member)),
        nameless(wire::Control::NewStub(MakeChannel(address))) {
    std::string greeting("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    greeting += std::string("\0\0\0\x04\0\0\0\0\0", 9);  // SETTINGS, empty.
    grpc::ClientContext call;
    wire::JobStatus reply;
    EXPECT_TRUE(stub->Status(&call, {}, &reply).ok());
    EXPECT_EQ(member->GetState(false), GRPC_CHANNEL_READY);
    EXPECT_EQ(::send(idle.get(), greeting.data(), greeting.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(greeting.size()));
    stream = nameless->Session(&context);
  }
  UniqueFd silent;
  UniqueFd idle;
  std::shared_ptr<grpc::Channel> member;
  std::unique_ptr<wire::Control::Stub> stub;
  std::unique_ptr<wire::Control::Stub> nameless;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<wire::FromWorker, wire::ToWorker>> stream;
};

// gRPC itself would keep a stranger for half a minute. The member was there before the strangers
// whose time ends.
TEST_F(ControlListenerTest, StrangersAreClosedAndWhoWasLetInStays) {
  std::vector<std::unique_ptr<StateStore>> stores;
  std::vector<std::unique_ptr<CoordinatorServer>> servers;
  std::vector<std::unique_ptr<Guests>> all;
  for (const char* listen : {"127.0.0.1:0", "[::1]:0"}) {
    StartServer(listen);
    all.push_back(std::make_unique<Guests>(server_->address(), Connect(), Connect()));
    stores.push_back(std::move(store_));
    servers.push_back(std::move(server_));
  }
  for (const auto& guests : all) {
    WaitUntilClosed(guests->silent);
    WaitUntilClosed(guests->idle);
    wire::ToWorker message;
    EXPECT_FALSE(guests->stream->Read(&message));  // Nothing is ever sent but the end.
    EXPECT_FALSE(guests->stream->Finish().ok());
    EXPECT_EQ(guests->member->GetState(false), GRPC_CHANNEL_READY);
  }
  all.clear();
  servers.clear();
}

// Of the listener alone: whoever takes its connections keeps them.
TEST(ControlListenerAloneTest, StrangersHaveTheirTimeAndMembersAnyTime) {
  std::vector<UniqueFd> taken;
  auto listener = ControlListener::Open("127.0.0.1:0", std::chrono::milliseconds(50));
  ASSERT_TRUE(listener.ok());
  (*listener)->Start([&](UniqueFd connection, char first_byte) {
    if (first_byte == 'm') {  // At once: the listener sees it before the member's time ends.
      SocketAddress peer{.length = sizeof(sockaddr_storage)};
      ::getpeername(connection.get(), reinterpret_cast<sockaddr*>(&peer.storage), &peer.length);
      (*listener)->Name("ipv4:127.0.0.1:" + std::to_string(PortOf(peer)));
    }
    taken.push_back(std::move(connection));
  });
  std::vector<UniqueFd> peers;
  for (const char* first : {"m", "s"}) {
    auto fd = ConnectTo("127.0.0.1:" + std::to_string((*listener)->port()), After(kPatience));
    ASSERT_TRUE(fd.ok()) << fd.status().ToString();
    ASSERT_EQ(::send(fd->get(), first, 1, MSG_NOSIGNAL), 1);
    peers.push_back(std::move(*fd));
  }
  pollfd stranger{.fd = peers[1].get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&stranger, 1, -1), 1) << "the stranger's time ends";
  pollfd member{.fd = peers[0].get(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&member, 1, 0), 0);
  (*listener)->Close();
}

TEST_F(ControlListenerTest, AStreamThatBeginsWithoutAHelloIsRefused) {
  StartServer();
  const auto stub = wire::Control::NewStub(MakeChannel(server_->address()));
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
