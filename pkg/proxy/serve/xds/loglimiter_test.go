package xds

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// TestOneClientDoesNotSuppressOthersInTheLog: however many lines one client causes, those of others are logged, and its
// own are logged again later.
func TestOneClientDoesNotSuppressOthersInTheLog(t *testing.T) {
	var limiter logLimiter
	now, first, second := time.Unix(1e9, 0), netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	count := func(client netip.Addr, names int, prefix string) (lines int) {
		for i := range names {
			if limiter.allow(now, client, fmt.Sprint(prefix, i)) {
				lines++
			}
		}
		return lines
	}
	for _, step := range []struct {
		desc            string
		after           time.Duration
		client          netip.Addr
		names           int
		prefix          string
		atLeast, atMost int
	}{
		{"1,000 names of one client", 0, first, 1000, "a", clientLogBurst, clientLogBurst},
		{"another client", 0, second, 3, "a", 3, 3},
		{"the same again", time.Minute, second, 3, "a", 0, 0},
		{"the first client, with less budget", 5 * time.Minute, first, 1000, "b", 1, 3},
		{"lines that were logged more than an hour ago", 2 * time.Hour, second, 3, "a", 3, 3},
		{"the first client after two hours", 0, first, 1000, "a", clientLogBurst, clientLogBurst},
	} {
		now = now.Add(step.after)
		if lines := count(step.client, step.names, step.prefix); lines < step.atLeast || lines > step.atMost {
			t.Errorf("%s: %d lines, want %d to %d", step.desc, lines, step.atLeast, step.atMost)
		}
	}
}

// TestManyAddressesDoNotFillTheLog: a client uses all addresses of a prefix.
func TestManyAddressesDoNotFillTheLog(t *testing.T) {
	var limiter logLimiter
	now, lines := time.Unix(1e9, 0), 0
	for second := range 3600 {
		for i := range 10 {
			client := netip.AddrFrom4([4]byte{10, byte(i), byte(second >> 8), byte(second)})
			if limiter.allow(now.Add(time.Duration(second)*time.Second), client, "x") {
				lines++
			}
		}
	}
	if lines > maxLogged || limiter.recent.Len() > maxLogged {
		t.Errorf("%d lines in an hour, %d cached; want at most %d", lines, limiter.recent.Len(), maxLogged)
	}
}
