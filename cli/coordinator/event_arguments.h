/// \file
/// The options that say whose events are read, of the subcommands that read them.
#pragma once

#include <string>

#include "cli/command.h"
#include "elastic/service/inspect/event_source.h"

namespace heddle::cli {

/// Thread: one caller at a time.
class EventArguments {
 public:
  void Declare(Arguments& arguments);
  Result<elastic::EventSource> Open() const;
  /// Prints the error and returns the exit code.
  int ReportError(const Status& status) const;
  /// After all was read: says what was left out, and the error; returns the exit code.
  int End(const elastic::EventSource& source, const Status& status) const;

 private:
  std::string coordinator_;
  std::string run_;
  std::string certificates_;
  std::string job_;
};

}  // namespace heddle::cli
