package proxy

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// PortReason is why a Service port has the endpoints that it has in one family.
type PortReason struct {
	Family model.Family
	// External: for clients from outside on the frontends that externalTrafficPolicy governs; otherwise for the
	// ClusterIP.
	External bool
	Code     selection.Code
}

// reasons counts the Service ports in force by reason, and knows what each Service counts for, so that a sync touches
// only the counts of the Services that it decides.
type reasons struct {
	byReason  map[PortReason]*int
	byService map[model.ObjectName][]*int // what each Service counts for: a word for each port, for there may be very many
}

func newReasons() reasons {
	return reasons{byReason: map[PortReason]*int{}, byService: map[model.ObjectName][]*int{}}
}

// accept takes over what the kernel accepted for some Services. Those without ports are among them, with none.
func (r *reasons) accept(decided map[model.ObjectName][]PortReason) {
	if len(r.byService) == 0 {
		r.byService = make(map[model.ObjectName][]*int, len(decided))
	}
	for service, now := range decided {
		for _, count := range r.byService[service] {
			*count--
		}
		delete(r.byService, service)
		if len(now) == 0 {
			continue
		}
		counts := make([]*int, 0, len(now))
		for _, reason := range now {
			count := r.byReason[reason]
			if count == nil {
				count = new(int)
				r.byReason[reason] = count
			}
			*count++
			counts = append(counts, count)
		}
		r.byService[service] = counts
	}
}

func (r *reasons) counts() map[PortReason]int {
	counts := make(map[PortReason]int, len(r.byReason))
	for reason, count := range r.byReason {
		counts[reason] = *count
	}
	return counts
}

// reasonsOf returns the reasons of a decision: for the ClusterIP, and for the external frontends if the port asks for
// any.
func reasonsOf(decision selection.Decision) []PortReason {
	internal, _ := decision.Selection.ClusterIP()
	list := []PortReason{{Family: decision.Family, Code: internal.Reason.Code}}
	if decision.Service.IsExternal(decision.Port, decision.Family) {
		external, _ := decision.Selection.External()
		list = append(list, PortReason{Family: decision.Family, External: true, Code: external.Reason.Code})
	}
	return list
}
