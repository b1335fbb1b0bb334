#include "engine/graph/operator.h"

#include <map>

#include "base/check.h"

namespace heddle::graph {
namespace {

using Registry = std::map<std::string_view, std::unique_ptr<Operator>>;

/// Filled before main() by the registrations, read-only afterwards. Built at first use, because the
/// order in which files register is not known.
Registry& TheRegistry() {
  static Registry registry;
  return registry;
}

}  // namespace

Status Operator::Gradient(GradientBuilder& /*builder*/) const {
  return InvalidArgumentError("operator '{}' has no gradient", name());
}

std::vector<OperatorPart> Operator::Parts(std::span<const TensorType> /*inputs*/,
                                          const Attributes& /*attributes*/) const {
  return {};
}

const Operator* FindOperator(std::string_view name) {
  const Registry& registry = TheRegistry();
  const auto it = registry.find(name);
  return it == registry.end() ? nullptr : it->second.get();
}

std::vector<const Operator*> AllOperators() {
  std::vector<const Operator*> operators;
  for (const auto& [name, op] : TheRegistry()) {
    operators.push_back(op.get());
  }
  return operators;
}

OperatorRegistration::OperatorRegistration(std::unique_ptr<Operator> op) {
  const std::string_view name = op->name();
  const bool inserted = TheRegistry().emplace(name, std::move(op)).second;
  HEDDLE_CHECK(inserted, "two operators are named '{}'", name);
}

}  // namespace heddle::graph
