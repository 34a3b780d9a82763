// Package notify has a signal between goroutines: that something happened, not how often.
package notify

// Signal wakes the goroutine that receives from it. It holds one at most: who wakes looks at all that happened before.
type Signal chan struct{}

// NewSignal returns a signal that nobody has sent yet.
func NewSignal() Signal { return make(Signal, 1) }

// Notify leaves a signal, unless one is waiting already. It never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}
