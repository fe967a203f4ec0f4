// A doubly linked list through its elements: nothing is allocated, an element leaves by itself when
// it ends, and a list that ends leaves its elements linked nowhere.
#pragma once

namespace feroce::rdma {

class ListNode {
public:
    ListNode() = default;
    ~ListNode() { unlink(); }
    ListNode(const ListNode&) = delete;
    ListNode& operator=(const ListNode&) = delete;

    bool linked() const { return next_ != this; }
    void unlink() {
        previous_->next_ = next_;
        next_->previous_ = previous_;
        next_ = previous_ = this;
    }

private:
    template <class T>
    friend class List;

    void insert_before(ListNode& place) {
        unlink();
        next_ = &place;
        previous_ = place.previous_;
        previous_->next_ = this;
        place.previous_ = this;
    }

    ListNode* next_ = this;
    ListNode* previous_ = this;
};

// T derives from ListNode.
template <class T>
class List {
public:
    List() = default;
    ~List() { clear(); }
    List(const List&) = delete;
    List& operator=(const List&) = delete;

    bool empty() const { return !head_.linked(); }
    void push_back(T& element) { static_cast<ListNode&>(element).insert_before(head_); }
    T& front() { return static_cast<T&>(*head_.next_); }  // Not of an empty list.
    T* pop_front() {                                      // Null if there is none.
        if (empty()) return nullptr;
        T& first = front();
        static_cast<ListNode&>(first).unlink();
        return &first;
    }
    void clear() {
        while (pop_front() != nullptr) continue;
    }
    // Appends all of the other, which is empty then.
    void splice(List& other) {
        while (T* element = other.pop_front()) push_back(*element);
    }

private:
    ListNode head_;
};

}  // namespace feroce::rdma
