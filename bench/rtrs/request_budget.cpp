// What a request costs in instructions: two processes that take turns, so that neither counts what
// it does while it waits. A turn polls until nothing is left to do, and then hands over. Made for
// callgrind (request_budget.py), which counts what happens within counted_turn(); alone it says
// nothing but how many requests were done.
#include <chrono>
#include <utility>

#include "feroce/rtrs/server.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"
#include "workload.hpp"

using namespace feroce;
using namespace feroce::bench;

// Callgrind knows them by their names.
extern "C" {

[[gnu::noinline]] void counted_turn(rdma::Loop& loop) {
    while (loop.poll()) continue;
}

[[gnu::noinline]] void counting_begins() {
    asm volatile("nop");
}

[[gnu::noinline]] void counting_ends() {
    asm volatile("nop;nop");
}
}

namespace {

// Requests until both devices know each other's habits (that programs come back, that posts are
// answered), and then those that are counted; and for each of a round that many more.
constexpr std::uint64_t kWarmUp = 1024;
constexpr std::uint64_t kCounted = 512;
constexpr std::uint64_t kRounds = 8;
constexpr std::uint16_t kQueueDepth = 256;

enum class Turn : char { Warm, Counted, Over };

// The turns of one end, of which the counted ones are in one piece.
class Turns {
public:
    explicit Turns(rdma::Loop& loop) : loop_(loop) {}

    void take(Turn turn) {
        const Turn before = std::exchange(last_, turn);
        if (before != turn && turn == Turn::Counted) counting_begins();
        if (before == Turn::Counted && turn != before) counting_ends();
        if (turn == Turn::Counted) return counted_turn(loop_);
        while (loop_.poll()) continue;
    }

private:
    rdma::Loop& loop_;
    Turn last_ = Turn::Warm;
};

void serve(const Channel& parent) {
    rdma::Loop loop;
    rtrs::ServerOptions options;
    options.port = 0;
    options.queue_depth = kQueueDepth;
    options.chunk_size = (128 << 10) + 4096;
    rtrs::Server server = rtrs::Server::open(loop, options, [](rtrs::ServerRequest& request) {
                              request.respond();
                          }).value();
    parent.send(::getpid());
    parent.send(server.port());
    while (!parent.readable()) loop.poll_or_wait(loop.after(std::chrono::milliseconds(1)));
    Turns turns(loop);
    for (Turn turn = parent.receive<Turn>(); turn != Turn::Over; turn = parent.receive<Turn>()) {
        turns.take(turn);
        parent.send(turn);
    }
}

rdma::Task<void> work(std::uint64_t& requests, const bool& over, rtrs::Session session,
                      const Workload& load) {
    rtrs::SessionBuffer buffer = session.allocate(load.size).value();
    const std::uint64_t offset = 0;
    const auto message = std::as_bytes(std::span(&offset, 1));
    while (!over) {
        if (load.write)
            (co_await session.write(message, buffer.bytes())).value();
        else
            (co_await session.read(message, buffer.bytes())).value();
        ++requests;
    }
}

void ask(const Channel& child, const Workload& load) {
    rdma::Loop loop;
    rtrs::Client client(loop);
    rtrs::SessionOptions options;
    const auto server = child.receive<pid_t>();
    options.port = child.receive<std::uint16_t>();
    options.connections = 1;
    rtrs::Session session = loop.run(client.open("budget", {{"127.0.0.1"}}, options)).value();
    std::uint64_t requests = 0;
    bool over = false;
    rdma::TaskGroup group(loop);
    for (std::uint32_t i = 0; i < load.depth; ++i) group.spawn(work(requests, over, session, load));
    Turns own(loop);
    const auto turns = [&](Turn turn, std::uint64_t enough) {
        const std::uint64_t end = requests + enough;
        std::uint64_t count = 0;
        while (requests < end) {  // The tasks count them.
            child.send(turn);
            child.receive<Turn>();
            own.take(turn);
            ++count;
        }
        return count;
    };
    turns(Turn::Warm, kWarmUp + kRounds * load.depth);
    const std::uint64_t before = requests;
    const std::uint64_t count = turns(Turn::Counted, kCounted + kRounds * load.depth);
    std::printf("{\"requests\": %llu, \"turns\": %llu, \"client\": %d, \"server\": %d}\n",
                static_cast<unsigned long long>(requests - before),
                static_cast<unsigned long long>(count), ::getpid(), server);
    std::fflush(stdout);
    over = true;
    turns(Turn::Warm, load.depth);
    child.send(Turn::Over);
}

}  // namespace

int main(int count, char** words) {
    const Workload load = Workload::parse(count, words);
    run_pair([&](const Channel& child) { ask(child, load); }, serve);
}
