#include "comm/message/rendezvous.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::comm {

void Requests::Announce(const std::shared_ptr<Operation>& operation) {
  HEDDLE_CHECK(!full(), "more than {} messages wait for a receive", kRequestLimit);
  ++unanswered_;
  operation->id = next_id_++;
  waiting_.emplace(operation->id, operation);
}

Result<std::shared_ptr<Operation>> Requests::Answer(uint64_t id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) {
    if (given_up_.erase(id) == 0) {
      return DataLossError("grant of message {} that waits for none", id);
    }
    --unanswered_;
    return std::shared_ptr<Operation>();
  }
  --unanswered_;
  std::shared_ptr<Operation> operation = std::move(found->second);
  waiting_.erase(found);
  return operation;
}

void Requests::GiveUp(const Operation& operation) {
  const auto found = waiting_.find(operation.id);
  if (found != waiting_.end() && found->second.get() == &operation) {
    given_up_.insert(operation.id);
    waiting_.erase(found);
  }
}

void Requests::GiveUpAll(Operations& into) {
  for (auto& [id, operation] : waiting_) {
    given_up_.insert(id);
    into.push_back(std::move(operation));
  }
  waiting_.clear();
}

bool Requests::Has(const KeyPredicate& fits) const {
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [&](const auto& entry) { return Fits(fits, entry.second); });
}

Status Grants::Announced(uint64_t id) {
  if (id <= last_announced_) {
    return DataLossError("message {} announced after message {}", id, last_announced_);
  }
  last_announced_ = id;
  return Status::Ok();
}

Status Grants::Hold() {
  if (held_ == kRequestLimit) {
    return DataLossError("more than {} messages wait for a receive", kRequestLimit);
  }
  ++held_;
  return Status::Ok();
}

void Grants::Release() {
  HEDDLE_CHECK(held_ > 0, "a message that does not wait has its receive");
  --held_;
}

void Grants::Expect(uint64_t id, std::shared_ptr<Operation> operation) {
  operation->id = id;
  expected_[id] = std::move(operation);
}

std::shared_ptr<Operation> Grants::Find(uint64_t id) const {
  const auto found = expected_.find(id);
  return found == expected_.end() ? nullptr : found->second;
}

void Grants::Forget(const Operation& operation) {
  std::erase_if(expected_, [&](const auto& entry) { return entry.second.get() == &operation; });
}

void Grants::TakeAll(Operations& into) {
  for (auto& [id, operation] : expected_) {
    into.push_back(std::move(operation));
  }
  expected_.clear();
}

bool Grants::Has(const KeyPredicate& fits) const {
  return std::any_of(expected_.begin(), expected_.end(),
                     [&](const auto& entry) { return Fits(fits, entry.second); });
}

bool Grants::HasExposed() const {
  return std::any_of(expected_.begin(), expected_.end(),
                     [](const auto& entry) { return entry.second->exposed; });
}

}  // namespace heddle::comm
