package server

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// recordingObserver is an Observer that records its calls.
type recordingObserver struct {
	mu       sync.Mutex
	lines    []string
	inFlight int
	max      int // the largest number in flight
}

func (o *recordingObserver) add(format string, values ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lines = append(o.lines, fmt.Sprintf(format, values...))
}

func (o *recordingObserver) Reviewed(path, outcome string, _ time.Duration) {
	o.add("reviewed %s %s", path, outcome)
}
func (o *recordingObserver) Decided(rule, action string) { o.add("decided %s %s", rule, action) }
func (o *recordingObserver) Defaulted(source, setting string) {
	o.add("defaulted %s %s", source, setting)
}
func (o *recordingObserver) Failed(reason string)   { o.add("failed %s", reason) }
func (o *recordingObserver) Rejected(reason string) { o.add("rejected %s", reason) }

func (o *recordingObserver) InFlight(delta int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight += delta
	o.max = max(o.max, o.inFlight)
}

func (o *recordingObserver) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.lines)
}

func (o *recordingObserver) count(line string) int {
	n := 0
	for _, other := range o.all() {
		if other == line {
			n++
		}
	}
	return n
}

func (o *recordingObserver) inFlightNow() (current, peak int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.inFlight, o.max
}

// noObserver is an Observer that ignores everything.
type noObserver struct{}

func (noObserver) Reviewed(string, string, time.Duration) {}
func (noObserver) Decided(string, string)                 {}
func (noObserver) Defaulted(string, string)               {}
func (noObserver) Failed(string)                          {}
func (noObserver) Rejected(string)                        {}
func (noObserver) InFlight(int)                           {}
