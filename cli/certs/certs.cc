#include <cstdio>

#include "cli/certs/tokens.h"
#include "cli/command.h"
#include "cli/option_number.h"
#include "cli/output.h"
#include "elastic/identity/authority.h"

namespace heddle::cli {
namespace {

constexpr const char* kDaysHelp = "Days for which certificates are valid [365]";

Result<int> DaysOf(const std::string& text) {
  if (text.empty()) {
    return elastic::kCertificateDays;
  }
  HEDDLE_ASSIGN_OR_RETURN(const int64_t days, ParseOption("days", text, 1, elastic::kMaxDays));
  return static_cast<int>(days);
}

class Init : public Command {
 public:
  std::string name() const override { return "init"; }
  std::string summary() const override {
    return "Make an authority, and certificates of a coordinator, an operator, a viewer and "
           "workers";
  }
  std::string examples() const override {
    return "Examples:\n  heddle certs init lab --worker a --worker b";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("DIR", &folder_, "Folder to make");
    arguments.OptionList("worker", &workers_, "Name of a worker; may be repeated");
    arguments.Option("days", &days_, kDaysHelp);
  }
  int Run() override {
    const auto days = DaysOf(days_);
    return Report(days.ok() ? elastic::InitAuthority(folder_, workers_, *days) : days.status());
  }

 private:
  std::string folder_;
  std::vector<std::string> workers_;
  std::string days_;
};

class Issue : public Command {
 public:
  std::string name() const override { return "issue"; }
  std::string summary() const override { return "Add a party's certificate; prints its folder"; }
  std::string examples() const override {
    return "Examples:\n  heddle certs issue lab --role worker/c\n"
           "  heddle certs issue lab --role operator --days 30";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("DIR", &folder_, "Folder that `heddle certs init` has made");
    arguments.Option("role", &role_, "worker/NAME, operator, viewer or coordinator", true);
    arguments.Option("days", &days_, kDaysHelp);
  }
  int Run() override {
    const auto days = DaysOf(days_);
    const auto identity = elastic::ParseIdentity(role_);
    if (!days.ok() || !identity.ok()) {
      return Report(days.ok() ? identity.status().WithContext("--role") : days.status());
    }
    const auto made = elastic::IssueInto(folder_, *identity, *days);
    if (!made.ok()) {
      return Report(made.status());
    }
    std::printf("%s\n", made->c_str());
    return kDone;
  }

 private:
  std::string folder_;
  std::string role_;
  std::string days_;
};

class Certs : public Command {
 public:
  std::string name() const override { return "certs"; }
  std::string summary() const override { return "Make certificates and tokens: who may come in"; }
  std::string examples() const override { return ""; }
  void Declare(Arguments& /*arguments*/) override {}
  int Run() override { return kBadUsage; }
  std::vector<std::unique_ptr<Command>> Children() override {
    std::vector<std::unique_ptr<Command>> children;
    children.push_back(std::make_unique<Init>());
    children.push_back(std::make_unique<Issue>());
    children.push_back(MakeCertsToken());
    children.push_back(MakeCertsRevoke());
    return children;
  }
};

}  // namespace

std::unique_ptr<Command> MakeCerts() {
  return std::make_unique<Certs>();
}

}  // namespace heddle::cli
