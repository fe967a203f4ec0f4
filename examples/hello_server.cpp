// Offers a greeting in its memory to one peer, who reads it: hello_server 127.0.0.1:7471
#include <cstring>

#include "feroce/rdma.hpp"

using namespace feroce::rdma;

Task<void> serve(Loop& loop, Listener& listener) {
    ConnectionRequest request = (co_await listener.next()).value();
    Connection peer = std::move(request).prepare(loop).value();
    Buffer memory = peer.allocate(64, Access::RemoteRead).value();
    std::strcpy(reinterpret_cast<char*>(memory.data()), "Hello from another process's memory");
    (co_await peer.accept(PrivateData::of(memory.remote()))).value();
    (co_await peer.closed()).value();
}

int main(int, char** argv) {
    Loop loop;
    Listener listener = Listener::listen(loop, argv[1]).value();
    loop.run(serve(loop, listener));
}
