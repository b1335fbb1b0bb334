#include "comm/message/matching.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace heddle::comm {

template <typename T>
std::shared_ptr<T> Matching::TakeFirst(ByKey<T>& table, const MessageKey& key) {
  const auto found = table.find(key);
  if (found == table.end()) {
    return nullptr;
  }
  std::shared_ptr<T> first = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) {
    table.erase(found);
  }
  return first;
}

std::shared_ptr<Operation> Matching::TakePosted(const MessageKey& key) {
  return TakeFirst(posted_, key);
}

void Matching::Keep(const MessageKey& key, std::shared_ptr<EarlyMessage> early) {
  early_[key].push_back(std::move(early));
}

std::shared_ptr<EarlyMessage> Matching::FrontEarly(const MessageKey& key) const {
  const auto found = early_.find(key);
  return found == early_.end() ? nullptr : found->second.front();
}

std::shared_ptr<EarlyMessage> Matching::TakeEarly(const MessageKey& key) {
  return TakeFirst(early_, key);
}

void Matching::Post(std::shared_ptr<Operation> operation) {
  posted_[operation->key].push_back(std::move(operation));
}

void Matching::Forget(const Operation& operation) {
  const auto posted = posted_.find(operation.key);
  if (posted == posted_.end()) {
    return;
  }
  std::erase_if(posted->second, [&](const auto& other) { return other.get() == &operation; });
  if (posted->second.empty()) {
    posted_.erase(posted);
  }
}

void Matching::TakePosted(Operations& into) {
  for (auto& [key, queue] : posted_) {
    std::move(queue.begin(), queue.end(), std::back_inserter(into));
  }
  posted_.clear();
}

bool Matching::HasPosted(const KeyPredicate& fits) const {
  return std::any_of(posted_.begin(), posted_.end(),
                     [&](const auto& entry) { return fits(entry.first); });
}

std::vector<UnexpectedMessage> Matching::Unexpected(const KeyPredicate& fits) const {
  std::vector<UnexpectedMessage> unexpected;
  for (const auto& [key, messages] : early_) {
    if (fits(key)) {
      unexpected.push_back({.key = key, .other_class = messages.front()->other_class});
    }
  }
  return unexpected;
}

}  // namespace heddle::comm
