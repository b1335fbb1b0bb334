#include "engine/evaluate/operator_report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/format/strict_json.h"
#include "engine/graph/models/model.h"
#include "engine/runtime/device/blas.h"
#include "engine/runtime/device/device.h"

namespace heddle::evaluate {
namespace {

using runtime::OperatorRun;

constexpr int kVersion = 1;
constexpr int kMaxDepth = 8;

/// "blas openblas-openmp 0.3.21, libtorch 1.13.0, …".
std::string TextOf(const runtime::Arithmetic& arithmetic) {
  std::string text;
  for (const auto& [part, value] : arithmetic) {
    text += (text.empty() ? "" : ", ") + part + " " + value;
  }
  return text;
}

/// The largest relative error of rounding to the nearest number of the type.
double UnitOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return std::ldexp(1.0, -8);
    case DType::kF16:
      return std::ldexp(1.0, -11);
    case DType::kF64:
      return std::ldexp(1.0, -53);
    default:
      return std::ldexp(1.0, -24);
  }
}

/// What rounding explains: an operator rounds its operands' type a few times, and the sums that it
/// makes in the wide type once a term, whose errors add up like a random walk.
struct Allowed {
  Allowed(const OperatorRun& run, DType dtype) {
    const double wide = UnitOf(run.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
    unit = std::max(UnitOf(dtype), wide);
    const double sums = std::sqrt(std::max(run.terms, 1.0)) * wide;
    mean = 3 * unit + 2 * sums;
    largest = 24 * unit + 16 * sums;
    slope =
        8 * unit / std::sqrt(static_cast<double>(std::max<int64_t>(run.elements, 1))) + 4 * sums;
  }
  double unit = 0;
  double mean = 0;
  double largest = 0;
  double slope = 0;
};

/// Why the output is wrong, from its own figures; empty: rounding explains them.
std::string OwnFault(const OperatorRun& run) {
  const Allowed allowed(run, run.dtype);
  if (run.not_finite > 0) {
    return fmt::format("{} of {} elements are not finite", run.not_finite, run.elements);
  }
  if (!(run.largest_error <= allowed.largest)) {
    return fmt::format("an element is off by {:.2g}, rounding explains {:.2g}", run.largest_error,
                       allowed.largest);
  }
  if (!(run.mean_error <= allowed.mean)) {
    return fmt::format("elements are off by {:.2g} on average, rounding explains {:.2g}",
                       run.mean_error, allowed.mean);
  }
  if (!(std::abs(run.slope) <= allowed.slope)) {
    return fmt::format("all elements are too {} by {:.2g}, rounding explains {:.2g}",
                       run.slope > 0 ? "large" : "small", std::abs(run.slope), allowed.slope);
  }
  return "";
}

/// Why the output is wrong beside the other kind's; empty: it is about as exact. Where the other
/// is as exact as the output's own type allows, so must this one be: a statistic in fp32 of bf16
/// values.
std::string FaultBeside(const OperatorRun& run, const OperatorRun& other) {
  constexpr double kFarBeyond = 2.5;
  const Allowed fine(other, other.type);
  const double unit = other.mean_error <= fine.mean ? fine.unit : UnitOf(run.dtype);
  const bool worse = run.mean_error > kFarBeyond * other.mean_error + unit;
  return worse ? fmt::format("its error is {:.2g}, the other's {:.2g}", run.mean_error,
                             other.mean_error)
               : "";
}

/// The root mean square of the values.
double SizeOfValues(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) {
    sum += value * value;
  }
  const double size = std::sqrt(sum / static_cast<double>(std::max<size_t>(values.size(), 1)));
  return size > 0 ? size : 1;
}

/// The largest difference of two elements at the same place, relative as an element's error is.
double LargestDifference(const std::vector<double>& a, const std::vector<double>& b) {
  const double size = SizeOfValues(a);
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / (std::abs(a[i]) + size));
  }
  return largest;
}

OperatorComparison CompareRuns(const OperatorRun& a, const OperatorRun& b) {
  const double unit = UnitOf(a.dtype);
  OperatorComparison comparison{.op = a.op,
                                .signature = a.signature,
                                .output = a.output,
                                .first_error = a.mean_error / unit,
                                .second_error = b.mean_error / unit,
                                .difference = LargestDifference(a.values, b.values) / unit,
                                .same_bits = a.bits == b.bits,
                                .first_fault = OwnFault(a),
                                .second_fault = OwnFault(b)};
  // Two libraries' fp64 may round differently, by far less than this.
  constexpr double kSameInFp64 = 1e-9;
  if (!(LargestDifference(a.exact, b.exact) <= kSameInFp64)) {
    comparison.first_fault = comparison.second_fault = "the two kinds differ in fp64 itself";
  }
  if (comparison.first_fault.empty()) {
    comparison.first_fault = FaultBeside(a, b);
  }
  if (comparison.second_fault.empty()) {
    comparison.second_fault = FaultBeside(b, a);
  }
  return comparison;
}

/// JSON has no infinity: it is written as null.
double NumberOf(const nlohmann::json& json) {
  return json.is_null() ? std::numeric_limits<double>::infinity() : json.get<double>();
}

std::vector<double> NumbersOf(const nlohmann::json& json) {
  std::vector<double> numbers;
  for (const nlohmann::json& number : json) {
    numbers.push_back(NumberOf(number));
  }
  return numbers;
}

nlohmann::ordered_json JsonOf(const OperatorRun& run) {
  return {{"signature", run.signature},
          {"op", run.op},
          {"output", run.output},
          {"dtype", DTypeName(run.dtype)},
          {"type", DTypeName(run.type)},
          {"elements", run.elements},
          {"terms", run.terms},
          {"mean_error", run.mean_error},
          {"largest_error", run.largest_error},
          {"slope", run.slope},
          {"not_finite", run.not_finite},
          {"bits", run.bits},
          {"values", run.values},
          {"exact", run.exact}};
}

Result<OperatorRun> RunFromJson(const nlohmann::json& json) {
  OperatorRun run{.signature = json.at("signature").get<std::string>(),
                  .op = json.at("op").get<std::string>(),
                  .output = json.at("output").get<int>()};
  HEDDLE_ASSIGN_OR_RETURN(run.dtype, ParseDType(json.at("dtype").get<std::string>()));
  HEDDLE_ASSIGN_OR_RETURN(run.type, ParseDType(json.at("type").get<std::string>()));
  run.elements = json.at("elements").get<int64_t>();
  run.terms = NumberOf(json.at("terms"));
  run.mean_error = NumberOf(json.at("mean_error"));
  run.largest_error = NumberOf(json.at("largest_error"));
  run.slope = NumberOf(json.at("slope"));
  run.not_finite = json.at("not_finite").get<int64_t>();
  run.bits = json.at("bits").get<std::string>();
  run.values = NumbersOf(json.at("values"));
  run.exact = NumbersOf(json.at("exact"));
  return run;
}

}  // namespace

Result<OperatorReport> ReportOperators(const job::JobConfig& job,
                                       std::string_view device,
                                       int threads) {
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<runtime::Device> opened,
                          runtime::OpenDevice(device, {}));
  graph::TrainingGraphOptions options = job::GraphOptions(job);
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph graph, graph::BuildTrainingGraph(job.model, options));
  options.compute = DType::kF64;
  HEDDLE_ASSIGN_OR_RETURN(const graph::Graph exact, graph::BuildTrainingGraph(job.model, options));
  runtime::SetThreads(threads);
  HEDDLE_ASSIGN_OR_RETURN(std::vector<OperatorRun> runs,
                          runtime::RunOperators(graph, &exact, job.model.vocab_size, *opened));
  return OperatorReport{
      .kind = TextOf(opened->arithmetic()), .job = job.name, .runs = std::move(runs)};
}

std::string OperatorReportToJson(const OperatorReport& report) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (const OperatorRun& run : report.runs) {
    runs.push_back(JsonOf(run));
  }
  const nlohmann::ordered_json json = {{"operator_report", kVersion},
                                       {"kind", report.kind},
                                       {"job", report.job},
                                       {"runs", std::move(runs)}};
  return json.dump() + "\n";
}

Result<OperatorReport> OperatorReportFromJson(std::string_view json) {
  const Result<nlohmann::json> read = checkpoint::ParseStrictJson(json, kMaxDepth);
  if (!read.ok()) {
    return InvalidArgumentError("no report of operators: {}", read.status().message());
  }
  OperatorReport report;
  try {
    const int version = read->at("operator_report").get<int>();
    if (version != kVersion) {
      return InvalidArgumentError("operator_report is {}, this program reads {}", version,
                                  kVersion);
    }
    report.kind = read->at("kind").get<std::string>();
    report.job = read->at("job").get<std::string>();
    for (const nlohmann::json& run : read->at("runs")) {
      HEDDLE_ASSIGN_OR_RETURN(report.runs.emplace_back(), RunFromJson(run));
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgumentError("no report of operators: {}", error.what());
  }
  return report;
}

Result<std::vector<OperatorComparison>> CompareReports(const OperatorReport& first,
                                                       const OperatorReport& second) {
  std::vector<OperatorComparison> comparisons;
  for (size_t i = 0; i < first.runs.size(); ++i) {
    const OperatorRun& a = first.runs[i];
    if (i >= second.runs.size() || second.runs[i].signature != a.signature ||
        second.runs[i].output != a.output || second.runs[i].elements != a.elements ||
        second.runs[i].values.size() != a.values.size() ||
        second.runs[i].exact.size() != a.exact.size()) {
      return InvalidArgumentError(
          "the reports are of different jobs: only the first has output {} of {}", a.output,
          a.signature);
    }
    comparisons.push_back(CompareRuns(a, second.runs[i]));
  }
  if (second.runs.size() > first.runs.size()) {
    return InvalidArgumentError("the reports are of different jobs: only the second has {}",
                                second.runs[first.runs.size()].signature);
  }
  return comparisons;
}

}  // namespace heddle::evaluate
