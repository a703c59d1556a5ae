// Result<T>: a value, or an Error that states in one sentence what was found, where, and what was expected.
// For everything that is wrong with the world (files, requests, the system); see docs/design.md section 6.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace ibid {

enum class ErrorKind {
  kInvalid,      // bytes or parameters from outside are wrong
  kUnsupported,  // well formed, but not served by this build
  kNotFound,     // a file, alias or name does not exist
  kExhausted,    // no room in a queue or a budget, no descriptor
  kUnavailable,  // the network or the disk failed; trying again may help
  kNoMemory,     // an allocation failed; trying again may help
};

struct Error {
  ErrorKind kind = ErrorKind::kInvalid;
  std::string message;
  std::string where = {};  // the field, key or file at fault; empty where there is none
};

inline Error invalid(std::string message, std::string where = {}) {
  return {ErrorKind::kInvalid, std::move(message), std::move(where)};
}
inline Error unsupported(std::string message, std::string where = {}) {
  return {ErrorKind::kUnsupported, std::move(message), std::move(where)};
}
inline Error not_found(std::string message, std::string where = {}) {
  return {ErrorKind::kNotFound, std::move(message), std::move(where)};
}
inline Error exhausted(std::string message, std::string where = {}) {
  return {ErrorKind::kExhausted, std::move(message), std::move(where)};
}
inline Error unavailable(std::string message, std::string where = {}) {
  return {ErrorKind::kUnavailable, std::move(message), std::move(where)};
}

// Allocates nothing: the sentence is short enough to lie within the string itself.
inline Error out_of_memory() { return {ErrorKind::kNoMemory, "Out of memory."}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit on purpose
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK(ok(), error_text());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK(ok(), error_text());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  const char* error_text() const { return ok() ? "" : std::get<1>(state_).message.c_str(); }
  std::variant<T, Error> state_;
};

// Success without a value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit on purpose
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& {
    CHECK(!ok());
    return *error_;
  }
  Error&& error() && {
    CHECK(!ok());
    return std::move(*error_);
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

#define IBID_CONCAT_(a, b) a##b
#define IBID_CONCAT(a, b) IBID_CONCAT_(a, b)

// TRY(expression): leaves the function with the error of a Status; ASSIGN_OR_RETURN(auto x, expression) takes the
// value of a Result or leaves with its error.
#define TRY(expression)                                                           \
  do {                                                                            \
    if (auto status_ = (expression); !status_) return std::move(status_).error(); \
  } while (false)
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_(IBID_CONCAT(result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_(temporary, declaration, expression) \
  auto temporary = (expression);                              \
  if (!temporary) return std::move(temporary).error();        \
  declaration = std::move(temporary).value()

}  // namespace ibid
