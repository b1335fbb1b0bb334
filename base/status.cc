#include "base/status.h"

#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace heddle {

Status::Status(StatusCode code, std::string message)
    : code_(code),
      message_(IsUtf8(message) ? std::move(message) : ToUtf8(message)) {}

std::string_view StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kUnknown:
      return "UNKNOWN";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kAborted:
      return "ABORTED";
    case StatusCode::kOutOfRange:
      return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented:
      return "UNIMPLEMENTED";
    case StatusCode::kInternal:
      return "INTERNAL";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kDataLoss:
      return "DATA_LOSS";
    case StatusCode::kUnauthenticated:
      return "UNAUTHENTICATED";
  }
  return "UNKNOWN";
}

std::string Status::ToString() const {
  return ok() ? "OK" : fmt::format("{}: {}", StatusCodeName(code_), message_);
}

namespace {

StatusCode CodeOfErrno(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EADDRINUSE:
      return StatusCode::kResourceExhausted;
    case EINVAL:
    case EISDIR:
    case ENAMETOOLONG:
      return StatusCode::kInvalidArgument;
    case ETIMEDOUT:
      return StatusCode::kDeadlineExceeded;
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EPIPE:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
      return StatusCode::kUnavailable;
    case EIO:
      return StatusCode::kDataLoss;
    default:
      return StatusCode::kInternal;
  }
}

}  // namespace

Status ErrnoError(int error, std::string_view what) {
  // What to do about it, where the system's words do not tell.
  const char* hint = error == EMFILE ? " (raise `ulimit -n`)" : "";
  return {CodeOfErrno(error),
          fmt::format("{}: {}{}", what, std::generic_category().message(error), hint)};
}

void ResultWithoutError() {
  CheckFailed(__FILE__, __LINE__, "!status.ok()", "a result was made of a status that is OK");
}

}  // namespace heddle
