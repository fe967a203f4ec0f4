// A load that verifies what it reads: session_load PORT ADDRESS...
// Prints, ten times a second, one line: operations, errors, wrong bytes, failovers, and in
// milliseconds the slowest request so far and the longest time in which none was done. Ends when
// its input does, with success if there were no errors.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/random.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"

using namespace feroce;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kArea = 1 << 20;  // Of the disk, for each worker.
constexpr std::size_t kUnit = 4096;
constexpr std::size_t kMaxUnits = 128;  // 512 KiB.
constexpr int kWorkers = 8;

struct Load {
    rdma::Loop loop;
    bool over = false;
    std::uint64_t operations = 0;
    std::uint64_t errors = 0;
    std::uint64_t wrong = 0;
    Duration longest{};
    Instant last{};

    void count(bool good) {
        const Instant now = loop.now();
        if (operations > 0) longest = std::max(longest, now - last);
        last = now;
        ++operations;
        errors += !good;
    }
};

rdma::Task<void> work(Load& load, rtrs::Session session, int number) {
    Prng random(static_cast<std::uint64_t>(number));
    rtrs::SessionBuffer buffer = session.allocate(kMaxUnits * kUnit).value();
    std::vector<std::byte> expected(kArea);
    for (std::uint8_t version = 1; !load.over; ++version) {
        const std::size_t units = version == 1 ? kMaxUnits : 1 + random.below(kMaxUnits);
        const std::size_t first = random.below(kArea / kUnit - units + 1) * kUnit;
        const auto bytes = buffer.bytes().first(units * kUnit);
        const std::uint64_t offset = static_cast<std::uint64_t>(number) * kArea + first;
        const auto message = std::as_bytes(std::span(&offset, 1));
        const auto mirror = std::span(expected).subspan(first, bytes.size());
        std::fill(mirror.begin(), mirror.end(), static_cast<std::byte>(version ^ number << 4));
        std::copy(mirror.begin(), mirror.end(), bytes.begin());
        load.count((co_await session.write(message, bytes)).has_value());
        std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
        load.count((co_await session.read(message, bytes)).has_value());
        load.wrong += !std::equal(bytes.begin(), bytes.end(), mirror.begin());
    }
}

bool input_ended() {
    pollfd look{STDIN_FILENO, POLLIN, 0};
    return ::poll(&look, 1, 0) != 0;
}

rdma::Task<void> report(Load& load, rtrs::Session session) {
    while (!load.over) {
        (void)co_await load.loop.sleep(100ms);
        std::uint64_t failovers = 0;
        for (const auto& path : session.statistics().paths) failovers += path.failovers;
        const auto slowest = session.statistics().latency.percentile(1);
        std::printf(
            "%llu %llu %llu %llu %lld %lld\n", static_cast<unsigned long long>(load.operations),
            static_cast<unsigned long long>(load.errors),
            static_cast<unsigned long long>(load.wrong), static_cast<unsigned long long>(failovers),
            static_cast<long long>(slowest.count() / 1'000'000),
            static_cast<long long>(load.longest.count() / 1'000'000));
        std::fflush(stdout);
        load.over = input_ended();
    }
}

}  // namespace

int main(int count, char** argv) {
    Load load;
    rtrs::Client client(load.loop);
    rtrs::SessionOptions options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    options.connect_timeout = 1s;
    std::vector<rtrs::PathAddress> paths;
    for (int i = 2; i < count; ++i) paths.push_back({argv[i]});
    rtrs::Session session = load.loop.run(client.open("load", paths, options)).value();
    rdma::TaskGroup group(load.loop);
    for (int i = 0; i < kWorkers; ++i) group.spawn(work(load, session, i));
    group.spawn(report(load, session));
    load.loop.run(group.join()).value();
    return load.errors + load.wrong == 0 ? 0 : 1;
}
