// Four threads share one session: many_threads 7480 127.0.0.1 ...
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "feroce/rtrs/session.hpp"
#include "feroce/rtrs/session_port.hpp"
#include "feroce/workers.hpp"

using namespace feroce;

// Each keeps a number under a key of its own, and counts it up through the server.
rdma::Task<void> count(rtrs::SessionPort port, std::string key, std::atomic<int>& sum) {
    std::uint64_t number = 0;
    for (int i = 0; i < 250; ++i) {
        ++number;
        (co_await port.write(key, number)).value();
        number = 0;
        (co_await port.read(key, number)).value();
    }
    sum += static_cast<int>(number);
}

int main(int argc, char** argv) {
    rdma::Loop loop;
    rtrs::Client client(loop);
    rtrs::SessionOptions options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    std::vector<rtrs::PathAddress> paths;
    for (int i = 2; i < argc; ++i) paths.push_back({argv[i]});
    rtrs::Session session = loop.run(client.open("threads", paths, options)).value();

    std::atomic<int> sum = 0, left = 4;
    const rdma::Workers workers = rdma::Workers::start(4).value();
    for (std::size_t i = 0; i < workers.size(); ++i) {
        const rtrs::SessionPort port(session, workers.loop(i));
        workers.post(i, [&, i, port] {
            workers.loop(i).run(count(port, "number " + std::to_string(i), sum));
            --left;
        });
    }
    while (left > 0) loop.poll_or_wait(loop.after(std::chrono::milliseconds(1)));
    std::printf("%zu threads counted to %d\n", workers.size(), sum.load());
}
