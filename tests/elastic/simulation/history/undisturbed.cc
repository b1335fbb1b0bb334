#include "tests/elastic/simulation/history/undisturbed.h"

#include <limits>
#include <string>

#include <fmt/format.h>

#include "base/hash.h"

namespace heddle::elastic {

bool Undisturbed::Refused(int64_t step) const {
  return refused_every_ > 0 && step % refused_every_ == 0;
}

double Undisturbed::Norm(int64_t step) const {
  if (Refused(step) && step / refused_every_ % 2 == 1) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return 1.0 + 0.001 * static_cast<double>(Hash64(std::to_string(step)) % 1000);
}

double Undisturbed::Loss(int64_t step) const {
  return Refused(step) ? std::numeric_limits<double>::quiet_NaN()
                       : 5.0 / (1.0 + 0.1 * static_cast<double>(step));
}

uint64_t Undisturbed::Chain(int64_t step) const {
  while (static_cast<int64_t>(chains_.size()) <= step) {
    const auto k = static_cast<int64_t>(chains_.size());
    chains_.push_back(Refused(k) ? chains_.back() : NextChain(chains_.back(), k, Norm(k)));
  }
  return chains_[static_cast<size_t>(step)];
}

wire::StepRecord Undisturbed::Record(int64_t step, int64_t generation) const {
  wire::StepRecord record;
  record.set_step(step);
  record.set_generation(generation);
  record.set_loss(Loss(step));
  record.set_gradient_norm(Norm(step));
  record.set_not_finite(Refused(step));
  record.set_tokens(100);
  record.set_seconds(0.05);
  record.set_first_sample((step - 1) * 8);
  record.set_samples(8);
  return record;
}

uint64_t NextChain(uint64_t chain, int64_t step, double norm) {
  return Hash64(fmt::format("{} {}", step, norm), chain);
}

double SimValidation(int64_t step, int64_t generation) {
  return static_cast<double>(step) + static_cast<double>(generation) / 1024;
}

}  // namespace heddle::elastic
