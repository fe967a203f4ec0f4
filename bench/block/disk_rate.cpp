// How many requests a second a disk does for the C++ client:
//     disk_rate ADDRESS PORT DISK randread|randwrite|read|write BLOCK DEPTH SECONDS
// Prints {"iops": ..., "us_mean": ...}.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/random.hpp"
#include "feroce/block/client.hpp"
#include "feroce/task_group.hpp"

using namespace feroce;

namespace {

struct Run {
    rdma::Loop& loop;
    block::Disk disk;
    bool random;
    bool writes;
    std::size_t block;
    Instant end;
    std::uint64_t done = 0;
    std::uint64_t next = 0;
};

rdma::Task<void> work(Run& run, unsigned number) {
    rtrs::SessionBuffer buffer = run.disk.session().allocate(run.block).value();
    Prng random(number);
    const std::uint64_t blocks = run.disk.info().shape.size / run.block;
    while (run.loop.now() < run.end) {
        const std::uint64_t at =
            (run.random ? random.below(blocks) : run.next++ % blocks) * run.block;
        if (run.writes)
            (co_await run.disk.write(at, buffer.bytes())).value();
        else
            (co_await run.disk.read(at, buffer.bytes())).value();
        ++run.done;
    }
}

}  // namespace

int main(int count, char** argv) {
    if (count != 8) {
        std::fprintf(stderr, "usage: disk_rate ADDRESS PORT DISK PATTERN BLOCK DEPTH SECONDS\n");
        return 2;
    }
    const std::string pattern = argv[4];
    const unsigned depth = static_cast<unsigned>(std::atoi(argv[6]));
    rdma::Loop loop;
    block::DiskClient client(loop);
    rtrs::SessionOptions options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[2]));
    const block::Disk disk =
        loop.run(client.open("bench", {{argv[1]}}, argv[3], block::AccessMode::ReadWrite, options))
            .value();
    const Duration length = std::chrono::seconds(std::atoi(argv[7]));
    Run run{loop,
            disk,
            pattern.starts_with("rand"),
            pattern.ends_with("write"),
            static_cast<std::size_t>(std::atoi(argv[5])),
            loop.after(length)};
    rdma::TaskGroup group(loop);
    for (unsigned i = 0; i < depth; ++i) group.spawn(work(run, i));
    loop.run(group.join()).value();
    loop.run(disk.close()).value();
    const double iops =
        static_cast<double>(run.done) / std::chrono::duration<double>(length).count();
    std::printf("{\"iops\": %.0f, \"us_mean\": %.1f}\n", iops, depth * 1e6 / iops);
}
