// Why a queue pair failed, in words.
#pragma once

#include <cstdint>
#include <optional>
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
    // rq_psn, where nothing was ever heard of a peer at our own address.
    std::optional<std::uint32_t> unheard_psn;
};

// What this process knows. Takes the locks of shards; the queue pair must not be freed meanwhile.
Failure find_failure(Instance& instance, Qp& qp);
// Asks other processes of this machine too, where the failure came from one: that may take long.
std::string explain(Instance& instance, const Failure& failure);
// Likewise. A sentence if the program took the peer's first PSN for its number and the other way
// round: a queue pair here has just these two.
std::string exchanged_numbers(Instance& instance, const Failure& failure);

}  // namespace feroce::verbs
