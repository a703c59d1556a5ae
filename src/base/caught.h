// Where exceptions of the standard library enter: an allocation that fails, a thread that the system cannot start. ibid
// itself throws nothing; start-up steps that need much memory run through here, so that a machine that is too small
// gives an error with a sentence.
#pragma once

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/result.h"

namespace ibid {

// Error::where of an error of caught(): the machine lacks something at the time; the request itself is not at fault.
inline constexpr char kOfMachine[] = "machine";

// Returns the Result of `body`; an exception of memory or threads becomes its error.
template <typename Body>
auto caught(Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return exhausted("There is not enough memory; use a smaller model, a smaller context or fewer tokens per step.",
                     kOfMachine);
  } catch (const std::length_error&) {
    return exhausted("The requested size exceeds any memory; use a smaller context or fewer tokens per step.");
  } catch (const std::system_error& e) {
    return exhausted(
        std::string("The system refused a resource (") + e.what() + "); use more memory or fewer --threads.",
        kOfMachine);
  }
}

}  // namespace ibid
