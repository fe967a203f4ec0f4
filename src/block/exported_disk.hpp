// ExportedDisk: an export with its rules and its writer record. Decides which client may write it
// under which generation (docs/adr/0018), and has the record kept before anybody is told.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "block/guest_list.hpp"
#include "block/messages.hpp"
#include "feroce/block/server.hpp"
#include "feroce/list.hpp"

namespace feroce::block {

// What the disks of a desk share; outlives them.
struct DiskKeeper {
    std::size_t keeping = 0;  // Writer records that back ends have not kept yet.
    std::function<void(std::exception_ptr)> on_exception = {};
    // By store: the latest generation that lost something; 0: none did. A loss that a back end
    // could not keep is told all the same when the store is exported again.
    std::map<std::uint64_t, std::uint64_t> lost = {};

    // Of what is being handled. Without memory for that nobody is told: a request is answered all
    // the same.
    void tell_exception() const {
        try {
            if (on_exception) on_exception(std::current_exception());
        } catch (...) {
        }
    }
};

class ExportedDisk : public std::enable_shared_from_this<ExportedDisk> {
public:
    // A client that wants to write.
    struct Claim {
        std::uint64_t session = 0;
        std::string name;
        WriterRecord::Holder holder;  // Zeroes: it sends its generation itself.
        AccessMode access = AccessMode::ReadWrite;
        Grant held;  // That it comes back with; zeroes of one that comes for the first time.
    };
    // The right to write, shared by the handles of a session and by their requests in flight: the
    // next writer is granted when the last of these has ended.
    struct Hold : std::enable_shared_from_this<Hold> {
        Hold(std::shared_ptr<ExportedDisk> of, const Claim& claim);
        ~Hold();
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;

        std::shared_ptr<ExportedDisk> disk;
        std::uint64_t session;
        std::string name;  // Of the session.
        ClientId client;   // Zero: it knows generations.
        std::uint64_t generation;
    };
    // Waits until the record is kept, and lives until then. A part of what waits: an answer that
    // needs memory for its waiting could be lost.
    class Waiter : public rdma::ListNode {
    public:
        virtual void on_kept(int error) = 0;  // 0 or an errno.

    protected:
        ~Waiter() = default;
    };
    ExportedDisk(Export what, GuestList guests, DiskKeeper& keeper);

    const Export& what() const { return what_; }
    const GuestList& guests() const { return guests_; }
    const Shape& shape() const { return shape_; }
    const Shape& look() { return shape_ = what_.backend->shape(); }
    const WriterRecord& record() const { return record_; }
    bool recorded() const { return recorded_; }  // Else there is nothing that a writer could spoil.
    const std::vector<Hold*>& holds() const { return holds_; }
    // What clients asked; without name and size.
    const DiskStatistics& traffic() const { return traffic_; }
    void count_read(std::uint64_t bytes) {
        ++traffic_.reads;
        traffic_.read_bytes += bytes;
    }
    void count_write(std::uint64_t bytes) {
        ++traffic_.writes;
        traffic_.written_bytes += bytes;
    }

    // A grant that the record does not know yet must not be told before settle() says so.
    Result<std::shared_ptr<Hold>> claim(const Claim& claim);
    // For a reader that comes back: whether the content is the one it knew.
    Result<void> check_store(const Grant& held) const;
    void set_guests(std::vector<std::string> sessions, std::vector<std::string> addresses,
                    GuestList guests);
    // A client without generations has closed the disk.
    void closed_by(const ClientId& client);
    // Ends the generation: its writer gets ESTALE, and the next is granted when the requests of
    // this one have ended. What holds have handed out must be taken back by the caller.
    void evict();
    // What was acknowledged under this generation may be lost.
    void flush_failed();
    // Has what was decided before kept, and tells the waiter when it is; perhaps at once. Takes no
    // memory that it could lack.
    void settle(Waiter& waiter);
    void settle();

private:
    // The record has. That of a disk that is only read is never kept.
    void changed() { dirty_ = dirty_ || (recorded_ && !what_.read_only); }
    void begin_generation();
    void add_holder(const WriterRecord::Holder& holder);
    void keep();
    void kept(int error);

    struct Keeping : RecordRequest {
        ExportedDisk* disk = nullptr;
    };

    Export what_;
    GuestList guests_;
    DiskKeeper& keeper_;
    Shape shape_;  // As it was when last looked at: asking a file costs a call.
    bool recorded_;
    WriterRecord record_;
    std::uint64_t* lost_ = nullptr;  // Of its store, in keeper_. Null: it has none.
    std::vector<Hold*> holds_;
    DiskStatistics traffic_;
    bool dirty_ = false;  // The record has changed since the back end got it.
    Keeping keeping_;
    std::uint64_t kept_count_ = 0;
    std::shared_ptr<ExportedDisk> kept_alive_;  // While the back end has the record.
    bool keep_again_ = false;                   // It has changed since, and is wanted.
    rdma::List<Waiter> waiting_;                // For a record that is not kept yet,
    rdma::List<Waiter> told_;                   // and for the one that is being kept.
};

}  // namespace feroce::block
