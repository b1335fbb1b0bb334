#include "metrics/exposition/process_figures.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/resource.h>
#include <unistd.h>

#include "base/system/file.h"

namespace heddle::metrics {
namespace {

constexpr int64_t kTextLimit = int64_t{1} << 20;

std::optional<double> NumberAt(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? std::optional(static_cast<double>(number)) : std::nullopt;
}

// The fields of /proc/self/stat from the third on, after the program's name, which may hold any
// characters.
std::vector<std::string_view> FieldsOf(std::string_view stat) {
  std::vector<std::string_view> fields;
  for (size_t at = stat.rfind(')'); at != std::string_view::npos && at + 1 < stat.size();) {
    const size_t begin = at + 1 + (stat[at + 1] == ' ' ? 1 : 0);
    at = stat.find(' ', begin);
    fields.push_back(stat.substr(begin, at == std::string_view::npos ? at : at - begin));
  }
  return fields;
}

// When the machine started, in seconds since the epoch.
std::optional<double> BootTime() {
  constexpr std::string_view kLine = "\nbtime ";
  const Result<std::string> text = ReadFile("/proc/stat", kTextLimit);
  const size_t at = text.ok() ? text->find(kLine) : std::string::npos;
  return at == std::string::npos ? std::nullopt
                                 : NumberAt(std::string_view(*text).substr(at + kLine.size()));
}

std::optional<double> OpenDescriptors() {
  std::error_code error;
  double count = -1;  // Leaves out the descriptor by which the folder is read.
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end;
       !error && entry != end; entry.increment(error)) {
    ++count;
  }
  return error ? std::nullopt : std::optional(count);
}

std::optional<double> MostDescriptors() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0
             ? std::optional(static_cast<double>(limit.rlim_cur))
             : std::nullopt;
}

}  // namespace

std::vector<Registry::Family> ProcessFigures() {
  std::vector<Registry::Family> families;
  const auto add = [&](const char* name, const char* help, std::optional<double> value,
                       Registry::Kind kind = Registry::Kind::kGauge) {
    if (value) {
      families.push_back({.name = name,
                          .help = help,
                          .kind = kind,
                          .samples = {{.labels = {}, .value = *value, .histogram = {}}}});
    }
  };
  const Result<std::string> stat = ReadFile("/proc/self/stat", kTextLimit);
  const auto fields = FieldsOf(stat.ok() ? std::string_view(*stat) : std::string_view());
  // proc(5) numbers the fields from 1.
  const auto field = [&](size_t number) {
    return number - 3 < fields.size() ? NumberAt(fields[number - 3]) : std::nullopt;
  };
  const auto times = [](std::optional<double> value, double factor) {
    return value ? std::optional(*value * factor) : std::nullopt;
  };
  const auto sum = [](std::optional<double> a, std::optional<double> b) {
    return a && b ? std::optional(*a + *b) : std::nullopt;
  };
  const double tick = 1 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  add("process_cpu_seconds_total", "Processor time of this process, its own and the kernel's.",
      times(sum(field(14), field(15)), tick), Registry::Kind::kCounter);
  add("process_max_fds", "Descriptors that this process may have open.", MostDescriptors());
  add("process_open_fds", "Descriptors that this process has open.", OpenDescriptors());
  add("process_resident_memory_bytes", "Memory of this process that is in RAM.",
      times(field(24), static_cast<double>(::sysconf(_SC_PAGESIZE))));
  add("process_start_time_seconds", "When this process began, since the epoch.",
      sum(BootTime(), times(field(22), tick)));
  add("process_virtual_memory_bytes", "Address space of this process.", field(23));
  return families;
}

}  // namespace heddle::metrics
