// What a verbs program gets from the device it runs on: latency of one operation, bandwidth and
// message rate. The far end polls its CQ, as a server does that waits for work.
#include <memory>
#include <string>
#include <thread>

#include "verbs_pair.hpp"

using namespace feroce::bench;

namespace {

constexpr double kSeconds = 0.6;
constexpr int kRounds = 20000;

using Endpoints = std::vector<std::unique_ptr<Endpoint>>;

Endpoints join_all(const Device& device, Channel channel, int count, std::size_t size) {
    Endpoints out;
    for (int i = 0; i < count; ++i) {
        out.push_back(std::make_unique<Endpoint>(device, size));
        out.back()->join(channel);
    }
    return out;
}

// Thread i of `threads` polls the endpoints i, i + threads, ... until the near end says it is done.
void serve(Channel channel, int count, int threads, std::size_t size) {
    const Device device;
    const Endpoints all = join_all(device, channel, count, size);
    const auto poll = [&](int first) {
        while (!channel.readable())
            for (int turn = 0; turn < 64; ++turn)
                for (std::size_t i = static_cast<std::size_t>(first); i < all.size();
                     i += static_cast<std::size_t>(threads))
                    all[i]->post_receives(all[i]->poll());
    };
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(poll, i);
    poll(0);
    for (std::thread& t : others) t.join();
}

void latency(ibv_wr_opcode opcode) {
    run_pair(
        [opcode](Channel channel) {
            const Device device;
            Endpoint end(device, 64);
            end.join(channel);
            Latencies times;
            ibv_sge sge;
            const unsigned is_inline = opcode == IBV_WR_RDMA_READ ? 0 : IBV_SEND_INLINE;
            ibv_send_wr wr = end.request(opcode, 8, IBV_SEND_SIGNALED | is_inline, sge);
            for (int i = 0; i < kRounds; ++i) {
                const Clock::time_point start = Clock::now();
                end.post(wr);
                while (end.poll() == 0) {
                }
                times.seconds.push_back(seconds_since(start));
            }
            channel.send(true);
            times.print();
        },
        [](Channel channel) { serve(channel, 1, 1, 64); });
}

// Keeps `depth` requests of `size` bytes on the way for kSeconds; returns how many completed.
double write_for_a_while(Endpoint& end, std::uint32_t size, int depth) {
    ibv_sge sge;
    ibv_send_wr wr = end.request(IBV_WR_RDMA_WRITE, size, IBV_SEND_SIGNALED, sge);
    const Clock::time_point start = Clock::now();
    int on_the_way = 0;
    double done = 0;
    while (on_the_way > 0 || seconds_since(start) < kSeconds) {
        const bool more = seconds_since(start) < kSeconds;
        for (; more && on_the_way < depth; ++on_the_way) end.post(wr);
        const int count = end.poll();
        on_the_way -= count;
        done += count;
    }
    return done;
}

void bandwidth(std::uint32_t size, int threads) {
    double moved = 0;
    double elapsed = 0;
    const auto near = [&](Channel channel) {
        const Device device;
        const Endpoints all = join_all(device, channel, threads, size);
        std::vector<double> done(all.size());
        const auto work = [&](std::size_t i) { done[i] = write_for_a_while(*all[i], size, 8); };
        const Clock::time_point start = Clock::now();
        std::vector<std::thread> others;
        for (std::size_t i = 1; i < all.size(); ++i) others.emplace_back(work, i);
        work(0);
        for (std::thread& t : others) t.join();
        elapsed = seconds_since(start);
        channel.send(true);
        for (const double d : done) moved += d * size;
    };
    const auto far = [=](Channel channel) { serve(channel, threads, threads, size); };
    const double cpu = run_pair(near, far, threads == 1);
    print_stream(moved, elapsed, cpu);
}

// Batches of 32 inline WRITEs, of which the last is signalled; four batches a queue pair on the
// way.
void message_rate(int queue_pairs) {
    constexpr std::size_t kBatch = 32;
    const auto near = [queue_pairs](Channel channel) {
        const Device device;
        const Endpoints all = join_all(device, channel, queue_pairs, 64);
        std::vector<int> on_the_way(all.size());
        double done = 0;
        const Clock::time_point start = Clock::now();
        for (bool more = true; more || std::any_of(on_the_way.begin(), on_the_way.end(),
                                                   [](int n) { return n > 0; });) {
            more = seconds_since(start) < kSeconds;
            for (std::size_t i = 0; i < all.size(); ++i) {
                ibv_sge sge;
                ibv_send_wr batch[kBatch];
                for (std::size_t k = 0; k < kBatch; ++k) {
                    batch[k] = all[i]->request(IBV_WR_RDMA_WRITE, 64, IBV_SEND_INLINE, sge);
                    batch[k].next = k + 1 < kBatch ? &batch[k + 1] : nullptr;
                }
                batch[kBatch - 1].send_flags |= IBV_SEND_SIGNALED;
                for (; more && on_the_way[i] < 4; ++on_the_way[i]) all[i]->post(batch[0]);
                const int count = all[i]->poll();
                on_the_way[i] -= count;
                done += count * static_cast<double>(kBatch);
            }
        }
        const double elapsed = seconds_since(start);
        channel.send(true);
        print_rate(done, elapsed);
    };
    run_pair(near, [=](Channel channel) { serve(channel, queue_pairs, 1, 64); });
}

}  // namespace

int main(int argc, char** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    const auto number = [&](int i, unsigned long otherwise) {
        return argc > i ? std::strtoul(argv[i], nullptr, 10) : otherwise;
    };
    if (what == "write_latency") {
        latency(IBV_WR_RDMA_WRITE);
    } else if (what == "read_latency") {
        latency(IBV_WR_RDMA_READ);
    } else if (what == "send_latency") {
        latency(IBV_WR_SEND);
    } else if (what == "bandwidth") {
        bandwidth(static_cast<std::uint32_t>(number(2, 1 << 20)), static_cast<int>(number(3, 1)));
    } else if (what == "message_rate") {
        message_rate(static_cast<int>(number(2, 16)));
    } else {
        std::fprintf(stderr,
                     "usage: verbs_limits write_latency | read_latency | send_latency | "
                     "bandwidth SIZE THREADS | message_rate QUEUE_PAIRS\n");
        return 2;
    }
    return 0;
}
