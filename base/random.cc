#include "base/random.h"

#include "base/hash.h"

namespace heddle {

std::array<uint32_t, 4> Philox(uint64_t key, uint64_t counter_high, uint64_t counter_low) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53;
  constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  auto word = [](uint64_t value, int index) {
    return static_cast<uint32_t>(value >> (32 * index));
  };
  uint32_t c0 = word(counter_low, 0);
  uint32_t c1 = word(counter_low, 1);
  uint32_t c2 = word(counter_high, 0);
  uint32_t c3 = word(counter_high, 1);
  uint32_t k0 = word(key, 0);
  uint32_t k1 = word(key, 1);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * c0;
    const uint64_t product1 = uint64_t{kMultiplier1} * c2;
    c0 = word(product1, 1) ^ c1 ^ k0;
    c1 = word(product1, 0);
    c2 = word(product0, 1) ^ c3 ^ k1;
    c3 = word(product0, 0);
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

uint64_t StreamKey(uint64_t seed, std::string_view name) {
  return Hash64(name, seed);
}

uint64_t Random::Next() {
  const auto block = Philox(key_, 0, counter_++);
  return (uint64_t{block[1]} << 32) | block[0];
}

}  // namespace heddle
