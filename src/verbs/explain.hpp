// Why a queue pair failed, in words.
#pragma once

#include <string>

#include "process/state_page.hpp"
#include "verbs/instance.hpp"
#include "verbs/objects.hpp"

namespace feroce::verbs {

struct Failure {
    process::StateReason reason;
    bool peer_is_local = false;
    bool peer_refused = false;
    std::string cause;  // The peer's part, if the peer is a queue pair of this process.
};

// What this process knows. Takes the locks of shards; the queue pair must not be freed meanwhile.
Failure find_failure(Instance& instance, Qp& qp);
// Asks other processes of this machine too, where the failure came from one: that may take long.
std::string explain(Instance& instance, const Failure& failure);

}  // namespace feroce::verbs
