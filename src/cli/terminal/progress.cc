#include "cli/terminal/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "base/clock.h"

namespace ibid::cli {

bool stdout_is_terminal() { return isatty(STDOUT_FILENO) != 0; }

std::string bytes_text(uint64_t bytes) {
  auto b = static_cast<double>(bytes);
  if (b < 1e3) return fmt::format("{} B", bytes);
  if (b < 1e6) return fmt::format("{:.1f} kB", b / 1e3);
  if (b < 1e9) return fmt::format("{:.1f} MB", b / 1e6);
  return fmt::format("{:.2f} GB", b / 1e9);
}

std::string transfer_text(uint64_t n_before, uint64_t done, uint64_t total, double seconds) {
  std::string text = bytes_text(done);
  if (total > 0) text += " of " + bytes_text(total);
  constexpr double kLeast = 0.5;  // seconds: a shorter time is no measure
  if (seconds < kLeast || done <= n_before) return text;
  const double rate = static_cast<double>(done - n_before) / seconds;
  text += fmt::format(", {}/s", bytes_text(static_cast<uint64_t>(rate)));
  if (total <= done) return text;
  const double left = static_cast<double>(total - done) / rate;
  if (left >= 360'000) return text;
  const auto s = static_cast<int64_t>(left + 0.5);
  return text + (s < 3600 ? fmt::format(", {}:{:02} left", s / 60, s % 60)
                          : fmt::format(", {}:{:02}:{:02} left", s / 3600, s / 60 % 60, s % 60));
}

Progress::Progress(std::string label, bool in_bytes, uint64_t n_before)
    : label_(std::move(label)),
      in_bytes_(in_bytes),
      n_before_(n_before),
      terminal_(isatty(STDERR_FILENO) != 0),
      started_(steady_clock().now()),
      printed_(started_) {}

Progress::~Progress() {
  if (open_ && terminal_) std::fputs(in_bytes_ ? "\n" : "\r\x1b[K", stderr);
}

void Progress::update(uint64_t done, uint64_t total) {
  double now = steady_clock().now();
  bool last = total > 0 && done >= total;
  if (terminal_) {
    if (now - printed_ < 0.1 && !last) return;
  } else {
    int tenth = total > 0 ? static_cast<int>(10 * done / total) : -1;
    bool due = tenth != last_tenth_ && now - printed_ >= 2.0;
    if (!due && !last) return;
    if (last && last_tenth_ == 10) return;
    last_tenth_ = last ? 10 : tenth;
  }
  printed_ = now;
  print(done, total);
}

void Progress::print(uint64_t done, uint64_t total) {
  open_ = true;
  std::string amount = fmt::format("{}", done);
  if (total > 0) amount += fmt::format(" of {}", total);
  if (in_bytes_) amount = transfer_text(n_before_, done, total, steady_clock().now() - started_);
  if (!terminal_) {
    std::fprintf(stderr, "%s: %s\n", label_.c_str(), amount.c_str());
    return;
  }
  constexpr int kWidth = 30;
  int filled =
      total > 0 ? static_cast<int>(static_cast<double>(kWidth) * static_cast<double>(done) / static_cast<double>(total))
                : 0;
  std::string bar;
  for (int i = 0; i < kWidth; ++i) bar += i < filled ? "\u2588" : "\u2591";
  std::fprintf(stderr, "\r\033[K%s %s %s", label_.c_str(), total > 0 ? bar.c_str() : "", amount.c_str());
  std::fflush(stderr);
}

host::OnProgress terminal_progress() {
  return [bar = std::shared_ptr<Progress>()](const host::LoadProgress& report) mutable {
    if (report.is_over) return bar.reset();
    const bool is_fetch = !report.file.empty();
    if (!bar) {
      bar = std::make_shared<Progress>(is_fetch ? "fetching " + report.file : "loading", is_fetch,
                                       static_cast<uint64_t>(report.n_before));
    }
    bar->update(static_cast<uint64_t>(report.n_done), static_cast<uint64_t>(report.n_total));
  };
}

}  // namespace ibid::cli
