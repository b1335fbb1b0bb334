/// \file
/// A real Prometheus finds exposers of this process through /sd, follows one that joins and one
/// that leaves, and promtool finds nothing to complain about.
#include <cstdlib>
#include <functional>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/system/file.h"
#include "metrics/dashboard/status_page.h"
#include "metrics/exposition/exposer.h"
#include "metrics/service_discovery.h"
#include "tests/metrics/http_get.h"

namespace heddle::metrics {
namespace {

using testing::HasSubstr;

bool Installed(const std::string& program) {
  return std::system(("command -v " + program + " > /dev/null").c_str()) == 0;
}

/// Runs `condition` until it holds or the bound has passed.
bool Eventually(const std::function<bool()>& condition) {
  const Deadline end = After(std::chrono::minutes(2));
  while (!condition()) {
    if (Now() > end) {
      return false;
    }
    ::poll(nullptr, 0, 50);
  }
  return true;
}

/// A Prometheus with `config`, killed at the end of scope.
class Prometheus {
 public:
  Prometheus(const std::string& folder, const std::string& config) : log_(folder + "/log") {
    EXPECT_TRUE(WriteFileAtomically(folder + "/prometheus.yml", config).ok());
    const std::string config_flag = "--config.file=" + folder + "/prometheus.yml";
    const std::string storage_flag = "--storage.tsdb.path=" + folder + "/data";
    pid_ = ::fork();
    if (pid_ == 0) {
      const int log = ::open(log_.c_str(), O_WRONLY | O_CREAT, 0600);
      ::dup2(log, STDOUT_FILENO);
      ::dup2(log, STDERR_FILENO);
      ::execlp("prometheus", "prometheus", config_flag.c_str(), storage_flag.c_str(),
               "--web.listen-address=127.0.0.1:0", nullptr);
      ::_exit(127);
    }
    EXPECT_TRUE(Eventually([&] { return FindPort(); })) << Log();
  }
  ~Prometheus() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  /// The JSON that answers an instant query (of letters that need no escape).
  std::string Query(const std::string& expression) const {
    return HttpRequest(port_, "/api/v1/query?query=" + expression).body;
  }
  std::string Log() const { return ReadFile(log_, 1 << 20).ok() ? *ReadFile(log_, 1 << 20) : ""; }

 private:
  bool FindPort() {
    const std::string marker = "\"Listening on\" address=127.0.0.1:";
    const std::string log = Log();
    const size_t found = log.find(marker);
    if (found != std::string::npos) {
      port_ = std::atoi(log.c_str() + found + marker.size());
    }
    return port_ != 0;
  }

  const std::string log_;
  pid_t pid_ = -1;
  int port_ = 0;
};

/// A worker as service discovery sees it.
struct Worker {
  explicit Worker(double step) {
    registry.GetGauge("heddle_step", "Last step applied.").Set(step);
    exposer = *Exposer::Start(registry, {});
  }
  Registry registry;
  std::unique_ptr<Exposer> exposer;
};

TEST(PrometheusTest, FollowsWorkersThroughServiceDiscovery) {
  if (!Installed("prometheus")) {
    GTEST_SKIP() << "SKIPPED: Debian's package prometheus is not installed";
  }
  Mutex mutex;
  std::vector<ScrapeTarget> targets;
  const auto set_targets = [&](std::vector<ScrapeTarget> now) {
    const MutexLock lock(mutex);
    targets = std::move(now);
  };
  const auto target_of = [](const Worker& worker, const std::string& name) {
    return ScrapeTarget{.address = fmt::format("127.0.0.1:{}", worker.exposer->port()),
                        .labels = {{"worker", name}}};
  };
  Worker first(10);
  set_targets({target_of(first, "w0")});
  const Registry registry;
  const auto coordinator =
      *Exposer::Start(registry, {}, {{"/sd", [&](const PageRequest&) {
                                        const MutexLock lock(mutex);
                                        return HttpReply{.content_type = "application/json",
                                                         .body = ServiceDiscoveryJson(targets)};
                                      }}});
  const TemporaryFolder folder;
  const Prometheus prometheus(
      folder.path(),
      fmt::format("global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\n"
                  "scrape_configs:\n"
                  "  - job_name: heddle\n"
                  "    http_sd_configs:\n"
                  "      - {{url: 'http://127.0.0.1:{}/sd', refresh_interval: 200ms}}\n",
                  coordinator->port()));
  const auto answer_has = [&](const std::string& query, const std::string& part) {
    return Eventually([&] { return prometheus.Query(query).find(part) != std::string::npos; });
  };
  EXPECT_TRUE(answer_has("heddle_step", "\"worker\":\"w0\"")) << prometheus.Log();
  EXPECT_TRUE(answer_has("sum(heddle_step)", "\"10\"]"));

  Worker second(5);
  set_targets({target_of(first, "w0"), target_of(second, "w1")});
  EXPECT_TRUE(answer_has("sum(heddle_step)", "\"15\"]")) << prometheus.Log();

  first.exposer.reset();
  EXPECT_TRUE(answer_has("sum(up)", "\"1\"]"));
  set_targets({target_of(second, "w1")});
  EXPECT_TRUE(answer_has("count(up)", "\"1\"]")) << prometheus.Log();
  EXPECT_TRUE(answer_has("sum(heddle_step)", "\"5\"]"));
}

TEST(PrometheusTest, PromtoolFindsNothingToComplainAbout) {
  if (!Installed("promtool")) {
    GTEST_SKIP() << "SKIPPED: promtool (Debian's package prometheus) is not installed";
  }
  Registry registry;
  registry.GetGauge("heddle_build_info", "Version of the program.", {{"version", "0.1.0"}}).Set(1);
  registry.GetGauge("heddle_step", "Last step applied.").Set(3);
  registry.GetHistogram("heddle_step_seconds", "Time of a step.", {0.1, 1}).Observe(0.5);
  registry
      .GetCounter("heddle_comm_sent_bytes_total", "Bytes sent to other workers.",
                  {{"transport", "tcp"}})
      .Add(7);
  const TemporaryFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/metrics", ExpositionText(registry)).ok());
  const std::string command =
      fmt::format("promtool check metrics < {0}/metrics > {0}/out 2>&1", folder.path());
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(*ReadFile(folder.path() + "/out", 10000), "");
}

TEST(StatusPageTest, IsWholeAndLoadsNothingFromElsewhere) {
  const std::string page(StatusPage());
  EXPECT_THAT(page, testing::StartsWith("<!doctype html>"));
  EXPECT_THAT(page, HasSubstr("</html>"));
  EXPECT_THAT(page, HasSubstr("fetch(\"status\""));
  EXPECT_THAT(page, testing::Not(HasSubstr("http://")));
  EXPECT_THAT(page, testing::Not(HasSubstr("https://")));
}

}  // namespace
}  // namespace heddle::metrics
