package explain

import (
	"fmt"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Rejection is a Service whose newest version a node's kernel rejects. No decision can predict this: only the kernel
// and the proxy that runs there know it.
type Rejection struct {
	Service string `json:"service"` // namespace/name
	// Message names the operation, the object and the kernel's reason.
	Message string `json:"message"`
	// Since is when the kernel first rejected it, Tries is the number of rejections since then, and Next is when the
	// proxy retries.
	Since time.Time `json:"since"`
	Tries int       `json:"tries"`
	Next  time.Time `json:"next"`
	// HasApplied reports whether an earlier version is applied. Otherwise nothing of the Service is.
	HasApplied bool `json:"applied"`
}

// rejectionLines warn that the kernel does not do what follows.
func rejectionLines(rejection *Rejection) []string {
	if rejection == nil {
		return nil
	}
	applied := "No version of this Service is applied on this node"
	if rejection.HasApplied {
		applied = "An earlier version of this Service is applied on this node"
	}
	return []string{
		fmt.Sprintf("%s: the kernel has rejected this one since %s, %s so far.",
			applied, rejection.Since.UTC().Format(time.RFC3339), sanitize.Count(rejection.Tries, "time")),
		rejection.Message,
	}
}
