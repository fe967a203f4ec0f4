#include "process/cm_gsi.hpp"

#include <gtest/gtest.h>

#include "process/silent_host.hpp"

namespace feroce::process {
namespace {

// A flushed receive that is posted again is flushed again, for ever and under the shard's lock.
TEST(CmGsi, DrainingEndsWhenTheQueuePairHasFailed) {
    SilentEvents events;
    Process process(std::make_unique<SilentHost>(), events, {});
    ASSERT_TRUE(process.open().has_value());
    {
        Result<std::unique_ptr<CmGsi>> gsi = CmGsi::open(process, [] {});
        ASSERT_TRUE(gsi.has_value());
        {
            Shard::Session session(process.shard(0));
            transport::QueuePair* qp = session.engine().qps().find(kGeneralServicesQpn);
            ASSERT_NE(qp, nullptr);
            transport::QpAttributes failed;
            failed.state = transport::QpState::Err;
            ASSERT_TRUE(session.engine()
                            .modify_qp(session.now(), *qp, failed,
                                       transport::AttributeMask{
                                           static_cast<std::uint32_t>(transport::Attribute::State)})
                            .has_value());
        }
        std::vector<CmDatagram> arrived;
        (*gsi)->drain(arrived);
        EXPECT_TRUE(arrived.empty());
    }
    process.close();
}

}  // namespace
}  // namespace feroce::process
