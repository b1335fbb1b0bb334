#include "engine/runtime/vote.h"

#include <array>
#include <cmath>
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

Result<VoteOutcome> DecideVote(const std::vector<VoteRecord>& records,
                               int parameters,
                               int microbatches) {
  std::vector<std::optional<double>> norms(static_cast<size_t>(parameters));
  std::vector<std::optional<double>> losses(static_cast<size_t>(microbatches));
  VoteOutcome outcome;
  auto put = [](std::vector<std::optional<double>>& values, int32_t index, double value) {
    if (index < 0 || static_cast<size_t>(index) >= values.size() ||
        values[static_cast<size_t>(index)]) {
      return false;
    }
    values[static_cast<size_t>(index)] = value;
    return true;
  };
  for (const VoteRecord& record : records) {
    if (record.step != records.front().step) {
      return InternalError("votes of steps {} and {} met", records.front().step, record.step);
    }
    AddFlags(EncodeFlags(record.flags), outcome.flags);
    for (const auto& norm : record.norms) {
      if (!put(norms, norm.parameter, norm.sum_of_squares)) {
        return InternalError("parameter {} was voted twice or does not exist", norm.parameter);
      }
    }
    for (const auto& loss : record.losses) {
      if (!put(losses, loss.microbatch, loss.loss)) {
        return InternalError("microbatch {} was voted twice or does not exist", loss.microbatch);
      }
    }
  }
  double sum_of_squares = 0;
  for (size_t i = 0; i < norms.size(); ++i) {
    if (!norms[i]) {
      return InternalError("nobody voted for parameter {}", i);
    }
    sum_of_squares += *norms[i];
  }
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
