// Names of models: what was typed for one, and what it is called.
#pragma once

#include <string>

namespace ibid::cli {

// Whether it can only be meant for a model: an alias, something of the hub, or what is there as a file or folder or is
// spelled like one.
bool is_model_name(const std::string& word);
// What people call the model: the alias or hub name, the file's name otherwise.
std::string served_name(const std::string& typed);
struct NamedModel {
  std::string name, typed;
  bool is_found = false;  // in a folder, not named by the user
};
// "NAME=MODEL", or MODEL alone, which is served under served_name(). An existing path may have a = in it.
NamedModel named_model(const std::string& text);

}  // namespace ibid::cli
