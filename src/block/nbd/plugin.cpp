// nbdkit-feroce-plugin.so: a disk of an RNBD server for everything that speaks NBD.
//
// nbdkit calls from threads of its own and forks before it serves; the disk lives in one thread of
// ours that is started after that. A call is handed to it as a message on the caller's stack.
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "block/nbd/words.hpp"
#include "block/patient_open.hpp"
#include "block/renew.hpp"
#include "feroce/block/client.hpp"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

namespace feroce::block {
namespace {

struct Settings {
    std::vector<rtrs::PathAddress> servers;
    std::string disk;
    std::string session;
    AccessMode access = AccessMode::ReadWrite;
    rtrs::SessionOptions options;
};

Settings settings;

// The thread of the disk.
class Worker {
public:
    // Returns when the disk is open, or why it is not.
    rdma::Result<> start() {
        std::promise<rdma::Result<>> opened;
        auto outcome = opened.get_future();
        thread_ = std::thread([this, &opened] { run(opened); });
        return outcome.get();
    }
    ~Worker() {
        if (loop_ != nullptr) loop_->post([this] { over_ = true; });
        if (thread_.joinable()) thread_.join();
    }

    // Any thread: does it on the disk's and waits for it.
    template <class Function>
    rdma::Result<> call(Function function) {
        Call<Function> what(*loop_, *this, function);
        what.post();
        what.done.acquire();
        return what.result;
    }
    rdma::Task<rdma::Result<>> renew_disk() {
        const auto renewed = co_await renew(*disk_, [this] { return open(); });
        if (!renewed) co_return renewed.error();
        co_return rdma::Result<>{};
    }

private:
    template <class Function>
    struct Call : rdma::Message {
        Call(rdma::Loop& loop, Worker& of, Function& what)
            : Message(loop,
                      [](rdma::Message& message) {
                          auto& self = static_cast<Call&>(message);
                          self.worker.loop_->spawn(self.run());
                      }),
              worker(of),
              function(what) {}
        rdma::Task<void> run() {
            result = co_await function(*worker.disk_);
            done.release();  // The caller's stack goes here.
        }

        Worker& worker;
        Function& function;
        rdma::Result<> result;
        std::binary_semaphore done{0};
    };

    void run(std::promise<rdma::Result<>>& opened) {
        rdma::Loop loop;
        DiskClient client(loop);
        client_ = &client;
        auto disk = loop.run(open_patiently(loop, [this] { return open(); }));
        if (!disk) return opened.set_value(disk.error());
        disk_ = *disk;
        loop_ = &loop;
        opened.set_value({});
        while (!over_) loop.poll_or_wait();
        (void)loop.run(disk_->close().until(loop.after(std::chrono::seconds(2))));
        disk_.reset();
    }

    rdma::Task<rdma::Result<Disk>> open() {
        return client_->open(settings.session, settings.servers, settings.disk, settings.access,
                             settings.options);
    }

    std::thread thread_;
    bool over_ = false;             // The thread's.
    DiskClient* client_ = nullptr;  // The thread's.
    rdma::Loop* loop_ = nullptr;    // From start() on, if that went well.
    std::optional<Disk> disk_;
};

std::unique_ptr<Worker> worker;
std::mutex opening;  // Guards the number of connections, and the disk while none is there.
int connections = 0;

int answer(const rdma::Result<>& result) {
    if (result) return 0;
    nbdkit_error("%s", result.error().why.c_str());
    // nbdkit would make EINVAL of any that NBD does not know.
    nbdkit_set_error(nbd::code_of(result.error().code));
    return -1;
}

int complain(const std::string& sentence) {
    nbdkit_error("%s", sentence.c_str());
    return -1;
}

bool to_number(const char* text, unsigned long largest, unsigned long& out) {
    const char* const end = text + std::strlen(text);
    const auto read = std::from_chars(text, end, out);
    return read.ec == std::errc() && read.ptr == end && out <= largest;
}

int configure_access(const std::string& value) {
    if (value == "ro")
        settings.access = AccessMode::ReadOnly;
    else if (value == "rw")
        settings.access = AccessMode::ReadWrite;
    else if (value == "migration")
        settings.access = AccessMode::Migration;
    else
        return complain("access is ro, rw or migration, not " + value);
    return 0;
}

int configure(const char* key, const char* value) {
    const std::string name = key;
    unsigned long number = 0;
    if (name == "server") {
        settings.servers.push_back({value});
    } else if (name == "disk") {
        settings.disk = value;
    } else if (name == "session") {
        settings.session = value;
    } else if (name == "access") {
        return configure_access(value);
    } else if (name == "port") {
        if (!to_number(value, 65535, number)) return complain("port is a number up to 65535");
        settings.options.port = static_cast<std::uint16_t>(number);
    } else if (name == "patience") {
        if (!to_number(value, 86400, number)) return complain("patience is in seconds");
        settings.options.queue_if_no_path = std::chrono::seconds(number);
    } else {
        return complain("there is no parameter " + name);
    }
    return 0;
}

int configuration_complete() {
    if (settings.servers.empty() || settings.disk.empty() || settings.session.empty())
        return complain("server=ADDRESS, disk=NAME and session=NAME must be given");
    return 0;
}

int after_fork() {
    worker = std::make_unique<Worker>();
    return answer(worker->start());
}

void unload() {
    worker.reset();
}

// What a connection was told of the disk. nbdkit asks from threads of its own, at any time; the
// disk's own values belong to its thread.
rdma::Task<rdma::Result<>> look(Disk disk, DiskInfo& into) {
    auto done = co_await disk.refresh();  // It may have grown.
    into = disk.info();
    co_return done;
}

void* open_connection(int /*readonly*/) {
    const std::lock_guard lock(opening);
    if (connections == 0 &&
        answer(worker->call([](const Disk&) { return worker->renew_disk(); })) != 0)
        return nullptr;
    auto info = std::make_unique<DiskInfo>();
    if (answer(worker->call([&](const Disk& disk) { return look(disk, *info); })) != 0)
        return nullptr;
    ++connections;
    return info.release();
}

void close_connection(void* handle) {
    const std::lock_guard lock(opening);
    --connections;
    delete static_cast<DiskInfo*>(handle);
}

const DiskInfo& info(void* handle) {
    return *static_cast<const DiskInfo*>(handle);
}

int block_sizes(void* handle, std::uint32_t* smallest, std::uint32_t* preferred,
                std::uint32_t* largest) {
    constexpr std::uint32_t kLargest = 32 << 20;  // What NBD clients may count on.
    *smallest = info(handle).shape.logical_block;
    *preferred = std::max(std::bit_ceil(info(handle).shape.physical_block), 4096u);
    *largest = kLargest;
    return 0;
}

int read(void* /*handle*/, void* buffer, std::uint32_t count, std::uint64_t offset,
         std::uint32_t /*flags*/) {
    const std::span into(static_cast<std::byte*>(buffer), count);
    return answer(worker->call([=](const Disk& disk) { return disk.read(offset, into); }));
}

int write(void* /*handle*/, const void* buffer, std::uint32_t count, std::uint64_t offset,
          std::uint32_t flags) {
    const std::span from(static_cast<const std::byte*>(buffer), count);
    const WriteOptions options{.fua = (flags & NBDKIT_FLAG_FUA) != 0};
    return answer(
        worker->call([=](const Disk& disk) { return disk.write(offset, from, options); }));
}

int flush(void* /*handle*/, std::uint32_t /*flags*/) {
    return answer(worker->call([](const Disk& disk) { return disk.flush(); }));
}

rdma::Task<rdma::Result<>> discard(Disk disk, std::uint64_t offset, std::uint32_t count, bool fua) {
    auto done = co_await disk.discard(offset, count);
    if (done && fua) co_return co_await disk.flush();
    co_return done;
}

int trim(void* /*handle*/, std::uint32_t count, std::uint64_t offset, std::uint32_t flags) {
    const bool fua = (flags & NBDKIT_FLAG_FUA) != 0;
    return answer(
        worker->call([=](const Disk& disk) { return discard(disk, offset, count, fua); }));
}

int zero(void* /*handle*/, std::uint32_t count, std::uint64_t offset, std::uint32_t flags) {
    const ZeroOptions options{.unmap = (flags & NBDKIT_FLAG_MAY_TRIM) != 0,
                              .fua = (flags & NBDKIT_FLAG_FUA) != 0};
    return answer(
        worker->call([=](const Disk& disk) { return disk.zero(offset, count, options); }));
}

// nbdkit before 1.30, as Ubuntu 22.04 has it, does not ask for them.
template <class Plugin>
void tell_block_sizes(Plugin& out) {
    if constexpr (requires { out.block_size; }) out.block_size = block_sizes;
}

nbdkit_plugin describe() {
    nbdkit_plugin out{};
    out.name = "feroce";
    out.longname = "a disk of an RNBD server, over RDMA";
    out.version = FEROCE_VERSION;
    out.config = configure;
    out.config_complete = configuration_complete;
    out.config_help =
        "server=ADDRESS      (required, may be repeated) A path to the server.\n"
        "disk=NAME           (required) The disk, as the server calls it.\n"
        "session=NAME        (required) The name of this client at the server.\n"
        "port=PORT           Of the server.\n"
        "access=ro|rw|migration\n"
        "patience=SECONDS    How long requests wait while no path is up.";
    out.after_fork = after_fork;
    out.unload = unload;
    out.open = open_connection;
    out.close = close_connection;
    out.get_size = [](void* handle) { return static_cast<std::int64_t>(info(handle).shape.size); };
    tell_block_sizes(out);
    out.can_write = [](void* handle) { return info(handle).read_only ? 0 : 1; };
    out.can_flush = [](void*) { return 1; };
    out.can_fua = [](void*) { return NBDKIT_FUA_NATIVE; };
    out.can_trim = [](void* handle) { return info(handle).max_discard != 0 ? 1 : 0; };
    out.can_zero = [](void* handle) {
        return info(handle).max_zeroes != 0 ? 1 : 0;
    };  // 0: it writes them.
    out.can_multi_conn = [](void*) { return 1; };
    out.is_rotational = [](void* handle) { return info(handle).shape.rotational ? 1 : 0; };
    out.pread = read;
    out.pwrite = write;
    out.flush = flush;
    out.trim = trim;
    out.zero = zero;
    return out;
}

nbdkit_plugin plugin = describe();

}  // namespace
}  // namespace feroce::block

using feroce::block::plugin;
NBDKIT_REGISTER_PLUGIN(plugin)
