// Bond: a connection that a peer may count on, with all that a DREQ needs. Should this process die
// without a word, whoever has read its bonds tells the peers (farewells.hpp).
#pragma once

#include "base/gid.hpp"
#include "base/ids.hpp"
#include "wire/cm_messages.hpp"

namespace feroce::cm {

struct Bond {
    wire::CommId local_id{};
    wire::CommId remote_id{};
    Qpn remote_qpn{};
    Gid local{};
    Gid remote{};

    friend bool operator==(const Bond&, const Bond&) = default;
};

}  // namespace feroce::cm
