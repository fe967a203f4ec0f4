// See export.hpp.
#include "cli/export.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <thread>
#include <utility>

#include "cli/complain.hpp"
#include "cli/export_change.hpp"
#include "cli/export_door.hpp"
#include "cli/output.hpp"
#include "feroce/block/server.hpp"
#include "feroce/task_group.hpp"

namespace feroce::cli {
namespace {

volatile std::sig_atomic_t asked_to_end = 0;
volatile std::sig_atomic_t asked_to_reload = 0;

void on_signal(int number) {
    (number == SIGHUP ? asked_to_reload : asked_to_end) = 1;
}

// The kernel lets go of a killed server's files a moment after it has ended.
rdma::Result<block::Export> open_patiently(rdma::Loop& loop, const ExportSpec& spec) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    for (;;) {
        auto what = open_export(loop, spec);
        if (what || what.error().code != EBUSY || asked_to_end != 0 ||
            std::chrono::steady_clock::now() > end)
            return what;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
}

rdma::Result<std::vector<block::Export>> open_all(rdma::Loop& loop, const ExportConfig& config) {
    std::vector<block::Export> out;
    for (const ExportSpec& spec : config.exports) {
        auto what = open_patiently(loop, spec);
        if (!what) return what.error();
        out.push_back(*std::move(what));
    }
    return out;
}

void catch_signals(bool reloads) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    ::sigaction(SIGTERM, &action, nullptr);
    ::sigaction(SIGINT, &action, nullptr);
    if (reloads) ::sigaction(SIGHUP, &action, nullptr);
}

// Reads the config again when it is asked to: one after the other, beside the loop's work.
class Reloader {
public:
    using Told = std::function<void(const std::string& trouble)>;

    Reloader(rdma::Loop& loop, block::DiskServer& server, ExportConfig now,
             const ConfigSource& source)
        : exports_(loop, server, std::move(now)), source_(source), tasks_(loop) {}

    bool busy() const { return !tasks_.empty(); }
    // Waits for no file any more: what is begun ends soon.
    void stop() { exports_.stop(); }
    void begin(Told told) {
        waiting_.push_back(std::move(told));
        if (!busy()) tasks_.spawn(reload());
    }

private:
    rdma::Task<void> reload() {
        while (!waiting_.empty()) {
            const std::vector<Told> told = std::exchange(waiting_, {});
            const std::string trouble = co_await reload_once();
            if (!trouble.empty()) complain(trouble);
            for (const Told& tell : told) tell(trouble);
        }
    }
    rdma::Task<std::string> reload_once() {
        auto read = source_.read;
        const ServedExports::Outcome done = co_await exports_.change_to(std::move(read));
        for (const std::string& line : done.lines) fmt::print("{}\n", line);
        std::fflush(stdout);
        if (done.trouble.empty()) co_return std::string();
        const bool nothing = done.lines.empty();
        co_return done.trouble + (nothing ? "; nothing is changed" : "; the rest is changed");
    }

    ServedExports exports_;
    const ConfigSource& source_;
    std::vector<Told> waiting_;  // For the next time.
    rdma::TaskGroup tasks_;      // Ends first.
};

using Disks = std::vector<std::pair<std::string, std::uint64_t>>;  // Names and sizes.

// Until a signal asks for the end. It says that it serves when it can be asked to reload.
void serve(rdma::Loop& loop, block::DiskServer& server, Reloader& reloader, const std::string& file,
           const Disks& disks) {
    ExportDoor door(server, file,
                    [&](ExportDoor::Answer answer) { reloader.begin(std::move(answer)); });
    for (const auto& [name, size] : disks)
        fmt::print("{}: {} bytes on port {}\n", name, size, server.port());
    std::fflush(stdout);
    // A signal ends the wait, unless it came just before it.
    constexpr auto kDoorPeriod = std::chrono::milliseconds(100);
    auto next_look = loop.now();
    while (asked_to_end == 0 || reloader.busy()) {
        if (asked_to_end != 0) reloader.stop();
        loop.poll_or_wait(loop.after(kDoorPeriod));
        if (loop.now() < next_look) continue;
        next_look = loop.after(kDoorPeriod);
        if (asked_to_reload != 0) {
            asked_to_reload = 0;  // Before the file is read: it may be changed again meanwhile.
            reloader.begin([](const std::string&) {});
        }
        door.answer_all();
    }
}

// Why the server keeps no book of its clients; empty if it does.
void tell_of_book(const std::string& why_not) {
    if (why_not.empty()) return;
    complain(
        "this server keeps no book of its clients, so that after its restart sessions of the Linux "
        "kernel can map no further disks for writing: " +
        why_not);
}

}  // namespace

// Without memory of its own: that may be what was missing.
void go_on_after_exceptions(rdma::Loop& loop) {
    loop.on_exception([](const std::exception_ptr& thrown) {
        try {
            std::rethrow_exception(thrown);
        } catch (const std::exception& error) {
            std::fprintf(stderr, "feroce: a request failed by an exception: %s\n", error.what());
        } catch (...) {
            std::fprintf(stderr, "feroce: a request failed by an exception\n");
        }
    });
}

int serve_exports(const ConfigSource& source) {
    catch_signals(!source.file.empty());  // First: a SIGHUP that is not caught ends the process.
    ExportConfig config = source.read();
    rdma::Loop loop;
    go_on_after_exceptions(loop);
    rtrs::ServerOptions options;
    options.address = config.address;
    options.port = config.port;
    options.queue_depth = config.queue_depth;
    options.chunk_size = config.chunk_size;
    auto exports = open_all(loop, config);
    if (!exports) return complain(exports.error().why);
    find_files(config);
    Disks disks;
    for (const block::Export& what : *exports)
        disks.emplace_back(what.name, what.backend->shape().size);
    const auto book = block::default_book(config.port);
    auto server = block::DiskServer::open(loop, std::move(options), *std::move(exports),
                                          book ? *book : std::string());
    if (!server) return complain(server.error().why);
    tell_of_book(book ? server->without_book() : book.error().why);
    {
        Reloader reloader(loop, *server, config, source);
        serve(loop, *server, reloader, source.file, disks);
    }
    const auto stopped = loop.run(server->stop());
    const block::DiskServerStatistics done = server->statistics();
    fmt::print(
        "end: {} reads, {} writes, {} flushes, {} discards, {} zeroes, {} failed, {} refused\n",
        done.reads, done.writes, done.flushes, done.discards, done.zeroes, done.failed,
        done.refused);
    return stopped ? 0 : complain(stopped.error().why);
}

}  // namespace feroce::cli
