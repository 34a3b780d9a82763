// Package notify provides a signal between goroutines that something happened, but not how often.
package notify

// Signal wakes the goroutine that receives from it. It holds at most one notification, so the receiver must process
// everything that happened before.
type Signal chan struct{}

// NewSignal returns a signal without a notification.
func NewSignal() Signal { return make(Signal, 1) }

// Notify sends a notification unless one is pending. It never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}
