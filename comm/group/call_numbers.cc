#include "comm/group/call_numbers.h"

#include <numeric>
#include <vector>

#include "base/hash.h"

namespace heddle::comm {

CallNumbers::CallNumbers(int members) {
  std::vector<int> ranks(static_cast<size_t>(members));
  std::iota(ranks.begin(), ranks.end(), 0);
  everyone_ = Hash64(std::as_bytes(std::span(ranks)));
}

CallNumber CallNumbers::Next(const CollectiveOptions& options, CallSignature signature) {
  constexpr size_t kMaxCounted = 1 << 16;
  signature.urgent = options.urgent;
  CallNumber number{
      .tag = options.tag,
      .space = SpaceOf(EncodeSignature(signature)),
      .ordinal = 0,
      .group = options.group.empty() ? everyone_ : Hash64(std::as_bytes(options.group))};
  const MessageKey key{.tag = number.tag, .space = number.group};
  const MutexLock lock(mutex_);
  const auto found = calls_.find(key);
  if (found != calls_.end()) {
    number.ordinal = ++found->second;
  } else if (calls_.size() < kMaxCounted) {  // What is not counted at one member is not compared.
    number.ordinal = ++calls_[key];
  }
  return number;
}

}  // namespace heddle::comm
