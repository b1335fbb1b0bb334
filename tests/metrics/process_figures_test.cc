// The process' own figures against what the kernel says elsewhere, and against what this test does.
#include "metrics/exposition/process_figures.h"

#include <ctime>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/unique_fd.h"

namespace heddle::metrics {
namespace {

std::map<std::string, double> Figures() {
  std::map<std::string, double> figures;
  for (const Registry::Family& family : ProcessFigures()) {
    EXPECT_EQ(family.samples.size(), 1U) << family.name;
    EXPECT_EQ(family.kind == Registry::Kind::kCounter, family.name.ends_with("_total"));
    figures[family.name] = family.samples.front().value;
  }
  return figures;
}

/// In kB, of /proc/self/status.
double StatusLine(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) {
      return std::stod(line.substr(name.size() + 1)) * 1024;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

TEST(ProcessFiguresTest, NamesAreThoseOfPrometheusClients) {
  std::vector<std::string> names;
  for (const Registry::Family& family : ProcessFigures()) {
    names.push_back(family.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"process_cpu_seconds_total", "process_max_fds",
                                             "process_open_fds", "process_resident_memory_bytes",
                                             "process_start_time_seconds",
                                             "process_virtual_memory_bytes"}));
}

TEST(ProcessFiguresTest, DescriptorsAreCounted) {
  const double before = Figures().at("process_open_fds");
  std::vector<UniqueFd> more;
  for (int i = 0; i < 7; ++i) {
    more.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  EXPECT_EQ(Figures().at("process_open_fds"), before + 7);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(Figures().at("process_max_fds"), static_cast<double>(limit.rlim_cur));
}

TEST(ProcessFiguresTest, MemoryIsThatOfTheKernelsOtherFile) {
  constexpr size_t kBytes = size_t{64} << 20;
  const double before = Figures().at("process_resident_memory_bytes");
  const std::vector<char> touched(kBytes, 1);
  const double after = Figures().at("process_resident_memory_bytes");
  EXPECT_NEAR(after - before, kBytes, kBytes / 8);
  // The kernel counts a thread's pages in batches.
  EXPECT_NEAR(after, StatusLine("VmRSS"), 8 << 20);
  EXPECT_NEAR(Figures().at("process_virtual_memory_bytes"), StatusLine("VmSize"), 8 << 20);
  EXPECT_EQ(touched.back(), 1);
}

TEST(ProcessFiguresTest, ProcessorTimeGrowsWithWork) {
  const double before = Figures().at("process_cpu_seconds_total");
  for (volatile std::clock_t until = std::clock() + CLOCKS_PER_SEC / 5; std::clock() < until;) {
  }
  EXPECT_NEAR(Figures().at("process_cpu_seconds_total"),
              static_cast<double>(std::clock()) / CLOCKS_PER_SEC, 0.1);
  EXPECT_GE(Figures().at("process_cpu_seconds_total") - before, 0.15);
}

TEST(ProcessFiguresTest, ItBeganBeforeNowAndLately) {
  const double age = WallClockSeconds() - Figures().at("process_start_time_seconds");
  EXPECT_GT(age, -2);  // The kernel tells the machine's start in whole seconds.
  EXPECT_LT(age, 3600);
}

}  // namespace
}  // namespace heddle::metrics
