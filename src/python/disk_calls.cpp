// Disks for C.
#include <cerrno>
#include <utility>

#include "feroce/block/client.hpp"
#include "python/arguments.hpp"
#include "python/closable.hpp"
#include "python/home.hpp"
#include "python/surface.hpp"

namespace feroce::python {

namespace {

using rdma::Task;

class OpenDisk final : public Closable {
public:
    struct State {  // In the thread.
        State(rdma::Loop& loop, std::shared_ptr<DiskSessions::Server> of, block::Disk opened)
            : server(std::move(of)), busy(loop), disk(std::move(opened)) {}
        std::shared_ptr<DiskSessions::Server> server;
        Busy busy;
        block::Disk disk;
    };

    OpenDisk(std::shared_ptr<Home> home, std::shared_ptr<State> state)
        : home_(std::move(home)), state_(std::move(state)) {}
    const LoopThread& thread() const override { return home_->thread(); }
    const std::shared_ptr<State>& state() const { return state_; }
    Task<void> close(std::shared_ptr<Call> call) override {
        return close_disk(std::move(call), state_);
    }

private:
    static Task<void> close_disk(std::shared_ptr<Call> call, std::shared_ptr<State> state) {
        Outcome outcome;
        if (!state->busy.closed()) {
            outcome = co_await state->busy.close();
            if (outcome.code == 0) outcome = co_await state->disk.close();
        }
        call->finish(std::move(outcome));
    }

    std::shared_ptr<Home> home_;
    std::shared_ptr<State> state_;
};

using DiskState = OpenDisk::State;

Bytes info_of(const block::Disk& disk) {
    const block::DiskInfo& info = disk.info();
    return bytes_of(feroce_disk_info{info.shape.size, info.shape.logical_block, info.read_only,
                                     info.max_discard});
}

struct DiskPlace {
    std::string session;
    std::vector<rtrs::PathAddress> paths;
    std::string disk;
    block::AccessMode access;
    rtrs::SessionOptions options;
};

Task<void> open_disk(std::shared_ptr<Call> call, std::shared_ptr<Home> home, DiskPlace place) {
    auto server = home->disk_sessions().enter(place.session, place.options.port, place.paths);
    if (!server) co_return fail(*call, server.error());
    auto opened = co_await home->disks().open(place.session, place.paths, place.disk, place.access,
                                              place.options);
    Outcome outcome(opened);
    if (opened) {
        outcome.data = info_of(*opened);
        auto state =
            std::make_unique<DiskState>(home->loop(), *std::move(server), *std::move(opened));
        outcome.made = std::make_shared<OpenDisk>(home, Home::resident(home, std::move(state)));
    }
    call->finish(std::move(outcome));
}

// Before memory is taken for it.
rdma::Result<> check_range(const block::Disk& disk, std::uint64_t offset, std::uint64_t size) {
    const std::uint64_t end = disk.info().shape.size;
    if (offset <= end && size <= end - offset) return {};
    return rdma::Error(
        EINVAL, "the disk has " + std::to_string(end) + " bytes, and the range ends after them");
}

Task<void> read_disk(std::shared_ptr<Call> call, std::shared_ptr<DiskState> state,
                     std::uint64_t offset, std::uint64_t size) {
    const Busy::Use use(state->busy);
    if (state->busy.closed()) co_return fail(*call, Busy::closed_error());
    if (const auto good = check_range(state->disk, offset, size); !good)
        co_return fail(*call, good.error());
    Bytes data(size);
    Outcome outcome(co_await state->disk.read(offset, data).with(state->busy.closing()));
    if (outcome.code == 0) outcome.data = std::move(data);
    call->finish(std::move(outcome));
}

// The other requests, which bring nothing back.
struct DiskWork {
    enum class Kind : std::uint8_t { Write, Flush, Discard, Zero, Look };
    Kind kind;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint32_t flags = 0;
    Bytes data = {};

    bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
};

rdma::Call<> call_for(const block::Disk& disk, const DiskWork& work) {
    const bool fua = work.has(FEROCE_FUA);
    switch (work.kind) {
        case DiskWork::Kind::Write:
            return disk.write(work.offset, work.data, {.fua = fua});
        case DiskWork::Kind::Discard:
            return disk.discard(work.offset, work.size);
        case DiskWork::Kind::Zero:
            return disk.zero(work.offset, work.size,
                             {.unmap = !work.has(FEROCE_KEEP_SPACE), .fua = fua});
        case DiskWork::Kind::Look:
            return disk.refresh();
        case DiskWork::Kind::Flush:
            break;
    }
    return disk.flush();
}

Task<void> work_on_disk(std::shared_ptr<Call> call, std::shared_ptr<DiskState> state,
                        DiskWork work) {
    const Busy::Use use(state->busy);
    if (state->busy.closed()) co_return fail(*call, Busy::closed_error());
    Outcome outcome(co_await call_for(state->disk, work).with(state->busy.closing()));
    if (work.kind == DiskWork::Kind::Look) outcome.data = info_of(state->disk);
    call->finish(std::move(outcome));
}

std::uint64_t begin_work(std::uint64_t queue, std::int64_t timeout, std::uint64_t disk,
                         DiskWork work) {
    return call_of<OpenDisk>(
        queue, timeout, disk,
        [what = std::move(work)](std::shared_ptr<Call> call, OpenDisk& of) mutable {
            return work_on_disk(std::move(call), of.state(), std::move(what));
        });
}

}  // namespace

}  // namespace feroce::python

using namespace feroce::python;

feroce_handle feroce_disk_open(feroce_handle queue, int64_t timeout, const char* session,
                               const char* paths, const char* disk, int32_t read_only,
                               const feroce_session_options* options) {
    return begun(queue, [&]() -> feroce_handle {
        const auto home = Handles::instance().home();
        if (!home) return unknown_handle(queue);
        using feroce::block::AccessMode;
        const DiskPlace place{text_of(session), paths_of(paths), text_of(disk),
                              read_only != 0 ? AccessMode::ReadOnly : AccessMode::ReadWrite,
                              options_of(*options)};
        return begin_call(home->thread(), queue, timeout,
                          [home, place](std::shared_ptr<Call> call) {
                              return open_disk(std::move(call), home, place);
                          });
    });
}

feroce_handle feroce_disk_read(feroce_handle queue, int64_t timeout, feroce_handle disk,
                               uint64_t offset, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        return call_of<OpenDisk>(queue, timeout, disk,
                                 [offset, size](std::shared_ptr<Call> call, OpenDisk& of) {
                                     return read_disk(std::move(call), of.state(), offset, size);
                                 });
    });
}

feroce_handle feroce_disk_write(feroce_handle queue, int64_t timeout, feroce_handle disk,
                                uint64_t offset, feroce_bytes data, uint32_t flags) {
    return begun(queue, [&]() -> feroce_handle {
        return begin_work(queue, timeout, disk,
                          {.kind = DiskWork::Kind::Write,
                           .offset = offset,
                           .flags = flags,
                           .data = copy_of(data)});
    });
}

feroce_handle feroce_disk_flush(feroce_handle queue, int64_t timeout, feroce_handle disk) {
    return begun(queue, [&]() -> feroce_handle {
        return begin_work(queue, timeout, disk, {.kind = DiskWork::Kind::Flush});
    });
}

feroce_handle feroce_disk_discard(feroce_handle queue, int64_t timeout, feroce_handle disk,
                                  uint64_t offset, uint64_t size) {
    return begun(queue, [&]() -> feroce_handle {
        return begin_work(queue, timeout, disk,
                          {.kind = DiskWork::Kind::Discard, .offset = offset, .size = size});
    });
}

feroce_handle feroce_disk_zero(feroce_handle queue, int64_t timeout, feroce_handle disk,
                               uint64_t offset, uint64_t size, uint32_t flags) {
    return begun(queue, [&]() -> feroce_handle {
        return begin_work(
            queue, timeout, disk,
            {.kind = DiskWork::Kind::Zero, .offset = offset, .size = size, .flags = flags});
    });
}

feroce_handle feroce_disk_look(feroce_handle queue, int64_t timeout, feroce_handle disk) {
    return begun(queue, [&]() -> feroce_handle {
        return begin_work(queue, timeout, disk, {.kind = DiskWork::Kind::Look});
    });
}
