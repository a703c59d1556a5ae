#include "base/cgroup.h"

#include <limits.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace ibid {
namespace {

// The system's own files have fewer.
constexpr size_t kMostBytes = size_t{64} << 10;

std::string read_start(const std::string& path) {
  std::string text(kMostBytes, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, in.gcount())));
  return text;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// "max", and version 1's -1, are none.
std::optional<int64_t> positive_number(std::string_view text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n <= 0) return std::nullopt;
  return n;
}

// Numbers of a file's first line.
std::vector<std::optional<int64_t>> numbers_in(const std::string& path) {
  const std::string text = read_start(path);
  const std::string_view line = std::string_view(text).substr(0, text.find('\n'));
  std::vector<std::optional<int64_t>> out;
  for (const std::string_view part : split(line, ' ')) out.push_back(positive_number(part));
  return out;
}

// The folders of a group and of all that it lies in, the root of the mount last. A path that leaves the mount (the
// system writes ".." of a group outside of the process's namespace) or that no folder can have: the root alone.
std::vector<std::string> folders_of(const std::string& mount, std::string_view path) {
  std::vector<std::string> folders = {mount};
  if (path.size() > PATH_MAX) return folders;
  for (const std::string_view name : split(path, '/')) {
    if (name == "..") return {mount};
    if (!name.empty() && name != ".") folders.push_back(folders.back() + "/" + std::string(name));
  }
  std::ranges::reverse(folders);
  return folders;
}

template <typename Number>
void keep_least(Number& least, Number limit) {
  if (limit > 0 && (least == 0 || limit < least)) least = limit;
}

void keep_cores(CgroupLimits& limits, std::optional<int64_t> quota_us, std::optional<int64_t> period_us) {
  if (!quota_us || !period_us) return;
  keep_least(limits.cores,
             static_cast<int>(std::clamp<int64_t>(*quota_us / *period_us, 1, std::numeric_limits<int>::max())));
}

void keep_bytes(CgroupLimits& limits, const std::string& file) {
  keep_least(limits.bytes, numbers_in(file).front().value_or(0));
}

void read_v2(CgroupLimits& limits, const std::string& mount, std::string_view path) {
  for (const std::string& folder : folders_of(mount, path)) {
    const auto cpu = numbers_in(folder + "/cpu.max");  // "QUOTA PERIOD"
    if (cpu.size() == 2) keep_cores(limits, cpu[0], cpu[1]);
    keep_bytes(limits, folder + "/memory.max");
  }
}

void read_v1(CgroupLimits& limits, const std::string& mount, std::string_view path) {
  for (const std::string& folder : folders_of(mount, path)) {
    keep_cores(limits, numbers_in(folder + "/cpu.cfs_quota_us").front(),
               numbers_in(folder + "/cpu.cfs_period_us").front());
    keep_bytes(limits, folder + "/memory.limit_in_bytes");
  }
}

}  // namespace

CgroupLimits cgroup_limits(const std::string& own, const std::string& mounts) {
  CgroupLimits limits;
  // Without such a file, or where a line is missing, the process may be in the root group.
  std::string_view v2_path = "/", cpu_path = "/", memory_path = "/";
  const std::string text = read_start(own);
  for (const std::string_view line :
       split(text, '\n')) {  // "NUMBER:CONTROLLERS:PATH", of which the path may have colons
    const size_t first = line.find(':');
    const size_t second = first == std::string_view::npos ? first : line.find(':', first + 1);
    if (second == std::string_view::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (line.substr(0, first) == "0" && controllers.empty()) v2_path = path;
    for (const std::string_view controller : split(controllers, ',')) {
      if (controller == "cpu") cpu_path = path;
      if (controller == "memory") memory_path = path;
    }
  }
  for (const char* mount : {"", "/unified"}) read_v2(limits, mounts + mount, v2_path);
  for (const char* mount : {"/cpu", "/cpu,cpuacct"}) read_v1(limits, mounts + mount, cpu_path);
  read_v1(limits, mounts + "/memory", memory_path);
  return limits;
}

}  // namespace ibid
