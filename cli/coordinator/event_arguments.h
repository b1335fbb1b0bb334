/// \file
/// The options of subcommands that read events: whose events, and from where.
#pragma once

#include <string>

#include "cli/command.h"
#include "elastic/service/inspect/event_source.h"

namespace heddle::cli {

/// The options of one subcommand. Thread: one caller at a time.
class EventArguments {
 public:
  /// Declares --coordinator, --run, --certs and --job.
  void Declare(Arguments& arguments);
  /// Opens the events that the options name. Errors: those of EventSource, of FindRun and of
  /// reading the certificate.
  Result<elastic::EventSource> Open() const;
  /// Prints the error and returns the exit code.
  int ReportError(const Status& status) const;
  /// After reading, prints how many lines were left out, and the error; returns the exit code.
  int End(const elastic::EventSource& source, const Status& status) const;

 private:
  std::string coordinator_;
  std::string run_;
  std::string certificates_;
  std::string job_;
};

}  // namespace heddle::cli
