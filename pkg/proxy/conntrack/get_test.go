//go:build linux

package conntrack_test

import (
	"net/netip"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/conntrack"
)

// TestAnEntryIsReadAgain as it is now, or not at all if another one has taken its place.
func TestAnEntryIsReadAgain(t *testing.T) {
	k := newKernel(t)
	for _, family := range model.Families {
		for _, protocol := range model.Protocols {
			c := connection(protocol, family, 1)
			k.table.Insert(c)
			before := k.list(conntrack.Filter{})[0]
			now, isThere, err := k.conn.Get(&before)
			if !isThere || err != nil || now.ID != before.ID || now.Original != before.Original || now.Status != before.Status {
				t.Errorf("%s: read %+v, %t, %v; want %+v", &before, now, isThere, err, before)
			}
			if deleted, err := k.conn.Delete(&before); !deleted || err != nil {
				t.Fatalf("%s: %t, %v", &before, deleted, err)
			}
			if _, isThere, err := k.conn.Get(&before); isThere || err != nil {
				t.Errorf("%s is gone, and there: %t, %v", &before, isThere, err)
			}
			other := c
			other.Dialled = netip.AddrPortFrom(c.Dialled.Addr(), c.Dialled.Port()+1)
			k.table.Insert(other)
			if _, isThere, err := k.conn.Get(&before); isThere || err != nil {
				t.Errorf("%s was replaced, and is there: %t, %v", &before, isThere, err)
			}
			for _, e := range k.list(conntrack.Filter{}) {
				_, _ = k.conn.Delete(&e)
			}
		}
	}
}
