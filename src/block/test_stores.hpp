// What tests of grants share: a back end whose content and record outlive its servers, and clients
// that contend for it.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "block/messages.hpp"
#include "block/test_server.hpp"

namespace feroce::block {

// Content and record that outlive the back ends on it, as a file's do. What it is told to lose or
// to fail happens once, as in Linux.
struct Store {
    Bytes bytes = Bytes(kTestDiskSize);
    WriterRecord record{.store = 7};
    std::uint64_t cache = 1;
    int failing_flushes = 0;
    bool holds_writes = false;
    std::string throws;      // The call that does.
    bool full = false;       // No room for its record.
    bool read_only = false;  // Keeps no record, as the back end of a file that is only read.
    void call(const std::string& name) const {
        if (name == throws) throw std::runtime_error(name);
    }
    std::vector<BackendRequest*> held;
};

class StoreBackend final : public Backend {
public:
    explicit StoreBackend(Store& store) : store_(store) {}
    Shape shape() override {
        store_.call("shape");
        Shape shape;
        shape.size = store_.bytes.size();
        shape.volatile_cache = true;
        shape.cache_identity = store_.cache;
        return shape;
    }
    std::optional<WriterRecord> writer_record() override { return store_.record; }
    void keep(RecordRequest& request) override {
        store_.call("keep");
        if (store_.read_only) return request.done(request, EROFS);
        if (store_.full) return request.done(request, ENOSPC);
        store_.record = request.record;
        request.done(request, 0);
    }
    void submit(BackendRequest& request) override {
        store_.call("submit");
        if (store_.holds_writes && request.kind == IoKind::Write)
            return store_.held.push_back(&request);
        perform(request);
    }
    void perform(BackendRequest& request) {
        std::byte* const at = store_.bytes.data() + request.offset;
        const bool flushes = request.kind == IoKind::Flush || request.preflush;
        if (flushes && store_.failing_flushes > 0) {
            --store_.failing_flushes;
            request.lost = true;
            return request.done(request, EIO);
        }
        if (request.kind == IoKind::Read) std::memcpy(request.data.data(), at, request.length);
        if (request.kind == IoKind::Write) std::memcpy(at, request.data.data(), request.length);
        request.done(request, 0);
    }

private:
    Store& store_;
};

class Generations : public ServedDisks {
protected:
    std::vector<Export> exports() {
        return {{.name = "data", .backend = std::make_shared<StoreBackend>(store)}};
    }
    void restart() {
        const std::uint16_t port = server->port();
        stop();
        serve(exports(), port);
    }
    rdma::Result<Disk> open_by(DiskClient& by, const std::string& session,
                               AccessMode access = AccessMode::ReadWrite) {
        rtrs::SessionOptions options;
        options.port = server->port();
        return loop.run(by.open(session, {{"127.0.0.1"}}, "data", access, options));
    }
    int write(const Disk& disk, char value, WriteOptions options = {}) {
        page.assign(4096, static_cast<std::byte>(value));
        return code_of(disk.write(0, page, options));
    }
    char content() const { return static_cast<char>(store.bytes[0]); }

    Store store;
    Bytes page;
    DiskClient other{loop};
};

}  // namespace feroce::block
