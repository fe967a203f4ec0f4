// What the device grants and a certain card does not. Judged by what the program asks for: one that
// reads back what it was granted is right on any card.
#include <algorithm>

#include "lint/rules.hpp"

namespace feroce::lint {
namespace {

constexpr const char* kAsk =
    "ask ibv_query_device for the limit, use what the call grants, or go on with less if it fails";

// Collects what one call asks too much of.
class Excess {
public:
    explicit Excess(const Card& card) : card_(card) {}

    void compare(const char* what, std::uint32_t asked, std::uint32_t most) {
        if (asked <= most) return;
        add(std::string(what) + " " + std::to_string(asked) + " (" + std::string(card_.name) +
            " has " + std::to_string(most) + ")");
    }
    void add(const std::string& text) { text_ += (text_.empty() ? "" : ", ") + text; }

    void report(const std::string& call, Place place, Reporter& out,
                const std::string& mend = kAsk) const {
        if (text_.empty()) return;
        out.found({Kind::CardLimit,
                   call + " asks for " + text_ + ": it succeeds here and fails on that card",
                   "called", place, mend});
    }

private:
    const Card& card_;
    std::string text_;
};

const char* type_name(QpType type) {
    switch (type) {
        case QpType::Rc:
            return "RC";
        case QpType::Uc:
            return "UC";
        case QpType::Ud:
            return "UD";
        case QpType::Xrc:
            return "XRC";
    }
    return "";
}

}  // namespace

void check_card_qp(const Card& card, const QpAsked& asked, Place place, Reporter& out) {
    Excess excess(card);
    const bool datagrams = asked.type == QpType::Ud;
    if (!card.connects && !datagrams) {
        excess.add(std::string("type ") + type_name(asked.type) + " (" + std::string(card.name) +
                   " has UD, and SRD by a call of its own)");
        return excess.report("ibv_create_qp", place, out,
                             "use UD, or a library that knows the card's own transport");
    }
    excess.compare("max_inline_data", asked.inline_max,
                   datagrams ? card.inline_max_datagram : card.inline_max);
    excess.compare("max_send_wr", asked.sends, card.work_requests);
    excess.compare("max_recv_wr", asked.receives, card.work_requests);
    excess.compare("max_send_sge", asked.send_sges, card.send_sges);
    excess.compare("max_recv_sge", asked.receive_sges, card.receive_sges);
    excess.report("ibv_create_qp", place, out);
}

void check_card_cq(const Card& card, std::uint32_t entries, Place place, Reporter& out) {
    Excess excess(card);
    excess.compare("cqe", entries, card.completions);
    excess.report("ibv_create_cq", place, out);
}

void check_card_srq(const Card& card, std::uint32_t requests, std::uint32_t sges, Place place,
                    Reporter& out) {
    Excess excess(card);
    if (!card.shares_receives) {
        excess.add("a shared receive queue (" + std::string(card.name) + " has none)");
        return excess.report("ibv_create_srq", place, out,
                             "give each queue pair receives of its own if the call fails");
    }
    excess.compare("max_wr", requests, card.work_requests);
    excess.compare("max_sge", sges, card.shared_sges);
    excess.report("ibv_create_srq", place, out);
}

void check_card_reads(const Card& card, std::uint32_t reads, std::uint32_t served, Place place,
                      Reporter& out) {
    Excess excess(card);
    excess.compare("max_rd_atomic", reads, card.reads);
    excess.compare("max_dest_rd_atomic", served, card.reads);
    excess.report("ibv_modify_qp", place, out,
                  "no more than max_qp_init_rd_atom and max_qp_rd_atom of ibv_query_device");
}

void check_card_request(const Card& card, std::uint32_t qpn, const Request& request,
                        Reporter& out) {
    if (request.op != Op::Atomic || card.has_atomics) return;
    out.found({Kind::CardLimit,
               describe(request, qpn) + " is carried out here, and " + std::string(card.name) +
                   " has no atomics",
               "posted", request.place,
               "look at atomic_cap of ibv_query_device, and do without if it is IBV_ATOMIC_NONE"});
}

}  // namespace feroce::lint
