/// \file
/// What a channel's parts say is in flight, and what an end takes from them.
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

/// Of the receiver.
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

/// What an end takes; `expected` alone, or nothing.
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
