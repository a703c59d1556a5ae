// What a person typed, as the host's options, and what a command shows while a model is loaded.
#pragma once

#include <string>

#include "base/result.h"
#include "cli/options/options.h"
#include "host/host.h"

namespace ibid::cli {

using host::Loaded;
using host::LoadedText;
using host::StepLimits;

// Bars and lines of it on standard error (cli/terminal/progress.h), for one loading.
host::OnProgress terminal_progress();
// The engine of a server; `name` is the model's.
host::HostOptions host_options(const ServeOptions& options, const std::string& name);

// Whether it can only be meant for a model: an alias, something of the hub, or what is there as a file or folder or is
// spelled like one.
bool is_model_name(const std::string& word);
// What people call the model: the alias or hub name, the file's name otherwise.
std::string served_name(const std::string& typed);
struct NamedModel {
  std::string name, typed;
  bool is_found = false;  // in a folder: nobody named it
};
// "NAME=MODEL", or MODEL alone, which is served as served_name() says. A path that is there may have a = in it.
NamedModel named_model(const std::string& text);
// The text of a file; "-": standard input.
Result<std::string> text_of_file(const std::string& file);

// Prints "error: ..." and returns the exit code.
int fail(const Error& error, int exit_code = kFailed);

}  // namespace ibid::cli
