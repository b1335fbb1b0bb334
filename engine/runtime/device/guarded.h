/// \file
/// Calls of libtorch, which throws, from code that returns a Status.
#pragma once

#include <exception>
#include <new>

#include <c10/util/Exception.h>

#include "base/status.h"

namespace heddle::runtime {

/// Returns what `f` returns, a Status or a Result, or the exception that it throws as one:
/// kResourceExhausted if memory did not suffice, else kInternal.
template <typename F>
auto Guarded(const F& f) -> decltype(f()) {
  try {
    return f();
  } catch (const c10::OutOfMemoryError& error) {
    return ResourceExhaustedError("{}", error.what_without_backtrace());
  } catch (const std::bad_alloc& error) {
    return ResourceExhaustedError("memory does not suffice: {}", error.what());
  } catch (const std::exception& error) {  // libtorch's.
    return InternalError("{}", error.what());
  }
}

}  // namespace heddle::runtime
