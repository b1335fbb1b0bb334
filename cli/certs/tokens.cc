#include "cli/certs/tokens.h"

#include <cstdio>

#include "cli/coordinator/coordinator_arguments.h"
#include "cli/option_number.h"
#include "cli/output.h"
#include "elastic/control/admission.h"
#include "elastic/identity/join_token.h"

namespace heddle::cli {
namespace {

class Token : public Command {
 public:
  std::string name() const override { return "token"; }
  std::string summary() const override {
    return "Make a token that workers join with, and print it: nobody can show it again";
  }
  std::string examples() const override {
    return "Examples:\n  heddle certs token --name gpu-7 --coordinator 10.0.0.1:4600 --certs "
           "lab/operator\n"
           "  heddle certs token --name 'gpu-*' --uses 8 --life 1h --coordinator 10.0.0.1:4600 "
           "--certs lab/operator";
  }
  void Declare(Arguments& arguments) override {
    arguments.Option(
        "name", &names_,
        "Name of the worker, or of several: '*' stands for any characters, '?' for one", true);
    arguments.Option("role", &role_, "What it admits: worker [worker]");
    arguments.Option("life", &life_, "How long it may be used [1h]");
    arguments.Option("uses", &uses_, "How many times it may be used [1]");
    coordinator_.Declare(arguments, kRunOfNewest);
  }
  int Run() override {
    if (!role_.empty() && role_ != "worker") {
      return Report(InvalidArgumentError(
          "--role: a token admits workers, got '{}': other certificates are made by `heddle certs "
          "issue`",
          role_));
    }
    const auto life =
        ParseLife("life", life_.empty() ? "1h" : life_,
                  std::chrono::seconds(static_cast<int64_t>(elastic::kMaxGrantSeconds)));
    const auto uses = ParseOption("uses", uses_.empty() ? "1" : uses_, 1, elastic::kMaxUses);
    if (!life.ok() || !uses.ok()) {
      return Report(life.ok() ? uses.status() : life.status());
    }
    const auto client = coordinator_.Connect();
    if (!client.ok()) {
      return Report(client.status());
    }
    if (coordinator_.authority().empty()) {
      return Report(InvalidArgumentError("--certs: give the folder of an operator's certificate"));
    }
    const auto token = elastic::DrawJoinToken(coordinator_.authority());
    if (!token.ok()) {
      return Report(token.status());
    }
    const Status added = (*client)->AddToken(elastic::HashOfSecret(token->secret), names_,
                                             static_cast<double>(life->count()), *uses);
    if (!added.ok()) {
      return ReportCall(added, coordinator_.address());
    }
    std::printf("%s\n", elastic::JoinTokenText(*token).c_str());
    return kDone;
  }

 private:
  std::string names_;
  std::string role_;
  std::string life_;
  std::string uses_;
  CoordinatorArguments coordinator_;
};

class Revoke : public Command {
 public:
  std::string name() const override { return "revoke"; }
  std::string summary() const override {
    return "Have the certificates that a worker has now count no more; the job goes on without it";
  }
  std::string examples() const override {
    return "Examples:\n  heddle certs revoke gpu-7 --coordinator 10.0.0.1:4600 --certs "
           "lab/operator";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("NAME", &worker_, "Name of the worker");
    coordinator_.Declare(arguments, kRunOfNewest);
  }
  int Run() override {
    const auto client = coordinator_.Connect();
    if (!client.ok()) {
      return Report(client.status());
    }
    return ReportCall((*client)->Revoke(worker_), coordinator_.address());
  }

 private:
  std::string worker_;
  CoordinatorArguments coordinator_;
};

}  // namespace

std::unique_ptr<Command> MakeCertsToken() {
  return std::make_unique<Token>();
}
std::unique_ptr<Command> MakeCertsRevoke() {
  return std::make_unique<Revoke>();
}

}  // namespace heddle::cli
