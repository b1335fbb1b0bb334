/// \file
/// The operators of a job as one kind of worker computes them, and the comparison of two kinds: the
/// arithmetic of a mixed job is only as good as that of its worst library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/job/job.h"
#include "engine/runtime/compare/operator_runs.h"

namespace heddle::evaluate {

/// What one kind of worker computes of a job's operators.
struct OperatorReport {
  std::string kind;  ///< The device and its libraries (runtime::Device::arithmetic).
  std::string job;   ///< Name of the job.
  std::vector<runtime::OperatorRun> runs;
};

/// Runs the operators of the job's training graph on the device named `device` (OpenDevice), with
/// `threads` threads. Errors: those of BuildTrainingGraph, OpenDevice and RunOperators.
Result<OperatorReport> ReportOperators(const job::JobConfig& job,
                                       std::string_view device,
                                       int threads);

std::string OperatorReportToJson(const OperatorReport& report);
/// Errors: kInvalidArgument (not such a report, or one of another version).
Result<OperatorReport> OperatorReportFromJson(std::string_view json);

/// An output of an operator on two kinds of worker. Errors are in units of rounding of the coarsest
/// type that the operator reads or writes.
struct OperatorComparison {
  std::string op = {};
  std::string signature = {};
  int output = 0;
  double first_error = 0;        ///< Root mean square against fp64, of the first kind.
  double second_error = 0;       ///< Root mean square against fp64, of the second kind.
  double difference = 0;         ///< Largest difference between the two, of the elements kept.
  bool same_bits = false;        ///< All elements are equal, bit for bit.
  std::string first_fault = {};  ///< Why the first kind's operator is wrong; empty: it is not.
  std::string second_fault = {};
};

/// Compares two reports output by output, in the order of the first. An operator is wrong if it
/// gives elements that are not finite, if its error or its bias is beyond what rounding explains,
/// or if its error is far beyond the other kind's. If the fp64 values differ, both are wrong, since
/// nothing says which. Errors: kInvalidArgument (reports of different operators or shapes).
Result<std::vector<OperatorComparison>> CompareReports(const OperatorReport& first,
                                                       const OperatorReport& second);

}  // namespace heddle::evaluate
