// A small client/server program on the C++ library for seeded runs with faults. The server keeps a
// counter and pages and echoes messages; each client connects again and again and lets several
// coroutines add, write, read back and echo over one connection, some of them with so little time
// that the connection is given up.
#pragma once

#include <cstdint>
#include <stop_token>

#include "feroce/rdma.hpp"

namespace feroce::sim {

// What the world knows of all programs of one run.
struct Ledger {
    static constexpr std::uint16_t kPort = 7471;
    static constexpr std::size_t kRounds = 3;   // Connections of a client.
    static constexpr std::size_t kWorkers = 4;  // On one connection.
    static constexpr std::size_t kPage = 2048;  // Of one worker in one round, used by nobody else.

    std::size_t clients = 0;
    std::uint64_t adds_begun = 0;
    std::uint64_t adds_done = 0;
    std::uint64_t counter = 0;  // At the server in the end.
    std::uint64_t pages_verified = 0;
    std::uint64_t echoes = 0;
    std::uint64_t given_up = 0;       // Transfers that ended by their limit.
    std::uint64_t broken = 0;         // Transfers that ended with the connection.
    std::uint64_t not_connected = 0;  // Tries to connect.
    std::stop_source over;            // The clients are done.
};

// Until the ledger is over.
rdma::Task<void> keep(rdma::Loop& loop, rdma::Listener& listener, Ledger& ledger);
// As client number so and so.
rdma::Task<void> work(rdma::Loop& loop, rdma::Address server, std::size_t client, Ledger& ledger);

}  // namespace feroce::sim
