#include "elastic/service/progress.h"

#include <cstdio>

#include <fmt/format.h>
#include <unistd.h>

#include "elastic/report/event_fields.h"

namespace heddle::elastic {
namespace {

constexpr Duration kTerminalInterval = std::chrono::milliseconds(200);
constexpr Duration kLogInterval = std::chrono::seconds(5);

std::string Clock(double seconds) {
  const auto whole = static_cast<int64_t>(seconds);
  return whole >= 3600 ? fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
                       : fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

Progress::Progress(int64_t total_steps, bool shown)
    : shown_(shown),
      terminal_(isatty(STDERR_FILENO) == 1),
      total_steps_(total_steps) {}

void Progress::Print(const std::string& line, bool kept) {
  if (!shown_) {
    return;
  }
  const char* clear = line_open_ ? "\r\x1b[K" : "";
  fmt::print(stderr, "{}{}{}", clear, line, kept && terminal_ ? "" : "\n");
  std::fflush(stderr);
  line_open_ = kept && terminal_;
}

std::string Progress::StepLine() const {
  const double left = seconds_ * static_cast<double>(total_steps_ - step_);
  return fmt::format("step {}{}  loss {:.4f}  {:.0f} tokens/s  workers {}  generation {}{}", step_,
                     total_steps_ > 0 ? fmt::format("/{}", total_steps_) : "", loss_,
                     tokens_ / (seconds_ > 0 ? seconds_ : 1), workers_, generation_,
                     total_steps_ > 0 ? "  left " + Clock(left) : "");
}

void Progress::Note(const LogEvent& event) {
  MutexLock lock(mutex_);
  if (event.kind == "job_started") {
    total_steps_ = static_cast<int64_t>(NumberOf(event, "steps"));
  } else if (event.kind == "step") {
    step_ = static_cast<int64_t>(NumberOf(event, "step"));
    loss_ = NumberOf(event, "loss");
    tokens_ = NumberOf(event, "tokens");
    generation_ = static_cast<int64_t>(NumberOf(event, "generation"));
    const double seconds = NumberOf(event, "seconds");
    seconds_ = seconds_ > 0 ? 0.9 * seconds_ + 0.1 * seconds : seconds;
    const Time now = Now();
    if (now - printed_ >= (terminal_ ? kTerminalInterval : kLogInterval) || step_ == total_steps_) {
      printed_ = now;
      Print(StepLine(), true);
    }
  } else if (event.kind == "worker_joined") {
    Print("joined: " + TextOf(event, "worker"), false);
  } else if (event.kind == "worker_lost" || event.kind == "worker_left" ||
             event.kind == "worker_refused") {
    Print(fmt::format("{}: {} ({})", event.kind.substr(std::string("worker_").size()),
                      TextOf(event, "worker"), TextOf(event, "reason")),
          false);
  } else if (event.kind == "guarantee" && !TextOf(event, "reason").empty()) {
    Print(fmt::format("losses are {}: {}", TextOf(event, "guarantee"), TextOf(event, "reason")),
          false);
  } else if (event.kind == "worker_quarantined") {
    Print(fmt::format("held off for {:.0f} s: {}, lost {} times in a row shortly after it came",
                      NumberOf(event, "seconds"), TextOf(event, "worker"),
                      NumberOf(event, "short_lives")),
          false);
  } else if (event.kind == "recovery_source") {
    Print(
        fmt::format("goes on after step {} ({})", NumberOf(event, "step"), TextOf(event, "chosen")),
        false);
  } else if (event.kind == "plan") {
    Print(fmt::format("plan of generation {}: {:.3f} s a step predicted",
                      NumberOf(event, "generation"), NumberOf(event, "predicted_step_seconds")),
          false);
  } else if (event.kind == "resumed") {
    Print(fmt::format("resumed after {:.2f} s, {} steps repeated", NumberOf(event, "seconds"),
                      NumberOf(event, "steps_repeated")),
          false);
  } else if (event.kind == "validation") {
    Print(fmt::format("step {}: validation loss {:.4f} nats a token", NumberOf(event, "step"),
                      NumberOf(event, "loss")),
          false);
  } else if (event.kind == "checkpoint") {
    Print(fmt::format("checkpoint of step {}: {:.1f} MB", NumberOf(event, "step"),
                      NumberOf(event, "bytes") / 1e6),
          false);
  } else if (event.kind == "suspended") {
    const std::string why = TextOf(event, "reason");
    Print(fmt::format("suspended, goes on after step {}{}", NumberOf(event, "step"),
                      why.empty() ? "" : ": " + why),
          false);
  } else if (event.kind == "warning") {
    Print("warning: " + TextOf(event, "message"), false);
  }
}

void Progress::SetWorkers(int64_t workers) {
  MutexLock lock(mutex_);
  workers_ = workers;
}

void Progress::Say(const std::string& line) {
  MutexLock lock(mutex_);
  Print(line, false);
}

void Progress::Finish() {
  MutexLock lock(mutex_);
  if (line_open_) {
    Print(StepLine(), false);
  }
}

}  // namespace heddle::elastic
