package proxy_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// recordedFlows keeps what it is asked to forget.
type recordedFlows struct {
	calls []forgotten
	// fails is the error of the calls for a family from now on; ends is how many flows each call ends.
	fails map[model.Family]error
	ends  int
	// failing is how many calls fail before that, whatever they are for.
	failing int
}

// forgotten is one call.
type forgotten struct {
	flows []selection.Flows
	scope selection.Scope
}

func (r *recordedFlows) Forget(_ context.Context, flows []selection.Flows, scope selection.Scope) (int, error) {
	r.calls = append(r.calls, forgotten{flows, scope})
	if r.failing > 0 {
		r.failing--
		return 0, errInjected
	}
	return r.ends, r.fails[model.FamilyOf(flows[0].Frontend.Addr)]
}

// take returns what was asked since the last call, a line for each frontend: who may answer those inside, and those outside.
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

// flowsText writes 10.96.0.10:53/UDP [10.244.0.1:53], with who may answer clients outside after a | if that is somebody else.
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

// starting returns a new proxy whose flows do not matter.
func starting(kernel proxy.Kernel) *proxy.Proxy {
	return proxy.New(self, bothFamilies, kernel, &recordedFlows{})
}

// oneService returns the change that gives one Service and one slice of the same name a new state.
func oneService(service *model.Service, slice *model.EndpointSlice) model.Change {
	change := model.Change{Services: map[model.ObjectName]*model.Service{service.Name: service}}
	if slice != nil {
		change.Slices = map[model.ObjectName]*model.EndpointSlice{slice.Name: slice}
	}
	return change
}
