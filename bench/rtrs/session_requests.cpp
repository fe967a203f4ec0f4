// Requests over a session between two processes on loopback; path 0 is IPv4, path 1 IPv6. The
// server's handler touches no data: what is measured is the way there and back.
#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "workload.hpp"

using namespace feroce;
using namespace feroce::bench;

namespace {

constexpr const char* kAddresses[] = {"127.0.0.1", "::1"};
constexpr std::uint32_t kHeader = 4096;
constexpr std::uint16_t kQueueDepth = 256;
constexpr double kWarmUp = 0.2;

void serve(const Channel& parent) {
    rdma::Loop loop;
    rtrs::ServerOptions options;
    options.port = 0;
    options.queue_depth = kQueueDepth;
    options.chunk_size = (128 << 10) + kHeader;
    rtrs::Server server = rtrs::Server::open(loop, options, [](rtrs::ServerRequest& request) {
                              request.respond();
                          }).value();
    parent.send(server.port());
    while (!parent.readable())
        for (int i = 0; i < 50; ++i) loop.poll_or_wait(loop.after(std::chrono::milliseconds(1)));
}

struct Run {
    bool over = false;
    std::uint64_t requests = 0;
};

rdma::Task<void> work(Run& run, rtrs::Session session, const Workload& load) {
    rtrs::SessionBuffer buffer = session.allocate(load.size).value();
    const std::uint64_t offset = 0;
    const auto message = std::as_bytes(std::span(&offset, 1));
    while (!run.over) {
        if (load.write)
            (co_await session.write(message, buffer.bytes())).value();
        else
            (co_await session.read(message, buffer.bytes())).value();
        ++run.requests;
    }
}

rdma::Task<void> measure(Run& run, rtrs::Session session, const Workload& load) {
    rdma::Loop& loop = session.loop();
    const auto seconds = [](double s) { return std::chrono::nanoseconds(std::int64_t(s * 1e9)); };
    (void)co_await loop.sleep(seconds(kWarmUp));
    run.requests = 0;
    const auto start = bench::Clock::now();
    (void)co_await loop.sleep(seconds(load.seconds));
    print_requests(load, static_cast<double>(run.requests), seconds_since(start),
                   session.statistics().latency);
    run.over = true;
}

void ask(const Channel& child, const Workload& load) {
    rdma::Loop loop;
    rtrs::Client client(loop);
    rtrs::SessionOptions options;
    options.port = child.receive<std::uint16_t>();
    options.policy = rtrs::PathPolicy::FillFirst;
    std::vector<rtrs::PathAddress> paths;
    for (int i = 0; i < load.paths; ++i) paths.push_back({kAddresses[i]});
    rtrs::Session session = loop.run(client.open("bench", paths, options)).value();
    while (session.statistics().paths.back().state != rtrs::PathState::Connected) loop.poll();
    Run run;
    rdma::TaskGroup group(loop);
    for (std::uint32_t i = 0; i < load.depth; ++i) group.spawn(work(run, session, load));
    group.spawn(measure(run, session, load));
    loop.run(group.join()).value();
    child.send('x');
}

}  // namespace

int main(int count, char** words) {
    const Workload load = Workload::parse(count, words);
    run_pair([&](const Channel& child) { ask(child, load); }, serve);
}
