package proxy_test

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/flows"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// recordedFlows records the flows that are noted.
type recordedFlows struct {
	calls []noted
}

// noted is one call.
type noted struct {
	flows []selection.Flows
	scope selection.Scope
}

func (r *recordedFlows) Note(flows []selection.Flows, scope selection.Scope) {
	r.calls = append(r.calls, noted{flows, scope})
}

// take returns what was noted since the last call, a line for each frontend: who may answer those inside, and those
// outside.
func (r *recordedFlows) take() []string {
	var lines []string
	for _, call := range r.calls {
		for _, flows := range call.flows {
			lines = append(lines, flowsText(flows))
		}
	}
	r.calls = nil
	return lines
}

// flowsText writes 10.96.0.10:53/UDP [10.244.0.1:53], followed, after a |, by who may answer clients outside if that
// differs.
func flowsText(flows selection.Flows) string {
	inside, outside := addrsText(flows.Inside), addrsText(flows.Outside)
	if inside == outside {
		return fmt.Sprintf("%s [%s]", flows.Frontend, inside)
	}
	return fmt.Sprintf("%s [%s | %s]", flows.Frontend, inside, outside)
}

func addrsText(addrs []netip.AddrPort) string {
	var list []string
	for _, addr := range addrs {
		list = append(list, addr.String())
	}
	return strings.Join(list, " ")
}

// noting is a reader that makes noter note flows.
func noting(noter flows.Noter) *flows.Reader { return flows.NewReader(noter) }

// starting returns a new proxy of both families, with readers.
func starting(kernel proxy.Kernel, readers ...selection.Reader) *proxy.Proxy {
	return proxy.New(self, bothFamilies, kernel, readers...)
}

// oneService returns the change that gives one Service and one slice of the same name a new state.
func oneService(service *model.Service, slice *model.EndpointSlice) model.Change {
	change := model.Change{Services: map[model.ObjectName]*model.Service{service.Name: service}}
	if slice != nil {
		change.Slices = map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}
	}
	return change
}
