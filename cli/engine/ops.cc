#include <cstdio>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/system/file.h"
#include "base/thread.h"
#include "cli/engine/engine.h"
#include "cli/engine_commands.h"
#include "cli/output.h"
#include "engine/evaluate/operator_report.h"

namespace heddle::cli {
namespace {

constexpr int64_t kMaxReportBytes = int64_t{64} << 20;

class OpsRun : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string summary() const override {
    return "Run every operator of a job on this machine, beside fp64";
  }
  std::string examples() const override {
    return "Examples:\n"
           "  heddle ops run job.yaml --out here.json\n"
           "  heddle ops run job.yaml --set precision=bf16 --out here.json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("JOB", &path_, "Job file (YAML)");
    arguments.OptionList("set", &overrides_, "Override a key: key.path=value; may be repeated");
    arguments.Option("device", &device_,
                     "What to run them on: cpu, cuda, cuda:N or auto [what the job says]");
    arguments.Option("out", &out_, "The report, for heddle ops compare", true);
  }
  int Run() override {
    const Status status = Write();
    return status.ok() ? kDone : Report(status);
  }

 private:
  Status Write() const {
    HEDDLE_ASSIGN_OR_RETURN(const job::JobConfig job, job::LoadJob(path_, overrides_));
    HEDDLE_ASSIGN_OR_RETURN(
        const evaluate::OperatorReport report,
        evaluate::ReportOperators(job, device_.empty() ? job.device : device_, Cores()));
    return WriteFileAtomically(out_, evaluate::OperatorReportToJson(report));
  }

  std::string path_;
  std::vector<std::string> overrides_;
  std::string device_;
  std::string out_;
};

class OpsCompare : public Command {
 public:
  std::string name() const override { return "compare"; }
  std::string summary() const override {
    return "Compare two reports: 0 both are right, 1 an operator is wrong, 2 not reports of one "
           "job";
  }
  std::string examples() const override {
    return "Examples:\n  heddle ops compare here.json there.json --json";
  }
  void Declare(Arguments& arguments) override {
    arguments.Positional("A", &a_, "A report of heddle ops run");
    arguments.Positional("B", &b_, "Another, of the same job on another kind of worker");
    arguments.Flag("json", &json_, "One JSON object on standard output");
  }
  int Run() override {
    const Result<Reports> reports = Read();
    if (!reports.ok()) {
      Report(reports.status());
      return kBadUsage;  // Code 1 means that an operator is wrong.
    }
    return json_ ? PrintJson(*reports) : PrintText(*reports);
  }

 private:
  struct Reports {
    evaluate::OperatorReport a;
    evaluate::OperatorReport b;
    std::vector<evaluate::OperatorComparison> comparisons;
  };

  static Result<evaluate::OperatorReport> ReadReport(const std::string& path) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxReportBytes));
    Result<evaluate::OperatorReport> report = evaluate::OperatorReportFromJson(text);
    return report.ok() ? std::move(report) : report.status().WithContext("{}", path);
  }

  Result<Reports> Read() const {
    Reports reports;
    HEDDLE_ASSIGN_OR_RETURN(reports.a, ReadReport(a_));
    HEDDLE_ASSIGN_OR_RETURN(reports.b, ReadReport(b_));
    HEDDLE_ASSIGN_OR_RETURN(reports.comparisons, evaluate::CompareReports(reports.a, reports.b));
    return reports;
  }

  static int PrintJson(const Reports& reports) {
    int code = kDone;
    nlohmann::ordered_json operators = nlohmann::ordered_json::array();
    for (const evaluate::OperatorComparison& each : reports.comparisons) {
      operators.push_back({{"op", each.op},
                           {"signature", each.signature},
                           {"output", each.output},
                           {"error_a", each.first_error},
                           {"error_b", each.second_error},
                           {"difference", each.difference},
                           {"same_bits", each.same_bits},
                           {"fault_a", each.first_fault},
                           {"fault_b", each.second_fault}});
      code = each.first_fault.empty() && each.second_fault.empty() ? code : kFailed;
    }
    const nlohmann::ordered_json json = {
        {"a", reports.a.kind}, {"b", reports.b.kind}, {"operators", std::move(operators)}};
    std::printf("%s\n", json.dump().c_str());
    return code;
  }

  static int PrintText(const Reports& reports) {
    std::printf("A: %s\nB: %s\n", reports.a.kind.c_str(), reports.b.kind.c_str());
    std::printf("Errors against fp64 and the largest difference, in units of rounding:\n");
    std::printf("%-30s %9s %9s %11s\n", "OPERATOR", "A", "B", "DIFFERENCE");
    int wrong = 0;
    for (const evaluate::OperatorComparison& each : reports.comparisons) {
      const std::string op = each.op + (each.output > 0 ? " " + std::to_string(each.output) : "");
      std::printf("%-30s %9.3g %9.3g %11s\n", op.c_str(), each.first_error, each.second_error,
                  each.same_bits ? "same bits" : fmt::format("{:.3g}", each.difference).c_str());
      wrong += PrintFault("A", each.first_fault, each) + PrintFault("B", each.second_fault, each);
    }
    std::printf("%s\n",
                wrong == 0 ? "no operator is wrong" : fmt::format("{} wrong", wrong).c_str());
    return wrong == 0 ? kDone : kFailed;
  }

  static int PrintFault(const char* which,
                        const std::string& fault,
                        const evaluate::OperatorComparison& each) {
    if (!fault.empty()) {
      std::printf("  wrong on %s: %s; %s\n", which, fault.c_str(), each.signature.c_str());
    }
    return fault.empty() ? 0 : 1;
  }

  std::string a_;
  std::string b_;
  bool json_ = false;
};

class Ops : public Command {
 public:
  std::string name() const override { return std::string(kOpsCommand.name); }
  std::string summary() const override { return std::string(kOpsCommand.summary); }
  std::string examples() const override { return ""; }
  void Declare(Arguments& /*arguments*/) override {}
  int Run() override { return kBadUsage; }
  std::vector<std::unique_ptr<Command>> Children() override {
    std::vector<std::unique_ptr<Command>> children;
    children.push_back(std::make_unique<OpsRun>());
    children.push_back(std::make_unique<OpsCompare>());
    return children;
  }
};

}  // namespace

std::unique_ptr<Command> MakeOps() {
  return std::make_unique<Ops>();
}

}  // namespace heddle::cli
