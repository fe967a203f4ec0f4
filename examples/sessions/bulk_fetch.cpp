// Fetches a value of 64 MiB in pieces, eight at a time: bulk_fetch 7480 127.0.0.1 ...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "feroce/rtrs/session.hpp"
#include "feroce/task_group.hpp"

using namespace feroce;

constexpr std::uint64_t kPiece = 64 << 10, kPieces = 1024, kReaders = 8;

// Pieces number first, first + kReaders... The message is a piece's number.
rdma::Task<void> fetch(rtrs::Session session, std::uint64_t first, std::uint64_t& sum) {
    rtrs::SessionBuffer buffer = session.allocate(kPiece).value();
    for (std::uint64_t piece = first; piece < kPieces; piece += kReaders) {
        std::fill(buffer.bytes().begin(), buffer.bytes().end(), static_cast<std::byte>(piece));
        (co_await session.write(piece, buffer.bytes())).value();  // Nobody has stored it yet.
        std::fill(buffer.bytes().begin(), buffer.bytes().end(), std::byte{0});
        (co_await session.read(piece, buffer.bytes())).value();
        for (const std::byte byte : buffer.bytes()) sum += std::to_integer<unsigned>(byte);
    }
}

int main(int count, char** argv) {
    rdma::Loop loop;
    rtrs::Client client(loop);
    rtrs::SessionOptions options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    std::vector<rtrs::PathAddress> paths;
    for (int i = 2; i < count; ++i) paths.push_back({argv[i]});
    rtrs::Session session = loop.run(client.open("bulk", paths, options)).value();

    std::uint64_t sum = 0;
    rdma::TaskGroup readers(loop);
    for (std::uint64_t i = 0; i < kReaders; ++i) readers.spawn(fetch(session, i, sum));
    loop.run(readers.join()).value();
    std::printf("fetched %llu MiB, sum %llu\n",
                static_cast<unsigned long long>(kPiece * kPieces >> 20),
                static_cast<unsigned long long>(sum));
}
