#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/output.h"

namespace heddle::cli {
namespace {

class ParserArguments : public Arguments {
 public:
  explicit ParserArguments(CLI::App& app) : app_(app) {}
  void Positional(const std::string& name,
                  std::string* value,
                  const std::string& help,
                  bool required) override {
    app_.add_option(name, *value, help)->required(required);
  }
  void PositionalList(const std::string& name,
                      std::vector<std::string>* values,
                      const std::string& help) override {
    app_.add_option(name, *values, help)->required();
  }
  void Option(const std::string& name,
              std::string* value,
              const std::string& help,
              bool required) override {
    app_.add_option("--" + name, *value, help)->required(required);
  }
  void OptionList(const std::string& name,
                  std::vector<std::string>* values,
                  const std::string& help) override {
    app_.add_option("--" + name, *values, help)->allow_extra_args(false);
  }
  void Flag(const std::string& name, bool* value, const std::string& help) override {
    app_.add_flag("--" + name, *value, help);
  }
  void Unparsed() override {
    app_.set_help_flag();
    app_.prefix_command();
  }

 private:
  CLI::App& app_;
};

// Adds `command` and its children below `parent`; `chosen` becomes the one that is named.
void Add(CLI::App& parent,
         Command& command,
         std::vector<std::unique_ptr<Command>>& owned,
         Command*& chosen) {
  CLI::App* app = parent.add_subcommand(command.name(), command.summary());
  app->footer(command.examples());
  ParserArguments arguments(*app);
  command.Declare(arguments);
  auto children = command.Children();
  if (children.empty()) {
    app->callback([&command, &chosen] { chosen = &command; });
    return;
  }
  app->require_subcommand(1);
  for (auto& child : children) {
    owned.push_back(std::move(child));
    Add(*app, *owned.back(), owned, chosen);
  }
}

}  // namespace

int Main(int argc, char** argv, Commands commands) {
  // gRPC's errors are returned as a Status, which is printed once. No other thread runs yet that
  // could read the environment.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  CLI::App app("Heddle: elastic training on clusters whose machines are not alike", "heddle");
  app.set_version_flag("--version", "heddle 0.1.0");
  app.require_subcommand(1);
  Command* chosen = nullptr;
  std::vector<std::unique_ptr<Command>> owned;
  for (auto& command : commands) {
    owned.push_back(std::move(command));
    Add(app, *owned.back(), owned, chosen);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      return EndOutput(app.exit(error));  // --help, --version
    }
    std::fprintf(stderr, "error: %s\nhint: %s --help lists what there is\n", error.what(),
                 "heddle");
    return kBadUsage;
  }
  return EndOutput(chosen->Run());
}

}  // namespace heddle::cli
