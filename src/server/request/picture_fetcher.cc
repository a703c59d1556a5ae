#include "server/request/picture_fetcher.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/quoted.h"
#include "base/thread_name.h"
#include "format/http_client.h"

namespace ibid {
namespace {

using Steady = std::chrono::steady_clock;

bool names(const std::string& host, const Url& url) {
  const std::string standard = url.tls ? "443" : "80";
  const bool is_v6 = url.host.find(':') != std::string::npos;
  const std::string name = is_v6 ? "[" + url.host + "]" : url.host;
  const auto same = [](std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b,
                              [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
  };
  return same(host, name + ":" + url.port) || (url.port == standard && same(host, name));
}

}  // namespace

PictureFetcher::PictureFetcher(Options options) : options_(std::move(options)) {}

PictureFetcher::~PictureFetcher() { stop(); }

Status PictureFetcher::check(const std::string& text) const {
  ASSIGN_OR_RETURN(const Url url, parse_url(text));
  const bool is_named = std::ranges::any_of(options_.hosts, [&](const std::string& host) { return names(host, url); });
  if (is_named) return {};
  return unsupported("the host " + in_quotes(url.host, 80) +
                     " is not one that --allowed-media-domains names; send the "
                     "picture itself as a data URL");
}

void PictureFetcher::fetch(const std::string& tenant, std::vector<std::string> urls, std::function<bool()> is_gone,
                           Done done) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopped_) return;
    size_t& n = of_tenant_[tenant];
    if (jobs_.size() < options_.max_waiting && n < options_.max_of_tenant) {
      ++n;
      jobs_.push_back({tenant, std::move(urls), std::move(is_gone), std::move(done)});
      for (auto i = std::ssize(threads_); i < options_.n_threads; ++i) {
        threads_.emplace_back([this] {
          name_thread("ibid-fetch");
          run();
        });
      }
      changed_.notify_one();
      return;
    }
    if (n == 0) of_tenant_.erase(tenant);
  }
  auto refused = std::make_shared<FetchedPictures>();
  for (std::string& url : urls)
    refused->by_url.emplace(std::move(url), exhausted("too many pictures wait to be fetched; try again later"));
  done(std::move(refused));
}

void PictureFetcher::run() {
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    if (jobs_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      work(job);
    } catch (const std::exception&) {  // no memory: its request waits until its client goes
    }
    lock.lock();
    if (const auto n = of_tenant_.find(job.tenant); --n->second == 0) of_tenant_.erase(n);
  }
}

void PictureFetcher::work(const Job& job) {
  auto out = std::make_shared<FetchedPictures>();
  auto held = std::make_shared<int64_t>(0);
  out->room = std::shared_ptr<void>(nullptr, [all = held_bytes_, held](void*) { *all -= *held; });
  for (const std::string& url : job.urls) {
    if (out->by_url.contains(url)) continue;
    out->by_url.emplace(url, get(url, job.is_gone, *held));
  }
  job.done(std::move(out));
}

Result<std::string> PictureFetcher::get(const std::string& url, const std::function<bool()>& is_gone, int64_t& held) {
  TRY(check(url));
  const auto end =
      Steady::now() + std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(options_.timeout));
  HttpRequest request = {
      .url = url, .timeout_s = std::max(1, static_cast<int>(std::ceil(options_.timeout))), .max_redirects = 0};
  bool is_late = false;
  request.cancelled = [&] {
    is_late = Steady::now() > end;
    if (is_late || (is_gone && is_gone())) return true;
    const std::lock_guard lock(mutex_);
    return is_stopped_;
  };
  std::string bytes;
  const Status got =
      http_get(request, {.on_head = [&](const std::vector<HttpHead>& heads) -> Status {
                           if (heads.back().status == 200) return {};
                           return invalid("its host answered " + std::to_string(heads.back().status));
                         },
                         .on_body = [&](std::string_view piece) -> Status {
                           const auto n = static_cast<int64_t>(piece.size());
                           if (std::ssize(bytes) + n > options_.max_bytes)
                             return invalid("it has more than " + std::to_string(options_.max_bytes) + " bytes");
                           if (Steady::now() > end) return invalid("it did not arrive in time");
                           if (*held_bytes_ + n > options_.max_held_bytes)
                             return exhausted("too many pictures wait to be read; try again later");
                           *held_bytes_ += n;
                           held += n;
                           bytes += piece;
                           return {};
                         }});
  if (got) return bytes;
  if (is_late) return invalid("it did not arrive within " + std::to_string(request.timeout_s) + " s");
  if (got.error().kind == ErrorKind::kExhausted) return got.error();
  return invalid(got.error().message);
}

void PictureFetcher::stop() {
  std::deque<Job> dropped;
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    dropped = std::exchange(jobs_, {});
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace ibid
