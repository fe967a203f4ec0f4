// The operations of the data path for programs with a sanitizer, around those of the instance: what
// a poll writes is defined, and what was done before a post has happened before what is done after
// a poll. A program without a sanitizer does not come by here.
#include "base/annotate.hpp"
#include "mem/watch.hpp"
#include "verbs/annotated.hpp"
#include "verbs/instance.hpp"

namespace feroce::verbs {
namespace {

// One for all queues: a completion may tell of what any thread has posted, here or in a peer of the
// same process.
char order_of_all = 0;

const ibv_context_ops& inner() {
    return Instance::get().operations;
}

template <auto Operation, class Base, class Wr>
int annotated_post(Base* base, Wr* list, Wr** bad) {
    note_post();
    const annotate::OwnCalls part;
    const int error = (inner().*Operation)(base, list, bad);
    if (error != 0) annotate::defined(bad);
    return error;
}

int annotated_poll_cq(ibv_cq* base, int wanted, ibv_wc* out) {
    const annotate::OwnCalls part;
    const int count = inner().poll_cq(base, wanted, out);
    if (count <= 0) return count;
    note_completion();
    annotate::defined(out, sizeof *out * static_cast<std::size_t>(count));
    return count;
}

}  // namespace

void note_post() {
    annotate::released(&order_of_all);
}

void note_completion() {
    annotate::acquired(&order_of_all);
}

bool wants_annotations() {
    return annotate::has_msan() || annotate::has_tsan();
}

void fill_annotated_operations(ibv_context_ops& ops) {
    ops.post_send = annotated_post<&ibv_context_ops::post_send, ibv_qp, ibv_send_wr>;
    ops.post_recv = annotated_post<&ibv_context_ops::post_recv, ibv_qp, ibv_recv_wr>;
    ops.post_srq_recv = annotated_post<&ibv_context_ops::post_srq_recv, ibv_srq, ibv_recv_wr>;
    ops.poll_cq = annotated_poll_cq;
}

}  // namespace feroce::verbs
