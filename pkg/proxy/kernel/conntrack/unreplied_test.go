//go:build linux

package conntrack_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/connections"
)

// Of each protocol and family, some entries have a reply after they were listed, some no longer exist, and others are
// not listed at all.
func TestAnEntryRepliedInTheMeantimeIsNotDeleted(t *testing.T) {
	k := newKernel(t)

	want := map[connections.Connection]bool{} // the connections that should remain
	for _, family := range model.Families {
		for _, protocol := range []model.Protocol{model.TCP, model.SCTP} {
			for n := range 30 {
				k.table.Insert(connection(protocol, family, n))
			}
		}
	}
	listed := k.list(unreplied)
	for i := range listed {
		e := &listed[i]
		c := connection(e.Protocol, e.Family(), int(e.OrigSrc().Port())-1000)
		if e.OrigSrc().Port()%3 == 0 {
			continue
		}
		if deleted, err := k.conn.Delete(e); !deleted || err != nil {
			t.Fatalf("%s: %t, %v", e, deleted, err)
		}
		if e.OrigSrc().Port()%3 == 1 {
			k.table.Insert(replied(c)) // the kernel may reuse the memory, and with it the ID
			want[replied(c)] = true
		}
	}
	for _, family := range model.Families {
		for _, protocol := range model.Protocols {
			for n := range 10 {
				c := connection(protocol, family, 100+n)
				k.table.Insert(c)
				want[c] = true
			}
		}
	}
	all := make([]*conntrack.Entry, len(listed))
	for i := range listed {
		all[i] = &listed[i]
	}

	deleted, err := k.conn.DeleteUnreplied(all)

	if err != nil || len(deleted) != len(listed)/3 {
		t.Errorf("%d of %d entries were deleted, %v; want a third", len(deleted), len(listed), err)
	}
	remaining := k.list(conntrack.Filter{})
	for i := range remaining {
		e := &remaining[i]
		c := connection(e.Protocol, e.Family(), int(e.OrigSrc().Port())-1000)
		if e.Status&conntrack.SeenReply != 0 {
			c = replied(c)
		}
		if !want[c] {
			t.Errorf("%s was not deleted", e)
		}
		delete(want, c)
	}
	for c := range want {
		t.Errorf("%s from %s was deleted", c.Protocol, c.OrigSrc)
	}
}

// An entry is read in its current state, or not at all if another one has replaced it.
func TestAnEntryIsReadAgain(t *testing.T) {
	k := newKernel(t)
	for _, family := range model.Families {
		for _, protocol := range model.Protocols {
			c := connection(protocol, family, 1)
			k.table.Insert(c)
			before := k.list(conntrack.Filter{})[0]
			current, exists, err := k.conn.Get(&before)
			if !exists || err != nil || current.ID != before.ID || current.Original != before.Original || current.Status != before.Status {
				t.Errorf("%s: read %+v, %t, %v; want %+v", &before, current, exists, err, before)
			}
			if deleted, err := k.conn.Delete(&before); !deleted || err != nil {
				t.Fatalf("%s: %t, %v", &before, deleted, err)
			}
			if _, exists, err := k.conn.Get(&before); exists || err != nil {
				t.Errorf("%s was deleted, but exists: %t, %v", &before, exists, err)
			}
			other := c
			other.OrigDst = netip.AddrPortFrom(c.OrigDst.Addr(), c.OrigDst.Port()+1)
			k.table.Insert(other)
			if _, exists, err := k.conn.Get(&before); exists || err != nil {
				t.Errorf("%s was replaced, but exists: %t, %v", &before, exists, err)
			}
			for _, e := range k.list(conntrack.Filter{}) {
				_, _ = k.conn.Delete(&e)
			}
		}
	}
}
