/// \file
/// Whether a sanitizer is at work: it is slow, and its memory and descriptors are its own.
#pragma once

namespace heddle {

// GCC says it by a macro, Clang by a feature.
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
