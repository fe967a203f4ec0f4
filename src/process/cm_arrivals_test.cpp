#include "process/cm_arrivals.hpp"

#include <gtest/gtest.h>

#include "wire/cm_messages.hpp"

namespace feroce::process {
namespace {

template <class Message>
CmArrival arrival(const Message& message, cm::Origin origin = cm::Origin::Network) {
    return {{{}, {}, wire::make_cm_mad(1, message)}, origin};
}

wire::CmAttribute attribute_of(const CmArrival& a) {
    return wire::parse_cm_mad(a.message.mad)->attribute;
}

TEST(CmArrivals, AnAnswerGoesBeforeTheRequestThatWasReadFirst) {
    std::vector<CmArrival> arrivals{
        arrival(wire::CmReq{.local_id = {1}}, cm::Origin::Neighbour),
        arrival(wire::CmReq{.local_id = {2}}),
        arrival(wire::CmRtu{.local_id = {3}}),
        arrival(wire::CmSidrReq{.request_id = {4}}),
        arrival(wire::CmDreq{.local_id = {5}}),
    };
    put_answers_first(arrivals);
    ASSERT_EQ(arrivals.size(), 5u);
    EXPECT_EQ(attribute_of(arrivals[0]), wire::CmAttribute::Rtu);
    EXPECT_EQ(attribute_of(arrivals[1]), wire::CmAttribute::Dreq);
    EXPECT_EQ(attribute_of(arrivals[2]), wire::CmAttribute::Req);
    EXPECT_EQ(arrivals[2].origin, cm::Origin::Neighbour);
    EXPECT_EQ(attribute_of(arrivals[3]), wire::CmAttribute::Req);
    EXPECT_EQ(attribute_of(arrivals[4]), wire::CmAttribute::SidrReq);
}

TEST(CmArrivals, NonsenseStaysWhereItIs) {
    std::vector<CmArrival> arrivals(3);
    for (CmArrival& a : arrivals) a.message.mad.fill(std::byte{0xff});
    put_answers_first(arrivals);
    EXPECT_EQ(arrivals.size(), 3u);
}

}  // namespace
}  // namespace feroce::process
