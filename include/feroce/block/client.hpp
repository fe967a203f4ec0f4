// A disk of an RNBD server, ours or the kernel's, for reading and writing.
//
//     block::DiskClient client(loop);
//     const std::vector<rtrs::PathAddress> paths{{"10.0.0.1"}, {"10.0.1.1"}};
//     block::Disk disk = (co_await client.open("backup", paths, "data")).value();
//     co_await disk.write(0, bytes);
//     co_await disk.flush();
//     disk.read(0, bytes).within(1s).wait();    // The same, blocking.
//
// Requests survive the loss of paths as those of sessions do. When a server was started again the
// disk is opened again by itself, unless another client was granted it for writing in between: then
// every request fails with ESTALE. Should the server have lost what was written but not flushed, or
// a flush have failed, then flushes and writes with FUA or preflush fail with EIO until the disk is
// closed and opened again. Everything belongs to its loop's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "feroce/block/types.hpp"
#include "feroce/call.hpp"
#include "feroce/error.hpp"
#include "feroce/loop.hpp"
#include "feroce/rtrs/session.hpp"
#include "feroce/task.hpp"

namespace feroce::block {

class DiskCore;

struct DiskInfo {
    Shape shape;
    bool read_only = false;
    std::uint64_t max_io = 0;       // Larger reads and writes are cut into pieces of this.
    std::uint64_t max_discard = 0;  // Bytes; 0: it cannot.
    std::uint64_t max_zeroes = 0;
};

struct WriteOptions {
    bool fua = false;       // Done only when it is durable.
    bool preflush = false;  // And what was done before it, before it.
};

struct ZeroOptions {
    bool unmap = true;  // The space may be given back.
    bool fua = false;
};

// A handle; copies share the disk, which is closed with the last of them or by close().
class Disk {
public:
    const std::string& name() const;
    const DiskInfo& info() const;
    const rtrs::Session& session() const;

    // In whole blocks (info().shape.logical_block). What spans refer to must stay until it is done;
    // memory from session().allocate() is used directly, any other through a copy.
    rdma::Call<> read(std::uint64_t offset, std::span<std::byte> into) const;
    rdma::Call<> write(std::uint64_t offset, std::span<const std::byte> from,
                       WriteOptions options = {}) const;
    // What was done before it is durable.
    rdma::Call<> flush() const;
    rdma::Call<> discard(std::uint64_t offset, std::uint64_t length) const;
    rdma::Call<> zero(std::uint64_t offset, std::uint64_t length, ZeroOptions options = {}) const;
    // Asks for the size again.
    rdma::Call<> refresh() const;
    rdma::Call<> close() const;

private:
    friend class DiskClient;
    explicit Disk(std::shared_ptr<DiskCore> core) : core_(std::move(core)) {}
    std::shared_ptr<DiskCore> core_;
};

class DiskClient {
public:
    explicit DiskClient(rdma::Loop& loop) : loop_(loop), sessions_(loop) {}

    // Disks of one session name share its paths. Towards a kernel's server a session holds one
    // disk, because its numbers may mean other disks after a reconnect.
    rdma::Call<Disk> open(std::string session, std::vector<rtrs::PathAddress> paths,
                          std::string disk, AccessMode access = AccessMode::ReadWrite,
                          rtrs::SessionOptions options = {}) {
        return {loop_, open_disk(std::move(session), std::move(paths), std::move(disk), access,
                                 std::move(options))};
    }

private:
    rdma::Task<rdma::Result<Disk>> open_disk(std::string session,
                                             std::vector<rtrs::PathAddress> paths, std::string disk,
                                             AccessMode access, rtrs::SessionOptions options);

    rdma::Loop& loop_;
    rtrs::Client sessions_;
    std::map<std::string, std::vector<std::weak_ptr<DiskCore>>> disks_;  // By session.
    std::uint32_t last_handle_ = 0;
};

}  // namespace feroce::block
