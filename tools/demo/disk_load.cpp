// The load of the demo: disk_load PORT DISK LINES ADDRESS...
// Eight workers write to a disk of `feroce export` over a session with a path to each address, read
// back what they wrote and compare. Prints a line of figures twice a second, LINES of them, then
// what it came to. Fails if a request failed or a byte was wrong.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "feroce/block/client.hpp"
#include "feroce/task_group.hpp"

using namespace feroce;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kPiece = 64 << 10;
constexpr int kWorkers = 8;
constexpr std::uint64_t kPiecesPerWorker = 32;

struct Load {
    rdma::Loop loop;
    bool over = false;
    std::uint64_t requests = 0;
    std::uint64_t errors = 0;
    std::uint64_t wrong = 0;
    Instant last{};
    Duration longest{};  // Without any request being done.

    void count(const rdma::Result<>& done) {
        const Instant now = loop.now();
        if (requests > 0) longest = std::max(longest, now - last);
        last = now;
        ++requests;
        errors += !done;
    }
};

rdma::Task<void> work(Load& load, block::Disk disk, int number) {
    rtrs::SessionBuffer buffer = disk.session().allocate(kPiece).value();
    const auto bytes = buffer.bytes();
    for (std::uint64_t round = 0; !load.over; ++round) {
        const auto place = static_cast<std::uint64_t>(number) * kPiecesPerWorker;
        const std::uint64_t offset = (place + round % kPiecesPerWorker) * kPiece;
        const auto value = static_cast<std::byte>(round * 31 + static_cast<unsigned>(number));
        std::fill(bytes.begin(), bytes.end(), value);
        load.count(co_await disk.write(offset, bytes));
        std::fill(bytes.begin(), bytes.end(), ~value);
        load.count(co_await disk.read(offset, bytes));
        const auto same = [value](std::byte byte) { return byte == value; };
        load.wrong += !std::all_of(bytes.begin(), bytes.end(), same);
    }
}

rdma::Task<void> report(Load& load, block::Disk disk, int lines) {
    const Instant start = load.loop.now();
    Instant before = start;
    std::uint64_t done = 0;
    for (int line = 0; line < lines; ++line) {
        (void)co_await load.loop.sleep(500ms);
        const auto paths = disk.session().statistics().paths;
        const auto up = std::count_if(paths.begin(), paths.end(), [](const auto& path) {
            return path.state == rtrs::PathState::Connected;
        });
        std::uint64_t moved = 0;
        for (const auto& path : paths) moved += path.failovers;
        const Instant now = load.loop.now();
        const double seconds = std::chrono::duration<double>(now - before).count();
        std::printf(
            "%5.1f s %8.0f requests/s   paths up %d of %d   moved to another path %llu   "
            "errors %llu\n",
            std::chrono::duration<double>(now - start).count(),
            static_cast<double>(load.requests - done) / seconds, static_cast<int>(up),
            static_cast<int>(paths.size()), static_cast<unsigned long long>(moved),
            static_cast<unsigned long long>(load.errors));
        std::fflush(stdout);
        done = load.requests;
        before = now;
    }
    load.over = true;
}

}  // namespace

int main(int count, char** argv) {
    if (count < 5) {
        std::fputs("usage: disk_load PORT DISK LINES ADDRESS...\n", stderr);
        return 2;
    }
    Load load;
    block::DiskClient client(load.loop);
    rtrs::SessionOptions options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    std::vector<rtrs::PathAddress> paths;
    for (int i = 4; i < count; ++i) paths.push_back({argv[i]});
    const auto opened =
        load.loop.run(client.open("demo", paths, argv[2], block::AccessMode::ReadWrite, options));
    if (!opened) {
        std::fprintf(stderr, "%s\n", opened.error().why.c_str());
        return 1;
    }
    rdma::TaskGroup group(load.loop);
    for (int i = 0; i < kWorkers; ++i) group.spawn(work(load, *opened, i));
    group.spawn(report(load, *opened, std::atoi(argv[3])));
    load.loop.run(group.join()).value();
    load.loop.run(opened->flush()).value();
    load.loop.run(opened->close()).value();  // The next writer need not wait until we are missed.
    std::printf("%llu requests of 64 KiB, %llu errors, %llu wrong; longest pause of all %lld ms\n",
                static_cast<unsigned long long>(load.requests),
                static_cast<unsigned long long>(load.errors),
                static_cast<unsigned long long>(load.wrong),
                static_cast<long long>(load.longest.count() / 1'000'000));
    return load.errors + load.wrong == 0 ? 0 : 1;
}
