#include "cli/transfer_progress.h"

#include <algorithm>
#include <cstdio>

#include <unistd.h>

namespace heddle::cli {

namespace {

constexpr Duration kQuiet = std::chrono::seconds(2);
constexpr Duration kOnTerminal = std::chrono::milliseconds(200);
constexpr Duration kElsewhere = std::chrono::seconds(10);

}  // namespace

TransferProgress::TransferProgress()
    : terminal_(::isatty(STDERR_FILENO) == 1),
      started_(Now()),
      next_(started_ + kQuiet) {}

TransferProgress::~TransferProgress() {
  if (shown_ && terminal_) {
    std::fputc('\n', stderr);
  }
}

void TransferProgress::Update(int64_t done_bytes, int64_t all_bytes) {
  const Time now = Now();
  if (now < next_) {
    return;
  }
  next_ = now + (terminal_ ? kOnTerminal : kElsewhere);
  shown_ = true;
  const double rate = static_cast<double>(done_bytes) / Seconds(now - started_);
  const double left = rate > 0 ? static_cast<double>(all_bytes - done_bytes) / rate : 0;
  constexpr double kMega = 1e6;
  std::fprintf(stderr, "%s%5.1f %%  %.0f of %.0f MB  %.0f MB/s  %.0f s left%s",
               terminal_ ? "\r" : "",
               100.0 * static_cast<double>(done_bytes) /
                   static_cast<double>(std::max<int64_t>(all_bytes, 1)),
               static_cast<double>(done_bytes) / kMega, static_cast<double>(all_bytes) / kMega,
               rate / kMega, left, terminal_ ? "   " : "\n");
  std::fflush(stderr);
}

}  // namespace heddle::cli
