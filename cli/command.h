/// \file
/// A subcommand: declares its arguments, then runs. One file a subcommand; the work is elsewhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace heddle::cli {

/// What a subcommand takes; filled before Run. Wraps the option parser, which only arguments.cc
/// includes.
class Arguments {
 public:
  virtual ~Arguments() = default;
  virtual void Positional(const std::string& name,
                          std::string* value,
                          const std::string& help,
                          bool required = true) = 0;
  virtual void PositionalList(const std::string& name,
                              std::vector<std::string>* values,
                              const std::string& help) = 0;
  virtual void Option(const std::string& name,
                      std::string* value,
                      const std::string& help,
                      bool required = false) = 0;
  virtual void OptionList(const std::string& name,
                          std::vector<std::string>* values,
                          const std::string& help) = 0;
  virtual void Flag(const std::string& name, bool* value, const std::string& help) = 0;
  /// Whatever follows is left as it is, `--help` included.
  virtual void Unparsed() = 0;
};

/// Exit codes of every subcommand.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;    ///< The run failed; the checkpoint is damaged.
inline constexpr int kBadUsage = 2;  ///< Bad usage or input.
/// The job is suspended: the same command goes on. EX_TEMPFAIL of sysexits.h.
inline constexpr int kSuspended = 75;

class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;
  virtual std::string examples() const = 0;
  virtual void Declare(Arguments& arguments) = 0;
  /// Returns the exit code.
  virtual int Run() = 0;
  /// Subcommands of this one; then Run is never called.
  virtual std::vector<std::unique_ptr<Command>> Children() { return {}; }
};

using Commands = std::vector<std::unique_ptr<Command>>;

/// Parses the command line and runs the one of `commands` that it names. Returns the exit code.
int Main(int argc, char** argv, Commands commands);

std::unique_ptr<Command> MakeTrain();
std::unique_ptr<Command> MakeServe();
std::unique_ptr<Command> MakeSubmit();
std::unique_ptr<Command> MakeStatus();
std::unique_ptr<Command> MakeConfig();
std::unique_ptr<Command> MakeEvents();
std::unique_ptr<Command> MakeExplain();
std::unique_ptr<Command> MakeDrain();
std::unique_ptr<Command> MakeEmulate();
std::unique_ptr<Command> MakeCerts();
std::unique_ptr<Command> MakeLinks();
std::unique_ptr<Command> MakeCheckpoint();
std::unique_ptr<Command> MakeData();

}  // namespace heddle::cli
