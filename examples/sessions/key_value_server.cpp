// Keeps values under keys for clients of any number, served by threads of any number:
//     key_value_server 127.0.0.1 7480 [2]
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "feroce/bytes.hpp"
#include "feroce/rtrs/server.hpp"
#include "feroce/workers.hpp"

using namespace feroce;

int main(int count, char** argv) {
    rdma::Loop loop;
    const auto threads = static_cast<std::size_t>(count > 3 ? std::atoi(argv[3]) : 0);
    const rdma::Workers workers = rdma::Workers::start(threads).value();
    std::mutex mutex;  // Of the values.
    std::map<std::string, std::vector<std::byte>> values;
    rtrs::ServerOptions options;
    options.address = argv[1];
    options.port = static_cast<std::uint16_t>(std::atoi(argv[2]));
    options.workers = workers.loops();  // None: all is done here.
    rtrs::Server server =
        rtrs::Server::open(loop, options, [&](rtrs::ServerRequest& request) {
            const std::string key(rdma::text_of(request.message()));
            const std::span<std::byte> data = request.data();
            const std::lock_guard lock(mutex);
            if (request.direction() == rtrs::Direction::Write) {
                values[key].assign(data.begin(), data.end());
                return request.respond();
            }
            const auto found = values.find(key);
            if (found == values.end()) return request.respond(ENOENT);
            const std::size_t size = std::min(data.size(), found->second.size());
            std::copy_n(found->second.begin(), size, data.begin());
            std::fill(data.begin() + static_cast<std::ptrdiff_t>(size), data.end(), std::byte{0});
            request.respond();
        }).value();
    for (;;) loop.poll_or_wait();
}
