package selection

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// MaxFindings bounds the findings of a decision with one code. An owner may write any external IP into a Service, and a
// finding becomes an Event and a line in the log.
const MaxFindings = 10

// Findings say what the Service asks for but does not get: frontends, endpoints beyond what a Service can
// have. They do not name the Service.
func (d Decision) Findings() []model.Finding {
	var list []model.Finding
	for i := range d.LostFrontends[:min(len(d.LostFrontends), MaxFindings)] {
		list = append(list, d.LostFrontends[i].Finding())
	}
	if d.Skipped > 0 {
		list = append(list, model.Finding{Code: model.PartiallyIgnored, Field: "endpoints", Reason: TooManyEndpoints})
	}
	return list
}

// TooManyEndpoints is why endpoints are left out. It does not say how many, because that changes with every rollout.
var TooManyEndpoints = fmt.Sprintf("a Service can have %d in a family, its ports together", model.MaxPortEndpoints)
