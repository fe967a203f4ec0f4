// Desk: where requests of clients are looked at: which client asks, for which disk, whether that is
// allowed, and what the back end is to do. No network and no coroutine in it, so that it can be
// fuzzed as it is.
//
// A device number is a function of the export's name, so it is the same in the server's next life:
// a request that a client repeats after a restart finds its own disk or none, never another.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "block/book_saver.hpp"
#include "block/client_book.hpp"
#include "block/exported_disk.hpp"
#include "block/messages.hpp"
#include "feroce/block/server.hpp"

namespace feroce::block {

std::uint32_t device_number(const std::string& name);

class Desk {
public:
    explicit Desk(std::uint32_t max_io) : max_io_(max_io) {}
    ~Desk();
    Desk(const Desk&) = delete;
    Desk& operator=(const Desk&) = delete;

    rdma::Result<> add(Export what);
    // The disk, which no client finds any more; requests in flight keep it. Null: there is none.
    std::shared_ptr<ExportedDisk> withdraw(const std::string& name);
    rdma::Result<> set_guests(const std::string& name, std::vector<std::string> sessions,
                              std::vector<std::string> addresses);
    std::vector<std::shared_ptr<ExportedDisk>> disks() const;
    std::vector<Writer> writers() const;
    bool evict(const std::string& name);

    // A path of a session: 0, or an errno if a disk that it has open is not for that address.
    int admit(const rtrs::Visitor& visitor);
    void end_session(std::uint64_t session);
    void handle(rtrs::ServerRequest& request);

    ClientBook& book() { return book_; }
    // From now on the book is saved by this one.
    void keep_book(std::unique_ptr<BookSaver> saver) { book_saver_ = std::move(saver); }

    // For what back ends throw.
    void on_exception(std::function<void(std::exception_ptr)> handler) {
        keeper_.on_exception = std::move(handler);
    }

    std::size_t in_flight() const;
    DiskServerStatistics statistics() const;

private:
    // A disk that a session has open by a handle. Requests in flight keep it, and with it the right
    // to write.
    struct Opened {
        std::shared_ptr<ExportedDisk> disk;
        std::shared_ptr<ExportedDisk::Hold> hold;  // Null: for reading only.
        std::string asked;                         // The name that the client gave.
    };
    struct Key {
        std::uint32_t device = 0;
        std::uint32_t handle = 0;
        friend auto operator<=>(const Key&, const Key&) = default;
    };
    struct Session {
        std::string name;
        ClientId client{};
        std::set<std::string> addresses;
        std::map<Key, std::shared_ptr<Opened>> devices;
    };
    struct Job final : BackendRequest, ExportedDisk::Waiter {
        void on_kept(int error) override;

        Desk* desk = nullptr;
        rtrs::ServerRequest* request = nullptr;  // Null: the back end has done it.
        std::shared_ptr<Opened> device;
        // Answered with that error when the disk's record says that something is lost.
        rtrs::ServerRequest* failed = nullptr;
        int error = 0;
    };
    // An OPEN that is answered when its grant is durable. Owns itself while it waits.
    struct Opening;

    Result<void> answer(rtrs::ServerRequest& request, ByteView message);
    Result<void> introduce(rtrs::ServerRequest& request, ByteView message);
    Result<void> open(rtrs::ServerRequest& request, ByteView message);
    Result<void> close(rtrs::ServerRequest& request, ByteView message);
    Result<void> start(rtrs::ServerRequest& request, ByteView message);
    Result<std::shared_ptr<Opened>> grant(std::uint64_t session, const OpenRequest& asked,
                                          const Grant& held);
    // Whether the OPEN waits for the book: what a client without generations has open.
    bool note(Opening& opening);
    void granted(const Opening& opening, int error);
    void forget(const Opening& opening);  // It was not granted.
    // What a client without generations was granted by that name, as it would send it if it could.
    // Fails if the name means another disk now, or if nothing says what the client had.
    Result<Grant> held_by(const Session& session, const std::string& asked,
                          const ExportedDisk& disk) const;
    Result<std::shared_ptr<ExportedDisk::Hold>> claim(std::uint64_t id, const OpenRequest& asked,
                                                      const Grant& held, ExportedDisk& disk);
    std::shared_ptr<ExportedDisk> exported(const std::string& name) const;
    static bool admits(const ExportedDisk& disk, const Session& session);
    // Its own disk of that name comes before everybody's.
    std::shared_ptr<ExportedDisk> find(const Session& session, const std::string& name) const;
    OpenResponse describe(ExportedDisk& disk) const;
    Session& session_of(const rtrs::ServerRequest& request);
    void submit(rtrs::ServerRequest& request, const IoRequest& io, std::shared_ptr<Opened> device);
    void count(const IoRequest& io, ExportedDisk& disk);
    Job& take_job();
    void job_done(Job& job, int error);

    std::uint32_t max_io_;
    DiskKeeper keeper_;
    std::map<std::uint32_t, std::shared_ptr<ExportedDisk>> disks_;  // By device number.
    ClientBook book_;
    std::unique_ptr<BookSaver> book_saver_;  // Null: the book ends with the desk.
    std::map<std::uint64_t, Session> sessions_;
    std::deque<Job> jobs_;  // All there are; grows to the most that were ever in flight.
    rdma::List<BackendRequest> free_;
    DiskServerStatistics statistics_;
};

}  // namespace feroce::block
