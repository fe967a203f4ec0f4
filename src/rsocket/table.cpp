#include "rsocket/table.hpp"

#include <pthread.h>

#include <map>
#include <mutex>
#include <utility>

namespace feroce::rsockets {
namespace {

struct Table {
    std::mutex mutex;
    std::map<int, std::shared_ptr<Endpoint>> sockets;
};

// Replaced in a forked child. The parent's stays in memory: a thread that is not here may have held
// its lock.
Table* current = nullptr;

Table& table() {
    static const bool ready = [] {
        current = new Table;
        ::pthread_atfork(nullptr, nullptr, [] { current = new Table; });
        return true;
    }();
    static_cast<void>(ready);
    return *current;
}

}  // namespace

void enter(std::shared_ptr<Endpoint> socket) {
    Table& t = table();
    const std::lock_guard held(t.mutex);
    const int descriptor = socket->descriptor();
    t.sockets.insert_or_assign(descriptor, std::move(socket));
}

std::shared_ptr<Endpoint> find(int descriptor) {
    Table& t = table();
    const std::lock_guard held(t.mutex);
    const auto it = t.sockets.find(descriptor);
    return it == t.sockets.end() ? nullptr : it->second;
}

std::shared_ptr<Endpoint> remove(int descriptor) {
    Table& t = table();
    const std::lock_guard held(t.mutex);
    const auto it = t.sockets.find(descriptor);
    if (it == t.sockets.end()) return nullptr;
    std::shared_ptr<Endpoint> out = std::move(it->second);
    t.sockets.erase(it);
    return out;
}

}  // namespace feroce::rsockets
