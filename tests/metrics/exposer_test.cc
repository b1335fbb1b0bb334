#include "metrics/exposition/exposer.h"

#include <algorithm>
#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/thread.h"
#include "tests/metrics/http_get.h"
#include "tests/support/eventually.h"

namespace heddle::metrics {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<Exposer> Serve(const Registry& registry,
                               std::map<std::string, HttpHandler> handlers = {}) {
  auto exposer = Exposer::Start(registry, {}, std::move(handlers));
  EXPECT_TRUE(exposer.ok()) << exposer.status().message();
  return *std::move(exposer);
}

TEST(ExposerTest, ServesTheRegistryAsText) {
  Registry registry;
  registry.GetCounter("heddle_a_total", "A \"quoted\" help.", {{"peer", "w\\1\n\""}}).Add(3);
  registry.GetHistogram("heddle_b_seconds", "B.", {0.5, 1}).Observe(0.7);
  registry.GetGauge("heddle_c", "C.").Set(-1.5);
  const auto exposer = Serve(registry);
  const HttpAnswer answer = HttpRequest(exposer->port(), "/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_EQ(answer.body.substr(0, answer.body.find("# HELP process_")),
            "# HELP heddle_a_total A \"quoted\" help.\n"
            "# TYPE heddle_a_total counter\n"
            "heddle_a_total{peer=\"w\\\\1\\n\\\"\"} 3\n"
            "# HELP heddle_b_seconds B.\n"
            "# TYPE heddle_b_seconds histogram\n"
            "heddle_b_seconds_count 1\n"
            "heddle_b_seconds_sum 0.7\n"
            "heddle_b_seconds_bucket{le=\"0.5\"} 0\n"
            "heddle_b_seconds_bucket{le=\"1\"} 1\n"
            "heddle_b_seconds_bucket{le=\"+Inf\"} 1\n"
            "# HELP heddle_c C.\n"
            "# TYPE heddle_c gauge\n"
            "heddle_c -1.5\n");
}

TEST(ExposerTest, ServesHandlersAtTheirPathsOnly) {
  const Registry registry;
  const auto exposer = Serve(registry, {{"/status",
                                         [](const PageRequest& request) {
                                           return HttpReply{.content_type = "application/json",
                                                            .body = "[\"" + request.path + "\"]"};
                                         }},
                                        {"/broken", [](const PageRequest&) -> HttpReply {
                                           throw std::runtime_error("no answer today");
                                         }}});
  const HttpAnswer answer = HttpRequest(exposer->port(), "/status?x=1");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "[\"/status\"]");
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: application/json"));
  EXPECT_EQ(HttpRequest(exposer->port(), "/status", "HEAD").body, "");
  EXPECT_EQ(HttpRequest(exposer->port(), "/status", "POST").status, 405);
  EXPECT_EQ(HttpRequest(exposer->port(), "/other").status, 404);
  EXPECT_EQ(HttpRequest(exposer->port(), "/../etc/passwd").status, 404);
  EXPECT_EQ(HttpRequest(exposer->port(), "/broken").status, 500);
}

// RFC 9112: the target may be a whole URL, and its authority is then what was reached.
TEST(ExposerTest, AWholeUrlIsATargetToo) {
  const Registry registry;
  const auto exposer = Serve(
      registry,
      {{"/",
        [](const PageRequest& request) { return HttpReply{.body = "root " + request.reached}; }},
       {"/sd", [](const PageRequest& request) { return HttpReply{.body = request.reached}; }}});
  const auto body = [&](const std::string& target) {
    return HttpRequest(exposer->port(), target).body;
  };
  EXPECT_EQ(body("/sd"), "localhost:80") << "as the Host field says";
  EXPECT_EQ(body("http://there.example:9400/sd"), "there.example:9400");
  EXPECT_EQ(body("http://10.0.0.1/sd?x=1"), "10.0.0.1:80");
  EXPECT_EQ(body("http://[fd00::7]/sd"), "[fd00::7]:80");
  EXPECT_EQ(body("http://[fd00::7]:9400/sd"), "[fd00::7]:9400");
  EXPECT_EQ(body("http://there.example:1"), "root there.example:1");
  EXPECT_EQ(body("http://a<b>c/sd"), "") << "no address";
  EXPECT_EQ(HttpRequest(exposer->port(), "http://x/metrics").status, 200);
  EXPECT_EQ(HttpRequest(exposer->port(), "http://x/other").status, 404);
  EXPECT_EQ(HttpRequest(exposer->port(), "ftp://x/metrics").status, 404);
}

TEST(ExposerTest, SaysWhyItCannotListen) {
  const Registry registry;
  const auto first = Serve(registry);
  const auto taken = Exposer::Start(registry, {.port = first->port()});
  EXPECT_EQ(taken.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(taken.status().message(),
            fmt::format("cannot listen on 127.0.0.1:{}: Address already in use", first->port()));
  EXPECT_EQ(Exposer::Start(registry, {.host = "no-address"}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(Exposer::Start(registry, {.host = ""}).ok());
}

TEST(ExposerTest, AnswersWhileTheProcessComputes) {
  Registry registry;
  registry.GetGauge("heddle_c", "C.").Set(1);
  const auto exposer = Serve(registry);
  std::atomic<bool> stop = false;
  std::vector<Thread> busy;
  for (int i = 0; i < 4; ++i) {
    busy.emplace_back("busy", [&] {
      while (!stop) {
        registry.GetGauge("heddle_c", "C.").Set(2);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(HttpRequest(exposer->port(), "/metrics").status, 200);
  }
  stop = true;
}

TEST(ExposerTest, SilentClientsNeitherStarveOthersNorHoldUpTheStop) {
  const Registry registry;
  auto exposer = Serve(registry);
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(Connect(exposer->port()));
    ASSERT_TRUE(silent.back().valid());
  }
  EXPECT_TRUE(
      testing::Eventually([&] { return HttpRequest(exposer->port(), "/metrics").status == 200; }));
  exposer.reset();  // It ends although the clients stay.
}

TEST(ExposerTest, ClientsThatTrickleNeitherStarveOthersNorHoldUpTheStop) {
  const Registry registry;
  auto exposer = Serve(registry);
  const int port = exposer->port();
  std::atomic<bool> ended{false};
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(Connect(port));
    ASSERT_TRUE(clients.back().valid());
  }
  // Each byte comes well before any bound on a single read.
  Thread trickle("trickle", [&] {
    for (size_t sent = 0; !ended.load(); ++sent) {
      for (const UniqueFd& client : clients) {
        const char letter = "GET /"[std::min<size_t>(sent, 4)];
        [[maybe_unused]] const ssize_t count = ::send(client.get(), &letter, 1, MSG_NOSIGNAL);
      }
      ::poll(nullptr, 0, 100);
    }
  });
  const HttpAnswer answer = HttpRequest(port, "/metrics");
  EXPECT_EQ(answer.status, 200);
  exposer.reset();  // It ends although they go on.
  ended.store(true);
}

}  // namespace
}  // namespace heddle::metrics
