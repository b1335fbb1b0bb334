#include "engine/graph/ops/support.h"

namespace heddle::graph {
namespace {

bool IsFloating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kF64;
}

}  // namespace

Status CheckCount(std::string_view op,
                  std::span<const TensorType> inputs,
                  size_t least,
                  size_t most) {
  if (inputs.size() >= least && inputs.size() <= most) {
    return Status::Ok();
  }
  return InvalidArgumentError("{}: {} inputs, expected {}{}", op, inputs.size(), least,
                              least == most ? "" : fmt::format(" to {}", most));
}

Status CheckFloating(std::string_view op,
                     std::string_view what,
                     const TensorType& type,
                     size_t least_rank) {
  if (IsFloating(type.dtype) && type.shape.size() >= least_rank) {
    return Status::Ok();
  }
  return InvalidArgumentError("{}: {} is {}, expected floating point of at least {} dimensions", op,
                              what, ToString(type), least_rank);
}

Status CheckRank(std::string_view op, std::string_view what, const TensorType& type, size_t rank) {
  if (IsFloating(type.dtype) && type.shape.size() == rank) {
    return Status::Ok();
  }
  return InvalidArgumentError("{}: {} is {}, expected floating point of {} dimensions", op, what,
                              ToString(type), rank);
}

Status CheckType(std::string_view op,
                 std::string_view what,
                 const TensorType& type,
                 const TensorType& expected,
                 std::string_view reference_name,
                 const TensorType& reference) {
  if (type == expected) {
    return Status::Ok();
  }
  return InvalidArgumentError("{}: {} is {}, expected {} to fit {} {}", op, what, ToString(type),
                              ToString(expected), reference_name, ToString(reference));
}

TensorType StatisticsType(const TensorType& x) {
  return {.dtype = MasterType(x.dtype), .shape = {x.shape.begin(), x.shape.end() - 1}};
}

TensorType FeatureType(const TensorType& x) {
  return {.dtype = MasterType(x.dtype), .shape = {x.shape.back()}};
}

double AttendedPairs(int64_t length) {
  constexpr int64_t kBlockRows = 32;
  const int64_t blocks = length / kBlockRows;
  const int64_t rest = length % kBlockRows;
  const int64_t pairs_of_blocks = blocks * (blocks + 1) / 2;
  return static_cast<double>(kBlockRows * kBlockRows) * static_cast<double>(pairs_of_blocks) +
         static_cast<double>(rest) * static_cast<double>(length);
}

double TotalBytes(std::span<const TensorType> types) {
  double bytes = 0;
  for (const TensorType& type : types) {
    bytes += static_cast<double>(type.bytes());
  }
  return bytes;
}

Cost ElementwiseCost(std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs,
                     double flops_per_element) {
  return {.flops = flops_per_element * static_cast<double>(ElementCount(outputs[0].shape)),
          .bytes = TotalBytes(inputs) + TotalBytes(outputs)};
}

Status ContributeNode(GradientBuilder& builder,
                      int i,
                      std::string_view op,
                      std::vector<TensorId> inputs,
                      Attributes attributes,
                      Phase phase) {
  if (!builder.Wanted(i)) {
    return Status::Ok();
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto outputs,
                          builder.Apply(op, std::move(inputs), std::move(attributes), phase));
  return builder.Contribute(i, outputs.front());
}

RuleList::RuleList(size_t inputs, size_t outputs) {
  Add(std::vector<Placement>(inputs), std::vector<Placement>(outputs));
}

RuleList& RuleList::Add(std::vector<Placement> inputs,
                        std::vector<Placement> outputs,
                        std::vector<std::string> scaled,
                        std::vector<std::string> first,
                        std::map<std::string, int64_t> given) {
  rules_.push_back({.inputs = std::move(inputs),
                    .outputs = std::move(outputs),
                    .scaled = std::move(scaled),
                    .first = std::move(first),
                    .given = std::move(given)});
  return *this;
}

}  // namespace heddle::graph
