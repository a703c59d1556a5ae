// Runs a fuzz target without libFuzzer: every file of the folders named on the command line, and mutants of each (cut,
// bytes changed, a piece repeated), the same ones in every run. Silent success; a crash is the failure.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

uint64_t next(uint64_t& state) {
  state += 0x9E3779B97F4A7C15u;
  uint64_t z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

void run(const std::string& bytes) {
  // A copy of exactly this size lets the address sanitizer see a read past the end.
  std::vector<uint8_t> copy(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
}

std::string mutant(std::string bytes, uint64_t& state) {
  for (uint64_t n = 1 + next(state) % 4; n > 0 && !bytes.empty(); --n) {
    size_t at = next(state) % bytes.size();
    switch (next(state) % 4) {
      case 0:
        bytes[at] = static_cast<char>(next(state));
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << next(state) % 8));
        break;
      case 2:
        bytes.resize(at);
        break;
      default:
        bytes.insert(at, bytes.substr(next(state) % bytes.size(), 1 + next(state) % 16));
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  const char* wanted = std::getenv("IBID_MUTANTS");
  const int n_mutants = wanted != nullptr ? std::atoi(wanted) : 300;
  int n_files = 0;
  for (int i = 1; i < argc; ++i) {
    std::vector<std::filesystem::path> files;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i], error)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      std::ifstream in(file, std::ios::binary);
      std::string bytes{std::istreambuf_iterator<char>(in), {}};
      run(bytes);
      uint64_t state = static_cast<uint64_t>(n_files++);
      for (int k = 0; k < n_mutants; ++k) run(mutant(bytes, state));
    }
  }
  if (n_files > 0) return 0;
  std::fprintf(stderr, "no corpus found; give its folder\n");
  return 1;
}
