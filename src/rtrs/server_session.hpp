// ServerSession: what a client's paths share on the server: chunks, the table that says what became
// of each request, and the requests themselves. Outlives its paths for a while, so that a client
// that lost all of them finds its requests remembered; and outlives even the server while a handler
// has yet to answer (it keeps itself by shared_from_this until then).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/time.hpp"
#include "feroce/rtrs/server.hpp"
#include "rtrs/chunk_table.hpp"
#include "rtrs/handshake.hpp"
#include "rtrs/immediate.hpp"
#include "rtrs/request_header.hpp"

namespace feroce::rtrs {

// Where an answer goes and what it says; the way back of a request.
struct Answer {
    std::uint16_t chunk = 0;
    std::uint16_t connection = 0;
    int error = 0;
    RequestHeader header;
};

// What a session asks of one of its paths.
class AnsweringPath {
public:
    virtual void answer(const Answer& answer) = 0;
    virtual void close(const char* why) = 0;
    virtual void confirm(const Fence& fence) = 0;

protected:
    ~AnsweringPath() = default;
};

class ServerSession : public std::enable_shared_from_this<ServerSession> {
public:
    struct Identity {
        Uuid uuid;
        std::uint64_t epoch = 0;
        bool extended = false;
        rdma::Loop* loop = nullptr;  // That serves it.
    };
    class Owner {
    public:
        virtual void on_idle() = 0;  // The last request of a session without paths has ended.

    protected:
        ~Owner() = default;
    };
    // All null once the server is gone.
    struct Surroundings {
        RequestHandler* handler = nullptr;
        ServerStatistics* statistics = nullptr;
        Owner* owner = nullptr;
    };
    ServerSession(const Identity& identity, const Geometry& geometry, const Surroundings& around);
    ~ServerSession();

    const Identity& identity() const { return identity_; }
    const Geometry& geometry() const { return geometry_; }
    const std::string& name() const { return name_; }
    void set_name(std::string name) { name_ = std::move(name); }
    // Makes the chunks. Costly, so it waits until the peer has proved to be there. False without
    // memory.
    bool furnish(std::pmr::memory_resource& resource);
    bool furnished() const { return resource_ != nullptr; }
    // The client closed the session, or it was taken from it.
    void say_goodbye() { goodbye_ = true; }
    // Whether it is to be remembered without paths: a client of ours was let in and may come back.
    bool lingers() const { return identity_.extended && !name_.empty() && !goodbye_; }
    bool idle() const { return running_ == 0; }
    ByteSpan memory() { return memory_; }
    ByteSpan chunk(std::uint16_t index) {
        return memory().subspan(index * geometry_.chunk_size(), geometry_.chunk_size());
    }

    // The server is going away: no handler is called, nothing counted any more.
    void abandon();

    void add_path(PathNumber number, AnsweringPath& path) { paths_[number] = &path; }
    void path_closed(PathNumber number);
    std::size_t paths() const { return paths_.size(); }

    // A request has arrived. An error closes the path that it came through.
    Result<void> arrived(PathNumber path, std::uint16_t connection, const RequestPlace& place);
    // The path named in the fence is closed; confirms through `asker`, now or when all is drained.
    void fenced(const Fence& fence, PathNumber asker);

private:
    friend class ServerRequest;
    struct Slot {
        ServerRequest request;
        Answer answer;  // Valid while running, and for repetitions.
        Answer held;    // Valid if the table holds a request.
        std::uint32_t held_offset = 0;
        std::uint64_t calls = 0;  // Of the handler, for this chunk.
        bool answered = false;    // The last of them.
    };
    struct Drain {
        Fence fence;
        PathNumber asker = kNoPath;
    };

    void execute(Slot& slot, std::uint32_t header_offset);
    void call_handler(Slot& slot);
    void respond(std::uint16_t chunk, int error);
    void send_answer(PathNumber path, const Answer& answer);
    void confirm_drained();

    Identity identity_;
    Geometry geometry_;
    Surroundings around_;
    std::string name_;
    bool goodbye_ = false;
    std::pmr::memory_resource* resource_ = nullptr;  // nullptr: not furnished yet, nor
    ByteSpan memory_;                                // these three.
    ChunkTable table_{0};
    std::vector<Slot> slots_;
    std::map<PathNumber, AnsweringPath*> paths_;
    std::vector<Drain> drains_;
    std::size_t running_ = 0;
    std::shared_ptr<ServerSession> self_;  // While a handler has yet to answer.
};

}  // namespace feroce::rtrs
