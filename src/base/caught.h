// Where exceptions of the standard library enter: an allocation that fails, a thread that the system does not give.
// ibid throws nothing itself; what it does at start-up with much memory goes through here, so that a machine that is
// too small is answered by a sentence.
#pragma once

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/result.h"

namespace ibid {

// Where an error of caught() is: in what the machine has at the time, and not in what was asked.
inline constexpr char kOfMachine[] = "machine";

// What `body` gives, a Result; an exception of memory or threads becomes its error.
template <typename Body>
auto caught(Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::bad_alloc&) {
    return exhausted(
        "There is not enough memory; a smaller model, a smaller context or fewer tokens of a step would do.",
        kOfMachine);
  } catch (const std::length_error&) {
    return exhausted("More was asked for than any memory holds; a smaller context or fewer tokens of a step would do.");
  } catch (const std::system_error& e) {
    return exhausted(std::string("The system does not give what is needed (") + e.what() +
                         "); more memory or fewer --threads would do.",
                     kOfMachine);
  }
}

}  // namespace ibid
