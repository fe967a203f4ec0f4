#include "lint/rules.hpp"

namespace feroce::lint {
namespace {

constexpr std::size_t kNamedMax = 4;

// Flushed requests touch no memory any more.
bool may_touch_memory(const QueuePair& qp) {
    return qp.state == QpState::Connected;
}

bool uses(const Request& request, std::uint32_t key) {
    // The program may know that an unsignaled send is done: the peer has answered it.
    if (request.inlined || (request.op != Op::Receive && !request.signaled)) return false;
    for (std::size_t i = 0; i < request.sge_count; ++i)
        if (request.sges[i].key == key && request.sges[i].length > 0) return true;
    return false;
}

struct Users {
    std::size_t count = 0;
    std::string named;
    Place place = 0;

    void look(const std::deque<Request>& queue, std::uint32_t key, std::uint32_t qpn) {
        for (const Request& request : queue) {
            if (!uses(request, key)) continue;
            if (count++ == 0) place = request.place;
            if (count <= kNamedMax) named += (count > 1 ? ", " : "") + describe(request, qpn);
        }
    }
};

}  // namespace

void check_registration(const Registration& r, Reporter& out) {
    if (r.remote_change && !r.local_write)
        return out.found({Kind::AccessFlags,
                          "ibv_reg_mr of " + std::to_string(r.length) +
                              " bytes asks for IBV_ACCESS_REMOTE_WRITE or _ATOMIC without "
                              "IBV_ACCESS_LOCAL_WRITE, and was refused",
                          "called", r.place, "add IBV_ACCESS_LOCAL_WRITE"});
    out.found({Kind::BadSge,
               "ibv_reg_mr of " + std::to_string(r.length) + " bytes was refused: " + r.why,
               "called", r.place, "register memory that is mapped, with rights that it has"});
}

void check_modify(const Modify& m, Reporter& out) {
    if (!m.refused) return;
    std::string sentence = "ibv_modify_qp of queue pair " + qpn_text(m.qpn) + " from " +
                           m.from_name + " to " + m.to_name + " was refused: ";
    std::string mend;
    if (!m.missing.empty()) {
        sentence += "attr_mask lacks " + m.missing;
        mend = "set these fields and bits of the mask";
    }
    if (!m.unwanted.empty()) {
        sentence += (m.missing.empty() ? "attr_mask has " : ", and has ") + m.unwanted +
                    ", which do not belong to it";
        mend += std::string(mend.empty() ? "" : "; ") + "leave out what does not belong there";
    }
    if (m.missing.empty() && m.unwanted.empty()) {
        sentence += m.why;
        mend =
            "RESET, INIT, RTR, RTS in this order; on RoCE is_global 1 with a sgid_index of "
            "ibv_query_gid, and no more than ibv_query_device grants";
    }
    out.found({Kind::ModifyQp, sentence, "called", m.place, mend});
}

void check_fork(const char* call, Place place, Reporter& out) {
    out.found({Kind::ForkedObject,
               std::string(call) + " on an object that the process before fork() has opened: a "
                                   "child has none of its parent's connections",
               "called", place,
               "open the device after fork(), and leave the parent's objects to the parent"});
}

void check_deregistration(Ledger& ledger, std::uint32_t key, Place place, Reporter& out) {
    Users users;
    for (const auto& [qpn, qp] : ledger.qps()) {
        if (!may_touch_memory(qp)) continue;
        users.look(qp.sends, key, qpn);
        users.look(qp.receives, key, qpn);
        if (qp.made.srq != nullptr && users.count == 0)
            users.look(ledger.srq(qp.made.srq).receives, key, 0);
    }
    if (users.count == 0) return;
    if (users.count > kNamedMax)
        users.named += " and " + std::to_string(users.count - kNamedMax) + " more";
    out.found({Kind::RegionInUse,
               "ibv_dereg_mr of lkey " + hex(key) +
                   " while requests that use it are posted and "
                   "not completed: " +
                   users.named,
               "deregistered", place,
               "poll their completions first, or move the queue pair to ERR or destroy it before "
               "its regions"});
}

}  // namespace feroce::lint
