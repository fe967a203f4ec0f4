// See export.hpp.
#include "cli/export.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

#include "cli/complain.hpp"
#include "cli/export_door.hpp"
#include "feroce/block/server.hpp"

namespace feroce::cli {
namespace {

volatile std::sig_atomic_t asked_to_end = 0;

void on_signal(int) {
    asked_to_end = 1;
}

rdma::Result<std::shared_ptr<block::Backend>> open_backend(rdma::Loop& loop,
                                                           const ExportSpec& spec) {
    switch (spec.kind) {
        case ExportSpec::Kind::Memory:
            return block::memory_backend(spec.size, loop.runtime().random() | 1);
        case ExportSpec::Kind::Null:
            return block::null_backend(spec.size);
        case ExportSpec::Kind::File:
            break;
    }
    return block::file_backend(
        loop, spec.path, {.read_only = spec.read_only, .direct = spec.direct, .state = spec.state});
}

// The kernel lets go of a killed server's files a moment after it has ended.
rdma::Result<std::shared_ptr<block::Backend>> open_patiently(rdma::Loop& loop,
                                                             const ExportSpec& spec) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    for (;;) {
        auto backend = open_backend(loop, spec);
        if (backend || backend.error().code != EBUSY || std::chrono::steady_clock::now() > end)
            return backend;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

rdma::Result<std::vector<block::Export>> open_all(rdma::Loop& loop, const ExportConfig& config) {
    std::vector<block::Export> out;
    for (const ExportSpec& spec : config.exports) {
        auto backend = open_patiently(loop, spec);
        if (!backend) return backend.error();
        out.push_back(
            {spec.name, *std::move(backend), spec.read_only, spec.sessions, spec.addresses});
    }
    return out;
}

}  // namespace

int serve_exports(const ExportConfig& config) {
    rdma::Loop loop;
    rtrs::ServerOptions options;
    options.address = config.address;
    options.port = config.port;
    options.queue_depth = config.queue_depth;
    options.chunk_size = config.chunk_size;
    auto exports = open_all(loop, config);
    if (!exports) return complain(exports.error().why);
    std::vector<std::pair<std::string, std::uint64_t>> disks;
    for (const block::Export& what : *exports)
        disks.emplace_back(what.name, what.backend->shape().size);
    auto server = block::Server::open(loop, std::move(options), *std::move(exports));
    if (!server) return complain(server.error().why);
    struct sigaction action {};
    action.sa_handler = on_signal;
    ::sigaction(SIGTERM, &action, nullptr);
    ::sigaction(SIGINT, &action, nullptr);
    for (const auto& [name, size] : disks)
        fmt::print("{}: {} bytes on port {}\n", name, size, server->port());
    std::fflush(stdout);
    ExportDoor door(*server);
    // A signal ends the wait, unless it came just before it.
    constexpr auto kLook = std::chrono::milliseconds(100);
    auto next_look = loop.now();
    while (asked_to_end == 0) {
        loop.poll_or_wait(loop.after(kLook));
        if (loop.now() < next_look) continue;
        next_look = loop.after(kLook);
        door.answer_all();
    }
    const auto stopped = loop.run(server->stop());
    const block::ServerStatistics done = server->statistics();
    fmt::print(
        "end: {} reads, {} writes, {} flushes, {} discards, {} zeroes, {} failed, {} refused\n",
        done.reads, done.writes, done.flushes, done.discards, done.zeroes, done.failed,
        done.refused);
    return stopped ? 0 : complain(stopped.error().why);
}

}  // namespace feroce::cli
