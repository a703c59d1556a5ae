#include "server/access/quotas.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace ibid {
namespace {

constexpr double kTimesFree = 3;     // what a tenant of mean weight may have of what is free
constexpr size_t kShown = 32;        // tenants that have labels of their own
constexpr int kLongestRetry = 600;   // seconds
constexpr double kKeptOfMean = 0.9;  // at each end of a sequence

ApiError refused(std::string message, const char* code, int retry_after) {
  return {429, std::move(message), "", code, retry_after};
}

}  // namespace

Quotas::Quotas(const std::map<std::string, TenantTerms>& terms, int64_t n_places)
    : is_shared_(terms.size() > 1), n_places_(n_places) {
  double weights = 0;
  for (const auto& [tenant, its] : terms) {
    accounts_[tenant].terms = its;
    accounts_[tenant].figures.tenant = tenant;
    weights += its.weight;
  }
  if (terms.empty()) accounts_[""];
  if (!terms.empty()) mean_weight_ = weights / static_cast<double>(terms.size());
}

Quotas::Account& Quotas::account_of(const std::string& tenant) {
  const auto it = accounts_.find(tenant);
  CHECK(it != accounts_.end(), "a tenant without a key");
  return it->second;
}

const TenantTerms& Quotas::terms_of(const std::string& tenant) const {
  static const TenantTerms kDefaults;
  const auto it = accounts_.find(tenant);
  return it != accounts_.end() ? it->second.terms : kDefaults;
}

void Quotas::settle(Account& a, double now) {
  const double rate = static_cast<double>(a.terms.tokens_per_minute) / 60;
  a.level = std::max(0.0, a.level - rate * std::max(0.0, now - a.at));
  a.at = now;
}

std::optional<ApiError> Quotas::refusal_locked(const std::string& tenant, int64_t n, double now) {
  Account& a = account_of(tenant);
  const TenantTerms& terms = a.terms;
  const int64_t here = a.figures.sequences;
  const auto refuse = [&](std::string message, const char* code, int retry_after) {
    ++a.figures.refused;
    return refused(std::move(message), code, retry_after);
  };
  if (terms.sequences > 0 && n > terms.sequences) {  // never possible: a retry would be refused for ever
    ++a.figures.refused;
    return ApiError{400,
                    "This request has " + std::to_string(n) + " sequences (its choices times its prompts) and this " +
                        "key's tenant may have " + std::to_string(terms.sequences) + " at once.",
                    "n", "tenant_sequences"};
  }
  if (terms.sequences > 0 && here + n > terms.sequences) {
    return refuse("This key's tenant may have " + std::to_string(terms.sequences) + " sequences at once and has " +
                      std::to_string(here) + ".",
                  "tenant_sequences", retry_after_locked(here + n - terms.sequences, now));
  }
  settle(a, now);
  const auto per_minute = static_cast<double>(terms.tokens_per_minute);
  if (per_minute > 0 && a.level >= per_minute) {
    const double wait = (a.level - per_minute) / (per_minute / 60);
    return refuse(
        "This key's tenant may have " + std::to_string(terms.tokens_per_minute) + " tokens a minute and has had them.",
        "tenant_tokens", std::clamp(static_cast<int>(std::ceil(wait)), 1, kLongestRetry));
  }
  const auto free = static_cast<double>(std::max<int64_t>(0, n_places_ - n_here_));
  double most = std::numeric_limits<double>::infinity();
  if (terms.queue_share < 1) most = terms.queue_share * static_cast<double>(n_places_);
  if (is_shared_) most = std::min(most, kTimesFree * free * terms.weight / mean_weight_);
  // Who has nothing here is let in as long as there is room at all: the engine's own bound is the last word.
  if (here > 0 && static_cast<double>(here + n) > most) {
    return refuse("The queue is full for this key's tenant, which has " + std::to_string(here) +
                      " sequences in it; try again later.",
                  "queue_full", retry_after_locked(n, now));
  }
  return std::nullopt;
}

std::optional<ApiError> Quotas::refusal(const std::string& tenant, int64_t n, double now) {
  // A batch outlives the key that began it.
  if (!knows(tenant)) return ApiError{403, "This tenant has no key here any more.", "", "unknown_tenant"};
  const std::lock_guard lock(mutex_);
  return refusal_locked(tenant, n, now);
}

std::optional<ApiError> Quotas::enter(const std::string& tenant, int64_t n, double now) {
  if (!knows(tenant)) return refusal(tenant, n, now);
  const std::lock_guard lock(mutex_);
  if (std::optional<ApiError> refusal = refusal_locked(tenant, n, now)) return refusal;
  account_of(tenant).figures.sequences += n;
  if (n_here_ == 0) last_end_ = now;  // what was idle is no sign of slowness
  n_here_ += n;
  return std::nullopt;
}

void Quotas::leave(const std::string& tenant, int64_t n, double now) {
  if (n == 0) return;
  const std::lock_guard lock(mutex_);
  account_of(tenant).figures.sequences -= n;
  n_here_ -= n;
  if (last_end_ >= 0) {
    const double each = std::max(0.0, now - last_end_) / static_cast<double>(n);
    seconds_each_ = kKeptOfMean * seconds_each_ + (1 - kKeptOfMean) * each;
  }
  last_end_ = now;
}

void Quotas::charge(const std::string& tenant, int64_t n_tokens, double now) {
  const std::lock_guard lock(mutex_);
  Account& a = account_of(tenant);
  settle(a, now);
  a.level += static_cast<double>(n_tokens);
  a.figures.tokens += n_tokens;
}

int Quotas::retry_after_locked(int64_t n, double now) const {
  // Where nothing has ended for long, it will not be sooner than that.
  const double each = std::max(seconds_each_, last_end_ >= 0 ? now - last_end_ : 0.0);
  return static_cast<int>(std::clamp(std::ceil(each * static_cast<double>(n)), 1.0, double{kLongestRetry}));
}

int Quotas::retry_after(int64_t n, double now) const {
  const std::lock_guard lock(mutex_);
  return retry_after_locked(n, now);
}

std::vector<TenantFigures> Quotas::figures() const {
  const std::lock_guard lock(mutex_);
  std::vector<TenantFigures> all;
  for (const auto& [tenant, account] : accounts_) {
    const TenantFigures& its = account.figures;
    if (all.size() < kShown) {
      all.push_back(its);
      continue;
    }
    if (all.size() == kShown) all.push_back({.tenant = "other"});
    all.back().sequences += its.sequences;
    all.back().tokens += its.tokens;
    all.back().refused += its.refused;
  }
  return all;
}

}  // namespace ibid
