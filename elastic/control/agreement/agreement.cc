#include "elastic/control/agreement/agreement.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace heddle::elastic {
namespace {

// Steps whose certificates are kept; members are at most one step apart.
constexpr size_t kMaxSteps = 4;

// Workers by the value that they report of one thing.
using Opinions = std::map<uint64_t, std::vector<std::string>>;

class Finder {
 public:
  void Name(const std::string& worker, const std::string& what) {
    found_.workers.insert(worker);
    Note(what);
  }
  // The workers of the majority, empty if there is none; nullopt if all report the same value.
  // `witnesses`: of whom it has most, too, if any reports.
  std::optional<std::set<std::string>> Weigh(const Opinions& opinions,
                                             const std::string& subject,
                                             const std::set<std::string>& witnesses = {}) {
    if (opinions.size() < 2) {
      return std::nullopt;
    }
    const auto among = [&](const std::vector<std::string>& workers) {
      return std::ranges::count_if(workers,
                                   [&](const auto& name) { return witnesses.count(name) > 0; });
    };
    size_t all = 0;
    std::ptrdiff_t all_witnesses = 0;
    const std::vector<std::string>* most = &opinions.begin()->second;
    for (const auto& [opinion, workers] : opinions) {
      all += workers.size();
      all_witnesses += among(workers);
      most = workers.size() > most->size() ? &workers : most;
    }
    const bool majority =
        2 * most->size() > all && (all_witnesses == 0 || 2 * among(*most) > all_witnesses);
    std::string sides;
    for (const auto& [opinion, workers] : opinions) {
      sides += fmt::format("{}{:016x} at {}", sides.empty() ? "" : ", ", opinion,
                           fmt::join(workers, " "));
      if (!majority || &workers != most) {
        found_.workers.insert(workers.begin(), workers.end());
      }
    }
    found_.decided = found_.decided && majority;
    Note(subject + ": " + sides);
    return majority ? std::set<std::string>(most->begin(), most->end()) : std::set<std::string>();
  }
  void WeighParameter(int32_t parameter,
                      const Opinions& opinions,
                      const std::set<std::string>& witnesses) {
    if (auto majority = Weigh(opinions, fmt::format("parameter {}", parameter), witnesses)) {
      found_.parameters[parameter] = *std::move(majority);
    }
  }
  std::optional<Disagreement> Take() {
    return found_.workers.empty() ? std::nullopt : std::optional(std::move(found_));
  }

 private:
  void Note(const std::string& what) {
    if (found_.what.empty()) {
      found_.what = what;
    }
  }

  Disagreement found_;
};

bool HoldsAsPlanned(const wire::Certificate& certificate, const std::vector<int32_t>& planned) {
  return certificate.digests_size() == certificate.parameters_size() &&
         std::equal(certificate.parameters().begin(), certificate.parameters().end(),
                    planned.begin(), planned.end());
}

}  // namespace

std::optional<Disagreement> FindDisagreement(const PlanOutcome& plan,
                                             int64_t step,
                                             const Certificates& said,
                                             const Witnesses& witnesses) {
  Finder finder;
  Opinions identities;
  std::map<int32_t, Opinions> digests;
  static const std::vector<int32_t> kNone;
  for (size_t rank = 0; rank < plan.members.size(); ++rank) {
    const std::string& name = plan.members[rank];
    const auto found = said.find(name);
    const std::vector<int32_t>& planned =
        rank < plan.parameters.size() ? plan.parameters[rank] : kNone;
    if (found == said.end() || found->second.step() != step) {
      finder.Name(name, fmt::format("{} holds the state after another step than {}", name, step));
    } else if (!HoldsAsPlanned(found->second, planned)) {
      finder.Name(name, fmt::format("{} holds other parameters than the plan gives it", name));
    } else {
      identities[found->second.identity()].push_back(name);
      for (size_t i = 0; i < planned.size(); ++i) {
        digests[planned[i]][found->second.digests(static_cast<int>(i))].push_back(name);
      }
    }
  }
  finder.Weigh(identities, "step, random streams or data");
  static const std::set<std::string> kNobody;
  for (const auto& [parameter, opinions] : digests) {
    const auto held = witnesses.find(parameter);
    finder.WeighParameter(parameter, opinions, held == witnesses.end() ? kNobody : held->second);
  }
  return finder.Take();
}

std::optional<Disagreement> Agreement::Take(const std::string& worker,
                                            const wire::Certificate& certificate,
                                            const DurableGeneration& held) {
  const int64_t step = certificate.step();
  if (step <= step_) {
    return std::nullopt;
  }
  Certificates& said = said_[step];
  said[worker] = certificate;
  if (said.size() < held.plan.members.size()) {
    if (said_.size() > kMaxSteps) {
      said_.erase(said_.begin());
    }
    return std::nullopt;
  }
  auto found = FindDisagreement(held.plan, step, said);
  said_.erase(said_.begin(), said_.upper_bound(step));
  if (!found) {
    step_ = step;
  }
  return found;
}

void Agreement::BeginGeneration(int64_t step) {
  step_ = step;
  said_.clear();
}

}  // namespace heddle::elastic
