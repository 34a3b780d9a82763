package explain

import (
	"fmt"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Rejection is a Service whose newest version the kernel of a node refuses. No decision can predict this: only the kernel
// knows, and the proxy that runs there.
type Rejection struct {
	Service string `json:"service"` // namespace/name
	// Message names the operation, the object and the kernel's reason.
	Message string `json:"message"`
	// Since is when the kernel first refused it, Tries how often since then, Next when the proxy tries again.
	Since time.Time `json:"since"`
	Tries int       `json:"tries"`
	Next  time.Time `json:"next"`
	// HasApplied: an earlier version is in force. Otherwise nothing of the Service is.
	HasApplied bool `json:"applied"`
}

// rejectionLines say that what follows is not what the kernel does.
func rejectionLines(rejection *Rejection) []string {
	if rejection == nil {
		return nil
	}
	inForce := "Nothing of this Service is in force on this node"
	if rejection.HasApplied {
		inForce = "An earlier version of this Service is in force on this node"
	}
	return []string{
		fmt.Sprintf("%s: the kernel refuses this one since %s, %s so far.",
			inForce, rejection.Since.UTC().Format(time.RFC3339), sanitize.Count(rejection.Tries, "time")),
		rejection.Message,
	}
}
