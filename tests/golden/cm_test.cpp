// The Linux kernel's connection manager in the golden captures: every MAD must be rebuilt byte for
// byte from the values that were parsed, and our ConnectionManager, put in the place of either side
// and asked for the same, must send what the kernel sent.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "cm/connection_manager.hpp"
#include "wire/cm_path_messages.hpp"
#include "wire/cma.hpp"
#include "wire/packet.hpp"
#include "wire/pcapng.hpp"

namespace feroce {
namespace {

using namespace feroce::wire;

struct Captured {
    Gid source;
    Gid destination;
    MadBytes mad;
    CmAttribute attribute;

    CmView message() const { return std::span(mad).last<kCmMessageSize>(); }
};

std::vector<Captured> read_mads(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    PcapngReader reader(std::as_bytes(std::span(text)));
    std::vector<Captured> mads;
    while (const auto frame = reader.next()) {
        const auto datagram = find_datagram(*frame);
        Packet packet;
        if (!datagram || parse_packet(datagram->udp_payload, packet) != ParseError::None ||
            packet.bth.destination != kGeneralServicesQpn)
            continue;
        EXPECT_EQ(packet.bth.opcode, Opcode::UdSendOnly);
        EXPECT_EQ(packet.deth().qkey, kGeneralServicesQkey);
        const auto mad = parse_cm_mad(packet.payload);
        EXPECT_TRUE(mad.has_value());
        Captured captured{datagram->address.source, datagram->address.destination, {}, {}};
        captured.attribute = mad->attribute;
        std::copy(packet.payload.begin(), packet.payload.end(), captured.mad.begin());
        mads.push_back(captured);
    }
    EXPECT_FALSE(reader.damaged());
    return mads;
}

std::map<std::string, std::vector<Captured>> read_all() {
    std::map<std::string, std::vector<Captured>> files;
    for (const auto& entry : std::filesystem::directory_iterator(FEROCE_GOLDEN_DATA))
        if (entry.path().extension() == ".pcapng")
            files[entry.path().filename()] = read_mads(entry.path());
    return files;
}

template <class Message>
MadBytes rebuild_as(const Captured& captured) {
    return make_cm_mad(parse_cm_mad(captured.mad)->transaction, Message::parse(captured.message()));
}

MadBytes rebuild(const Captured& captured) {
    switch (captured.attribute) {
        case CmAttribute::Req:
            return rebuild_as<CmReq>(captured);
        case CmAttribute::Rej:
            return rebuild_as<CmRej>(captured);
        case CmAttribute::Rep:
            return rebuild_as<CmRep>(captured);
        case CmAttribute::Rtu:
            return rebuild_as<CmRtu>(captured);
        case CmAttribute::Dreq:
            return rebuild_as<CmDreq>(captured);
        case CmAttribute::Drep:
            return rebuild_as<CmDrep>(captured);
        case CmAttribute::SidrReq:
            return rebuild_as<CmSidrReq>(captured);
        case CmAttribute::SidrRep:
            return rebuild_as<CmSidrRep>(captured);
        default:
            ADD_FAILURE() << "no such message in the captures: " << to_string(captured.attribute);
            return {};
    }
}

TEST(GoldenCm, EveryMadIsRebuiltByteForByte) {
    std::map<std::string, int> counts;
    for (const auto& [name, mads] : read_all())
        for (const Captured& captured : mads) {
            SCOPED_TRACE(name);
            EXPECT_EQ(rebuild(captured), captured.mad) << to_string(captured.attribute);
            ++counts[to_string(captured.attribute)];
        }
    const std::map<std::string, int> expected{{"REQ", 52},     {"REJ", 4},     {"REP", 48},
                                              {"RTU", 48},     {"DREQ", 51},   {"DREP", 49},
                                              {"SIDR_REQ", 2}, {"SIDR_REP", 2}};
    EXPECT_EQ(counts, expected);
}

TEST(GoldenCm, AConnectRequestHasTheValuesThatTsharkShows) {
    const auto mads = read_mads(std::filesystem::path(FEROCE_GOLDEN_DATA) / "rc-connect-v4.pcapng");
    ASSERT_FALSE(mads.empty());
    const CmReq req = CmReq::parse(mads[0].message());
    EXPECT_EQ(req.local_id.raw, 0x424715c8u);
    EXPECT_EQ(req.service_id, make_service_id(PortSpace::Tcp, 0x48a8));
    EXPECT_EQ(req.local_ca_guid, 0x505400fffe000011u);
    EXPECT_EQ(req.local_qpn.raw, 0x12u);
    EXPECT_EQ(req.responder_resources, 4);
    EXPECT_EQ(req.initiator_depth, 4);
    EXPECT_EQ(req.remote_response_timeout, 20);
    EXPECT_EQ(req.local_response_timeout, 20);
    EXPECT_EQ(req.transport, TransportType::Rc);
    EXPECT_EQ(req.starting_psn, Psn(0xa72d7f));
    EXPECT_EQ(req.retry_count, 7);
    EXPECT_EQ(req.rnr_retry_count, 7);
    EXPECT_EQ(req.max_cm_retries, 15);
    EXPECT_EQ(req.path_mtu, 3);
    EXPECT_EQ(req.pkey, kDefaultPkey);
    EXPECT_EQ(req.primary.local_gid, mads[0].source);
    EXPECT_EQ(req.primary.remote_gid, mads[0].destination);
    EXPECT_EQ(req.primary.hop_limit, 64);
    EXPECT_EQ(req.primary.local_ack_timeout, 19);
    EXPECT_EQ(req.alternate, CmPath::none());
}

TEST(GoldenCm, EveryRequestCarriesItsAddressesInTheCmaHeader) {
    int seen = 0;
    for (const auto& [name, mads] : read_all())
        for (const Captured& captured : mads) {
            SCOPED_TRACE(name);
            ByteView data;
            const CmReq req = CmReq::parse(captured.message());
            const CmSidrReq sidr = CmSidrReq::parse(captured.message());
            if (captured.attribute == CmAttribute::Req)
                data = req.private_data;
            else if (captured.attribute == CmAttribute::SidrReq)
                data = sidr.private_data;
            else
                continue;
            const auto header = CmaHeader::parse(data.first<CmaHeader::kSize>());
            EXPECT_TRUE(header.valid());
            EXPECT_EQ(header.source(), captured.source);
            EXPECT_EQ(header.destination(), captured.destination);
            EXPECT_EQ(CmaHeader::make(captured.source, captured.destination, header.source_port),
                      header);
            std::array<std::byte, CmaHeader::kSize> again;
            header.emit(again);
            EXPECT_TRUE(std::equal(again.begin(), again.end(), data.begin()));
            ++seen;
        }
    EXPECT_EQ(seen, 54);
}

// Gives the manager the id that the kernel had.
class FixedId final : public RandomSource {
public:
    explicit FixedId(CommId id) : id_(id) {}
    std::uint64_t next() override { return id_.raw & 0xff'ffff; }

private:
    CommId id_;
};

class Recorder final : public cm::MadPort, public cm::EventSink {
public:
    void send(const Gid&, const Gid&, ByteView mad) override {
        std::copy(mad.begin(), mad.end(), last.begin());
    }
    bool offer(const Gid&, const Gid&, ByteView, cm::Origin) override { return false; }
    void on_event(const cm::Event& event) override { last_event = event; }

    MadBytes last{};
    cm::Event last_event{};
};

// The kernel's ids count up in a space of its own, so only the transaction id may differ.
void expect_same(MadBytes ours, const MadBytes& kernels) {
    std::copy(kernels.begin() + 8, kernels.begin() + 16, ours.begin() + 8);
    EXPECT_EQ(ours, kernels);
}

const Captured* first(const std::vector<Captured>& mads, CmAttribute attribute) {
    for (const Captured& captured : mads)
        if (captured.attribute == attribute) return &captured;
    return nullptr;
}

cm::ConnectOptions options_of(const CmReq& req) {
    return {.path = {.local = req.primary.local_gid,
                     .remote = req.primary.remote_gid,
                     .mtu = req.path_mtu,
                     .flow_label = req.primary.flow_label,
                     .traffic_class = req.primary.traffic_class},
            .service = req.service_id,
            .endpoint = {.qpn = req.local_qpn,
                         .starting_psn = req.starting_psn,
                         .responder_resources = req.responder_resources,
                         .initiator_depth = req.initiator_depth,
                         .retry_count = req.retry_count,
                         .rnr_retry_count = req.rnr_retry_count,
                         .flow_control = req.end_to_end_flow_control,
                         .srq = req.srq},
            .private_data = req.private_data};
}

cm::AcceptOptions options_of(const CmRep& rep) {
    return {.endpoint = {.qpn = rep.local_qpn,
                         .starting_psn = rep.starting_psn,
                         .responder_resources = rep.responder_resources,
                         .initiator_depth = rep.initiator_depth,
                         .rnr_retry_count = rep.rnr_retry_count,
                         .flow_control = rep.end_to_end_flow_control,
                         .srq = rep.srq},
            .private_data = rep.private_data};
}

TEST(GoldenCm, InTheActiveSidesPlaceWeSendWhatTheKernelSent) {
    int replayed = 0;
    for (const auto& [name, mads] : read_all()) {
        SCOPED_TRACE(name);
        const Captured* req = first(mads, CmAttribute::Req);
        const Captured* rep = first(mads, CmAttribute::Rep);
        const Captured* rtu = first(mads, CmAttribute::Rtu);
        if (req == nullptr || rep == nullptr || rtu == nullptr) continue;
        const CmReq wanted = CmReq::parse(req->message());
        FixedId random(wanted.local_id);
        Recorder recorder;
        cm::ConnectionManager manager(
            {.slot = static_cast<SlotNumber>(wanted.local_id.raw >> kCommIdLowBits),
             .ca_guid = wanted.local_ca_guid},
            random, recorder, recorder);
        const auto id = manager.connect(Instant{}, options_of(wanted));
        ASSERT_TRUE(id);
        EXPECT_EQ(*id, wanted.local_id);
        expect_same(recorder.last, req->mad);
        manager.receive(Instant{}, rep->source, rep->destination, rep->mad);
        ASSERT_EQ(recorder.last_event.type, cm::EventType::ConnectResponse);
        ASSERT_TRUE(manager.establish(Instant{}, *id));
        EXPECT_EQ(recorder.last, rtu->mad);  // It repeats the kernel's transaction id.
        ++replayed;
    }
    EXPECT_EQ(replayed, 43);
}

TEST(GoldenCm, InThePassiveSidesPlaceWeSendWhatTheKernelSent) {
    int replayed = 0, ended = 0;
    for (const auto& [name, mads] : read_all()) {
        SCOPED_TRACE(name);
        const Captured* req = first(mads, CmAttribute::Req);
        const Captured* rep = first(mads, CmAttribute::Rep);
        const Captured* rtu = first(mads, CmAttribute::Rtu);
        if (req == nullptr || rep == nullptr || rtu == nullptr) continue;
        const CmRep wanted = CmRep::parse(rep->message());
        FixedId random(wanted.local_id);
        Recorder recorder;
        cm::ConnectionManager manager(
            {.slot = static_cast<SlotNumber>(wanted.local_id.raw >> kCommIdLowBits),
             .ca_guid = wanted.local_ca_guid},
            random, recorder, recorder);
        const CmReq request = CmReq::parse(req->message());
        ASSERT_TRUE(manager.listen(Instant{}, {.service = request.service_id}));
        manager.receive(Instant{}, req->source, req->destination, req->mad);
        ASSERT_EQ(recorder.last_event.type, cm::EventType::ConnectRequest);
        ASSERT_TRUE(manager.accept(Instant{}, wanted.local_id, options_of(wanted)));
        EXPECT_EQ(recorder.last, rep->mad);
        manager.receive(Instant{}, rtu->source, rtu->destination, rtu->mad);
        EXPECT_EQ(recorder.last_event.type, cm::EventType::Established);
        ++replayed;
        const Captured* dreq = first(mads, CmAttribute::Dreq);
        const Captured* drep = first(mads, CmAttribute::Drep);
        if (dreq == nullptr || drep == nullptr || dreq->source != req->source) continue;
        if (CmDreq::parse(dreq->message()).remote_id != wanted.local_id) continue;
        manager.receive(Instant{}, dreq->source, dreq->destination, dreq->mad);
        EXPECT_EQ(recorder.last_event.type, cm::EventType::Disconnected);
        expect_same(recorder.last, drep->mad);
        ++ended;
    }
    EXPECT_EQ(replayed, 43);
    EXPECT_GE(ended, 30);
}

TEST(GoldenCm, RefusalsAreThoseOfTheKernel) {
    for (const char* name : {"cm-nolisten-v4.pcapng", "cm-nolisten-v6.pcapng",
                             "rc-reject-v4.pcapng", "rc-reject-v6.pcapng"}) {
        SCOPED_TRACE(name);
        const auto mads = read_mads(std::filesystem::path(FEROCE_GOLDEN_DATA) / name);
        ASSERT_EQ(mads.size(), 2u);
        const CmReq req = CmReq::parse(mads[0].message());
        const CmRej rej = CmRej::parse(mads[1].message());
        FixedId random(rej.local_id);
        Recorder recorder;
        cm::ConnectionManager manager(
            {.slot = static_cast<SlotNumber>(rej.local_id.raw >> kCommIdLowBits)}, random, recorder,
            recorder);
        const bool listens = rej.reason == RejectReason::ConsumerReject;
        if (listens) {
            ASSERT_TRUE(manager.listen(Instant{}, {.service = req.service_id}));
        }
        manager.receive(Instant{}, mads[0].source, mads[0].destination, mads[0].mad);
        if (listens) {
            const cm::RejectOptions options{.private_data = rej.private_data};
            ASSERT_TRUE(manager.reject(Instant{}, rej.local_id, options));
        } else {
            manager.run(manager.next_wakeup());
        }
        EXPECT_EQ(recorder.last, mads[1].mad);
    }
}

TEST(GoldenCm, ServiceResolutionIsThatOfTheKernel) {
    for (const char* name : {"ud-v4.pcapng", "ud-v6.pcapng"}) {
        SCOPED_TRACE(name);
        const auto mads = read_mads(std::filesystem::path(FEROCE_GOLDEN_DATA) / name);
        ASSERT_EQ(mads.size(), 2u);
        const CmSidrReq req = CmSidrReq::parse(mads[0].message());
        const CmSidrRep rep = CmSidrRep::parse(mads[1].message());
        FixedId random(req.request_id);
        Recorder client, server;
        const cm::Config config{.slot =
                                    static_cast<SlotNumber>(req.request_id.raw >> kCommIdLowBits)};
        cm::ConnectionManager active(config, random, client, client);
        ASSERT_TRUE(active.sidr_request(
            Instant{}, {.path = {.local = mads[0].source, .remote = mads[0].destination},
                        .service = req.service_id,
                        .private_data = req.private_data}));
        expect_same(client.last, mads[0].mad);
        cm::ConnectionManager passive(config, random, server, server);
        ASSERT_TRUE(passive.listen(Instant{}, {.service = req.service_id}));
        passive.receive(Instant{}, mads[0].source, mads[0].destination, mads[0].mad);
        ASSERT_EQ(server.last_event.type, cm::EventType::SidrRequest);
        ASSERT_TRUE(passive.sidr_reply(
            Instant{}, server.last_event.connection,
            {.qpn = rep.qpn, .qkey = rep.qkey, .private_data = rep.private_data}));
        EXPECT_EQ(server.last, mads[1].mad);
        active.receive(Instant{}, mads[1].source, mads[1].destination, mads[1].mad);
        EXPECT_EQ(client.last_event.type, cm::EventType::SidrResponse);
    }
}

}  // namespace
}  // namespace feroce
