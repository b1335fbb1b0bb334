#include "base/tensor/half.h"

#include <cstring>

#include "base/check.h"

namespace heddle {

namespace {

/// out[i] = kConvert(in[i]). The function is a template's argument so that it becomes part of the
/// loop.
template <typename From, typename To, To (*kConvert)(From)>
void ConvertAll(std::span<const std::byte> in, std::span<std::byte> out) {
  const size_t count = in.size() / sizeof(From);
  HEDDLE_CHECK(out.size() >= count * sizeof(To), "{} bytes for {} elements", out.size(), count);
  const std::byte* const source = in.data();
  std::byte* const target = out.data();
  for (size_t i = 0; i < count; ++i) {
    From from{};
    std::memcpy(&from, source + i * sizeof(From), sizeof(From));
    const To to = kConvert(from);
    std::memcpy(target + i * sizeof(To), &to, sizeof(To));
  }
}

void CheckNarrow(DType type) {
  HEDDLE_CHECK(type == DType::kBF16 || type == DType::kF16, "{} is no 16-bit float",
               DTypeName(type));
}

}  // namespace

void WidenToF32(std::span<const std::byte> in, DType narrow, std::span<std::byte> out) {
  CheckNarrow(narrow);
  narrow == DType::kBF16 ? ConvertAll<uint16_t, float, FromBF16>(in, out)
                         : ConvertAll<uint16_t, float, FromF16>(in, out);
}

void RoundFromF32(std::span<const std::byte> in, std::span<std::byte> out, DType narrow) {
  CheckNarrow(narrow);
  narrow == DType::kBF16 ? ConvertAll<float, uint16_t, ToBF16>(in, out)
                         : ConvertAll<float, uint16_t, ToF16>(in, out);
}

}  // namespace heddle
