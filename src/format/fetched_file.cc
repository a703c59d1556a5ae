#include "format/fetched_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "base/quoted.h"
#include "base/sha256.h"
#include "format/model_digest.h"
#include "format/package.h"
#include "format/registry.h"

namespace ibid {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnd = ".sha256", kDigest = "# xxh3-128 ";

struct Sums {
  std::string sha256, digest;  // empty: not known
};

bool is_hex(std::string_view text, size_t n) {
  return text.size() == n && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<Sums> known_sums(const std::string& path, const std::string& cache) {
  std::error_code ignored;
  for (const PackagedModel& model : packaged_models()) {
    if (fs::equivalent(path, packaged_path(model, cache), ignored))
      return Sums{std::string(model.sha256), std::string(model.digest)};
  }
  std::ifstream file(path + std::string(kEnd));
  Sums sums;
  for (std::string line; std::getline(file, line) && line.size() < 4096;) {
    if (line.starts_with(kDigest) && is_hex(line.substr(kDigest.size()), 32)) sums.digest = line.substr(kDigest.size());
    const std::string digits = line.substr(0, line.find_first_of(" \t\r"));
    if (sums.sha256.empty() && is_hex(digits, 64)) sums.sha256 = digits;
  }
  if (sums.sha256.empty()) return std::nullopt;
  return sums;
}

Error changed(const std::string& path, const std::string& found, const std::string& known) {
  return invalid(in_quotes(path) + " is damaged or was modified: its checksum is " + found + " and was " + known +
                     " when it came.",
                 path);
}

}  // namespace

void keep_sums(const std::string& path, const MappedFile& content, const std::string& sha256) {
  const std::string place = path + std::string(kEnd), partial = place + ".partial";
  {
    std::ofstream out(partial);
    out << sha256 << "  " << fs::path(path).filename().string() << "\n"
        << kDigest << read_digest(content).hex() << "\n";
    if (!out.flush()) return;
  }
  std::error_code ignored;
  fs::rename(partial, place, ignored);
}

Status check_sums(const std::string& path, const std::string& cache, int& n_known) {
  std::error_code ignored;
  std::vector<std::string> files;
  if (fs::is_directory(path, ignored)) {
    for (const auto& entry : fs::directory_iterator(path, ignored)) {
      const std::string name = entry.path().string();
      if (name.ends_with(kEnd)) files.push_back(name.substr(0, name.size() - kEnd.size()));
    }
    std::ranges::sort(files);
  } else {
    files.push_back(path);
  }
  n_known = 0;
  for (const std::string& file : files) {
    const std::optional<Sums> known = known_sums(file, cache);
    if (!known) continue;
    ASSIGN_OR_RETURN(const MappedFile content, MappedFile::open(file));
    const std::string found = sha256_hex(content.text());
    if (found != known->sha256) return changed(file, found, known->sha256);
    ++n_known;
  }
  return {};
}

Status check_digests(const ModelFile& file, const std::string& cache) {
  for (const MappedFile& part : file.files()) {
    if (part.path().ends_with(".json")) continue;  // a user may have edited it
    const std::optional<Sums> known = known_sums(part.path(), cache);
    if (!known || known->digest.empty()) continue;
    const std::string found = file_digest(part, cache).hex();
    if (found != known->digest) return changed(part.path(), found, known->digest);
  }
  return {};
}

}  // namespace ibid
