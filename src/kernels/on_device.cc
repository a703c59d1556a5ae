#include "kernels/on_device.h"

#include <string>

#include "base/check.h"

namespace ibid::ops {

void no_body(const char* op, Device device) {
  const std::string name(device_name(device));
  const std::string message = "ops::" + std::string(op) + " has no body for " + name + "; run the model on the CPU";
  check_failed(__FILE__, __LINE__, op, message.c_str());
}

}  // namespace ibid::ops
