// The handles of client.hpp over DiskCore.
#include "feroce/block/client.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "block/disk_core.hpp"

namespace feroce::block {

const std::string& Disk::name() const {
    return core_->name();
}

const DiskInfo& Disk::info() const {
    return core_->info();
}

const rtrs::Session& Disk::session() const {
    return core_->session();
}

rdma::Call<> Disk::read(std::uint64_t offset, std::span<std::byte> into) const {
    return {session().loop(), core_->read(offset, into)};
}

rdma::Call<> Disk::write(std::uint64_t offset, std::span<const std::byte> from,
                         WriteOptions options) const {
    return {session().loop(), core_->write(offset, from, options)};
}

rdma::Call<> Disk::flush() const {
    return {session().loop(), core_->flush()};
}

rdma::Call<> Disk::discard(std::uint64_t offset, std::uint64_t length) const {
    IoRequest what;
    what.kind = IoKind::Discard;
    return {session().loop(), core_->clear(what, offset, length, info().max_discard)};
}

rdma::Call<> Disk::zero(std::uint64_t offset, std::uint64_t length, ZeroOptions options) const {
    IoRequest what;
    what.kind = IoKind::WriteZeroes;
    what.no_unmap = !options.unmap;
    what.fua = options.fua;
    return {session().loop(), core_->clear(what, offset, length, info().max_zeroes)};
}

rdma::Call<> Disk::refresh() const {
    return {session().loop(), core_->refresh()};
}

rdma::Call<> Disk::close() const {
    return {session().loop(), core_->close()};
}

rdma::Task<rdma::Result<Disk>> DiskClient::open_disk(std::string session,
                                                     std::vector<rtrs::PathAddress> paths,
                                                     std::string disk, AccessMode access,
                                                     rtrs::SessionOptions options) {
    if (disk.empty() || disk.size() > kMaxNameSize)
        co_return rdma::Error(EINVAL, "a disk's name has 1 to 254 characters");
    auto made = co_await sessions_.open(session, std::move(paths), std::move(options));
    if (!made) co_return made.error();
    auto& others = disks_[session];
    std::erase_if(others, [](const auto& other) {
        const auto core = other.lock();
        return core == nullptr || core->closed();
    });
    if (!made->extended() && !others.empty())
        co_return rdma::Error(EBUSY,
                              "towards a kernel's server a session holds one disk; give "
                              "this one a session name of its own");
    auto core = std::make_shared<DiskCore>(loop_, *std::move(made), std::move(disk), access,
                                           ++last_handle_);
    others.push_back(core);
    if (auto opened = co_await core->refresh(); !opened) co_return opened.error();
    co_return Disk(core);
}

}  // namespace feroce::block
