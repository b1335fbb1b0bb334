/// \file
/// The numbers of generations, and the one whose state the workers hold.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "base/status.h"
#include "elastic/control/durable.h"

namespace heddle::elastic {

/// The counter of generations, and the held generation. Thread: one caller at a time. A copy is an
/// independent machine.
class Generations {
 public:
  /// Numbers are given out above `counter`.
  explicit Generations(int64_t counter = 0) : counter_(counter) {}

  /// The highest number ever given out. No worker learns one above it before it is durable.
  int64_t counter() const { return counter_; }
  /// Marks `number`, and all below it, as given out.
  void Allot(int64_t number) { counter_ = std::max(counter_, number); }

  /// The generation whose state the workers hold; nullopt if they hold none that counts.
  const std::optional<DurableGeneration>& held() const { return held_; }
  void Begin(DurableGeneration generation) { held_ = std::move(generation); }
  void Drop() { held_.reset(); }

  bool IsMember(const std::string& name) const { return held_ && held_->members.count(name) > 0; }
  /// True if the held generation's plan names the worker, even if it is no longer a member.
  bool WasPlanned(const std::string& name) const {
    return held_ && std::find(held_->plan.members.begin(), held_->plan.members.end(), name) !=
                        held_->plan.members.end();
  }
  void RemoveMember(const std::string& name) {
    if (held_) {
      held_->members.erase(name);
    }
  }

  void Restore(const DurableState& durable) {
    counter_ = durable.generation_counter;
    held_ = durable.held;
  }
  void Store(DurableState& durable) const {
    durable.generation_counter = counter_;
    durable.held = held_;
  }
  Status Check() const {
    return held_ && held_->number > counter_
               ? Status(InternalError("generation {} is above the counter {}", held_->number,
                                      counter_))
               : Status::Ok();
  }

 private:
  int64_t counter_;
  std::optional<DurableGeneration> held_;
};

}  // namespace heddle::elastic
