/// \file
/// Whether the program is built with a sanitizer, which is slow, and uses memory and descriptors of
/// its own.
#pragma once

namespace heddle {

// GCC shows a sanitizer by a macro, Clang by a feature.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace heddle
