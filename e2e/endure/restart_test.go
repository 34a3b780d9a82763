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
	town    *town
	random  *rand.Rand
	present map[string]bool // Services without clients
	made    int
}

// seeded returns a random number generator, and logs the seed to reproduce it.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// one makes one change.
func (c *changes) one() {
	c.made++
	endpoints := []string{"a", "b", "c", "d"}[:2+c.random.IntN(3)]
	if c.random.IntN(2) == 0 {
		slices.Reverse(endpoints)
	}
	switch c.random.IntN(3) {
	case 0:
		c.town.write(web, endpoints...)
	case 1:
		c.town.write(sticky, endpoints...)
	default:
		number := c.random.IntN(8)
		stranger := app{name: fmt.Sprintf("unrelated-%d", number), number: 100 + number, affinity: []string{"None", "ClientIP"}[number%2]}
		if c.present[stranger.name] {
			c.town.remove(stranger.file())
		} else {
			c.town.write(stranger, endpoints...)
		}
		c.present[stranger.name] = !c.present[stranger.name]
	}
}

// begin starts every kind of traffic.
func (s *town) begin(f *traffic) {
	f.dial(s.clients[0], web.ipv4())
	f.dial(s.clients[1], web.ipv6())
	f.dial(s.outside, web.nodePort(s.node.IPv4))
	f.dial(s.node.Namespace, web.ipv4())
	f.query(s.clients[2], web.ipv4())
	f.query(s.outside, web.nodePort(s.node.IPv6))
	for _, client := range append(s.clients, s.outside, s.node.Namespace) {
		f.converse(client, "tcp", web.ipv4())
		f.converse(client, "tcp", sticky.nodePort(s.node.IPv6))
		f.converse(client, "udp", web.ipv6())
	}
	for _, client := range append(s.clients, s.outside) {
		f.stick(client, sticky.ipv4())
		f.stick(client, sticky.nodePort(s.node.IPv6))
	}
}

func TestNoConnectionIsLostWhileTheProxyIsKilledAHundredTimes(t *testing.T) {
	const kills, enough = 100, 5000
	s := newTown(t)
	s.write(web, "a", "b")
	s.write(sticky, "a", "b")
	d := s.start()
	ready := d.waitForSync() // also measures how long that takes
	f := newTraffic(t)
	s.begin(f)
	stop := onceAtEnd(t, f.end)
	changing := &changes{town: s, random: seeded(t), present: map[string]bool{}}
	amidFirstSync := 0
	for number := range kills {
		upTo := func(most time.Duration) { time.Sleep(time.Duration(changing.random.Int64N(int64(most)))) }
		switch number % 4 {
		case 0: // before or during the first sync
			upTo(ready)
		case 1: // while a change is being written
			d.waitForSync()
			changing.one()
			upTo(10 * time.Millisecond)
		case 2: // with changes from before the start, around the end of the first sync
			time.Sleep(ready * 3 / 4)
			upTo(ready / 2)
		default: // some time later
			d.waitForSync()
			changing.one()
			upTo(50 * time.Millisecond)
		}
		if !d.synced() {
			amidFirstSync++
		}
		d.kill()
		if lines := d.failedSyncs(); len(lines) > 0 {
			t.Errorf("before kill %d: %q", number+1, lines)
		}
		if number%4 == 3 {
			changing.one() // while no proxy runs
		}
		d = s.start()
	}
	d.waitForSync()
	wait.Until(t, "enough connections to be conclusive", func() bool { return t.Failed() || f.dials.Load() >= enough })
	stop()
	t.Logf("%d kills, %d of them before the first sync was logged; %d changes; %d new connections, %d with session affinity, "+
		"%d replies on open ones, %d UDP queries, %d retransmitted", kills, amidFirstSync, changing.made, f.dials.Load(), f.sticky.Load(),
		f.replies.Load(), f.datagrams.Load(), f.sentAgain.Load())
	if amidFirstSync < kills/10 || amidFirstSync > kills*9/10 {
		t.Errorf("%d of %d kills came before the first sync, so half of it was not tested", amidFirstSync, kills)
	}
	d.kill()
	s.likeAFreshStart()
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
