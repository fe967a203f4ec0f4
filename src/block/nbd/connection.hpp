// Connection: one NBD client. Requests are read as they come, many by one call, are worked on side
// by side, and their replies leave together at the end of a round of the loop. Data of writes comes
// from the socket into memory of the session, but for what came with their headers; data of reads
// leaves from there.
//
// A client that reads no replies, or asks for more than may be worked on at once, is not read from
// until it has room again. One that says what is none is left at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ring.hpp"
#include "block/nbd/buffers.hpp"
#include "block/nbd/negotiation.hpp"
#include "feroce/loop.hpp"
#include "feroce/task_group.hpp"

namespace feroce::block::nbd {

class Connection {
public:
    class Owner {
    public:
        virtual const Disk& disk() = 0;
        virtual Buffers& buffers() = 0;
        virtual rdma::TaskGroup& tasks() = 0;
        // Wants the disk's description: described() or refused(), at once or later.
        virtual void on_asked(Connection& connection) = 0;

    protected:
        ~Owner() = default;
    };

    // Owns the socket, which does not block.
    Connection(rdma::Loop& loop, int socket, Owner& owner);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    // As an edge-triggered epoll tells it: stays so until a call says otherwise.
    void set_ready(std::uint32_t events);
    bool work();  // Reads what is there; true if there was something.
    void described(const ExportInfo& disk);
    void refused();
    void end();  // Answers what it has received, and ends.
    void cut();  // Ends without that.
    // Nothing is worked on, and nothing is left to be sent.
    bool over() const;

private:
    struct Job {
        Request request;
        std::span<std::byte> buffer;  // Of a read or a write; empty: there was no memory.
        std::size_t filled = 0;       // Of a write's data.
        std::array<std::byte, Reply::kSize> head{};
        std::span<const std::byte> body;  // Goes with the reply.

        std::span<std::byte> data() const { return buffer.first(request.length); }
        std::size_t size() const { return head.size() + body.size(); }  // Of the reply.
    };
    struct Flush : rdma::Deferred {
        Flush(rdma::Loop& loop, Connection& of)
            : Deferred(loop, [](Deferred& self) { static_cast<Flush&>(self).owner.send(); }),
              owner(of) {}
        Connection& owner;
    };

    // Of one client, in work or with a reply that was not sent.
    static constexpr std::size_t kJobsMax = 256;
    static constexpr std::size_t kBytesMax = 8 << 20;  // Below it one more request may begin.
    static constexpr std::size_t kInputSize = 64 << 10;
    static constexpr std::size_t kWordsMax = 64 << 10;  // Of a negotiation, not sent yet.
    static constexpr int kInputsPerRound = 4;

    bool may_begin() const { return !idle_.empty() && bytes_ < kBytesMax; }
    bool wants_input() const;
    bool receive();
    bool understand();  // False: it needs more bytes, or room.
    bool negotiate();
    bool begin();
    bool has_request() const;
    void leave();
    bool fill();
    ByteView input() const { return ByteView(input_).subspan(used_, filled_ - used_); }
    void take_buffer(Job& job);
    void start(Job& job);
    rdma::Task<void> serve(Job& job);
    rdma::Task<int> perform(const Job& job);
    int refusal(const Request& request) const;
    void reply(Job& job, int code);
    void release(Job& job);
    void send();
    void forget_sent(std::size_t bytes);

    const int socket_;
    Owner& owner_;
    Negotiation negotiation_;
    std::uint64_t size_ = 0;  // Of the disk, as the client was told.
    bool readable_ = true;
    bool writable_ = true;
    bool hung_up_ = false;  // Behind what can be read is the end.
    bool ended_ = false;    // Nothing more is received.
    bool reads_ = true;     // What was received is worked on.
    bool broken_ = false;   // The client is gone, or was left.
    bool asking_ = false;   // The owner describes the disk.
    std::vector<std::byte> input_;
    std::size_t used_ = 0, filled_ = 0;  // What lies between was not understood yet.
    std::unique_ptr<Job[]> jobs_;
    Ring<Job*> idle_;
    Ring<Job*> replies_;
    Job* filling_ = nullptr;   // A write whose data comes.
    std::size_t in_work_ = 0;  // Jobs that the disk has.
    std::size_t bytes_ = 0;    // Of the buffers that are out.
    std::size_t sent_ = 0;     // Of the words, or of the first reply.
    Flush flush_;
};

}  // namespace feroce::block::nbd
