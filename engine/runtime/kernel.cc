#include "engine/runtime/kernel.h"

#include <atomic>
#include <map>
#include <utility>

#include "base/check.h"
#include "engine/runtime/kernel_registry.h"

namespace heddle::runtime {
namespace {

/// Filled by static initialisers only, so it needs no lock; keys are string literals.
std::map<std::string_view, Kernel>& Registry() {
  static std::map<std::string_view, Kernel> registry;
  return registry;
}

/// Those of single devices.
std::map<std::pair<std::string_view, at::DeviceType>, Kernel>& OwnRegistry() {
  static std::map<std::pair<std::string_view, at::DeviceType>, Kernel> registry;
  return registry;
}

std::atomic<bool> prefers_plain_aten{false};

}  // namespace

void PreferPlainAten(bool prefer) {
  prefers_plain_aten.store(prefer);
}

bool PrefersPlainAten() {
  return prefers_plain_aten.load(std::memory_order_relaxed);
}

Kernel FindKernel(std::string_view op, at::DeviceType device) {
  const auto& own = OwnRegistry();
  if (const auto found = own.find({op, device}); found != own.end() && !PrefersPlainAten()) {
    return found->second;
  }
  const auto& registry = Registry();
  const auto found = registry.find(op);
  return found == registry.end() ? nullptr : found->second;
}

std::vector<std::string_view> KernelNames() {
  std::vector<std::string_view> names;
  for (const auto& entry : Registry()) {
    names.push_back(entry.first);
  }
  return names;
}

Kernel ReplaceKernel(std::string_view op, Kernel kernel) {
  return std::exchange(Registry().at(op), kernel);
}

KernelRegistration::KernelRegistration(std::string_view op, Kernel kernel) {
  const bool inserted = Registry().emplace(op, kernel).second;
  HEDDLE_CHECK(inserted, "kernel {} registered twice", op);
}

KernelRegistration::KernelRegistration(std::string_view op, at::DeviceType device, Kernel kernel) {
  const bool inserted = OwnRegistry().emplace(std::pair(op, device), kernel).second;
  HEDDLE_CHECK(inserted, "kernel {} registered twice for {}", op, c10::DeviceTypeName(device));
}

}  // namespace heddle::runtime
