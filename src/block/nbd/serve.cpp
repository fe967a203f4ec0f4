// See serve.hpp.
#include "block/nbd/serve.hpp"

#include <unistd.h>

#include <chrono>

#include "base/rollback.hpp"
#include "block/nbd/server.hpp"
#include "block/patient_open.hpp"
#include "feroce/stop_signals.hpp"

namespace feroce::block::nbd {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);  // For requests that are worked on at the end.
constexpr auto kGoodbye = std::chrono::seconds(2);

}  // namespace

rdma::Result<> serve(const DiskWish& wish, const std::string& socket,
                     const std::function<void()>& told) {
    rdma::Loop loop;
    const rdma::StopSignals stops(loop);
    DiskClient client(loop);
    const auto open = [&]() -> rdma::Task<rdma::Result<Disk>> {
        return client.open(wish.session, wish.servers, wish.disk, wish.access, wish.options);
    };
    auto opened = loop.run(open_patiently(loop, open));
    if (!opened) return opened.error();
    auto server = Server::start(loop, *std::move(opened), open, socket);
    if (!server) return server.error();
    const Rollback tidy([&] { ::unlink(socket.c_str()); });
    told();
    loop.run();
    (*server)->stop();
    const auto end = loop.after(kPatience);
    while (!(*server)->over() && loop.now() < end) loop.poll_or_wait(end);
    const Disk disk = (*server)->disk();
    server->reset();
    (void)loop.run(disk.close().until(loop.after(kGoodbye)));
    return {};
}

}  // namespace feroce::block::nbd
