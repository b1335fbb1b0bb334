/// \file
/// Errors are values: a Status is success or a canonical code with one message. Codes have the
/// names and numbers of gRPC's canonical set; what a code means to recovery is stated beside it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace heddle {

enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,           ///< Asked to stop: clean exit.
  kUnknown = 2,             ///< Never produced by us.
  kInvalidArgument = 3,     ///< Caller, file or configuration is wrong: stop and tell the user.
  kDeadlineExceeded = 4,    ///< A bound passed; the peer's state is unknown: like kUnavailable.
  kNotFound = 5,            ///< The named thing does not exist.
  kAlreadyExists = 6,       ///< The named thing exists and would be overwritten.
  kPermissionDenied = 7,    ///< The operating system refused.
  kResourceExhausted = 8,   ///< Disk, memory or a queue is full: keep the last good checkpoint.
  kFailedPrecondition = 9,  ///< Right call, wrong time.
  kAborted = 10,            ///< We belong to an old generation: rejoin.
  kOutOfRange = 11,         ///< Past the end.
  kUnimplemented = 12,      ///< Not built or not on this machine: choose another backend.
  kInternal = 13,           ///< "Cannot happen" reached through data: stop with full context.
  kUnavailable = 14,        ///< A peer, the coordinator or a store is unreachable: new generation.
  kDataLoss = 15,           ///< Checksum or format violation: never retry the same bytes.
  kUnauthenticated = 16,    ///< A stranger.
};

/// The code's canonical name, for example "DATA_LOSS".
std::string_view StatusCodeName(StatusCode code);

/// Thread: values; a Status may be copied and read from any thread.
class [[nodiscard]] Status {
 public:
  Status() = default;
  /// Bytes of `message` that are no UTF-8, as those of a file's name may be, become "\xNN":
  /// messages go to other processes and into JSON.
  Status(StatusCode code, std::string message);

  static Status Ok() { return {}; }
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }

  /// The status as text: "DATA_LOSS: message", or "OK".
  std::string ToString() const;

  /// The same error with "context: " before its message; success stays success.
  template <typename... A>
  Status WithContext(fmt::format_string<A...> format, A&&... args) const {
    return ok() ? *this
                : Status(code_, fmt::format(format, std::forward<A>(args)...) + ": " + message_);
  }

  /// Says in the source why an error does not matter here.
  void IgnoreError(std::string_view /*reason*/) const {}

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

#define HEDDLE_DEFINE_STATUS(Name)                                               \
  template <typename... A>                                                       \
  Status Name##Error(fmt::format_string<A...> format, A&&... args) {             \
    return {StatusCode::k##Name, fmt::format(format, std::forward<A>(args)...)}; \
  }
HEDDLE_DEFINE_STATUS(Cancelled)
HEDDLE_DEFINE_STATUS(InvalidArgument)
HEDDLE_DEFINE_STATUS(DeadlineExceeded)
HEDDLE_DEFINE_STATUS(NotFound)
HEDDLE_DEFINE_STATUS(AlreadyExists)
HEDDLE_DEFINE_STATUS(PermissionDenied)
HEDDLE_DEFINE_STATUS(ResourceExhausted)
HEDDLE_DEFINE_STATUS(FailedPrecondition)
HEDDLE_DEFINE_STATUS(Aborted)
HEDDLE_DEFINE_STATUS(OutOfRange)
HEDDLE_DEFINE_STATUS(Unimplemented)
HEDDLE_DEFINE_STATUS(Internal)
HEDDLE_DEFINE_STATUS(Unavailable)
HEDDLE_DEFINE_STATUS(DataLoss)
HEDDLE_DEFINE_STATUS(Unauthenticated)
#undef HEDDLE_DEFINE_STATUS

/// The status of a failed system call: `what` and errno's text, with the code that errno means.
Status ErrnoError(int error, std::string_view what);

/// Aborts: a Result was made of a Status without an error.
[[noreturn]] void ResultWithoutError();

/// A value, or why there is none. Made of an OK status, which says neither, it aborts.
template <typename T>
class [[nodiscard]] Result {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a value is a result
  Result(T value) : value_(std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor): an error is a result
  Result(Status status) : status_(std::move(status)) {
    if (status_.ok()) {
      ResultWithoutError();
    }
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

#define HEDDLE_CONCAT_INNER(a, b) a##b
#define HEDDLE_CONCAT(a, b) HEDDLE_CONCAT_INNER(a, b)

/// Returns the Status of `expression` from the enclosing function unless it is ok.
#define HEDDLE_RETURN_IF_ERROR(expression)                                    \
  do {                                                                        \
    if (::heddle::Status heddle_status = (expression); !heddle_status.ok()) { \
      return heddle_status;                                                   \
    }                                                                         \
  } while (false)

/// `HEDDLE_ASSIGN_OR_RETURN(auto x, F())`: x is F's value, or its Status is returned.
#define HEDDLE_ASSIGN_OR_RETURN(target, expression) \
  HEDDLE_ASSIGN_OR_RETURN_INNER(HEDDLE_CONCAT(heddle_result_, __LINE__), target, expression)
#define HEDDLE_ASSIGN_OR_RETURN_INNER(result, target, expression) \
  auto result = (expression);                                     \
  if (!result.ok()) {                                             \
    return result.status();                                       \
  }                                                               \
  target = *std::move(result)

}  // namespace heddle
