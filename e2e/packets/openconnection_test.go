package packets_test

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// openConnection is an open connection and its first response.
type openConnection struct {
	*fabric.Connection
	from  *fabric.Namespace
	to    path
	first fabric.Reply
}

// openConnections opens a connection from every client over every path.
func openConnections(t *testing.T, clients []*fabric.Namespace, to []path) []*openConnection {
	t.Helper()
	var all []*openConnection
	for _, from := range clients {
		for _, p := range to {
			opened, err := from.Open(p.network, p.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = opened.Close() }) // ignore the error: the test is over
			c := &openConnection{Connection: opened, from: from, to: p}
			if c.first, err = c.Request(fabric.Timeout); err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
	}
	return all
}

// expectContinues sends another request over every connection: the server must be the same, and must see the same client
// as at first.
func expectContinues(t *testing.T, desc string, open []*openConnection) {
	t.Helper()
	for _, c := range open {
		reply, err := c.Request(fabric.Timeout)
		if err != nil {
			t.Errorf("%s: %v", desc, err)
		} else if reply != c.first {
			t.Errorf("%s: %s from %s: reply %+v, want %+v as at first", desc, c.to, c.from.Name, reply, c.first)
		}
	}
}
