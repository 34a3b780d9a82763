package proxy

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
)

// shortages are what the kernel says when it lacks something for a moment, whatever our tables hold. ENFILE is none of them: it says
// that a set is full, which another program made too small.
var shortages = []error{
	syscall.ENOBUFS, syscall.ENOMEM, syscall.EINTR, syscall.EAGAIN, syscall.ETIMEDOUT, os.ErrDeadlineExceeded, context.DeadlineExceeded,
}

// isShortage reports whether a failure says nothing of what is in the kernel. To make the tables anew would not help then, and cost
// every client its affinity.
func isShortage(err error) bool {
	return slices.ContainsFunc(shortages, func(shortage error) bool { return errors.Is(err, shortage) })
}
