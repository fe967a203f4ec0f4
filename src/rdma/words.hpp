// What completions and connection events mean, for people.
#pragma once

#include <infiniband/verbs.h>

#include <string>

namespace feroce::rdma {

int errno_of(ibv_wc_status status);
// One clause: what happened and what to do about it.
std::string meaning_of(ibv_wc_status status);
std::string meaning_of_rejection(int reason);

// Of the soft device: the chain of reasons why a queue pair failed; empty if there is none, or on
// another device.
std::string explain(ibv_qp* qp);

}  // namespace feroce::rdma
