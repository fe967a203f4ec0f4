// See server.hpp; what requests mean is in desk.hpp.
#include "feroce/block/server.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "block/book_keeper.hpp"
#include "block/desk.hpp"
#include "block/durable_file.hpp"

namespace feroce::block {

class DiskServer::State {
public:
    State(rdma::Loop& loop, std::uint32_t max_io) : loop_(loop), desk_(max_io) {}

    Desk& desk() { return desk_; }
    rdma::Result<> listen(rtrs::ServerOptions options) {
        // A write that was ended here could still land over a later one: a slow disk is waited for.
        options.answer_within = {};
        desk_.on_exception(
            [this](std::exception_ptr thrown) { loop_.throw_later(std::move(thrown)); });
        options.on_path = [this](const rtrs::Visitor& visitor) { return desk_.admit(visitor); };
        options.on_session_end = [this](std::uint64_t session) { desk_.end_session(session); };
        auto opened = rtrs::Server::open(loop_, std::move(options),
                                         [this](auto& request) { desk_.handle(request); });
        if (!opened) return opened.error();
        sessions_ = *std::move(opened);
        return {};
    }
    std::uint16_t port() const { return sessions_ ? sessions_->port() : 0; }
    DiskServerStatistics statistics() const {
        DiskServerStatistics out = desk_.statistics();
        if (sessions_) out.sessions = sessions_->statistics();
        return out;
    }
    // Goes on without the book if another server has it: that one has other clients, of which this
    // book would know nothing.
    rdma::Result<> keep_book(const std::string& path) {
        auto keeper = BookKeeper::open(loop_, path, desk_.book());
        if (keeper) {
            desk_.keep_book(*std::move(keeper));
            return {};
        }
        if (keeper.error().code != EBUSY) return keeper.error();
        without_book_ = keeper.error().why;
        return {};
    }
    const std::string& without_book() const { return without_book_; }
    rdma::Loop& loop() const { return loop_; }
    rdma::Task<rdma::Result<>> withdraw(std::string name);
    rdma::Task<rdma::Result<>> stop();

private:
    static constexpr Duration kLook = std::chrono::milliseconds(1);

    // Lives until the back end has done it, also if nobody waits for it any more.
    struct Flush : BackendRequest {
        static void ended_with(BackendRequest& request, int code);

        std::size_t* flushing = nullptr;
        std::shared_ptr<ExportedDisk> disk;  // Null when it has ended.
        std::shared_ptr<Flush> self;
        int error = 0;
    };
    // 0 or the back end's errno; a failure is in the disk's record then.
    rdma::Task<rdma::Result<int>> flush(std::shared_ptr<ExportedDisk> disk);
    rdma::Task<rdma::Result<>> wait_for_back_ends();
    rdma::Task<rdma::Result<>> wait_for_last(const std::shared_ptr<ExportedDisk>& disk);

    rdma::Loop& loop_;
    Desk desk_;
    std::size_t flushing_ = 0;
    std::string without_book_;
    std::optional<rtrs::Server> sessions_;
};

void DiskServer::State::Flush::ended_with(BackendRequest& request, int code) {
    Flush& flush = static_cast<Flush&>(request);
    const std::shared_ptr<Flush> self = std::move(flush.self);
    const std::shared_ptr<ExportedDisk> of = std::move(flush.disk);
    --*flush.flushing;
    flush.error = code;
    if (code == 0) return;
    // Its writers need not be here any more: the next server tells them.
    of->flush_failed();
    of->settle();
}

rdma::Task<rdma::Result<int>> DiskServer::State::flush(std::shared_ptr<ExportedDisk> disk) {
    const auto flush = std::make_shared<Flush>();
    flush->kind = IoKind::Flush;
    flush->done = &Flush::ended_with;
    flush->flushing = &flushing_;
    flush->disk = disk;
    flush->self = flush;
    ++flushing_;
    try {
        disk->what().backend->submit(*flush);
    } catch (...) {
        if (flush->disk != nullptr) Flush::ended_with(*flush, EIO);
        loop_.throw_later(std::current_exception());
    }
    while (flush->disk != nullptr)
        if (auto slept = co_await loop_.sleep(kLook); !slept) co_return slept.error();
    co_return flush->error;
}

// Requests in flight and records that are being kept hold the disk, too.
rdma::Task<rdma::Result<>> DiskServer::State::wait_for_last(
    const std::shared_ptr<ExportedDisk>& disk) {
    while (disk.use_count() > 1)
        if (auto slept = co_await loop_.sleep(kLook); !slept) co_return slept;
    co_return rdma::Result<>{};
}

rdma::Task<rdma::Result<>> DiskServer::State::withdraw(std::string name) {
    std::shared_ptr<ExportedDisk> disk = desk_.withdraw(name);
    if (disk == nullptr) co_return rdma::Error(ENOENT, "no disk " + name + " is exported");
    if (auto ended = co_await wait_for_last(disk); !ended) co_return ended;
    const auto flushed = co_await flush(disk);
    if (!flushed) co_return flushed.error();
    if (auto ended = co_await wait_for_last(disk); !ended) co_return ended;
    disk.reset();
    if (*flushed == 0) co_return rdma::Result<>{};
    co_return rdma::Error(*flushed, "the disk " + name +
                                        " could not be flushed when it was withdrawn: what was "
                                        "written since the last flush may be lost");
}

rdma::Task<rdma::Result<>> DiskServer::State::stop() {
    // Answers that come from here on find no path; clients repeat those requests elsewhere.
    sessions_.reset();
    int error = 0;
    if (auto ended = co_await wait_for_back_ends(); !ended) co_return ended;
    for (const auto& disk : desk_.disks()) {
        const auto flushed = co_await flush(disk);
        if (!flushed) co_return flushed.error();
        if (*flushed != 0) error = *flushed;
    }
    if (auto ended = co_await wait_for_back_ends(); !ended) co_return ended;
    if (error != 0) co_return rdma::Error(error, "a disk could not be flushed at the end");
    co_return rdma::Result<>{};
}

rdma::Task<rdma::Result<>> DiskServer::State::wait_for_back_ends() {
    while (desk_.in_flight() + flushing_ > 0)
        if (auto slept = co_await loop_.sleep(kLook); !slept) co_return slept;
    co_return rdma::Result<>{};
}

rdma::Result<std::string> default_book(std::uint16_t port) {
    if (port == 0)
        return rdma::Error(EINVAL, "a book belongs to a port; give the server one that it keeps");
    const std::string folder = state_folder();
    std::error_code made;
    std::filesystem::create_directories(folder, made);
    int error = made.value();
    if (!made && ::access(folder.c_str(), W_OK | X_OK) != 0) error = errno;
    if (error != 0)
        return rdma::Error(error, folder + (made ? " cannot be made: " : " cannot be written: ") +
                                      std::strerror(error) +
                                      "; give the server a folder that can by STATE_DIRECTORY");
    return folder + "/clients-" + std::to_string(port);
}

DiskServer::DiskServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
DiskServer::DiskServer(DiskServer&&) noexcept = default;
DiskServer& DiskServer::operator=(DiskServer&&) noexcept = default;
DiskServer::~DiskServer() = default;

rdma::Result<DiskServer> DiskServer::open(rdma::Loop& loop, rtrs::ServerOptions options,
                                          std::vector<Export> exports, const std::string& book) {
    if (!options.workers.empty())
        return rdma::Error(EINVAL, "disks are served by one loop; leave the workers out");
    // Of memory for reads and writes around the cache.
    constexpr std::uint32_t kBufferAlignment = 4096;
    if (options.chunk_size % kBufferAlignment != 0 || options.header_size >= options.chunk_size ||
        (options.chunk_size - options.header_size) % kBufferAlignment != 0)
        return rdma::Error(EINVAL,
                           "the chunk size, and what its header leaves of it, must be multiples "
                           "of 4096 bytes");
    auto state = std::make_unique<State>(loop, options.chunk_size - options.header_size);
    if (!book.empty())
        if (auto kept = state->keep_book(book); !kept) return kept.error();
    for (Export& what : exports)
        if (auto added = state->desk().add(std::move(what)); !added) return added.error();
    if (auto listening = state->listen(std::move(options)); !listening) return listening.error();
    return DiskServer(std::move(state));
}

std::uint16_t DiskServer::port() const {
    return state_->port();
}

const std::string& DiskServer::without_book() const {
    return state_->without_book();
}

DiskServerStatistics DiskServer::statistics() const {
    return state_->statistics();
}

rdma::Result<> DiskServer::add(Export what) {
    return state_->desk().add(std::move(what));
}

rdma::Call<> DiskServer::withdraw(std::string name) {
    return {state_->loop(), state_->withdraw(std::move(name))};
}

rdma::Result<> DiskServer::set_guests(const std::string& name, std::vector<std::string> sessions,
                                      std::vector<std::string> addresses) {
    return state_->desk().set_guests(name, std::move(sessions), std::move(addresses));
}

std::vector<DiskStatistics> DiskServer::disks() const {
    std::vector<DiskStatistics> out;
    for (const std::shared_ptr<ExportedDisk>& disk : state_->desk().disks()) {
        out.push_back(disk->traffic());
        out.back().disk = disk->what().name;
        out.back().size = disk->shape().size;
    }
    return out;
}

std::vector<Writer> DiskServer::writers() const {
    return state_->desk().writers();
}

rdma::Result<> DiskServer::evict(const std::string& name) {
    if (state_->desk().evict(name)) return {};
    return rdma::Error(ENOENT, "no client has the disk " + name + " open for writing");
}

rdma::Call<> DiskServer::stop() {
    return {state_->loop(), state_->stop()};
}

}  // namespace feroce::block
