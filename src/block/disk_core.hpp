// DiskCore: an open disk behind its handles. It opens the disk again when the server does not know
// it any more (ENOTCONN: another life of the server, or of the session there), and keeps account of
// what was written since the last flush, so that a loss in between does not go unnoticed.
//
// OPEN and CLOSE run in the background, whatever becomes of the request that wanted them: an OPEN
// that nobody waits for still tells what was lost, and leaves no right to write behind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "block/messages.hpp"
#include "feroce/block/client.hpp"
#include "feroce/signal.hpp"

namespace feroce::block {

class DiskCore : public std::enable_shared_from_this<DiskCore> {
public:
    // `handle`: another for each disk that the session opens.
    DiskCore(rdma::Loop& loop, rtrs::Session session, std::string name, AccessMode access,
             std::uint32_t handle);
    ~DiskCore();  // Lets the server know, in the background.
    DiskCore(const DiskCore&) = delete;
    DiskCore& operator=(const DiskCore&) = delete;

    const std::string& name() const { return name_; }
    const DiskInfo& info() const { return info_; }
    const rtrs::Session& session() const { return session_; }
    bool closed() const { return closed_; }

    rdma::Task<rdma::Result<>> refresh() { return reopen(life_); }  // Opens it, too.
    rdma::Task<rdma::Result<>> close();
    rdma::Task<rdma::Result<>> read(std::uint64_t offset, std::span<std::byte> into);
    rdma::Task<rdma::Result<>> write(std::uint64_t offset, std::span<const std::byte> from,
                                     WriteOptions options);
    rdma::Task<rdma::Result<>> flush();
    // Discards and zeroes: no data travels.
    rdma::Task<rdma::Result<>> clear(IoRequest what, std::uint64_t offset, std::uint64_t length,
                                     std::uint64_t piece);

private:
    struct Pieces;  // Of a transfer that is larger than one request.
    // What a request is sent under.
    struct Opening {
        std::uint64_t life = 0;
        std::uint64_t cache = 0;  // The server's volatile cache.
    };

    static rdma::Task<rdma::Result<>> ask_to_close(rtrs::Session session, std::uint32_t device,
                                                   Grant grant);
    static rdma::Task<void> say_goodbye(rtrs::Session session, std::uint32_t device, Grant grant);
    rdma::Result<> check(std::uint64_t offset, std::uint64_t length) const;
    // One request; opens the disk again and repeats it while the server does not know it.
    rdma::Task<rdma::Result<>> request(IoRequest io, std::span<std::byte> data);
    // One or several, side by side.
    rdma::Task<rdma::Result<>> transfer(IoRequest io, std::uint64_t offset,
                                        std::span<std::byte> data);
    rdma::Task<rdma::Result<>> write_with_flushes(std::uint64_t offset,
                                                  std::span<const std::byte> from,
                                                  WriteOptions options);
    rdma::Task<void> transfer_piece(IoRequest io, std::span<std::byte> data, Pieces& pieces);
    // Unless it was opened since that life.
    rdma::Task<rdma::Result<>> reopen(std::uint64_t life);
    static rdma::Task<void> open_in_background(std::shared_ptr<DiskCore> self);
    static rdma::Task<void> close_in_background(std::shared_ptr<DiskCore> self);
    rdma::Task<rdma::Result<>> introduce();
    rdma::Task<rdma::Result<>> ask_to_open();
    rdma::Result<> learn(const OpenResponse& response, const Grant& grant);
    rdma::Error refusal(int code) const;
    // The disk as it is open now; or why a request cannot be sent, or its success not be believed.
    rdma::Result<Opening> current(const IoRequest& io) const;
    // Nobody is opening it, and, where a request promises something, a server has said what it
    // lost: current() can be asked about an answer.
    bool settled(const IoRequest& io) const;
    rdma::Task<rdma::Result<>> settle(const IoRequest& io, bool done);
    // Keeps account of a request that has ended, for losses.
    void count(const IoRequest& io, const rdma::Result<>& done, std::uint64_t written_before);

    rdma::Loop& loop_;
    rtrs::Session session_;
    std::string name_;
    AccessMode access_;
    DiskInfo info_;
    std::uint32_t device_ = 0;
    bool fua_ = false;
    bool closed_ = false;
    Grant grant_;             // What the server granted last; zeroes of a kernel's.
    std::string gone_;        // Why nothing can be done with it any more; empty: it can.
    std::uint64_t life_ = 0;  // How often it was opened.
    bool opening_ = false;
    rdma::Result<> opened_how_;  // The last time.
    bool unsure_ = false;        // It failed: the server may have opened the disk, and have a loss
                                 // to tell.
    bool closing_ = false;
    rdma::Result<> closed_how_;
    rdma::Signal changed_;  // It was opened or closed, or that failed.
    // Writes done, and how many of them the last flush made durable.
    std::uint64_t written_ = 0;
    std::uint64_t flushed_ = 0;
    // Why what was acknowledged cannot be made durable any more; empty: it can.
    std::string lost_;
};

}  // namespace feroce::block
