// ServerSession: what a client's paths share on the server: chunks, the table that says what became
// of each request, and the requests themselves. Outlives its paths for a while, so that a client
// that lost all of them finds its requests remembered; and outlives even the server while a handler
// has yet to answer (it keeps itself by shared_from_this until then).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <string_view>
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
    // Beside the immediate, if not 0: of an error the size of its text, which is at the beginning
    // of the chunk; of a read how many bytes the handler has filled.
    std::uint32_t note = 0;
    bool has_note = false;
    RequestHeader header;  // Last: most of it is room for segments that few requests name.

    void copy_to(Answer& other) const {  // See RequestHeader.
        other.chunk = chunk;
        other.connection = connection;
        other.error = error;
        other.note = note;
        other.has_note = has_note;
        header.copy_to(other.header);
    }
};

// What a session asks of one of its paths.
class AnsweringPath {
public:
    virtual void answer(const Answer& answer) = 0;
    virtual void close(const char* why) = 0;
    virtual void confirm(const Fence& fence) = 0;
    virtual bool tell_overdue(const Overdue& overdue) = 0;  // False: there is no room now.

protected:
    ~AnsweringPath() = default;
};

class ServerSession : public std::enable_shared_from_this<ServerSession> {
public:
    struct Identity {
        Uuid uuid;
        std::uint64_t epoch = 0;
        bool extended = false;
        bool notes = false;          // The client understands notes behind responses, and OVERDUE.
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

    // A handler's time is kTicks calls of this: a request that it has kept for longer is ended.
    static constexpr std::uint64_t kTicks = 4;
    void look_for_overdue();

private:
    friend class ServerRequest;
    // What every request touches comes first, in few cache lines.
    struct Slot {
        ServerRequest request;
        std::uint64_t calls = 0;  // Of the handler, for this chunk.
        std::uint64_t since = 0;  // The tick in which it was called last.
        bool answered = false;    // The last of them.
        bool overdue = false;     // Counted and told on stderr,
        bool ended = false;       // and the client knows: it gets no data any more.
        std::uint32_t held_offset = 0;
        Answer answer;  // Valid while running, and for repetitions.
        Answer held;    // Valid if the table holds a request.
    };
    struct Drain {
        Fence fence;
        PathNumber asker = kNoPath;
    };

    void execute(Slot& slot, std::uint32_t header_offset);
    void call_handler(Slot& slot);
    // `text` of an error, or how much of a read's data is `filled`.
    void respond(std::uint16_t chunk, int error, std::string_view text = {},
                 std::optional<std::size_t> filled = {});
    void add_note(Slot& slot, std::string_view text, std::optional<std::size_t> filled);
    void send_answer(PathNumber path, const Answer& answer);
    void end_overdue(Slot& slot);
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
    std::uint64_t tick_ = 0;
    std::shared_ptr<ServerSession> self_;  // While a handler has yet to answer.
};

}  // namespace feroce::rtrs
