// An encrypted connection over the kernel's TCP, which, unlike a pair of local sockets, can be
// reset.
#include "comm/transport/tcp/tls_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/system/unique_fd.h"

namespace heddle::comm {
namespace {

using testing::HasSubstr;

struct Sockets {
  Sockets() {
    const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(listener.get(), address, size), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), address, &size), 0);
    dialler.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(dialler.get(), address, size), 0);
    acceptor.Reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_GE(acceptor.get(), 0);
  }
  UniqueFd dialler;
  UniqueFd acceptor;
};

TEST(TlsConnectionTest, AResetIsALossWithTheKernelsReason) {
  for (const bool dialled : {true, false}) {
    Sockets sockets;
    const auto setup =
        MakeTlsSetup(std::move(sockets.dialler), TrafficClass::kBulk, dialled, Sha256("any key"));
    const auto begun = setup->Advance();
    ASSERT_TRUE(begun.ok() && *begun == nullptr) << begun.status().ToString();
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(sockets.acceptor.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    sockets.acceptor.Reset();
    const auto outcome = setup->Advance();
    EXPECT_EQ(outcome.status().code(), StatusCode::kUnavailable) << outcome.status().ToString();
    EXPECT_THAT(outcome.status().message(), HasSubstr("read: "));
    EXPECT_THAT(outcome.status().message(), HasSubstr("reset"));
  }
}

}  // namespace
}  // namespace heddle::comm
