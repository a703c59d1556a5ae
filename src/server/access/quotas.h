// Quotas: who may still come in, by tenant. Counts what each has under way and what it was served, and refuses beyond
// its terms (api_keys.h) and beyond its part of a queue that fills up. Safe from any thread.
//
// The queue is shared by a moving threshold (Choudhury, Hahne, Dynamic Queue Length Thresholds, 1998): a tenant may
// may have so many times what is still free, by its weight. So the tenant that has most is refused first, and there is
// always room for one that has little. A server that knows one tenant gives it all.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/access/api_keys.h"
#include "server/wire/api_error.h"

namespace ibid {

struct TenantFigures {
  std::string tenant;
  int64_t sequences = 0;  // under way
  int64_t tokens = 0;     // of prompts and answers
  int64_t refused = 0;    // requests
};

class Quotas {
 public:
  // `n_places`: sequences that may run and wait, of all tenants.
  Quotas(const std::map<std::string, TenantTerms>& terms, int64_t n_places);

  // n sequences want to come in at `now`, in seconds. Nothing: they may, and count until they leave(). The error's
  // Retry-After is an estimate of when they might. A tenant whose keys are all gone is refused with 403,
  // and what its terms can never let in with 400.
  std::optional<ApiError> enter(const std::string& tenant, int64_t n, double now);
  // Whether enter() would refuse them now; counted as a refusal, and they do not come in.
  std::optional<ApiError> refusal(const std::string& tenant, int64_t n, double now);
  void leave(const std::string& tenant, int64_t n, double now);  // nothing for none
  void charge(const std::string& tenant, int64_t n_tokens, double now);
  bool is_shared() const { return is_shared_; }                                       // by several tenants
  bool knows(const std::string& tenant) const { return accounts_.contains(tenant); }  // else its keys are gone
  const TenantTerms& terms_of(const std::string& tenant) const;                       // of one unknown the defaults
  // Seconds until so many sequences may have ended, by how fast they did; at least 1.
  int retry_after(int64_t n, double now) const;

  // The first 32 tenants by name, one line each; the rest as "other". A bounded and fixed set of labels.
  std::vector<TenantFigures> figures() const;

 private:
  struct Account {
    TenantTerms terms;
    TenantFigures figures;
    double level = 0;  // tokens that its rate has not paid off yet
    double at = 0;     // when level was that
  };
  Account& account_of(const std::string& tenant);
  int retry_after_locked(int64_t n, double now) const;
  std::optional<ApiError> refusal_locked(const std::string& tenant, int64_t n, double now);
  static void settle(Account& account, double now);

  mutable std::mutex mutex_;
  std::map<std::string, Account> accounts_;  // of the tenants that keys name, or of one without a name: never others
  bool is_shared_;
  int64_t n_places_;
  int64_t n_here_ = 0;
  double mean_weight_ = 1;
  double last_end_ = -1, seconds_each_ = 1;  // between ends of sequences, a moving mean
};

}  // namespace ibid
