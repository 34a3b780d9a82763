package budget

import (
	"net/netip"
	"testing"
	"time"
)

var now = time.Unix(1e9, 0)

func client(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)})
}

// spend spends as much of a client's budget as it can, and returns how often that was.
func spend(b *Budget, at time.Time, client netip.Addr, times int) (spent int) {
	for range times {
		if b.Spend(at, client) {
			spent++
		}
	}
	return spent
}

func TestSpendPerClientAndTotal(t *testing.T) {
	b := New(Rate{PerSecond: 1, Burst: 10}, Rate{PerSecond: 20, Burst: 25})
	for _, step := range []struct{ after, client, want int }{{0, 1, 10}, {0, 2, 10}, {0, 1, 0}, {0, 3, 5}, {2, 1, 2}, {100, 1, 10}} {
		if got := spend(b, now.Add(time.Duration(step.after)*time.Second), client(step.client), 1000); got != step.want {
			t.Errorf("after %d s client %d spent %d, want %d", step.after, step.client, got, step.want)
		}
	}
}

func TestStoredClientsAreLimited(t *testing.T) {
	b := New(Rate{PerSecond: 1, Burst: 1}, Rate{PerSecond: 1, Burst: 1})
	for number := range 2 * maxClients {
		b.Spend(now, client(number))
	}
	if got := b.clients.Len(); got != maxClients {
		t.Errorf("%d clients are stored, want %d", got, maxClients)
	}
}
