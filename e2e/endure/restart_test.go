package endure_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// changes makes changes that no connection may notice: endpoints are removed from Services and keep serving, and
// Services without clients are created and deleted. a and b are always endpoints, c and d are not.
type changes struct {
	setup   *setup
	random  *rand.Rand
	present map[string]bool // Services without clients
	count   int
}

// seeded returns a random number generator, and logs the seed to reproduce it.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// makeOne makes one change.
func (c *changes) makeOne() {
	c.count++
	endpoints := []string{"a", "b", "c", "d"}[:2+c.random.IntN(3)]
	if c.random.IntN(2) == 0 {
		slices.Reverse(endpoints)
	}
	switch c.random.IntN(3) {
	case 0:
		c.setup.write(web, endpoints...)
	case 1:
		c.setup.write(sticky, endpoints...)
	default:
		number := c.random.IntN(8)
		unrelated := app{name: fmt.Sprintf("unrelated-%d", number), number: 100 + number, affinity: []string{"None", "ClientIP"}[number%2]}
		if c.present[unrelated.name] {
			c.setup.remove(unrelated.file())
		} else {
			c.setup.write(unrelated, endpoints...)
		}
		c.present[unrelated.name] = !c.present[unrelated.name]
	}
}

// startTraffic starts every kind of traffic.
func (s *setup) startTraffic(tr *traffic) {
	tr.dial(s.clients[0], web.ipv4())
	tr.dial(s.clients[1], web.ipv6())
	tr.dial(s.outside, web.nodePort(s.node.IPv4))
	tr.dial(s.node.Namespace, web.ipv4())
	tr.query(s.clients[2], web.ipv4())
	tr.query(s.outside, web.nodePort(s.node.IPv6))
	for _, client := range append(s.clients, s.outside, s.node.Namespace) {
		tr.requestOnOneConnection(client, "tcp", web.ipv4())
		tr.requestOnOneConnection(client, "tcp", sticky.nodePort(s.node.IPv6))
		tr.requestOnOneConnection(client, "udp", web.ipv6())
	}
	for _, client := range append(s.clients, s.outside) {
		tr.dialWithAffinity(client, sticky.ipv4())
		tr.dialWithAffinity(client, sticky.nodePort(s.node.IPv6))
	}
}

func TestNoConnectionIsLostWhenProxyIsKilled(t *testing.T) {
	const kills, enough = 100, 5000
	s := newSetup(t)
	s.write(web, "a", "b")
	s.write(sticky, "a", "b")
	d := s.start()
	ready := d.waitForSync() // also measures how long that takes
	tr := newTraffic(t)
	s.startTraffic(tr)
	stop := onceAtEnd(t, tr.end)
	changing := &changes{setup: s, random: seeded(t), present: map[string]bool{}}
	beforeFirstSync := 0
	for number := range kills {
		sleepUpTo := func(limit time.Duration) { time.Sleep(time.Duration(changing.random.Int64N(int64(limit)))) }
		switch number % 4 {
		case 0: // before or during the first sync
			sleepUpTo(ready)
		case 1: // while a change is being written
			d.waitForSync()
			changing.makeOne()
			sleepUpTo(10 * time.Millisecond)
		case 2: // with changes from before the start, around the end of the first sync
			time.Sleep(ready * 3 / 4)
			sleepUpTo(ready / 2)
		default: // some time later
			d.waitForSync()
			changing.makeOne()
			sleepUpTo(50 * time.Millisecond)
		}
		if !d.isSynced() {
			beforeFirstSync++
		}
		d.kill()
		if lines := d.failedSyncs(); len(lines) > 0 {
			t.Errorf("before kill %d: %q", number+1, lines)
		}
		if number%4 == 3 {
			changing.makeOne() // while no proxy runs
		}
		d = s.start()
	}
	d.waitForSync()
	wait.Until(t, "enough connections to be conclusive", func() bool { return t.Failed() || tr.dials.Load() >= enough })
	stop()
	t.Logf("%d kills, %d of them before the first sync was logged; %d changes; %d new connections, %d with session affinity, "+
		"%d replies on open ones, %d UDP queries, %d retransmitted", kills, beforeFirstSync, changing.count, tr.dials.Load(),
		tr.withAffinity.Load(),
		tr.replies.Load(), tr.datagrams.Load(), tr.retransmitted.Load())
	if beforeFirstSync < kills/10 || beforeFirstSync > kills*9/10 {
		t.Errorf("%d of %d kills came before the first sync, so half of it was not tested", beforeFirstSync, kills)
	}
	d.kill()
	s.compareWithFreshStart()
}

// onceAtEnd returns a function that calls f once. It is called at the end of the test unless the test called it before.
func onceAtEnd(t *testing.T, f func()) func() {
	done := false
	once := func() {
		if !done {
			done = true
			f()
		}
	}
	t.Cleanup(once)
	return once
}
