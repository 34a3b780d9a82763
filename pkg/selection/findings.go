package selection

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// MaxFindings bounds the findings of a decision with one code. An owner may write any external IP into a Service, and a
// finding becomes an Event and a line in the log.
const MaxFindings = 10

// Findings say what the Service asks for but does not get: frontends, endpoints to which nothing can be sent, endpoints
// beyond what a Service can have. They do not name the Service.
func (d Decision) Findings() []model.Finding {
	var list []model.Finding
	for i := range d.Lost[:min(len(d.Lost), MaxFindings)] {
		list = append(list, d.Lost[i].Finding())
	}
	if len(d.Virtual) > 0 {
		addrs := slices.SortedFunc(maps.Keys(d.Virtual), netip.Addr.Compare)
		for _, addr := range addrs[:min(len(addrs), MaxFindings)] {
			list = append(list, partLeftOut(whyVirtual(addr, d.Virtual[addr]).Sentence()))
		}
	}
	if d.LeftOut > 0 {
		list = append(list, partLeftOut(TooManyEndpoints))
	}
	return list
}

// TooManyEndpoints is why endpoints are left out. It does not say how many, because that changes with every rollout.
var TooManyEndpoints = fmt.Sprintf("a Service can have %d in a family, its ports together", model.MaxPortEndpoints)

func partLeftOut(reason string) model.Finding {
	return model.Finding{Code: model.PartsLeftOut, Field: "endpoints", Reason: reason}
}
