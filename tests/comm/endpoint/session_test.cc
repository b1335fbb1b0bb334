// A handshake's socket by itself: messages of a fixed size that come in pieces, late or never.
#include "comm/endpoint/session.h"

#include <array>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace heddle::comm {
namespace {

class HandshakeSocketTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok()) << loop.status().ToString();
    loop_ = *std::move(loop);
    int ends[2] = {};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    socket_ = std::make_unique<HandshakeSocket>(*loop_, UniqueFd(ends[0]));
    peer_.Reset(ends[1]);
  }
  void Send(const std::string& bytes) {
    ASSERT_EQ(::send(peer_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  Result<bool> Read() { return socket_->Read(std::as_writable_bytes(std::span(message_))); }
  std::string Text() const { return {message_.begin(), message_.end()}; }

  std::shared_ptr<EventLoop> loop_;
  std::unique_ptr<HandshakeSocket> socket_;
  UniqueFd peer_;
  std::array<char, 6> message_{};
};

TEST_F(HandshakeSocketTest, AMessageIsWholeWhenItsLastByteIsThere) {
  for (const std::string& piece : {std::string(), std::string("ab"), std::string("cde")}) {
    Send(piece);
    const Result<bool> whole = Read();
    ASSERT_TRUE(whole.ok()) << whole.status().ToString();
    EXPECT_FALSE(*whole) << piece;
  }
  Send("fghijkl");
  EXPECT_TRUE(*Read());
  EXPECT_EQ(Text(), "abcdef");
  EXPECT_TRUE(*Read()) << "the next one begins where this ended";
  EXPECT_EQ(Text(), "ghijkl");
  EXPECT_FALSE(*Read());
}

TEST_F(HandshakeSocketTest, WhoClosesWithinAMessageIsGone) {
  Send("abc");
  EXPECT_FALSE(*Read());
  peer_.Reset();
  const Result<bool> end = Read();
  EXPECT_EQ(end.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(end.status().message(), "it closed the connection");
}

TEST_F(HandshakeSocketTest, AMessageGoesWholeOrIsALoss) {
  const std::array<char, 3> text{'a', 'b', 'c'};
  EXPECT_TRUE(socket_->Write(std::as_bytes(std::span(text))).ok());
  ASSERT_EQ(::recv(peer_.get(), message_.data(), message_.size(), 0), 3);
  EXPECT_EQ(Text().substr(0, 3), "abc");
  peer_.Reset();
  EXPECT_FALSE(socket_->Write(std::as_bytes(std::span(text))).ok());
}

}  // namespace
}  // namespace heddle::comm
