// Reads the memory of a peer that never notices: hello_client 127.0.0.1:7471
#include <cstdio>

#include "feroce/rdma.hpp"

using namespace feroce::rdma;

int main(int, char** argv) {
    Loop loop;
    Connection peer = loop.run(Connection::connect(loop, argv[1])).value();
    Buffer here = peer.allocate(64).value();
    peer.read(here.local(), peer.peer_data().as<RemoteRegion>()).wait().value();
    std::puts(reinterpret_cast<const char*>(here.data()));
}
