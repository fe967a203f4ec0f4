// Stores a value and asks for it a thousand times, over as many paths as there are addresses:
//     key_value_ping 7480 127.0.0.1 ...
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "feroce/rtrs/session.hpp"

using namespace feroce;

int main(int count, char** argv) {
    rdma::Loop loop;
    rtrs::Client client(loop);
    rtrs::SessionOptions options;
    options.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    std::vector<rtrs::PathAddress> paths;
    for (int i = 2; i < count; ++i) paths.push_back({argv[i]});
    rtrs::Session session = loop.run(client.open("ping", paths, options)).value();

    const std::string value = "Hello over " + std::to_string(paths.size()) + " path(s)";
    session.write("greeting", value).wait().value();
    std::string back(value.size(), ' ');
    for (int i = 0; i < 1000; ++i) session.read("greeting", back).wait().value();
    std::puts(back.c_str());

    const auto missing = session.read("no such key", rtrs::Segment{}).wait();
    std::puts(missing ? "?" : missing.error().why.c_str());
    const auto median = session.statistics().latency.percentile(0.5);
    std::fprintf(stderr, "median %.1f us\n", static_cast<double>(median.count()) / 1000);
}
