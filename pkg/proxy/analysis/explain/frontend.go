package explain

import (
	"fmt"
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// addressOf formats a frontend for Frontend.Address.
func addressOf(frontend model.Frontend) string {
	if frontend.IsNodePort() {
		return fmt.Sprintf("*:%d", frontend.Port)
	}
	return netip.AddrPortFrom(frontend.Addr, frontend.Port).String()
}

func describeFrontends(owned []model.PortFrontend) []Frontend {
	list := make([]Frontend, 0, len(owned))
	for _, frontend := range owned {
		list = append(list, describeFrontend(frontend))
	}
	return list
}

func describeFrontend(frontend model.PortFrontend) Frontend {
	return Frontend{Address: addressOf(frontend.Frontend), Kind: frontend.Kind.String()}
}

func describeLostFrontends(decision selection.Decision) []LostFrontend {
	var list []LostFrontend
	for _, frontend := range decision.LostFrontends {
		lost := LostFrontend{
			Frontend: describeFrontend(frontend.PortFrontend), Reason: string(frontend.Reason()), Message: frontend.Sentence(),
		}
		if frontend.Reserved == "" {
			lost.Owner = frontend.Owner.String()
		}
		list = append(list, lost)
	}
	return list
}
