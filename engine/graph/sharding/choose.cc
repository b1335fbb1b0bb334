#include "engine/graph/sharding/choose.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::graph {
namespace {

using Kind = Placement::Kind;

/// Whether each member that has a part in a partial tensor has addends of all its elements.
bool WholeAddends(const Sharding& sharding, const Shape& shape) {
  const Range whole{0, sharding.dim < 0 ? 1 : ExtentOf(shape, sharding.dim)};
  return std::ranges::all_of(sharding.held,
                             [&](const Range& range) { return range.empty() || range == whole; });
}

bool SameMembers(const Sharding& a, const Sharding& b) {
  return std::ranges::equal(a.held, b.held, {}, &Range::empty, &Range::empty);
}

/// Whether the addends become those of the wanted members when some of these add zeros.
bool Fills(const Sharding& version, const Sharding& wanted, const Shape& shape) {
  return version.partial() && version.op == wanted.op && wanted.op == ReduceOp::kSum &&
         WholeAddends(version, shape) &&
         std::ranges::equal(version.held, wanted.held, [](const Range& has, const Range& wants) {
           return has.empty() || !wants.empty();
         });
}

/// Whether a version already is what is wanted.
bool Serves(const Sharding& version, const Sharding& wanted, const Shape& shape) {
  if (wanted.partial() && version.partial()) {
    return version.op == wanted.op && WholeAddends(version, shape) && SameMembers(version, wanted);
  }
  return Alike(version, wanted);
}

/// Whether every member has what it wants of a value.
bool HoldsAll(const Sharding& version, const Sharding& wanted) {
  if (version.kind == Kind::kReplicate) {
    return true;
  }
  return version.kind == Kind::kShard && version.dim == wanted.dim &&
         std::ranges::equal(version.held, wanted.held, &Range::contains);
}

bool Scatters(const Sharding& version, const Sharding& wanted, const Shape& shape) {
  return version.partial() && version.op == ReduceOp::kSum &&
         (version.dim == wanted.dim || WholeAddends(version, shape));
}

Way WayToWhole(const Operand& operand) {
  const auto& versions = operand.versions;
  const auto value = std::ranges::find(versions, false, &Sharding::partial);
  if (value != versions.end()) {
    return {.form = ExchangeForm::kGather,
            .version = static_cast<size_t>(value - versions.begin()),
            .bytes = operand.type.bytes()};
  }
  return {.form = versions[0].op == ReduceOp::kSum ? ExchangeForm::kSum : ExchangeForm::kMax,
          .version = 0,
          .bytes = 2 * operand.type.bytes()};
}

double LargestShare(const Division& division) {
  int64_t most = division.shares.empty() ? division.units : 0;
  for (const Range& share : division.shares) {
    most = std::max(most, share.end - share.begin);
  }
  return static_cast<double>(most) / static_cast<double>(division.units);
}

bool IsCut(const Placement& placement) {
  return placement.kind == Kind::kShard && !placement.cover;
}

/// One operator's choice.
class Chooser {
 public:
  Chooser(std::span<const Operand> operands, std::span<const Target> targets)
      : operands_(operands),
        targets_(targets) {}

  /// Tries a rule with every division that an operand or a target suggests.
  void Consider(const ShardingRule& rule, size_t index);

  const std::optional<Choice>& best() const { return best_; }

 private:
  void Divide(const std::vector<Range>& held, int64_t extent, int64_t unit, int cut);
  void Suggest(const Placement& placement, const Shape& shape, const Sharding& sharding, bool adds);
  void Try(const ShardingRule& rule, size_t index, const Division& division);
  bool PriceInputs(Choice& choice) const;
  void PriceOutputs(Choice& choice) const;

  std::span<const Operand> operands_;
  std::span<const Target> targets_;
  std::vector<Division> divisions_;  ///< Suggested for the rule that is considered.
  std::optional<Choice> best_;
};

void Chooser::Divide(const std::vector<Range>& held, int64_t extent, int64_t unit, int cut) {
  Division division{.units = extent / unit, .cut = cut, .shares = {}};
  for (const Range& range : held) {
    if (range.begin % unit != 0 || range.end % unit != 0) {
      return;
    }
    division.shares.push_back({range.begin / unit, range.end / unit});
  }
  divisions_.push_back(std::move(division));
}

/// A tensor that is cut as the rule cuts it suggests its own cut. Where members have addends of the
/// same elements, or would have for what they share, each element goes to one of them.
void Chooser::Suggest(const Placement& placement,
                      const Shape& shape,
                      const Sharding& sharding,
                      bool adds) {
  if (sharding.kind == Kind::kReplicate || sharding.dim != placement.dim) {
    return;
  }
  const int64_t extent = ExtentOf(shape, placement.dim);
  const std::vector<Range> owned = OwnersOf(sharding.held);
  Divide(sharding.partial() || adds ? owned : sharding.held, extent, placement.unit, sharding.cut);
}

void Chooser::Consider(const ShardingRule& rule, size_t index) {
  divisions_.clear();
  bool divides = false;
  const bool adds = std::ranges::any_of(
      rule.outputs, [](const Placement& placement) { return placement.kind == Kind::kPartial; });
  Division adders{.units = 1, .shares = {}};  // Of all sums that the rule reads.
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Placement& placement = rule.inputs[i];
    divides = divides || placement.kind != Kind::kReplicate;
    for (const Sharding& version : operands_[i].versions) {
      if (IsCut(placement)) {
        Suggest(placement, operands_[i].type.shape, version, adds);
      } else if (placement.kind == Kind::kPartial && version.partial()) {
        adders.cut = version.cut;
        adders.shares.resize(version.held.size());
        for (size_t p = 0; p < version.held.size(); ++p) {
          adders.shares[p].end = version.held[p].empty() ? adders.shares[p].end : 1;
        }
      }
    }
  }
  if (!adders.shares.empty()) {
    divisions_.push_back(adders);
  }
  for (size_t o = 0; o < targets_.size(); ++o) {
    divides = divides || rule.outputs[o].kind != Kind::kReplicate;
    for (const auto& wanted : {targets_[o].placed, targets_[o].parameter}) {
      if (IsCut(rule.outputs[o]) && wanted) {
        Suggest(rule.outputs[o], targets_[o].type.shape, *wanted, adds);
      }
    }
  }
  if (!divides) {
    divisions_.emplace_back();
  }
  for (const Division& division : divisions_) {
    Try(rule, index, division);
  }
}

void Chooser::Try(const ShardingRule& rule, size_t index, const Division& division) {
  Choice choice{.rule = {}, .division = division, .inputs = {}, .outputs = {}, .price = {}};
  choice.price.largest = LargestShare(division);
  choice.price.rule = index;
  const bool all_run =
      std::ranges::none_of(division.shares, [](const Range& share) { return share.empty(); });
  const bool cuts =
      std::ranges::any_of(rule.inputs, IsCut) || std::ranges::any_of(rule.outputs, IsCut);
  for (size_t i = 0; i < operands_.size(); ++i) {
    const auto sharding = ShardingOf(rule.inputs[i], operands_[i].type.shape, division);
    if (!sharding) {
      return;
    }
    choice.inputs.push_back(*sharding);
  }
  for (size_t o = 0; o < targets_.size(); ++o) {
    const auto sharding = ShardingOf(rule.outputs[o], targets_[o].type.shape, division);
    // A member without a share computes no whole output, and no unit is twice in a sum.
    if (!sharding || (sharding->kind == Kind::kReplicate && !all_run) ||
        (sharding->partial() && cuts && !Tiles(division.shares, division.units))) {
      return;
    }
    choice.outputs.push_back(*sharding);
  }
  if (!PriceInputs(choice)) {
    return;
  }
  PriceOutputs(choice);
  if (!best_ || choice.price < best_->price) {
    best_ = std::move(choice);
  }
}

/// False: an input cannot be had. A cut parameter may be sliced further along its own dimension.
bool Chooser::PriceInputs(Choice& choice) const {
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    const auto way = WayTo(operand, choice.inputs[i]);
    if (!way) {
      return false;
    }
    choice.price.bytes += way->bytes;
    const Sharding& placed = operand.versions[0];
    const bool as_placed = placed.kind == choice.inputs[i].kind &&
                           placed.dim == choice.inputs[i].dim &&
                           (!way->form || way->form == ExchangeForm::kSlice);
    if (operand.parameter && !as_placed) {
      ++choice.price.misplaced;
    }
  }
  return true;
}

void Chooser::PriceOutputs(Choice& choice) const {
  for (size_t o = 0; o < targets_.size(); ++o) {
    const Target& target = targets_[o];
    const Sharding& output = choice.outputs[o];
    if (target.placed) {
      const auto way = WayTo({.type = target.type, .versions = {output}}, *target.placed);
      choice.price.bytes += way->bytes;
    }
    if (target.parameter && target.parameter->kind == Kind::kShard &&
        (output.kind != Kind::kShard || !HoldsAll(*target.parameter, output))) {
      ++choice.price.misplaced;
    }
  }
}

}  // namespace

std::optional<Way> WayTo(const Operand& operand, const Sharding& wanted) {
  const Shape& shape = operand.type.shape;
  std::optional<Way> direct;
  auto consider = [&](const Way& way) {
    if (!direct || way.bytes < direct->bytes) {
      direct = way;
    }
  };
  for (size_t v = 0; v < operand.versions.size(); ++v) {
    const Sharding& version = operand.versions[v];
    if (Serves(version, wanted, shape)) {
      return Way{.form = std::nullopt, .version = v};
    }
    if (wanted.kind == Kind::kShard && HoldsAll(version, wanted)) {
      consider({.form = ExchangeForm::kSlice, .version = v});
    } else if (wanted.kind == Kind::kShard && Scatters(version, wanted, shape)) {
      consider({.form = ExchangeForm::kScatter, .version = v, .bytes = operand.type.bytes()});
    } else if (wanted.partial() && Fills(version, wanted, shape)) {
      consider({.form = ExchangeForm::kFill, .version = v});
    }
  }
  if (wanted.partial()) {
    return direct;
  }
  Way whole = WayToWhole(operand);
  if (wanted.kind == Kind::kShard) {
    whole.form = ExchangeForm::kSlice;
    whole.through_whole = true;
    consider(whole);
    return direct;
  }
  return whole;
}

Choice Choose(const Operator& op,
              const Attributes& attributes,
              std::span<const Operand> operands,
              std::span<const Target> targets) {
  std::vector<TensorType> inputs;
  for (const Operand& operand : operands) {
    inputs.push_back(operand.type);
  }
  std::vector<TensorType> outputs;
  for (const Target& target : targets) {
    outputs.push_back(target.type);
  }
  const std::vector<ShardingRule> rules = op.ShardingRules(inputs, outputs, attributes);
  Chooser chooser(operands, targets);
  for (size_t i = 0; i < rules.size(); ++i) {
    chooser.Consider(rules[i], i);
  }
  HEDDLE_CHECK(chooser.best(), "operator '{}' has no rule for whole tensors", op.name());
  Choice best = *chooser.best();
  best.rule = rules[best.price.rule];
  return best;
}

}  // namespace heddle::graph
