// The speed of loading a model's weights beside plain ways to read its file and to allocate memory for it, in turns on
// the same threads:
//   load_bench MODEL [THREADS] [ROUNDS]
// Best of ROUNDS in GB of the file a second, by the clock and by the processors' time (which is better on a busy
// machine), and the share of the fastest plain way to read. The file should lie in the system's cache: the first round
// brings it there. Memory is cleared twice: a virtual machine's host may have to provide again memory that was unused
// for some seconds, and the load finds the memory of the second turn.
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/descriptor.h"
#include "model/model.h"

namespace {

using namespace ibid;

constexpr int64_t kPart = int64_t{4} << 20;

uint64_t sum_of(const std::byte* p, int64_t bytes) {
  uint64_t sum = 0;
  for (int64_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, p + i, 8);
    sum += word;
  }
  return sum;
}

struct Way {
  const char* name;
  std::function<void()> go;
  double seconds = 1e30, processor = 1e30;  // the best
};

// The time of all threads, with the system's work for them.
double processor_seconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int run(const char* path, int n_threads, int n_rounds) {
  ThreadTeam team(n_threads);
  Stream stream(team);
  auto opened = ModelFile::open(path);
  if (!opened || opened->files().empty()) {
    std::fprintf(stderr, "%s\n", opened ? "the model has no file" : opened.error().message.c_str());
    return 1;
  }
  const auto file = std::make_shared<const ModelFile>(std::move(opened).value());
  const MappedFile& first = file->files().front();
  const auto bytes = static_cast<int64_t>(first.bytes().size());
  const int64_t n_parts = (bytes + kPart - 1) / kPart;
  std::vector<uint64_t> sums(static_cast<size_t>(n_threads) * 8);
  const auto each_part = [&](const std::function<void(int64_t at, int64_t len, int thread)>& body) {
    team.parallel_for(n_parts,
                      [&](int64_t i, int thread) { body(i * kPart, std::min(kPart, bytes - i * kPart), thread); });
  };
  const Descriptor fd(::open(first.path().c_str(), O_RDONLY | O_CLOEXEC));
  std::vector<std::vector<std::byte>> buffers(static_cast<size_t>(n_threads), std::vector<std::byte>(size_t{1} << 20));
  std::vector<Way> ways;
  ways.push_back(
      {"read() into a small buffer, summed", [&] {
         each_part([&](int64_t at, int64_t len, int thread) {
           std::vector<std::byte>& buffer = buffers[static_cast<size_t>(thread)];
           for (int64_t done = 0; done < len;) {
             const auto n = static_cast<int64_t>(
                 ::pread(fd.get(), buffer.data(), std::min(buffer.size(), static_cast<size_t>(len - done)), at + done));
             if (n <= 0) return;
             sums[static_cast<size_t>(thread) * 8] += sum_of(buffer.data(), n);
             done += n;
           }
         });
       }});
  ways.push_back({"mapped, summed and given back", [&] {
                    each_part([&](int64_t at, int64_t len, int thread) {
                      const auto part = first.bytes().subspan(static_cast<size_t>(at), static_cast<size_t>(len));
                      sums[static_cast<size_t>(thread) * 8] += sum_of(part.data(), len);
                      first.forget(part);
                    });
                  }});
  const auto clear = [&] {
    const size_t size = static_cast<size_t>(n_parts * kPart);
    void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return;
    madvise(mapped, size, MADV_HUGEPAGE);
    each_part([&](int64_t at, int64_t len, int) {
      for (int64_t i = 0; i < len; i += 4096) static_cast<std::byte*>(mapped)[at + i] = std::byte{1};
    });
    munmap(mapped, size);
  };
  ways.push_back({"fresh memory of that size, cleared", clear});
  ways.push_back({"the same again", clear});
  ways.push_back({"load_model", [&] {
                    auto model = load_model(file, {.context_len = 2048, .step_tokens = 16, .max_rows = 16}, stream);
                    if (!model) std::fprintf(stderr, "%s\n", model.error().message.c_str());
                  }});
  for (int round = 0; round < n_rounds; ++round) {
    for (Way& way : ways) {
      const double begin = steady_clock().now(), processor_begin = processor_seconds();
      way.go();
      way.seconds = std::min(way.seconds, steady_clock().now() - begin);
      way.processor = std::min(way.processor, processor_seconds() - processor_begin);
    }
  }
  const auto best = [&](double Way::*of) { return std::min(ways[0].*of, ways[1].*of); };
  const double giga = static_cast<double>(bytes) / 1e9;
  std::printf("%.2f GB, %d threads %26s s   GB/s  share   processor s   GB/s  share\n", giga, n_threads, "");
  for (const Way& way : ways) {
    std::printf("%-40s %8.2f %6.2f %5.0f %%      %8.2f %6.2f %5.0f %%\n", way.name, way.seconds, giga / way.seconds,
                100 * best(&Way::seconds) / way.seconds, way.processor, giga / way.processor,
                100 * best(&Way::processor) / way.processor);
  }
  std::printf("(%llu)\n", static_cast<unsigned long long>(sums[0]));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "load_bench MODEL [THREADS] [ROUNDS]\n");
    return 2;
  }
  return run(argv[1], argc > 2 ? std::max(1, std::atoi(argv[2])) : usable_cores(),
             argc > 3 ? std::max(1, std::atoi(argv[3])) : 3);
}
