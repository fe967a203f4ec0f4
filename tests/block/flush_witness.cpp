// Remembers what a disk has promised, and holds it to that after its machine crashed.
//     flush_witness write ADDRESS DISK RECORD    writes and flushes until SIGTERM
//     flush_witness check ADDRESS DISK RECORD    reads everything
// RECORD has a line a block: the version that is durable, and the last one that was sent. `write`
// says "flushing" on its output when the load is on, and at its end how much was promised; `check`
// says what was lost of the rest, and fails if a promise is broken. Blocks are only ever written by
// one request at a time, so a block holds one of the versions in between.
#include <algorithm>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "feroce/block/client.hpp"
#include "feroce/task_group.hpp"
#include "stamp.hpp"

using namespace feroce;
using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t kBlock = 4096;
constexpr std::uint32_t kWorkers = 16;
constexpr std::uint32_t kFlushesUnderLoad = 8;

volatile std::sig_atomic_t is_over = 0;

struct Block {
    std::uint32_t durable = 0;  // At least this is there whatever happens.
    std::uint32_t latest = 0;   // At most this.
    std::uint32_t done = 0;     // Acknowledged.
};

class Witness {
public:
    Witness(rdma::Loop& loop, const block::Disk& disk, const char* record)
        : loop_(loop),
          disk_(disk),
          record_(record),
          blocks_(disk.info().shape.size / kBlock),
          random_(std::random_device{}()) {
        std::ifstream in(record_);
        for (Block& block : blocks_)
            if (in >> block.durable >> block.latest) block.done = block.durable;
    }
    ~Witness() {
        std::ofstream out(record_);
        for (const Block& block : blocks_) out << block.durable << ' ' << block.latest << '\n';
    }
    Witness(const Witness&) = delete;
    Witness& operator=(const Witness&) = delete;

    int write() {
        rdma::TaskGroup group(loop_);
        for (std::uint32_t i = 0; i < kWorkers; ++i) group.spawn(work(i));
        // The disk's machine is gone by then: what is in flight never ends, and has no promise
        // either.
        while (is_over == 0 && failure_.empty()) loop_.poll_or_wait(loop_.after(20ms));
        std::printf("%" PRIu64 " writes, %" PRIu64 " flushes%s\n", writes_, flushes_,
                    failure_.c_str());
        return failure_.empty() ? 0 : 1;
    }

    int check() {
        std::vector<std::byte> data(kBlock);
        std::uint32_t written = 0, lost = 0, broken = 0;
        for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
            Block& block = blocks_[i];
            loop_.run(disk_.read(std::uint64_t{i} * kBlock, data)).value();
            const auto found = version_of(data, i);
            written += block.latest != 0;
            if (!found || *found < block.durable || *found > block.latest) {
                ++broken;
                std::printf("block %u: %u of %u to %u\n", i, found.value_or(UINT32_MAX),
                            block.durable, block.latest);
            } else {
                lost += *found < block.latest;
                block.durable = *found;
            }
        }
        std::printf("%u blocks written, %u lost what was not flushed, %u broken promises\n",
                    written, lost, broken);
        return broken == 0 ? 0 : 1;
    }

private:
    rdma::Task<void> work(std::uint32_t worker) {
        std::vector<std::byte> data(kBlock);
        while (failure_.empty()) {
            if (random_.below(24) == 0) {
                co_await flush();
                continue;
            }
            const auto of_worker = static_cast<std::uint32_t>(blocks_.size()) / kWorkers;
            const auto number = static_cast<std::uint32_t>(random_.below(of_worker)) * kWorkers;
            co_await write_block(number + worker, data);
        }
    }

    rdma::Task<void> write_block(std::uint32_t number, std::span<std::byte> data) {
        Block& block = blocks_[number];
        const std::uint32_t version = ++block.latest;
        const bool fua = random_.below(16) == 0;
        stamp(data, number, version);
        auto done = co_await disk_.write(std::uint64_t{number} * kBlock, data, {.fua = fua});
        if (!done) {
            failure_ = "; then " + done.error().why;
            co_return;
        }
        ++writes_;
        block.done = version;
        if (fua) block.durable = version;
    }

    rdma::Task<void> flush() {
        std::vector<std::uint32_t> covered;
        for (const Block& block : blocks_) covered.push_back(block.done);
        auto done = co_await disk_.flush();
        if (!done) {
            failure_ = "; then " + done.error().why;
            co_return;
        }
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            blocks_[i].durable = std::max(blocks_[i].durable, covered[i]);
        if (++flushes_ == kFlushesUnderLoad) {
            std::puts("flushing");
            std::fflush(stdout);
        }
    }

    rdma::Loop& loop_;
    block::Disk disk_;
    std::string record_;
    std::vector<Block> blocks_;
    Prng random_;
    std::string failure_;
    std::uint64_t writes_ = 0;
    std::uint64_t flushes_ = 0;
};

}  // namespace

int main(int count, char** words) {
    if (count != 5) {
        std::fprintf(stderr, "usage: flush_witness write|check ADDRESS DISK RECORD\n");
        return 2;
    }
    std::signal(SIGTERM, [](int) { is_over = 1; });
    rdma::Loop loop;
    block::DiskClient client(loop);
    rtrs::SessionOptions options;
    // The disk's machine is emulated, and silent for a while now and then.
    options.heartbeat = {.interval = 2s, .misses = 2};
    options.connect_timeout = 120s;  // Less than the patience of crash.py.
    auto opened = loop.run(
        client.open("witness", {{words[2]}}, words[3], block::AccessMode::ReadWrite, options));
    if (!opened) {
        std::fprintf(stderr, "flush_witness: %s\n", opened.error().why.c_str());
        return 1;
    }
    Witness witness(loop, *opened, words[4]);
    return std::string(words[1]) == "check" ? witness.check() : witness.write();
}
