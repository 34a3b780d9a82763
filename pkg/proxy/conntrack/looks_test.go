//go:build linux

package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// remembered is a table that takes its time.
type remembered struct {
	Table   // nobody deletes
	entries []Entry
	takes   time.Duration
	// waits is the part of that time in which the reader waits for a processor.
	waits time.Duration
	fails error
	dumps []Filter
}

func (r *remembered) Dump(_ context.Context, filter Filter, each func(*Entry) bool) (time.Duration, error) {
	r.dumps = append(r.dumps, filter)
	time.Sleep(r.takes)
	for i := range r.entries {
		if filter.Matches(&r.entries[i]) && !each(&r.entries[i]) {
			return r.takes, ErrCutOff
		}
	}
	return r.takes, r.fails
}

// looksAt are looks whose processor time is that of the table.
func looksAt(table *remembered, looked func(Look)) *Looks {
	looks := NewLooks(table, looked)
	looks.spent = func() time.Duration { return time.Duration(len(table.dumps)) * (table.takes - table.waits) }
	return looks
}

// tableOf has entries of both families: of UDP, and of TCP, answered and unanswered.
func tableOf(takes time.Duration) *remembered {
	r := &remembered{takes: takes}
	for _, addr := range []string{"10.0.0.1", "fd00::1"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(addr), 80)
		for _, status := range []Status{DestinationNAT, DestinationNAT | SeenReply} {
			for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
				r.entries = append(r.entries, Entry{Protocol: protocol, Status: status, Original: Tuple{at, at}, Reply: Tuple{at, at}})
			}
		}
	}
	return r
}

var (
	udp        = Filter{Protocol: model.UDP}
	udpOfIPv6  = Filter{Family: OnlyIPv6, Protocol: model.UDP}
	unanswered = Filter{Status: DestinationNAT, Mask: DestinationNAT | SeenReply}
	translated = Filter{Status: DestinationNAT, Mask: DestinationNAT}
	byOne      = Filter{Status: DestinationNAT, Mask: DestinationNAT, Answerers: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}
)

// TestWhoWaitsSharesALook: others come while one user looks, and one dump then serves all that its filter covers.
func TestWhoWaitsSharesALook(t *testing.T) {
	for name, test := range map[string]struct {
		wanted []Filter
		dumps  []Filter // of the look that they share
		counts []int
	}{
		"the same":                      {[]Filter{udp, udp, udp}, []Filter{udp}, []int{4, 4, 4}},
		"one covers the other":          {[]Filter{udpOfIPv6, udp}, []Filter{udp}, []int{2, 4}},
		"in the other order":            {[]Filter{udp, udpOfIPv6}, []Filter{udp}, []int{4, 2}},
		"by status and by answerer":     {[]Filter{unanswered, byOne, translated}, []Filter{translated}, []int{4, 4, 8}},
		"one covers all":                {[]Filter{udp, unanswered, {}}, []Filter{{}}, []int{4, 4, 8}},
		"neither covers the other":      {[]Filter{udp, unanswered}, []Filter{udp, unanswered}, []int{4, 4}},
		"a third covers one of the two": {[]Filter{udp, unanswered, translated}, []Filter{udp, translated}, []int{4, 4, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := tableOf(10 * time.Millisecond)
				looks := looksAt(table, nil)
				var users sync.WaitGroup
				users.Go(func() { count(t, looks, udp) })
				synctest.Wait()
				counts := make([]int, len(test.wanted))
				for i, filter := range test.wanted {
					users.Go(func() { counts[i] = count(t, looks, filter) })
					synctest.Wait()
				}
				users.Wait()
				if diff := cmp.Diff(append([]Filter{udp}, test.dumps...), table.dumps, cmp.Comparer(sameAddrs)); diff != "" {
					t.Errorf("dumps (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.counts, counts); diff != "" {
					t.Errorf("entries (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func sameAddrs(a, b netip.Addr) bool { return a == b }

func count(t *testing.T, table Table, filter Filter) (n int) {
	if _, err := table.Dump(t.Context(), filter, func(*Entry) bool { n++; return true }); err != nil {
		t.Errorf("%+v: %v", filter, err)
	}
	return n
}

// TestLooksRest: whoever asks over and over gets a fiftieth of a processor, and nobody waits for longer than two seconds.
func TestLooksRest(t *testing.T) {
	for name, test := range map[string]struct {
		takes, waits time.Duration
		looks        int // in 100 s
	}{
		"an empty table":         {time.Millisecond, 0, 2000},
		"a table of most nodes":  {20 * time.Millisecond, 0, 100},
		"a large table":          {110 * time.Millisecond, 0, 48},
		"a table without bounds": {3 * time.Second, 0, 21},
		"a busy machine":         {104 * time.Millisecond, 100 * time.Millisecond, 333},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table, done := tableOf(test.takes), 0
				table.waits = test.waits
				looks := looksAt(table, func(look Look) {
					if done++; look.Took != test.takes || look.CutOff != 0 {
						t.Errorf("told %+v, want %s", look, test.takes)
					}
				})
				for began := time.Now(); time.Since(began) < 100*time.Second; {
					count(t, looks, udp)
				}
				if len(table.dumps) < test.looks-1 || len(table.dumps) > test.looks+1 || done != len(table.dumps) {
					t.Errorf("%d looks, %d told; want %d", len(table.dumps), done, test.looks)
				}
			})
		})
	}
}

func TestALookAfterARestIsMadeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := looksAt(tableOf(time.Millisecond), nil)
		for range 3 {
			began := time.Now()
			count(t, looks, udp)
			if waited := time.Since(began); waited != time.Millisecond {
				t.Errorf("it took %s, want the look alone", waited)
			}
			time.Sleep(restFor * time.Millisecond)
		}
	})
}

func TestWhoWantsNoMoreKeepsNobodyElseFromIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cutOff := 0
		table := tableOf(time.Millisecond)
		looks := looksAt(table, func(look Look) { cutOff += look.CutOff })
		count(t, looks, udp)
		var users sync.WaitGroup
		users.Go(func() {
			seen := 0
			if _, err := looks.Dump(t.Context(), udp, func(*Entry) bool { seen++; return seen < 2 }); !errors.Is(err, ErrCutOff) || seen != 2 {
				t.Errorf("saw %d entries, %v; want 2, and that it was cut off", seen, err)
			}
		})
		users.Go(func() {
			if n := count(t, looks, udp); n != 4 {
				t.Errorf("another one saw %d entries, want 4", n)
			}
		})
		users.Wait()
		if cutOff != 1 {
			t.Errorf("%d looks were cut off, want 1", cutOff)
		}
	})
}

func TestSeveralQuestionsAreOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := 0
		table := tableOf(time.Millisecond)
		looks := looksAt(table, func(Look) { looked++ })
		counts := make([]int, 2)
		answers, err := looks.Ask(t.Context(), func() []Question {
			return []Question{
				{udp, func(*Entry) bool { counts[0]++; return true }},
				{unanswered, func(*Entry) bool { counts[1]++; return counts[1] < 3 }},
			}
		})
		if len(answers) != 2 || err != nil {
			t.Fatalf("%d answers, %v; want 2", len(answers), err)
		}
		for i, answer := range answers {
			if isCutOff := errors.Is(answer.Err, ErrCutOff); isCutOff != (i == 1) {
				t.Errorf("question %d: %v", i, answer.Err)
			}
		}
		if diff := cmp.Diff([]int{4, 3}, counts); diff != "" || looked != 1 || len(table.dumps) != 2 {
			t.Errorf("%d looks, %d dumps, entries (-want +got):\n%s", looked, len(table.dumps), diff)
		}
	})
}

// TestOneLookServesAllWhoWaitWhenItBegins, whoever of them makes it: nobody waits for a second rest. They say only then what
// they want. For those who want nothing there is no look.
func TestOneLookServesAllWhoWaitWhenItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looked := 0
		table := tableOf(10 * time.Millisecond) // and rests for 490
		looks := looksAt(table, func(Look) { looked++ })
		count(t, looks, udp)
		var wanted atomic.Pointer[[]Question]
		wanted.Store(&[]Question{})
		var users sync.WaitGroup
		for range 20 {
			users.Go(func() {
				asked := 0
				answers, err := looks.Ask(t.Context(), func() []Question { asked++; return *wanted.Load() })
				if len(answers) != 1 || err != nil || asked != 1 || looked != 2 {
					t.Errorf("%d answers, %v, asked %d times, at look %d; want 1 of look 2", len(answers), err, asked, looked)
				}
			})
			synctest.Wait()
		}
		wanted.Store(&[]Question{{unanswered, func(*Entry) bool { return true }}})
		users.Wait()
		if diff := cmp.Diff([]Filter{udp, unanswered}, table.dumps); diff != "" {
			t.Errorf("dumps (-want +got):\n%s", diff)
		}
		if _, err := looks.Ask(t.Context(), func() []Question { return nil }); err != nil || len(table.dumps) != 2 || looked != 2 {
			t.Errorf("%v, %d dumps, %d looks; want no third one for nothing", err, len(table.dumps), looked)
		}
	})
}

func TestWhoGivesUpKeepsNobodyElseFromLooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := tableOf(10 * time.Millisecond) // and rests for 490
		looks := looksAt(table, nil)
		count(t, looks, udp)
		var users sync.WaitGroup
		for range 2 { // the first one holds the turn, the second waits for it
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			users.Go(func() {
				if _, err := looks.Dump(ctx, translated, func(*Entry) bool { return true }); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, want that the time is over", err)
				}
			})
			synctest.Wait()
		}
		users.Go(func() { count(t, looks, udp) })
		users.Wait()
		if diff := cmp.Diff([]Filter{udp, udp}, table.dumps); diff != "" {
			t.Errorf("dumps (-want +got):\n%s", diff)
		}
	})
}

func TestALookThatFailsIsEverybodysError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := tableOf(time.Millisecond)
		table.fails = ErrInterrupted
		looks := looksAt(table, nil)
		var users sync.WaitGroup
		for range 3 {
			users.Go(func() {
				if _, err := looks.Dump(t.Context(), udp, func(*Entry) bool { return true }); !errors.Is(err, ErrInterrupted) {
					t.Errorf("%v, want %v", err, ErrInterrupted)
				}
			})
		}
		users.Wait()
	})
}

func TestProcessorTimeStandsStillWhileItsThreadSleeps(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := processorTime()
	time.Sleep(200 * time.Millisecond)
	if used := processorTime() - before; used > 100*time.Millisecond {
		t.Errorf("a sleep of 200 ms took %v of a processor", used)
	}
	for began := time.Now(); processorTime()-before < 5*time.Millisecond; {
		if time.Since(began) > time.Minute {
			t.Fatal("work takes no processor time")
		}
	}
}
