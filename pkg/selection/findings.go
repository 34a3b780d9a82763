package selection

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// MaxFindings bounds the findings of a decision with the same code. An owner may write any external IP into a Service,
// and a finding becomes an Event and a log line.
const MaxFindings = 10

// Findings returns what the Service requests but does not get: frontends of other Services, and endpoints beyond the
// limit. They do not name the Service.
func (d Decision) Findings() []model.Finding {
	var findings []model.Finding
	for i := range d.LostFrontends[:min(len(d.LostFrontends), MaxFindings)] {
		findings = append(findings, d.LostFrontends[i].Finding())
	}
	if d.Skipped > 0 {
		findings = append(findings, model.Finding{Code: model.PartiallyIgnored, Field: "endpoints", Reason: TooManyEndpoints})
	}
	return findings
}

// TooManyEndpoints is the reason for skipped endpoints. It has no count of them, because that changes with every
// rollout.
var TooManyEndpoints = fmt.Sprintf("a Service can have at most %d per IP family, all its ports together", model.MaxPortEndpoints)
