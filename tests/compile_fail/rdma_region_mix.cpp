// Memory here and memory at a peer are different types: a READ the wrong way round is an error.
// expect: (cannot convert|could not convert|no matching|no viable conversion)
#include "feroce/transfer.hpp"

feroce::rdma::Transfer fetch(feroce::rdma::Connection& peer, feroce::rdma::LocalRegion here,
                             feroce::rdma::RemoteRegion there) {
#ifdef MISTAKE
    return peer.read(there, here);
#else
    return peer.read(here, there);
#endif
}
