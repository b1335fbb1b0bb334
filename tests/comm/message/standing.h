/// \file
/// The messages that a channel's parts report as in flight, and the operations that an end takes
/// from them.
#pragma once

#include <ostream>

#include <gtest/gtest.h>

#include "tests/comm/message/exchange.h"

namespace heddle::comm {

inline constexpr size_t kLarge = size_t{1} << 20;
inline constexpr size_t kSmall = 1000;

inline KeyPredicate Tagged(uint64_t tag) {
  return [tag](const MessageKey& key) { return key.tag == tag; };
}

/// The receiver's answers about its messages.
struct Stands {
  bool flies = false;
  bool has = false;
  bool whole = false;
  size_t unexpected = 0;
  friend bool operator==(const Stands&, const Stands&) = default;
};
inline void PrintTo(const Stands& stands, std::ostream* out) {
  *out << "in flight " << stands.flies << ", has " << stands.has << ", whole " << stands.whole
       << ", unexpected " << stands.unexpected;
}

inline Stands Of(const Exchange& exchange, uint64_t tag) {
  EXPECT_FALSE(exchange.receiver.Has(Tagged(99)));
  EXPECT_TRUE(exchange.receiver.Unexpected(Tagged(99)).empty());
  return {.flies = exchange.receiver.InFlight(),
          .has = exchange.receiver.Has(Tagged(tag)),
          .whole = exchange.receiver.HasWhole({.tag = tag, .space = 0}),
          .unexpected = exchange.receiver.Unexpected(Tagged(tag)).size()};
}

/// Checks that an end takes the operation `expected` alone, or none if it is null, and only once.
inline void ExpectTaken(Exchange& exchange, const std::shared_ptr<Operation>& expected) {
  Operations taken;
  exchange.sender.TakeAll(taken);
  exchange.receiver.TakeAll(taken);
  exchange.placement.TakeAll(taken);
  if (expected == nullptr) {
    EXPECT_TRUE(taken.empty());
  } else {
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken.front(), expected);
  }
  taken.clear();
  exchange.sender.TakeAll(taken);
  exchange.receiver.TakeAll(taken);
  exchange.placement.TakeAll(taken);
  EXPECT_TRUE(taken.empty()) << "once";
}

}  // namespace heddle::comm
