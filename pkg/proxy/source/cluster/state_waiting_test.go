package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// tick is how often a test looks at what happens.
const tick = 100 * time.Millisecond

// attack lets a tenant name another key in its Service once each step, until the time is over or done holds. A list is complete some time
// after it was begun; zero means never. It returns how many lists were begun.
func (w *world) attack(total, step, takes time.Duration, done func() bool) (lists int) {
	start := w.now
	for at := tick; at <= total && !done(); at += tick {
		w.now = start.Add(at)
		before := w.begun
		if at%step == 0 {
			w.service("attacker", 80, policy.Key(fmt.Sprintf("evil.example/%d", w.version)))
		}
		w.pass(testPace)
		if w.begun != before {
			lists++
		}
		if w.coming != nil && w.coming.isBegun() && takes > 0 && w.now.Sub(w.coming.begun) >= takes {
			w.listed(w.coming)
		}
	}
	return lists
}

func notDone() bool { return false }

func TestWhoNamesOneKeyAfterTheOtherMakesNobodyWaitLonger(t *testing.T) {
	const total = time.Minute
	for _, step := range []time.Duration{tick, 700 * time.Millisecond, 9 * time.Second} {
		for name, takes := range map[string]time.Duration{"lists are quick": tick, "lists take long": 4 * time.Second, "no list comes": 0} {
			t.Run(fmt.Sprintf("%s, an edit each %v", name, step), func(t *testing.T) {
				w := newWorld()
				lists := w.attack(total, step, takes, notDone)
				w.service("victim", 80, rack)
				since, isServed := w.now, func() bool { return w.inForce[nameOf("victim")] != nil }
				lists += w.attack(total, step, takes, isServed)
				if waited := w.now.Sub(since); !isServed() || waited > testPace.patience {
					t.Errorf("a Service of somebody else waited for %v, want at most %v", waited, testPace.patience)
				}
				if takes > 0 && !w.nodes.keys[rack] {
					t.Error("it was put in force before its label was known")
				}
				lists += w.attack(total, step, takes, notDone)
				if most := int(3*total/testPace.interval) + 1; lists == 0 || lists > most {
					t.Errorf("%d lists were begun, want at most %d and some", lists, most)
				}
			})
		}
	}
}

func TestAListThatSomebodyWaitsForIsNeverBegunAnew(t *testing.T) {
	w := newWorld()
	w.service("victim", 80, rack)
	w.begin()
	set := w.coming
	// Longer than the patience: the list may well be complete behind it.
	w.attack(3*testPace.patience, tick, 0, notDone)
	if w.coming != set {
		t.Fatal("another list was begun")
	}
	w.listed(set)
	if w.nodes != set || w.coming == nil || w.coming.isBegun() {
		t.Error("the nodes are not in force, or the attacker's key is not the next")
	}
}

func TestKeysOfAListThatHasNotBegunAreListedTogether(t *testing.T) {
	w := newWorld()
	w.service("a", 80, rack)
	w.service("b", 80, row)
	w.begin()
	w.list()
	if got, want := w.delivered(), "service/a:80 service/b:80"; got != want || w.coming != nil {
		t.Errorf("one list delivered %q, want %q", got, want)
	}
}

func TestPatienceCountsFromWhenTheServiceWasFirstHeld(t *testing.T) {
	history(t,
		step{"a Service waits", func(w *world) { w.service("web", 80, rack) }, ""},
		step{"it is edited", func(w *world) { w.passes(6 * time.Second); w.service("web", 81, row) }, ""},
		step{"another one waits", func(w *world) { w.service("shop", 80, row) }, ""},
		step{"the first one has waited long enough", func(w *world) { w.passes(4 * time.Second) }, "service/web:81"},
		step{"it is edited again, and names no other key", func(w *world) { w.service("web", 82, row) }, "service/web:82"},
		step{"it names another one", func(w *world) { w.service("web", 83, rack, row) }, ""},
		step{"the other one has waited long enough", func(w *world) { w.passes(6 * time.Second) }, "service/shop:80"},
	)
}

func TestTheFirstUpdateWaitsNoLongerThanItsPatience(t *testing.T) {
	w := newWorld()
	w.service("early", 80, rack)
	w.now = w.now.Add(time.Minute) // other lists take that long
	w.startWaiting()
	w.passes(testPace.patience / 2)
	w.service("late", 80, row)
	if got := len(w.held); got != 2 {
		t.Fatalf("%d Services are held, want both", got)
	}
	w.passes(testPace.patience / 2)
	w.service("latest", 80, "example.com/other")
	if len(w.held) > 0 {
		t.Errorf("Services are held when the patience is over, and keep the first update back: %v", w.held)
	}
	w.firstTaken()
	w.service("next", 80, "example.com/next")
	if len(w.held) != 1 {
		t.Error("a Service behind the first update does not wait")
	}
}
