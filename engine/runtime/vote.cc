#include "engine/runtime/vote.h"

#include <array>
#include <cmath>
#include <map>
#include <optional>

namespace heddle::runtime {

namespace {

// Bit i of a record's flags is member i.
constexpr std::array<bool VoteFlags::*, 4> kFlags = {
    &VoteFlags::stop, &VoteFlags::saving, &VoteFlags::replicating, &VoteFlags::unreplicated};

uint8_t EncodeFlags(const VoteFlags& flags) {
  unsigned bits = 0;
  for (size_t i = 0; i < kFlags.size(); ++i) {
    bits |= flags.*kFlags[i] ? 1U << i : 0U;
  }
  return static_cast<uint8_t>(bits);
}

void AddFlags(uint8_t bits, VoteFlags& flags) {
  for (size_t i = 0; i < kFlags.size(); ++i) {
    flags.*kFlags[i] = flags.*kFlags[i] || (bits >> i & 1U) != 0;
  }
}

}  // namespace

Bytes EncodeVote(const VoteRecord& record) {
  ByteWriter out;
  out.Put(record.step);
  out.Put(EncodeFlags(record.flags));
  out.Put(static_cast<uint32_t>(record.norms.size()));
  for (const auto& norm : record.norms) {
    out.Put(norm.parameter);
    out.Put(norm.leaf);
    out.Put(norm.elements);
    out.Put(norm.sum_of_squares);
  }
  out.Put(static_cast<uint32_t>(record.losses.size()));
  for (const auto& loss : record.losses) {
    out.Put(loss.microbatch);
    out.Put(loss.loss);
  }
  return out.Take();
}

Result<VoteRecord> DecodeVote(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  VoteRecord record;
  HEDDLE_ASSIGN_OR_RETURN(record.step, in.Get<int64_t>());
  HEDDLE_ASSIGN_OR_RETURN(const auto flags, in.Get<uint8_t>());
  AddFlags(flags, record.flags);
  HEDDLE_ASSIGN_OR_RETURN(const auto norms, in.Get<uint32_t>());
  for (uint32_t i = 0; i < norms; ++i) {
    VoteRecord::Norm norm;
    HEDDLE_ASSIGN_OR_RETURN(norm.parameter, in.Get<int32_t>());
    HEDDLE_ASSIGN_OR_RETURN(norm.leaf, in.Get<int64_t>());
    HEDDLE_ASSIGN_OR_RETURN(norm.elements, in.Get<int64_t>());
    HEDDLE_ASSIGN_OR_RETURN(norm.sum_of_squares, in.Get<double>());
    record.norms.push_back(norm);
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto losses, in.Get<uint32_t>());
  for (uint32_t i = 0; i < losses; ++i) {
    VoteRecord::Loss loss;
    HEDDLE_ASSIGN_OR_RETURN(loss.microbatch, in.Get<int32_t>());
    HEDDLE_ASSIGN_OR_RETURN(loss.loss, in.Get<double>());
    record.losses.push_back(loss);
  }
  if (in.left() != 0) {
    return DataLossError("vote record has {} bytes too many", in.left());
  }
  return record;
}

namespace {

/// The sums of squares of the parts of each parameter, and the elements that they are of.
class Norms {
 public:
  explicit Norms(std::span<const int64_t> elements)
      : elements_(elements),
        counted_(elements.size(), 0),
        sums_(elements.size()) {}

  Status Add(const VoteRecord::Norm& norm) {
    const auto index = static_cast<size_t>(norm.parameter);
    if (norm.parameter < 0 || index >= elements_.size()) {
      return InternalError("parameter {} does not exist and was voted for", norm.parameter);
    }
    if (norm.elements < 0 || norm.elements > elements_[index] - counted_[index]) {
      return InternalError("parameter {} has {} elements, and more were voted for", norm.parameter,
                           elements_[index]);
    }
    counted_[index] += norm.elements;
    if (!sums_[index].emplace(norm.leaf, norm.sum_of_squares).second) {
      return InternalError("part {} of parameter {} was voted for twice", norm.leaf,
                           norm.parameter);
    }
    return Status::Ok();
  }

  /// In the order of the parameters, and of the parts of each, whoever has reported them.
  Result<double> Sum() const {
    double sum = 0;
    for (size_t i = 0; i < elements_.size(); ++i) {
      if (counted_[i] != elements_[i]) {
        return InternalError("parameter {} has {} elements, and {} were voted for", i, elements_[i],
                             counted_[i]);
      }
      double of_parameter = 0;
      for (const auto& [leaf, part] : sums_[i]) {
        of_parameter += part;
      }
      sum += of_parameter;
    }
    return sum;
  }

 private:
  const std::span<const int64_t> elements_;
  std::vector<int64_t> counted_;
  std::vector<std::map<int64_t, double>> sums_;  // By parameter, by part.
};

}  // namespace

Result<VoteOutcome> DecideVote(const std::vector<VoteRecord>& records,
                               std::span<const int64_t> elements,
                               int microbatches) {
  Norms norms(elements);
  std::vector<std::optional<double>> losses(static_cast<size_t>(microbatches));
  VoteOutcome outcome;
  for (const VoteRecord& record : records) {
    if (record.step != records.front().step) {
      return InternalError("votes of steps {} and {} met", records.front().step, record.step);
    }
    AddFlags(EncodeFlags(record.flags), outcome.flags);
    for (const auto& norm : record.norms) {
      HEDDLE_RETURN_IF_ERROR(norms.Add(norm));
    }
    for (const auto& loss : record.losses) {
      const auto index = static_cast<size_t>(loss.microbatch);
      if (loss.microbatch < 0 || index >= losses.size() || losses[index]) {
        return InternalError("microbatch {} was voted twice or does not exist", loss.microbatch);
      }
      losses[index] = loss.loss;
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const double sum_of_squares, norms.Sum());
  for (size_t i = 0; i < losses.size(); ++i) {
    if (!losses[i]) {
      return InternalError("nobody voted for microbatch {}", i);
    }
    outcome.loss += *losses[i];
  }
  outcome.gradient_norm = std::sqrt(sum_of_squares);
  outcome.finite = std::isfinite(outcome.gradient_norm) && std::isfinite(outcome.loss);
  return outcome;
}

}  // namespace heddle::runtime
