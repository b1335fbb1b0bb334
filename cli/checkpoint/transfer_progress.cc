#include "cli/checkpoint/transfer_progress.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace heddle::cli {

namespace {

constexpr Duration kQuiet = std::chrono::seconds(2);
constexpr Duration kOnTerminal = std::chrono::milliseconds(200);
constexpr Duration kElsewhere = std::chrono::seconds(5);
constexpr size_t kBarWidth = 40;
constexpr double kMega = 1e6;

/// Writes progress; an error is ignored, since it must not stop the operation.
void Write(int fd, const std::string& text) {
  [[maybe_unused]] const ssize_t written = ::write(fd, text.data(), text.size());
}

std::string Bar(double share) {
  const auto full = static_cast<size_t>(share * kBarWidth);
  return fmt::format("\r[{}{}] ", std::string(full, '#'), std::string(kBarWidth - full, ' '));
}

}  // namespace

TransferProgress::TransferProgress(bool silent, int fd, std::function<Time()> now)
    : silent_(silent),
      fd_(fd),
      now_(std::move(now)),
      terminal_(::isatty(fd) == 1),
      started_(now_()),
      next_(started_ + kQuiet) {}

TransferProgress::~TransferProgress() {
  if (shown_ && terminal_) {
    Write(fd_, "\n");
  }
}

void TransferProgress::Update(int64_t done_bytes, int64_t all_bytes) {
  before_ = before_.value_or(done_bytes);
  const Time now = now_();
  if (silent_ || now < next_) {
    return;
  }
  next_ = now + (terminal_ ? kOnTerminal : kElsewhere);
  shown_ = true;
  const auto done = static_cast<double>(done_bytes);
  const auto all = static_cast<double>(std::max<int64_t>(all_bytes, 1));
  const double share = std::clamp(done / all, 0.0, 1.0);
  const double rate = (done - static_cast<double>(*before_)) / Seconds(now - started_);
  const std::string left =
      rate > 0 ? fmt::format("{:.0f} s left", std::max(all - done, 0.0) / rate) : "";
  // The escape code clears the rest of a longer line before.
  Write(fd_, fmt::format("{}{:5.1f} %  {:.0f} of {:.0f} MB  {:.0f} MB/s  {}{}",
                         terminal_ ? Bar(share) : std::string(), 100 * share, done / kMega,
                         all / kMega, rate / kMega, left, terminal_ ? "\x1b[K" : "\n"));
}

}  // namespace heddle::cli
