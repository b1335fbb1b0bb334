/// \file
/// Subcommands: each declares its arguments, then runs. Each is in a file of its own, which calls
/// the library that does the work.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace heddle::cli {

/// The declaration of a subcommand's arguments; the values are set before Run. Wraps the option
/// parser, which only arguments.cc includes.
class Arguments {
 public:
  virtual ~Arguments() = default;
  /// Declares a positional argument.
  virtual void Positional(const std::string& name,
                          std::string* value,
                          const std::string& help,
                          bool required = true) = 0;
  /// Declares positional arguments, of which at least one is required.
  virtual void PositionalList(const std::string& name,
                              std::vector<std::string>* values,
                              const std::string& help) = 0;
  /// Declares an option "--NAME VALUE".
  virtual void Option(const std::string& name,
                      std::string* value,
                      const std::string& help,
                      bool required = false) = 0;
  /// Declares an option "--NAME VALUE" that may be repeated.
  virtual void OptionList(const std::string& name,
                          std::vector<std::string>* values,
                          const std::string& help) = 0;
  /// Declares an option "--NAME" without a value.
  virtual void Flag(const std::string& name, bool* value, const std::string& help) = 0;
  /// Leaves all arguments of the subcommand unparsed, also `--help`.
  virtual void Unparsed() = 0;
};

/// Exit codes of every subcommand.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;    ///< The run failed, or the checkpoint is damaged.
inline constexpr int kBadUsage = 2;  ///< Bad usage or input.
/// The job is suspended, and the same command resumes it. EX_TEMPFAIL of sysexits.h.
inline constexpr int kSuspended = 75;

/// A subcommand.
class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string summary() const = 0;   ///< One line for `--help`.
  virtual std::string examples() const = 0;  ///< The end of its own `--help`.
  /// Declares the arguments, whose values are in this object when Run is called.
  virtual void Declare(Arguments& arguments) = 0;
  /// Runs the subcommand and returns the exit code.
  virtual int Run() = 0;
  /// The subcommands of this one. If there are any, Run is never called.
  virtual std::vector<std::unique_ptr<Command>> Children() { return {}; }
};

using Commands = std::vector<std::unique_ptr<Command>>;

/// Parses the command line and runs the command that it names. Returns the exit code.
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
